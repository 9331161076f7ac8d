//! Whether the service refuses the API key (401), and what is sent while it does: nothing but a question for the balance now
//! and then, which tells when the key works again. A 401 may be that one answer's alone: the key is only suspected until the
//! balance is refused, too.

use crate::domain::balance_check_interval::{BalanceNeed, next_check};
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
    /// The balance was refused, too.
    is_certain: bool,
    /// The call that was refused first.
    suspected_by: Option<Call>,
    /// How often in a row POSTs, and readings, were refused while the balance was told.
    refuted: [usize; 2],
}

/// So many refusals of a call in a row, each with a balance that was told, are taken for a key that may not make it.
const REFUTED_MAX: usize = 4;

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

    /// The question for the balance was answered 401.
    pub fn refuse(&mut self, now: Tick, interval: Millis) {
        if !std::mem::replace(&mut self.is_certain, true) {
            job_log::queue_parked(Parked::Key);
        }
        self.next_check = self.next_check.or(Some(now.after(interval)));
    }

    /// Another call was answered 401: the balance is asked for next, at once the first time, and later after each time that
    /// it was told although the call was refused.
    pub fn suspect(&mut self, call: Call, now: Tick) {
        if self.next_check.is_none() {
            job_log::key_suspected();
            self.suspected_by = Some(call);
            self.next_check = Some(next_check(BalanceNeed::Any, Some(now), self.refuted[place(call)]));
        }
    }

    /// The service answered a call as for a key that may make it.
    pub fn allowed(&mut self, call: Call) {
        self.refuted[place(call)] = 0;
    }

    /// Whether the key is refused, and may turn out to work as soon as the balance is told.
    pub fn is_doubtful(&self) -> bool {
        let refuted = self.suspected_by.map_or(0, |call| self.refuted[place(call)]);
        self.is_refused() && !self.is_certain && refuted < REFUTED_MAX
    }

    /// It is found out at this time, where the key is refused.
    pub fn check_at(&mut self, at: Tick) {
        self.next_check = self.next_check.map(|_| at);
    }

    /// The service took the key. True: it had been refused.
    pub fn accept(&mut self) -> bool {
        let was_refused = self.next_check.take().is_some();
        if std::mem::take(&mut self.is_certain) {
            self.refuted = [0, 0];
            job_log::queue_unparked(Parked::Key);
        } else if let Some(call) = self.suspected_by {
            self.refuted[place(call)] = self.refuted[place(call)].saturating_add(1);
        }
        self.suspected_by = None;
        was_refused
    }
}

/// Where it is counted how often a call was refused.
fn place(call: Call) -> usize {
    usize::from(call == Call::Post)
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

    #[test]
    fn a_refusal_is_doubtful_until_the_balance_is_refused_too_or_it_comes_again_and_again() {
        let mut key = ApiKeyRefusal::default();
        for wait in [0, 5, 10, 20] {
            key.suspect(Call::Post, Tick(1_000));
            assert!(key.is_doubtful() && !key.lets(Call::Post));
            assert_eq!(key.next_check(), Some(Tick(1_000 + wait * 1_000)));
            assert!(key.accept());
            key.allowed(Call::ReadTask);
        }
        key.suspect(Call::Post, Tick(1_000));
        assert!(key.is_refused() && !key.is_doubtful(), "it may do everything but this");
        key.accept();
        key.allowed(Call::Post);
        key.suspect(Call::Post, Tick(1_000));
        assert!(key.is_doubtful());
        key.refuse(Tick(1_000), Millis::from_secs(60));
        assert!(key.is_refused() && !key.is_doubtful());
    }
}
