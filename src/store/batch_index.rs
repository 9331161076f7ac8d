//! Which batch is called what.
//!
//! Every manifest asks for a batch by its name: with thousands of batches nobody should read all of them for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::ids::{BatchName, BatchNo};
use crate::store::snapshot::Snapshot;

/// The names of a state's batches. Archived ones are only counted: the database knows their names.
#[derive(Debug)]
pub(super) struct BatchIndex(Mutex<IndexEntries>);

#[derive(Debug, Default)]
struct IndexEntries {
    live: HashMap<BatchName, BatchNo>,
    archived: u64,
    /// The highest number that was ever given, 0 when none was.
    highest: u32,
}

impl BatchIndex {
    /// The names in the records.
    pub(super) fn of(records: &Snapshot) -> BatchIndex {
        let live = records.batches.iter().map(|batch| (batch.name.clone(), batch.no)).collect();
        let numbers = records.batches.iter().map(|batch| batch.no).chain(records.archived.keys().copied());
        let highest = numbers.map(|no| no.0).max().unwrap_or_default();
        BatchIndex(Mutex::new(IndexEntries { live, archived: records.archived.len() as u64, highest }))
    }

    fn known(&self) -> MutexGuard<'_, IndexEntries> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the batch of that name, unless it is archived.
    pub(super) fn number(&self, name: &BatchName) -> Option<BatchNo> {
        self.known().live.get(name).copied()
    }

    /// A number that no batch ever had.
    pub(super) fn next(&self) -> BatchNo {
        BatchNo(self.known().highest + 1)
    }

    /// A batch is in the database.
    pub(super) fn add(&self, name: &BatchName, no: BatchNo) {
        let mut known = self.known();
        known.highest = known.highest.max(no.0);
        if !known.live.contains_key(name) {
            known.live.insert(name.clone(), no);
        }
    }

    /// It left the database.
    pub(super) fn archived(&self, name: &BatchName) {
        let mut known = self.known();
        known.live.remove(name);
        known.archived += 1;
    }

    /// It came back.
    pub(super) fn taken_back(&self, name: &BatchName, no: BatchNo) {
        self.add(name, no);
        let mut known = self.known();
        known.archived = known.archived.saturating_sub(1);
    }

    /// How many are archived.
    pub(super) fn archived_count(&self) -> u64 {
        self.known().archived
    }
}
