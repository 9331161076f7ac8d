//! Batches that were done long ago: out of the way, and back as they were when somebody names them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use callsheet::failpoint;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

const SOON: &str = "[retention]\narchive_after = \"1ms\"";
const NEVER: &str = "[retention]\narchive_after = \"never\"";

fn archive(env: &TestEnv) -> std::path::PathBuf {
    env.path("state/archive/000001")
}

fn is_archived(env: &TestEnv) -> bool {
    archive(env).join("record.json").exists() && !env.path("state/spool/000001").exists()
}

fn status(env: &TestEnv) -> Value {
    env.run(["status", "--json"]).exited(0).json()
}

/// A batch of five images that is done and archived; no daemon runs, and the next archives nothing.
fn archived() -> TestEnv {
    let env = TestEnv::new();
    env.configure(SOON);
    env.write("batch.csv", manifests::manifest("image", 5));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    until("the archive", || is_archived(&env));
    daemon.stop();
    env.configure(NEVER);
    env
}

fn is_sound(env: &TestEnv) {
    env.run(["state", "verify"]).exited(0).says("all fits");
}

/// Its five images, once.
fn is_paid_once(env: &TestEnv) {
    let ids = manifests::ids("image", 5);
    env.audit().each_paid_once(5);
    Outputs::of(env, "batch").is_complete(&ids);
}

#[test]
fn what_was_done_long_ago_is_archived_with_its_outputs_left_alone() {
    let env = archived();
    let seen = status(&env);
    assert_eq!((seen["batches"].as_array().unwrap().len(), &seen["archived"]), (0, &1.into()));
    env.run(["status"]).exited(0).says("not listed: 1 archived; give a name to see one");
    for list in [["ledger", "--csv"], ["ledger", "--json"], ["jobs", "--json"]] {
        env.run(list).exited(0).says("1 archived batch is not listed; give its name to see it");
    }
    is_sound(&env);
    is_paid_once(&env);
    // Naming it brings it back, and then nothing is left out.
    env.run(["ledger", "batch"]).exited(0);
    assert!(!env.run(["ledger"]).exited(0).stderr.contains("archived"));
}

#[test]
fn a_batch_that_is_named_answers_as_if_it_had_never_left() {
    let env = TestEnv::new();
    env.configure(NEVER);
    env.write("batch.csv", manifests::manifest("image", 5));
    env.run(["run", "batch.csv"]).exited(0);
    let questions: [&[&str]; 5] = [
        &["status", "batch", "--json"],
        &["jobs", "batch", "--json"],
        &["ledger", "batch", "--json"],
        &["explain", "batch/image-2", "--json"],
        &["retry", "batch", "--json"],
    ];
    let ask = |question: &[&str]| env.run(question.iter().copied()).exited(0).stdout;
    let before = questions.map(ask);
    for with_daemon in [false, true] {
        for (question, before) in questions.iter().zip(&before) {
            env.configure(SOON);
            let archiving = env.daemon("info");
            until("the archive", || is_archived(&env));
            archiving.stop();
            env.configure(NEVER);
            let running = with_daemon.then(|| env.daemon("info"));
            assert_eq!(ask(question), *before, "{question:?}, daemon: {with_daemon}");
            assert!(!is_archived(&env), "{question:?} brought it back");
            assert_eq!(status(&env)["batches"][0]["name"], "batch", "{question:?}");
            if let Some(running) = running {
                running.stop();
            }
        }
    }
    is_sound(&env);
    is_paid_once(&env);
}

#[test]
fn the_same_manifest_buys_nothing_of_an_archived_batch_and_a_longer_one_the_difference() {
    let env = archived();
    let plan = env.run(["plan", "batch.csv", "--json"]).exited(0).json();
    assert_eq!((&plan["jobs"]["new"], &plan["jobs"]["done"]), (&0.into(), &5.into()));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(0).says("0 new (0 credits), 5 already there");
    is_paid_once(&env);
    env.write("batch.csv", manifests::manifest("image", 7));
    env.run(["submit", "batch.csv", "--wait"]).exited(0).says("2 new");
    until("its results", || Outputs::of(&env, "batch").column("id").len() == 7);
    daemon.stop();
    env.audit().each_paid_once(7);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 7));
    is_sound(&env);
}

