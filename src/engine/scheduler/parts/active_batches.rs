//! The batches that are not done, which of them a step has to look at, and which is served next. One that is done leaves
//! as soon as that is durable.
//!
//! Code that changes a batch takes it by [`ActiveBatches::get_mut`], which notes it: before a step asks what needs its
//! attention, the batches that were changed are sorted in anew.

use std::collections::{BTreeMap, BTreeSet};

use enum_map::EnumMap;

use crate::domain::ids::BatchNo;
use crate::domain::parked_reason::Parked;
use crate::domain::time::Timestamp;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::attention::{Attention, attention_of};
use crate::store::BatchRecord;

/// See the module's documentation.
#[derive(Debug)]
pub struct ActiveBatches {
    all: BTreeMap<BatchNo, Sorted>,
    /// Those that need attention.
    needing: EnumMap<Attention, BTreeSet<BatchNo>>,
    /// Those of which something expires, with the instant.
    expiring: BTreeSet<(Timestamp, BatchNo)>,
    /// Those that have rows in memory, with the highest priority of these.
    with_rows: BTreeMap<BatchNo, i8>,
    /// Those that may have changed since they were sorted in; some are listed more than once.
    changed: Vec<BatchNo>,
    /// What keeps all of them from sending.
    all_parked: Option<Parked>,
    /// Which batch was served last, so that equals take turns across steps.
    last_served: BatchNo,
}

/// A batch, and what it was sorted in by.
#[derive(Debug)]
struct Sorted {
    active: ActiveBatch,
    needs: EnumMap<Attention, bool>,
    expires: Option<Timestamp>,
}

impl Default for ActiveBatches {
    fn default() -> ActiveBatches {
        ActiveBatches {
            all: BTreeMap::new(),
            needing: EnumMap::default(),
            expiring: BTreeSet::new(),
            with_rows: BTreeMap::new(),
            changed: Vec::new(),
            all_parked: None,
            last_served: BatchNo(0),
        }
    }
}

impl ActiveBatches {
    pub fn contains_key(&self, no: &BatchNo) -> bool {
        self.all.contains_key(no)
    }

    pub fn get(&self, no: &BatchNo) -> Option<&ActiveBatch> {
        self.all.get(no).map(|sorted| &sorted.active)
    }

    /// A batch to be changed.
    pub fn get_mut(&mut self, no: &BatchNo) -> Option<&mut ActiveBatch> {
        let sorted = self.all.get_mut(no)?;
        if self.changed.last() != Some(no) {
            self.changed.push(*no);
        }
        Some(&mut sorted.active)
    }

