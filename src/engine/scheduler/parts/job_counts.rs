//! What is counted about the open jobs, by one map for each question.
//!
//! With 100,000 jobs in flight nothing may look at all of them at every step: [`OpenJobs`] counts a job anew whenever
//! it was changed.
//!
//! [`OpenJobs`]: crate::engine::scheduler::parts::open_jobs::OpenJobs

use std::collections::BTreeMap;

use enum_map::{Enum, EnumMap};

use crate::domain::admission::InFlight;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchNo;
use crate::domain::job::Order;
use crate::domain::job_state::{JobState, JobStateCounts};
use crate::domain::request::Kind;

/// What is counted.
#[derive(Debug, Default)]
pub struct JobCounts {
    in_flight: InFlight,
    refused: u32,
    unavailable: u32,
    held_in_queue: Credits,
    moving: MovingCounts,
    by_kind: EnumMap<Kind, JobStateCounts>,
    by_batch: BTreeMap<BatchNo, BatchJobCounts>,
}

/// How many jobs are under way, or will be by themselves.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MovingCounts {
    /// An effect of them is under way.
    pub busy: u32,
    /// A watched task of them was not read since the start.
    pub unread: u32,
    /// By what they will do by themselves.
    pub actions: EnumMap<NextAction, u32>,
}

impl MovingCounts {
    fn and(mut self, others: MovingCounts) -> MovingCounts {
        self.busy += others.busy;
        self.unread += others.unread;
        self.actions.iter_mut().for_each(|(action, count)| *count += others.actions[action]);
        self
    }
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
    /// The object store refuses their outputs while it takes others.
    pub refused: u32,
    /// Submitting or running, and overdue.
    pub overdue: u32,
    /// What moves.
    pub moving: MovingCounts,
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
    /// Its state.
    pub state: JobState,
    /// It takes up a slot.
    pub holds_slot: bool,
    /// An effect of it is under way.
    pub busy: bool,
    /// The object store refuses its outputs while it takes others.
    pub refused: bool,
    /// The result host of its outputs is not available.
    pub unavailable: bool,
    /// It is submitting or running, and overdue.
    pub overdue: bool,
    /// It is in the queue, and was never sent.
    pub never_sent: bool,
    /// A watched task of it was not read since the start.
    pub unread: bool,
    /// What it will do by itself.
    pub action: NextAction,
    /// What is held for it although it is in the queue.
    pub held_in_queue: Credits,
}

impl JobCounts {
    /// Jobs that take up a slot.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Jobs with an effect under way.
    pub fn busy(&self) -> u32 {
        self.moving.busy
    }

    /// Jobs whose outputs the object store refuses while it takes others.
    pub fn refused(&self) -> u32 {
        self.refused
    }

    /// Jobs whose outputs wait for a result host that is not available.
    pub fn unavailable(&self) -> u32 {
        self.unavailable
    }

    /// What is held for jobs in the queue, in credits, since their state was recovered.
    pub fn held_in_queue(&self) -> Credits {
        self.held_in_queue
    }

    /// What moves.
    pub fn moving(&self) -> MovingCounts {
        self.moving
    }

