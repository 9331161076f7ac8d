//! When each attempt is looked at next: one queue of timers, on two clocks.
//!
//! Resends, readings and downloads are timed by the clock that never steps ([`Tick`]); deadlines and the ends of watches
//! by the calendar ([`Timestamp`]), which may: whether they have come is asked of the other clock, too, once they are due. Each timer is set once: setting it again moves it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::time::{Tick, Timestamp};

/// Whose timer it is.
type TimerId = (JobKey, AttemptNo);

/// Timers of one clock.
#[derive(Debug)]
struct Queue<When> {
    /// The earliest on top, which is always one that is set; below it may be timers that were moved or canceled since.
    by_time: BinaryHeap<Reverse<(When, TimerId)>>,
    set: BTreeMap<TimerId, When>,
}

/// Moved and canceled timers that a heap may hold beside as many as are set, before it is made anew.
const STALE_MAX: usize = 64;

impl<When: Ord> Default for Queue<When> {
    fn default() -> Queue<When> {
        Queue { by_time: BinaryHeap::new(), set: BTreeMap::new() }
    }
}

impl<When: Copy + Ord> Queue<When> {
    fn set(&mut self, id: TimerId, at: When) {
        if self.set.insert(id, at) == Some(at) {
            return;
        }
        self.by_time.push(Reverse((at, id)));
        self.remove_stale();
    }

    fn cancel(&mut self, id: TimerId) {
        if self.set.remove(&id).is_some() {
            self.remove_stale();
        }
    }