    pub fn insert(&mut self, mut active: ActiveBatch) {
        let no = active.record().no;
        active.park_with_all(self.all_parked);
        self.all.insert(no, Sorted { active, needs: EnumMap::default(), expires: None });
        self.changed.push(no);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them, oldest first; maybe some that are done since the last step.
    pub fn iter(&self) -> impl Iterator<Item = &ActiveBatch> {
        self.all.values().map(|sorted| &sorted.active)
    }

    /// Sorts in what has changed.
    pub fn sort_in(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let batches = self.all.len();
        for no in changed.drain(..) {
            let Some(Sorted { active, needs: before, expires }) = self.all.get_mut(&no) else { continue };
            let needs = attention_of(active, batches);
            match active.priority_in_memory() {
                Some(priority) => self.with_rows.insert(no, priority),
                None => self.with_rows.remove(&no),
            };
            let before = std::mem::replace(before, needs);
            sort_in(&mut self.needing, no, before, needs);
            if *expires != active.expires() {
                expires.take().map(|at| self.expiring.remove(&(at, no)));
                *expires = active.expires();
                self.expiring.extend(expires.map(|at| (at, no)));
            }
        }
        // Its memory serves for the next.
        self.changed = changed;
    }

    /// Those that need this attention, oldest first.
    pub fn needing(&mut self, attention: Attention) -> Vec<BatchNo> {
        self.sort_in();
        self.needing[attention].iter().copied().collect()
    }

    /// The same as they were sorted in last: every step ends with that.
    pub fn sorted(&self, attention: Attention) -> impl Iterator<Item = &ActiveBatch> {
        self.needing[attention].iter().filter_map(|no| self.get(no))
    }

    /// Those that need this attention, and those of which something has expired by now.
    pub fn needing_or_expired(&mut self, attention: Attention, now: Timestamp) -> BTreeSet<BatchNo> {
        let mut needing: BTreeSet<BatchNo> = self.needing(attention).into_iter().collect();
        needing.extend(self.expiring.range(..=(now, BatchNo(u32::MAX))).map(|(_, no)| *no));
        needing
    }

    /// Whether something of one expires, by now or later.
    pub fn expire(&self) -> bool {
        !self.expiring.is_empty()
    }

    /// Those that have rows in memory and are not paused, with the highest priority of these rows.
    pub fn with_rows(&mut self) -> impl Iterator<Item = (BatchNo, i8)> {
        self.sort_in();
        self.with_rows.iter().map(|(no, priority)| (*no, *priority))
    }

    /// Which batch was served last: its turn comes after all others.
    pub fn last_served(&self) -> BatchNo {
        self.last_served
    }

    /// A job of this batch was sent: the others come before its next.
    pub fn served(&mut self, no: BatchNo) {
        self.last_served = no;
    }

    /// This keeps all of them from sending, or nothing does.
    pub fn park_all(&mut self, parked: Option<Parked>) {
        if self.all_parked != parked {
            self.all_parked = parked;
            self.all.values_mut().for_each(|sorted| sorted.active.park_with_all(parked));
            self.changed.extend(self.all.keys());
        }
    }

    /// Takes out those that are done, but for those of which a change is still to be made durable, or rows are being
    /// read.
    pub fn take_finished(&mut self, is_changing: impl Fn(BatchNo) -> bool) -> Vec<BatchRecord> {
        let done = self.needing(Attention::Leaves).into_iter();
        let over =
            done.filter(|no| !is_changing(*no) && self.get(no).is_some_and(|active| !active.is_loading()));
        let over: Vec<BatchNo> = over.collect();
        over.into_iter().filter_map(|no| self.remove(no)).collect()
    }

    /// Whether every batch is where it belongs, as after a step.
    #[cfg(test)]
    pub fn are_sorted(&self) -> bool {
        let is_sorted = |(no, sorted): (&BatchNo, &Sorted)| {
            let needs = attention_of(&sorted.active, self.all.len());
            let expires = sorted.active.expires();
            let listed = self.expiring.iter().filter(|(_, other)| other == no).map(|(at, _)| *at);
            // How many rows it should have in memory depends on the others, too.
            let mut differing = needs.iter().filter(|(attention, needs)| {
                *attention != Attention::LoadsRows && self.needing[*attention].contains(no) != **needs
            });
            differing.next().is_none()
                && self.with_rows.get(no).copied() == sorted.active.priority_in_memory()
                && listed.eq(expires)
        };
        let known = |no: &BatchNo| self.all.contains_key(no);
        self.all.iter().all(is_sorted)
            && self.needing.values().flatten().all(known)
            && self.with_rows.keys().all(known)
            && self.expiring.iter().all(|(_, no)| known(no))
    }

    fn remove(&mut self, no: BatchNo) -> Option<BatchRecord> {
        let Sorted { active, needs, expires } = self.all.remove(&no)?;
        sort_in(&mut self.needing, no, needs, EnumMap::default());
        expires.map(|at| self.expiring.remove(&(at, no)));
        self.with_rows.remove(&no);
        Some(active.into_record())
    }
}

fn sort_in(
    needing: &mut EnumMap<Attention, BTreeSet<BatchNo>>,
    no: BatchNo,
    before: EnumMap<Attention, bool>,
    now: EnumMap<Attention, bool>,
) {
    if before == now {
        return;
    }
    for (attention, batches) in needing {
        if now[attention] {
            batches.insert(no);
        } else {
            batches.remove(&no);
        }
    }
}
