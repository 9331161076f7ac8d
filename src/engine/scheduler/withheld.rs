//! Jobs that are not sent for a reason of their own: what a state that is gone may have sent is neither sent now nor dropped,
//! and a person says what became of it; what cannot have its inputs tries again.

use crate::domain::ids::JobKey;
use crate::domain::job::{JobSpec, State};
use crate::domain::time::Now;
use crate::engine::scheduler::Scheduler;
use crate::engine::scheduler::parts::prices::above_max;

/// Why such a job is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// Its batch has expired.
    Expired,
    /// The deadline of its row, an instant, has passed.
    PastDeadline,
    /// It costs more than it may: what it costs, and the command that lets it.
    AboveMax(String),
    /// Its inputs cannot be had just now, for this reason; it tries again by itself.
    InputsUnavailable(String),
}

impl Scheduler {
    /// Why a job of which nothing was sent by this state is not sent now, where that is for a reason of its own.
    pub fn withheld(&self, key: JobKey, spec: &JobSpec, now: Now) -> Option<Withheld> {
        if let Some(why) = self.input_waits.why(&key) {
            return Some(Withheld::InputsUnavailable(why.to_string()));
        }
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
            if spec.order.deadline.is_some_and(|deadline| deadline.has_passed(now.wall)) {
                return Some(Withheld::PastDeadline);
            }
        }
        let refused = self.prices.foresee(key, &spec.order, job.and_then(|job| job.max_credits())).err()?;
        let fault = above_max(&refused, &active.record().name, &spec.label)?;
        Some(Withheld::AboveMax(fault.into_message()))
    }
}
