//! Which jobs are admitted, in one line for each input.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::*;
use crate::domain::budget_group::{Group, GroupKey, GroupLimit, GroupValue};
use crate::domain::credit_hold::{Basis, Hold};
use crate::domain::credits::Credits;
use crate::domain::ids::JobKey;
use crate::domain::ids::Seq;
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::{AllowanceUse, Trial};
use crate::domain::request::Kind;
use crate::domain::time::Millis;

fn candidates(batch: u32, priority: i8, holds: &[u64]) -> Vec<Candidate> {
    let candidate = |(seq, hold): (u32, &u64)| Candidate {
        held: Credits::ZERO,
        is_held_today: false,
        may_have_been_sent: false,
        key: JobKey { batch: BatchNo(batch), seq: Seq(seq) },
        priority,
        kind: Kind::Video,
        model: None,
        hold: Credits(*hold),
        tries_again: false,
        allowance: None,
        groups: Vec::new(),
        admission_hold: Hold::priced(Credits(*hold)),
    };
    (0..).zip(holds).map(candidate).collect()
}

fn batch(batch: u32, priority: i8, budget: u64, holds: &[u64]) -> WaitingBatch {
    let candidates = candidates(batch, priority, holds);
    WaitingBatch {
        batch: BatchNo(batch),
        budget: Credits(budget),
        totals: Totals::default(),
        may_be_charged: Credits::ZERO,
        awaits_charge: false,
        lacks_price: false,
        needs_person: false,
        retry_room: 0,
        candidates,
        groups: BTreeMap::new(),
    }
}

/// Everything admission looks at.
#[derive(Clone)]
struct Queue {
    input: AdmissionInput,
    waiting: Vec<WaitingBatch>,
}

impl Deref for Queue {
    type Target = AdmissionInput;
    fn deref(&self) -> &AdmissionInput {
        &self.input
    }
}

impl DerefMut for Queue {
    fn deref_mut(&mut self) -> &mut AdmissionInput {
        &mut self.input
    }
}

fn of_slots(in_flight: u32, waiting: Vec<WaitingBatch>) -> Queue {
    let limits = Limits {
        in_flight,
        in_flight_per_kind: BTreeMap::new(),
        in_flight_per_model: BTreeMap::new(),
        total: None,
        per_day: None,
        min_balance: None,
    };
    let (total, day) = (Totals::default(), Totals::default());
    let input = AdmissionInput {
        limits,
        in_flight: InFlight::default(),
        total,
        day,
        may_be_charged: Credits::ZERO,
        balance: None,
        balance_age: Millis(0),
        out_of_credits: false,
        pools: BTreeMap::new(),
    };
    Queue { input, waiting }
}

/// Decides, and tells which batches were looked at.
fn admit_of(Queue { input, waiting }: &Queue, most: usize) -> (Admission, Vec<BatchNo>) {
    let turn = |batch: &WaitingBatch| {
        let priorities = batch.candidates.iter().map(|candidate| candidate.priority);
        Turn { batch: batch.batch, priority: priorities.max().unwrap_or_default() }
    };
    let mut looked_at = Vec::new();
    let look_at = |no: BatchNo| {
        looked_at.push(no);
        waiting.iter().find(|batch| batch.batch == no).cloned()
    };
    let decision = admit(input.clone(), waiting.iter().map(turn), look_at, most);
    (decision, looked_at)
}

fn out_of_budget_of(Queue { input, waiting }: Queue) -> Vec<(BatchNo, Parked)> {
    out_of_budget(input, waiting)
}

/// `1.0 1.1` for the first two jobs of batch 1; `!2 batch_budget` for a parked batch.
fn decide(Queue { input, waiting }: Queue) -> String {
    let (decision, _) = admit_of(&Queue { input, waiting }, 1000);
    let admitted = decision.admitted.iter().map(|c| format!("{}.{}", c.key.batch.0, c.key.seq.0));
    let parked = decision.parked.iter().map(|(batch, why)| format!("!{} {}", batch.0, why.name()));
    admitted.chain(parked).collect::<Vec<_>>().join(" ")
}

