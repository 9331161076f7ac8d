//! Alarms: what is due, and what is overdue.

use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::lifecycle::{self, Event, Want};
use crate::domain::manifest::row::{Deadline, OnDeadline};
use crate::domain::task::{Fault, PostAnswer};
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::engine::scheduler::{ActiveBatch, Effect, FetchOrder, Scheduler, SchedulerError};

/// How long a deadline that passed unseen waits for its task to be read, before it is looked at again.
pub(super) const UNREAD_GRACE: Millis = Millis::from_secs(5);
/// How long what the account refuses waits before it looks again.
pub(super) const ACCOUNT_RECHECK: Millis = Millis(1_000);
/// Rows of a batch that a step ends at most, so that its commit stays small.
const DROPPED_MAX: usize = 64;

impl Scheduler {
    /// An overdue job gives its slot back; one that was watched long enough is left to a person.
    pub(super) fn apply_deadlines(&mut self, now: Now) -> Result<(), SchedulerError> {
        while let Some(key) = self.timers.pop_deadline(now.wall) {
            let Some(open) = self.jobs.get(&key) else { continue };
            let (attempt, overdue) = (open.job().attempt(), open.job().is_overdue());
            let is_unread =
                open.seen_for(now.tick).is_none() && matches!(open.job().state(), State::Running { .. });
            if is_unread && (overdue || self.resubmits(key)) {
                self.postpone_deadline(key, UNREAD_GRACE, now);
                continue;
            }
            if !overdue && let Some(left) = self.resubmission_wait(key, now) {
                self.postpone_deadline(key, left, now);
                continue;
            }
            let event = if overdue {
                watch_expired()
            } else if self.resubmits(key) {
                Event::Resubmit
            } else {
                Event::Overdue
            };
            self.apply(key, attempt, event, now)?;
            if self.jobs.get(&key).is_some_and(|open| open.job().attempt() != attempt) {
                // The next attempt waits for a slot and the budgets, and for nothing else.
                self.schedule(key, now.tick);
            }
            self.watch_deadline(key);
        }
        Ok(())
    }

    /// How much longer a job must be seen in flight before it is resubmitted. The calendar may step, and downtimes count
    /// for nothing: what is bought for want of an answer is bought by the clock that never steps.
    fn resubmission_wait(&self, key: JobKey, now: Now) -> Option<Millis> {
        let open = self.jobs.get(&key).filter(|_| self.resubmits(key))?;
        let span = self.deadline_span(open.spec())?;
        let seen = open.in_flight_for(now.tick)?;
        (seen < span).then(|| Millis(span.0 - seen.0))
    }

    /// How long a job may take, where its deadline is no instant.
    fn deadline_span(&self, spec: &JobSpec) -> Option<Millis> {
        match spec.order.deadline {
            Some(Deadline::At(_)) => None,
            Some(Deadline::After(span)) => Some(span),
            None => self.settings.deadlines.get(&spec.order.kind).copied(),
        }
    }

    /// Puts a deadline off. After a downtime it may long have passed while the task has long succeeded: that is read
    /// before anything is given up or bought for it.
    fn postpone_deadline(&mut self, key: JobKey, wait: Millis, now: Now) {
        self.timers.set_deadline(key, Some(now.wall.after(wait)));
    }

    /// Whether a job gets another attempt when its deadline passes. One with an instant for a deadline does not:
    /// it could only be late.
    fn resubmits(&self, key: JobKey) -> bool {
        let Some(active) = self.batches.get(&key.batch) else { return false };
        let Some(open) = self.jobs.get(&key) else { return false };
        active.record.policy.on_deadline == Some(OnDeadline::Resubmit)
            && !active.record.canceled
            && !matches!(open.spec().order.deadline, Some(Deadline::At(_)))
    }

    /// Sets the alarm for a job's deadline, or for the end of its watch.
    pub(super) fn watch_deadline(&mut self, key: JobKey) {
        let Some(open) = self.jobs.get(&key) else { return };
        let job = open.job();
        let in_flight = matches!(job.state(), State::Submitting { .. } | State::Running { .. });
        let wanted = if in_flight { self.deadline_of(open.spec(), job) } else { None };
        self.timers.set_deadline(key, wanted);
    }

