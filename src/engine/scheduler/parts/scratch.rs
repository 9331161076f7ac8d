//! Room that outputs may take on disk while they are on their way into the object store, where their copies on disk are
//! removed afterwards. A download is taken to become as large as the largest so far.

use std::collections::BTreeMap;

use crate::domain::ids::JobKey;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Room in bytes; nothing where outputs stay on disk.
    max: Option<u64>,
    /// Jobs whose outputs are on disk, or are being downloaded, with their bytes.
    held: BTreeMap<JobKey, u64>,
    largest: Option<u64>,
}

impl Scratch {
    /// One with so much room, in bytes; nothing where outputs stay on disk.
    pub fn new(max: Option<u64>) -> Scratch {
        Scratch { max, ..Scratch::default() }
    }

    /// The same outputs under another limit.
    pub fn set_max(&mut self, max: Option<u64>) {
        self.max = max;
        if max.is_none() {
            self.held.clear();
        }
    }

    /// What the next download is taken to need, in bytes: everything, as long as none has told.
    fn next_bytes(&self, max: u64) -> u64 {
        self.largest.unwrap_or(max)
    }

    /// Whether another job's outputs fit. Those of one always do.
    pub fn has_room(&self) -> bool {
        let Some(max) = self.max else { return true };
        let used: u64 = self.held.values().fold(0, |used, bytes| used.saturating_add(*bytes));
        self.held.is_empty() || used.saturating_add(self.next_bytes(max)) <= max
    }

    /// Whether the outputs of a job may be downloaded, or looked at again.
    pub fn may_begin(&self, key: JobKey) -> bool {
        self.held.contains_key(&key) || self.has_room()
    }

    /// A download began.
    pub fn begin(&mut self, key: JobKey) {
        if let Some(max) = self.max {
            let bytes = self.next_bytes(max);
            self.held.entry(key).or_insert(bytes);
        }
    }

    /// The outputs of a job are on disk, with so many bytes.
    pub fn came(&mut self, key: JobKey, bytes: u64) {
        if self.max.is_some() {
            self.held.insert(key, bytes);
            self.largest = self.largest.max(Some(bytes));
        }
    }

    /// Nothing of a job is on disk any more.
    pub fn release(&mut self, key: JobKey) {
        self.held.remove(&key);
    }

    /// Whether nothing is on disk that is to be removed.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
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
    fn downloads_begin_as_long_as_there_is_room_for_the_largest_so_far() {
        let mut scratch = Scratch::new(Some(100));
        assert!(scratch.may_begin(key(1)));
        scratch.begin(key(1));
        assert!(!scratch.has_room() && scratch.may_begin(key(1)), "nobody knows how large it is");
        scratch.came(key(1), 40);
        scratch.begin(key(2));
        assert!(!scratch.has_room(), "80 are taken");
        scratch.came(key(2), 20);
        assert!(scratch.may_begin(key(3)));
        scratch.begin(key(3));
        assert!(!scratch.may_begin(key(4)) && scratch.may_begin(key(2)), "one that is there goes on");
        for n in 1..=3 {
            scratch.release(key(n));
        }
        assert!(scratch.is_empty() && scratch.has_room());
        // One that is larger than all of it goes by itself.
        scratch.came(key(5), 500);
        assert!(!scratch.has_room());
        scratch.release(key(5));
        assert!(scratch.may_begin(key(6)));
    }

    #[test]
    fn where_outputs_stay_on_disk_nothing_is_counted() {
        let mut scratch = Scratch::new(None);
        scratch.begin(key(1));
        scratch.came(key(1), u64::MAX);
        assert!(scratch.is_empty() && scratch.has_room());
    }
}