#[test]
fn slots_bound_what_is_in_flight() {
    assert_eq!(decide(of_slots(2, vec![batch(1, 0, 100, &[1, 1, 1])])), "1.0 1.1");
    let mut full = of_slots(2, vec![batch(1, 0, 100, &[1])]);
    (0..2).for_each(|_| full.in_flight.add(Kind::Music, None));
    assert_eq!(decide(full), "");
}

#[test]
fn a_kind_may_have_a_limit_of_its_own() {
    let mut one = of_slots(9, vec![batch(1, 0, 100, &[1, 1])]);
    one.limits.in_flight_per_kind = BTreeMap::from([(Kind::Video, 1)]);
    assert_eq!(decide(one), "1.0");
}

#[test]
fn a_model_may_have_a_limit_of_its_own() {
    let mut two = of_slots(9, vec![batch(1, 0, 100, &[1, 1, 1, 1])]);
    two.limits.in_flight_per_model = BTreeMap::from([("slow".to_owned(), 2)]);
    let Queue { input, waiting } = &mut two;
    for (candidate, model) in waiting[0].candidates.iter_mut().zip(["slow", "slow", "slow", "fast"]) {
        candidate.model = input.limits.counted_model(Some(model)).map(str::to_owned);
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
    assert_eq!(decide(of_slots(4, waiting)), "3.0 1.0 2.0 1.1");
}

#[test]
fn no_batch_is_looked_at_whose_turn_comes_after_the_last_slot() {
    let looked_at = |input: &Queue, most: usize| {
        let numbers = admit_of(input, most).1.into_iter().map(|no| no.0.to_string());
        numbers.collect::<Vec<_>>().join(" ")
    };
    let waiting = || (1..=9).map(|no| batch(no, i8::from(no == 7), 9, &[1, 1])).collect::<Vec<_>>();
    assert_eq!(looked_at(&of_slots(3, waiting()), 1000), "7 1", "7 twice, since it is more urgent");
    assert_eq!(looked_at(&of_slots(1000, waiting()), 4), "7 1 2");
    let mut first_is_short = of_slots(3, waiting());
    first_is_short.waiting[0].budget = Credits(0);
    assert_eq!(looked_at(&first_is_short, 1000), "7 1 2");
    assert_eq!(decide(first_is_short), "7.0 7.1 2.0 !1 batch_budget", "it is known of those that were");
}

#[test]
fn what_turns_out_to_be_less_urgent_goes_when_its_own_turn_comes() {
    let waiting = [batch(1, 0, 9, &[1]), batch(2, 3, 9, &[1])];
    let turns = [1, 2].map(|no| Turn { batch: BatchNo(no), priority: 5 });
    let look_at = |no: BatchNo| waiting.iter().find(|batch| batch.batch == no).cloned();
    let decision = admit(of_slots(9, Vec::new()).input, turns, look_at, 9);
    let order: Vec<u32> = decision.admitted.iter().map(|candidate| candidate.key.batch.0).collect();
    assert_eq!(order, [2, 1]);
}

#[test]
fn what_is_urgent_and_does_not_fit_lends_its_priority_to_nothing_else() {
    let mut first = batch(1, 5, 10, &[20]);
    first.candidates.extend(candidates(1, 0, &[1, 1]));
    let second = batch(2, 3, 10, &[1]);
    assert_eq!(decide(of_slots(9, vec![first.clone(), second.clone()])), "2.0 1.0 1.1");
    first.budget = Credits(0);
    assert_eq!(decide(of_slots(9, vec![first, second])), "2.0 !1 batch_budget");
}

#[test]
fn no_budget_is_passed_and_cheap_jobs_use_what_is_left() {
    assert_eq!(decide(of_slots(9, vec![batch(1, 0, 10, &[6, 6, 4, 1])])), "1.0 1.2");
    assert_eq!(decide(of_slots(9, vec![batch(1, 0, 5, &[6])])), "!1 batch_budget");
}

#[test]
fn jobs_whose_charge_nothing_bounds_go_one_at_a_time_and_hold_back_no_others() {
    let mut mixed = batch(1, 0, 100, &[5, 5, 2]);
    mixed
        .candidates
        .iter_mut()
        .take(2)
        .for_each(|candidate| candidate.admission_hold.basis = Basis::MaxCredits);
    let other = batch(2, 0, 100, &[1]);
    assert_eq!(decide(of_slots(9, vec![mixed.clone(), other])), "1.0 2.0 1.2");
    mixed.awaits_charge = true;
    assert_eq!(decide(of_slots(9, vec![mixed.clone()])), "1.2");
    mixed.candidates.truncate(2);
    assert_eq!(decide(of_slots(9, vec![mixed])), "", "it waits for a charge, which is nobody's to lift");
}

#[test]
fn a_batch_whose_jobs_all_lack_a_price_is_parked_for_it() {
    let lacking = WaitingBatch { lacks_price: true, ..batch(1, 0, 100, &[]) };
    assert_eq!(decide(of_slots(9, vec![lacking.clone()])), "!1 no_price");
    assert_eq!(out_of_budget_of(of_slots(9, vec![lacking])), [(BatchNo(1), Parked::NoPrice)]);
    let withheld = WaitingBatch { needs_person: true, ..batch(1, 0, 100, &[]) };
    assert_eq!(decide(of_slots(9, vec![withheld.clone()])), "!1 perhaps_sent");
    assert_eq!(out_of_budget_of(of_slots(9, vec![withheld])), [(BatchNo(1), Parked::PerhapsSent)]);
    let some = WaitingBatch { lacks_price: true, ..batch(1, 0, 100, &[6]) };
    assert_eq!(decide(of_slots(9, vec![some])), "1.0");
}

#[test]
fn day_and_total_budgets_cover_all_batches() {
    let waiting = || vec![batch(1, 0, 100, &[6]), batch(2, 0, 100, &[6])];
    let mut day = of_slots(9, waiting());
    day.limits.per_day = Some(Credits(10));
    assert_eq!(decide(day), "1.0 !2 day_budget");
    let mut total = of_slots(9, waiting());
    total.limits.total = Some(Credits(10));
    total.total.spent = Credits(5);
    assert_eq!(decide(total), "!1 total_budget !2 total_budget");
}

#[test]
fn what_a_lost_state_may_have_sent_counts_until_it_is_asked_for() {
    let mut other = of_slots(9, vec![batch(2, 0, 100, &[2, 4])]);
    (other.limits.total, other.may_be_charged) = (Some(Credits(10)), Credits(8));
    assert_eq!(decide(other.clone()), "2.0");
    (other.limits.total, other.limits.per_day) = (None, Some(Credits(9)));
    assert_eq!(decide(other.clone()), "!2 day_budget");
    // What may have been sent is itself a part of what counts, and goes first here.
    let mut rebuilt = batch(1, 1, 100, &[4, 4]);
    rebuilt.candidates.iter_mut().for_each(|candidate| candidate.may_have_been_sent = true);
    rebuilt.may_be_charged = Credits(8);
    other.waiting.insert(0, rebuilt.clone());
    other.limits.per_day = Some(Credits(10));
    assert_eq!(decide(other.clone()), "1.0 1.1 2.0");
    // So do later rows of its own batch.
    rebuilt.candidates[1].may_have_been_sent = false;
    rebuilt.budget = Credits(11);
    other.waiting[0] = rebuilt;
    assert_eq!(decide(other), "1.0 2.0");
}

fn limit(value: &str, total: Option<u64>, per_day: Option<u64>) -> GroupLimit {
    let key = GroupKey::Meta("client".to_owned());
    let group = Group { key, value: GroupValue::Named(value.to_owned()) };
    let (total, per_day) = (total.map(Credits), per_day.map(Credits));
    GroupLimit { group, total, per_day }
}

#[test]
fn a_group_is_limited_over_all_batches_and_stands_in_nobodys_way() {
    let mut clients = of_slots(9, vec![batch(1, 0, 100, &[6, 6, 6]), batch(2, 0, 100, &[6, 6])]);
    for (batch, names) in clients.waiting.iter_mut().zip([&["acme", "acme", "zen"], &["acme", "zen"][..]]) {
        for (candidate, name) in batch.candidates.iter_mut().zip(names) {
            candidate.groups = vec![limit(name, Some(10), None)];
        }
    }
    assert_eq!(decide(clients.clone()), "1.0 2.1", "one of each client");
    let zen = clients.waiting[1].candidates[1].groups[0].group.clone();
    let spent = Totals { spent: Credits(5), ..Totals::default() };
    let books = GroupBooks { total: spent, day: Totals::default() };
    for batch in &mut clients.waiting {
        batch.groups.insert(zen.clone(), books);
    }
    assert_eq!(decide(clients.clone()), "1.0 !2 group_budget");
    for batch in &mut clients.waiting {
        batch.candidates.iter_mut().for_each(|candidate| candidate.groups[0] = limit("acme", None, Some(5)));
    }
    assert_eq!(decide(clients.clone()), "!1 group_day_budget !2 group_day_budget");
    assert_eq!(out_of_budget_of(clients), [1, 2].map(|batch| (BatchNo(batch), Parked::GroupDayBudget)));
}

#[test]
fn what_is_held_for_a_waiting_job_is_held_in_its_group_already() {
    let mut waiting = batch(1, 0, 15, &[15]);
    let group = limit("acme", Some(15), Some(15));
    (waiting.candidates[0].held, waiting.candidates[0].is_held_today) = (Credits(15), true);
    waiting.candidates[0].groups = vec![group.clone()];
    let held = Totals { held: Credits(15), ..Totals::default() };
    waiting.totals = held;
    waiting.groups = BTreeMap::from([(group.group, GroupBooks { total: held, day: held })]);
    assert_eq!(decide(of_slots(9, vec![waiting])), "1.0");
}

#[test]
fn what_must_stay_on_the_account_stays() {
    let mut keep = of_slots(9, vec![batch(1, 0, 100, &[6, 6, 3])]);
    keep.limits.min_balance = Some(Credits(10));
    assert_eq!(decide(keep.clone()), "!1 min_balance", "nothing is sent before the balance is known");
    keep.balance = Some(Credits(20));
    assert_eq!(decide(keep), "1.0 1.2");
}

#[test]
fn what_must_stay_is_held_against_a_balance_that_is_fresh_enough() {
    let mut old = of_slots(4, Vec::new());
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
        let is_stale = admit_of(&old, 1000).0.is_stale;
        let said = if is_stale { "?".to_owned() } else { decide(old.clone()) };
        assert_eq!(said, expected, "{balance}, {age} ms ago");
    }
}

