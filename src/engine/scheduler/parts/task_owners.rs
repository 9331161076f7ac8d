//! Whose task an answer speaks of. A task belongs to one job: an answer to a creating call that names the task of
//! another is broken, and believing it would leave a task that is paid for to nobody.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::domain::ids::{JobKey, TaskId};
use crate::domain::job::Job;

/// Tasks that are remembered, so many of the latest: those in flight, and for a while those that have ended.
const REMEMBERED: u32 = 65_536;

/// The latest tasks, by a hash of their ids: 64 bits of it are enough to tell them apart.
#[derive(Debug, Default)]
pub struct TaskOwners {
    owners: HashMap<u64, JobKey>,
    order: VecDeque<u64>,
}

impl TaskOwners {
    /// Whether `task` is known to belong to another job than `key`; else it is `key`'s from now on.
    pub fn belongs_to_another(&mut self, key: JobKey, task: &TaskId) -> bool {
        let hash = hash(task);
        if let Some(owner) = self.owners.get(&hash) {
            return *owner != key;
        }
        self.owners.insert(hash, key);
        self.order.push_back(hash);
        if self.order.len() > REMEMBERED as usize
            && let Some(oldest) = self.order.pop_front()
        {
            self.owners.remove(&oldest);
        }
        false
    }

    /// Takes up the tasks of a job that had begun before.
    pub fn add_job(&mut self, key: JobKey, job: &Job) {
        for task in job.tasks() {
            self.belongs_to_another(key, task);
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
            |seq, task: &str| owners.belongs_to_another(key(seq), &TaskId(task.to_owned()));
        assert!(!belongs_to_another(1, "a"));
        assert!(!belongs_to_another(1, "A"), "the same task again, as a repeated key has it");
        assert!(belongs_to_another(2, "a"));
        assert!(!belongs_to_another(2, "b"));
    }

    #[test]
    fn no_more_is_remembered_than_the_latest() {
        let mut owners = TaskOwners::default();
        let mut belongs_to_another =
            |seq, task: u32| owners.belongs_to_another(key(seq), &TaskId(task.to_string()));
        assert!((0..=REMEMBERED).all(|n| !belongs_to_another(n, n)));
        assert!(belongs_to_another(7, 1));
        assert!(!belongs_to_another(7, 0), "the oldest is forgotten");
        assert_eq!(owners.owners.len(), REMEMBERED as usize);
    }
}
