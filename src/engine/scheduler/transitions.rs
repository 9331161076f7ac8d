//! The lives of jobs: events applied, movements booked, changes noted.

use crate::domain::charge_drift;
use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::job::State;
use crate::domain::lifecycle::{self, AttemptRules, Event, Want};
use crate::domain::retry;
use crate::domain::time::{Millis, Now};
use crate::engine::scheduler::job_log::{self, LogContext};
use crate::engine::scheduler::{Scheduler, SchedulerError};
use crate::store::{BatchRecord, Pause};

impl Scheduler {
    /// Applies an event, books its movements and notes what changed. An event that has no place is
    /// said and dropped: a late answer for an older attempt, for one.
    pub(super) fn apply(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        event: Event,
        now: Now,
    ) -> Result<(), SchedulerError> {
        let Some(mut open) = self.jobs.get_mut(&key) else { return Ok(()) };
        let Some(active) = self.batches.get_mut(&key.batch) else { return Ok(()) };
        let attempts = active.record.policy.attempts.unwrap_or(self.settings.attempts);
        let terms = AttemptRules { attempts, keyed: open.spec().order.kind.is_keyed() };
        let transition = match lifecycle::apply(open.job(), attempt, event, terms, now.wall) {
            Ok(transition) => transition,
            Err(illegal) => {
                let task = open.job().state().task();
                let context = LogContext::new(&active.record.name, open.spec(), attempt, task);
                job_log::dropped(context, &illegal);
                return Ok(());
            }
        };
        // A reading of a task that still runs says nothing new, and costs no commit.
        if transition.movements.is_empty() && transition.job == *open.job() {
            return Ok(());
        }
        let before = open.replace_job(transition.job);
        job_log::moved(&active.record.name, open.spec(), &before, open.job());
        let (before, before_books) = (before.attempt(), before.books());
        for movement in transition.movements.iter().copied() {
            active.record.totals.apply(movement)?;
            self.budgets.apply(movement, transition.day)?;
            self.pending.batch_changed(key.batch);
            if let Some(day) = transition.day {
                self.pending.day_changed(day);
            }
        }
        self.pending.job_changed(key);
        let on_drift = active.record.policy.on_drift;
        let (order, job) = (&open.spec().order, open.job());
        let is_settled = job.books() != before_books && job.books().held.is_zero();
        // Comparing options costs more than the rest of the transition: only who asked for it pays for it.
        let pauses = || on_drift.is_some() && charge_drift::pauses(on_drift, &charge_drift::of(order, job));
        if active.record.paused.is_none()
            && (is_settled && charge_drift::is_above_hold(order, job) || pauses())
        {
            active.record.paused = Some(Pause::Drift);
            job_log::paused(&active.record, "a charge, a model or options other than planned");
            self.pending.batch_changed(key.batch);
        }
        let is_over = open.job().is_over();
        let is_queued = matches!(open.job().state(), State::Queued);
        let settled = is_settled.then(|| (open.spec().clone(), job.clone()));
        drop(open);
        if !is_queued {
            self.jobs.unqueue(&key);
        }
        self.watch_allowance(key, &transition.movements);
        if let Some((spec, job)) = settled {
            self.learn_charge(key, &spec.order, &job);
        }
        self.watch_superseded(key, before, self.settings.overdue_poll, now);
        if is_over {
            self.prices.forget(&key);
            self.end(key);
        }
        Ok(())
    }

    pub(super) fn end(&mut self, key: JobKey) {
        let Some(open) = self.jobs.remove(&key) else { return };
        self.timers.cancel_job(key);
        if let Some(active) = self.batches.get_mut(&key.batch) {
            active.record.count_ended(open.spec().order.kind, open.job().state());
            count_rejections(&mut active.record, open.job().state(), self.settings.rejections);
            self.pending.batch_changed(key.batch);
            job_log::batch_done(&active.record);
        }
        let (spec, record) = open.into_parts();
        self.pending.job_ended(spec, record);
    }

    /// After an answer: when the job wants something next.
    pub(super) fn follow_up(&mut self, key: JobKey, wait: Option<Millis>, now: Now) {
        let Some(job) = self.jobs.get(&key).map(|open| open.job()) else { return };
        let usual = match lifecycle::wants(job.state()) {
            Want::Read => self.poll_wait(key, now),
            Want::Admission => {
                let longer = job.begun_for().last().map_or(0, |code| retry::doublings(code));
                let repeated = job.attempt().0.saturating_sub(2).saturating_add(longer);
                self.wait_times.after_fault(repeated, None)
            }
            Want::Post | Want::Fetch | Want::Nothing => Millis(0),
        };
        self.schedule(key, now.tick.after(wait.unwrap_or(usual)));
        self.watch_deadline(key);
    }

    /// Marks a job's effect as over and returns its faults in a row so far; nothing for a job that
    /// is not open any more.
    pub(super) fn effect_ended(&mut self, key: JobKey) -> Option<u32> {
        let mut open = self.jobs.get_mut(&key)?;
        Some(open.effect_ended())
    }

    pub(super) fn count_fault(&mut self, key: JobKey) {
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.count_fault();
        }
    }

    pub(super) fn reset_faults(&mut self, key: JobKey) {
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.reset_faults();
        }
    }
}

/// A run of rejected prompts pauses the batch: the next ones would probably be rejected too.
fn count_rejections(batch: &mut BatchRecord, ended: &State, most: u32) {
    match ended {
        State::Failed { fault, .. } if fault.code == "content_rejected" => batch.rejections += 1,
        State::Succeeded { .. } => batch.rejections = 0,
        _ => return,
    }
    if batch.rejections >= most && batch.paused.is_none() {
        batch.paused = Some(Pause::Rejections);
        job_log::paused(batch, "prompts were rejected one after the other");
    }
}
