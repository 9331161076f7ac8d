//! Open jobs that wait in the queue, sorted by what they need.
//!
//! A person's `retry` can bring thousands back at once. A step looks at the first few of each class, so that those
//! that cannot be sent stand in nobody's way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::budget_group::GroupKey;
use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::domain::job::Order;
use crate::domain::queue_class::{Grain, GroupHash, QueueClass};

/// Classes of a batch that a step looks at, the most urgent first.
const CLASSES_LOOKED_AT: usize = 256;

type Class = (Reverse<i8>, QueueClass);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct QueuedJobs {
    batches: BTreeMap<BatchNo, BTreeMap<Class, BTreeSet<Seq>>>,
    classes: HashMap<JobKey, Class>,
    /// What has budgets by group: jobs of different groups wait apart.
    group_keys: Vec<GroupKey>,
}

impl QueuedJobs {
    /// Jobs that are queued from now on wait apart by these keys.
    pub fn set_group_keys(&mut self, keys: Vec<GroupKey>) {
        self.group_keys = keys;
    }

    pub fn insert(&mut self, key: JobKey, order: &Order) {
        self.remove(&key);
        let class = Grain::Price.class_of(order);
        let classes = self.batches.get(&key.batch);
        let of_group = GroupHash::of(&self.group_keys, &order.meta).divide(class);
        let of_group = (Reverse(order.priority), of_group);
        // No more than a step looks at.
        let has_room = classes
            .is_none_or(|classes| classes.len() < CLASSES_LOOKED_AT / 2 || classes.contains_key(&of_group));
        let class = if has_room { of_group } else { (Reverse(order.priority), class) };
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

    /// The batches of which some wait, in order, with the highest priority of these.
    pub fn batches(&self) -> impl Iterator<Item = (BatchNo, i8)> {
        let first = |(no, classes): (&BatchNo, &BTreeMap<Class, _>)| Some((*no, classes.keys().next()?.0.0));
        self.batches.iter().filter_map(first)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::job::OrderTerms;
    use crate::domain::json_object::JsonObject;
    use crate::domain::request::Kind;

    fn order(client: &str) -> Order {
        Order {
            line: 2,
            body: JsonObject::default(),
            inputs: Default::default(),
            files: Default::default(),
            written: None,
            meta: serde_json::from_value(serde_json::json!({ "client": client })).unwrap(),
            terms: OrderTerms {
                price: Some(crate::domain::credits::Credits(4)),
                ..OrderTerms::of(Kind::Image)
            }
            .into(),
        }
    }

    fn queued(clients: impl IntoIterator<Item = String>) -> QueuedJobs {
        let mut jobs = QueuedJobs::default();
        jobs.set_group_keys(vec![GroupKey::Meta("client".to_owned())]);
        for (seq, client) in (0..).zip(clients) {
            jobs.insert(JobKey { batch: BatchNo(1), seq: Seq(seq) }, &order(&client));
        }
        jobs
    }

    #[test]
    fn jobs_of_one_client_stand_in_no_other_ones_way() {
        let clients = std::iter::repeat_n("acme".to_owned(), 1_000).chain(["beta".to_owned()]);
        let jobs = queued(clients);
        let fronts: BTreeSet<u32> = jobs.fronts(BatchNo(1), 2).map(|key| key.seq.0).collect();
        assert_eq!(fronts, BTreeSet::from([0, 1, 1_000]));
        assert_eq!(jobs.batches().collect::<Vec<_>>(), [(BatchNo(1), 0)]);
        assert_eq!(jobs.of_batch(BatchNo(1)).len(), 1_001);
    }

    #[test]
    fn no_more_classes_are_made_than_a_step_looks_at() {
        let mut jobs = queued((0..5_000).map(|client| client.to_string()));
        assert!(jobs.fronts(BatchNo(1), 1).count() <= CLASSES_LOOKED_AT);
        let all = jobs.of_batch(BatchNo(1));
        assert_eq!(all.len(), 5_000);
        all.iter().for_each(|key| jobs.remove(key));
        assert!(jobs.batches.is_empty() && jobs.classes.is_empty());
    }
}
