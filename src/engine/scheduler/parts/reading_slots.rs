//! How many tasks are read at once: as many as it takes to read each on time, by how long answers take. A task that is due
//! beyond that stays a timer (`timers`): a reading that has begun takes a hundred times the memory.

use crate::domain::time::{Millis, Tick};

/// Readings at once, at least. More were slower and larger where answers come at once (measured).
const READINGS_MIN: usize = 64;
/// Readings at once, at most.
const READINGS_MAX: usize = 1_024;
/// After so many answers their time is taken.
const SAMPLE: u64 = 64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct ReadingSlots {
    taken: usize,
    /// How long an answer takes, as of the last sample.
    answer_time: Millis,
    /// The present sample: how long its readings have taken together so far, and how many have ended.
    together: Millis,
    ended: u64,
    /// Up to when that is counted.
    counted_to: Tick,
}

impl ReadingSlots {
    /// Counts the time of the readings under way, before any begins or ends.
    pub fn pass_time(&mut self, now: Tick) {
        let passed = now.since(self.counted_to).0;
        self.together = Millis(self.together.0.saturating_add(passed.saturating_mul(self.taken as u64)));
        self.counted_to = now;
    }

    /// Whether one more task may be read, of `tasks` of which each is read once an `interval`.
    pub fn has_room(&self, tasks: u32, interval: Millis) -> bool {
        self.taken < self.most(tasks, interval)
    }

    fn most(&self, tasks: u32, interval: Millis) -> usize {
        let needed = u64::from(tasks).saturating_mul(self.answer_time.0) / interval.0.max(1);
        // Half of it for what is due at the same time.
        usize::try_from(needed + needed / 2).unwrap_or(usize::MAX).clamp(READINGS_MIN, READINGS_MAX)
    }

    /// A reading begins.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// A reading has ended, whichever.
    pub fn release(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        self.ended += 1;
        if self.ended >= SAMPLE {
            self.answer_time = Millis(self.together.0 / self.ended);
            (self.together, self.ended) = (Millis(0), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Millis = Millis(5_000);

    /// Readings of which each takes so long, so many at once.
    fn after_answers_in(took: Millis) -> ReadingSlots {
        let (mut slots, mut now) = (ReadingSlots::default(), Tick(1_000_000));
        slots.pass_time(now);
        for _ in 0..4 {
            (0..32).for_each(|_| slots.take());
            now = now.after(took);
            slots.pass_time(now);
            (0..32).for_each(|_| slots.release());
        }
        slots
    }

    #[test]
    fn their_number_follows_the_time_of_answers_and_the_number_of_tasks() {
        let quick = after_answers_in(Millis(2));
        assert_eq!([100, 10_000, 100_000].map(|tasks| quick.most(tasks, INTERVAL)), [64, 64, 64]);
        let slow = after_answers_in(Millis(300));
        assert_eq!([100, 2_000, 100_000].map(|tasks| slow.most(tasks, INTERVAL)), [64, 180, 1_024]);
    }

    #[test]
    fn one_that_ends_makes_room_for_the_next() {
        let mut slots = ReadingSlots::default();
        (0..64).for_each(|_| slots.take());
        assert!(!slots.has_room(1_000, INTERVAL));
        slots.release();
        assert!(slots.has_room(1_000, INTERVAL));
    }

    #[test]
    fn time_without_readings_counts_for_nothing() {
        let mut slots = after_answers_in(Millis(10));
        slots.pass_time(Tick(99_000_000));
        assert_eq!((slots.answer_time, slots.together), (Millis(10), Millis(0)));
    }
}
