//! The slow watch over tasks that a resubmission left behind.

use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::lifecycle::Event;
use crate::domain::task::ReadAnswer;
use crate::domain::time::{Millis, Now, Tick};
use crate::engine::scheduler::due::{ACCOUNT_RECHECK, UNREAD_GRACE, watch_expired};
use crate::engine::scheduler::inputs::MISSING_MAX;
use crate::engine::scheduler::{Effect, Scheduler, SchedulerError};

impl Scheduler {
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

    /// Reads the watched tasks that are due, and leaves those to a person that were watched long enough.
    pub(super) fn check_watched_tasks(&mut self, now: Now) -> Result<(), SchedulerError> {
        while let Some((key, attempt)) = self.timers.pop_watch_end(now.wall) {
            if self.read_before_watch_expires(key, attempt, now) {
                continue;
            }
            self.apply(key, attempt, watch_expired(), now)?;
        }
        if self.stopping {
            return Ok(());
        }
        while let Some((at, key, attempt)) = self.timers.pop_watched_read(now.tick) {
            if self.key_is_refused() {
                self.schedule_watch(key, attempt, now.tick.after(ACCOUNT_RECHECK));
            } else {
                self.read_watched_task(key, attempt, at);
            }
        }
        Ok(())
    }

    /// Puts the end of a watch off until its task was read once since the start: it may have ended during a
    /// downtime. Returns whether it was put off.
    fn read_before_watch_expires(&mut self, key: JobKey, attempt: AttemptNo, now: Now) -> bool {
        if self.jobs.get(&key).is_none_or(|open| !open.is_unread(attempt)) {
            return false;
        }
        self.timers.set_watch_end(key, attempt, now.wall.after(UNREAD_GRACE));
        true
    }

    fn read_watched_task(&mut self, key: JobKey, attempt: AttemptNo, due: Tick) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        if let Some(task) = open.begin_watched_read(attempt) {
            let spec = open.spec().clone();
            self.pending.begin(Effect::Read { key, attempt, task, spec, due });
        }
    }

    fn schedule_watch(&mut self, key: JobKey, attempt: AttemptNo, at: Tick) {
        if self.is_watched(key, attempt) {
            self.timers.set_watched_read(key, attempt, at);
        }
    }

    /// Whether an answer is about a watched task rather than the present attempt's.
    pub(super) fn is_watched(&self, key: JobKey, attempt: AttemptNo) -> bool {
        self.jobs.get(&key).is_some_and(|open| open.is_watched(attempt))
    }

    /// Reading a watched task came to this.
    pub(super) fn watched_task_read(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        answer: ReadAnswer,
        now: Now,
    ) -> Result<(), SchedulerError> {
        let Some(mut open) = self.jobs.get_mut(&key) else { return Ok(()) };
        let before = open.job().attempt();
        let is_missing = matches!(answer, ReadAnswer::Missing(_));
        let Some(faults) = open.watched_read_ended(attempt, is_missing) else { return Ok(()) };
        drop(open);
        self.schedule_watch(key, attempt, now.tick.after(self.settings.overdue_poll));
        match answer {
            ReadAnswer::Task(reading) => self.apply(key, attempt, Event::Read(reading), now)?,
            ReadAnswer::Missing(fault) if faults >= MISSING_MAX => {
                self.apply(key, attempt, Event::TaskMissing(fault), now)?;
            }
            ReadAnswer::Missing(_) | ReadAnswer::Again { .. } => {}
            ReadAnswer::Unauthorised(_) => self.block_for_key(now),
        }
        if self.jobs.get(&key).is_some_and(|open| open.job().attempt() != before) {
            // It succeeded first: its outputs are wanted now.
            self.follow_up(key, Some(Millis(0)), now);
        }
        Ok(())
    }
}
