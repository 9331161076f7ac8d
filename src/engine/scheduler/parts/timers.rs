//! When each job is looked at next: one queue of timers, on two clocks.
//!
//! Resends, readings and downloads are timed by the clock that never steps ([`Tick`]); deadlines and the ends of watches
//! by the calendar ([`Timestamp`]), which may. Each timer is set once: setting it again moves it.

use std::collections::{BTreeSet, HashMap};

use crate::domain::ids::{AttemptNo, BatchNo, JobKey, Seq};
use crate::domain::time::{Tick, Timestamp};

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TimerKind {
    /// A job wants its next effect, or to be admitted again.
    Effect,
    /// The task of a superseded attempt is read.
    WatchedRead,
    /// A job is overdue, or has been watched long enough since it is.
    Deadline,
    /// The task of a superseded attempt has been watched long enough.
    WatchEnd,
}

/// Which timer; without an attempt it is the present one's, whichever that is by then.
type TimerId = (TimerKind, JobKey, Option<AttemptNo>);

/// Timers of one clock.
#[derive(Debug)]
struct Queue<When> {
    /// The first instant of the clock.
    start: When,
    by_time: BTreeSet<(TimerKind, When, JobKey, Option<AttemptNo>)>,
    set: HashMap<TimerId, When>,
}

impl<When: Copy + Ord> Queue<When> {
    fn starting_at(start: When) -> Queue<When> {
        Queue { start, by_time: BTreeSet::new(), set: HashMap::new() }
    }

    fn set(&mut self, (kind, key, attempt): TimerId, at: When) {
        if let Some(before) = self.set.insert((kind, key, attempt), at) {
            if before == at {
                return;
            }
            self.by_time.remove(&(kind, before, key, attempt));
        }
        self.by_time.insert((kind, at, key, attempt));
    }

    fn cancel(&mut self, (kind, key, attempt): TimerId) {
        if let Some(at) = self.set.remove(&(kind, key, attempt)) {
            self.by_time.remove(&(kind, at, key, attempt));
        }
    }

    /// When the first of a kind is due, and whose it is.
    fn first(&self, kind: TimerKind) -> Option<(When, JobKey, Option<AttemptNo>)> {
        let least = JobKey { batch: BatchNo(0), seq: Seq(0) };
        let (of, at, key, attempt) = *self.by_time.range((kind, self.start, least, None)..).next()?;
        (of == kind).then_some((at, key, attempt))
    }

    /// Takes the first of a kind that is due, and says when it was.
    fn pop(&mut self, kind: TimerKind, now: When) -> Option<(When, JobKey, Option<AttemptNo>)> {
        let (at, key, attempt) = self.first(kind).filter(|(at, ..)| *at <= now)?;
        self.cancel((kind, key, attempt));
        Some((at, key, attempt))
    }

    fn clear(&mut self) {
        self.by_time.clear();
        self.set.clear();
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Timers {
    monotonic: Queue<Tick>,
    calendar: Queue<Timestamp>,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers { monotonic: Queue::starting_at(Tick(0)), calendar: Queue::starting_at(Timestamp(i64::MIN)) }
    }
}

impl Timers {
    /// Sets when a job wants its next effect, in place of what was set before.
    pub fn set_effect(&mut self, key: JobKey, at: Tick) {
        self.monotonic.set((TimerKind::Effect, key, None), at);
    }

    /// The next job that wants its effect by now, and when it wanted it.
    pub fn pop_effect(&mut self, now: Tick) -> Option<(Tick, JobKey)> {
        self.monotonic.pop(TimerKind::Effect, now).map(|(at, key, _)| (at, key))
    }

    /// When the next job wants its effect.
    pub fn next_effect(&self) -> Option<Tick> {
        self.monotonic.first(TimerKind::Effect).map(|(at, ..)| at)
    }

    /// Sets when the task of a superseded attempt is read.
    pub fn set_watched_read(&mut self, key: JobKey, attempt: AttemptNo, at: Tick) {
        self.monotonic.set((TimerKind::WatchedRead, key, Some(attempt)), at);
    }

    /// The next superseded attempt whose task is to be read by now, and since when.
    pub fn pop_watched_read(&mut self, now: Tick) -> Option<(Tick, JobKey, AttemptNo)> {
        let (at, key, attempt) = self.monotonic.pop(TimerKind::WatchedRead, now)?;
        Some((at, key, attempt?))
    }

    /// Sets a job's deadline, or the end of its watch once it is overdue; none where nothing is said.
    pub fn set_deadline(&mut self, key: JobKey, at: Option<Timestamp>) {
        let timer = (TimerKind::Deadline, key, None);
        match at {
            Some(at) => self.calendar.set(timer, at),
            None => self.calendar.cancel(timer),
        }
    }

