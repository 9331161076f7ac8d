//! Which waiting jobs may be sent now: slots, budgets and fairness, as one pure decision.
//!
//! Architecture invariant: this is the only place that lets a job out of the queue. For each budget,
//! held + spent <= limit after every admission, because admissions are decided one at a time against
//! running totals and committed before anything is sent (money rules 1 and 6).

mod budget_check;
mod input;
mod send_order;
#[cfg(test)]
mod tests;

use self::budget_check::{Blocker, RemainingBudget};
pub use self::input::{
    AdmissionInput, AllowancePool, Candidate, GroupBooks, InFlight, Limits, Turn, WaitingBatch,
};
pub use self::send_order::{Admission, admit};
use crate::domain::ids::BatchNo;
use crate::domain::parked_reason::Parked;

/// Which batches have no waiting job that the budgets let out as they stand, with the budget that the first one
/// meets. Slots are left aside, since they come free by themselves, and so is all that depends on the balance where that
/// is not known.
pub fn out_of_budget(mut input: AdmissionInput, waiting: Vec<WaitingBatch>) -> Vec<(BatchNo, Parked)> {
    input.in_flight = InFlight::default();
    input.limits.min_balance = input.limits.min_balance.filter(|_| input.balance.is_some());
    input.out_of_credits &= input.balance.is_some();
    let mut room = RemainingBudget::of(input);
    let met = |mut batch: WaitingBatch| {
        room.add_groups(&mut batch);
        let each = batch.candidates.iter().map(|candidate| match room.blocker(&batch, candidate) {
            Some(Blocker::Parked(parked)) => Some(parked),
            Some(Blocker::Stale | Blocker::BatchQueue) | None => None,
        });
        let all: Vec<Parked> = each.collect::<Option<_>>()?;
        let first = all.first().copied().or(batch.withheld());
        Some((batch.batch, first?))
    };
    waiting.into_iter().filter_map(met).collect()
}
