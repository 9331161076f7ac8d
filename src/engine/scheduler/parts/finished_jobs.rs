//! How the jobs ended of batches that are done: the batches have left memory, and their jobs stay counted.

use std::collections::BTreeMap;

use crate::domain::request::Kind;
use crate::store::{BatchRecord, Ended};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct FinishedJobs(BTreeMap<Option<Kind>, Ended>);

impl FinishedJobs {
    /// As it was stored, by kind; nothing stands for jobs whose kind was not counted.
    pub fn new(jobs: BTreeMap<Option<Kind>, Ended>) -> FinishedJobs {
        FinishedJobs(jobs)
    }

    /// A batch is done.
    pub fn add(&mut self, batch: &BatchRecord) {
        self.change(batch, Ended::plus);
    }

    /// A batch that was done is taken up.
    pub fn remove(&mut self, batch: &BatchRecord) {
        self.change(batch, Ended::minus);
    }

    fn change(&mut self, batch: &BatchRecord, change: fn(Ended, Ended) -> Ended) {
        for (kind, ended) in batch.ended_by_kind() {
            let sum = self.0.entry(kind).or_default();
            *sum = change(*sum, ended);
        }
    }

    /// By kind, where that was counted.
    pub fn by_kind(&self) -> impl Iterator<Item = (Option<Kind>, Ended)> {
        self.0.iter().map(|(kind, ended)| (*kind, *ended))
    }
}
