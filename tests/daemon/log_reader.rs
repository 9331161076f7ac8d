//! A daemon whose log is read by nobody, or late.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{TestEnv, eventually, manifests, until};

/// What is found in a pipe before the log.
const BEFORE: u8 = b'.';

/// A pipe that takes nothing until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    for size in [4096, 1] {
        while writer.write(&vec![BEFORE; size]).is_ok() {}
    }
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// A process whose stderr nobody reads yet. It does not outlive the test.
struct Unread {
    process: Child,
    stderr: BufReader<PipeReader>,
}

impl Unread {
    fn start(mut command: Command) -> Unread {
        let (reader, writer) = full_pipe();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
        Unread { process: command.spawn().unwrap(), stderr: BufReader::new(reader) }
    }

    fn daemon(env: &TestEnv) -> Unread {
        let unread = Unread::start(env.command(["daemon", "--log-level", "trace"]));
        until("the daemon to listen", || env.path("state/callsheet.sock").exists());
        unread
    }

    /// The next line of the log.
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        serde_json::from_str(line.trim_start_matches(char::from(BEFORE))).unwrap()
    }

    /// Waits until it has ended, which takes some seconds at most.
    fn end(&mut self) -> ExitStatus {
        let began = Instant::now();
        let status = eventually("the process to end", || self.process.try_wait().unwrap());
        assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
        status
    }

    fn terminate(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        self.end()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_daemon_whose_log_is_not_read_does_its_work_answers_and_ends() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 20));
    let mut unread = Unread::daemon(&env);
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    let status = env.run(["status", "batch", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["state"], "done");
    assert_eq!(unread.terminate().code(), Some(0));
    env.audit().each_paid_once(20);
    // Nothing of its log was read.
    let mut log = Vec::new();
    unread.stderr.read_to_end(&mut log).unwrap();
    assert!(log.iter().all(|byte| *byte == BEFORE), "{}", String::from_utf8_lossy(&log));
}

#[test]
fn who_reads_the_log_late_is_told_how_many_lines_were_dropped() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 150));
    let mut unread = Unread::daemon(&env);
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    let dropped = loop {
        let line = unread.line();
        if line["message"].as_str().unwrap().starts_with("log lines were dropped") {
            assert_eq!(line["level"], "WARN");
            break line["dropped"].as_u64().unwrap();
        }
    };
    assert!(dropped > 0);
    // What comes afterwards is written, to the last line.
    let mut stderr = std::mem::replace(&mut unread.stderr, BufReader::new(io::pipe().unwrap().0));
    let reading = std::thread::spawn(move || {
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        rest
    });
    assert_eq!(unread.terminate().code(), Some(0));
    let rest = reading.join().unwrap();
    assert!(rest.contains(r#""message":"stopping"#), "{rest}");
}

#[test]
fn a_daemon_that_cannot_begin_ends_although_nobody_reads_why() {
    let env = TestEnv::new();
    env.write("secret", "whsec_short");
    env.configure("[hooks]\nwebhook = \"http://127.0.0.1:1/\"\nwebhook_secret_file = \"secret\"");
    let mut unread = Unread::start(env.command(["daemon"]));
    assert_eq!(unread.end().code(), Some(2));
}

#[test]
fn a_watched_status_ends_once_nobody_reads_it() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    // Nothing changes any more, so that nothing more is written either.
    for words in [&["status", "--watch"][..], &["status", "--watch", "--json"]] {
        let mut command = env.command(words.iter().copied());
        let (reader, writer) = io::pipe().unwrap();
        command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
        let mut watching = Unread { process: command.spawn().unwrap(), stderr: BufReader::new(reader) };
        drop(command);
        let mut first = String::new();
        watching.stderr.read_line(&mut first).unwrap();
        watching.stderr = BufReader::new(io::pipe().unwrap().0);
        assert_eq!(watching.end().code(), Some(0), "after {first}");
    }
    daemon.stop();
}
