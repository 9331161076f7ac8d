//! `limits.submits_per_second`: jobs wait for their turn in the queue, where a pause, a budget or the end of the process
//! still reaches them, and not on their way to the service.

use std::num::NonZeroU32;

use crate::domain::time::{Millis, Tick};

/// How long before its turn a job may leave the queue, so that one commit serves many turns.
const AHEAD: Millis = Millis(100);

const MICROS_PER_SECOND: u64 = 1_000_000;
const MICROS_PER_MILLI: u64 = 1_000;

/// The turns that creating requests take, evenly.
#[derive(Debug, Default)]
pub struct SubmitRate {
    /// Microseconds between two turns; nothing for no limit.
    interval: Option<u64>,
    /// The next turn that nobody has, in microseconds of the clock that never steps.
    next: u64,
    /// When a job that waits for a turn may leave the queue.
    wait_until: Option<Tick>,
}

impl SubmitRate {
    /// At most so many turns a second; nothing for no limit.
    pub fn new(per_second: Option<NonZeroU32>) -> SubmitRate {
        let mut rate = SubmitRate::default();
        rate.set_limit(per_second);
        rate
    }

    /// Takes another limit over.
    pub fn set_limit(&mut self, per_second: Option<NonZeroU32>) {
        self.interval = per_second.map(|rate| (MICROS_PER_SECOND / u64::from(rate.get())).max(1));
    }

    /// How many requests may leave now.
    pub fn turns(&self, now: Tick) -> usize {
        let Some(interval) = self.interval else { return usize::MAX };
        let end = micros(now.after(AHEAD));
        let first = self.next.max(micros(now));
        let turns = end.checked_sub(first).map_or(0, |left| left / interval + 1);
        usize::try_from(turns).unwrap_or(usize::MAX)
    }

    /// So many requests leave now.
    pub fn take(&mut self, count: usize, now: Tick) {
        if let Some(interval) = self.interval {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            self.next = self.next.max(micros(now)).saturating_add(interval.saturating_mul(count));
        }
    }

    /// When the next request may leave, if none may now.
    pub fn next_turn(&self, now: Tick) -> Tick {
        let at = self.next.div_ceil(MICROS_PER_MILLI).saturating_sub(AHEAD.0);
        now.max(Tick(at))
    }

    /// Jobs wait for their turns, or none do.
    pub fn set_waiting(&mut self, waits: bool, now: Tick) {
        self.wait_until = waits.then(|| self.next_turn(now));
    }

    /// When a job that waits may leave the queue.
    pub fn wait_until(&self) -> Option<Tick> {
        self.wait_until
    }
}

fn micros(at: Tick) -> u64 {
    at.0.saturating_mul(MICROS_PER_MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32) -> SubmitRate {
        SubmitRate::new(NonZeroU32::new(per_second))
    }

    /// How many leave in so many milliseconds, where somebody looks every `step`.
    fn sent(rate: &mut SubmitRate, millis: std::ops::Range<u64>, step: usize) -> usize {
        let mut sent = 0;
        for at in millis.step_by(step) {
            let turns = rate.turns(Tick(at));
            rate.take(turns, Tick(at));
            sent += turns;
        }
        sent
    }

    #[test]
    fn a_job_leaves_the_queue_a_moment_before_its_turn_and_no_earlier() {
        let mut rate = rate(1);
        assert_eq!(rate.turns(Tick(5_000)), 1);
        rate.take(1, Tick(5_000));
        assert_eq!((rate.turns(Tick(5_000)), rate.next_turn(Tick(5_000))), (0, Tick(5_900)));
        assert_eq!((rate.turns(Tick(5_899)), rate.turns(Tick(5_900))), (0, 1));
        rate.take(1, Tick(5_900));
        assert_eq!(rate.next_turn(Tick(5_900)), Tick(6_900), "the turn itself is at 6,000");
    }

    #[test]
    fn a_second_has_its_share_and_what_is_a_tenth_of_a_second_ahead() {
        for (per_second, step) in [(1, 1), (7, 1), (100, 40), (2_000, 10), (1_000_000, 1)] {
            let mut rate = rate(per_second);
            let most = usize::try_from(per_second).unwrap();
            let sent = sent(&mut rate, 0..10_000, step);
            assert!(sent <= most * 10 + most / 10 + 1, "{per_second}: {sent}");
            assert!(sent >= most * 10, "{per_second}: {sent}");
        }
    }

    #[test]
    fn turns_that_nobody_took_are_gone() {
        let mut rate = rate(10);
        rate.take(2, Tick(0));
        assert_eq!(rate.turns(Tick(60_000)), 2, "one now, one within a tenth of a second");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut rate = SubmitRate::new(None);
        rate.take(1_000, Tick(0));
        assert_eq!((rate.turns(Tick(0)), rate.next_turn(Tick(3))), (usize::MAX, Tick(3)));
        rate.set_limit(NonZeroU32::new(1));
        rate.take(1, Tick(0));
        rate.set_waiting(true, Tick(0));
        assert_eq!(rate.wait_until(), Some(Tick(900)));
        rate.set_waiting(false, Tick(0));
        assert_eq!(rate.wait_until(), None);
    }
}
