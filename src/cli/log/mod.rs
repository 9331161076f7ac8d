//! Where the log goes and how it looks. Logs go to stderr or to the journal; data alone goes to stdout.
//!
//! Logging begins before anything else, so the configuration is looked at twice: here for `[log]` alone,
//! whatever else is in it, and by the command, which reports what is wrong with the file. Until the
//! file is corrected, logs look as they would without it.
//!
//! A daemon goes on where nobody reads its log: a thread of its own writes it (`queue.rs`). So it does for the journal. The
//! log of other commands is written at once, in its place between what they say.

mod format;
mod journal;
mod queue;

use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::fstat;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use self::format::{FormatLayer, LineFormat, Style, dropped_notice};
use self::journal::Journal;
use self::queue::LogQueue;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::live_line::LiveLine;
use crate::clock::Clock;
use crate::config::{Config, LogConfig, LogFormat};
use crate::domain::exit_code::Exit;

/// Default level of commands.
const LEVEL: &str = "warn";
/// Default level of the daemon.
const DAEMON_LEVEL: &str = "info";

/// How long the end of the process waits for somebody who does not read what it says.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// What the process is for, as far as its log is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogProfile {
    /// A command that ends by itself, and whose log stands between what it says.
    Command,
    /// A server whose warnings are shown.
    #[cfg(feature = "emulator")]
    Emulator,
    /// The service.
    Daemon,
}

/// Writes a line, and may wait for its reader.
type LineWriter = Box<dyn FnMut(&[u8]) + Send>;

/// What writes lines, where they are not written at once.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();
/// The filter in force, for changing it, and whether it is a daemon's.
static FILTER: OnceLock<(reload::Handle<EnvFilter, Registry>, bool)> = OnceLock::new();
/// The live line that others must not run into.
static LIVE_LINE: Mutex<Option<LiveLine>> = Mutex::new(None);

/// Starts logging, as flag, environment and file say.
///
/// # Errors
/// When the journal is asked for and does not answer, or the system gives no thread.
pub(super) fn begin(global: &Global, profile: LogProfile) -> Result<(), Failure> {
    let (is_daemon, clock) = (profile == LogProfile::Daemon, Clock::start());
    // A file that cannot be read is reported by the command, if it needs one.
    let config = Config::load(global.config.as_deref()).map(|config| config.log).unwrap_or_default();
    let (filter, handle) = reload::Layer::new(filter(level(global, &config, is_daemon))?);
    let _ = FILTER.set((handle, is_daemon));
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let is_journal = is_stderr(stream.as_deref()) && journal().is_ok();
    let destination = destination(config.format, is_daemon, stderr().is_terminal(), is_journal);
    let (format, write): (_, Option<LineWriter>) = match destination {
        Destination::Journal => {
            let journal = journal()?;
            (LineFormat::JournalEntry, Some(Box::new(move |entry| journal.write(entry))))
        }
        Destination::Stderr(style) if profile == LogProfile::Command => (LineFormat::Text(style), None),
        Destination::Stderr(style) => (LineFormat::Text(style), Some(Box::new(write_unlocked))),
    };
    let notice = move |dropped| dropped_notice(format, dropped, clock.now().wall);
    let queue = write.map(|write| LogQueue::begin(write, notice)).transpose().map_err(|error| {
        Failure::new(Exit::Disk, format!("failed to start the thread that writes the log: {error}"))
            .hint("the system or its limits allow no further thread; raise the limit, then start again")
    })?;
    if let Some(queue) = &queue {
        let _ = QUEUE.set(queue.clone());
    }
    // Nothing else in the program begins logging.
    let layer = FormatLayer::new(format, queue, clock);
    let _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
    Ok(())
}

/// Waits until what was logged is written, and no longer than a second where nobody reads it. For the end of the process.
pub(super) fn flush() {
    if let Some(queue) = QUEUE.get() {
        // There is nobody to tell.
        let _ = queue.flush(READER_TIMEOUT);
    }
}

/// The last words of a process, after what it logged. Where a queue writes the log, they are waited for no longer than
/// that, either.
pub(super) fn say_last<T: Send + 'static>(say: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    flush();
    if QUEUE.get().is_none() {
        return Some(say());
    }
    let (said, is_said) = mpsc::channel();
    let speaker = thread::Builder::new().spawn(move || said.send(say()));
    // Without a thread its sender is dropped, and nothing is waited for.
    drop(speaker);
    is_said.recv_timeout(READER_TIMEOUT).ok()
}

/// Ends the process after a panic was reported, or could not be for so long.
pub(super) fn abort_after(report: impl FnOnce()) -> ! {
    let (reported, is_reported) = mpsc::channel::<()>();
    // Where there is no thread for it, the process ends when the report is written.
    let _ = thread::Builder::new().spawn(move || {
        let _ = is_reported.recv_timeout(READER_TIMEOUT * 2);
        std::process::abort();
    });
    flush();
    report();
    drop(reported);
    std::process::abort();
}

