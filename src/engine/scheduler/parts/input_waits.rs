//! Jobs whose inputs could not be had though they may be later: how often in a row, since when, and why.

use std::collections::BTreeMap;

use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Tick};

/// Tries after which a job gives its slot back, and our own copies stand in for outputs that cannot be fetched.
const TRIES_WITH_SLOT: u32 = 3;
/// Jobs that wait at once after which the next one keeps its slot for no further try: the fault is not its own.
const WAIT_WITH_SLOT: usize = 4;
/// The part of the slots that jobs of a batch may take which try again.
const RETRY_SHARE: u32 = 4;
/// Jobs of a batch that wait so, from which on no further row of it begins that takes inputs.
const WAITING_MAX: usize = 64;
/// A job that was not tried for so long, since its batch was paused for one, begins to wait anew.
const GAP_MAX: Millis = Millis::from_secs(3600);
/// How long the inputs of a job are waited for.
const WAIT_MAX: Millis = Millis::from_secs(24 * 3600);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct InputWaits {
    jobs: BTreeMap<JobKey, InputWait>,
}

#[derive(Debug)]
struct InputWait {
    /// Tries in a row that failed.
    tries: u32,
    /// Since when the job alone waits; nothing while the object store takes nothing.
    since: Option<Tick>,
    /// When it was tried last.
    last: Tick,
    why: Fault,
}

/// What follows where the inputs of a job could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTry {
    /// It tries again where it is.
    KeepsSlot,
    /// It gives its slot back and tries again later; true where that is new.
    GivesSlotBack(bool),
    /// It was tried for long enough.
    NoMore,
}

impl InputWaits {
    /// The inputs of a job could not be had. Returns how many tries in a row before could not, and what follows.
    pub fn failed(&mut self, key: JobKey, why: &Fault, now: Tick) -> (u32, NextTry) {
        let is_common = self.jobs.len() >= WAIT_WITH_SLOT;
        let wait = self.count(key, why, now);
        let (before, since) = (wait.tries - 1, *wait.since.get_or_insert(now));
        let next = match wait.tries {
            _ if now.since(since) >= WAIT_MAX => NextTry::NoMore,
            tries if tries < TRIES_WITH_SLOT && !is_common => NextTry::KeepsSlot,
            tries => NextTry::GivesSlotBack(tries == TRIES_WITH_SLOT),
        };
        (before, next)
    }

    /// The object store takes nothing, what a job needs among it: that is waited for without an end. Returns how many tries in
    /// a row before failed.
    pub fn store_refused(&mut self, key: JobKey, why: &Fault, now: Tick) -> u32 {
        let wait = self.count(key, why, now);
        wait.since = None;
        wait.tries - 1
    }

    fn count(&mut self, key: JobKey, why: &Fault, now: Tick) -> &mut InputWait {
        let new = || InputWait { tries: 0, since: None, last: now, why: why.clone() };
        let wait = self.jobs.entry(key).or_insert_with(new);
        if now.since(wait.last) > GAP_MAX {
            *wait = new();
        }
        wait.tries = wait.tries.saturating_add(1);
        (wait.last, wait.why) = (now, why.clone());
        wait
    }

    /// The inputs of a job were found, or nobody looks for them any more.
    pub fn remove(&mut self, key: &JobKey) {
        self.jobs.remove(key);
    }

    /// How many jobs of a batch may be let out that try again, of so many slots: they take no more than a part of these.
    /// `holds_slot` tells which of them have one.
    pub fn retry_room(&self, batch: BatchNo, slots: u32, holds_slot: impl Fn(&JobKey) -> bool) -> u32 {
        let holding = self.of_batch(batch).filter(|(key, _)| holds_slot(key)).count();
        (slots / RETRY_SHARE).max(1).saturating_sub(u32::try_from(holding).unwrap_or(u32::MAX))
    }

    /// Whether no further row of a batch begins that takes inputs.
    pub fn are_many(&self, batch: BatchNo) -> bool {
        self.of_batch(batch).nth(WAITING_MAX - 1).is_some()
    }

    /// Whether some job of a batch waits.
    pub fn any(&self, batch: BatchNo) -> bool {
        self.of_batch(batch).next().is_some()
    }

    fn of_batch(&self, batch: BatchNo) -> impl Iterator<Item = (&JobKey, &InputWait)> {
        let [first, last] = [0, u32::MAX].map(|seq| JobKey { batch, seq: Seq(seq) });
        self.jobs.range(first..=last)
    }

