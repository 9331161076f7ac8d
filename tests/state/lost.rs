//! A job was bought, its answer was lost, and the state with it: rebuilt, carried elsewhere, or begun anew. Whatever its
//! owner says then, there is one task and one charge, and the books know it.
#![allow(clippy::unwrap_used)]

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::harvest::Harvest;
use crate::support::{Stage, scripts, until};

const RUN: [&str; 3] = ["run", "--json", "batch.csv"];
/// The service does its work, and nothing of it is ever heard.
const UNHEARD: &str = "[[rules]]\non = 'create'\neffect = { do = 'drop', when = 'after' }\n";

/// A batch whose first job is bought, and whose client was killed before it heard of that.
fn bought_and_unheard(manifest: &str, budget: &str) -> Stage {
    let stage = Stage::with_faults(UNHEARD);
    stage.configure("[limits]\nin_flight = 1\n");
    stage.write("batch.csv", manifest);
    let running = stage.start(["run", "batch.csv", "--budget", budget]);
    until("the job is bought", || stage.audit().tasks.len() == 1);
    running.signal(Signal::KILL);
    running.end().was_killed("while its answer is waited for");
    stage.faults("");
    stage
}

fn one_image() -> Stage {
    bought_and_unheard(&scripts::manifest("image", 1), "1000")
}

fn states(stage: &Stage) -> Vec<Value> {
    let told = stage.run(["jobs", "batch", "--json"]).exited(0).stdout;
    told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone()).collect()
}

/// Its owner drops it, wants it again, and lets it go on: it is collected, and paid for once.
#[track_caller]
fn is_paid_once_whatever_its_owner_says(stage: &Stage) {
    let canceled = stage.run(["cancel", "batch"]).exited(0);
    assert!(canceled.stderr.contains("0 canceled"), "{}", canceled.stderr);
    canceled.says("1 may have been sent before the state was rebuilt or imported").says("resolve");
    stage.run(["cancel", "batch/image-1"]).exited(0).says("may have been sent");
    assert_eq!(states(stage), ["queued"]);
    stage.run(["explain", "batch/image-1"]).exited(0);
    stage.run(["retry", "batch"]).exited(0);
    let posts = stage.audit().posts();
    stage.run(RUN).exited(7).says("paused");
    assert_eq!(stage.audit().posts(), posts, "nothing is asked before it is resumed");
    stage.run(["resume"]).exited(0);
    is_collected_and_paid_once(stage);
}

#[track_caller]
fn is_collected_and_paid_once(stage: &Stage) {
    let report = stage.run(RUN).exited(0).json();
    let audit = stage.audit();
    audit.each_paid_once(1);
    let harvest = Harvest::of(stage, "batch");
    harvest.is_complete(&["image-1".to_owned()]);
    harvest.agrees_with(&audit);
    assert_eq!(report["batches"][0]["charged_credits"], audit.totals.charged_credits);
    assert_eq!(report["batches"][0]["held_credits"], 0);
    stage.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn after_a_rebuild_of_a_whole_database() {
    let stage = one_image();
    stage.run(["state", "rebuild"]).exited(0);
    stage.run(["state", "verify"]).exited(0).says("all fits");
    is_paid_once_whatever_its_owner_says(&stage);
}

#[test]
fn after_a_rebuild_without_a_database() {
    let stage = one_image();
    fs::remove_dir_all(stage.path("state/db")).unwrap();
    stage.run(["state", "rebuild"]).exited(0);
    is_paid_once_whatever_its_owner_says(&stage);
}

#[test]
fn after_a_dump_that_was_taken_in() {
    let stage = one_image();
    stage.run(["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(stage.path("state")).unwrap();
    stage.run(["state", "import", "dump.jsonl"]).exited(0);
    stage.run(["state", "verify"]).exited(0).says("all fits");
    is_paid_once_whatever_its_owner_says(&stage);
}

#[test]
fn after_a_dump_that_is_older_than_what_was_sent() {
    let stage = Stage::with_faults(UNHEARD);
    stage.write("batch.csv", scripts::manifest("image", 1));
    stage.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    stage.run(["state", "export", "dump.jsonl"]).exited(0);
    let running = stage.start(["run", "batch.csv", "--budget", "1000"]);
    until("the job is bought", || stage.audit().tasks.len() == 1);
    running.signal(Signal::KILL);
    running.end().was_killed("while its answer is waited for");
    stage.faults("");
    fs::remove_dir_all(stage.path("state")).unwrap();
    stage.run(["state", "import", "dump.jsonl"]).exited(0);
    let canceled = stage.run(["cancel", "batch"]).exited(0);
    assert!(canceled.stderr.contains("0 canceled"), "{}", canceled.stderr);
    assert_eq!(states(&stage), ["queued"]);
    stage.run(["retry", "batch"]).exited(0);
    stage.run(["resume"]).exited(0);
    stage.run(["run", "batch.csv", "--budget", "1000"]).exited(0);
    is_collected_and_paid_once(&stage);
}

#[test]
fn after_a_state_that_was_begun_anew() {
    let stage = one_image();
    fs::remove_dir_all(stage.path("state")).unwrap();
    stage.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    stage.run(["cancel", "batch"]).exited(0).says("1 canceled");
    stage.run(["retry", "batch"]).exited(0).says("under the key that it had");
    stage.run(["run", "batch.csv", "--budget", "1000"]).exited(0);
    is_collected_and_paid_once(&stage);
}

#[test]
fn what_was_set_aside_stays_so_for_what_may_have_been_bought() {
    let stage = bought_and_unheard(&scripts::manifest("music", 2), "60");
    stage.run(["state", "rebuild"]).exited(0);
    stage.run(["state", "verify"]).exited(0).says("all fits");
    let status = stage.run(["status", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["held_credits"], 60, "{status:#}");
    stage.run(["resume"]).exited(0);
    // Its own hold does not stand in its way, and nothing else is bought for it.
    stage.run(["run", "batch.csv", "--budget", "60"]).exited(4);
    stage.audit().each_paid_once(1);
    assert_eq!(states(&stage), ["succeeded", "queued"]);
}

#[test]
fn a_person_who_knows_what_was_charged_ends_it_where_it_waits() {
    let stage = one_image();
    let charged = stage.audit().totals.charged_credits.to_string();
    stage.run(["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(stage.path("state/db")).unwrap();
    stage.run(["state", "rebuild"]).exited(0);
    stage.run(["resolve", "batch/image-1", "--charged", "999"]).exited(2).says("--above-hold");
    stage.run(["resolve", "batch/image-1", "--charged", &charged]).exited(0);
    stage.run(["state", "verify"]).exited(0).says("all fits");
    assert_eq!(states(&stage), ["failed"]);
    let status = stage.run(["status", "batch", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["charged_credits"].to_string(), charged, "{status:#}");

    fs::remove_dir_all(stage.path("state")).unwrap();
    stage.run(["state", "import", "dump.jsonl"]).exited(0);
    stage.run(["resolve", "batch/image-1", "--not-charged"]).exited(0);
    stage.run(["state", "verify"]).exited(0).says("all fits");
    // Should the person be mistaken, the key still finds the task.
    stage.run(["retry", "batch"]).exited(0).says("under the key that it had");
    stage.run(["resume"]).exited(0);
    is_collected_and_paid_once(&stage);
}
