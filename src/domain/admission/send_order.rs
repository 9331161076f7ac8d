//! The order in which waiting jobs are sent: priorities first, and among equals the batches take turns.

use crate::domain::admission::budget_check::{Blocker, RemainingBudget};
use crate::domain::admission::input::{AdmissionInput, Candidate, Turn, WaitingBatch};
use crate::domain::ids::BatchNo;
use crate::domain::parked_reason::Parked;

/// What was decided.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Jobs to send, in order.
    pub admitted: Vec<Candidate>,
    /// Batches none of whose candidates fits a budget, with the budget that the first one met.
    pub parked: Vec<(BatchNo, Parked)>,
    /// Whether something would be sent if the balance were known well enough: it came in too long ago.
    pub is_stale: bool,
    /// Whether something is kept by the balance as it is known.
    pub is_short: bool,
}

/// Decides which candidates may be sent, `most` at most. `turns` are of all batches that may have waiting jobs, the one that
/// goes first among equals first; the caller rotates them. A batch's jobs are looked at when its turn comes, and not
/// where all slots are taken before.
///
/// Priorities go first; among equals the batches take turns. A job that does not fit a budget is
/// passed over, so that a dear one does not starve the cheap ones behind it.
pub fn admit(
    input: AdmissionInput,
    turns: impl IntoIterator<Item = Turn>,
    mut look_at: impl FnMut(BatchNo) -> Option<WaitingBatch>,
    most: usize,
) -> Admission {
    let mut decision = Admission::default();
    let mut room = RemainingBudget::of(input);
    let mut queue: Vec<QueueEntry> = turns.into_iter().map(QueueEntry::Unseen).collect();
    while let Some(priority) = queue.iter().filter_map(QueueEntry::priority).max() {
        if decision.admitted.len() >= most || room.is_full() {
            break;
        }
        admit_level(&mut queue, priority, &mut room, &mut look_at, most, &mut decision);
    }
    // With all slots taken nothing else fits, either.
    let is_full = room.is_full();
    let seen = queue.iter().filter_map(QueueEntry::seen);
    let done = seen.filter(|turn| !turn.admitted && (is_full || turn.priority().is_none()));
    decision.parked = done.filter_map(|turn| Some((turn.batch.batch, turn.parked?))).collect();
    decision
}

/// Lets the batches take turns until none has a job of this priority that fits.
fn admit_level(
    queue: &mut [QueueEntry],
    priority: i8,
    room: &mut RemainingBudget,
    look_at: &mut impl FnMut(BatchNo) -> Option<WaitingBatch>,
    most: usize,
    decision: &mut Admission,
) {
    loop {
        let before = decision.admitted.len();
        for entry in queue.iter_mut().filter(|entry| entry.priority() == Some(priority)) {
            if decision.admitted.len() >= most || room.is_full() {
                return;
            }
            let Some(turn) = entry.look(room, look_at) else { continue };
            if let Some(candidate) = turn.next_that_fits(priority, room, decision) {
                decision.admitted.push(candidate);
            }
        }
        if decision.admitted.len() == before {
            return;
        }
    }
}

/// The turn of a batch, and what was found when its jobs were looked at.
enum QueueEntry {
    /// Its batch was not looked at.
    Unseen(Turn),
    /// Boxed: mostly few are looked at.
    Seen(Box<BatchQueue>),
    /// Its batch has nothing that waits.
    Empty,
}

impl QueueEntry {
    /// The highest priority that may come next here.
    fn priority(&self) -> Option<i8> {
        match self {
            QueueEntry::Unseen(turn) => Some(turn.priority),
            QueueEntry::Seen(queue) => queue.priority(),
            QueueEntry::Empty => None,
        }
    }

    fn seen(&self) -> Option<&BatchQueue> {
        match self {
            QueueEntry::Seen(queue) => Some(queue),
            QueueEntry::Unseen(_) | QueueEntry::Empty => None,
        }
    }

    /// The queue of its batch, which is looked at the first time.
    fn look(
        &mut self,
        room: &mut RemainingBudget,
        look_at: &mut impl FnMut(BatchNo) -> Option<WaitingBatch>,
    ) -> Option<&mut BatchQueue> {
        if let QueueEntry::Unseen(turn) = self {
            *self = match look_at(turn.batch) {
                Some(mut batch) => {
                    room.add_groups(&mut batch);
                    QueueEntry::Seen(Box::new(BatchQueue::new(batch)))
                }
                None => QueueEntry::Empty,
            };
        }
        match self {
            QueueEntry::Seen(queue) => Some(queue),
            QueueEntry::Unseen(_) | QueueEntry::Empty => None,
        }
    }
}

/// The waiting jobs of a batch, and how far they were looked at.
struct BatchQueue {
    batch: WaitingBatch,
    next: usize,
    admitted: bool,
    parked: Option<Parked>,
}

impl BatchQueue {
    fn new(batch: WaitingBatch) -> BatchQueue {
        let parked = batch.withheld().filter(|_| batch.candidates.is_empty());
        BatchQueue { batch, next: 0, admitted: false, parked }
    }

    /// The priority of the candidate that is looked at next.
    fn priority(&self) -> Option<i8> {
        self.batch.candidates.get(self.next).map(|candidate| candidate.priority)
    }

    fn next_that_fits(
        &mut self,
        priority: i8,
        room: &mut RemainingBudget,
        decision: &mut Admission,
    ) -> Option<Candidate> {
        while self.priority() == Some(priority) {
            let candidate = self.batch.candidates.get(self.next)?.clone();
            self.next += 1;
            if !room.in_flight.has_room(&room.limits, candidate.kind, candidate.model.as_deref())
                || candidate.is_unbounded() && self.batch.awaits_charge
                || candidate.tries_again && self.batch.retry_room == 0
            {
                continue;
            }
            match room.blocker(&self.batch, &candidate) {
                Some(Blocker::Parked(parked)) => {
                    decision.is_short |= matches!(parked, Parked::MinBalance | Parked::Credits);
                    self.parked = self.parked.or(Some(parked));
                }
                Some(Blocker::Stale) => decision.is_stale = true,
                Some(Blocker::BatchQueue) => {}
                None => {
                    room.take(&mut self.batch, &candidate);
                    self.admitted = true;
                    return Some(candidate);
                }
            }
        }
        None
    }
}
