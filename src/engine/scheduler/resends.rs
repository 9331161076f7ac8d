//! Jobs whose POST surely made no task, and is to be sent again: a 429, a 503, a connection that was never made.
//!
//! They were admitted by the prices, the limits and the wishes of that moment, and hours may have passed since. One that
//! would not be admitted as it was goes back to the queue, under the same key and without its hold, and is asked against
//! every limit again. What may have made a task stays as it is: it is charged what that cost.

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::job::State;
use crate::domain::lifecycle::{Event, Want};
use crate::domain::task::Fault;
use crate::domain::time::{Now, Tick};
use crate::engine::scheduler::drop_expired_and_canceled::DROPPED_MAX;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Mode, Scheduler, SchedulerError};

impl Scheduler {
    /// Whether a POST of a job may have made a task.
    pub(super) fn was_taken(&self, key: JobKey) -> bool {
        let state = self.jobs.get(&key).map(|open| open.job().state());
        !matches!(state, Some(State::Submitting { may_have_run: false, .. }))
    }

    /// Whether a job waits to be sent again, and surely has no task.
    fn waits_untaken(&self, key: JobKey) -> bool {
        let is_waiting = |open: &OpenJob| !open.is_busy() && open.spec().order.kind.is_keyed();
        !self.was_taken(key) && self.jobs.get(&key).is_some_and(is_waiting)
    }

    /// Whether the inputs of a job are being looked for just now, and nothing of it was sent.
    fn looks_for_inputs(&self, key: JobKey) -> bool {
        let is_looking =
            |open: &OpenJob| open.is_busy() && open.lacks_found_inputs() && !open.job().may_have_been_sent();
        !self.was_taken(key) && self.jobs.get(&key).is_some_and(is_looking)
    }

    /// A job is canceled whose inputs are being looked for: it goes back to the queue at once.
    fn abandon_lookup(&mut self, key: JobKey, now: Now) -> Result<(), SchedulerError> {
        let Some(mut open) = self.jobs.get_mut(&key) else { return Ok(()) };
        let attempt = open.job().attempt();
        open.effect_ended(attempt);
        drop(open);
        self.abandoned_lookups.insert((key, attempt));
        self.apply(key, attempt, Event::InputsLost(Fault::new("canceled", "it was canceled")), now)
    }

    /// Whether a job without a task would be admitted as it was, but for its price. One of which another attempt has succeeded
    /// needs no second one.
    pub(super) fn stands_as_admitted(&self, key: JobKey, now: Now) -> bool {
        let Some(open) = self.jobs.get(&key) else { return true };
        self.mode == Mode::Paying
            && !self.disk.is_low()
            && !self.output_store.is_down()
            && !self.refused_folders.contains(key.batch)
            && !open.job().is_overdue()
            && !open.job().has_outputs_of_another_attempt()
            && open.job().day() == Some(now.wall.utc_day())
            && !self.is_superseded(key)
            && self.batches.get(&key.batch).is_none_or(|active| self.stands_in_batch(open, active, now))
    }

    /// Whether what must stay on the account is to be asked for before a job without a task is sent again: others spend of
    /// it, too, and admission alone goes by what is there just then.
    pub(super) fn depends_on_balance(&self, key: JobKey) -> bool {
        let state = self.jobs.get(&key).map(|open| open.job().state());
        let was_sent = matches!(state, Some(State::Submitting { sends, .. }) if *sends > 0);
        was_sent && self.settings.limits.min_balance.is_some()
    }

    fn stands_in_batch(&self, open: &OpenJob, active: &ActiveBatch, now: Now) -> bool {
        let record = active.record();
        // A further attempt of a job that was sent before its batch expired is sent after that, too.
        let has_expired = active.has_expired(now) && open.job().attempt() == AttemptNo::FIRST;
        record.paused.is_none()
            && !record.canceled
            && !open.job().has_no_more_attempts()
            && !has_expired
            && self.is_within_limits(open, active, now)
    }

    /// Whether no budget is passed by what is set aside and spent: one may have been lowered.
    fn is_within_limits(&self, open: &OpenJob, active: &ActiveBatch, now: Now) -> bool {
        let (meta, origin) = (&open.spec().order.meta, active.record().origin.as_ref());
        let groups = self.budgets.groups().limits_of(&self.settings.group_limits, meta, origin);
        let batch = (active.record().totals, active.record().budget());
        self.budgets.fit(Credits::ZERO, batch, &self.settings.limits, &groups, now.wall.utc_day())
    }

    /// Back to the queue, to be admitted anew.
    pub(super) fn requeue(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        now: Now,
    ) -> Result<(), SchedulerError> {
        self.apply(key, attempt, Event::Requeue, now)?;
        self.queue(key);
        Ok(())
    }

    /// Takes the jobs of a batch that wait without a task, or whose inputs are being looked for, back out of flight, to be
    /// canceled: some at once, the others when they are looked at next, which is now, or when their inputs are found.
    pub(super) fn requeue_to_cancel(&mut self, no: BatchNo, now: Now) -> Result<(), SchedulerError> {
        let waiting = self.jobs.iter().map(OpenJob::key).filter(|key| key.batch == no);
        let waiting: Vec<JobKey> = waiting.filter(|key| self.waits_untaken(*key)).collect();
        for (place, key) in waiting.into_iter().enumerate() {
            let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { continue };
            if place < DROPPED_MAX {
                self.apply(key, attempt, Event::Requeue, now)?;
            } else {
                self.schedule(key, attempt, now.tick);
            }
        }
        let looking = self.jobs.iter().map(OpenJob::key).filter(|key| key.batch == no);
        let looking: Vec<JobKey> =
            looking.filter(|key| self.looks_for_inputs(*key)).take(DROPPED_MAX).collect();
        looking.into_iter().try_for_each(|key| self.abandon_lookup(key, now))
    }

    /// The same of one job, where it waits so.
    pub(super) fn requeue_job_to_cancel(&mut self, key: JobKey, now: Now) -> Result<(), SchedulerError> {
        if self.looks_for_inputs(key) {
            return self.abandon_lookup(key, now);
        }
        match self.jobs.get(&key).map(|open| open.job().attempt()) {
            Some(attempt) if self.waits_untaken(key) => self.apply(key, attempt, Event::Requeue, now),
            _ => Ok(()),
        }
    }

    /// Nothing more begins. What waits without a task goes back to the queue: the next process could not tell whether
    /// this one sent it once more, and would send it at the price and within the limits of today.
    pub(super) fn requeue_at_stop(&mut self, now: Now) -> Result<(), SchedulerError> {
        let most = self.most_changed_jobs();
        while self.pending.changed_jobs() < most
            && let Some((_, key, attempt)) = self.timers.pop_effect(Tick(u64::MAX), true)
        {
            let wants = self.jobs.get(&key).map(|open| open.wants(attempt));
            if wants == Some(Want::Post) && self.waits_untaken(key) {
                self.apply(key, attempt, Event::Requeue, now)?;
            }
        }
        if self.timers.next_effect().is_some() {
            self.pending.wake_at(now.tick);
        }
        Ok(())
    }
}
