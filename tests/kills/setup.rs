//! What the runs share: an environment with a gate before its service, and a story that is shown where a test stops.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use callsheet_emulator::Options;
use rustix::process::Signal;

use crate::kills::call_interceptor::CallInterceptor;
use crate::support::process::{Outcome, Running};
use crate::support::{TIMEOUT, TestEnv};

/// Between two looks at a client that runs.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// An environment whose client reaches the service through a gate.
pub struct InterceptedEnv {
    pub env: TestEnv,
    pub gate: CallInterceptor,
}

impl InterceptedEnv {
    /// A client that tries so many times, with these keys of `[limits]`.
    pub fn new(options: Options, attempts: u32, limits: &str) -> InterceptedEnv {
        let env = TestEnv::with(options);
        let gate = CallInterceptor::before(&env.base_url());
        env.configure_for(&gate.base_url(), "", &format!("attempts = {attempts}\n[limits]\n{limits}"));
        InterceptedEnv { env, gate }
    }

    /// Whether the moment comes before the client has ended or has nothing left to do.
    pub fn is_reached(
        &self,
        moment: &Receiver<()>,
        client: &Running,
        has_nothing_to_do: impl Fn() -> bool,
    ) -> bool {
        let began = Instant::now();
        loop {
            match moment.recv_timeout(POLL_INTERVAL) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) => {}
                // The watcher of files that never saw so many changes.
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            if has_ended(client.pid()) || has_nothing_to_do() {
                return false;
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "neither the moment nor the end comes; the client said:\n{}",
                client.said()
            );
        }
    }

    /// Kills the client, and lets go its way what was held back.
    pub fn kill(&self, client: Running) -> Outcome {
        client.signal(Signal::KILL);
        let outcome = client.end();
        self.gate.release();
        outcome
    }
}

/// Whether a child has ended, without taking its last words.
pub fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['Z', 'X']))
}

/// What happened so far; shown when the test stops here.
#[derive(Debug, Default)]
pub struct Story(Vec<String>);

impl Story {
    pub fn push(&mut self, what: String) {
        self.0.push(what);
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.join("\n"));
        }
    }
}
