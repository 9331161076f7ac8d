//! Deadlines: when a job misses its own, and what follows: it is overdue, it is resubmitted, or it is never sent.

use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::job::{Attempt, Job, JobSpec, State};
use crate::domain::lifecycle::Event;
use crate::domain::manifest::row::{Deadline, OnDeadline};
use crate::domain::time::{Millis, Now, Timestamp};
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Scheduler, SchedulerError, overdue_watchdog};

/// How long a deadline that passed unseen waits for its task to be read, before it is looked at again.
const UNREAD_GRACE: Millis = Millis::from_secs(5);

impl Scheduler {
    /// An overdue job gives its slot back; a task that was watched long enough is left to a person. After a downtime all
    /// deadlines may have passed: each step applies some, so that its commit stays small.
    pub(super) fn apply_deadlines(&mut self, now: Now) -> Result<(), SchedulerError> {
        let most = self.most_changed_jobs();
        while let Some((key, attempt)) = self.timers.pop_deadline(now.wall) {
            if self.pending.changed_jobs() >= most {
                self.timers.set_deadline(key, attempt, Some(now.wall));
                self.pending.wake_at(now.tick);
                break;
            }
            let Some(open) = self.jobs.get(&key) else { continue };
            let is_watched = open.job().is_overdue() || open.job().attempt() != attempt;
            let is_keyed = open.spec().order.kind.is_keyed();
            if is_keyed && !is_watched && !self.was_taken(key) {
                self.deadline_without_task(key, attempt, now)?;
                continue;
            }
            if let Some(left) = self.stepped_over(open, attempt, now) {
                self.postpone_deadline(key, attempt, left, now);
                continue;
            }
            // With a refused key, or while the service is away, nobody knows whether its task has ended.
            let runs_after_watch =
                is_watched && self.jobs.get_mut(&key).is_some_and(|mut open| open.watch_is_over(attempt));
            let Some(open) = self.jobs.get(&key) else { continue };
            let state = open.job().attempt_of(attempt).map(Attempt::state);
            let is_running = matches!(state, Some(State::Running { .. }));
            let is_unread = is_running && open.seen_for(attempt, now.tick).is_none();
            // Another attempt is paid for only if a reading has just shown that the task runs. The answer to its POST is not a reading.
            let lacks_reading =
                is_running && !open.was_read_within(attempt, now.tick, self.reading_counts_for());
            // One that cannot be read is late, and no reason to buy another.
            let is_unreadable = lacks_reading && open.is_unreadable(attempt);
            let resubmits = !is_watched && !is_unreadable && self.resubmits(key);
            if is_unread && is_watched || lacks_reading && resubmits {
                self.postpone_deadline(key, attempt, UNREAD_GRACE, now);
                continue;
            }
            if is_watched && !runs_after_watch {
                self.postpone_deadline(key, attempt, self.settings.overdue_poll, now);
                continue;
            }
            if resubmits && let Some(left) = self.resubmission_wait(key, now) {
                self.postpone_deadline(key, attempt, left, now);
                continue;
            }
            let event = if is_watched {
                overdue_watchdog::expired(matches!(state, Some(State::Submitting { .. })))
            } else if resubmits {
                Event::Resubmit
            } else {
                Event::Overdue
            };
            self.apply(key, attempt, event, now)?;
            self.set_deadline_timer(key, attempt);
            let present = self.jobs.get(&key).map(|open| open.job().attempt());
            if let Some(next) = present.filter(|present| *present != attempt && !is_watched) {
                // It waits for a slot and the budgets, and for nothing else.
                self.schedule(key, next, now.tick);
            }
        }
        Ok(())
    }

    /// A job is not late that the service did not take: its deadline counts from the POST that is taken. It gives its slot
    /// back, and is admitted anew when it was to be sent again.
    fn deadline_without_task(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        now: Now,
    ) -> Result<(), SchedulerError> {
        if self.jobs.get(&key).is_some_and(OpenJob::is_busy) {
            self.postpone_deadline(key, attempt, UNREAD_GRACE, now);
            return Ok(());
        }
        self.apply(key, attempt, Event::Requeue, now)?;
        if !self.timers.has_effect(key, attempt) {
            self.queue(key);
        }
        Ok(())
    }