    /// The next job whose deadline has passed.
    pub fn pop_deadline(&mut self, now: Timestamp) -> Option<JobKey> {
        self.calendar.pop(TimerKind::Deadline, now).map(|(_, key, _)| key)
    }

    /// Sets until when the task of a superseded attempt is watched.
    pub fn set_watch_end(&mut self, key: JobKey, attempt: AttemptNo, at: Timestamp) {
        self.calendar.set((TimerKind::WatchEnd, key, Some(attempt)), at);
    }

    /// The next superseded attempt whose task has been watched long enough.
    pub fn pop_watch_end(&mut self, now: Timestamp) -> Option<(JobKey, AttemptNo)> {
        let (_, key, attempt) = self.calendar.pop(TimerKind::WatchEnd, now)?;
        Some((key, attempt?))
    }

    /// The task of a superseded attempt is watched no more.
    pub fn cancel_watch(&mut self, key: JobKey, attempt: AttemptNo) {
        self.monotonic.cancel((TimerKind::WatchedRead, key, Some(attempt)));
        self.calendar.cancel((TimerKind::WatchEnd, key, Some(attempt)));
    }

    /// The job's present attempt wants nothing any more.
    pub fn cancel_job(&mut self, key: JobKey) {
        self.monotonic.cancel((TimerKind::Effect, key, None));
        self.calendar.cancel((TimerKind::Deadline, key, None));
    }

    /// Nothing begins any more: only the calendar goes on.
    pub fn stop_effects(&mut self) {
        self.monotonic.clear();
    }

    /// When the first effect or reading is due.
    pub fn first_due(&self) -> Option<Tick> {
        let read = self.monotonic.first(TimerKind::WatchedRead).map(|(at, ..)| at);
        [self.next_effect(), read].into_iter().flatten().min()
    }

    /// Whether anything waits for an instant of the calendar.
    pub fn has_calendar(&self) -> bool {
        !self.calendar.by_time.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seq: u32) -> JobKey {
        JobKey { batch: BatchNo(1), seq: Seq(seq) }
    }

    #[test]
    fn what_is_due_comes_in_order_and_what_is_set_again_moves() {
        let mut timers = Timers::default();
        timers.set_effect(key(1), Tick(30));
        timers.set_effect(key(2), Tick(20));
        timers.set_effect(key(1), Tick(10));
        assert_eq!(timers.first_due(), Some(Tick(10)));
        assert_eq!(timers.pop_effect(Tick(9)), None);
        assert_eq!(timers.pop_effect(Tick(40)), Some((Tick(10), key(1))));
        assert_eq!(timers.pop_effect(Tick(40)), Some((Tick(20), key(2))));
        assert_eq!(timers.pop_effect(Tick(40)), None, "the first place of a moved timer is empty");
    }

    #[test]
    fn each_attempt_has_its_own_watch_and_no_kind_stands_before_another() {
        let mut timers = Timers::default();
        timers.set_effect(key(1), Tick(5));
        timers.set_watched_read(key(1), AttemptNo(1), Tick(3));
        timers.set_watched_read(key(1), AttemptNo(2), Tick(1));
        timers.set_watch_end(key(1), AttemptNo(1), Timestamp(7));
        assert_eq!(timers.next_effect(), Some(Tick(5)));
        assert_eq!(timers.first_due(), Some(Tick(1)));
        timers.cancel_watch(key(1), AttemptNo(2));
        assert_eq!(timers.pop_watched_read(Tick(9)), Some((Tick(3), key(1), AttemptNo(1))));
        assert_eq!(timers.pop_watch_end(Timestamp(6)), None);
        assert_eq!(timers.pop_watch_end(Timestamp(7)), Some((key(1), AttemptNo(1))));
        assert_eq!(timers.pop_effect(Tick(5)), Some((Tick(5), key(1))));
    }

    #[test]
    fn a_stop_leaves_the_calendar_and_the_end_of_a_job_leaves_nothing() {
        let mut timers = Timers::default();
        timers.set_effect(key(1), Tick(5));
        timers.set_deadline(key(1), Some(Timestamp(-5)));
        timers.set_deadline(key(2), Some(Timestamp(9)));
        timers.stop_effects();
        assert_eq!((timers.first_due(), timers.has_calendar()), (None, true));
        timers.set_effect(key(1), Tick(6));
        timers.cancel_job(key(1));
        assert_eq!(timers.first_due(), None);
        assert_eq!(timers.pop_deadline(Timestamp(9)), Some(key(2)));
        timers.set_deadline(key(2), Some(Timestamp(9)));
        timers.set_deadline(key(2), None);
        assert!(!timers.has_calendar());
    }
}
