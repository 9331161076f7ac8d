//! The open jobs, and what is counted about them.
//!
//! With 100,000 jobs in flight nothing may look at all of them at every step. A job is changed
//! through [`OpenJobMut`], which counts it anew when it is dropped, so that no change can be forgotten and a step
//! costs what it touches.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};

use enum_map::{Enum, EnumMap};

use crate::domain::admission::InFlight;
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchNo, JobKey};
use crate::domain::job::State;
use crate::domain::job_state::{JobState, JobStateCounts};
use crate::domain::lifecycle::{self, Want};
use crate::domain::request::Kind;
use crate::engine::scheduler::parts::open_job::OpenJob;

/// The open jobs by key.
#[derive(Debug, Default)]
pub struct OpenJobs {
    jobs: HashMap<JobKey, OpenJob>,
    counts: JobCounts,
}

/// What is counted.
#[derive(Debug, Default)]
pub struct JobCounts {
    /// Jobs that take up a slot.
    pub in_flight: InFlight,
    /// Jobs with an effect under way.
    pub busy: u32,
    /// Jobs of which a watched task was not read since the start.
    pub unread: u32,
    /// What is held for jobs in the queue, since their state was recovered.
    pub held_in_queue: Credits,
    actions: EnumMap<NextAction, u32>,
    states: JobStateCounts,
    by_kind: EnumMap<Kind, JobStateCounts>,
    by_batch: BTreeMap<BatchNo, BatchJobCounts>,
}

/// What is counted of one batch's open jobs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BatchJobCounts {
    /// By state.
    pub states: JobStateCounts,
    /// By kind.
    pub kinds: EnumMap<Kind, u32>,
    /// In the queue, and never sent.
    pub never_sent: u32,
}

/// What a job will do by itself, if nothing stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum NextAction {
    /// Nothing: it waits for admission, or is overdue and was tried since the start.
    Nothing,
    /// It waits out the time before its next attempt.
    NextAttempt,
    /// Its POST is sent (again).
    Post,
    /// Its task is read.
    Read,
    /// Its outputs are downloaded.
    Fetch,
}

/// What a job is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedAs {
    state: JobState,
    holds_slot: bool,
    busy: bool,
    never_sent: bool,
    /// A watched task of it was not read since the start.
    unread: bool,
    action: NextAction,
    held_in_queue: Credits,
}

impl CountedAs {
    fn of(open: &OpenJob) -> CountedAs {
        let job = &open.record.job;
        let action = match lifecycle::wants(job.state()) {
            Want::Admission if open.is_timed => NextAction::NextAttempt,
            // An overdue one is waited for until it was tried once since the start.
            Want::Post if !job.is_overdue() || open.faults == 0 => NextAction::Post,
            Want::Read if !job.is_overdue() || open.task_since.is_none() => NextAction::Read,
            Want::Fetch => NextAction::Fetch,
            Want::Admission | Want::Post | Want::Read | Want::Nothing => NextAction::Nothing,
        };
        let busy = open.busy || open.watches.values().any(|watch| watch.busy);
        let unread = open.watches.values().any(|watch| !watch.seen);
        let is_queued = matches!(job.state(), State::Queued);
        let never_sent = is_queued && job.first_sent().is_none();
        let held_in_queue = if is_queued { job.books().held } else { Credits::ZERO };
        CountedAs {
            state: job.state().job_state(),
            holds_slot: job.holds_slot(),
            busy,
            never_sent,
            unread,
            action,
            held_in_queue,
        }
    }
}

impl OpenJob {
    /// What it will do by itself, as it was counted last.
    pub fn action(&self) -> Option<NextAction> {
        self.counted.map(|counted_as| counted_as.action)
    }
}

impl JobCounts {
    /// Jobs that would move like this.
    pub fn with_action(&self, action: NextAction) -> u32 {
        self.actions[action]
    }

    /// What is counted of a batch's open jobs.
    pub fn of_batch(&self, batch: BatchNo) -> BatchJobCounts {
        self.by_batch.get(&batch).copied().unwrap_or_default()
    }

    /// Open jobs of a batch.
    pub fn open_of(&self, batch: BatchNo) -> u32 {
        self.of_batch(batch).states.values().sum()
    }

    /// Jobs of a batch that are at the service, or on their way to it.
    pub fn sent_of(&self, batch: BatchNo) -> u32 {
        let states = self.of_batch(batch).states;
        states[JobState::Submitting] + states[JobState::Running]
    }

    /// Open jobs of a batch that are in the queue.
    pub fn queued_of(&self, batch: BatchNo) -> u32 {
        self.of_batch(batch).states[JobState::Queued]
    }

    /// Whether a batch has open jobs in its queue.
    pub fn has_queued(&self, batch: BatchNo) -> bool {
        self.queued_of(batch) > 0
    }

