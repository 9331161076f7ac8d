//! SIGKILL, again and again, at moments drawn from a seed, over all kinds and under faults: nothing is paid for
//! twice, no job is lost, no file is missing or broken, and our books are the service's.
//!
//! ```text
//! cargo test --test program kills::                                  some forty kills
//! CALLSHEET_KILLS=1000 cargo test --test program kills:: -- --nocapture
//! CALLSHEET_SEED=7 cargo test --test program kills:: -- --nocapture  the same plan again
//! ```
//!
//! A seed gives the plan: manifests, faults, settings and moments. Moments are counted in what the client did
//! (its n-th call, the n-th change of a file), and not in time alone, so that they come at the same places on
//! a slow machine and on a fast one. Which of several jobs makes the n-th call is for the scheduler to say: a
//! plan that is played again is the same plan, not the same run to the instruction.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stderr, reason = "a seed that is not shown cannot be played again")]
#![allow(unreachable_pub, reason = "its modules are parts of this file")]

mod call_interceptor;
mod commands;
mod limits;
mod moments;
mod plan;
mod rebuilds;
mod setup;
mod soak;

use std::collections::BTreeSet;
use std::time::Instant;

use callsheet::failpoint;

use self::commands::CommandsRun;
use self::limits::LimitsRun;
use self::moments::{MomentCounts, MomentsRun};
use self::plan::{ClientMode, Round};
use self::rebuilds::RebuildsRun;
use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, case_share, manifests, until};

/// Kills of a plain `cargo test`.
const KILLS: usize = 40;
/// Kills of one round: after them it may come to its end.
const KILLS_OF_A_ROUND: usize = 20;
/// Kills of a plain `cargo test` while limits are looked at, and of one state among them.
const KILLS_OF_LIMITS: usize = 12;
const KILLS_OF_A_LIMITS_RUN: usize = 6;
/// Kills of a plain `cargo test` while states are rebuilt, and of one state and what becomes of it among them.
const KILLS_OF_REBUILDS: usize = 6;
const KILLS_OF_A_REBUILDS_RUN: usize = 6;
/// Kills of a plain `cargo test` while people give commands, and of one state among them.
const KILLS_OF_COMMANDS: usize = 6;
const KILLS_OF_A_COMMANDS_RUN: usize = 6;

