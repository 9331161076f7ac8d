//! What a plan adds up to.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cli::plan::plan_row::PlanRow;
use crate::domain::batch_origin::Origin;
use crate::domain::budget_group;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchName;
use crate::domain::ledger;
use crate::domain::request::Kind;
use crate::domain::row_verdict::RowVerdict;
use crate::ingest::Validated;

/// How many jobs, by what becomes of them.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(super) struct Counts {
    pub(super) new: u64,
    pub(super) changed: u64,
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) in_doubt: u64,
    pub(super) failed: u64,
    pub(super) done: u64,
    pub(super) invalid: u64,
}

impl Counts {
    fn add(&mut self, verdict: RowVerdict) {
        let count = match verdict {
            RowVerdict::New => &mut self.new,
            RowVerdict::Changed => &mut self.changed,
            RowVerdict::Waiting => &mut self.waiting,
            RowVerdict::Running => &mut self.running,
            RowVerdict::InDoubt => &mut self.in_doubt,
            RowVerdict::Failed => &mut self.failed,
            RowVerdict::Done => &mut self.done,
            RowVerdict::Invalid => &mut self.invalid,
        };
        *count += 1;
    }

    /// Jobs that their batch has already.
    pub(super) fn known(&self) -> u64 {
        self.waiting + self.running + self.in_doubt + self.failed + self.done
    }
}

/// Sums over all manifests.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) counts: Counts,
    /// What is still to be spent: for new, changed and waiting jobs.
    pub(super) credits: Credits,
    /// The most of it that a single job may cost.
    pub(super) dearest: Credits,
    /// The part of it that one day's allowances could cover.
    pub(super) waivable: Credits,
    /// What is set aside or charged for jobs that are running.
    pub(super) running: Credits,
    /// The holds of jobs in doubt.
    pub(super) in_doubt: Credits,
    /// What `retry` would cost for those that failed.
    pub(super) retry: Credits,
    /// Jobs that failed and that `retry` would not queue again: they would be rejected again, or are paid for.
    pub(super) failed_for_good: u64,
    /// Jobs without a price that are still to be paid, and the most they may cost.
    pub(super) unpriced: (u64, Credits),
    /// Jobs that are still to be paid, whose price hangs on a length that is measured before they are sent.
    pub(super) by_length: ByLength,
    /// By batch, kind and model.
    pub(super) groups: BTreeMap<GroupKey, GroupTotals>,
    pub(super) batches: BTreeMap<BatchName, BatchTotals>,
    /// What is still to be spent, by the groups of rows that have budgets.
    pub(super) by_group: budget_group::GroupTotals,
    /// How much of each allowance is used up.
    drawn: BTreeMap<String, u64>,
}

/// Jobs whose price hangs on a length that is not known yet.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ByLength {
    pub(super) jobs: u64,
    /// What they cost at least.
    pub(super) least: Credits,
    /// What they cost at most, which the sums count.
    pub(super) most: Credits,
}

/// Whose sum it is. Jobs that the batch has and that could not be sent today have no kind.
pub(super) type GroupKey = (Option<BatchName>, Option<(Kind, Option<String>)>);

/// The sum of one batch, kind and model.
#[derive(Debug, Default)]
pub(super) struct GroupTotals {
    pub(super) counts: Counts,
    pub(super) credits: Credits,
    pub(super) waivable: Credits,
}

/// The sum of one batch.
#[derive(Debug, Default)]
pub(super) struct BatchTotals {
    pub(super) budget: Option<Credits>,
    /// What is set aside and charged for the jobs that it has.
    pub(super) committed: Credits,
    pub(super) failed: u64,
    pub(super) credits: Credits,
}

impl Totals {
    /// Nothing yet, to be added up by these groups, too.
    pub(super) fn by_group(by_group: budget_group::GroupTotals) -> Totals {
        Totals { by_group, ..Totals::default() }
    }

    /// Begins a manifest. The terms of the last one of a batch count.
    pub(super) fn begin(&mut self, validated: &Validated, committed: &BTreeMap<BatchName, Credits>) {
        if let Some(name) = &validated.receipt.batch {
            let batch = self.batches.entry(name.clone()).or_default();
            batch.budget = validated.terms.policy.budget;
            batch.committed = committed.get(name).copied().unwrap_or_default();
        }
    }

    /// Adds a row of a manifest from `origin`.
    pub(super) fn add(&mut self, row: &PlanRow<'_>, origin: Option<&Origin>) {
        self.counts.add(row.verdict);
        if row.verdict == RowVerdict::Invalid {
            return;
        }
        let waivable = self.waivable(row);
        let credits = row.to_be_spent();
        self.credits = self.credits + credits;
        self.dearest = self.dearest.max(credits);
        self.waivable = self.waivable + waivable;
        if let Some(order) = row.order {
            let planned = ledger::Totals { held: credits, ..ledger::Totals::default() };
            self.by_group.add(planned, None, &order.meta, origin);
        }
        let other = match row.verdict {
            RowVerdict::Running => Some(&mut self.running),
            RowVerdict::InDoubt => Some(&mut self.in_doubt),
            RowVerdict::Failed => Some(&mut self.retry),
            _ => None,
        };
        if let Some(sum) = other.filter(|_| row.is_counted_here()) {
            *sum = *sum + row.credits;
        }
        self.failed_for_good += u64::from(row.verdict == RowVerdict::Failed && row.credits.is_zero());
        let is_to_be_paid = row.verdict.is_to_be_spent() && row.is_counted_here();
        match row.order.filter(|order| is_to_be_paid && order.price.is_none()).map(|order| order.cheapest) {
            Some(Some(least)) => {
                let ByLength { jobs, least: sum, most } = self.by_length;
                self.by_length = ByLength { jobs: jobs + 1, least: sum + least, most: most + credits };
            }
            Some(None) => self.unpriced = (self.unpriced.0 + 1, self.unpriced.1 + credits),
            None => {}
        }
        let what = row.order.map(|order| (order.kind, order.model.clone()));
        let group = self.groups.entry((row.batch.cloned(), what)).or_default();
        group.counts.add(row.verdict);
        group.credits = group.credits + credits;
        group.waivable = group.waivable + waivable;
        if let Some(batch) = row.batch.and_then(|name| self.batches.get_mut(name)) {
            batch.failed += u64::from(row.verdict == RowVerdict::Failed);
            batch.credits = batch.credits + credits;
        }
    }

    /// What an allowance could cover of a job that is still to be paid, as long as a day's allowance lasts.
    fn waivable(&mut self, row: &PlanRow<'_>) -> Credits {
        let (Some(draw), Some(order)) = (row.draws, row.order) else { return Credits::ZERO };
        if !row.verdict.is_to_be_spent() || row.is_counted {
            return Credits::ZERO;
        }
        let used = self.drawn.entry(draw.pool.clone()).or_default();
        if used.saturating_add(draw.units) > draw.per_day {
            return Credits::ZERO;
        }
        *used += draw.units;
        order.waivable
    }
}
