//! Rows that race for the last credits of a budget, killed at random moments and started again: the
//! service never sees more spent than was allowed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stderr, reason = "a seed that is not shown cannot be played again")]

use std::time::{Duration, SystemTime};

use callsheet_emulator::Options;
use serde_json::json;

use crate::support::TestEnv;
use crate::support::collect_outputs::Outputs;
use crate::support::fault_matrix::ledger;
use crate::support::process::{Outcome, Running};

const ROWS: usize = 100;
const IMAGE_CREDITS: u64 = 8;
/// Room for 37 of the hundred, and for seven eighths of another.
const LIMIT: u64 = 37 * IMAGE_CREDITS + 7;
const ALL: u64 = ROWS as u64 * IMAGE_CREDITS;
/// Answers that are lost and tasks that fail and are refunded make room and take it again.
const TROUBLE: &str = "seed = 3\n\
    [[rules]]\non = 'create'\nprobability = 0.1\neffect = { do = 'drop', when = 'after' }\n\
    [[rules]]\non = 'create'\nprobability = 0.05\neffect = { do = 'drop', when = 'before' }\n\
    [[rules]]\nprobability = 0.1\neffect = { do = 'task-fails', code = 'busy' }\n\
    [[rules]]\nprobability = 0.05\neffect = { do = 'fail-at-submission' }\n\
    [[rules]]\nprobability = 0.05\neffect = { do = 'unknown-outcome' }";

/// A way to say how much may be spent.
struct Limit {
    /// Opens the section of the configuration.
    section: fn(u64) -> String,
    arguments: fn(u64) -> Vec<String>,
    says: &'static str,
    /// UTC midnight lifts it.
    is_of_a_day: bool,
}

const RUN: [&str; 2] = ["run", "batch.json"];

fn ids() -> Vec<String> {
    (0..ROWS).map(|n| format!("image-{n}")).collect()
}

/// Attempts enough that no row fails for good by a task that failed after its call.
fn manifest() -> String {
    let job = |id: &String| json!({"id": id, "kind": "image", "model": "gi-2", "prompt": id, "meta": {"client": "acme"}});
    json!({"policy": {"attempts": 50}, "jobs": ids().iter().map(job).collect::<Vec<_>>()}).to_string()
}

fn command(limit: &Limit, credits: u64) -> Vec<String> {
    RUN.into_iter().map(str::to_owned).chain((limit.arguments)(credits)).collect()
}

fn configure(env: &TestEnv, limit: &Limit, credits: u64) {
    env.configure(&format!("[limits]\nin_flight = 48\nadaptive = false\n{}", (limit.section)(credits)));
}

/// What the service has taken and not given back.
fn spent(env: &TestEnv) -> u64 {
    let totals = env.audit().totals;
    totals.charged_credits - totals.refunded_credits
}

/// Watches the account while the client lives, for as long as the limit holds.
fn live(
    env: &TestEnv,
    limit: &Limit,
    is_lifted: &(impl Fn() -> bool + Sync),
    kill_after: Option<Duration>,
) -> Outcome {
    let arguments = command(limit, LIMIT);
    let running = Running::start(env.command(arguments.iter().map(String::as_str)));
    std::thread::scope(|scope| {
        let watched = scope.spawn(|| match kill_after {
            Some(delay) => running.end_or_kill_after(delay),
            None => running.end(),
        });
        while !watched.is_finished() {
            let spent = spent(env);
            assert!(spent <= LIMIT || is_lifted(), "{spent} credits are spent, {LIMIT} are allowed");
            std::thread::sleep(Duration::from_millis(10));
        }
        watched.join().unwrap()
    })
}