    /// How many tries in a row failed.
    pub fn tries(&self, key: &JobKey) -> u32 {
        self.jobs.get(key).map_or(0, |wait| wait.tries)
    }

    /// Whether our own copies of outputs are used where those at the service cannot be had.
    pub fn uses_own_copies(&self, key: &JobKey) -> bool {
        self.tries(key) >= TRIES_WITH_SLOT
    }

    /// Why the inputs of a job that waits by itself could not be had the last time.
    pub fn why(&self, key: &JobKey) -> Option<&Fault> {
        self.jobs.get(key).filter(|wait| wait.since.is_some()).map(|wait| &wait.why)
    }

    /// Whether a job of a batch waits by itself.
    pub fn any_alone(&self, batch: BatchNo) -> bool {
        self.of_batch(batch).any(|(_, wait)| wait.since.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: JobKey = JobKey { batch: BatchNo(1), seq: Seq(0) };

    #[test]
    fn a_job_keeps_its_slot_for_a_few_tries_and_tries_for_a_day() {
        let (mut waits, why) = (InputWaits::default(), Fault::new("download", "refused"));
        assert_eq!(waits.failed(KEY, &why, Tick(0)), (0, NextTry::KeepsSlot));
        assert_eq!(waits.failed(KEY, &why, Tick(1)), (1, NextTry::KeepsSlot));
        assert!(!waits.uses_own_copies(&KEY));
        assert_eq!(waits.failed(KEY, &why, Tick(2)), (2, NextTry::GivesSlotBack(true)));
        assert!(waits.uses_own_copies(&KEY) && waits.any_alone(BatchNo(1)) && !waits.any_alone(BatchNo(2)));
        let tries = u32::try_from(WAIT_MAX.0 / GAP_MAX.0).unwrap();
        for n in 1..tries {
            let at = Tick(u64::from(n) * GAP_MAX.0);
            assert_eq!(waits.failed(KEY, &why, at), (2 + n, NextTry::GivesSlotBack(false)));
        }
        assert_eq!(waits.failed(KEY, &why, Tick(WAIT_MAX.0)), (2 + tries, NextTry::NoMore));
        assert_eq!(waits.why(&KEY), Some(&why));
        waits.remove(&KEY);
        assert_eq!((waits.tries(&KEY), waits.why(&KEY)), (0, None));
    }

    #[test]
    fn of_many_jobs_a_part_tries_at_once_and_none_keeps_its_slot() {
        let (mut waits, why) = (InputWaits::default(), Fault::new("download", "refused"));
        let keys = [0, 1, 2, 3, 4, 5].map(|seq| JobKey { batch: BatchNo(1), seq: Seq(seq) });
        let next = keys.map(|key| waits.failed(key, &why, Tick(0)).1);
        assert_eq!(next[..4], [NextTry::KeepsSlot; 4]);
        assert_eq!(next[4..], [NextTry::GivesSlotBack(false); 2]);
        let room =
            |waits: &InputWaits, holding: u32| waits.retry_room(BatchNo(1), 8, |key| key.seq.0 < holding);
        assert_eq!([0, 1, 2, 6].map(|holding| room(&waits, holding)), [2, 1, 0, 0], "a quarter of the slots");
        assert!(waits.any(BatchNo(1)) && !waits.any(BatchNo(2)) && !waits.are_many(BatchNo(1)));
        for seq in 6..64 {
            waits.failed(JobKey { batch: BatchNo(1), seq: Seq(seq) }, &why, Tick(0));
        }
        assert!(waits.are_many(BatchNo(1)) && !waits.are_many(BatchNo(2)));
        waits.remove(&keys[1]);
        assert!(!waits.are_many(BatchNo(1)));
    }

    #[test]
    fn time_in_which_nothing_was_tried_does_not_count() {
        let (mut waits, why) = (InputWaits::default(), Fault::new("download", "refused"));
        waits.failed(KEY, &why, Tick(0));
        assert_eq!(waits.failed(KEY, &why, Tick(2 * WAIT_MAX.0)), (0, NextTry::KeepsSlot));
    }

    #[test]
    fn a_store_that_takes_nothing_is_waited_for_without_an_end() {
        let (mut waits, why) = (InputWaits::default(), Fault::new("store", "refused"));
        waits.failed(KEY, &why, Tick(0));
        waits.store_refused(KEY, &why, Tick(0));
        assert!(!waits.any_alone(BatchNo(1)));
        assert_eq!(waits.failed(KEY, &why, Tick(1)), (2, NextTry::GivesSlotBack(true)));
    }
}