    /// How much is left of the time until a job's deadline, or until the end of its watch, of which the calendar says that none
    /// is: it stepped ahead.
    fn stepped_over(&self, open: &OpenJob, attempt: AttemptNo, now: Now) -> Option<Millis> {
        let job = open.job();
        let span = self.deadline_span(open.spec()).filter(|_| attempt == job.attempt())?;
        let watch = if job.is_overdue() { self.settings.watch_overdue_for } else { Millis(0) };
        let left = span.0.saturating_add(watch.0).saturating_sub(open.used_of_deadline(now.tick)?.0);
        (left > 0).then_some(Millis(left))
    }

    /// How much longer a job that is to be resubmitted must be seen in flight before that. The calendar may step, and downtimes count
    /// for nothing: what is bought for want of an answer is bought by the clock that never steps.
    fn resubmission_wait(&self, key: JobKey, now: Now) -> Option<Millis> {
        let open = self.jobs.get(&key)?;
        let span = self.deadline_span(open.spec())?;
        let seen = open.in_flight_for(now.tick)?;
        (seen < span).then(|| Millis(span.0 - seen.0))
    }

    /// Puts a deadline off. After a downtime it may long have passed while the task has long succeeded: that is read
    /// before anything is given up or bought for it.
    fn postpone_deadline(&mut self, key: JobKey, attempt: AttemptNo, wait: Millis, now: Now) {
        self.timers.set_deadline(key, attempt, Some(now.wall.after(wait)));
    }

    /// Whether a job gets another attempt when its deadline passes. One with an instant for a deadline does not:
    /// it could only be late.
    fn resubmits(&self, key: JobKey) -> bool {
        let Some(active) = self.batches.get(&key.batch) else { return false };
        let Some(open) = self.jobs.get(&key) else { return false };
        let policy = &active.record().policy;
        let is_left = open.job().newest_attempt().0 < policy.attempts.unwrap_or(self.settings.attempts);
        policy.on_deadline == Some(OnDeadline::Resubmit)
            && open.spec().order.kind.is_keyed()
            && is_left
            && !active.record().canceled
            && !open.job().has_no_more_attempts()
            && !open.job().may_have_gone_on()
            && !active.versions().is_superseded(key.seq)
            && !matches!(open.spec().order.deadline, Some(Deadline::At(_)))
    }

    /// How long a job may take, where its deadline is no instant.
    pub(super) fn deadline_span(&self, spec: &JobSpec) -> Option<Millis> {
        match spec.order.deadline {
            Some(Deadline::At(_)) => None,
            Some(Deadline::After(span)) => Some(span),
            None => self.settings.deadlines.get(&spec.order.kind).copied(),
        }
    }

    /// Sets the alarm for an attempt's deadline, or for the end of its watch.
    pub(super) fn set_deadline_timer(&mut self, key: JobKey, attempt: AttemptNo) {
        let Some(open) = self.jobs.get(&key) else { return };
        let wanted = self.deadline_of(open.spec(), open.job(), attempt);
        self.timers.set_deadline(key, attempt, wanted);
    }

    /// When an attempt is overdue, or until when its task is watched; nothing where it is neither sent nor watched.
    pub(super) fn deadline_of(&self, spec: &JobSpec, job: &Job, no: AttemptNo) -> Option<Timestamp> {
        let attempt = job.attempt_of(no)?;
        let is_running = matches!(attempt.state(), State::Running { .. });
        if no != job.attempt() {
            let since = attempt.watched_since().filter(|_| is_running)?;
            return Some(self.watch_end(since));
        }
        let first_sent = job.deadline_from()?;
        let deadline = match spec.order.deadline {
            Some(Deadline::At(at)) => at,
            _ => first_sent.after(self.deadline_span(spec)?),
        };
        match (job.is_overdue(), attempt.state()) {
            (false, State::Submitting { .. } | State::Running { .. }) => Some(deadline),
            // A request that was sent may have made a task that is not named yet.
            (true, State::Running { .. } | State::Submitting { may_have_run: true, .. }) => {
                Some(self.watch_end(deadline))
            }
            _ => None,
        }
    }
}