/// Jobs that need so many units each of the allowance called `images`.
fn covered(mut batch: WaitingBatch, units: &[u64]) -> WaitingBatch {
    for (candidate, units) in batch.candidates.iter_mut().zip(units) {
        candidate.allowance = Some(AllowanceUse { pool: "images".to_owned(), units: *units });
    }
    batch
}

#[test]
fn after_a_402_the_balance_or_an_allowance_must_cover_what_is_sent() {
    let mut short =
        of_slots(9, vec![batch(1, 0, 100, &[6, 3, 3]), covered(batch(2, 0, 100, &[6, 6, 6]), &[1, 15, 1])]);
    assert_eq!(decide(short.clone()), "1.0 2.0 1.1 2.1 1.2 2.2", "nothing was refused");
    short.out_of_credits = true;
    assert_eq!(decide(short.clone()), "2.0 2.1 2.2 !1 credits", "the pool is tried freely");
    let mut with_pool = |trial, is_tried| {
        short.pools = BTreeMap::from([("images".to_owned(), AllowancePool { trial, is_tried })]);
        decide(short.clone())
    };
    let [some, none] = [15, 1].map(|units| Trial::OneAtATime { below: Some(units) });
    assert_eq!(with_pool(some, false), "2.0 !1 credits", "one at a time, and less than was refused");
    assert_eq!(with_pool(some, true), "!1 credits !2 credits", "its turn comes; what is too much waits");
    assert_eq!(with_pool(none, false), "!1 credits !2 credits");
    assert!(admit_of(&short, 1000).0.is_short);
    short.balance = Some(Credits(6));
    assert_eq!(decide(short.clone()), "1.0 !2 credits", "what the balance covers is bought");
    short.limits.min_balance = Some(Credits(1));
    short.pools.clear();
    assert_eq!(decide(short), "1.1 !2 min_balance", "no allowance is counted upon for what must stay");
}