#[test]
fn a_run_takes_an_archived_batch_up_and_another_gets_a_number_of_its_own() {
    let env = archived();
    env.write("other.csv", manifests::manifest("speech", 2));
    env.run(["run", "other.csv"]).exited(0);
    assert!(env.path("state/spool/000002/rows").exists(), "no number is given twice");
    env.run(["run", "batch.csv"]).exited(0).says("5 already there");
    assert!(env.path("state/spool/000001/rows").exists());
    is_sound(&env);
    env.audit().each_paid_once(7);
}

#[test]
fn a_daemon_killed_between_the_commit_and_the_move_has_every_batch_in_its_place() {
    for step in failpoint::OF_RETENTION {
        let env = TestEnv::new();
        env.configure(SOON);
        env.write("batch.csv", manifests::manifest("image", 5));
        if step == "archived" {
            let mut dying = env.command(["daemon", "--log-level", "info"]);
            dying.env("CALLSHEET_FAILPOINT", step);
            let dying = Running::start(dying);
            dying.says("ready");
            env.run(["submit", "batch.csv"]).exited(0);
            dying.end().was_killed(step);
            assert!(env.path("state/spool/000001/record.json").exists(), "killed before the move");
        } else {
            let archiving = env.daemon("info");
            env.run(["submit", "batch.csv", "--wait"]).exited(0);
            until("the archive", || is_archived(&env));
            archiving.stop();
            let mut dying = env.command(["status", "batch"]);
            dying.env("CALLSHEET_FAILPOINT", step);
            Running::start(dying).end().was_killed(step);
            assert!(env.path("state/spool/000001/record.json").exists(), "killed after the move");
        }
        env.configure(NEVER);
        is_sound(&env);
        assert!(is_archived(&env), "{step}: the database says where it belongs");
        env.run(["run", "batch.csv"]).exited(0).says("5 already there");
        is_sound(&env);
        is_paid_once(&env);
    }
}

#[test]
fn a_batch_whose_archive_was_moved_away_is_refused_rather_than_bought_again() {
    let env = archived();
    let elsewhere = env.path("elsewhere");
    fs::rename(archive(&env), &elsewhere).unwrap();
    is_sound(&env);
    let refused = env.run(["run", "batch.csv"]).exited(2);
    refused.says("batch batch was archived and is no longer in");
    fs::rename(&elsewhere, archive(&env)).unwrap();
    env.run(["run", "batch.csv"]).exited(0).says("5 already there");
    is_paid_once(&env);
}

#[test]
fn an_export_carries_archived_batches_and_a_rebuild_finds_them() {
    let env = archived();
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    env.run(["--state", "imported", "state", "import", "dump.jsonl"]).exited(0).says("1 batches with 5 jobs");
    env.run(["--state", "imported", "state", "verify"]).exited(0).says("all fits");
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["run", "batch.csv"]).exited(6);
    env.run(["state", "rebuild"]).exited(0).says("rebuilt 1 batches with 5 jobs: 5 have ended");
    is_sound(&env);
    env.run(["run", "batch.csv"]).exited(0).says("5 already there");
    is_paid_once(&env);
}

#[test]
fn a_client_that_goes_away_while_a_batch_comes_back_leaves_it_where_it_is_seen() {
    let env = archived();
    let daemon = env.daemon("info");
    until("it to be back", || {
        let mut client = UnixStream::connect(env.path("state/callsheet.sock")).unwrap();
        client.write_all(b"GET /v1/status?batch=batch HTTP/1.1\r\nhost: callsheet\r\n\r\n").unwrap();
        drop(client);
        !is_archived(&env)
    });
    until("it to be listed", || status(&env)["batches"][0]["name"] == "batch");
    let named = env.run(["status", "batch", "--json"]).exited(0).json();
    assert_eq!(named["batches"][0]["succeeded"], 5, "{named:#}");
    daemon.stop();
    is_sound(&env);
    is_paid_once(&env);
}
