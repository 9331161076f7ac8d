//! How many tasks are read at once. A task that is due beyond that stays a timer (`timers`): a reading that has begun takes
//! a hundred times the memory.

/// Readings at once, at least. More were slower and larger (measured)...
const READINGS: usize = 64;
/// ...unless so many tasks are in flight that each would be read too late: at an answer time of 50 ms, 64
/// readings at once are 1,280 tasks a second (`benches/in_flight.rs`).
const TASKS_PER_READING: usize = 100;
/// Readings at once, at most.
const READINGS_MAX: usize = 1_024;

/// See the module's documentation.
#[derive(Debug)]
pub struct ReadingSlots {
    most: usize,
    taken: usize,
}

impl ReadingSlots {
    /// For so many jobs in flight.
    pub fn for_jobs(in_flight: u32) -> ReadingSlots {
        let most = (in_flight as usize / TASKS_PER_READING).clamp(READINGS, READINGS_MAX);
        ReadingSlots { most, taken: 0 }
    }

    /// How many there are.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Whether one more task may be read.
    pub fn has_room(&self) -> bool {
        self.taken < self.most
    }

    /// A reading begins.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// A reading has ended, whichever.
    pub fn release(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn their_number_follows_that_of_jobs_in_flight() {
        let most = [1, 6_400, 10_000, 1_000_000].map(|jobs| ReadingSlots::for_jobs(jobs).most());
        assert_eq!(most, [64, 64, 100, 1_024]);
    }

    #[test]
    fn one_that_ends_makes_room_for_the_next() {
        let mut slots = ReadingSlots { most: 2, taken: 0 };
        slots.take();
        slots.take();
        assert!(!slots.has_room());
        slots.release();
        assert!(slots.has_room());
    }
}
