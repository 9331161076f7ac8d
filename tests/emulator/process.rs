//! The emulator as a process of its own, as a user starts it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The program, without the environment's own settings.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CALLSHEET_") {
            command.env_remove(name);
        }
    }
    command
        .arg("emulator")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A running emulator; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    /// The line that said that it is ready.
    pub(crate) ready: Value,
    pub(crate) base_url: String,
}

impl Running {
    /// Start one on free ports and wait until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(program(&[&["--listen", "127.0.0.1:0", "--json"], arguments].concat()))
    }

    /// Wait until a command that was given `--json` is ready.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("not ready: {line:?}\n{said}")
        });
        let base_url = ready["base_url"].as_str().unwrap().to_owned();
        Self { child, ready, base_url }
    }

    /// Send a signal and wait for the end; what it wrote to stdout after the first line, and to stderr.
    pub(crate) fn end(&mut self, signal: Signal) -> (ExitStatus, String, String) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap(), out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that goes straight to where it is told.
pub(crate) fn http_client() -> reqwest::ClientBuilder {
    callsheet::api::install_tls_provider();
    reqwest::Client::builder().no_proxy()
}
