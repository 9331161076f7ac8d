//! What a rebuild makes of what it finds: the latest record of each thing counts, and nothing that is paid for or still
//! allowed is forgotten.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use callsheet_emulator::Options;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, manifests};

const RUN: [&str; 3] = ["run", "--json", "batch.csv"];

/// An image takes more than a tenth of a second, so that its task is read on a busy machine, too.
fn images(jobs: usize) -> TestEnv {
    let env = TestEnv::with(Options { speed: 300.0, ..Options::default() });
    env.write("batch.csv", manifests::manifest("image", jobs));
    env
}

fn killed_at<'a>(env: &TestEnv, step: &str, arguments: impl IntoIterator<Item = &'a str>) {
    let mut command = env.command(arguments);
    command.env("CALLSHEET_FAILPOINT", step);
    Running::start(command).end().was_killed(step);
}

/// As if the database were an older one: it can be read, and is not to be trusted.
fn distrust_the_database(env: &TestEnv) {
    fs::write(env.path("state/commits"), 1_000_000_u64.to_be_bytes()).unwrap();
    env.run(["status"]).exited(6).says("commit 1000000 was acknowledged");
}

fn status(env: &TestEnv) -> Value {
    env.run(["status", "--json"]).exited(0).json()["batches"][0].clone()
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_dir(&path, &target) } else { assert!(fs::copy(&path, &target).is_ok()) }
    }
}

/// Canceled before it was sent, it is asked for again under its key.
#[test]
fn what_was_asked_for_again_under_its_key_and_sent_is_not_forgotten() {
    let env = images(1);
    env.run(["run", "batch.csv", "--budget", "1"]).exited(4);
    env.run(["cancel", "batch/image-1"]).exited(0);
    env.run(["retry", "batch/image-1"]).exited(0);
    env.run(["budget", "batch", "100"]).exited(0);
    killed_at(&env, "task-known:1", RUN);
    distrust_the_database(&env);
    env.run(["state", "rebuild"]).exited(0).says("0 have ended").says("1 are open");
    let batch = status(&env);
    assert_eq!((&batch["charged_credits"], &batch["held_credits"]), (&8.into(), &0.into()), "{batch:#}");
    env.run(["resume"]).exited(0);
    env.run(RUN).exited(0);
    env.audit().each_paid_once(1);
    assert_eq!(Outputs::of(&env, "batch").column("state"), ["succeeded"]);
}

/// What a command said after the database was copied is in the backup of the batch.
#[test]
fn an_older_database_brings_no_older_budget_back() {
    let env = images(3);
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["budget", "batch", "1000"]).exited(0);
    copy_dir(&env.path("state/db"), &env.path("older"));
    env.run(["budget", "batch", "8"]).exited(0);
    fs::remove_dir_all(env.path("state/db")).unwrap();
    copy_dir(&env.path("older"), &env.path("state/db"));
    env.run(["status"]).exited(6);
    env.run(["state", "rebuild"]).exited(0);
    assert_eq!(status(&env)["budget_credits"], 8);
    env.run(["resume"]).exited(0);
    env.run(RUN).exited(4);
    env.audit().each_paid_once(1);
}

/// The folder of a finished batch was moved away: what it was charged today still counts for today.
#[test]
fn what_a_moved_batch_was_charged_today_counts_for_today() {
    let env = images(2);
    env.configure("[budget]\nper_day = 24\n");
    env.run(RUN).exited(0);
    env.write("next.csv", "id,kind,model,prompt\nnext-1,image,gi-2,A lighthouse\nnext-2,image,gi-2,A buoy\n");
    fs::rename(env.path("state/spool/000001"), env.path("moved")).unwrap();
    env.run(["state", "export", "export.jsonl"]).exited(0);
    for (is_database_lost, rebuild) in
        [(false, &["state", "rebuild"][..]), (true, &["state", "rebuild", "--export", "export.jsonl"])]
    {
        if is_database_lost {
            fs::remove_dir_all(env.path("state/db")).unwrap();
        }
        env.run(rebuild.iter().copied()).exited(0);
        env.run(["state", "verify"]).exited(0).says("all fits");
        let plan = env.run(["plan", "next.csv"]).exited(0);
        assert!(plan.stdout.contains("may spend 24 a day, 8 are left today"), "{}", plan.stdout);
    }
    env.run(["run", "next.csv"]).exited(4);
    env.audit().each_paid_once(3);
}

