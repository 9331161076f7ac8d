//! Jobs that may have been sent by a state that is gone, and that are neither sent now nor dropped: a person says what became
//! of them.

use crate::domain::ids::JobKey;
use crate::domain::job::{JobSpec, State};
use crate::domain::manifest::row::Deadline;
use crate::domain::time::Now;
use crate::engine::scheduler::Scheduler;

/// Why such a job is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// Its batch has expired.
    Expired,
    /// The deadline of its row, an instant, has passed.
    PastDeadline,
}

impl Scheduler {
    /// Why a queued job that may have been sent by a state that is gone is not sent now.
    pub fn withheld(&self, key: JobKey, spec: &JobSpec, now: Now) -> Option<Withheld> {
        let active = self.batches.get(&key.batch).filter(|_| self.may_have_been_sent(&key))?;
        let job = self.jobs.get(&key).map(|open| open.job());
        if job.is_some_and(|job| !matches!(job.state(), State::Queued)) {
            return None;
        }
        // What this state sent is asked for under its key, whatever the time.
        if job.is_none_or(|job| job.first_sent().is_none()) {
            if active.has_expired(now) {
                return Some(Withheld::Expired);
            }
            if matches!(spec.order.deadline, Some(Deadline::At(at)) if at <= now.wall) {
                return Some(Withheld::PastDeadline);
            }
        }
        None
    }
}
