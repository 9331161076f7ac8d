//! Which waiting jobs may be sent now: slots, budgets and fairness, as one pure decision.
//!
//! Architecture invariant: this is the only place that lets a job out of the queue. For each budget,
//! held + spent <= limit after every admission, because admissions are decided one at a time against
//! running totals and committed before anything is sent (money rules 1 and 6).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::account_block::{AllowanceUse, Trial};
use crate::domain::budget;
use crate::domain::credits::Credits;
use crate::domain::hold::{Basis, Hold};
use crate::domain::ids::{BatchNo, JobKey};
use crate::domain::ledger::Totals;
use crate::domain::request::Kind;
use crate::domain::time::Millis;

/// A balance that came in longer ago is asked for again before anything is sent that must leave a least balance.
const BALANCE_FRESH: Millis = Millis::from_secs(1);
/// How often what all slots may need must fit above the least balance, for an answer to be good for so long. With less,
/// it is good for the moment in which it came.
const BALANCE_FAR: u64 = 20;

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
    pub release: Hold,
    /// What is set aside for it already, in every total that covers it.
    pub held: Credits,
    /// The plan allowance that may cover it.
    pub allowance: Option<AllowanceUse>,
}

impl Candidate {
    /// Whether nothing bounds what it may be charged: it goes when the charge of the batch's last such job is known.
    pub fn is_unbounded(&self) -> bool {
        self.release.basis == Basis::MaxCredits
    }

    /// What is to be set aside for it still.
    pub fn wanted(&self) -> Credits {
        self.hold.saturating_sub(self.held)
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
    /// A job of it is out whose charge nothing bounds and nobody knows yet.
    pub awaits_charge: bool,
    /// The catalog in force has no price for some of its jobs, which are not among the candidates.
    pub lacks_price: bool,
    /// The first waiting jobs of each class, in order: the most urgent first. More may wait behind them.
    pub candidates: Vec<Candidate>,
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

/// Everything admission looks at.
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
    /// The balance less everything held for what was sent, where it is known. It must be when `min_balance` is limited.
    pub balance: Option<Credits>,
    /// How long ago it came in.
    pub balance_age: Millis,
    /// The service refused something for want of credits: what the balance does not cover is not sent, unless an
    /// allowance may cover it.
    pub out_of_credits: bool,
    /// Allowances that refused something.
    pub pools: BTreeMap<String, AllowancePool>,
    /// Batches with waiting jobs. The order decides who goes first among equal priorities; the
    /// caller rotates it.
    pub waiting: Vec<WaitingBatch>,
}

/// An allowance that refused something, as admission sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowancePool {
    /// How it is tried.
    pub trial: Trial,
    /// A POST of it waits for its answer.
    pub is_tried: bool,
}

/// Why a queued job is not sent. Each lifts by itself, or by what its text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parked {
    /// What is left of the batch's own budget is too little for the next job.
    BatchBudget,
    /// The day's budget is used up.
    DayBudget,
    /// The total budget is used up.
    TotalBudget,
    /// The balance would fall below what must stay on the account.
    #[serde(alias = "keep")]
    MinBalance,
    /// The account's balance does not cover it (402).
    Credits,
    /// The API key does not work (401).
    Key,
    /// The batch is paused: by its owner, by rejected prompts in a row, or by a charge that differs.
    Paused,
    /// The catalog in force has no price for the next jobs, and nothing says that they may cost what they might.
    NoPrice,
    /// The output disk has too little room or takes nothing more, or the state's disk is full.
    Disk,
    /// No process works on the state. Found by a command that reads it, never by an engine.
    NoProcess,
}

