//! Jobs whose outputs wait for a free download: those whose links were just renewed go first, before they expire again, and
//! those that came too slowly before wait until nobody else does.

use std::collections::{HashSet, VecDeque};

use crate::domain::ids::{AttemptNo, JobKey};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct DownloadQueue {
    renewed: VecDeque<JobKey>,
    waiting: VecDeque<JobKey>,
    slow: VecDeque<JobKey>,
    slots_taken: usize,
    /// Downloads under way whose outputs have come, and which have no slot any more.
    received: HashSet<(JobKey, AttemptNo)>,
}

/// When a job's download has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownloadTurn {
    /// Before all others: its links expired while they waited, and are fresh now.
    First,
    /// After those that came before it.
    Usual,
    /// After all others: it was slow.
    Last,
}

impl DownloadQueue {
    /// A job's outputs wait from now on.
    pub fn add(&mut self, key: JobKey, turn: DownloadTurn) {
        let queue = match turn {
            DownloadTurn::First => &mut self.renewed,
            DownloadTurn::Usual => &mut self.waiting,
            DownloadTurn::Last => &mut self.slow,
        };
        queue.push_back(key);
    }

    /// Takes the next job that may begin out of the queue, while fewer than `slots` are taken.
    pub fn pop(&mut self, slots: usize, may_begin: impl Fn(JobKey) -> bool) -> Option<JobKey> {
        if self.slots_taken >= slots {
            return None;
        }
        [&mut self.renewed, &mut self.waiting, &mut self.slow].into_iter().find_map(|queue| {
            let at = queue.iter().position(|key| may_begin(*key))?;
            queue.remove(at)
        })
    }

    /// A download began.
    pub fn started(&mut self) {
        self.slots_taken += 1;
    }

    /// The outputs of a download that is under way have come and wait to be published: its slot is free.
    pub fn received(&mut self, key: JobKey, attempt: AttemptNo) {
        if self.received.insert((key, attempt)) {
            self.free_slot();
        }
    }

    /// A download came to an end, whichever.
    pub fn ended(&mut self, key: JobKey, attempt: AttemptNo) {
        if !self.received.remove(&(key, attempt)) {
            self.free_slot();
        }
    }

    fn free_slot(&mut self) {
        self.slots_taken = self.slots_taken.saturating_sub(1);
    }

    /// Downloads whose outputs have come and wait to be published.
    pub fn received_count(&self) -> usize {
        self.received.len()
    }

    /// Whether any waits for a slot.
    pub fn has_waiting(&self) -> bool {
        !self.renewed.is_empty() || !self.waiting.is_empty() || !self.slow.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Seq};

    fn key(seq: u32) -> JobKey {
        JobKey { batch: BatchNo(1), seq: Seq(seq) }
    }

    #[test]
    fn fresh_links_go_first_slow_ones_last_and_only_so_many_at_once() {
        let mut downloads = DownloadQueue::default();
        downloads.add(key(1), DownloadTurn::Last);
        downloads.add(key(3), DownloadTurn::Usual);
        downloads.add(key(2), DownloadTurn::First);
        let next = |downloads: &mut DownloadQueue| {
            let key = downloads.pop(2, |_| true);
            key.iter().for_each(|_| downloads.started());
            key.map(|key| key.seq.0)
        };
        assert_eq!(
            [next(&mut downloads), next(&mut downloads), next(&mut downloads)],
            [Some(2), Some(3), None]
        );
        downloads.ended(key(2), AttemptNo::FIRST);
        assert!(downloads.has_waiting());
        downloads.add(key(4), DownloadTurn::Usual);
        assert_eq!(downloads.pop(2, |key| key.seq.0 == 1), Some(key(1)), "there is no room for the other");
        assert_eq!(next(&mut downloads), Some(4));
        assert!(!downloads.has_waiting());
    }

    #[test]
    fn one_whose_outputs_have_come_has_no_slot_and_ends_once() {
        let mut downloads = DownloadQueue::default();
        (1..=3).for_each(|seq| downloads.add(key(seq), DownloadTurn::Usual));
        assert_eq!(downloads.pop(1, |_| true), Some(key(1)));
        downloads.started();
        assert_eq!(downloads.pop(1, |_| true), None);
        downloads.received(key(1), AttemptNo::FIRST);
        assert_eq!(downloads.pop(1, |_| true), Some(key(2)));
        downloads.started();
        downloads.ended(key(1), AttemptNo::FIRST);
        assert_eq!((downloads.pop(1, |_| true), downloads.received_count()), (None, 0));
        downloads.ended(key(2), AttemptNo::FIRST);
        assert_eq!(downloads.pop(1, |_| true), Some(key(3)));
    }
}
