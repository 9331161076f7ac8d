//! Which waiting jobs may be sent now: slots, budgets and fairness, as one pure decision.
//!
//! Architecture invariant: this is the only place that lets a job out of the queue. For each budget,
//! held + spent <= limit after every admission, because admissions are decided one at a time against
//! running totals and committed before anything is sent (money rules 1 and 6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::account::{AllowanceUse, Trial};
use crate::domain::credits::Credits;
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
    /// Which job.
    pub key: JobKey,
    /// Higher goes first.
    pub priority: i8,
    /// What it generates.
    pub kind: Kind,
    /// Its model, where that has a limit of its own.
    pub model: Option<String>,
    /// What must be held for it.
    pub hold: Credits,
    /// Nothing bounds what it may be charged: it goes when the charge of the batch's last such job is known.
    pub is_unbounded: bool,
    /// What is set aside for it already, in every total that covers it.
    pub held: Credits,
    /// The plan allowance that may cover it.
    pub allowance: Option<AllowanceUse>,
}

impl Candidate {
    /// What is to be set aside for it still.
    pub fn wanted(&self) -> Credits {
        self.hold.saturating_sub(self.held)
    }
}

/// A batch with waiting jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which batch.
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
    /// All of them.
    pub all: u32,
    /// By kind.
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
pub struct Board {
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
    pub pools: BTreeMap<String, Pool>,
    /// Batches with waiting jobs. The order decides who goes first among equal priorities; the
    /// caller rotates it.
    pub waiting: Vec<Waiting>,
}