    /// What moves of some batches.
    pub fn moving_of(&self, batches: impl IntoIterator<Item = BatchNo>) -> MovingCounts {
        let of_each = batches.into_iter().map(|batch| self.of_batch(batch).moving);
        of_each.fold(MovingCounts::default(), MovingCounts::and)
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

    /// Jobs of a batch that were sent, and have not ended: what waits for another attempt is among them.
    pub fn sent_and_open_of(&self, batch: BatchNo) -> u32 {
        self.open_of(batch).saturating_sub(self.of_batch(batch).never_sent)
    }

    /// Open jobs of a batch that are in the queue.
    pub fn queued_of(&self, batch: BatchNo) -> u32 {
        self.of_batch(batch).states[JobState::Queued]
    }

    /// Open jobs that are in the queue.
    pub fn queued(&self) -> u32 {
        self.by_kind.values().map(|states| states[JobState::Queued]).sum()
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
        self.by_kind.values().map(|states| states[JobState::Fetching]).sum()
    }

    /// Counts a job.
    pub fn add(&mut self, batch: BatchNo, order: &Order, counted_as: CountedAs) {
        let add = |count: &mut u32| *count += 1;
        self.change(batch, order.kind, counted_as, add);
        self.held_in_queue = self.held_in_queue + counted_as.held_in_queue;
        if counted_as.holds_slot {
            self.in_flight.add(order.kind, order.model.as_deref());
        }
    }

    /// Counts a job no more that was counted like this.
    pub fn remove(&mut self, batch: BatchNo, order: &Order, counted_as: CountedAs) {
        let subtract = |count: &mut u32| *count = count.saturating_sub(1);
        self.change(batch, order.kind, counted_as, subtract);
        self.held_in_queue = self.held_in_queue.saturating_sub(counted_as.held_in_queue);
        if counted_as.holds_slot {
            self.in_flight.remove(order.kind, order.model.as_deref());
        }
    }

    /// Keeps no numbers of a batch.
    pub fn forget_batch(&mut self, batch: BatchNo) {
        self.by_batch.remove(&batch);
    }

    fn change(&mut self, batch: BatchNo, kind: Kind, counted_as: CountedAs, by_one: impl Fn(&mut u32)) {
        by_one(&mut self.moving.actions[counted_as.action]);
        by_one(&mut self.by_kind[kind][counted_as.state]);
        let of_batch = self.by_batch.entry(batch).or_default();
        by_one(&mut of_batch.states[counted_as.state]);
        by_one(&mut of_batch.moving.actions[counted_as.action]);
        by_one(&mut of_batch.kinds[kind]);
        if counted_as.never_sent {
            by_one(&mut of_batch.never_sent);
        }
        if counted_as.overdue {
            by_one(&mut of_batch.overdue);
        }
        if counted_as.refused {
            by_one(&mut of_batch.refused);
            by_one(&mut self.refused);
        }
        if counted_as.unavailable {
            by_one(&mut self.unavailable);
        }
        if counted_as.busy {
            by_one(&mut of_batch.moving.busy);
            by_one(&mut self.moving.busy);
        }
        if counted_as.unread {
            by_one(&mut of_batch.moving.unread);
            by_one(&mut self.moving.unread);
        }
    }

    /// Whether another count of the same jobs came to the same.
    #[cfg(test)]
    pub fn agrees_with(&self, anew: &JobCounts) -> bool {
        // What was counted once and is not there any more stays as a zero.
        let of_kind =
            |counts: &JobCounts, kind| counts.in_flight.by_kind.get(kind).copied().unwrap_or_default();
        let of_model = |model| anew.in_flight.by_model.get(model).copied().unwrap_or_default();
        (self.in_flight.all, self.refused, self.held_in_queue, self.moving)
            == (anew.in_flight.all, anew.refused, anew.held_in_queue, anew.moving)
            && self.unavailable == anew.unavailable
            && self.by_kind == anew.by_kind
            && Kind::ALL.iter().all(|kind| of_kind(anew, kind) == of_kind(self, kind))
            && self.in_flight.by_model.iter().all(|(model, n)| of_model(model) == *n)
            && self.by_batch.keys().all(|no| anew.of_batch(*no) == self.of_batch(*no))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scheduler::tests::spec;

    const RUNNING: CountedAs = CountedAs {
        state: JobState::Running,
        holds_slot: true,
        busy: true,
        refused: false,
        unavailable: false,
        overdue: false,
        never_sent: false,
        unread: true,
        action: NextAction::Read,
        held_in_queue: Credits::ZERO,
    };
    const QUEUED: CountedAs = CountedAs {
        state: JobState::Queued,
        holds_slot: false,
        busy: false,
        refused: false,
        unavailable: false,
        overdue: false,
        never_sent: true,
        unread: false,
        action: NextAction::Nothing,
        held_in_queue: Credits(7),
    };

    #[test]
    fn a_job_is_counted_for_the_whole_its_kind_and_its_batch() {
        let (mut counts, video) = (JobCounts::default(), spec(0, Kind::Video));
        let [first, second] = [BatchNo(1), BatchNo(2)];
        counts.add(first, &video.order, RUNNING);
        counts.add(second, &video.order, QUEUED);
        assert_eq!((counts.in_flight().all, counts.busy(), counts.moving().unread), (1, 1, 1));
        assert_eq!((counts.sent_of(first), counts.open_of(second), counts.has_queued(second)), (1, 1, true));
        assert_eq!((counts.of_batch(second).never_sent, counts.held_in_queue()), (1, Credits(7)));
        let moving =
            [counts.moving_of([first]), counts.moving_of([second]), counts.moving_of([first, second])];
        assert_eq!(
            moving.map(|of| (of.busy, of.unread, of.actions[NextAction::Read])),
            [(1, 1, 1), (0, 0, 0), (1, 1, 1)]
        );
        assert_eq!((counts.moving(), counts.moving().actions[NextAction::Fetch]), (moving[2], 0));
        let of_all: Vec<_> = counts.by_state_and_kind().collect();
        assert_eq!(of_all, [(JobState::Queued, Kind::Video, 1), (JobState::Running, Kind::Video, 1)]);
        counts.remove(first, &video.order, RUNNING);
        counts.remove(second, &video.order, QUEUED);
        assert!(counts.agrees_with(&JobCounts::default()));
    }
}
