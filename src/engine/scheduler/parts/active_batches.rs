//! The batches that are not done, and which of them is served next. One that is done leaves as soon as that is durable.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::domain::ids::BatchNo;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::store::BatchRecord;

/// Batches by number.
#[derive(Debug)]
pub struct ActiveBatches {
    all: BTreeMap<BatchNo, ActiveBatch>,
    /// Which batch was served last, so that equals take turns across steps.
    last_served: BatchNo,
}

impl Default for ActiveBatches {
    fn default() -> ActiveBatches {
        ActiveBatches { all: BTreeMap::new(), last_served: BatchNo(0) }
    }
}

impl ActiveBatches {
    pub fn contains_key(&self, no: &BatchNo) -> bool {
        self.all.contains_key(no)
    }

    pub fn get(&self, no: &BatchNo) -> Option<&ActiveBatch> {
        self.all.get(no)
    }

    pub fn get_mut(&mut self, no: &BatchNo) -> Option<&mut ActiveBatch> {
        self.all.get_mut(no)
    }

    pub fn insert(&mut self, active: ActiveBatch) {
        self.all.insert(active.record().no, active);
    }

    /// All of them, oldest first; maybe some that are done since the last step.
    pub fn iter(&self) -> impl Iterator<Item = &ActiveBatch> {
        self.all.values()
    }

    /// The same, beginning after the one that was served last and coming round to it.
    pub fn in_turn(&self) -> impl Iterator<Item = &ActiveBatch> {
        let later = self.all.range((Bound::Excluded(self.last_served), Bound::Unbounded));
        later.chain(self.all.range(..=self.last_served)).map(|(_, active)| active)
    }

    /// A job of this batch was sent: the others come before its next.
    pub fn served(&mut self, no: BatchNo) {
        self.last_served = no;
    }

    /// Changes every one.
    pub fn for_each(&mut self, change: impl FnMut(&mut ActiveBatch)) {
        self.all.values_mut().for_each(change);
    }

    /// Takes out those that are done, but for those of which a change is still to be made durable, or rows are being
    /// read.
    pub fn take_finished(&mut self, is_changing: impl Fn(BatchNo) -> bool) -> Vec<BatchRecord> {
        let is_over = |active: &&ActiveBatch| {
            active.record().is_done() && !active.is_loading() && !is_changing(active.record().no)
        };
        let over: Vec<BatchNo> = self.all.values().filter(is_over).map(|active| active.record().no).collect();
        over.iter().filter_map(|no| self.all.remove(no)).map(ActiveBatch::into_record).collect()
    }
}