#[test]
fn budgets_hold_whatever_an_allowance_may_cover() {
    let mut tight = of_slots(9, vec![covered(batch(1, 0, 10, &[30]), &[1])]);
    assert_eq!(decide(tight.clone()), "!1 batch_budget");
    tight.out_of_credits = true;
    assert_eq!(decide(tight), "!1 batch_budget");
}

#[test]
fn a_hundred_racing_jobs_never_pass_a_budget() {
    let mut racing = of_slots(1000, (0..100).map(|n| batch(n, 0, 50, &[7])).collect());
    racing.limits.per_day = Some(Credits(100));
    let (decision, _) = admit_of(&racing, 1000);
    assert_eq!(decision.admitted.len(), 14, "14 x 7 = 98");
    assert_eq!(decision.parked.len(), 86);
}

#[test]
fn a_batch_is_out_of_budget_when_no_job_fits_whatever_is_in_flight() {
    let waiting = vec![batch(1, 0, 3, &[4, 9]), batch(2, 0, 3, &[4, 2]), batch(3, 0, 9, &[])];
    let mut unknown = of_slots(1, waiting);
    unknown.limits.min_balance = Some(Credits(100));
    unknown.in_flight.add(Kind::Video, None);
    assert_eq!(out_of_budget_of(unknown.clone()), [(BatchNo(1), Parked::BatchBudget)]);
    let mut known = unknown;
    known.balance = Some(Credits(101));
    let met = [(BatchNo(1), Parked::BatchBudget), (BatchNo(2), Parked::BatchBudget)];
    assert_eq!(out_of_budget_of(known), met, "2 and what must stay are more than the balance");
}