fn race(limit: &Limit) {
    let seed = std::env::var("CALLSHEET_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("racing budgets, CALLSHEET_SEED={seed}");
    let random = fastrand::Rng::with_seed(seed);
    // A race takes less than a minute: whatever met midnight is run again, within the day that has begun.
    let was_seen = (0..2).any(|_| race_within_a_day(limit, random.clone()));
    assert!(was_seen, "midnight came twice");
}

/// Whether no midnight lifted the limit, so that all was seen.
fn race_within_a_day(limit: &Limit, mut random: fastrand::Rng) -> bool {
    let today = day();
    let is_lifted = || limit.is_of_a_day && day() != today;
    let env = TestEnv::with(Options { speed: 200.0, ..Options::default() });
    configure(&env, limit, LIMIT);
    env.faults(TROUBLE);
    env.write("batch.json", manifest());
    for _ in 0..5 {
        let outcome = live(&env, limit, &is_lifted, Some(Duration::from_millis(random.u64(20..700))));
        if is_lifted() {
            return false;
        }
        assert!(outcome.signal == Some(9) || outcome.code == Some(4), "{outcome:?}");
    }
    let outcome = live(&env, limit, &is_lifted, None);
    if is_lifted() {
        return false;
    }
    outcome.exited(4).says(limit.says);
    assert!(LIMIT - spent(&env) < IMAGE_CREDITS, "all that fits is spent: {}", spent(&env));
    is_booked(&env);

    configure(&env, limit, ALL);
    let arguments = command(limit, ALL);
    let all = || env.run(arguments.iter().map(String::as_str));
    let mut outcome = all();
    // A call that fails with the name of a failed task is made once more by itself, and then only if somebody asks.
    for _ in 0..9 {
        if outcome.code != Some(1) {
            break;
        }
        env.run(["retry", "batch"]).exited(0);
        outcome = all();
    }
    outcome.exited(0);
    assert_eq!(spent(&env), ALL);
    Outputs::of(&env, "batch").is_complete(&ids());
    is_booked(&env);
    true
}

/// Our books say what the service's say, and nothing is held any more.
fn is_booked(env: &TestEnv) {
    let outputs = Outputs::of(env, "batch");
    assert_eq!(outputs.sum("charged_credits"), spent(env));
    assert_eq!(ledger(env), (0, spent(env)));
}

fn day() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400
}

#[test]
fn a_batchs_budget_is_never_passed() {
    race(&Limit {
        section: |_| String::new(),
        arguments: |credits| vec!["--budget".to_owned(), credits.to_string()],
        says: "parked: the next job does not fit into the rest of the batch's budget",
        is_of_a_day: false,
    });
}

#[test]
fn a_days_budget_is_never_passed() {
    race(&Limit {
        section: |credits| format!("[budget]\nper_day = {credits}"),
        arguments: |_| Vec::new(),
        says: "parked: the day's budget, where prices count in full, is used up; it continues at UTC midnight, \
               if the budget of a whole day covers the next job, or with a higher budget.per_day",
        is_of_a_day: true,
    });
}

#[test]
fn the_total_budget_is_never_passed() {
    race(&Limit {
        section: |credits| format!("[budget]\ntotal = {credits}"),
        arguments: |_| Vec::new(),
        says: "parked: the total budget, where prices count in full, is used up; raise budget.total",
        is_of_a_day: false,
    });
}

#[test]
fn a_clients_budget_is_never_passed() {
    race(&Limit {
        section: |credits| format!("[budget.by.\"meta.client\"]\ndefault = {credits}"),
        arguments: |_| Vec::new(),
        says: "parked: the budget of a client or another group of rows, where prices count in full, is used up; raise \
               its limit in [budget.by]",
        is_of_a_day: false,
    });
}

#[test]
fn a_clients_budget_of_a_day_is_never_passed() {
    race(&Limit {
        section: |credits| format!("[budget.by.\"meta.client\"]\nper_day = {credits}"),
        arguments: |_| Vec::new(),
        says: "parked: the day's budget of a client or another group of rows, where prices count in full, is used up; it \
               continues at UTC midnight, if the budget of a whole day covers the next job, or with a higher limit in \
               [budget.by]",
        is_of_a_day: true,
    });
}