fn asked<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// How many kills are asked for, and what draws them.
fn asked_for(usual: usize) -> (usize, fastrand::Rng) {
    let kills = asked("CALLSHEET_KILLS").unwrap_or(usual);
    let seed: u64 = asked("CALLSHEET_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("CALLSHEET_SEED={seed} CALLSHEET_KILLS={kills}");
    (kills, fastrand::Rng::with_seed(seed))
}

#[test]
fn kills_at_random_moments_lose_nothing_and_pay_nothing_twice() {
    let (kills, mut random) = asked_for(KILLS);
    let (began, mut counts) = (Instant::now(), MomentCounts::default());
    let mut rounds = 0;
    while counts.kills < kills {
        rounds += 1;
        let mode = if rounds % 2 == 1 { ClientMode::Run } else { ClientMode::Daemon };
        let round = Round::draw(random.u64(..), mode, KILLS_OF_A_ROUND.min(kills - counts.kills));
        counts.add(&MomentsRun::new(&round).play(&round));
    }
    eprintln!("{rounds} rounds in {:.1} s: {counts}", began.elapsed().as_secs_f32());
}

/// Prices change, allowances are used elsewhere, tasks are canceled at the service, and two inboxes have files of one
/// name; whatever is killed when, no limit is passed.
#[test]
fn no_limit_is_passed_however_prices_change_and_whatever_is_killed() {
    let (kills, mut random) = asked_for(KILLS_OF_LIMITS);
    let (began, mut counts) = (Instant::now(), limits::LimitCounts::default());
    while counts.kills < kills {
        let of_round = KILLS_OF_A_LIMITS_RUN.min(kills - counts.kills);
        counts.add(&LimitsRun::new(random.u64(..)).play(of_round));
    }
    eprintln!("{:.1} s: {counts}", began.elapsed().as_secs_f32());
    assert!(counts.holds > 0 && counts.tasks > 0, "nothing was bought");
}

/// States are rebuilt, carried elsewhere and begun anew, and their operator says this and that.
#[test]
fn nothing_is_bought_twice_whatever_is_rebuilt_between_kills() {
    let (kills, mut random) = asked_for(KILLS_OF_REBUILDS);
    let (began, mut counts) = (Instant::now(), rebuilds::RebuildCounts::default());
    while counts.kills < kills {
        let of_round = KILLS_OF_A_REBUILDS_RUN.min(kills - counts.kills);
        counts.add(&RebuildsRun::new(random.u64(..)).play(of_round));
    }
    eprintln!("{:.1} s: {counts}", began.elapsed().as_secs_f32());
    assert!(counts.jobs > 0 && counts.tasks >= counts.jobs, "nothing was bought");
}

/// Two people edit, hand in, cancel, retry, review and limit, both at once.
#[test]
fn whatever_people_do_between_kills_is_paid_once_and_comes_to_its_end() {
    let (kills, mut random) = asked_for(KILLS_OF_COMMANDS);
    let (began, mut counts) = (Instant::now(), commands::CommandCounts::default());
    while counts.kills < kills {
        let of_round = KILLS_OF_A_COMMANDS_RUN.min(kills - counts.kills);
        counts.add(&CommandsRun::new(random.u64(..)).play(of_round));
    }
    eprintln!("{:.1} s: {counts}", began.elapsed().as_secs_f32());
    assert!(counts.jobs > 0 && counts.tasks > 0, "nothing was bought");
}

/// A job at a time, a manifest dropped once.
#[test]
fn a_daemon_survives_a_kill_at_every_step() {
    let of_a_run = case_share::of_this_run(failpoint::OF_A_RUN, 0);
    let steps = failpoint::OF_THE_DAEMON.into_iter().chain(of_a_run);
    for step in steps {
        let env = TestEnv::new();
        let (manifest, ids) = manifests::of_all_kinds(1);
        let draft = env.write("jobs/inbox/.batch.csv.tmp", manifest);
        std::fs::rename(draft, env.path("jobs/inbox/batch.csv")).unwrap();
        let mut dying = env.command(["daemon"]);
        dying.env("CALLSHEET_FAILPOINT", step);
        Running::start(dying).end().was_killed(step);
        let next = env.start(["daemon"]);
        until("its results", || env.path("output/batch/report.json").exists());
        until("the manifest to be filed", || env.path("jobs/accepted/batch.csv").exists());
        next.signal(rustix::process::Signal::TERM);
        next.end().exited(0);
        let (audit, outputs) = (env.audit(), Outputs::of(&env, "batch"));
        audit.each_paid_once(ids.len());
        outputs.is_complete(&ids);
        outputs.agrees_with(&audit);
        assert_eq!(crate::support::fault_matrix::ledger(&env), (0, audit.totals.charged_credits), "{step}");
    }
}

/// The tests that kill at every step take the steps from the list; so each has to be in it, under a name that
/// no other place has: of two places with one name, the first alone would be killed at.
#[test]
fn every_fail_point_in_the_source_is_in_the_list_that_is_killed_at() {
    fn collect(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let calls = text.split("failpoint::hit(").skip(1);
            found.extend(calls.map(
                |rest| match rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                    Some((name, _)) => name.to_owned(),
                    None => panic!("{}: a fail point is named where it is hit", path.display()),
                },
            ));
        }
    }
    let mut found = Vec::new();
    collect(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let names: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    // Those of edited rows, references, uploads and stored outputs are killed at by `tests/cli/edited_rows.rs`,
    // `tests/cli/references.rs`, `tests/cli/input_files.rs`, `tests/cli/output_store.rs` and `tests/cli/gcs_store.rs`,
    // those of rebuilds by `tests/state/rebuild.rs`.
    let of_some = failpoint::OF_FINISHED.into_iter().chain(failpoint::OF_EDITED_ROWS);
    let of_some = of_some.chain(failpoint::OF_UPLOADS).chain(failpoint::OF_STORED_OUTPUTS);
    let of_some = of_some.chain(failpoint::OF_LARGE_UPLOADS).chain(failpoint::OF_FOLDERS);
    let of_some = of_some.chain(failpoint::OF_SCRATCH).chain(failpoint::OF_FILES_READ_BACK);
    let of_some = of_some.chain(failpoint::OF_REBUILDS);
    let listed = failpoint::OF_A_RUN
        .into_iter()
        .chain(failpoint::OF_THE_DAEMON)
        .chain(of_some)
        .chain(failpoint::OF_REFERENCES)
        .collect();
    assert_eq!(names, listed, "the source, and the list in src/failpoint.rs");
    found.sort();
    assert!(found.windows(2).all(|two| two[0] != two[1]), "two places have one name: {found:?}");
}
