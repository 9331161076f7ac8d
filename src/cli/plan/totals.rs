//! What a plan adds up to.

use std::collections::BTreeMap;

use crate::cli::plan::entry::{Entry, Verdict};
use crate::domain::credits::Credits;
use crate::domain::ids::BatchName;
use crate::domain::request::Kind;
use crate::intake::Judgement;

/// Sums over all manifests.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) new: u64,
    pub(super) have: u64,
    pub(super) invalid: u64,
    /// What the new jobs may cost.
    pub(super) credits: Credits,
    /// The part of it that one day's allowances could cover.
    pub(super) waivable: Credits,
    /// New jobs without a price, and the most they may cost.
    pub(super) unpriced: (u64, Credits),
    /// By batch, kind and model.
    pub(super) groups: BTreeMap<Key, Group>,
    /// By batch.
    pub(super) batches: BTreeMap<BatchName, Batch>,
    /// How much of each allowance is used up.
    drawn: BTreeMap<String, u64>,
}

/// Whose sum it is. Jobs that the batch has and that could not be sent today have no kind.
pub(super) type Key = (Option<BatchName>, Option<(Kind, Option<String>)>);

/// The sum of one batch, kind and model.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) new: u64,
    pub(super) have: u64,
    pub(super) credits: Credits,
    pub(super) waivable: Credits,
}

/// The sum of one batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) budget: Option<Credits>,
    pub(super) have: u64,
    pub(super) credits: Credits,
}

impl Totals {
    /// Takes a manifest up. The terms of the last one of a batch count.
    pub(super) fn begin(&mut self, judgement: &Judgement) {
        if let Some(name) = &judgement.receipt.batch {
            self.batches.entry(name.clone()).or_default().budget = judgement.terms.policy.budget;
        }
    }

    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        if entry.verdict == Verdict::Invalid {
            self.invalid += 1;
            return;
        }
        let waivable = self.waivable(entry);
        let is_new = u64::from(entry.verdict == Verdict::New);
        let is_had = 1 - is_new;
        let credits = if is_new > 0 { entry.hold() } else { Credits::ZERO };
        self.new += is_new;
        self.have += is_had;
        self.credits = self.credits + credits;
        self.waivable = self.waivable + waivable;
        if is_new > 0 && entry.order.is_some_and(|order| order.price.is_none()) {
            self.unpriced = (self.unpriced.0 + 1, self.unpriced.1 + credits);
        }
        let what = entry.order.map(|order| (order.kind, order.model.clone()));
        let group = self.groups.entry((entry.batch.cloned(), what)).or_default();
        group.new += is_new;
        group.have += is_had;
        group.credits = group.credits + credits;
        group.waivable = group.waivable + waivable;
        if let Some(batch) = entry.batch.and_then(|name| self.batches.get_mut(name)) {
            batch.have += is_had;
            batch.credits = batch.credits + credits;
        }
    }

    /// What an allowance could cover of a new job, as long as a day's allowance lasts.
    fn waivable(&mut self, entry: &Entry<'_>) -> Credits {
        let (Verdict::New, Some(draw), Some(order)) = (entry.verdict, entry.draws, entry.order) else {
            return Credits::ZERO;
        };
        let used = self.drawn.entry(draw.pool.clone()).or_default();
        if used.saturating_add(draw.units) > draw.per_day {
            return Credits::ZERO;
        }
        *used += draw.units;
        order.waivable
    }
}
