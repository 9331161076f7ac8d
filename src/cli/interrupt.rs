//! Ctrl-C: the signals that ask a command to end; of a run, what is in flight and what becomes of it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli::log;
use crate::cli::terminal::say;
use crate::domain::exit_code::Exit;
use crate::domain::job_state::JobState;
use crate::engine::Stop;
use crate::engine::scheduler::Scheduler;

/// What is under way when a run is interrupted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct InFlight {
    /// Creating requests that are sent and not answered.
    posts: usize,
    /// Of these, those of endpoints that honour no key.
    keyless: usize,
    /// Tasks at the service.
    tasks: u32,
    /// Jobs whose outputs are downloaded.
    downloads: u32,
}

impl InFlight {
    pub(super) fn of(scheduler: &Scheduler) -> InFlight {
        let (posts, keyless) = scheduler.unanswered_posts();
        let mut found = InFlight { posts, keyless, ..InFlight::default() };
        for batch in scheduler.overview() {
            found.tasks += batch.states[JobState::Running];
            found.downloads += batch.states[JobState::Fetching];
        }
        found
    }

    /// What the first Ctrl-C says.
    pub(super) fn stopping(&self) -> String {
        let InFlight { posts, keyless, downloads, .. } = *self;
        let mut lines = vec![match posts {
            0 => "stopping: nothing more is submitted; waiting for requests in flight".to_owned(),
            1 => {
                "stopping: nothing more is submitted; waiting for the answer to 1 creating request".to_owned()
            }
            posts => {
                format!(
                    "stopping: nothing more is submitted; waiting for the answers to {posts} creating requests"
                )
            }
        }];
        lines.extend(self.continues());
        if downloads > 0 {
            let downloads = counted(downloads as usize, "job");
            lines.push(format!(
                "{downloads} being downloaded: what is not complete in 30 seconds resumes with the next run"
            ));
        }
        lines.push(match (posts, keyless) {
            (0, _) => "press Ctrl-C again to exit at once; nothing is lost".to_owned(),
            (_, 0) => "press Ctrl-C again to exit without the answers: the next run sends these requests again \
                       under the same keys, and nothing is paid twice"
                .to_owned(),
            (_, keyless) => format!(
                "press Ctrl-C again to exit without the answers: the next run sends them again under the same \
                 keys, but {} without a key would be in doubt, see callsheet resolve",
                counted(keyless, "request")
            ),
        });
        lines.join("\n")
    }

    /// What goes on at the service without this process.
    pub(super) fn continues(&self) -> Option<String> {
        match self.tasks {
            0 => None,
            1 => Some(
                "1 task continues at the service and is charged there; the next run downloads its outputs"
                    .to_owned(),
            ),
            tasks => Some(format!(
                "{tasks} tasks continue at the service and are charged there; the next run downloads their outputs"
            )),
        }
    }

    /// What the second Ctrl-C says.
    fn left(&self) -> String {
        let InFlight { posts, keyless, .. } = *self;
        match (posts, keyless) {
            (0, _) => "exited at once: the state is safe; repeat the command to resume".to_owned(),
            (posts, 0) => format!(
                "exited without the answers to {}: repeat the command to send them again under the same keys; \
                 nothing is paid twice",
                counted(posts, "request")
            ),
            (posts, keyless) => format!(
                "exited without the answers to {}: repeat the command to send them again under the same keys; {} \
                 without a key will be in doubt: check the account, then callsheet resolve JOB",
                counted(posts, "request"),
                counted(keyless, "of them"),
            ),
        }
    }
}

/// `1 request`, `3 requests`.
fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count if what.starts_with("of") => format!("{count} {what}"),
        count => format!("{count} {what}s"),
    }
}

/// What is under way, as the engine last showed it.
#[derive(Debug, Default, Clone)]
pub(super) struct SharedInFlight(Arc<Mutex<InFlight>>);

impl SharedInFlight {
    pub(super) fn set(&self, found: InFlight) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    pub(super) fn get(&self) -> InFlight {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SIGINT, SIGTERM and SIGHUP, from creation on: they no longer end the process by themselves.
#[derive(Debug)]
pub(super) struct Interrupts {
    ends: Option<(Signal, Signal)>,
    hangup: Option<Signal>,
    /// Where a terminal closes, its shell and the system may both tell that: it asks for one end.
    is_hung_up: bool,
}

impl Interrupts {
    pub(super) fn listen() -> Interrupts {
        // Without handlers the signals keep their usual effect, which is as safe.
        Interrupts {
            ends: signal(SignalKind::interrupt()).ok().zip(signal(SignalKind::terminate()).ok()),
            hangup: if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() },
            is_hung_up: false,
        }
    }

    /// Waits for a signal.
    pub(super) async fn recv(&mut self) {
        let Interrupts { ends: Some((interrupt, terminate)), hangup, is_hung_up } = self else {
            return std::future::pending().await;
        };
        let hung_up = async {
            match hangup {
                Some(hangup) if !*is_hung_up => drop(hangup.recv().await),
                _ => std::future::pending().await,
            }
        };
        let is_hangup = tokio::select! {
            _ = interrupt.recv() => false,
            _ = terminate.recv() => false,
            () = hung_up => true,
        };
        *is_hung_up |= is_hangup;
    }
}

/// Whether SIGHUP was to be ignored when this process began, as under `nohup`: then a closed terminal does not end it.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// The first signal stops the run, the second ends the process. Either way everything acknowledged is
/// on the device.
pub(super) async fn stop_at_signals(
    mut interrupts: Interrupts,
    stop: watch::Sender<Stop>,
    in_flight: SharedInFlight,
) {
    interrupts.recv().await;
    // The engine may have ended meanwhile.
    let _ = stop.send(Stop::Answered);
    interrupts.recv().await;
    say!("{}", in_flight.get().left());
    log::flush();
    std::process::exit(i32::from(Exit::Interrupted.code()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_and_what_may_be_in_doubt_is_said() {
        let none = InFlight::default();
        assert_eq!(
            none.stopping(),
            "stopping: nothing more is submitted; waiting for requests in flight\n\
             press Ctrl-C again to exit at once; nothing is lost"
        );
        let some = InFlight { posts: 3, keyless: 1, tasks: 2, downloads: 1 };
        assert_eq!(
            some.stopping(),
            "stopping: nothing more is submitted; waiting for the answers to 3 creating requests\n\
             2 tasks continue at the service and are charged there; the next run downloads their outputs\n\
             1 job being downloaded: what is not complete in 30 seconds resumes with the next run\n\
             press Ctrl-C again to exit without the answers: the next run sends them again under the same keys, but \
             1 request without a key would be in doubt, see callsheet resolve"
        );
        assert_eq!(
            some.left(),
            "exited without the answers to 3 requests: repeat the command to send them again under the same keys; 1 \
             of them without a key will be in doubt: check the account, then callsheet resolve JOB"
        );
        assert!(InFlight { keyless: 0, ..some }.left().ends_with("nothing is paid twice"));
    }
}
