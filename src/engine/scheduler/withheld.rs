//! Jobs that may have been sent by a state that is gone, and that are neither sent now nor dropped: a person says what became
//! of them.

use crate::domain::ids::JobKey;
use crate::domain::job::{JobSpec, State};
use crate::domain::time::Now;
use crate::engine::scheduler::Scheduler;

/// Why such a job is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// Its batch has expired.
    Expired,
}

impl Scheduler {
    /// Why a queued job that may have been sent by a state that is gone is not sent now.
    pub fn withheld(&self, key: JobKey, _spec: &JobSpec, now: Now) -> Option<Withheld> {
        let active = self.batches.get(&key.batch).filter(|_| self.may_have_been_sent(&key))?;
        let job = self.jobs.get(&key).map(|open| open.job());
        if job.is_some_and(|job| !matches!(job.state(), State::Queued)) {
            return None;
        }
        // What this state sent is asked for under its key, whatever the time.
        let was_sent = job.is_some_and(|job| job.first_sent().is_some());
        (!was_sent && active.has_expired(now)).then_some(Withheld::Expired)
    }
}
