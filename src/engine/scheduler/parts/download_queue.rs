//! Jobs whose outputs wait for a free download: those whose links were just renewed go first, before they expire again, and
//! those that came too slowly before wait until nobody else does.

use std::collections::VecDeque;

use crate::domain::ids::JobKey;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct DownloadQueue {
    renewed: VecDeque<JobKey>,
    waiting: VecDeque<JobKey>,
    slow: VecDeque<JobKey>,
    under_way: usize,
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

    /// Takes the next job that may begin out of the queue, while fewer than `slots` downloads are under way.
    pub fn pop(&mut self, slots: usize, may_begin: impl Fn(JobKey) -> bool) -> Option<JobKey> {
        if self.under_way >= slots {
            return None;
        }
        [&mut self.renewed, &mut self.waiting, &mut self.slow].into_iter().find_map(|queue| {
            let at = queue.iter().position(|key| may_begin(*key))?;
            queue.remove(at)
        })
    }

    /// A download began.
    pub fn started(&mut self) {
        self.under_way += 1;
    }

    /// A download came to an end, whichever.
    pub fn ended(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
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
        downloads.ended();
        assert!(downloads.has_waiting());
        downloads.add(key(4), DownloadTurn::Usual);
        assert_eq!(downloads.pop(2, |key| key.seq.0 == 1), Some(key(1)), "there is no room for the other");
        assert_eq!(next(&mut downloads), Some(4));
        assert!(!downloads.has_waiting());
    }
}