    fn cancel_job(&mut self, key: JobKey) {
        let of_job = (key, AttemptNo(0))..=(key, AttemptNo(u32::MAX));
        let ids: Vec<TimerId> = self.set.range(of_job).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.cancel(id));
    }

    /// Leaves a timer that is set on top, and no more stale ones than are set.
    fn remove_stale(&mut self) {
        while let Some(Reverse((at, id))) = self.by_time.peek()
            && self.set.get(id) != Some(at)
        {
            self.by_time.pop();
        }
        if self.by_time.len() > 2 * self.set.len() + STALE_MAX {
            self.by_time = self.set.iter().map(|(id, at)| Reverse((*at, *id))).collect();
        }
    }

    /// When the first is due.
    fn first(&self) -> Option<When> {
        self.by_time.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the first that is due, and says when it was.
    fn pop(&mut self, now: When) -> Option<(When, TimerId)> {
        let Reverse((at, id)) = *self.by_time.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.cancel(id);
        Some((at, id))
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Timers {
    effects: Queue<Tick>,
    /// Attempts whose tasks were due to be read while too many others were.
    delayed_readings: Queue<Tick>,
    deadlines: Queue<Timestamp>,
}

impl Timers {
    /// Sets when an attempt wants its next effect, or to be admitted again, in place of what was set before.
    pub fn set_effect(&mut self, key: JobKey, attempt: AttemptNo, at: Tick) {
        self.delayed_readings.cancel((key, attempt));
        self.effects.set((key, attempt), at);
    }

    /// An attempt whose task was to be read at `at` waits until fewer others are.
    pub fn delay_reading(&mut self, key: JobKey, attempt: AttemptNo, at: Tick) {
        self.effects.cancel((key, attempt));
        self.delayed_readings.set((key, attempt), at);
    }

    /// Whether the task of an attempt is read once fewer others are.
    pub fn has_delayed_reading(&self, key: JobKey, attempt: AttemptNo) -> bool {
        self.delayed_readings.set.contains_key(&(key, attempt))
    }

    /// When an attempt wants its next effect, or to be admitted again; nothing where it waits for no instant.
    pub fn effect_at(&self, key: JobKey, attempt: AttemptNo) -> Option<Tick> {
        self.effects.set.get(&(key, attempt)).copied()
    }

    /// Whether an attempt waits for its next effect, or to be admitted again.
    pub fn has_effect(&self, key: JobKey, attempt: AttemptNo) -> bool {
        self.effects.set.contains_key(&(key, attempt)) || self.has_delayed_reading(key, attempt)
    }

    /// The next attempt that wants its effect by now, and when it wanted it: a delayed reading first where `may_read`.
    pub fn pop_effect(&mut self, now: Tick, may_read: bool) -> Option<(Tick, JobKey, AttemptNo)> {
        let delayed = may_read.then(|| self.delayed_readings.pop(now)).flatten();
        delayed.or_else(|| self.effects.pop(now)).map(|(at, (key, attempt))| (at, key, attempt))
    }

    /// When the next attempt wants its effect, but for delayed readings: those wait for the end of others.
    pub fn next_effect(&self) -> Option<Tick> {
        self.effects.first()
    }

    /// Sets an attempt's deadline, or until when its task is watched once it is overdue; none where nothing is said.
    pub fn set_deadline(&mut self, key: JobKey, attempt: AttemptNo, at: Option<Timestamp>) {
        match at {
            Some(at) => self.deadlines.set((key, attempt), at),
            None => self.deadlines.cancel((key, attempt)),
        }
    }

    /// The next attempt whose deadline has passed.
    pub fn pop_deadline(&mut self, now: Timestamp) -> Option<(JobKey, AttemptNo)> {
        self.deadlines.pop(now).map(|(_, id)| id)
    }

    /// An attempt wants nothing any more.
    pub fn cancel_attempt(&mut self, key: JobKey, attempt: AttemptNo) {
        self.effects.cancel((key, attempt));
        self.delayed_readings.cancel((key, attempt));
        self.deadlines.cancel((key, attempt));
    }

    /// No attempt at a job wants anything any more.
    pub fn cancel_job(&mut self, key: JobKey) {
        self.effects.cancel_job(key);
        self.delayed_readings.cancel_job(key);
        self.deadlines.cancel_job(key);
    }

    /// Whether anything waits for an instant of the calendar.
    pub fn has_calendar(&self) -> bool {
        self.deadlines.first().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Seq};

    const FIRST: AttemptNo = AttemptNo::FIRST;
    const SECOND: AttemptNo = AttemptNo(2);

    fn key(seq: u32) -> JobKey {
        JobKey { batch: BatchNo(1), seq: Seq(seq) }
    }

    #[test]
    fn what_is_due_comes_in_order_and_what_is_set_again_moves() {
        let mut timers = Timers::default();
        timers.set_effect(key(1), FIRST, Tick(30));
        timers.set_effect(key(2), FIRST, Tick(20));
        timers.set_effect(key(1), FIRST, Tick(10));
        assert_eq!(timers.next_effect(), Some(Tick(10)));
        assert_eq!(timers.effect_at(key(1), FIRST), Some(Tick(10)));
        assert_eq!(timers.effect_at(key(3), FIRST), None);
        assert_eq!(timers.pop_effect(Tick(9), true), None);
        assert_eq!(timers.pop_effect(Tick(40), true), Some((Tick(10), key(1), FIRST)));
        assert_eq!(timers.pop_effect(Tick(40), true), Some((Tick(20), key(2), FIRST)));
        assert_eq!(timers.pop_effect(Tick(40), true), None, "the first place of a moved timer is empty");
    }

    #[test]
    fn a_delayed_reading_waits_for_room_and_for_no_instant() {
        let mut timers = Timers::default();
        timers.set_effect(key(1), FIRST, Tick(10));
        timers.set_effect(key(2), FIRST, Tick(20));
        assert_eq!(timers.pop_effect(Tick(30), false), Some((Tick(10), key(1), FIRST)));
        timers.delay_reading(key(1), FIRST, Tick(10));
        assert!(timers.has_effect(key(1), FIRST) && timers.has_delayed_reading(key(1), FIRST));
        assert_eq!(timers.next_effect(), Some(Tick(20)));
        assert_eq!(timers.pop_effect(Tick(30), false), Some((Tick(20), key(2), FIRST)));
        assert_eq!((timers.pop_effect(Tick(30), false), timers.next_effect()), (None, None));
        assert_eq!(timers.pop_effect(Tick(30), true), Some((Tick(10), key(1), FIRST)));
        // Set anew or canceled, it waits no longer.
        timers.delay_reading(key(1), FIRST, Tick(10));
        timers.set_effect(key(1), FIRST, Tick(40));
        timers.delay_reading(key(2), FIRST, Tick(20));
        timers.cancel_attempt(key(2), FIRST);
        assert_eq!(timers.pop_effect(Tick(39), true), None);
    }

    #[test]
    fn what_was_moved_or_canceled_takes_no_more_memory_than_what_is_set() {
        let mut timers = Timers::default();
        for round in 0..50 {
            for seq in 0..1000 {
                timers.set_effect(key(seq), FIRST, Tick(1_000_000 - round * 1000 + u64::from(seq)));
                timers.set_deadline(key(seq), FIRST, Some(Timestamp(86_400_000)));
            }
        }
        assert!(timers.effects.by_time.len() <= 2 * 1000 + STALE_MAX, "{}", timers.effects.by_time.len());
        assert_eq!(
            timers.deadlines.by_time.len(),
            1000,
            "a timer that is set to the same instant stays where it is"
        );
        (5..1000).for_each(|seq| timers.cancel_job(key(seq)));
        assert!(timers.deadlines.by_time.len() <= 2 * 5 + STALE_MAX, "{}", timers.deadlines.by_time.len());
        let left: Vec<JobKey> =
            std::iter::from_fn(|| timers.pop_effect(Tick(u64::MAX), true)).map(|(_, key, _)| key).collect();
        assert_eq!(left, (0..5).map(key).collect::<Vec<_>>());
        assert_eq!((timers.effects.by_time.len(), timers.effects.set.len()), (0, 0));
    }

    /// What a sorted list of the timers that are set would do.
    #[test]
    fn timers_come_as_from_a_sorted_list_whatever_is_set_moved_and_canceled() {
        proptest::proptest!(|(steps in proptest::collection::vec((0u32..6, 0u64..12, 0u8..8), 1..200))| {
            let (mut queue, mut list) = (Queue::default(), BTreeMap::new());
            for (seq, at, what) in steps {
                let id = (key(seq), FIRST);
                match what {
                    0..5 => {
                        queue.set(id, at);
                        list.insert(id, at);
                    }
                    5 => {
                        queue.cancel(id);
                        list.remove(&id);
                    }
                    _ => {
                        let first = list.iter().map(|(id, at)| (*at, *id)).min().filter(|(due, _)| *due <= at);
                        proptest::prop_assert_eq!(queue.pop(at), first);
                        first.map(|(_, id)| list.remove(&id));
                    }
                }
                proptest::prop_assert_eq!(queue.first(), list.values().min().copied());
            }
        });
    }

    #[test]
    fn each_attempt_has_its_own_timers() {
        let mut timers = Timers::default();
        timers.set_effect(key(1), SECOND, Tick(5));
        timers.set_effect(key(1), FIRST, Tick(3));
        timers.set_deadline(key(1), FIRST, Some(Timestamp(7)));
        timers.set_deadline(key(1), SECOND, Some(Timestamp(8)));
        timers.cancel_attempt(key(1), SECOND);
        assert_eq!(timers.pop_effect(Tick(9), true), Some((Tick(3), key(1), FIRST)));
        assert_eq!(timers.pop_effect(Tick(9), true), None);
        assert_eq!(timers.pop_deadline(Timestamp(6)), None);
        assert_eq!(timers.pop_deadline(Timestamp(9)), Some((key(1), FIRST)));
        assert!(!timers.has_calendar());
    }

    #[test]
    fn a_stop_leaves_the_calendar_and_the_end_of_a_job_leaves_nothing() {
        let mut timers = Timers::default();
        timers.set_effect(key(1), FIRST, Tick(5));
        timers.set_deadline(key(1), FIRST, Some(Timestamp(-5)));
        timers.set_deadline(key(2), FIRST, Some(Timestamp(9)));
        assert_eq!(timers.pop_effect(Tick(u64::MAX), true), Some((Tick(5), key(1), FIRST)));
        assert_eq!((timers.next_effect(), timers.has_calendar()), (None, true));
        timers.set_effect(key(1), FIRST, Tick(6));
        timers.set_effect(key(1), SECOND, Tick(6));
        timers.cancel_job(key(1));
        assert_eq!(timers.next_effect(), None);
        assert_eq!(timers.pop_deadline(Timestamp(9)), Some((key(2), FIRST)));
        timers.set_deadline(key(2), FIRST, Some(Timestamp(9)));
        timers.set_deadline(key(2), FIRST, None);
        assert!(!timers.has_calendar());
    }
}