/// What only the database knew is not lost with a rebuild that is killed.
#[test]
fn a_rebuild_that_was_killed_is_repeated_with_what_the_old_database_knew() {
    let env = images(2);
    env.configure("[limits]\nin_flight = 1\n");
    killed_at(&env, "task-known:1", RUN);
    let tasks = env.audit().tasks.len();
    distrust_the_database(&env);
    killed_at(&env, "database-replaced", ["state", "rebuild"]);
    assert!(!env.path("state/db").exists());
    env.run(["status"]).exited(6).says("it is missing");
    env.run(["state", "rebuild"]).exited(0).says("state/aside/db-1");
    env.run(["state", "verify"]).exited(0).says("all fits");
    let batch = status(&env);
    assert_eq!(batch["charged_credits"], 8 * tasks, "{batch:#}");
    assert!(!env.path("state/db.replaced").exists());
    env.run(["resume"]).exited(0);
    env.run(RUN).exited(0);
    env.audit().each_paid_once(2);
}

/// Of a batch that is finished, and of one that is not.
#[test]
fn rows_that_are_missing_come_back_from_an_export() {
    for kill_at in [None, Some("task-known:1")] {
        let env = images(2);
        match kill_at {
            None => drop(env.run(RUN).exited(0)),
            Some(step) => killed_at(&env, step, RUN),
        }
        env.run(["state", "export", "export.jsonl"]).exited(0);
        fs::remove_file(env.path("state/spool/000001/rows")).unwrap();
        let verified = env.run(["state", "verify"]).exited(6);
        if kill_at.is_none() {
            assert!(verified.stderr.contains("spool/000001/rows: it is missing"), "{}", verified.stderr);
            verified.says("1 faults");
        }
        let refused = env.run(["state", "rebuild"]).exited(6).says("it is missing");
        refused.says("callsheet state rebuild --export FILE");
        env.run(["state", "rebuild", "--export", "export.jsonl"]).exited(0).says("taken from the export");
        env.run(["state", "verify"]).exited(0).says("all fits");
        if kill_at.is_some() {
            env.run(["resume"]).exited(0);
        }
        env.run(RUN).exited(0);
        env.audit().each_paid_once(2);
    }
}

/// Its export lists it among the others; with its folder gone nothing else knows it.
#[test]
fn a_finished_batch_that_was_moved_away_is_known_from_an_export() {
    let env = images(2);
    env.run(RUN).exited(0);
    env.run(["state", "export", "export.jsonl"]).exited(0);
    let folder = env.path("state/spool/000001");
    fs::rename(&folder, env.path("moved")).unwrap();
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild", "--export", "export.jsonl"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.run(RUN).exited(2).says("put them back");
    env.audit().each_paid_once(2);
    // It is what it was once it is back.
    fs::rename(env.path("moved"), &folder).unwrap();
    env.run(["state", "verify"]).exited(0).says("all fits");
    let report = env.run(RUN).exited(0).json();
    assert_eq!(report["batches"][0]["charged_credits"], 16);
    env.audit().each_paid_once(2);
}

