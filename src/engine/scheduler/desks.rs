//! The batches, and which of them still have something to do.
//!
//! A daemon keeps batches at hand for weeks after they are done. No step should look at those: only what was
//! touched since it was found done is looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::domain::ids::BatchNo;
use crate::engine::scheduler::BatchDesk;

/// Every batch by number.
#[derive(Debug, Default)]
pub(super) struct Desks {
    all: BTreeMap<BatchNo, BatchDesk>,
    /// Every batch that is not done, and maybe some that are.
    busy: BTreeSet<BatchNo>,
}

impl Desks {
    pub(super) fn contains_key(&self, no: &BatchNo) -> bool {
        self.all.contains_key(no)
    }

    pub(super) fn get(&self, no: &BatchNo) -> Option<&BatchDesk> {
        self.all.get(no)
    }

    /// A batch to be changed: it is looked at by the steps that follow.
    pub(super) fn get_mut(&mut self, no: &BatchNo) -> Option<&mut BatchDesk> {
        let desk = self.all.get_mut(no)?;
        self.busy.insert(*no);
        Some(desk)
    }

    pub(super) fn insert(&mut self, desk: BatchDesk) {
        let no = desk.record.no;
        self.busy.insert(no);
        self.all.insert(no, desk);
    }

    pub(super) fn remove(&mut self, no: &BatchNo) -> Option<BatchDesk> {
        self.busy.remove(no);
        self.all.remove(no)
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BatchNo, &BatchDesk)> {
        self.all.iter()
    }

    /// Those that are not done, oldest first; maybe some that are.
    pub(super) fn busy(&self) -> impl Iterator<Item = &BatchDesk> {
        self.busy.iter().filter_map(|no| self.all.get(no))
    }

    /// The same, beginning after `last` and coming round to it.
    pub(super) fn busy_after(&self, last: BatchNo) -> impl Iterator<Item = &BatchDesk> {
        let later = self.busy.range((Bound::Excluded(last), Bound::Unbounded));
        later.chain(self.busy.range(..=last)).filter_map(|no| self.all.get(no))
    }

    /// Changes every one that is not done.
    pub(super) fn for_each_busy(&mut self, mut change: impl FnMut(&mut BatchDesk)) {
        for no in &self.busy {
            if let Some(desk) = self.all.get_mut(no) {
                change(desk);
            }
        }
    }

    /// Leaves out what is done from now on, until it is touched.
    pub(super) fn rest(&mut self) {
        let all = &self.all;
        let is_busy = |desk: &BatchDesk| desk.is_loading() || !desk.record.is_done();
        self.busy.retain(|no| all.get(no).is_some_and(is_busy));
    }
}
