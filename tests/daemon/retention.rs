//! Batches that were done long ago: out of the way, and back as they were when somebody names them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use callsheet::failpoint;
use serde_json::Value;

use crate::support::harvest::Harvest;
use crate::support::process::Running;
use crate::support::{Stage, scripts, until};

const SOON: &str = "[retention]\narchive_after = \"1ms\"";
const NEVER: &str = "[retention]\narchive_after = \"never\"";

fn archive(stage: &Stage) -> std::path::PathBuf {
    stage.path("state/archive/000001")
}

fn is_archived(stage: &Stage) -> bool {
    archive(stage).join("record.json").exists() && !stage.path("state/spool/000001").exists()
}

fn status(stage: &Stage) -> Value {
    stage.run(["status", "--json"]).exited(0).json()
}

/// A batch of five images that is done and archived; no daemon runs, and the next archives nothing.
fn archived() -> Stage {
    let stage = Stage::new();
    stage.configure(SOON);
    stage.write("batch.csv", scripts::manifest("image", 5));
    let daemon = stage.daemon("info");
    stage.run(["submit", "batch.csv", "--wait"]).exited(0);
    until("the archive", || is_archived(&stage));
    daemon.stop();
    stage.configure(NEVER);
    stage
}

fn is_sound(stage: &Stage) {
    stage.run(["state", "verify"]).exited(0).says("all fits");
}

/// Its five images, once.
fn is_paid_once(stage: &Stage) {
    let ids = scripts::ids("image", 5);
    stage.audit().each_paid_once(5);
    Harvest::of(stage, "batch").is_complete(&ids);
}

#[test]
fn what_was_done_long_ago_is_archived_with_its_outputs_left_alone() {
    let stage = archived();
    let seen = status(&stage);
    assert_eq!((seen["batches"].as_array().unwrap().len(), &seen["archived"]), (0, &1.into()));
    stage.run(["status"]).exited(0).says("1 batches are archived; name one to see it");
    for list in [["ledger", "--csv"], ["ledger", "--json"], ["jobs", "--json"]] {
        stage.run(list).exited(0).says("1 batch is archived and not listed: name it to see it");
    }
    is_sound(&stage);
    is_paid_once(&stage);
    // Naming it brings it back, and then nothing is left out.
    stage.run(["ledger", "batch"]).exited(0);
    assert!(!stage.run(["ledger"]).exited(0).stderr.contains("archived"));
}

#[test]
fn a_batch_that_is_named_answers_as_if_it_had_never_left() {
    let stage = Stage::new();
    stage.configure(NEVER);
    stage.write("batch.csv", scripts::manifest("image", 5));
    stage.run(["run", "batch.csv"]).exited(0);
    let questions: [&[&str]; 5] = [
        &["status", "batch", "--json"],
        &["jobs", "batch", "--json"],
        &["ledger", "batch", "--json"],
        &["explain", "batch/image-2", "--json"],
        &["retry", "batch", "--json"],
    ];
    let ask = |question: &[&str]| stage.run(question.iter().copied()).exited(0).stdout;
    let before = questions.map(ask);
    for with_daemon in [false, true] {
        for (question, before) in questions.iter().zip(&before) {
            stage.configure(SOON);
            let archiving = stage.daemon("info");
            until("the archive", || is_archived(&stage));
            archiving.stop();
            stage.configure(NEVER);
            let running = with_daemon.then(|| stage.daemon("info"));
            assert_eq!(ask(question), *before, "{question:?}, daemon: {with_daemon}");
            assert!(!is_archived(&stage), "{question:?} brought it back");
            assert_eq!(status(&stage)["batches"][0]["name"], "batch", "{question:?}");
            if let Some(running) = running {
                running.stop();
            }
        }
    }
    is_sound(&stage);
    is_paid_once(&stage);
}

#[test]
fn the_same_manifest_buys_nothing_of_an_archived_batch_and_a_longer_one_the_difference() {
    let stage = archived();
    let plan = stage.run(["plan", "batch.csv", "--json"]).exited(0).json();
    assert_eq!((&plan["jobs"]["new"], &plan["jobs"]["done"]), (&0.into(), &5.into()));
    let daemon = stage.daemon("info");
    stage.run(["submit", "batch.csv", "--wait"]).exited(0).says("0 new (0 credits), 5 already there");
    is_paid_once(&stage);
    stage.write("batch.csv", scripts::manifest("image", 7));
    stage.run(["submit", "batch.csv", "--wait"]).exited(0).says("2 new");
    until("its results", || Harvest::of(&stage, "batch").column("id").len() == 7);
    daemon.stop();
    stage.audit().each_paid_once(7);
    Harvest::of(&stage, "batch").is_complete(&scripts::ids("image", 7));
    is_sound(&stage);
}

