//! What is never sent any more: the rows and queued jobs of a batch that expired or was canceled.

use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::lifecycle::Event;
use crate::domain::time::Now;
use crate::engine::scheduler::parts::active_batch::{ActiveBatch, DroppedRows};
use crate::engine::scheduler::parts::attention::Attention;
use crate::engine::scheduler::{Mode, Scheduler, SchedulerError};

/// Rows of a batch that a step ends at most, queued jobs of it that expired, and canceled ones, so that its commit stays
/// small.
pub(super) const DROPPED_MAX: usize = 64;

impl Scheduler {
    /// What was not sent before its batch expired, or was canceled, never is.
    pub(super) fn drop_unsent(&mut self, now: Now) -> Result<(), SchedulerError> {
        if self.mode != Mode::Stopping {
            self.drop_of_batches(now)?;
        }
        self.end_canceled(DROPPED_MAX, now)
    }

    /// Ends queued jobs that were canceled, `most` at most: a `retry` may have queued thousands.
    pub(super) fn end_canceled(&mut self, most: usize, now: Now) -> Result<(), SchedulerError> {
        for key in self.jobs.take_to_cancel(most) {
            let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { continue };
            self.apply(key, attempt, Event::Cancel, now)?;
        }
        if self.jobs.has_to_cancel() {
            self.pending.wake_at(now.tick);
        }
        Ok(())
    }

    /// A queued job that is canceled is not sent from now on, and ends in this step or one of the next.
    pub(super) fn cancel_queued(&mut self, key: JobKey) {
        self.unqueue(key);
        self.jobs.cancel(key);
    }

    fn drop_of_batches(&mut self, now: Now) -> Result<(), SchedulerError> {
        let reason = |active: &ActiveBatch| match active {
            _ if active.record().has_ended() => None,
            _ if active.record().canceled => Some(Event::Cancel),
            _ if active.has_expired(now) => Some(Event::Expire),
            _ if active.is_canceled() => Some(Event::Cancel),
            _ => None,
        };
        for no in self.batches.needing_or_expired(Attention::IsCanceled, now.wall) {
            let Some(event) = self.batches.get(&no).and_then(reason) else { continue };
            if event == Event::Expire
                && let Some(active) = self.batches.get_mut(&no)
                && active.record().pilot.is_some()
                && !active.record().has_rows_perhaps_sent()
                && active.record().canceled_below < active.record().spool_bytes
            {
                // What waits after its pilot is dropped, too, unless it may have been sent by a state that is gone.
                active.drop_rest_of_pilot(0);
                self.pending.batch_changed(no);
            }
            self.drop_rows(no, &event, now)?;
            if event == Event::Expire || self.batches.get(&no).is_some_and(|active| active.record().canceled)
            {
                self.drop_queued(no, &event, now)?;
            }
        }
        Ok(())
    }

    /// Begins rows of a batch that wait in memory, only to end them.
    fn drop_rows(&mut self, no: BatchNo, event: &Event, now: Now) -> Result<(), SchedulerError> {
        let Some(active) = self.batches.get(&no) else { return Ok(()) };
        let DroppedRows { all, lasts } = active.rows_to_drop(*event == Event::Cancel, DROPPED_MAX);
        if all.len() >= DROPPED_MAX {
            // There may be more in memory, of which nothing else would remind.
            self.pending.wake_at(now.tick);
        }
        for seq in lasts {
            self.open_rows_up_to(JobKey { batch: no, seq });
        }
        for seq in all {
            self.apply(JobKey { batch: no, seq }, AttemptNo::FIRST, event.clone(), now)?;
        }
        Ok(())
    }

    fn drop_queued(&mut self, no: BatchNo, event: &Event, now: Now) -> Result<(), SchedulerError> {
        let mut queued = self.jobs.all_candidates(no);
        queued.extend(self.inputs.waiting_of(no));
        let mut dropped = 0;
        for key in queued {
            let Some(job) = self.jobs.get(&key).map(|open| open.job()) else { continue };
            // One that waits for another attempt does not expire; its owner may still cancel it.
            let is_due = *event == Event::Cancel || job.first_sent().is_none();
            if !is_due || job.may_have_been_sent() {
                continue;
            }
            if *event == Event::Cancel {
                self.cancel_queued(key);
                continue;
            }
            // What has expired is not sent in the meantime.
            if dropped == DROPPED_MAX {
                self.pending.wake_at(now.tick);
                break;
            }
            dropped += 1;
            let attempt = job.attempt();
            self.apply(key, attempt, event.clone(), now)?;
        }
        Ok(())
    }
}
