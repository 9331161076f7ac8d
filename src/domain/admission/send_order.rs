//! The order in which waiting jobs are sent: priorities first, and among equals the batches take turns.

use crate::domain::admission::budget_check::{Blocker, RemainingBudget};
use crate::domain::admission::input::{AdmissionInput, Candidate, WaitingBatch};
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

/// Decides which candidates may be sent.
///
/// Priorities go first; among equals the batches take turns. A job that does not fit a budget is
/// passed over, so that a dear one does not starve the cheap ones behind it.
pub fn admit(board: AdmissionInput, most: usize) -> Admission {
    let mut decision = Admission::default();
    let (mut room, waiting) = RemainingBudget::of(board);
    let mut queue: Vec<BatchQueue> = waiting.into_iter().map(BatchQueue::new).collect();
    while let Some(priority) = queue.iter().filter_map(BatchQueue::priority).max() {
        if decision.admitted.len() >= most {
            break;
        }
        admit_level(&mut queue, priority, &mut room, most, &mut decision);
    }
    let done = queue.iter().filter(|turn| turn.priority().is_none() && !turn.admitted);
    decision.parked = done.filter_map(|turn| Some((turn.batch.batch, turn.parked?))).collect();
    decision
}

/// Lets the batches take turns until none has a job of this priority that fits.
fn admit_level(
    queue: &mut [BatchQueue],
    priority: i8,
    room: &mut RemainingBudget,
    most: usize,
    decision: &mut Admission,
) {
    loop {
        let before = decision.admitted.len();
        for turn in queue.iter_mut() {
            if decision.admitted.len() >= most {
                return;
            }
            if let Some(candidate) = turn.next_that_fits(priority, room, decision) {
                decision.admitted.push(candidate);
            }
        }
        if decision.admitted.len() == before {
            return;
        }
    }
}

/// A batch's place in the round.
struct BatchQueue {
    batch: WaitingBatch,
    next: usize,
    admitted: bool,
    parked: Option<Parked>,
}

impl BatchQueue {
    fn new(batch: WaitingBatch) -> BatchQueue {
        let parked = (batch.lacks_price && batch.candidates.is_empty()).then_some(Parked::NoPrice);
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
