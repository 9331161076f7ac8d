//! Whether the service refuses the API key (401), and what is sent while it does: nothing but a question for the balance now
//! and then, which tells when the key works again.

use crate::domain::parked_reason::Parked;
use crate::domain::time::{Millis, Tick};
use crate::engine::scheduler::job_log;

/// What the service is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A task that costs credits.
    Post,
    /// How a task is doing.
    ReadTask,
    /// The catalogs, with their prices.
    ReadCatalogs,
    /// The balance.
    ReadBalance,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct ApiKeyRefusal {
    /// It was refused; the balance is asked for at this time.
    next_check: Option<Tick>,
}

impl ApiKeyRefusal {
    /// Whether the service refuses the key.
    pub fn is_refused(&self) -> bool {
        self.next_check.is_some()
    }

    /// Whether a call is made now.
    pub fn lets(&self, call: Call) -> bool {
        !self.is_refused()
            || match call {
                Call::Post | Call::ReadTask | Call::ReadCatalogs => false,
                Call::ReadBalance => true,
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_the_key_is_refused_the_balance_alone_is_asked_for() {
        let mut key = ApiKeyRefusal::default();
        let calls = [Call::Post, Call::ReadTask, Call::ReadCatalogs, Call::ReadBalance];
        assert!(calls.into_iter().all(|call| key.lets(call)));
        key.refuse(Tick(1_000), Millis::from_secs(60));
        assert_eq!(calls.map(|call| key.lets(call)), [false, false, false, true]);
        assert_eq!(key.next_check(), Some(Tick(61_000)));
        assert!(key.accept() && key.lets(Call::Post) && !key.accept());
    }
}
