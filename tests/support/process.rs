//! The client as a process: what it says while it runs, how it ends, how much memory it took.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::api_key::holds_key;
use super::{eventually, until};

/// The colours of a log line, which begins with a dimmed time.
const PAINT: [&str; 7] = ["\x1b[0m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[34m", "\x1b[35m"];
/// What marks failures and waits in what a command prints.
const TONES: [&str; 3] = ["\x1b[0m", "\x1b[31m", "\x1b[33m"];

/// A client that has ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code, or none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it left an image of its memory.
    pub dumped: bool,
    pub stdout: String,
    pub stderr: String,
    /// The most memory that it was seen to hold.
    pub peak_bytes: u64,
}

impl Outcome {
    fn of(status: ExitStatus, stdout: String, stderr: String, peak_bytes: u64) -> Outcome {
        let said = [&stdout, &stderr].into_iter().flat_map(|text| text.lines());
        let with_key = said.filter(|line| holds_key(line.as_bytes())).collect::<Vec<_>>();
        assert!(with_key.is_empty(), "the API key is said: {with_key:?}");
        let dumped = status.core_dumped();
        Outcome { code: status.code(), signal: status.signal(), dumped, stdout, stderr, peak_bytes }
    }

    /// It ended by itself, with this exit code.
    #[track_caller]
    pub fn exited(self, code: i32) -> Outcome {
        assert_eq!(
            self.code,
            Some(code),
            "signal {:?}\n--- stdout\n{}--- stderr\n{}",
            self.signal,
            self.stdout,
            self.stderr
        );
        self
    }

    /// It was killed: no exit code, no last words.
    #[track_caller]
    pub fn was_killed(self, when: &str) -> Outcome {
        assert_eq!(
            self.signal,
            Some(9),
            "{when}: exit code {:?}\n--- stdout\n{}--- stderr\n{}",
            self.code,
            self.stdout,
            self.stderr
        );
        self
    }

    /// It said this on stderr.
    #[track_caller]
    pub fn says(self, text: &str) -> Outcome {
        assert!(self.stderr.contains(text), "not said: {text}\n--- stderr\n{}", self.stderr);
        self
    }

    /// It said nothing that a terminal obeys or that turns text around, beside its own colours. Of one
    /// that did not run by [`super::TestEnv::run_raw`] this says little.
    #[track_caller]
    pub fn commands_no_terminal(&self) {
        let is_obeyed = |c: char| {
            (c.is_control() && c != '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        for line in self.stdout.lines().chain(self.stderr.lines()) {
            let is_log = line.starts_with("\x1b[2m20");
            let paints = if is_log { &PAINT[..] } else { &TONES[..] };
            let text = paints.iter().fold(line.to_owned(), |text, paint| text.replace(paint, ""));
            assert!(!text.contains(is_obeyed), "{text:?}");
        }
    }

    /// What it printed with `--json`: one object and nothing else.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON alone: {error}\n{}", self.stdout))
    }
}

/// A client that runs. It does not outlive the test.
pub struct Running {
    child: Child,
    stdout: Tap,
    stderr: Tap,
    peak_bytes: u64,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let arguments = command.get_args().map(|argument| argument.as_encoded_bytes());
        assert!(!arguments.into_iter().any(holds_key), "a list of processes would show the API key");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = Tap::on(child.stdout.take().unwrap());
        let stderr = Tap::on(child.stderr.take().unwrap());
        Running { child, stdout, stderr, peak_bytes: 0 }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. One that is gone already feels nothing.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, signal);
    }

    /// Ends it as systemd would, and sees that it takes that well.
    #[track_caller]
    pub fn stop(self) -> Outcome {
        self.signal(Signal::TERM);
        self.end().exited(0)
    }

    /// What it has said on stderr so far.
    pub fn said(&self) -> String {
        self.stderr.text()
    }

    /// What it has printed on stdout so far.
    pub fn peek(&self) -> String {
        self.stdout.text()
    }

    /// Waits until it has said this on stderr.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Running {
        until(&format!("\"{text}\" on stderr"), || self.stderr.text().contains(text));
        self
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn end(mut self) -> Outcome {
        let status = eventually("the client to end", || self.look());
        self.collect(status)
    }

    /// Kills it once it has run for so long, unless it ends before.
    pub fn end_or_kill_after(mut self, delay: Duration) -> Outcome {
        let began = Instant::now();
        let status = eventually("the client to end or be killed", || {
            if began.elapsed() >= delay {
                self.signal(Signal::KILL);
            }
            self.look()
        });
        self.collect(status)
    }

    fn look(&mut self) -> Option<ExitStatus> {
        self.peak_bytes = self.peak_bytes.max(peak_bytes(self.child.id()).unwrap_or_default());
        self.child.try_wait().unwrap()
    }

    fn collect(mut self, status: ExitStatus) -> Outcome {
        Outcome::of(status, self.stdout.rest(), self.stderr.rest(), self.peak_bytes)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only a test that failed leaves one running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The high-water mark of a process's memory (`VmHWM`); nothing once it has ended. Nothing either as long as it does not run
/// its own program: until then the memory is that of the tests, and a process is seen so for a moment after `spawn`.
fn peak_bytes(pid: u32) -> Option<u64> {
    if fs::read_link(format!("/proc/{pid}/exe")).ok()? == std::env::current_exe().ok()? {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Reads a pipe as it fills.
struct Tap {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Tap {
    fn on(mut pipe: impl Read + Send + 'static) -> Tap {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = text.clone();
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 8 * 1024];
            while let Ok(read @ 1..) = pipe.read(&mut piece) {
                into.lock().unwrap().extend_from_slice(&piece[..read]);
            }
        });
        Tap { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    /// Everything, to the end of the pipe.
    fn rest(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.text()
    }
}