/// Its jobs may be on their way: that it is gone is said.
#[test]
fn a_batch_that_was_not_finished_and_is_gone_stops_a_rebuild() {
    let env = images(2);
    env.write("other.csv", "id,kind,model,prompt\nother-1,image,gi-2,A lighthouse\n");
    env.run(["run", "other.csv", "--budget", "0"]).exited(4);
    env.run(["state", "export", "export.jsonl"]).exited(0);
    killed_at(&env, "task-known:1", RUN);
    let folder = env.path("state/spool/000002");
    fs::rename(&folder, env.path("moved")).unwrap();
    for rebuild in [&["state", "rebuild"][..], &["state", "rebuild", "--export", "export.jsonl"]] {
        let refused = env.run(rebuild.iter().copied()).exited(6);
        refused
            .says("nothing is left of batch batch; if its folder was moved away, put it back")
            .says("accepted rows are in an export and nowhere else: callsheet state rebuild --export FILE");
    }
    fs::rename(env.path("moved"), &folder).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    env.run(["resume"]).exited(0);
    env.run(RUN).exited(0);
    env.audit().each_paid_once(2);
}

/// Of a state whose database is whole, and of one without.
#[test]
fn a_batch_whose_folder_is_gone_comes_back_from_an_export() {
    for is_database_lost in [false, true] {
        let env = images(3);
        env.configure("[limits]\nin_flight = 1\n");
        killed_at(&env, "task-known:1", RUN);
        env.run(["state", "export", "export.jsonl"]).exited(0);
        // More is sent since.
        killed_at(&env, "task-known:2", RUN);
        let sent = env.audit().tasks.len();
        fs::remove_dir_all(env.path("state/spool/000001")).unwrap();
        if is_database_lost {
            fs::remove_dir_all(env.path("state/db")).unwrap();
        } else {
            let hint = "callsheet state rebuild --export FILE";
            env.run(["status"]).exited(6).says(hint);
            env.run(["state", "rebuild"]).exited(6).says(hint);
        }
        let rebuilt = env.run(["state", "rebuild", "--export", "export.jsonl"]).exited(0);
        rebuilt.says("the folder of batch batch was missing, and was taken from the export");
        env.run(["state", "verify"]).exited(0).says("all fits");
        env.run(RUN).exited(7).says("paused");
        assert_eq!(env.audit().tasks.len(), sent, "nothing is sent before it is resumed");
        env.run(["explain", "batch/image-3"]).exited(0);
        env.run(["resume"]).exited(0);
        env.run(RUN).exited(0);
        env.audit().each_paid_once(3);
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

/// A later export has the rows that this one lacks.
#[test]
fn an_export_that_lacks_rows_of_a_batch_whose_folder_is_gone_is_not_enough() {
    let env = images(1);
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["state", "export", "export.jsonl"]).exited(0);
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["state", "export", "later.jsonl"]).exited(0);
    fs::remove_dir_all(env.path("state/spool/000001")).unwrap();
    let refused = env.run(["state", "rebuild", "--export", "export.jsonl"]).exited(6);
    refused.says("nothing is left of batch batch, and the export lacks some of its rows");
    assert!(!env.path("state/spool/000001").exists());
    env.run(["state", "rebuild", "--export", "later.jsonl"]).exited(0).says("rebuilt 1 batch with 2 jobs");
}

/// One of them has spent its budget, and more rows than the queue shows.
#[test]
fn a_client_without_budget_keeps_no_other_from_being_served() {
    let env = TestEnv::new();
    env.configure("[budget.by.\"meta.client\"]\ndefault = 10\n");
    let row = |client: &str, n| format!("{client}-{n},sound-effect,a gull {client} {n},1,{client}\n");
    let rows = (1..=100).map(|n| row("acme", n)).chain((1..=3).map(|n| row("beta", n)));
    env.write(
        "batch.csv",
        format!("id,kind,prompt,duration_seconds,meta.client\n{}", rows.collect::<String>()),
    );
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.csv", "--budget", "1000"]).exited(4);
    let jobs = env.run(["jobs", "batch", "--state", "succeeded", "--json"]).exited(0).stdout;
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    let mut succeeded: Vec<String> = jobs.lines().map(id).collect();
    succeeded.sort();
    assert_eq!(succeeded, ["acme-1", "acme-2", "beta-1", "beta-2"]);
}