/// A job of a recovered state brings its hold along: in every budget already, and still to be covered by the balance.
#[test]
fn what_is_held_for_a_waiting_job_must_be_covered_by_the_balance_all_the_same() {
    let mut waiting = batch(1, 0, 15, &[15]);
    (waiting.candidates[0].held, waiting.candidates[0].is_held_today) = (Credits(15), true);
    waiting.totals.held = Credits(15);
    let mut input = of_slots(9, vec![waiting]);
    input.total.held = Credits(15);
    assert_eq!(decide(input.clone()), "1.0", "its budget holds it already");
    (input.out_of_credits, input.balance) = (true, Some(Credits(14)));
    assert_eq!(decide(input.clone()), "!1 credits");
    input.balance = Some(Credits(15));
    assert_eq!(decide(input.clone()), "1.0");
    (input.out_of_credits, input.limits.min_balance) = (false, Some(Credits(1)));
    assert_eq!(decide(input), "!1 min_balance");
}

#[test]
fn what_is_held_for_another_day_counts_in_full_against_today() {
    let parked = |is_held_today: bool, left: u64| {
        let mut waiting = batch(1, 0, 1_000, &[30]);
        for candidate in &mut waiting.candidates {
            (candidate.held, candidate.is_held_today) = (Credits(20), is_held_today);
        }
        let mut input = of_slots(4, vec![waiting]);
        input.limits.per_day = Some(Credits(left));
        admit_of(&input, 4).0.admitted.is_empty()
    };
    assert_eq!([parked(true, 9), parked(true, 10)], [true, false]);
    assert_eq!([parked(false, 29), parked(false, 30)], [true, false]);
}