#[test]
fn a_run_takes_an_archived_batch_up_and_another_gets_a_number_of_its_own() {
    let stage = archived();
    stage.write("other.csv", scripts::manifest("speech", 2));
    stage.run(["run", "other.csv"]).exited(0);
    assert!(stage.path("state/spool/000002/rows").exists(), "no number is given twice");
    stage.run(["run", "batch.csv"]).exited(0).says("5 already there");
    assert!(stage.path("state/spool/000001/rows").exists());
    is_sound(&stage);
    stage.audit().each_paid_once(7);
}

#[test]
fn a_daemon_killed_between_the_commit_and_the_move_has_every_batch_in_its_place() {
    for step in failpoint::OF_RETENTION {
        let stage = Stage::new();
        stage.configure(SOON);
        stage.write("batch.csv", scripts::manifest("image", 5));
        if step == "archived" {
            let mut dying = stage.command(["daemon", "--log-level", "info"]);
            dying.env("CALLSHEET_FAILPOINT", step);
            let dying = Running::start(dying);
            dying.says("ready");
            stage.run(["submit", "batch.csv"]).exited(0);
            dying.end().was_killed(step);
            assert!(stage.path("state/spool/000001/record.json").exists(), "killed before the move");
        } else {
            let archiving = stage.daemon("info");
            stage.run(["submit", "batch.csv", "--wait"]).exited(0);
            until("the archive", || is_archived(&stage));
            archiving.stop();
            let mut dying = stage.command(["status", "batch"]);
            dying.env("CALLSHEET_FAILPOINT", step);
            Running::start(dying).end().was_killed(step);
            assert!(stage.path("state/spool/000001/record.json").exists(), "killed after the move");
        }
        stage.configure(NEVER);
        is_sound(&stage);
        assert!(is_archived(&stage), "{step}: the database says where it belongs");
        stage.run(["run", "batch.csv"]).exited(0).says("5 already there");
        is_sound(&stage);
        is_paid_once(&stage);
    }
}

#[test]
fn a_batch_whose_archive_was_moved_away_is_refused_rather_than_bought_again() {
    let stage = archived();
    let elsewhere = stage.path("elsewhere");
    fs::rename(archive(&stage), &elsewhere).unwrap();
    is_sound(&stage);
    let refused = stage.run(["run", "batch.csv"]).exited(2);
    refused.says("batch batch was archived and is no longer in");
    fs::rename(&elsewhere, archive(&stage)).unwrap();
    stage.run(["run", "batch.csv"]).exited(0).says("5 already there");
    is_paid_once(&stage);
}

#[test]
fn an_export_carries_archived_batches_and_a_rebuild_finds_them() {
    let stage = archived();
    stage.run(["state", "export", "dump.jsonl"]).exited(0);
    stage
        .run(["--state", "imported", "state", "import", "dump.jsonl"])
        .exited(0)
        .says("1 batches with 5 jobs");
    stage.run(["--state", "imported", "state", "verify"]).exited(0).says("all fits");
    fs::remove_dir_all(stage.path("state/db")).unwrap();
    stage.run(["run", "batch.csv"]).exited(6);
    stage.run(["state", "rebuild"]).exited(0).says("rebuilt 1 batches with 5 jobs: 5 have ended");
    is_sound(&stage);
    stage.run(["run", "batch.csv"]).exited(0).says("5 already there");
    is_paid_once(&stage);
}

#[test]
fn a_client_that_goes_away_while_a_batch_comes_back_leaves_it_where_it_is_seen() {
    let stage = archived();
    let daemon = stage.daemon("info");
    until("it to be back", || {
        let mut client = UnixStream::connect(stage.path("state/callsheet.sock")).unwrap();
        client.write_all(b"GET /v1/status?batch=batch HTTP/1.1\r\nhost: callsheet\r\n\r\n").unwrap();
        drop(client);
        !is_archived(&stage)
    });
    until("it to be listed", || status(&stage)["batches"][0]["name"] == "batch");
    let named = stage.run(["status", "batch", "--json"]).exited(0).json();
    assert_eq!(named["batches"][0]["succeeded"], 5, "{named:#}");
    daemon.stop();
    is_sound(&stage);
    is_paid_once(&stage);
}
