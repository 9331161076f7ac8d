//! Canceling a batch, or one job: what is not sent yet is dropped.

use crate::domain::ids::{BatchNo, JobKey};
use crate::domain::job::State;
use crate::domain::lifecycle::Event;
use crate::domain::time::Now;
use crate::engine::scheduler::commands::FoundJob;
use crate::engine::scheduler::drop_expired_and_canceled::DROPPED_MAX;
use crate::engine::scheduler::parts::active_batch::{ActiveBatch, SKIPPED_MAX};
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{CommandOutcome, Scheduler, SchedulerError};

impl Scheduler {
    /// Rows that have not begun are dropped as they come up; what is queued is not sent from now on and ends in this step or
    /// the next ones, and so does what comes back for another attempt. What may have been sent by a state that is gone stays, and is kept from
    /// being sent by a pause: asking for its task under its key would buy it, had it never been sent.
    pub(super) fn cancel(&mut self, no: BatchNo, now: Now) -> Result<CommandOutcome, SchedulerError> {
        self.requeue_to_cancel(no, now)?;
        let queued = self.jobs.iter().filter(|open| open.key().batch == no);
        let queued = queued.filter(|open| matches!(open.job().state(), State::Queued));
        let (kept, queued): (Vec<&OpenJob>, Vec<&OpenJob>) =
            queued.partition(|open| open.job().may_have_been_sent());
        let kept = u32::try_from(kept.len()).unwrap_or(u32::MAX);
        let queued: Vec<JobKey> = queued.iter().map(|open| open.key()).collect();
        let open = self.jobs.counts().open_of(no);
        let Some(active) = self.batches.get_mut(&no) else { return Ok(CommandOutcome::default()) };
        let (mut jobs, may_have_been_sent) = active.cancel(open, kept);
        self.pending.batch_changed(no);
        for key in queued {
            self.withdraw(key);
            jobs += 1;
        }
        self.end_withdrawn(DROPPED_MAX, now)?;
        Ok(CommandOutcome {
            jobs,
            may_have_been_sent,
            in_flight: self.in_flight_of(no),
            ..CommandOutcome::default()
        })
    }

    pub(super) fn cancel_job(
        &mut self,
        (spec, record): FoundJob,
        now: Now,
    ) -> Result<CommandOutcome, SchedulerError> {
        let key = record.key;
        self.requeue_job_to_cancel(key, now)?;
        let present = self.jobs.get(&key).map(|open| open.job()).unwrap_or(&record.job);
        match present.state() {
            State::Queued if self.may_have_been_sent(&key) => {
                return Ok(CommandOutcome { may_have_been_sent: 1, ..CommandOutcome::default() });
            }
            State::Queued => {}
            state if state.is_final() => {
                let refused = Some(format!("it has ended as {}", state.name()));
                return Ok(CommandOutcome { refused, ..CommandOutcome::default() });
            }
            _ => return Ok(CommandOutcome { in_flight: 1, ..CommandOutcome::default() }),
        }
        let attempt = present.attempt();
        let waits = |active: &ActiveBatch| active.record().waits_for_pilot(record.row_at, present);
        let waits_for_pilot = self.batches.get(&key.batch).is_some_and(waits);
        let hold = spec.order.hold().unwrap_or_default();
        if !self.jobs.contains_key(&key) {
            let Some(active) = self.batches.get_mut(&key.batch) else { return Ok(CommandOutcome::default()) };
            if !active.skip(spec.seq) {
                let refused = format!(
                    "{SKIPPED_MAX} jobs of its batch were canceled before their turn; cancel the batch instead"
                );
                return Ok(CommandOutcome { refused: Some(refused), ..CommandOutcome::default() });
            }
            self.open_queued(record, spec);
        }
        self.apply(key, attempt, Event::Cancel, now)?;
        if let Some(active) = self.batches.get_mut(&key.batch).filter(|_| waits_for_pilot) {
            active.change_waiting(false, hold);
        }
        Ok(CommandOutcome { jobs: 1, ..CommandOutcome::default() })
    }
}
