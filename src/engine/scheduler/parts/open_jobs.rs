//! The jobs that have begun and not ended, by key: what is counted about them, which of them wait in the queue, and
//! whose tasks are whose.
//!
//! A job is changed through [`OpenJobMut`], which counts it anew when it is dropped, so that no change can be forgotten
//! and a step costs what it touches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};

use foldhash::fast::RandomState;

use crate::domain::budget_group::GroupKey;
use crate::domain::ids::{BatchNo, JobId, JobKey, Seq, TaskId};
use crate::engine::scheduler::parts::job_counts::JobCounts;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::parts::queued_jobs::QueuedJobs;
use crate::engine::scheduler::parts::task_owners::TaskOwners;
use crate::store::BatchRecord;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct OpenJobs {
    /// Boxed, since the table has a place for more jobs than there are.
    jobs: HashMap<JobKey, Box<OpenJob>, RandomState>,
    /// The same by identity, of the batches that were asked for so: see [`OpenJobs::identify`].
    numbers: BTreeMap<BatchNo, HashMap<JobId, Seq, RandomState>>,
    counts: JobCounts,
    /// Queued jobs whose wait is over, if they had one.
    queued: QueuedJobs,
    /// Queued jobs that are canceled and still to be ended: they are no candidates any more.
    to_cancel: BTreeSet<JobKey>,
    task_owners: TaskOwners,
}

impl OpenJobs {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether a job is open.
    pub fn contains_key(&self, key: &JobKey) -> bool {
        self.jobs.contains_key(key)
    }

    /// An open job.
    pub fn get(&self, key: &JobKey) -> Option<&OpenJob> {
        self.jobs.get(key).map(Box::as_ref)
    }

    /// Has the open jobs of a batch found by their identity from now on: [`OpenJobs::named`]. They are looked at once.
    pub fn identify(&mut self, batch: BatchNo) {
        let of_batch = || self.jobs.values().filter(|open| open.key().batch == batch);
        let ids = || of_batch().map(|open| (open.record().id, open.key().seq)).collect();
        self.numbers.entry(batch).or_insert_with(ids);
    }

    /// An open job of a batch, by its identity; the batch was named to [`OpenJobs::identify`] before.
    pub fn named(&self, batch: BatchNo, id: JobId) -> Option<&OpenJob> {
        let seq = *self.numbers.get(&batch)?.get(&id)?;
        self.get(&JobKey { batch, seq })
    }

    /// A job to be changed; it is counted anew when this is dropped.
    pub fn get_mut(&mut self, key: &JobKey) -> Option<OpenJobMut<'_>> {
        let open = self.jobs.get_mut(key)?;
        Some(OpenJobMut { open, counts: &mut self.counts })
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &OpenJob> {
        self.jobs.values().map(Box::as_ref)
    }

    /// A job that had begun before is open from now on, and the tasks that it has are its own.
    pub fn resume(&mut self, open: Box<OpenJob>) {
        self.task_owners.add_job(open.key(), open.job(), self.jobs.len());
        self.insert(open);
    }

    /// A job is open from now on.
    pub fn insert(&mut self, open: impl Into<Box<OpenJob>>) {
        let mut open = open.into();
        let key = open.key();
        recount(&mut open, &mut self.counts);
        let id = open.record().id;
        if let Some(before) = self.jobs.insert(key, open) {
            self.forget(&key, *before);
        }
        if let Some(numbers) = self.numbers.get_mut(&key.batch) {
            numbers.insert(id, key.seq);
        }
    }

    /// There will be so many more: room is made for them at once.
    pub fn reserve(&mut self, more: usize) {
        self.jobs.reserve(more);
        self.task_owners.reserve(more);
    }

    /// A job is not open any more. Whose its tasks were is remembered.
    pub fn remove(&mut self, key: &JobKey) -> Option<OpenJob> {
        let open = self.jobs.remove(key)?;
        Some(self.forget(key, *open))
    }

    /// What is known of a job that is not in the table any more.
    fn forget(&mut self, key: &JobKey, mut open: OpenJob) -> OpenJob {
        if let Some(numbers) = self.numbers.get_mut(&key.batch) {
            numbers.remove(&open.record().id);
        }
        self.queued.remove(key);
        self.to_cancel.remove(key);
        if let Some(counted_as) = open.set_counted(None) {
            self.counts.remove(key.batch, &open.spec().order, counted_as);
        }
        open
    }

