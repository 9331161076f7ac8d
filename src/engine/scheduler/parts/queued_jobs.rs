//! Open jobs that wait in the queue, sorted by what they need.
//!
//! A person's `retry` can bring thousands back at once. A step looks at the first few of each class, so that those
//! that cannot be sent stand in nobody's way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::domain::job::Order;
use crate::domain::queue_class::{Grain, QueueClass};

/// Classes of a batch that a step looks at, the most urgent first.
const CLASSES_LOOKED_AT: usize = 256;

type Class = (Reverse<i8>, QueueClass);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct QueuedJobs {
    batches: BTreeMap<BatchNo, BTreeMap<Class, BTreeSet<Seq>>>,
    classes: HashMap<JobKey, Class>,
}

impl QueuedJobs {
    pub fn insert(&mut self, key: JobKey, order: &Order) {
        let class = (Reverse(order.priority), Grain::Price.class_of(order));
        self.remove(&key);
        self.classes.insert(key, class);
        self.batches.entry(key.batch).or_default().entry(class).or_default().insert(key.seq);
    }

    pub fn remove(&mut self, key: &JobKey) {
        let Some(class) = self.classes.remove(key) else { return };
        let Some(classes) = self.batches.get_mut(&key.batch) else { return };
        if let Some(jobs) = classes.get_mut(&class) {
            jobs.remove(&key.seq);
            if jobs.is_empty() {
                classes.remove(&class);
            }
        }
        if classes.is_empty() {
            self.batches.remove(&key.batch);
        }
    }

    /// The first jobs of each class of a batch, `most` of each.
    pub fn fronts(&self, batch: BatchNo, most: usize) -> impl Iterator<Item = JobKey> {
        let classes = self.batches.get(&batch).into_iter().flat_map(BTreeMap::values);
        let fronts = classes.take(CLASSES_LOOKED_AT).flat_map(move |jobs| jobs.iter().take(most));
        fronts.map(move |seq| JobKey { batch, seq: *seq })
    }

    /// All queued jobs of a batch, in order.
    pub fn of_batch(&self, batch: BatchNo) -> BTreeSet<JobKey> {
        let classes = self.batches.get(&batch).into_iter().flat_map(BTreeMap::values);
        classes.flatten().map(|seq| JobKey { batch, seq: *seq }).collect()
    }
}
