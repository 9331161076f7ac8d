//! Whose task an answer speaks of. A task belongs to one job: an answer to a creating call that names the task of
//! another is broken, and believing it would leave a task that is paid for to nobody.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use foldhash::fast::RandomState;

use crate::domain::ids::{JobKey, TaskId};
use crate::domain::job::Job;

/// So many of the latest tasks are remembered at least: those in flight, and for a while those that have ended.
const REMEMBERED_MIN: usize = 65_536;
/// Where more jobs are open: so many for each of them.
const REMEMBERED_FOR_EACH: usize = 2;

/// The latest tasks, by a hash of their ids: 64 bits of it are enough to tell them apart.
#[derive(Debug, Default)]
pub struct TaskOwners {
    owners: HashMap<u64, JobKey, RandomState>,
    order: VecDeque<u64>,
}

impl TaskOwners {
    /// Whether `task` is known to belong to another job than `key`; else it is `key`'s from now on. So many jobs are open.
    pub fn belongs_to_another(&mut self, key: JobKey, task: &TaskId, open_jobs: usize) -> bool {
        let hash = hash(task);
        match self.owners.entry(hash) {
            Entry::Occupied(owner) => return *owner.get() != key,
            Entry::Vacant(place) => place.insert(key),
        };
        self.order.push_back(hash);
        if self.order.len() > REMEMBERED_MIN.max(open_jobs * REMEMBERED_FOR_EACH)
            && let Some(oldest) = self.order.pop_front()
        {
            self.owners.remove(&oldest);
        }
        false
    }

    /// There will be so many more.
    pub fn reserve(&mut self, more: usize) {
        self.owners.reserve(more);
        self.order.reserve(more);
    }

    /// Takes up the tasks of a job that had begun before, one of so many.
    pub fn add_job(&mut self, key: JobKey, job: &Job, open_jobs: usize) {
        for task in job.tasks() {
            self.belongs_to_another(key, task, open_jobs);
        }
    }
}

fn hash(task: &TaskId) -> u64 {
    let mut hasher = DefaultHasher::new();
    // As `ReadAnswer::about` compares them.
    task.0.to_ascii_lowercase().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Seq};

    fn key(seq: u32) -> JobKey {
        JobKey { batch: BatchNo(1), seq: Seq(seq) }
    }

    #[test]
    fn a_task_is_the_first_jobs_that_it_was_told_to() {
        let mut owners = TaskOwners::default();
        let mut belongs_to_another =
            |seq, task: &str| owners.belongs_to_another(key(seq), &TaskId(task.into()), 2);
        assert!(!belongs_to_another(1, "a"));
        assert!(!belongs_to_another(1, "A"), "the same task again, as a repeated key has it");
        assert!(belongs_to_another(2, "a"));
        assert!(!belongs_to_another(2, "b"));
    }

    #[test]
    fn no_more_is_remembered_than_the_latest_and_none_of_a_job_that_is_open_is_forgotten() {
        let mut owners = TaskOwners::default();
        let mut belongs_to_another = |seq: usize, task: usize, open| {
            owners.belongs_to_another(
                key(u32::try_from(seq).unwrap()),
                &TaskId(task.to_string().into()),
                open,
            )
        };
        assert!((0..=REMEMBERED_MIN).all(|n| !belongs_to_another(n, n, 1)));
        assert!(belongs_to_another(7, 1, 1));
        assert!(!belongs_to_another(7, 0, 1), "the oldest is forgotten");
        let many = REMEMBERED_MIN + 100;
        assert!((REMEMBERED_MIN + 1..2 * many).all(|n| !belongs_to_another(n, n, many)));
        assert!(belongs_to_another(7, 5, many), "it may be in flight");
        assert_eq!(owners.owners.len(), 2 * many - 1);
    }
}