    /// None yet; what has budgets by these keys waits apart.
    pub fn by_groups(keys: Vec<GroupKey>) -> OpenJobs {
        let mut jobs = OpenJobs::default();
        jobs.set_group_keys(keys);
        jobs
    }

    /// Jobs that are queued from now on wait apart by these keys.
    pub fn set_group_keys(&mut self, keys: Vec<GroupKey>) {
        self.queued.set_group_keys(keys);
    }

    /// An open job waits in the queue and nothing else keeps it: it is a candidate for admission, unless it is canceled.
    pub fn queue(&mut self, key: JobKey) {
        if let Some(open) = self.jobs.get(&key)
            && !self.to_cancel.contains(&key)
        {
            self.queued.insert(key, &open.spec().order);
        }
    }

    /// An open job that waits is canceled: it is not sent any more, and to be ended.
    pub fn cancel(&mut self, key: JobKey) {
        self.queued.remove(&key);
        if self.jobs.contains_key(&key) {
            self.to_cancel.insert(key);
        }
    }

    /// The next canceled jobs that are to be ended, `most` at most.
    pub fn take_to_cancel(&mut self, most: usize) -> Vec<JobKey> {
        std::iter::from_fn(|| self.to_cancel.pop_first()).take(most).collect()
    }

    /// Whether canceled jobs are to be ended.
    pub fn has_to_cancel(&self) -> bool {
        !self.to_cancel.is_empty()
    }

    /// An open job has left the queue.
    pub fn unqueue(&mut self, key: &JobKey) {
        self.queued.remove(key);
    }

    /// The batches that have candidates, in order, with the highest priority of these.
    pub fn with_queue(&self) -> impl Iterator<Item = (BatchNo, i8)> {
        self.queued.batches()
    }

    /// The first candidates of each class of a batch, `most` of each.
    pub fn candidates(&self, batch: BatchNo, most: usize) -> impl Iterator<Item = &OpenJob> {
        self.queued.fronts(batch, most).filter_map(|key| self.get(&key))
    }

    /// Whether a state that is gone may have sent a job of `batch`, begun or not.
    pub fn may_have_been_sent(&self, key: &JobKey, batch: &BatchRecord) -> bool {
        self.get(key)
            .map_or_else(|| batch.may_have_been_sent(key.seq), |open| open.job().may_have_been_sent())
    }

    /// Whether the pilot of a batch is done: no job of the batch is open but those that wait for that. Those that wait for
    /// their inputs are `without_inputs`.
    pub fn wait_after_pilot(
        &self,
        batch: &BatchRecord,
        without_inputs: impl Iterator<Item = JobKey>,
    ) -> bool {
        let open = self.counts.open_of(batch.no);
        if !batch.waits_after_pilot() || open != self.counts.queued_of(batch.no) {
            return false;
        }
        let waits = |open: &OpenJob| batch.waits_for_pilot(open.record().row_at, open.job());
        let mut queued = self.queued.of_batch(batch.no);
        queued.extend(without_inputs);
        queued.extend(self.to_cancel.iter().filter(|key| key.batch == batch.no));
        if queued.len() == open as usize {
            return queued.iter().filter_map(|key| self.get(key)).all(waits);
        }
        // Some wait for something else.
        self.iter().filter(|open| open.key().batch == batch.no).all(waits)
    }

    /// All candidates of a batch, in order.
    pub fn all_candidates(&self, batch: BatchNo) -> BTreeSet<JobKey> {
        self.queued.of_batch(batch)
    }

    /// Whether `task` is known to belong to another job than `key`; else it is `key`'s from now on.
    pub fn task_belongs_to_another(&mut self, key: JobKey, task: &TaskId) -> bool {
        self.task_owners.belongs_to_another(key, task, self.jobs.len())
    }

    /// Keeps no numbers of a batch that has left.
    pub fn forget_batch(&mut self, batch: BatchNo) {
        self.counts.forget_batch(batch);
        self.numbers.remove(&batch);
    }

    /// What is counted about them.
    pub fn counts(&self) -> &JobCounts {
        &self.counts
    }