    pub(super) fn deadline_of(&self, spec: &JobSpec, job: &Job) -> Option<Timestamp> {
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

    pub(super) fn start_due_effects(&mut self, now: Now) -> Result<(), SchedulerError> {
        // Requests in flight finish after a stop; nothing new begins.
        if self.stopping {
            self.timers.stop_effects();
            return Ok(());
        }
        while let Some((at, key)) = self.timers.pop_effect(now.tick) {
            let Some(mut open) = self.jobs.get_mut(&key) else { continue };
            open.set_timed(false);
            if open.is_busy() {
                continue;
            }
            let is_keyed = open.spec().order.kind.is_keyed();
            let is_slow = open.is_slow();
            let want = lifecycle::wants(open.job().state());
            drop(open);
            match want {
                Want::Admission => self.jobs.queue(key),
                Want::Nothing => {}
                Want::Fetch => self.downloads.add(key, is_slow),
                Want::Post if self.sending_disabled => {}
                Want::Post if !is_keyed => self.mark_outcome_unknown(key, now)?,
                Want::Post if !self.may_post_again(key, now) => self.postpone(key, now),
                Want::Read if self.key_is_refused() => self.postpone(key, now),
                want @ (Want::Post | Want::Read) => self.begin(key, want, at),
            }
        }
        while !self.disk.is_low()
            && let Some(key) = self.downloads.pop(self.settings.downloads)
        {
            self.begin(key, Want::Fetch, now.tick);
        }
        Ok(())
    }

    /// A POST without a key leaves straight from admission. One that is still to be sent was on its way
    /// when an earlier process ended: it may have made a task, and sending it again may make another.
    fn mark_outcome_unknown(&mut self, key: JobKey, now: Now) -> Result<(), SchedulerError> {
        let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { return Ok(()) };
        let fault = Fault::new("interrupted", "the program ended while the request was on its way");
        let unknown = PostAnswer::Again { fault, wait: None, may_have_run: true };
        self.apply(key, attempt, Event::Posted(unknown), now)
    }

    /// Nothing that nobody pays for leaves, and nothing at all under a refused key.
    pub(super) fn postpone(&mut self, key: JobKey, now: Now) {
        self.schedule(key, now.tick.after(ACCOUNT_RECHECK));
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
                    batch: active.record.name.clone(),
                    layout: active.record.policy.layout.clone(),
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

    /// What was not sent before its batch expired, or was canceled, never is.
    pub(super) fn drop_unsent(&mut self, now: Now) -> Result<(), SchedulerError> {
        if self.stopping {
            return Ok(());
        }
        let is_canceled = |active: &ActiveBatch| {
            let mut fronts = active.windows.iter().filter_map(|window| window.rows.front());
            active.record.canceled || fronts.any(|row| row.at < active.record.canceled_below)
        };
        let reason = |active: &ActiveBatch| match active {
            _ if active.record.is_done() => None,
            _ if is_canceled(active) => Some(Event::Cancel),
            _ if active.has_expired(now) => Some(Event::Expire),
            _ => None,
        };
        let dropped: Vec<(BatchNo, Event)> =
            self.batches.iter().filter_map(|active| Some((active.record.no, reason(active)?))).collect();
        for (no, event) in dropped {
            self.drop_rows(no, &event, now)?;
            if event == Event::Expire || self.batches.get(&no).is_some_and(|active| active.record.canceled) {
                self.drop_queued(no, &event, now)?;
            }
        }
        Ok(())
    }

    /// Begins rows of a batch that wait in memory, only to end them.
    fn drop_rows(&mut self, no: BatchNo, event: &Event, now: Now) -> Result<(), SchedulerError> {
        let Some(active) = self.batches.get(&no) else { return Ok(()) };
        // Rows that came after its owner canceled it are wanted anew.
        let below = if *event == Event::Cancel { active.record.canceled_below } else { u64::MAX };
        // What may have been sent is not dropped, and keeps its place.
        let may_be_dropped = |seq| !active.record.may_have_been_sent(seq);
        let (mut dropped, mut lasts) = (Vec::new(), Vec::new());
        for window in &active.windows {
            let rows = window.rows.iter().take_while(|row| row.at < below && may_be_dropped(row.spec.seq));
            let rows = rows.filter(|row| !active.record.skipped.contains(&row.spec.seq));
            let rows = rows.map(|row| JobKey { batch: no, seq: row.spec.seq });
            let before = dropped.len();
            dropped.extend(rows.take(DROPPED_MAX - before));
            lasts.extend(dropped[before..].last());
        }
        if dropped.len() >= DROPPED_MAX {
            // There may be more in memory, of which nothing else would remind.
            self.pending.wake_at(now.tick);
        }
        for last in lasts {
            self.begin_rows_up_to(last);
        }
        for key in dropped {
            self.apply(key, AttemptNo::FIRST, event.clone(), now)?;
        }
        Ok(())
    }

    fn drop_queued(&mut self, no: BatchNo, event: &Event, now: Now) -> Result<(), SchedulerError> {
        for key in self.jobs.all_candidates(no) {
            let Some(job) = self.jobs.get(&key).map(|open| open.job()) else { continue };
            // One that waits for another attempt does not expire; its owner may still cancel it.
            let is_due = *event == Event::Cancel || job.first_sent().is_none();
            if is_due && !job.may_have_been_sent() {
                let attempt = job.attempt();
                self.apply(key, attempt, event.clone(), now)?;
            }
        }
        Ok(())
    }
}

/// A task was watched to the end of the late window, and is left to a person.
pub(super) fn watch_expired() -> Event {
    Event::WatchExpired(Fault::new("deadline", "its task did not end within deadlines.watch_overdue_for"))
}
