//! The batches, and which of them still have something to do.
//!
//! A daemon keeps batches at hand for weeks after they are done. No step should look at those: only what was
//! touched since it was found done is looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::domain::ids::BatchNo;
use crate::engine::scheduler::ActiveBatch;

/// Every batch by number.
#[derive(Debug, Default)]
pub(super) struct ActiveBatches {
    all: BTreeMap<BatchNo, ActiveBatch>,
    /// Every batch that is not done, and maybe some that are.
    unfinished: BTreeSet<BatchNo>,
}

impl ActiveBatches {
    pub(super) fn contains_key(&self, no: &BatchNo) -> bool {
        self.all.contains_key(no)
    }

    pub(super) fn get(&self, no: &BatchNo) -> Option<&ActiveBatch> {
        self.all.get(no)
    }

    /// A batch to be changed: it is looked at by the steps that follow.
    pub(super) fn get_mut(&mut self, no: &BatchNo) -> Option<&mut ActiveBatch> {
        let active = self.all.get_mut(no)?;
        self.unfinished.insert(*no);
        Some(active)
    }

    pub(super) fn insert(&mut self, active: ActiveBatch) {
        let no = active.record.no;
        self.unfinished.insert(no);
        self.all.insert(no, active);
    }

    pub(super) fn remove(&mut self, no: &BatchNo) -> Option<ActiveBatch> {
        self.unfinished.remove(no);
        self.all.remove(no)
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BatchNo, &ActiveBatch)> {
        self.all.iter()
    }

    /// Those that are not done, oldest first; maybe some that are.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &ActiveBatch> {
        self.unfinished.iter().filter_map(|no| self.all.get(no))
    }

    /// The same, beginning after `last` and coming round to it.
    pub(super) fn unfinished_after(&self, last: BatchNo) -> impl Iterator<Item = &ActiveBatch> {
        let later = self.unfinished.range((Bound::Excluded(last), Bound::Unbounded));
        later.chain(self.unfinished.range(..=last)).filter_map(|no| self.all.get(no))
    }

    /// Changes every one that is not done.
    pub(super) fn for_each_unfinished(&mut self, mut change: impl FnMut(&mut ActiveBatch)) {
        for no in &self.unfinished {
            if let Some(active) = self.all.get_mut(no) {
                change(active);
            }
        }
    }

    /// Leaves out what is done from now on, until it is touched.
    pub(super) fn forget_finished(&mut self) {
        let all = &self.all;
        let is_unfinished = |active: &ActiveBatch| active.is_loading() || !active.record.is_done();
        self.unfinished.retain(|no| all.get(no).is_some_and(is_unfinished));
    }
}
