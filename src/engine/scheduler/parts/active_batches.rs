//! The batches, and which of them still have something to do.
//!
//! A daemon keeps batches at hand for weeks after they are done. No step should look at those: only what was
//! touched since it was found done is looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::domain::ids::BatchNo;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;

/// Every batch by number.
#[derive(Debug)]
pub struct ActiveBatches {
    all: BTreeMap<BatchNo, ActiveBatch>,
    /// Every batch that is not done, and maybe some that are.
    unfinished: BTreeSet<BatchNo>,
    /// Which batch was served last, so that equals take turns across steps.
    last_served: BatchNo,
}

impl Default for ActiveBatches {
    fn default() -> ActiveBatches {
        ActiveBatches { all: BTreeMap::new(), unfinished: BTreeSet::new(), last_served: BatchNo(0) }
    }
}

impl ActiveBatches {
    pub fn contains_key(&self, no: &BatchNo) -> bool {
        self.all.contains_key(no)
    }

    pub fn get(&self, no: &BatchNo) -> Option<&ActiveBatch> {
        self.all.get(no)
    }

    /// A batch to be changed: it is looked at by the steps that follow.
    pub fn get_mut(&mut self, no: &BatchNo) -> Option<&mut ActiveBatch> {
        let active = self.all.get_mut(no)?;
        self.unfinished.insert(*no);
        Some(active)
    }

    pub fn insert(&mut self, active: ActiveBatch) {
        let no = active.record.no;
        self.unfinished.insert(no);
        self.all.insert(no, active);
    }

    pub fn remove(&mut self, no: &BatchNo) -> Option<ActiveBatch> {
        self.unfinished.remove(no);
        self.all.remove(no)
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&BatchNo, &ActiveBatch)> {
        self.all.iter()
    }

    /// Those that are not done, oldest first; maybe some that are.
    pub fn unfinished(&self) -> impl Iterator<Item = &ActiveBatch> {
        self.unfinished.iter().filter_map(|no| self.all.get(no))
    }

    /// The same, beginning after the one that was served last and coming round to it.
    pub fn in_turn(&self) -> impl Iterator<Item = &ActiveBatch> {
        let last = self.last_served;
        let later = self.unfinished.range((Bound::Excluded(last), Bound::Unbounded));
        later.chain(self.unfinished.range(..=last)).filter_map(|no| self.all.get(no))
    }

    /// A job of this batch was sent: the others come before its next.
    pub fn served(&mut self, no: BatchNo) {
        self.last_served = no;
    }

    /// Changes every one that is not done.
    pub fn for_each_unfinished(&mut self, mut change: impl FnMut(&mut ActiveBatch)) {
        for no in &self.unfinished {
            if let Some(active) = self.all.get_mut(no) {
                change(active);
            }
        }
    }

    /// Leaves out what is done from now on, until it is touched.
    pub fn forget_finished(&mut self) {
        let all = &self.all;
        let is_unfinished = |active: &ActiveBatch| active.is_loading() || !active.record.is_done();
        self.unfinished.retain(|no| all.get(no).is_some_and(is_unfinished));
    }
}
