//! The line breaks after every single byte of a creating call (in a plain run after every fourth), on its way there and on its
//! way back, and the service comes and goes: one key and one charge for every wanted file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::time::Duration;

use callsheet_emulator::Options;

use crate::support::collect_outputs::Outputs;
use crate::support::proxy::{Cut, Passed, Proxy};
use crate::support::{TestEnv, case_share, fault_matrix, until};

/// Runs a batch through the line.
fn run(env: &TestEnv, proxy: &Proxy, batch: &str, jobs: usize) -> Vec<Passed> {
    // Names of one width, so that every call and every reply has one length.
    let ids: Vec<String> = (0..jobs).map(|n| format!("{batch}-{n:05}")).collect();
    let row = |id: &String| format!("{id},sound-effect,a gull {id},1\n");
    let rows: String = ids.iter().map(row).collect();
    let file = format!("{batch}.csv");
    env.write(&file, format!("id,kind,prompt,duration_seconds\n{rows}"));
    env.run(["run", &file, "--base-url", &proxy.base_url()]).exited(0);
    Outputs::of(env, batch).is_complete(&ids);
    proxy.passed()
}

/// One job for each byte of a call or reply, and one whose call passes whole.
fn cut_everywhere(cut: Cut) -> (TestEnv, Vec<Passed>) {
    let env = TestEnv::with(Options { speed: f64::INFINITY, credits: 100_000, ..Options::default() });
    env.configure("[limits]\nin_flight = 32\nadaptive = false");
    let proxy = Proxy::before(&env.base_url());
    proxy.cut(cut, 1);
    // The first is cut before its first byte, and tells the length.
    let length = run(&env, &proxy, "probe", 1)[0].length;
    assert!(length > 200, "a head and a body: {length}");
    let apart = case_share::one_of();
    proxy.cut(cut, apart);
    let cuts = length.div_ceil(apart);
    let passed = run(&env, &proxy, "bytes", cuts + 1);
    let places: BTreeSet<usize> = passed.iter().filter_map(|passed| passed.cut_at).collect();
    assert_eq!(places, (0..length).step_by(apart).collect(), "the line broke after every byte");
    assert_eq!(passed.len(), cuts + 1, "a key for each job, and no other");
    for passed in &passed {
        let sends = if passed.cut_at.is_some() { 2 } else { 1 };
        assert_eq!(passed.sends, sends, "sent again under its key, once: {passed:?}");
    }
    // And the probe.
    env.audit().each_paid_once(cuts + 2);
    (env, passed)
}

#[test]
fn a_reply_that_is_cut_after_any_byte_costs_nothing_twice() {
    let (env, passed) = cut_everywhere(Cut::Reply);
    let cut = passed.iter().filter(|passed| passed.cut_at.is_some()).count() as u64;
    assert_eq!(env.audit().totals.replays, cut + 1, "the service had taken every one of them");
}

#[test]
fn a_request_that_is_cut_after_any_byte_costs_nothing_twice() {
    let (env, _) = cut_everywhere(Cut::Request);
    assert_eq!(env.audit().totals.replays, 0, "the service had taken none of them");
}

/// Connections are refused, and those there are break, again and again; what is on its way breaks where
/// it is.
#[test]
fn a_service_that_comes_and_goes_is_paid_once() {
    let env = TestEnv::with(Options { speed: 100.0, ..Options::default() });
    let proxy = Proxy::before(&env.base_url());
    // Every kind four times: rows that say the same are told apart by their names.
    let numbered = |n: usize| fault_matrix::ROWS.replace("{\"id\": \"", &format!("{{\"id\": \"{n}-"));
    env.write("batch.jsonl", (0..4).map(numbered).collect::<String>());
    let address = proxy.base_url();
    let run = ["run", "batch.jsonl", "--base-url", &address];
    // The catalogs are asked for once, before anything is at stake.
    env.run(["plan", "batch.jsonl", "--base-url", &address]).exited(0);
    let running = env.start(run);
    until("the first tasks to be made", || env.audit().totals.tasks > 0);
    for _ in 0..6 {
        proxy.shut();
        std::thread::sleep(Duration::from_millis(60));
        proxy.open();
        std::thread::sleep(Duration::from_millis(60));
    }
    let outcome = running.end();
    assert!(matches!(outcome.code, Some(0 | 7)), "{outcome:?}");
    let (audit, outputs) = (env.audit(), Outputs::of(&env, "batch"));
    outputs.is_whole();
    let mut wanted = BTreeSet::new();
    for task in &audit.tasks {
        assert_eq!((task.charges, task.refunds), (1, 0), "{task:?}");
        assert!(task.key.is_none() || wanted.insert(task.key.clone()), "two tasks under one key: {task:?}");
    }
    for line in &outputs.lines {
        let is_short = line["kind"] == "shorts-studio";
        let state = line["state"].as_str().unwrap();
        assert!(state == "succeeded" || is_short && state == "in_doubt", "{line:#}");
    }
    let keyed = outputs.lines.iter().filter(|line| line["kind"] != "shorts-studio").count();
    assert_eq!(wanted.len(), keyed, "one task for each that has a key");
    // A short that is in doubt may have been made, once.
    assert!(audit.tasks.len() <= outputs.lines.len(), "{:#?}", audit.tasks);
}
