//! Jobs whose inputs could not be had though they may be later: how often in a row, since when, and why.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Tick};

/// Tries after which a job gives its slot back, and our own copies stand in for outputs that cannot be fetched.
const TRIES_WITH_SLOT: u32 = 3;
/// Jobs that wait at once after which the next one keeps its slot for no further try: the fault is not its own.
const WAIT_WITH_SLOT: usize = 4;
/// The part of the slots that jobs of a batch may take which try again from the queue.
const RETRY_SHARE: u32 = 4;
/// How long the inputs of a job are waited for.
const WAIT_MAX: Millis = Millis::from_secs(24 * 3600);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct InputWaits {
    jobs: BTreeMap<JobKey, InputWait>,
    /// Those that try again from the queue just now.
    trying: BTreeMap<BatchNo, BTreeSet<JobKey>>,
}

#[derive(Debug)]
struct InputWait {
    /// Tries in a row that failed.
    tries: u32,
    /// Since when the job alone waits; nothing while the object store takes nothing.
    since: Option<Tick>,
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
        let wait = self.count(key, why);
        let (before, since) = (wait.tries - 1, *wait.since.get_or_insert(now));
        let next = match wait.tries {
            _ if now.since(since) >= WAIT_MAX => NextTry::NoMore,
            tries if tries < TRIES_WITH_SLOT && !is_common => NextTry::KeepsSlot,
            tries => NextTry::GivesSlotBack(tries == TRIES_WITH_SLOT),
        };
        (before, next)
    }

    /// The object store takes nothing, what a job needs among it: that is waited for without an end.
    pub fn store_refused(&mut self, key: JobKey, why: &Fault) {
        self.count(key, why).since = None;
    }

    fn count(&mut self, key: JobKey, why: &Fault) -> &mut InputWait {
        self.tries_no_more(&key);
        let new = || InputWait { tries: 0, since: None, why: why.clone() };
        let wait = self.jobs.entry(key).or_insert_with(new);
        wait.tries = wait.tries.saturating_add(1);
        wait.why = why.clone();
        wait
    }

    /// The inputs of a job were found, or nobody looks for them any more.
    pub fn remove(&mut self, key: &JobKey) {
        self.tries_no_more(key);
        self.jobs.remove(key);
    }

    /// Whether a job whose wait is over may try again from the queue: of many that wait only some do at once, so that they
    /// take no more than a part of the slots.
    pub fn lets_try(&mut self, key: JobKey, slots: u32) -> bool {
        if self.tries(&key) == 0 {
            return true;
        }
        let most = (slots / RETRY_SHARE).max(1) as usize;
        let trying = self.trying.entry(key.batch).or_default();
        let may_try = trying.len() < most || trying.contains(&key);
        if may_try {
            trying.insert(key);
        }
        may_try
    }

    fn tries_no_more(&mut self, key: &JobKey) {
        if let Some(trying) = self.trying.get_mut(&key.batch) {
            trying.remove(key);
            if trying.is_empty() {
                self.trying.remove(&key.batch);
            }
        }
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
        let [first, last] = [0, u32::MAX].map(|seq| JobKey { batch, seq: Seq(seq) });
        self.jobs.range(first..=last).any(|(_, wait)| wait.since.is_some())
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
        assert_eq!(waits.failed(KEY, &why, Tick(WAIT_MAX.0 - 1)), (3, NextTry::GivesSlotBack(false)));
        assert_eq!(waits.failed(KEY, &why, Tick(WAIT_MAX.0)), (4, NextTry::NoMore));
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
        assert!(waits.lets_try(keys[0], 8) && waits.lets_try(keys[1], 8) && waits.lets_try(keys[1], 8));
        assert!(!waits.lets_try(keys[2], 8), "a quarter of the slots");
        assert!(waits.lets_try(JobKey { batch: BatchNo(2), seq: Seq(0) }, 8), "it waits for something else");
        waits.failed(keys[0], &why, Tick(1));
        assert!(waits.lets_try(keys[2], 8));
        waits.remove(&keys[1]);
        assert!(waits.lets_try(keys[3], 8) && !waits.lets_try(keys[4], 8));
    }

    #[test]
    fn a_store_that_takes_nothing_is_waited_for_without_an_end() {
        let (mut waits, why) = (InputWaits::default(), Fault::new("store", "refused"));
        waits.failed(KEY, &why, Tick(0));
        waits.store_refused(KEY, &why);
        assert!(!waits.any_alone(BatchNo(1)));
        assert_eq!(waits.failed(KEY, &why, Tick(WAIT_MAX.0)), (2, NextTry::GivesSlotBack(true)));
    }
}
