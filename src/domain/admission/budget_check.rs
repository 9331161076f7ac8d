//! What the budgets, the balance and the allowances have left, and what they keep a candidate for.

use std::collections::BTreeMap;

use crate::domain::admission::input::{
    AdmissionInput, AllowancePool, Candidate, GroupBooks, InFlight, Limits, WaitingBatch,
};
use crate::domain::budget;
use crate::domain::budget_group::{Group, GroupLimit};
use crate::domain::credits::Credits;
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::AllowanceUse;
use crate::domain::parked_reason::Parked;
use crate::domain::time::Millis;

/// A balance that came in longer ago is asked for again before anything is sent that must leave a least balance.
const BALANCE_FRESH: Millis = Millis::from_secs(1);
/// How often what all slots may need must fit above the least balance, for an answer to be good for so long. With less,
/// it is good for the moment in which it came.
const BALANCE_FAR: u64 = 20;

/// What is left to give out.
pub(super) struct RemainingBudget {
    pub(super) in_flight: InFlight,
    pub(super) limits: Limits,
    total: Totals,
    day: Totals,
    may_be_charged: Credits,
    groups: BTreeMap<Group, GroupBooks>,
    balance: Option<Credits>,
    balance_age: Millis,
    out_of_credits: bool,
    pools: BTreeMap<String, AllowancePool>,
}

/// What keeps a candidate.
pub(super) enum Blocker {
    /// A limit, the balance or an allowance.
    Parked(Parked),
    /// The balance came in too long ago to go by.
    Stale,
    /// Another of its pool is tried first.
    BatchQueue,
}

impl RemainingBudget {
    /// What is left of every limit.
    pub(super) fn of(input: AdmissionInput) -> RemainingBudget {
        let AdmissionInput {
            limits,
            in_flight,
            total,
            day,
            may_be_charged,
            balance,
            balance_age,
            out_of_credits,
            pools,
        } = input;
        RemainingBudget {
            in_flight,
            limits,
            total,
            day,
            may_be_charged,
            groups: BTreeMap::new(),
            balance,
            balance_age,
            out_of_credits,
            pools,
        }
    }

    /// Takes up the groups of a batch that is looked at, unless they are known: then some may be given out already.
    pub(super) fn add_groups(&mut self, batch: &mut WaitingBatch) {
        for (group, books) in std::mem::take(&mut batch.groups) {
            self.groups.entry(group).or_insert(books);
        }
    }

    /// Whether no further job of any kind may be sent, whatever it costs.
    pub(super) fn is_full(&self) -> bool {
        self.in_flight.all >= self.limits.in_flight
    }

    /// Budgets and what must stay on the account hold in full: what is left of an allowance cannot be asked for.
    pub(super) fn blocker(&self, batch: &WaitingBatch, candidate: &Candidate) -> Option<Blocker> {
        let (wanted, hold, balance) = (candidate.wanted(), candidate.hold, self.balance.unwrap_or_default());
        let parked = |parked: Parked| Some(Blocker::Parked(parked));
        // Of what may be charged already it is a part itself where it may have been sent.
        let beside = |all: Credits| if candidate.may_have_been_sent { Credits::ZERO } else { all };
        let (of_batch, of_all) = (beside(batch.may_be_charged), beside(self.may_be_charged));
        if !budget::fits(batch.totals, Some(batch.budget), wanted + of_batch) {
            return parked(Parked::BatchBudget);
        }
        if !budget::fits(self.day, self.limits.per_day, candidate.wanted_today() + of_all) {
            return parked(Parked::DayBudget);
        }
        if !budget::fits(self.total, self.limits.total, wanted + of_all) {
            return parked(Parked::TotalBudget);
        }
        for GroupLimit { group, total, per_day } in &candidate.groups {
            let books = self.groups.get(group).copied().unwrap_or_default();
            // Whose groups its jobs are of is not kept: it counts for each.
            if !budget::fits(books.total, *total, wanted + of_all) {
                return parked(Parked::GroupBudget);
            }
            if !budget::fits(books.day, *per_day, candidate.wanted_today() + of_all) {
                return parked(Parked::GroupDayBudget);
            }
        }
        match self.limits.min_balance {
            Some(least) if least + hold > balance => return parked(Parked::MinBalance),
            Some(least) if self.is_stale(balance.saturating_sub(least), hold) => {
                return Some(Blocker::Stale);
            }
            _ => {}
        }
        if self.out_of_credits && hold > balance { self.no_allowance(candidate) } else { None }
    }

    /// Whether the balance came in too long ago to send this: others spend of it, too.
    fn is_stale(&self, above: Credits, hold: Credits) -> bool {
        let round = hold.0.saturating_mul(u64::from(self.limits.in_flight));
        let is_far = above.0 >= round.saturating_mul(BALANCE_FAR);
        self.balance_age > if is_far { BALANCE_FRESH } else { Millis(0) }
    }

    /// What keeps a job that the balance does not cover: that no allowance may, either.
    fn no_allowance(&self, candidate: &Candidate) -> Option<Blocker> {
        let Some(AllowanceUse { pool, units }) = &candidate.allowance else {
            return Some(Blocker::Parked(Parked::Credits));
        };
        match self.pools.get(pool) {
            Some(pool) if !pool.trial.fits(*units) => Some(Blocker::Parked(Parked::Credits)),
            Some(pool) if !pool.trial.lets(*units, pool.is_tried) => Some(Blocker::BatchQueue),
            _ => None,
        }
    }

    pub(super) fn take(&mut self, batch: &mut WaitingBatch, candidate: &Candidate) {
        batch.awaits_charge |= candidate.is_unbounded();
        batch.retry_room = batch.retry_room.saturating_sub(u32::from(candidate.tries_again));
        if candidate.may_have_been_sent {
            for rest in [&mut batch.may_be_charged, &mut self.may_be_charged] {
                *rest = rest.saturating_sub(candidate.wanted());
            }
        }
        self.in_flight.add(candidate.kind, candidate.model.as_deref());
        for totals in [&mut batch.totals, &mut self.total] {
            totals.held = totals.held + candidate.wanted();
        }
        self.day.held = self.day.held + candidate.wanted_today();
        for GroupLimit { group, .. } in &candidate.groups {
            let books = self.groups.entry(group.clone()).or_default();
            books.total.held = books.total.held + candidate.wanted();
            books.day.held = books.day.held + candidate.wanted_today();
        }
        self.balance = self.balance.map(|balance| balance.saturating_sub(candidate.hold));
        if let Some(pool) = candidate.allowance.as_ref().and_then(|of| self.pools.get_mut(&of.pool)) {
            pool.is_tried = true;
        }
    }
}
