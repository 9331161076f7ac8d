//! What the groups that have budgets have held and spent so far: as it is stored, or counted from every job.
//!
//! It is counted once for each key of `[budget.by]`, when that is new, and after the state was rebuilt, imported, or
//! written to by a process without these budgets. From then on it is stored with the totals of the state.

use crate::domain::budget_group::{GroupLimits, GroupTotals};
use crate::domain::job::Books;
use crate::domain::ledger::Totals;
use crate::engine::job_iter::JobIter;
use crate::store::{BatchRecord, Store, StoreError};

/// What groups have held and spent.
#[derive(Debug)]
pub(super) struct GroupHistory {
    pub(super) totals: GroupTotals,
    /// It was counted, and is not stored yet.
    pub(super) is_new: bool,
}

/// What the groups of these keys have held and spent.
///
/// # Errors
/// [`StoreError`] when the state cannot be read.
pub(super) fn group_history(store: &Store, limits: &GroupLimits) -> Result<GroupHistory, StoreError> {
    if limits.is_empty() {
        return Ok(GroupHistory { totals: GroupTotals::default(), is_new: false });
    }
    let stored = store.groups()?.and_then(|groups| groups.only(limits.keys()));
    if let Some(totals) = stored {
        return Ok(GroupHistory { totals, is_new: false });
    }
    let keys: Vec<String> = limits.keys().map(ToString::to_string).collect();
    tracing::info!(keys = keys.join(", "), "counting what groups with a budget have spent so far");
    Ok(GroupHistory { totals: count(store, limits)?, is_new: true })
}

/// Reads every job that ever cost something.
fn count(store: &Store, limits: &GroupLimits) -> Result<GroupTotals, StoreError> {
    let mut groups = GroupTotals::of_keys(limits.keys());
    groups.reserve(limits);
    for batch in store.batches()? {
        count_batch(store, &batch, &mut groups)?;
    }
    let mut moved = Vec::new();
    for line in store.all_finished()? {
        if line.totals == Totals::default() {
            continue;
        }
        match store.finished_batch(line.no) {
            Ok(batch) => batch.iter().try_for_each(|batch| count_batch(store, batch, &mut groups))?,
            Err(StoreError::BatchMoved { .. }) => moved.push(line.name),
            Err(error) => return Err(error),
        }
    }
    if let Some(first) = moved.first() {
        tracing::warn!(
            batches = moved.len(),
            %first,
            "the folders of finished batches were moved away: what they spent counts for no group with a budget"
        );
    }
    Ok(groups)
}

fn count_batch(store: &Store, batch: &BatchRecord, groups: &mut GroupTotals) -> Result<(), StoreError> {
    if batch.totals == Totals::default() {
        return Ok(());
    }
    let mut jobs = JobIter::open(store, batch)?;
    while let Some((spec, record)) = jobs.next_job()? {
        for (day, Books { held, charged, waived }) in record.job.books_by_day() {
            let totals = Totals { held, spent: charged, waived, ..Totals::default() };
            groups.add(totals, day, &spec.order.meta, batch.origin.as_ref());
        }
    }
    Ok(())
}
