//! Finds the account's rate limit without being told: additive increase, multiplicative decrease.
//!
//! The service's document names no limits. A 429, or a task that fails as `rate_limited` or `busy`,
//! says that there is one; answers without it say that there is room.

use crate::domain::retry_delay::RETRY_AFTER_MAX;
use crate::domain::time::{Millis, Tick};

/// Refusals that come within this span after a decrease belong to the same crowding.
const COOL_DOWN: Millis = Millis::from_secs(5);
/// Parts of a slot in which the limit is counted: more than there are slots, or an answer would be no part of one.
const PARTS: u64 = 1 << 32;

/// How many jobs may be in flight, as learned so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveLimit {
    /// The configured limit, in slots.
    ceiling: u32,
    /// The present limit, in parts of a slot.
    parts: u64,
    adaptive: bool,
    decreased: Option<Tick>,
    wait_until: Option<Tick>,
}

impl AdaptiveLimit {
    /// Begins at the configured limit, which it never passes. One that is not adaptive stays there,
    /// but honours a wait that the service asks for.
    pub fn new(ceiling: u32, adaptive: bool) -> AdaptiveLimit {
        let parts = u64::from(ceiling) * PARTS;
        AdaptiveLimit { ceiling, parts, adaptive, decreased: None, wait_until: None }
    }

    /// Takes another configured limit over. What was learned stays, as far as it goes.
    pub fn reconfigure(&mut self, ceiling: u32, adaptive: bool) {
        let most = u64::from(ceiling) * PARTS;
        let was_free = !self.adaptive || self.parts >= u64::from(self.ceiling) * PARTS;
        self.parts = if was_free || !adaptive { most } else { self.parts.min(most) };
        (self.ceiling, self.adaptive) = (ceiling, adaptive);
    }

    /// Slots there are at this moment.
    pub fn slots(&self, now: Tick) -> u32 {
        if self.wait_until.is_some_and(|until| now < until) { 0 } else { self.present() }
    }

    /// The limit as learned, whatever wait is in force.
    pub fn present(&self) -> u32 {
        u32::try_from(self.parts / PARTS).unwrap_or(self.ceiling).clamp(1, self.ceiling)
    }

    /// When the wait that the service asked for is over; nothing once it was noticed that it is.
    pub fn wait_until(&self) -> Option<Tick> {
        self.wait_until
    }

    /// Notices that the wait that the service asked for is over.
    pub fn forget_past_wait(&mut self, now: Tick) {
        self.wait_until = self.wait_until.filter(|until| now < *until);
    }

    /// The service took a request: one slot more for each whole round of them.
    pub fn taken(&mut self) {
        let step = PARTS / u64::from(self.present());
        self.parts = self.parts.saturating_add(step).min(u64::from(self.ceiling) * PARTS);
    }

    /// The service said that it is too much.
    pub fn refused(&mut self, now: Tick, wait: Option<Millis>) {
        if let Some(wait) = wait {
            let until = now.after(wait.min(RETRY_AFTER_MAX));
            self.wait_until = self.wait_until.max(Some(until));
        }
        let same_crowd = self.decreased.is_some_and(|at| now.since(at) < COOL_DOWN);
        if self.adaptive && !same_crowd {
            self.parts = (self.parts / 2).max(PARTS);
            self.decreased = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_crowd_halves_once_and_a_round_of_answers_gives_one_slot_back() {
        let mut limit = AdaptiveLimit::new(16, true);
        for _ in 0..10 {
            limit.refused(Tick(1_000), None);
        }
        assert_eq!(limit.present(), 8);
        (0..8).for_each(|_| limit.taken());
        assert_eq!(limit.present(), 9);
        limit.refused(Tick(6_000), None);
        assert_eq!(limit.present(), 4);
    }

    #[test]
    fn a_limit_of_many_slots_grows_again() {
        let mut limit = AdaptiveLimit::new(100_000, true);
        limit.refused(Tick(0), None);
        (0..50_001).for_each(|_| limit.taken());
        assert_eq!(limit.present(), 50_001);
        let mut most = AdaptiveLimit::new(u32::MAX, true);
        most.taken();
        assert_eq!(most.present(), u32::MAX);
    }

    #[test]
    fn it_never_stops_altogether_and_never_passes_the_ceiling() {
        let mut limit = AdaptiveLimit::new(4, true);
        (0..20).for_each(|n| limit.refused(Tick(n * 10_000), None));
        assert_eq!(limit.present(), 1);
        (0..500).for_each(|_| limit.taken());
        assert_eq!(limit.present(), 4);
    }

    #[test]
    fn a_wait_that_is_asked_for_is_kept() {
        let mut limit = AdaptiveLimit::new(4, false);
        limit.refused(Tick(0), Some(Millis(7_000)));
        limit.refused(Tick(10), Some(Millis(1_000)));
        assert_eq!((limit.slots(Tick(6_999)), limit.slots(Tick(7_000))), (0, 4));
        limit.forget_past_wait(Tick(6_999));
        assert_eq!(limit.wait_until(), Some(Tick(7_000)));
        limit.forget_past_wait(Tick(7_000));
        assert_eq!(limit.wait_until(), None);
        limit.refused(Tick(8_000), Some(Millis(u64::MAX)));
        assert_eq!(limit.slots(Tick(3_608_000)), 4, "not for ever");
    }

    /// A service that takes 5 at once: the limit settles around that, far below the ceiling.
    #[test]
    fn it_finds_a_limit_that_nobody_told() {
        let mut limit = AdaptiveLimit::new(64, true);
        let mut seen = Vec::new();
        for second in 0..300u64 {
            let now = Tick(second * 1_000);
            let sent = limit.slots(now);
            (0..sent.min(5)).for_each(|_| limit.taken());
            if sent > 5 {
                limit.refused(now, None);
            }
            seen.push(limit.present());
        }
        let settled = &seen[100..];
        assert!(settled.iter().all(|slots| (2..=12).contains(slots)), "{settled:?}");
    }
}