/// The database is whole: what an older export has of a job that has ended since counts for nothing.
#[test]
fn an_older_export_brings_nothing_back_that_a_whole_database_knows_the_end_of() {
    let env = images(2);
    killed_at(&env, "task-known:1", RUN);
    env.run(["state", "export", "export.jsonl"]).exited(0);
    env.run(RUN).exited(0);
    let rebuilt = env.run(["state", "rebuild", "--export", "export.jsonl"]).exited(0);
    rebuilt.says("2 have ended (0 of them known from their sidecars), 0 are open");
    env.run(["state", "verify"]).exited(0).says("all fits");
    assert_eq!(status(&env)["charged_credits"], 16);
    env.audit().each_paid_once(2);
}

/// Each state counts its batches from 1: by their numbers alone, rows and outcomes of another one would be taken for its own.
#[test]
fn an_export_of_another_state_is_refused() {
    let env = images(2);
    env.write(
        "other.csv",
        "id,kind,model,prompt\nother-1,image,gi-2,A lighthouse\nother-2,image,gi-2,A buoy\n",
    );
    let begin_anew = || {
        fs::remove_dir_all(env.path("state")).unwrap();
        env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
        fs::remove_dir_all(env.path("state/db")).unwrap();
    };
    let rebuild = |export: &str| env.run(["state", "rebuild", "--export", export]);
    env.run(["run", "other.csv"]).exited(0);
    env.run(["state", "export", "old.jsonl"]).exited(0);
    begin_anew();
    rebuild("old.jsonl").exited(2).says("batch 1 is other there, and batch in this state");
    env.run(["state", "rebuild"]).exited(0).says("rebuilt 1 batch with 2 jobs: 0 have ended");
    assert_eq!(status(&env)["name"], "batch");

    env.run(["state", "export", "same-name.jsonl"]).exited(0);
    begin_anew();
    rebuild("same-name.jsonl").exited(2).says("batch 1 is batch, begun ").says("nothing was changed");

    let elsewhere = images(2);
    elsewhere.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    elsewhere.run(["state", "export", "export.jsonl"]).exited(0);
    let export = elsewhere.path("export.jsonl");
    rebuild(export.to_str().unwrap()).exited(2).says(&format!("it belongs to {}", elsewhere.base_url()));
    env.run(["state", "rebuild"]).exited(0);
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.csv", "--budget", "1000"]).exited(0);
    env.audit().each_paid_once(4);
}

/// A row goes back to what it was before, which was never sent, and waits for its owner: the state that is rebuilt waits, too.
#[test]
fn a_row_that_went_back_to_an_earlier_version_waits_and_counts_after_a_rebuild() {
    let env = images(1);
    let manifest = |prompt: &str| format!("id,kind,model,prompt\none,image,gi-2,{prompt}\n");
    env.write("s.csv", manifest("first"));
    env.run(["run", "s.csv", "--budget", "0"]).exited(4);
    env.write("s.csv", manifest("second"));
    env.run(["run", "s.csv", "--budget", "8"]).exited(0);
    env.write("s.csv", manifest("first"));
    env.run(["run", "s.csv"]).exited(4);
    env.run(["pause", "s"]).exited(0);
    env.run(["budget", "s", "200"]).exited(0);
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    assert_eq!(status(&env)["state"], "paused");
    env.run(["run", "s.csv"]).exited(7);
    env.audit().each_paid_once(1);
    env.run(["resume", "s"]).exited(0);
    env.run(["run", "s.csv"]).exited(0);
    env.audit().each_paid_once(2);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn rows_of_a_batch_that_nothing_knows_are_set_aside_and_no_other_takes_their_place() {
    let env = images(2);
    env.run(["run", "batch.csv", "--budget", "8"]).exited(4);
    let folder = env.path("state/spool/000001");
    let rows = fs::read(folder.join("rows")).unwrap();
    fs::remove_file(folder.join("batch.json")).unwrap();
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0).says("belong to no known batch; they are in ");
    env.write("other.csv", manifests::manifest("image", 1));
    env.run(["run", "other.csv"]).exited(0);
    assert_eq!(fs::read(env.path("state/aside/spool-000001-1/rows")).unwrap(), rows);
}
