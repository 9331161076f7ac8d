//! `kill -9`, at every step of a job's life and at random moments: one task and one charge a job, every
//! file whole, nothing left behind.
//!
//! The client is killed as a process; what it cost is counted on the service's side.
#![allow(clippy::print_stderr, reason = "a seed that is not shown cannot be played again")]

use std::time::Duration;

use callsheet::failpoint;
use callsheet_emulator::Options;

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, case_share, manifests};

const RUN: [&str; 3] = ["run", "--json", "batch.csv"];

/// Steps that a batch passes once, whatever is in it.
const OF_THE_MANIFEST: [&str; 5] = ["accepting", "taken", "accepted", "finishing", "reporting"];
/// Steps of jobs whose task is read: sounds are rendered within the call that asks for them.
const OF_POLLED_KINDS: [&str; 2] = ["task-known", "read"];

/// The steps at which a client that works on jobs of this kind can be killed.
fn steps(kind: &str) -> Vec<String> {
    let is_polled = matches!(kind, "video" | "image");
    let names = failpoint::OF_A_RUN.into_iter().filter(|name| is_polled || !OF_POLLED_KINDS.contains(name));
    let times = |name| if OF_THE_MANIFEST.contains(&name) { 1..=1 } else { 1..=2 };
    names.flat_map(|name| times(name).map(move |n| format!("{name}:{n}"))).collect()
}

/// Kills the client at `step`, then lets the same command run to its end.
fn killed_at(step: &str, env: &TestEnv) {
    let mut command = env.command(RUN);
    command.env("CALLSHEET_FAILPOINT", step);
    crate::support::process::Running::start(command).end().was_killed(step);
    ends_well(env, step);
}

fn ends_well(env: &TestEnv, after: &str) {
    let report = env.run(RUN).exited(0).json();
    let batch = &report["batches"][0];
    assert_eq!(batch["held_credits"], 0, "after {after}: every hold was settled: {batch:#}");
    assert_eq!(batch["charged_credits"], env.audit().totals.charged_credits, "after {after}");
}

fn is_paid_once_and_whole(env: &TestEnv, ids: &[String]) {
    let (audit, outputs) = (env.audit(), Outputs::of(env, "batch"));
    audit.each_paid_once(ids.len());
    outputs.is_complete(ids);
    outputs.agrees_with(&audit);
}

/// One job at a time, so that the n-th hit of a step is the n-th job's. The service is so slow that no task has ended
/// before its call is answered, on a busy machine either: it would never be read.
fn killed_at_every_step(kind: &str, first: usize) {
    const JOBS: usize = 3;
    let speed = if kind == "image" { 150.0 } else { 1_000.0 };
    for step in case_share::of_this_run(steps(kind), first) {
        let env = TestEnv::with(Options { speed, ..Options::default() });
        env.configure("[limits]\nin_flight = 1\ndownloads = 1");
        env.write("batch.csv", manifests::manifest(kind, JOBS));
        killed_at(&step, &env);
        is_paid_once_and_whole(&env, &manifests::ids(kind, JOBS));
    }
}

#[test]
fn videos_survive_a_kill_at_every_step() {
    killed_at_every_step("video", 0);
}

#[test]
fn images_survive_a_kill_at_every_step() {
    killed_at_every_step("image", 1);
}

#[test]
fn music_survives_a_kill_at_every_step() {
    killed_at_every_step("music", 2);
}

#[test]
fn speech_survives_a_kill_at_every_step() {
    killed_at_every_step("speech", 3);
}

#[test]
fn sound_effects_survive_a_kill_at_every_step() {
    killed_at_every_step("sound-effect", 4);
}

#[test]
fn a_batch_of_all_kinds_at_once_survives_a_kill_at_every_step() {
    for step in case_share::of_this_run(failpoint::OF_A_RUN, 1) {
        let env = TestEnv::new();
        let (manifest, ids) = manifests::of_all_kinds(2);
        env.write("batch.csv", manifest);
        killed_at(step, &env);
        is_paid_once_and_whole(&env, &ids);
    }
}

#[test]
fn a_client_that_is_killed_at_every_step_in_turn_gets_there_all_the_same() {
    let env = TestEnv::new();
    let (manifest, ids) = manifests::of_all_kinds(2);
    env.write("batch.csv", manifest);
    for step in failpoint::OF_A_RUN.into_iter() {
        let mut command = env.command(RUN);
        command.env("CALLSHEET_FAILPOINT", step);
        // A later life may have no use for an earlier step.
        let outcome = crate::support::process::Running::start(command).end();
        assert!(outcome.signal == Some(9) || outcome.code == Some(0), "{step}: {outcome:?}");
    }
    ends_well(&env, "all of them");
    is_paid_once_and_whole(&env, &ids);
}

/// Kills the client again and again, at moments drawn from a seed, until it gets to the end.
fn killed_at_random_moments(faults: &str, trials: u64, seed: u64) {
    const KILLS_MAX: u32 = 5;
    const LONGEST_LIFE_MS: u64 = 700;
    for trial in 0..trials {
        let seed = seed.wrapping_add(trial);
        eprintln!("random kills under {faults}, CALLSHEET_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let env = TestEnv::with(slower());
        env.faults(faults);
        let (manifest, ids) = manifests::of_all_kinds(3);
        env.write("batch.csv", manifest);
        for _ in 0..KILLS_MAX {
            let life = Duration::from_millis(random.u64(1..LONGEST_LIFE_MS));
            let outcome = env.start(RUN).end_or_kill_after(life);
            if outcome.signal != Some(9) {
                outcome.exited(0);
                break;
            }
        }
        ends_well(&env, &format!("kills from seed {seed}"));
        is_paid_once_and_whole(&env, &ids);
    }
}

/// Slow enough that a kill finds tasks in every state.
fn slower() -> callsheet_emulator::Options {
    callsheet_emulator::Options { speed: 100.0, ..Default::default() }
}

/// How many trials: `CALLSHEET_TRIALS`, or few enough for every day.
fn trials(usual: u64) -> u64 {
    std::env::var("CALLSHEET_TRIALS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Where the trials begin: `CALLSHEET_SEED`, to play one again, or anywhere.
fn seed() -> u64 {
    std::env::var("CALLSHEET_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..))
}

#[test]
fn random_kills_cost_nothing_twice() {
    killed_at_random_moments("calm", trials(6), seed());
}

#[test]
fn random_kills_on_a_bad_network_cost_nothing_twice() {
    killed_at_random_moments("flaky-network", trials(6), seed());
}

/// Shorts Studio honours no key: a kill may leave a job in doubt, but never two tasks.
#[test]
fn a_shorts_studio_job_is_sent_once_however_its_client_ends() {
    for (step, tasks) in [("admitted", 0), ("posted", 1)] {
        let env = TestEnv::new();
        let job =
            r#"{"id": "short", "kind": "shorts-studio", "options": {"topic": "a boat"}, "max_credits": 20}"#;
        env.write("batch.jsonl", job);
        let mut command = env.command(["run", "batch.jsonl"]);
        command.env("CALLSHEET_FAILPOINT", step);
        crate::support::process::Running::start(command).end().was_killed(step);
        env.run(["run", "batch.jsonl"]).exited(7);
        assert_eq!(env.audit().totals.tasks, tasks, "killed at {step}");
        assert_eq!(Outputs::of(&env, "batch").column("state"), ["in_doubt"]);
    }
}
