//! What becomes of a job: events applied, movements booked, changes noted, timers set, effects begun.
//!
//! Everything that changes a job comes through here, and nothing here calls back to whatever asked for it.

use crate::domain::charge_drift;
use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::ledger::Movement;
use crate::domain::lifecycle::{self, AttemptRules, Event, Want};
use crate::domain::manifest::row::Deadline;
use crate::domain::retry;
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::engine::scheduler::job_log::{self, LogContext};
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Effect, FetchOrder, Scheduler, SchedulerError};
use crate::store::{JobRecord, Pause};

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
        let attempts = active.record().policy.attempts.unwrap_or(self.settings.attempts);
        let terms = AttemptRules { attempts, keyed: open.spec().order.kind.is_keyed() };
        let transition = match lifecycle::apply(open.job(), attempt, event, terms, now.wall) {
            Ok(transition) => transition,
            Err(illegal) => {
                let task = open.job().state().task();
                let context = LogContext::new(&active.record().name, open.spec(), attempt, task);
                job_log::dropped(context, &illegal);
                return Ok(());
            }
        };
        // A reading of a task that still runs says nothing new, and costs no commit.
        if transition.movements.is_empty() && transition.job == *open.job() {
            return Ok(());
        }
        let before = open.replace_job(transition.job);
        job_log::moved(&active.record().name, open.spec(), &before, open.job());
        let (before, before_books) = (before.attempt(), before.books());
        for movement in transition.movements.iter().copied() {
            active.apply(movement)?;
            self.budgets.apply(movement, transition.day)?;
            self.pending.batch_changed(key.batch);
            if let Some(day) = transition.day {
                self.pending.day_changed(day);
            }
        }
        self.pending.job_changed(key);
        let on_drift = active.record().policy.on_drift;
        let (order, job) = (&open.spec().order, open.job());
        let is_settled = job.books() != before_books && job.books().held.is_zero();
        // Comparing options costs more than the rest of the transition: only who asked for it pays for it.
        let pauses = || on_drift.is_some() && charge_drift::pauses(on_drift, &charge_drift::of(order, job));
        if active.record().paused.is_none()
            && (is_settled && charge_drift::is_above_hold(order, job) || pauses())
        {
            active.pause(Pause::Drift);
            job_log::paused(active.record(), "a charge, a model or options other than planned");
            self.pending.batch_changed(key.batch);
        }
        let is_over = open.job().is_over();
        let is_queued = matches!(open.job().state(), State::Queued);
        let settled = is_settled.then(|| (open.spec().clone(), job.clone()));
        drop(open);
        if !is_queued {
            self.jobs.unqueue(&key);
        }
        self.note_movements(key, &transition.movements);
        if let Some((spec, job)) = settled
            && let Some(surcharges) = self.prices.learn_charge(key, &spec.order, &job)
        {
            self.pending.begin(Effect::KeepSurcharges(surcharges));
        }
        self.watch_superseded(key, before, self.settings.overdue_poll, now);
        if is_over {
            self.prices.forget(&key);
            self.end(key);
        }
        Ok(())
    }

    /// Tells the account what moved for a job.
    pub(super) fn note_movements(&mut self, key: JobKey, movements: &[Movement]) {
        let Some(open) = self.jobs.get(&key) else { return };
        let is_submitting = matches!(open.job().state(), State::Submitting { .. });
        self.account.job_moved(key, &open.spec().order, is_submitting, movements);
    }

    fn end(&mut self, key: JobKey) {
        let Some(open) = self.jobs.remove(&key) else { return };
        self.timers.cancel_job(key);
        if let Some(active) = self.batches.get_mut(&key.batch) {
            active.job_ended(open.spec().order.kind, open.job().state(), self.settings.rejections);
            self.pending.batch_changed(key.batch);
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

    /// How long a job may take, where its deadline is no instant.
    pub(super) fn deadline_span(&self, spec: &JobSpec) -> Option<Millis> {
        match spec.order.deadline {
            Some(Deadline::At(_)) => None,
            Some(Deadline::After(span)) => Some(span),
            None => self.settings.deadlines.get(&spec.order.kind).copied(),
        }
    }

    /// Sets the alarm for a job's deadline, or for the end of its watch.
    pub(super) fn watch_deadline(&mut self, key: JobKey) {
        let Some(open) = self.jobs.get(&key) else { return };
        let job = open.job();
        let in_flight = matches!(job.state(), State::Submitting { .. } | State::Running { .. });
        let wanted = if in_flight { self.deadline_of(open.spec(), job) } else { None };
        self.timers.set_deadline(key, wanted);
    }

    fn deadline_of(&self, spec: &JobSpec, job: &Job) -> Option<Timestamp> {
        let first_sent = job.deadline_from()?;
        let deadline = match spec.order.deadline {
            Some(Deadline::At(at)) => at,
            _ => first_sent.after(self.deadline_span(spec)?),
        };
        match (job.is_overdue(), job.state()) {
            (false, _) => Some(deadline),
            // Only a task can be watched to the end of the window.
            (true, State::Running { .. }) => Some(deadline.after(self.settings.watch_overdue_for)),
            (true, _) => None,
        }
    }

    /// Watches what a job's last change left to be watched, and nothing else. `before` is the attempt it was at:
    /// an exchange that is under way belongs to that.
    pub(super) fn watch_superseded(&mut self, key: JobKey, before: AttemptNo, first_wait: Millis, now: Now) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        let changes = open.update_watches(before);
        for attempt in changes.ended {
            self.timers.cancel_watch(key, attempt);
        }
        for (attempt, since) in changes.begun {
            self.timers.set_watched_read(key, attempt, now.tick.after(first_wait));
            self.timers.set_watch_end(key, attempt, since.after(self.settings.watch_overdue_for));
        }
    }

    /// Begins an effect that was due at `due`.
    pub(super) fn begin(&mut self, key: JobKey, want: Want, due: Tick) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        let attempt = open.job().attempt();
        let effect = match (want, open.job().state()) {
            (Want::Post, State::Submitting { .. }) => {
                Effect::Post { key, attempt, spec: open.spec().clone() }
            }
            (Want::Read, State::Running { task } | State::Fetching { task, .. }) => {
                Effect::Read { key, attempt, task: task.clone(), spec: open.spec().clone(), due }
            }
            (Want::Fetch, State::Fetching { urls, .. }) => {
                let Some(active) = self.batches.get(&key.batch) else { return };
                self.downloads.started();
                Effect::Fetch(Box::new(FetchOrder {
                    key,
                    attempt,
                    batch: active.record().name.clone(),
                    layout: active.record().policy.layout.clone(),
                    spec: open.spec().clone(),
                    job: open.job().clone(),
                    urls: urls.clone(),
                }))
            }
            _ => return,
        };
        open.effect_began();
        self.pending.begin(effect);
    }

    /// Sets a job's alarm, in place of the one it had.
    pub(super) fn schedule(&mut self, key: JobKey, at: Tick) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        open.set_timed(true);
        self.timers.set_effect(key, at);
    }

    /// The wait before a job's task is read (again).
    pub(super) fn poll_wait(&mut self, key: JobKey, now: Now) -> Millis {
        let Some(open) = self.jobs.get(&key) else { return self.settings.poll_max };
        // After a restart even an overdue task is looked at once, soon.
        let seen_for = open.seen_for(now.tick);
        if open.job().is_overdue() && seen_for.is_some() {
            return self.settings.overdue_poll;
        }
        self.wait_times.until_poll(open.spec(), seen_for, now.tick)
    }

    /// Rows leave a window in order, up to that of `key`. One that is passed over, because it fits no budget, begins as
    /// a queued job, so that the cursor can move on.
    pub(super) fn open_rows_up_to(&mut self, key: JobKey) {
        let Some(active) = self.batches.get_mut(&key.batch) else { return };
        let Some(rows) = active.take_rows_up_to(key.seq) else { return };
        for row in rows {
            let key = JobKey { batch: key.batch, seq: row.spec.seq };
            let job = match active.record().may_have_been_sent(row.spec.seq) {
                true => Job::queued_perhaps_sent(),
                false => Job::queued(),
            };
            let record = JobRecord { key, id: row.spec.id, row_at: row.at, job };
            self.jobs.insert(OpenJob::new(record, row.spec));
            self.jobs.queue(key);
            self.pending.job_changed(key);
        }
        self.pending.batch_changed(key.batch);
    }
}
