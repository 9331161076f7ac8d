//! Canceling a batch, or one job: what is not sent yet is dropped, and what was sent gets no further attempt.

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
        let (not_begun, not_begun_perhaps_sent) = self.not_begun(no);
        let Some(active) = self.batches.get_mut(&no) else { return Ok(CommandOutcome::default()) };
        let may_have_been_sent = not_begun_perhaps_sent.saturating_add(kept);
        active.cancel(may_have_been_sent);
        let mut jobs = not_begun.saturating_sub(not_begun_perhaps_sent);
        self.pending.batch_changed(no);
        for key in queued {
            self.cancel_queued(key);
            jobs += 1;
        }
        self.stop_further_attempts(no, now)?;
        self.end_canceled(DROPPED_MAX, now)?;
        Ok(CommandOutcome {
            jobs,
            may_have_been_sent,
            in_flight: self.in_flight_of(no),
            ..CommandOutcome::default()
        })
    }

    /// Jobs of a canceled batch that wait and may have been sent by a state that is gone: they are not dropped.
    pub(super) fn canceled_and_perhaps_sent(&self, no: BatchNo) -> u32 {
        if self.batches.get(&no).is_none_or(|active| !active.record().canceled) {
            return 0;
        }
        let of_batch = self.jobs.iter().filter(|open| open.key().batch == no);
        let queued = of_batch
            .filter(|open| matches!(open.job().state(), State::Queued) && open.job().may_have_been_sent());
        let (_, not_begun) = self.not_begun(no);
        not_begun.saturating_add(u32::try_from(queued.count()).unwrap_or(u32::MAX))
    }

    /// How many jobs of a batch have not begun, and how many of these may have been sent by a state that is gone.
    fn not_begun(&self, no: BatchNo) -> (u32, u32) {
        let Some(record) = self.batch(no) else { return (0, 0) };
        let open = self.jobs.counts().open_of(no);
        let of_batch = self.jobs.iter().map(OpenJob::key).filter(|key| key.batch == no);
        let before = of_batch.filter(|key| record.may_have_been_sent(key.seq)).count();
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        (record.not_begun(open), record.not_begun_perhaps_sent(open, before))
    }

    pub(super) fn cancel_job(
        &mut self,
        (spec, record): FoundJob,
        now: Now,
    ) -> Result<CommandOutcome, SchedulerError> {
        let key = record.key;
        let was_open = self.jobs.contains_key(&key);
        self.requeue_job_to_cancel(key, now)?;
        if was_open && !self.jobs.contains_key(&key) {
            // It was canceled before, and waited to be sent again.
            return Ok(CommandOutcome { jobs: 1, ..CommandOutcome::default() });
        }
        let present = self.jobs.get(&key).map(|open| open.job()).unwrap_or(&record.job);
        match present.state() {
            State::Queued if self.may_have_been_sent(&key) => {
                return Ok(CommandOutcome { may_have_been_sent: 1, ..CommandOutcome::default() });
            }
            State::Queued => {}
            State::Canceled { .. } => return Ok(CommandOutcome::default()),
            state if state.is_final() => {
                return Ok(CommandOutcome::refused(format!("it has ended as {}", state.name())));
            }
            _ => {
                self.stop_further_attempts_of(key, now)?;
                return Ok(CommandOutcome { in_flight: 1, ..CommandOutcome::default() });
            }
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
                return Ok(CommandOutcome::refused(refused));
            }
            self.open_queued(record, spec);
        }
        self.apply(key, attempt, Event::Cancel, now)?;
        if let Some(active) = self.batches.get_mut(&key.batch).filter(|_| waits_for_pilot) {
            active.change_waiting(false, hold);
        }
        Ok(CommandOutcome { jobs: 1, ..CommandOutcome::default() })
    }

    /// The jobs of a batch that are in flight get no further attempt: of each that is noted, since its batch may be wanted
    /// again while they run.
    fn stop_further_attempts(&mut self, no: BatchNo, now: Now) -> Result<(), SchedulerError> {
        let of_batch = self.jobs.iter().filter(|open| open.key().batch == no);
        let in_flight = of_batch.filter(|open| {
            let state = open.job().state();
            !matches!(state, State::Queued) && !state.is_final()
        });
        let in_flight: Vec<JobKey> = in_flight.map(OpenJob::key).collect();
        in_flight.into_iter().try_for_each(|key| self.stop_further_attempts_of(key, now))
    }

    /// The same of one job, once.
    fn stop_further_attempts_of(&mut self, key: JobKey, now: Now) -> Result<(), SchedulerError> {
        let Some(job) = self.jobs.get(&key).map(OpenJob::job) else { return Ok(()) };
        let attempt = job.attempt();
        match job.has_no_more_attempts() {
            true => Ok(()),
            false => self.apply(key, attempt, Event::Cancel, now),
        }
    }
}
