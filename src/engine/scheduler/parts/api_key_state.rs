//! Whether the service refuses the API key (401): then nothing is sent, and the balance is asked for now and then, which
//! tells when the key works again.

use crate::domain::parked_reason::Parked;
use crate::domain::time::{Millis, Tick};
use crate::engine::scheduler::job_log;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct ApiKeyState {
    /// It was refused; the balance is asked for at this time.
    next_check: Option<Tick>,
}

impl ApiKeyState {
    /// Whether the service refuses the key.
    pub fn is_refused(&self) -> bool {
        self.next_check.is_some()
    }

    /// When it is found out next whether the key works again; nothing where it works.
    pub fn next_check(&self) -> Option<Tick> {
        self.next_check
    }

    /// A request was answered 401.
    pub fn refuse(&mut self, now: Tick, interval: Millis) {
        if self.next_check.is_none() {
            job_log::queue_parked(Parked::Key);
            self.next_check = Some(now.after(interval));
        }
    }

    /// It is found out at this time, where the key is refused.
    pub fn check_at(&mut self, at: Tick) {
        self.next_check = self.next_check.map(|_| at);
    }

    /// The service took the key. True: it had been refused.
    pub fn accept(&mut self) -> bool {
        let was_refused = self.next_check.take().is_some();
        if was_refused {
            job_log::queue_unparked(Parked::Key);
        }
        was_refused
    }
}
