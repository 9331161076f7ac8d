//! Commands and steps that end jobs which are not open, killed when the outcomes are written and the database is not: the
//! state opens, and the same again comes to its end.
#![allow(clippy::unwrap_used)]

use std::fs;

use serde_json::json;

use crate::support::TestEnv;
use crate::support::process::Running;

/// The service does its work, and nothing of it is ever heard.
const UNHEARD: &str = "[[rules]]\non = 'create'\neffect = { do = 'drop', when = 'after' }\n";

/// Kills it at a step.
#[track_caller]
fn dies_at(step: &str, env: &TestEnv, arguments: &[&str]) {
    let mut dying = env.command(arguments.iter().copied());
    dying.env("CALLSHEET_FAILPOINT", step);
    Running::start(dying).end().was_killed(step);
}

/// Kills it between the two writes of its commit. What was written before counts for nothing.
#[track_caller]
fn dies(env: &TestEnv, arguments: &[&str]) {
    dies_at("outcomes-written", env, arguments);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

/// The same, and then again without a kill.
#[track_caller]
fn dies_and_is_repeated(env: &TestEnv, arguments: &[&str]) {
    dies(env, arguments);
    env.run(arguments.iter().copied()).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

fn short() -> serde_json::Value {
    json!({"id": "short", "kind": "shorts-studio", "max_credits": 100, "options": {"topic": "a boat"}})
}

fn charged(env: &TestEnv) -> u64 {
    let status = env.run(["status", "--json"]).exited(0).json();
    status["batches"][0]["charged_credits"].as_u64().unwrap()
}

#[test]
fn a_doubt_that_is_resolved_and_a_charge_that_is_corrected() {
    let env = TestEnv::with_faults(UNHEARD);
    let parked = json!({"id": "boat", "kind": "video", "model": "house-c1", "prompt": "a boat"});
    env.write("m.json", json!([short(), parked]).to_string());
    env.run(["run", "m.json", "--budget", "100"]).exited(4);
    dies_and_is_repeated(&env, &["resolve", "short", "--not-charged"]);
    assert_eq!(charged(&env), 0);
    dies_and_is_repeated(&env, &["resolve", "short", "--charged", "20"]);
    assert_eq!(charged(&env), 20);
}

#[test]
fn a_job_that_is_resolved_where_it_waits_in_a_rebuilt_state() {
    let env = TestEnv::new();
    env.write("m.csv", "id,kind,model,prompt\nstill,image,gi-2,A fox\nother,image,gi-2,A cat\n");
    env.run(["run", "m.csv", "--budget", "0"]).exited(4);
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    dies_and_is_repeated(&env, &["resolve", "m/other", "--charged", "8"]);
    assert_eq!(charged(&env), 8);
}

#[test]
fn a_job_without_a_key_that_is_in_doubt_as_soon_as_its_turn_comes() {
    let env = TestEnv::new();
    env.write("m.json", json!([short()]).to_string());
    let run = ["run", "m.json", "--budget", "100"];
    dies_at("accepted", &env, &run);
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    env.run(["resume"]).exited(0);
    dies(&env, &run);
    env.run(run).exited(7);
    assert_eq!(env.audit().posts(), 0);
}

#[test]
fn rows_that_became_too_dear_before_their_turn() {
    let env = TestEnv::new();
    let row =
        |id: &str| json!({"id": id, "kind": "video", "model": "house-c1", "prompt": id, "max_credits": 10});
    env.write("m.json", json!([row("boat"), row("fox")]).to_string());
    let run = ["run", "m.json", "--budget", "20"];
    dies_at("accepted", &env, &run);
    env.prices(&json!({"multiply": 2}));
    dies(&env, &run);
    env.run(run).exited(1).says("the price is 20 credits now");
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_decision_about_outputs() {
    let env = TestEnv::new();
    env.write("m.csv", "id,kind,model,prompt,count,review\nposter,image,gi-2,A harbour,2,yes\n");
    env.run(["run", "m.csv"]).exited(7);
    dies_and_is_repeated(&env, &["review", "pick", "m/poster-v2"]);
    env.audit().each_paid_once(2);
}