/// An allowance that refused something, as admission sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
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
    /// No process works on the state. Found by whoever looks at it, never by an engine.
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
                "the next job does not fit into what is left of the batch's budget, where prices count in full, even if an \
                 allowance may cover them; a higher one lifts it: callsheet budget BATCH N"
            }
            Parked::DayBudget => {
                "the day's budget, where prices count in full, is used up; UTC midnight or a higher budget.per_day lifts it"
            }
            Parked::TotalBudget => {
                "the total budget, where prices count in full, is used up; a higher budget.total lifts it"
            }
            Parked::MinBalance => {
                "the balance would fall below budget.min_balance, against which prices count in full, even where an \
                 allowance may cover them; adding credits or a lower budget.min_balance lifts it"
            }
            Parked::Credits => {
                "the account's balance does not cover the next job, and no allowance is known to; adding credits lifts it"
            }
            Parked::Key => "the service refuses the API key; a valid key lifts it",
            Parked::Paused => "the batch is paused; callsheet resume BATCH lifts it",
            Parked::NoPrice => {
                "the catalog has no price for it now; a catalog that prices it again lifts it, and so does callsheet \
                 retry JOB --max-credits N where the model is still listed; callsheet cancel JOB gives it up"
            }
            Parked::Disk => {
                "the output disk is full or has less room than output.min_free, or the state's disk is full; making room \
                 lifts it"
            }
            Parked::NoProcess => {
                "no process works on this state; callsheet run MANIFEST or callsheet daemon goes on with it"
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
pub fn admit(board: Board, most: usize) -> Admission {
    let mut decision = Admission::default();
    let Board { limits, in_flight, total, day, waiting, .. } = board;
    let Board { balance, balance_age, out_of_credits, pools, .. } = board;
    let mut room =
        Room { in_flight, limits: &limits, total, day, balance, balance_age, out_of_credits, pools };
    let mut queue: Vec<Turn> = waiting.into_iter().map(Turn::new).collect();
    while let Some(priority) = queue.iter().filter_map(Turn::priority).max() {
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
fn admit_level(queue: &mut [Turn], priority: i8, room: &mut Room<'_>, most: usize, decision: &mut Admission) {
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
pub fn out_of_budget(board: &Board) -> Vec<(BatchNo, Parked)> {
    let mut limits = board.limits.clone();
    limits.min_balance = limits.min_balance.filter(|_| board.balance.is_some());
    let Board { total, day, balance, balance_age, .. } = *board;
    let (in_flight, pools) = (InFlight::default(), board.pools.clone());
    let out_of_credits = board.out_of_credits && balance.is_some();
    let room = Room { in_flight, limits: &limits, total, day, balance, balance_age, out_of_credits, pools };
    let met = |batch: &Waiting| {
        let each = batch.candidates.iter().map(|candidate| match room.in_the_way(batch, candidate) {
            Some(InTheWay::Parked(parked)) => Some(parked),
            Some(InTheWay::Stale | InTheWay::Turn) | None => None,
        });
        let all: Vec<Parked> = each.collect::<Option<_>>()?;
        let first = all.first().copied().or(batch.lacks_price.then_some(Parked::NoPrice));
        Some((batch.batch, first?))
    };
    board.waiting.iter().filter_map(met).collect()
}

/// A batch's place in the round.
struct Turn {
    batch: Waiting,
    next: usize,
    admitted: bool,
    parked: Option<Parked>,
}

impl Turn {
    fn new(batch: Waiting) -> Turn {
        let parked = (batch.lacks_price && batch.candidates.is_empty()).then_some(Parked::NoPrice);
        Turn { batch, next: 0, admitted: false, parked }
    }

    /// The priority of the candidate that is looked at next.
    fn priority(&self) -> Option<i8> {
        self.batch.candidates.get(self.next).map(|candidate| candidate.priority)
    }

    fn next_that_fits(
        &mut self,
        priority: i8,
        room: &mut Room<'_>,
        decision: &mut Admission,
    ) -> Option<Candidate> {
        while self.priority() == Some(priority) {
            let candidate = self.batch.candidates.get(self.next)?.clone();
            self.next += 1;
            if !room.in_flight.has_room(room.limits, candidate.kind, candidate.model.as_deref())
                || candidate.is_unbounded && self.batch.awaits_charge
            {
                continue;
            }
            match room.in_the_way(&self.batch, &candidate) {
                Some(InTheWay::Parked(parked)) => {
                    decision.is_short |= matches!(parked, Parked::MinBalance | Parked::Credits);
                    self.parked = self.parked.or(Some(parked));
                }
                Some(InTheWay::Stale) => decision.is_stale = true,
                Some(InTheWay::Turn) => {}
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
struct Room<'a> {
    in_flight: InFlight,
    limits: &'a Limits,
    total: Totals,
    day: Totals,
    balance: Option<Credits>,
    balance_age: Millis,
    out_of_credits: bool,
    pools: BTreeMap<String, Pool>,
}

/// What keeps a candidate.
enum InTheWay {
    /// A limit, the balance or an allowance.
    Parked(Parked),
    /// The balance came in too long ago to go by.
    Stale,
    /// Another of its pool is tried first.
    Turn,
}

impl Room<'_> {
    /// Budgets and what must stay on the account hold in full: what is left of an allowance cannot be asked for.
    fn in_the_way(&self, batch: &Waiting, candidate: &Candidate) -> Option<InTheWay> {
        let (wanted, hold, balance) = (candidate.wanted(), candidate.hold, self.balance.unwrap_or_default());
        let passes = |totals: Totals, limit: Option<Credits>| {
            limit.is_some_and(|limit| totals.committed() + wanted > limit)
        };
        let parked = |parked: Parked| Some(InTheWay::Parked(parked));
        if passes(batch.totals, Some(batch.budget)) {
            return parked(Parked::BatchBudget);
        }
        if passes(self.day, self.limits.per_day) {
            return parked(Parked::DayBudget);
        }
        if passes(self.total, self.limits.total) {
            return parked(Parked::TotalBudget);
        }
        match self.limits.min_balance {
            Some(least) if least + hold > balance => return parked(Parked::MinBalance),
            Some(least) if self.is_stale(balance.saturating_sub(least), hold) => {
                return Some(InTheWay::Stale);
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
    fn no_allowance(&self, candidate: &Candidate) -> Option<InTheWay> {
        let Some(AllowanceUse { pool, units }) = &candidate.allowance else {
            return Some(InTheWay::Parked(Parked::Credits));
        };
        match self.pools.get(pool) {
            Some(pool) if !pool.trial.fits(*units) => Some(InTheWay::Parked(Parked::Credits)),
            Some(pool) if !pool.trial.lets(*units, pool.is_tried) => Some(InTheWay::Turn),
            _ => None,
        }
    }

    fn take(&mut self, batch: &mut Waiting, candidate: &Candidate) {
        batch.awaits_charge |= candidate.is_unbounded;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Seq;

    fn candidates(batch: u32, priority: i8, holds: &[u64]) -> Vec<Candidate> {
        let candidate = |(seq, hold): (u32, &u64)| Candidate {
            held: Credits::ZERO,
            key: JobKey { batch: BatchNo(batch), seq: Seq(seq) },
            priority,
            kind: Kind::Video,
            model: None,
            hold: Credits(*hold),
            allowance: None,
            is_unbounded: false,
        };
        (0..).zip(holds).map(candidate).collect()
    }

    fn batch(batch: u32, priority: i8, budget: u64, holds: &[u64]) -> Waiting {
        let candidates = candidates(batch, priority, holds);
        Waiting {
            batch: BatchNo(batch),
            budget: Credits(budget),
            totals: Totals::default(),
            awaits_charge: false,
            lacks_price: false,
            candidates,
        }
    }

    fn board(in_flight: u32, waiting: Vec<Waiting>) -> Board {
        let limits = Limits {
            in_flight,
            in_flight_per_kind: BTreeMap::new(),
            in_flight_per_model: BTreeMap::new(),
            total: None,
            per_day: None,
            min_balance: None,
        };
        let (total, day) = (Totals::default(), Totals::default());
        Board {
            limits,
            in_flight: InFlight::default(),
            total,
            day,
            balance: None,
            balance_age: Millis(0),
            out_of_credits: false,
            pools: BTreeMap::new(),
            waiting,
        }
    }

    /// `1.0 1.1` for the first two jobs of batch 1; `!2 batch_budget` for a parked batch.
    fn decide(board: Board) -> String {
        let decision = admit(board, 1000);
        let admitted = decision.admitted.iter().map(|c| format!("{}.{}", c.key.batch.0, c.key.seq.0));
        let parked = decision.parked.iter().map(|(batch, why)| format!("!{} {}", batch.0, why.name()));
        admitted.chain(parked).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn slots_bound_what_is_in_flight() {
        assert_eq!(decide(board(2, vec![batch(1, 0, 100, &[1, 1, 1])])), "1.0 1.1");
        let mut full = board(2, vec![batch(1, 0, 100, &[1])]);
        (0..2).for_each(|_| full.in_flight.add(Kind::Music, None));
        assert_eq!(decide(full), "");
    }

    #[test]
    fn a_kind_may_have_a_limit_of_its_own() {
        let mut one = board(9, vec![batch(1, 0, 100, &[1, 1])]);
        one.limits.in_flight_per_kind = BTreeMap::from([(Kind::Video, 1)]);
        assert_eq!(decide(one), "1.0");
    }

    #[test]
    fn a_model_may_have_a_limit_of_its_own() {
        let mut two = board(9, vec![batch(1, 0, 100, &[1, 1, 1, 1])]);
        two.limits.in_flight_per_model = BTreeMap::from([("slow".to_owned(), 2)]);
        for (candidate, model) in two.waiting[0].candidates.iter_mut().zip(["slow", "slow", "slow", "fast"]) {
            candidate.model = two.limits.counted_model(Some(model)).map(str::to_owned);
        }
        assert_eq!(decide(two.clone()), "1.0 1.1 1.3", "what has no limit of its own goes by");
        two.in_flight.add(Kind::Image, Some("slow"));
        assert_eq!(decide(two.clone()), "1.0 1.3", "of whatever kind");
        two.in_flight.remove(Kind::Image, Some("slow"));
        two.limits.in_flight = 1;
        assert_eq!(decide(two), "1.0", "the limit of all holds as well");
    }

    #[test]
    fn batches_take_turns_and_priorities_go_first() {
        let waiting = vec![batch(1, 0, 9, &[1, 1, 1]), batch(2, 0, 9, &[1]), batch(3, 5, 9, &[1])];
        assert_eq!(decide(board(4, waiting)), "3.0 1.0 2.0 1.1");
    }

    #[test]
    fn what_is_urgent_and_does_not_fit_lends_its_priority_to_nothing_else() {
        let mut first = batch(1, 5, 10, &[20]);
        first.candidates.extend(candidates(1, 0, &[1, 1]));
        let second = batch(2, 3, 10, &[1]);
        assert_eq!(decide(board(9, vec![first.clone(), second.clone()])), "2.0 1.0 1.1");
        first.budget = Credits(0);
        assert_eq!(decide(board(9, vec![first, second])), "2.0 !1 batch_budget");
    }

    #[test]
    fn no_budget_is_passed_and_cheap_jobs_use_what_is_left() {
        assert_eq!(decide(board(9, vec![batch(1, 0, 10, &[6, 6, 4, 1])])), "1.0 1.2");
        assert_eq!(decide(board(9, vec![batch(1, 0, 5, &[6])])), "!1 batch_budget");
    }

    #[test]
    fn jobs_whose_charge_nothing_bounds_go_one_at_a_time_and_hold_back_no_others() {
        let mut mixed = batch(1, 0, 100, &[5, 5, 2]);
        mixed.candidates.iter_mut().take(2).for_each(|candidate| candidate.is_unbounded = true);
        let other = batch(2, 0, 100, &[1]);
        assert_eq!(decide(board(9, vec![mixed.clone(), other])), "1.0 2.0 1.2");
        mixed.awaits_charge = true;
        assert_eq!(decide(board(9, vec![mixed.clone()])), "1.2");
        mixed.candidates.truncate(2);
        assert_eq!(decide(board(9, vec![mixed])), "", "it waits for a charge, which is nobody's to lift");
    }

    #[test]
    fn a_batch_whose_jobs_all_lack_a_price_is_parked_for_it() {
        let lacking = Waiting { lacks_price: true, ..batch(1, 0, 100, &[]) };
        assert_eq!(decide(board(9, vec![lacking.clone()])), "!1 no_price");
        assert_eq!(out_of_budget(&board(9, vec![lacking])), [(BatchNo(1), Parked::NoPrice)]);
        let some = Waiting { lacks_price: true, ..batch(1, 0, 100, &[6]) };
        assert_eq!(decide(board(9, vec![some])), "1.0");
    }

    #[test]
    fn day_and_total_budgets_cover_all_batches() {
        let waiting = || vec![batch(1, 0, 100, &[6]), batch(2, 0, 100, &[6])];
        let mut day = board(9, waiting());
        day.limits.per_day = Some(Credits(10));
        assert_eq!(decide(day), "1.0 !2 day_budget");
        let mut total = board(9, waiting());
        total.limits.total = Some(Credits(10));
        total.total.spent = Credits(5);
        assert_eq!(decide(total), "!1 total_budget !2 total_budget");
    }

    #[test]
    fn what_must_stay_on_the_account_stays() {
        let mut keep = board(9, vec![batch(1, 0, 100, &[6, 6, 3])]);
        keep.limits.min_balance = Some(Credits(10));
        assert_eq!(decide(keep.clone()), "!1 min_balance", "nothing is sent before the balance is known");
        keep.balance = Some(Credits(20));
        assert_eq!(decide(keep), "1.0 1.2");
    }

    #[test]
    fn what_must_stay_is_held_against_a_balance_that_is_fresh_enough() {
        let mut old = board(4, Vec::new());
        old.limits.min_balance = Some(Credits(500));
        for (balance, age, expected) in [
            (1_300, 1_000, "1.0"),
            (1_300, 1_001, "?"),
            (1_299, 0, "1.0"),
            (1_299, 1, "?"),
            (509, 9_000, "!1 min_balance"),
        ] {
            let one = vec![batch(1, 0, 1_000, &[10])];
            (old.balance, old.balance_age, old.waiting) = (Some(Credits(balance)), Millis(age), one);
            let is_stale = admit(old.clone(), 1000).is_stale;
            let said = if is_stale { "?".to_owned() } else { decide(old.clone()) };
            assert_eq!(said, expected, "{balance}, {age} ms ago");
        }
    }

    /// Jobs that need so many units each of the allowance called `images`.
    fn covered(mut batch: Waiting, units: &[u64]) -> Waiting {
        for (candidate, units) in batch.candidates.iter_mut().zip(units) {
            candidate.allowance = Some(AllowanceUse { pool: "images".to_owned(), units: *units });
        }
        batch
    }

    #[test]
    fn after_a_402_the_balance_or_an_allowance_must_cover_what_is_sent() {
        let mut short =
            board(9, vec![batch(1, 0, 100, &[6, 3, 3]), covered(batch(2, 0, 100, &[6, 6, 6]), &[1, 15, 1])]);
        assert_eq!(decide(short.clone()), "1.0 2.0 1.1 2.1 1.2 2.2", "nothing was refused");
        short.out_of_credits = true;
        assert_eq!(decide(short.clone()), "2.0 2.1 2.2 !1 credits", "the pool is tried freely");
        let mut with_pool = |trial, is_tried| {
            short.pools = BTreeMap::from([("images".to_owned(), Pool { trial, is_tried })]);
            decide(short.clone())
        };
        let [some, none] = [15, 1].map(|units| Trial::OneAtATime { below: Some(units) });
        assert_eq!(with_pool(some, false), "2.0 !1 credits", "one at a time, and less than was refused");
        assert_eq!(with_pool(some, true), "!1 credits !2 credits", "its turn comes; what is too much waits");
        assert_eq!(with_pool(none, false), "!1 credits !2 credits");
        assert!(admit(short.clone(), 1000).is_short);
        short.balance = Some(Credits(6));
        assert_eq!(decide(short.clone()), "1.0 !2 credits", "what the balance covers is bought");
        short.limits.min_balance = Some(Credits(1));
        short.pools.clear();
        assert_eq!(decide(short), "1.1 !2 min_balance", "no allowance is counted upon for what must stay");
    }

    #[test]
    fn budgets_hold_whatever_an_allowance_may_cover() {
        let mut tight = board(9, vec![covered(batch(1, 0, 10, &[30]), &[1])]);
        assert_eq!(decide(tight.clone()), "!1 batch_budget");
        tight.out_of_credits = true;
        assert_eq!(decide(tight), "!1 batch_budget");
    }

    #[test]
    fn a_hundred_racing_jobs_never_pass_a_budget() {
        let mut racing = board(1000, (0..100).map(|n| batch(n, 0, 50, &[7])).collect());
        racing.limits.per_day = Some(Credits(100));
        let decision = admit(racing, 1000);
        assert_eq!(decision.admitted.len(), 14, "14 x 7 = 98");
        assert_eq!(decision.parked.len(), 86);
    }

    #[test]
    fn a_batch_is_out_of_budget_when_no_job_fits_whatever_is_in_flight() {
        let waiting = vec![batch(1, 0, 3, &[4, 9]), batch(2, 0, 3, &[4, 2]), batch(3, 0, 9, &[])];
        let mut unknown = board(1, waiting);
        unknown.limits.min_balance = Some(Credits(100));
        unknown.in_flight.add(Kind::Video, None);
        assert_eq!(out_of_budget(&unknown), [(BatchNo(1), Parked::BatchBudget)]);
        let known = Board { balance: Some(Credits(101)), ..unknown };
        let met = [(BatchNo(1), Parked::BatchBudget), (BatchNo(2), Parked::BatchBudget)];
        assert_eq!(out_of_budget(&known), met, "2 and what must stay are more than the balance");
    }

    /// A job of a recovered state brings its hold along: in every budget already, and still to be covered by the balance.
    #[test]
    fn what_is_held_for_a_waiting_job_must_be_covered_by_the_balance_all_the_same() {
        let mut waiting = batch(1, 0, 15, &[15]);
        waiting.candidates[0].held = Credits(15);
        waiting.totals.held = Credits(15);
        let mut board = board(9, vec![waiting]);
        board.total.held = Credits(15);
        assert_eq!(decide(board.clone()), "1.0", "its budget holds it already");
        (board.out_of_credits, board.balance) = (true, Some(Credits(14)));
        assert_eq!(decide(board.clone()), "!1 credits");
        board.balance = Some(Credits(15));
        assert_eq!(decide(board.clone()), "1.0");
        (board.out_of_credits, board.limits.min_balance) = (false, Some(Credits(1)));
        assert_eq!(decide(board), "!1 min_balance");
    }
}