/// Applies the level of a reloaded configuration, unless flag or environment set one.
pub(super) fn follow(global: &Global, config: &LogConfig) {
    let Some((handle, is_daemon)) = FILTER.get() else { return };
    if let Ok(filter) = EnvFilter::try_new(level(global, config, *is_daemon)) {
        // Fails only at the end of the process.
        let _ = handle.reload(filter);
    }
}

/// Lines are written above this one from now on, or with nothing below them.
pub(super) fn above(line: Option<LiveLine>) {
    *LIVE_LINE.lock().unwrap_or_else(PoisonError::into_inner) = line;
}

/// Writes a whole line to stderr. The thread that writes the log takes no lock: others may still say something while it waits.
fn write_unlocked(mut line: &[u8]) {
    while !line.is_empty() {
        match rustix::io::retry_on_intr(|| rustix::io::write(stderr(), line)) {
            Ok(written) => line = &line[written..],
            // There is nobody to tell when stderr is gone.
            Err(_) => return,
        }
    }
}

/// Writes a whole line to stderr.
fn write(line: &[u8]) {
    let live = LIVE_LINE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // There is nobody to tell when stderr is gone.
    let write = || drop(stderr().lock().write_all(line));
    match live {
        Some(live) => live.above(write),
        None => write(),
    }
}

fn level<'a>(global: &'a Global, config: &'a LogConfig, is_daemon: bool) -> &'a str {
    let usual = if is_daemon { DAEMON_LEVEL } else { LEVEL };
    global.log_level.as_deref().or(config.level.as_deref()).unwrap_or(usual)
}

fn filter(level: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(level).map_err(|error| {
        Failure::new(Exit::Usage, format!("invalid log level {level:?}: {error}"))
            .hint("--log-level and log.level take error, warn, info, debug, trace or off")
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Destination {
    Journal,
    Stderr(Style),
}

fn destination(format: LogFormat, is_daemon: bool, is_terminal: bool, is_journal: bool) -> Destination {
    match format {
        LogFormat::Human => Destination::Stderr(human()),
        LogFormat::Json => Destination::Stderr(Style::Json),
        LogFormat::Journald => Destination::Journal,
        LogFormat::Auto if !is_daemon || is_terminal => Destination::Stderr(human()),
        LogFormat::Auto if is_journal => Destination::Journal,
        LogFormat::Auto => Destination::Stderr(Style::Json),
    }
}

fn human() -> Style {
    Style::Human { colour: anstream::AutoStream::choice(&stderr()) != anstream::ColorChoice::Never }
}

/// Whether stderr is the stream that systemd connected to the journal, as `$JOURNAL_STREAM` names it by
/// device and inode. The variable is inherited: a child whose stderr goes elsewhere has it, too.
fn is_stderr(stream: Option<&str>) -> bool {
    let named = stream.and_then(|stream| stream.split_once(':'));
    let Some((device, inode)) = named else { return false };
    fstat(stderr()).is_ok_and(|stat| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

fn journal() -> Result<Journal, Failure> {
    Journal::find().map_err(|error| {
        let message = format!(
            "log.format is journald, but the journal is not available at {}: {error}",
            Journal::socket_path()
        );
        Failure::new(Exit::Usage, message).hint("log.format = \"auto\" uses the journal if there is one")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_its_device_and_inode() {
        let stat = fstat(stderr()).unwrap();
        assert!(is_stderr(Some(&format!("{}:{}", stat.st_dev, stat.st_ino))));
        assert!(!is_stderr(Some(&format!("{}:{}", stat.st_dev, stat.st_ino + 1))), "it was led elsewhere");
        assert!(!is_stderr(Some("nonsense")));
        assert!(!is_stderr(None));
    }

    /// `people`, `JSON` or `journal`, on a terminal, in a pipe, and where stderr is the journal.
    fn by_surroundings(format: LogFormat, is_daemon: bool) -> String {
        let surroundings = [(true, false), (false, false), (false, true)];
        let name = |(is_terminal, is_journal)| match destination(format, is_daemon, is_terminal, is_journal) {
            Destination::Stderr(Style::Human { .. }) => "people",
            Destination::Stderr(Style::Json) => "JSON",
            Destination::Journal => "journal",
        };
        surroundings.map(name).join(" ")
    }

    #[test]
    fn the_daemon_follows_its_surroundings_and_a_command_stays_readable() {
        assert_eq!(by_surroundings(LogFormat::Auto, true), "people JSON journal");
        assert_eq!(by_surroundings(LogFormat::Auto, false), "people people people");
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        for is_daemon in [true, false] {
            assert_eq!(by_surroundings(LogFormat::Json, is_daemon), "JSON JSON JSON");
            assert_eq!(by_surroundings(LogFormat::Human, is_daemon), "people people people");
            assert_eq!(by_surroundings(LogFormat::Journald, is_daemon), "journal journal journal");
        }
    }
}