    /// Whether everything counted agrees with the jobs as they stand.
    #[cfg(test)]
    pub fn counts_right(&self) -> bool {
        let mut anew = JobCounts::default();
        for open in self.jobs.values() {
            anew.add(open.key().batch, &open.spec().order, open.count_as());
        }
        self.counts.agrees_with(&anew)
    }
}

fn recount(open: &mut OpenJob, counts: &mut JobCounts) {
    let counted_as = open.count_as();
    if open.counted() == Some(counted_as) {
        return;
    }
    let before = open.set_counted(Some(counted_as));
    let (batch, order) = (open.key().batch, &open.spec().order);
    if let Some(before) = before {
        counts.remove(batch, order, before);
    }
    counts.add(batch, order, counted_as);
}

/// An open job that is being changed.
#[derive(Debug)]
pub struct OpenJobMut<'a> {
    open: &'a mut OpenJob,
    counts: &'a mut JobCounts,
}

impl Deref for OpenJobMut<'_> {
    type Target = OpenJob;
    fn deref(&self) -> &OpenJob {
        self.open
    }
}

impl DerefMut for OpenJobMut<'_> {
    fn deref_mut(&mut self) -> &mut OpenJob {
        self.open
    }
}

impl Drop for OpenJobMut<'_> {
    fn drop(&mut self) {
        recount(self.open, self.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AttemptNo, Seq};
    use crate::domain::job::{Job, State};
    use crate::domain::request::Kind;
    use crate::engine::scheduler::tests::spec;
    use crate::store::JobRecord;

    const BATCH: BatchNo = BatchNo(1);

    fn key(seq: u32) -> JobKey {
        JobKey { batch: BATCH, seq: Seq(seq) }
    }

    fn open(seq: u32, state: State) -> OpenJob {
        let (spec, job) = (spec(seq, Kind::Video), Job::at(AttemptNo::FIRST, state));
        OpenJob::new(JobRecord { key: key(seq), id: spec.id, row_at: 0, job }, spec)
    }

    #[test]
    fn whatever_is_changed_is_counted_anew() {
        let mut jobs = OpenJobs::default();
        jobs.insert(open(0, State::Queued));
        jobs.insert(open(1, State::Running { task: TaskId("t".into()) }));
        assert_eq!((jobs.counts().queued_of(BATCH), jobs.counts().sent_of(BATCH)), (1, 1));
        jobs.get_mut(&key(1)).unwrap().effect_began(AttemptNo::FIRST);
        assert_eq!(jobs.counts().busy(), 1);
        jobs.get_mut(&key(0)).unwrap().replace_job(Job::at(AttemptNo::FIRST, State::Expired));
        assert!(!jobs.counts().has_queued(BATCH));
        jobs.remove(&key(1));
        assert_eq!((jobs.counts().busy(), jobs.len()), (0, 1));
        assert!(jobs.counts_right());
    }

    #[test]
    fn a_job_that_leaves_is_no_candidate_and_its_task_stays_its_own() {
        let mut jobs = OpenJobs::default();
        jobs.resume(Box::new(open(0, State::Running { task: TaskId("t".into()) })));
        jobs.insert(open(1, State::Queued));
        jobs.queue(key(1));
        jobs.queue(key(2));
        assert_eq!(jobs.candidates(BATCH, 9).map(OpenJob::key).collect::<Vec<_>>(), [key(1)]);
        jobs.remove(&key(1));
        assert!(jobs.all_candidates(BATCH).is_empty());
        jobs.remove(&key(0));
        assert!(jobs.task_belongs_to_another(key(3), &TaskId("T".into())));
    }

    #[test]
    fn one_that_is_canceled_is_no_candidate_whatever_queues_it() {
        let mut jobs = OpenJobs::default();
        for seq in 0..3 {
            jobs.insert(open(seq, State::Queued));
            jobs.queue(key(seq));
        }
        jobs.cancel(key(0));
        jobs.cancel(key(1));
        jobs.queue(key(0));
        assert_eq!(jobs.candidates(BATCH, 9).map(OpenJob::key).collect::<Vec<_>>(), [key(2)]);
        assert_eq!(jobs.take_to_cancel(1), [key(0)]);
        jobs.remove(&key(1));
        assert!(!jobs.has_to_cancel());
    }
}
