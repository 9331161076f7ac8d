//! What to do about a state that is damaged, lost or carried elsewhere.
//!
//! Where each of its jobs stands is decided here, by the job's lifecycle (`domain::recovered_job_state`); which of several records
//! of a batch counts, and what the totals come to, too. The store reads the parts, and puts the result in their place.

mod dropped_rows;
pub mod import;
pub mod rebuild;
mod segment_builder;
mod unpaid_outcomes;

use std::ops::Add;

use crate::domain::ledger::Totals;
use crate::store::Snapshot;

/// The totals of a state: those of its batches, done or not.
fn total_of(records: &Snapshot) -> Totals {
    let finished = records.finished.values().map(|line| line.totals);
    records.batches.iter().map(|batch| batch.totals).chain(finished).fold(Totals::default(), Add::add)
}
