//! What admission looks at: limits, jobs in flight, totals, the balance, and the first waiting jobs of each batch.

use std::collections::BTreeMap;

use crate::domain::budget_group::{Group, GroupLimit};
use crate::domain::credit_hold::{Basis, Hold};
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchNo, JobKey};
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::{AllowanceUse, Trial};
use crate::domain::parked_reason::Parked;
use crate::domain::request::Kind;
use crate::domain::time::Millis;

/// How many jobs may be in flight, and how much may be spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Jobs in flight at once.
    pub in_flight: u32,
    /// Jobs of a kind in flight at once, where a kind has a limit of its own.
    pub in_flight_per_kind: BTreeMap<Kind, u32>,
    /// Jobs of a model in flight at once, where a model has a limit of its own.
    pub in_flight_per_model: BTreeMap<String, u32>,
    /// Credits this state may ever spend.
    pub total: Option<Credits>,
    /// Credits of one UTC day.
    pub per_day: Option<Credits>,
    /// Credits that must stay on the account.
    pub min_balance: Option<Credits>,
}

impl Limits {
    /// A job's model, where that has a limit of its own: only then it is counted.
    pub fn counted_model<'a>(&self, model: Option<&'a str>) -> Option<&'a str> {
        model.filter(|model| self.in_flight_per_model.contains_key(*model))
    }
}

/// A waiting job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub key: JobKey,
    /// Higher goes first.
    pub priority: i8,
    /// What it generates.
    pub kind: Kind,
    /// Its model, where that has a limit of its own.
    pub model: Option<String>,
    /// What must be held for it.
    pub hold: Credits,
    /// The price that it goes at.
    pub admission_hold: Hold,
    /// What is set aside for it already, in every total that covers it.
    pub held: Credits,
    /// Whether that counts for today. What counts for another day is held anew, for today.
    pub is_held_today: bool,
    /// A state that is gone may have sent it: what it may have been charged counts already.
    pub may_have_been_sent: bool,
    /// Its inputs could not be had before, and it tries again.
    pub tries_again: bool,
    /// The plan allowance that may cover it.
    pub allowance: Option<AllowanceUse>,
    /// The budgets of groups that it counts against.
    pub groups: Vec<GroupLimit>,
}

impl Candidate {
    /// Whether nothing bounds what it may be charged: it goes when the charge of the batch's last such job is known.
    pub fn is_unbounded(&self) -> bool {
        self.admission_hold.basis == Basis::MaxCredits
    }

    /// What is to be set aside for it still.
    pub fn wanted(&self) -> Credits {
        self.hold.saturating_sub(self.held)
    }

    /// What is to be set aside for it still of what today may spend.
    pub fn wanted_today(&self) -> Credits {
        if self.is_held_today { self.wanted() } else { self.hold }
    }
}

/// A batch with waiting jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingBatch {
    pub batch: BatchNo,
    /// The most it may spend.
    pub budget: Credits,
    /// What it has spent.
    pub totals: Totals,
    /// What jobs of it may have been charged that a state that is gone may have sent, and nothing tells.
    pub may_be_charged: Credits,
    /// A job of it is out whose charge nothing bounds and nobody knows yet.
    pub awaits_charge: bool,
    /// The catalog in force has no price for some of its jobs, which are not among the candidates.
    pub lacks_price: bool,
    /// Some of its jobs may have been sent by a state that is gone, and are not sent now; they are not among the candidates.
    pub needs_person: bool,
    /// How many of its jobs may go that try again for their inputs.
    pub retry_room: u32,
    /// The first waiting jobs of each class, in order: the most urgent first. More may wait behind them.
    pub candidates: Vec<Candidate>,
    /// Totals of the groups that these count against.
    pub groups: BTreeMap<Group, GroupBooks>,
}

impl WaitingBatch {
    /// What keeps those of its jobs that are not among the candidates.
    pub fn withheld(&self) -> Option<Parked> {
        let price = self.lacks_price.then_some(Parked::NoPrice);
        price.or(self.needs_person.then_some(Parked::PerhapsSent))
    }
}

/// The turn of a batch that may have waiting jobs, before these are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub batch: BatchNo,
    /// The highest that one of its waiting jobs may have.
    pub priority: i8,
}

/// How many jobs are in flight.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct InFlight {
    pub all: u32,
    pub by_kind: BTreeMap<Kind, u32>,
    /// By model, of the models that have a limit of their own.
    pub by_model: BTreeMap<String, u32>,
}

impl InFlight {
    /// Counts one more.
    pub fn add(&mut self, kind: Kind, model: Option<&str>) {
        self.all += 1;
        *self.by_kind.entry(kind).or_default() += 1;
        if let Some(model) = model {
            // Looked up first: a name is copied once, not for every job.
            match self.by_model.get_mut(model) {
                Some(count) => *count += 1,
                None => drop(self.by_model.insert(model.to_owned(), 1)),
            }
        }
    }

    /// Counts one less.
    pub fn remove(&mut self, kind: Kind, model: Option<&str>) {
        self.all = self.all.saturating_sub(1);
        if let Some(count) = self.by_kind.get_mut(&kind) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = model.and_then(|model| self.by_model.get_mut(model)) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether another job of this kind and model may be sent.
    pub fn has_room(&self, limits: &Limits, kind: Kind, model: Option<&str>) -> bool {
        let of_kind = self.by_kind.get(&kind).copied().unwrap_or_default();
        let kind_limit = limits.in_flight_per_kind.get(&kind).copied().unwrap_or(u32::MAX);
        let model_has_room = model.is_none_or(|model| {
            let of_model = self.by_model.get(model).copied().unwrap_or_default();
            of_model < limits.in_flight_per_model.get(model).copied().unwrap_or(u32::MAX)
        });
        self.all < limits.in_flight && of_kind < kind_limit && model_has_room
    }
}

/// Everything admission looks at, beside the waiting jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionInput {
    /// The limits in force.
    pub limits: Limits,
    /// Jobs in flight.
    pub in_flight: InFlight,
    /// Totals of the whole state.
    pub total: Totals,
    /// Totals of the present UTC day.
    pub day: Totals,
    /// What jobs may have been charged that a state that is gone may have sent, and nothing tells: by all batches.
    pub may_be_charged: Credits,
    /// The balance less everything held for what was sent, where it is known. It must be when `min_balance` is limited.
    pub balance: Option<Credits>,
    /// How long ago it came in.
    pub balance_age: Millis,
    /// The service refused something for want of credits: what the balance does not cover is not sent, unless an
    /// allowance may cover it.
    pub out_of_credits: bool,
    /// Allowances that refused something.
    pub pools: BTreeMap<String, AllowancePool>,
}

/// What a group has held and spent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct GroupBooks {
    /// Ever.
    pub total: Totals,
    /// Of the present UTC day.
    pub day: Totals,
}

/// An allowance that refused something, as admission sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowancePool {
    /// How it is tried.
    pub trial: Trial,
    /// A POST of it waits for its answer.
    pub is_tried: bool,
}