    /// All open jobs, by state and kind.
    pub fn by_state_and_kind(&self) -> impl Iterator<Item = (JobState, Kind, u32)> {
        let of_kind = |(kind, states): (Kind, JobStateCounts)| {
            states.into_iter().map(move |(state, n)| (state, kind, n))
        };
        self.by_kind.into_iter().flat_map(of_kind).filter(|(.., n)| *n > 0)
    }

    /// Jobs whose outputs are being downloaded, or wait for it.
    pub fn fetching(&self) -> u32 {
        self.states[JobState::Fetching]
    }

    fn count(&mut self, open: &OpenJob, counted_as: CountedAs) {
        let add = |count: &mut u32| *count += 1;
        self.change(open, counted_as, add);
        self.held_in_queue = self.held_in_queue + counted_as.held_in_queue;
        if counted_as.holds_slot {
            self.in_flight.add(open.spec.order.kind, open.spec.order.model.as_deref());
        }
    }

    fn uncount(&mut self, open: &OpenJob, counted_as: CountedAs) {
        let subtract = |count: &mut u32| *count = count.saturating_sub(1);
        self.change(open, counted_as, subtract);
        self.held_in_queue = self.held_in_queue.saturating_sub(counted_as.held_in_queue);
        if counted_as.holds_slot {
            self.in_flight.remove(open.spec.order.kind, open.spec.order.model.as_deref());
        }
    }

    fn change(&mut self, open: &OpenJob, counted_as: CountedAs, by_one: impl Fn(&mut u32)) {
        by_one(&mut self.actions[counted_as.action]);
        by_one(&mut self.states[counted_as.state]);
        let kind = open.spec.order.kind;
        by_one(&mut self.by_kind[kind][counted_as.state]);
        let of_batch = self.by_batch.entry(open.record.key.batch).or_default();
        by_one(&mut of_batch.states[counted_as.state]);
        by_one(&mut of_batch.kinds[kind]);
        if counted_as.never_sent {
            by_one(&mut of_batch.never_sent);
        }
        if counted_as.busy {
            by_one(&mut self.busy);
        }
        if counted_as.unread {
            by_one(&mut self.unread);
        }
    }

    fn recount(&mut self, open: &mut OpenJob) {
        let counted_as = CountedAs::of(open);
        if open.counted == Some(counted_as) {
            return;
        }
        if let Some(before) = open.counted.replace(counted_as) {
            self.uncount(open, before);
        }
        self.count(open, counted_as);
    }
}

impl OpenJobs {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn contains_key(&self, key: &JobKey) -> bool {
        self.jobs.contains_key(key)
    }

    pub fn get(&self, key: &JobKey) -> Option<&OpenJob> {
        self.jobs.get(key)
    }

    /// A job to be changed; it is counted anew when this is dropped.
    pub fn get_mut(&mut self, key: &JobKey) -> Option<OpenJobMut<'_>> {
        let open = self.jobs.get_mut(key)?;
        Some(OpenJobMut { open, counts: &mut self.counts })
    }

    pub fn insert(&mut self, key: JobKey, mut open: OpenJob) {
        self.remove(&key);
        self.counts.recount(&mut open);
        self.jobs.insert(key, open);
    }

    pub fn remove(&mut self, key: &JobKey) -> Option<OpenJob> {
        let mut open = self.jobs.remove(key)?;
        if let Some(counted_as) = open.counted.take() {
            self.counts.uncount(&open, counted_as);
        }
        Some(open)
    }

    /// Keeps no numbers of a batch that has left.
    pub fn forget(&mut self, batch: BatchNo) {
        self.counts.by_batch.remove(&batch);
    }

    pub fn values(&self) -> impl Iterator<Item = &OpenJob> {
        self.jobs.values()
    }

    pub fn counts(&self) -> &JobCounts {
        &self.counts
    }

    /// Whether everything counted agrees with the jobs as they stand.
    #[cfg(test)]
    pub fn counts_right(&self) -> bool {
        let mut anew = JobCounts::default();
        self.jobs.values().for_each(|open| anew.count(open, CountedAs::of(open)));
        // What was counted once and is not there any more stays as a zero.
        let kinds = crate::domain::request::Kind::ALL.iter();
        let of_kind =
            |counts: &JobCounts, kind| counts.in_flight.by_kind.get(kind).copied().unwrap_or_default();
        let models = self.counts.in_flight.by_model.iter();
        (anew.in_flight.all, anew.busy, anew.unread, anew.actions, anew.states)
            == (
                self.counts.in_flight.all,
                self.counts.busy,
                self.counts.unread,
                self.counts.actions,
                self.counts.states,
            )
            && kinds.clone().all(|kind| of_kind(&anew, kind) == of_kind(&self.counts, kind))
            && models.clone().all(|(m, n)| anew.in_flight.by_model.get(m).copied().unwrap_or_default() == *n)
            && anew.by_kind == self.counts.by_kind
            && self.counts.by_batch.keys().all(|no| anew.of_batch(*no) == self.counts.of_batch(*no))
    }
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
        self.counts.recount(self.open);
    }
}
