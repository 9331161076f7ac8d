//! Trying a database out in a process of its own.
//!
//! A damaged file can make sled panic or run in circles, and a panic ends this program. So a database that was not closed
//! in order, or is not as it was left, is first opened and read to the end by a child: the program
//! itself with [`ARGUMENT`]. What the child dies of is damage; the parent lives to say so.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use crate::store::CACHE_BYTES;
use crate::store::error::{in_words, is_damage};
use crate::store::snapshot::Salvaged;

/// First argument of the child. The second is the folder of the database.
pub const ARGUMENT: &str = "__try-database";

/// How long a child may take: a scan of a million records takes some seconds.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// The child's exit code for a database that could not be opened for reasons of the file system.
const NOT_CHECKED: u8 = 3;
/// The child's exit code for a damaged database.
const DAMAGED: u8 = 4;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that answers to [`ARGUMENT`]. Without it a database is opened untried.
pub fn use_program(path: PathBuf) {
    // The first one stays.
    let _ = PROGRAM.set(path);
}

/// Whether databases can be tried out.
pub(super) fn is_possible() -> bool {
    PROGRAM.get().is_some()
}

/// The child's part: opens the database, reads all of it, prints what it holds, and returns the
/// exit code.
pub fn child(path: &OsString) -> u8 {
    // A parent that is killed while it waits takes this with it: nobody would read what is found, and the next
    // process sweeps the copy. Without it, the copy is swept a little later.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let opened =
        sled::Config::new().path(Path::new(path)).cache_capacity(CACHE_BYTES).flush_every_ms(None).open();
    let (code, text) = match opened {
        Ok(db) => (0, serde_json::to_string(&Salvaged::of(&db)).unwrap_or_default()),
        Err(error) if is_damage(&error) => (DAMAGED, in_words(&error)),
        Err(error) => (NOT_CHECKED, error.to_string()),
    };
    // A parent that went away needs no answer.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    code
}

/// What trying a database out came to.
#[derive(Debug)]
pub(super) enum CheckResult {
    /// It opens, and this is what it holds.
    Opens(Box<Salvaged>),
    /// It is damaged: why.
    Damaged(String),
    /// It was not tried: opening it tells.
    No,
}

/// Tries the database in `path` out.
pub(super) fn check_in_child(path: &Path) -> CheckResult {
    let Some(program) = PROGRAM.get() else { return CheckResult::No };
    let child = Command::new(program)
        .arg(ARGUMENT)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => wait(child),
        Err(error) => {
            tracing::warn!(%error, "the database is opened without a trial in a child process");
            CheckResult::No
        }
    }
}

fn wait(mut child: Child) -> CheckResult {
    let (sender, text) = mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    for (index, pipe) in pipes.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                // What could be read is good enough for a message.
                let _ = pipe.read_to_end(&mut bytes);
            }
            let _ = sender.send((index, bytes));
        });
    }
    let mut said = [Vec::new(), Vec::new()];
    for _ in 0..said.len() {
        let Ok((index, bytes)) = text.recv_timeout(CHECK_TIMEOUT) else {
            let _ = child.kill();
            let _ = child.wait();
            return CheckResult::Damaged("reading it does not end".to_owned());
        };
        said[index] = bytes;
    }
    let code = child.wait().ok().and_then(|status| status.code());
    let [out, err] = said.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match code {
        Some(0) => serde_json::from_str(&out)
            .map_or(CheckResult::No, |salvage| CheckResult::Opens(Box::new(salvage))),
        Some(code) if code == i32::from(NOT_CHECKED) => CheckResult::No,
        Some(code) if code == i32::from(DAMAGED) => CheckResult::Damaged(out),
        _ => CheckResult::Damaged(panic_in_words(&err)),
    }
}

/// What a dying child said, on one line.
fn panic_in_words(stderr: &str) -> String {
    let mut lines = stderr.lines().skip_while(|line| !line.contains("panicked at"));
    let said = lines.nth(1).unwrap_or("it crashed the process that read it").trim();
    format!("it cannot be read: {said}")
}
