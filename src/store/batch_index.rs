//! Which batch is called what.
//!
//! Every manifest asks for a batch by its name: with thousands of batches nobody should read all of them for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::ids::{BatchName, BatchNo};
use crate::store::snapshot::Snapshot;

/// The names of a state's unfinished batches. Those that are done are only counted: the database knows their names.
#[derive(Debug)]
pub(super) struct BatchIndex(Mutex<IndexEntries>);

#[derive(Debug, Default)]
struct IndexEntries {
    unfinished: HashMap<BatchName, BatchNo>,
    finished: u64,
    /// The highest number that was ever given, 0 when none was.
    highest: u32,
}

impl BatchIndex {
    /// The names in the records.
    pub(super) fn of(records: &Snapshot) -> BatchIndex {
        let unfinished = records.batches.iter().map(|batch| (batch.name.clone(), batch.no)).collect();
        let numbers = records.batches.iter().map(|batch| batch.no).chain(records.finished.keys().copied());
        let highest = numbers.chain(records.highest_finished).map(|no| no.0).max().unwrap_or_default();
        let finished = records.stored_total().finished_count();
        BatchIndex(Mutex::new(IndexEntries { unfinished, finished, highest }))
    }

    fn known(&self) -> MutexGuard<'_, IndexEntries> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the batch of that name, unless it is done.
    pub(super) fn number(&self, name: &BatchName) -> Option<BatchNo> {
        self.known().unfinished.get(name).copied()
    }

    /// A number that no batch ever had.
    pub(super) fn next(&self) -> BatchNo {
        BatchNo(self.known().highest + 1)
    }

    /// A commit says that a batch is not done, and `finished` batches are. Whether it was not among the unfinished ones before.
    pub(super) fn unfinished(&self, name: &BatchName, no: BatchNo, finished: u64) -> bool {
        let mut known = self.known();
        known.highest = known.highest.max(no.0);
        known.finished = finished;
        let is_new = !known.unfinished.contains_key(name);
        if is_new {
            known.unfinished.insert(name.clone(), no);
        }
        is_new
    }

    /// A commit says that a batch is done, as so many are.
    pub(super) fn finished(&self, name: &BatchName, no: BatchNo, finished: u64) {
        let mut known = self.known();
        known.highest = known.highest.max(no.0);
        known.unfinished.remove(name);
        known.finished = finished;
    }

    /// How many are done.
    pub(super) fn finished_count(&self) -> u64 {
        self.known().finished
    }
}