impl Parked {
    /// The name in everything machines read.
    pub fn name(self) -> &'static str {
        match self {
            Parked::BatchBudget => "batch_budget",
            Parked::DayBudget => "day_budget",
            Parked::TotalBudget => "total_budget",
            Parked::MinBalance => "min_balance",
            Parked::Credits => "credits",
            Parked::Key => "key",
            Parked::Paused => "paused",
            Parked::NoPrice => "no_price",
            Parked::Disk => "disk",
            Parked::NoProcess => "no_process",
        }
    }

    /// What it is and what lifts it.
    pub fn explain(self) -> &'static str {
        match self {
            Parked::BatchBudget => {
                "the next job does not fit into the rest of the batch's budget, where prices count in full, even if \
                 an allowance may cover them; to raise it: callsheet budget BATCH N"
            }
            Parked::DayBudget => {
                "the day's budget, where prices count in full, is used up; it continues at UTC midnight or with a \
                 higher budget.per_day"
            }
            Parked::TotalBudget => {
                "the total budget, where prices count in full, is used up; raise budget.total"
            }
            Parked::MinBalance => {
                "the balance would fall below budget.min_balance, against which prices count in full, even if an \
                 allowance may cover them; add credits or lower budget.min_balance"
            }
            Parked::Credits => {
                "the account's balance does not cover the next job, and no allowance is known to; add credits"
            }
            Parked::Key => "the service refuses the API key; set a valid key",
            Parked::Paused => "the batch is paused; to continue: callsheet resume BATCH",
            Parked::NoPrice => {
                "the catalog has no price for it now; wait for a catalog that has one, or, if the model is still \
                 listed, set a limit: callsheet retry JOB --max-credits N; to give it up: callsheet cancel JOB"
            }
            Parked::Disk => {
                "the output disk is full or has less free space than output.min_free, or the state's disk is full; \
                 free disk space"
            }
            Parked::NoProcess => {
                "no process works on this state; to continue: callsheet run MANIFEST, or callsheet daemon"
            }
        }
    }
}

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

/// Which batches have no waiting job that the budgets let out as they stand, with the budget that the first one
/// meets. Slots are left aside, since they come free by themselves, and so is all that depends on the balance where that
/// is not known.
pub fn out_of_budget(mut board: AdmissionInput) -> Vec<(BatchNo, Parked)> {
    board.in_flight = InFlight::default();
    board.limits.min_balance = board.limits.min_balance.filter(|_| board.balance.is_some());
    board.out_of_credits &= board.balance.is_some();
    let (room, waiting) = RemainingBudget::of(board);
    let met = |batch: &WaitingBatch| {
        let each = batch.candidates.iter().map(|candidate| match room.blocker(batch, candidate) {
            Some(Blocker::Parked(parked)) => Some(parked),
            Some(Blocker::Stale | Blocker::BatchQueue) | None => None,
        });
        let all: Vec<Parked> = each.collect::<Option<_>>()?;
        let first = all.first().copied().or(batch.lacks_price.then_some(Parked::NoPrice));
        Some((batch.batch, first?))
    };
    waiting.iter().filter_map(met).collect()
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

/// What is left to give out.
struct RemainingBudget {
    in_flight: InFlight,
    limits: Limits,
    total: Totals,
    day: Totals,
    balance: Option<Credits>,
    balance_age: Millis,
    out_of_credits: bool,
    pools: BTreeMap<String, AllowancePool>,
}

/// What keeps a candidate.
enum Blocker {
    /// A limit, the balance or an allowance.
    Parked(Parked),
    /// The balance came in too long ago to go by.
    Stale,
    /// Another of its pool is tried first.
    BatchQueue,
}

impl RemainingBudget {
    /// Everything that a board has room for, and the batches that want it.
    fn of(board: AdmissionInput) -> (RemainingBudget, Vec<WaitingBatch>) {
        let AdmissionInput { limits, in_flight, total, day, .. } = board;
        let AdmissionInput { balance, balance_age, out_of_credits, pools, waiting, .. } = board;
        let room =
            RemainingBudget { in_flight, limits, total, day, balance, balance_age, out_of_credits, pools };
        (room, waiting)
    }

    /// Budgets and what must stay on the account hold in full: what is left of an allowance cannot be asked for.
    fn blocker(&self, batch: &WaitingBatch, candidate: &Candidate) -> Option<Blocker> {
        let (wanted, hold, balance) = (candidate.wanted(), candidate.hold, self.balance.unwrap_or_default());
        let parked = |parked: Parked| Some(Blocker::Parked(parked));
        if !budget::fits(batch.totals, Some(batch.budget), wanted) {
            return parked(Parked::BatchBudget);
        }
        if !budget::fits(self.day, self.limits.per_day, wanted) {
            return parked(Parked::DayBudget);
        }
        if !budget::fits(self.total, self.limits.total, wanted) {
            return parked(Parked::TotalBudget);
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

    fn take(&mut self, batch: &mut WaitingBatch, candidate: &Candidate) {
        batch.awaits_charge |= candidate.is_unbounded();
        self.in_flight.add(candidate.kind, candidate.model.as_deref());
        for totals in [&mut batch.totals, &mut self.day, &mut self.total] {
            totals.held = totals.held + candidate.wanted();
        }
        self.balance = self.balance.map(|balance| balance.saturating_sub(candidate.hold));
        if let Some(pool) = candidate.allowance.as_ref().and_then(|of| self.pools.get_mut(&of.pool)) {
            pool.is_tried = true;
        }
    }
}
