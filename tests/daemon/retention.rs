//! Batches that are done: out of the database and out of memory, and there for ever under their names.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use callsheet::failpoint;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

const SOON: &str = "[retention]\nlist_finished_for = \"1ms\"";
const FOREVER: &str = "[retention]\nlist_finished_for = \"forever\"";

fn folder(env: &TestEnv) -> PathBuf {
    env.path("state/spool/000001")
}

fn status(env: &TestEnv) -> Value {
    env.run(["status", "--json"]).exited(0).json()
}

/// A batch of five images that a daemon has finished and announced, and that is not listed any more.
fn finished() -> TestEnv {
    let env = TestEnv::new();
    env.configure(SOON);
    env.write("batch.csv", manifests::manifest("image", 5));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    daemon.says("results written");
    until("it not to be listed", || status(&env)["not_listed"] == 1);
    daemon.stop();
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

/// Every file of a state with its content, but for the database, the marks of who opened it and its checksums.
fn contents(state: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(state).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "db" {
            found.insert(path.clone(), Vec::new());
            found.extend(contents(&path));
        } else if path.is_file() && !["lock", "closed"].contains(&name) {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn what_was_done_long_ago_is_not_listed_and_its_outputs_are_left_alone() {
    let env = finished();
    let seen = status(&env);
    assert_eq!((seen["batches"].as_array().unwrap().len(), &seen["not_listed"]), (0, &1.into()));
    env.run(["status"]).exited(0).says("not listed: 1 finished; give a name to see one");
    for list in [["ledger", "--csv"], ["ledger", "--json"], ["jobs", "--json"]] {
        env.run(list).exited(0).says("1 finished batch is not listed; give its name to see it");
    }
    is_sound(&env);
    is_paid_once(&env);
    assert_eq!(env.run(["ledger", "batch", "--json"]).exited(0).stdout.lines().count(), 10);
    env.configure(FOREVER);
    assert!(!env.run(["ledger"]).exited(0).stderr.contains("listed"));
}

#[test]
fn reading_writes_nothing_whatever_is_asked_of_whichever_batch() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 5));
    env.run(["run", "batch.csv"]).exited(0);
    env.write("open.csv", manifests::manifest("speech", 3));
    let mut dying = env.command(["run", "open.csv"]);
    dying.env("CALLSHEET_FAILPOINT", "posted");
    Running::start(dying).end().was_killed("posted");
    // What the killed one left is put in order by the process that opens the state next.
    env.run(["status"]).exited(0);
    let state = env.path("state");
    let questions: [&[&str]; 13] = [
        &["status"],
        &["status", "--json"],
        &["status", "batch"],
        &["status", "open"],
        &["jobs"],
        &["jobs", "batch", "--json"],
        &["jobs", "open"],
        &["ledger"],
        &["ledger", "batch", "--csv"],
        &["ledger", "open"],
        &["explain", "batch/image-2"],
        &["explain", "image-2"],
        &["explain", "open/speech-1"],
    ];
    for listed in [FOREVER, SOON] {
        env.configure(listed);
        for question in questions.iter().filter(|question| listed == FOREVER || question[1..] != ["image-2"])
        {
            let before = contents(&state);
            env.run(question.iter().copied()).exited(0);
            let after = contents(&state);
            let changed: Vec<_> = before.keys().chain(after.keys()).collect();
            let changed = changed.into_iter().filter(|path| before.get(*path) != after.get(*path));
            assert_eq!(changed.collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "{question:?}");
        }
    }
}

#[test]
fn a_batch_that_is_named_answers_as_if_it_was_listed() {
    let env = finished();
    let questions: [&[&str]; 5] = [
        &["status", "batch", "--json"],
        &["jobs", "batch", "--json"],
        &["ledger", "batch", "--json"],
        &["explain", "batch/image-2", "--json"],
        &["retry", "batch", "--json"],
    ];
    let ask = |question: &[&str]| env.run(question.iter().copied()).exited(0).stdout;
    env.configure(FOREVER);
    let listed = questions.map(ask);
    env.configure(SOON);
    assert_eq!(questions.map(ask), listed);
    let daemon = env.daemon("info");
    assert_eq!(questions.map(ask), listed, "a daemon says the same");
    until("the list", || status(&env)["not_listed"] == 1);
    daemon.stop();
    is_sound(&env);
    is_paid_once(&env);
}

#[test]
fn the_same_manifest_buys_nothing_of_a_finished_batch_and_a_longer_one_the_difference() {
    let env = finished();
    let plan = env.run(["plan", "batch.csv", "--json"]).exited(0).json();
    assert_eq!((&plan["jobs"]["new"], &plan["jobs"]["done"]), (&0.into(), &5.into()));
    let daemon = env.daemon("info");
    let before = contents(&folder(&env));
    env.run(["submit", "batch.csv", "--wait"]).exited(0).says("0 new (0 credits), 5 already there");
    assert_eq!(contents(&folder(&env)), before, "what adds nothing changes nothing");
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
fn a_run_goes_on_with_a_finished_batch_and_another_gets_a_number_of_its_own() {
    let env = finished();
    env.write("other.csv", manifests::manifest("speech", 2));
    env.run(["run", "other.csv"]).exited(0);
    assert!(env.path("state/spool/000002/rows").exists(), "no number is given twice");
    env.run(["run", "batch.csv"]).exited(0).says("5 already there");
    env.write("batch.csv", manifests::manifest("image", 6));
    env.run(["run", "batch.csv"]).exited(0).says("1 new");
    assert!(folder(&env).join("rows").exists());
    is_sound(&env);
    env.audit().each_paid_once(8);
}

#[test]
fn a_command_about_a_finished_batch_outlasts_the_daemon() {
    let env = finished();
    let budget = |env: &TestEnv| env.status("batch")["budget_credits"].clone();
    let daemon = env.daemon("info");
    env.run(["budget", "batch", "77"]).exited(0);
    assert_eq!(budget(&env), 77);
    daemon.stop();
    assert_eq!(budget(&env), 77);
    env.run(["budget", "batch", "78"]).exited(0);
    assert_eq!(budget(&env), 78);
    fs::remove_file(env.path("output/batch/image-3.png")).unwrap();
    env.run(["download", "batch"]).exited(0).says("1 of 1 downloaded into");
    is_sound(&env);
    is_paid_once(&env);
}

#[test]
fn killed_where_a_batch_ends_or_goes_on_every_batch_is_what_its_database_says() {
    for step in ["finishing"].into_iter().chain(failpoint::OF_FINISHED) {
        for as_daemon in [false, true] {
            let env = TestEnv::new();
            env.configure(SOON);
            env.write("batch.csv", manifests::manifest("image", 5));
            if failpoint::OF_FINISHED.contains(&step) {
                env.run(["run", "batch.csv"]).exited(0);
                env.write("batch.csv", manifests::manifest("image", 6));
            }
            let command: &[&str] = if as_daemon { &["daemon"] } else { &["run", "batch.csv"] };
            let mut dying = env.command(command.iter().copied());
            dying.env("CALLSHEET_FAILPOINT", step);
            let dying = Running::start(dying);
            if as_daemon {
                dying.says("ready");
                // Killed before it answers.
                env.run(["submit", "batch.csv"]);
            }
            dying.end().was_killed(step);
            is_sound(&env);
            env.run(["run", "batch.csv"]).exited(0);
            is_sound(&env);
            let jobs = if step == "finishing" { 5 } else { 6 };
            env.audit().each_paid_once(jobs);
            Outputs::of(&env, "batch").is_complete(&manifests::ids("image", jobs));
        }
    }
}

#[test]
fn a_batch_whose_files_were_moved_away_is_refused_rather_than_bought_again() {
    let env = finished();
    let elsewhere = env.path("elsewhere");
    fs::rename(folder(&env), &elsewhere).unwrap();
    is_sound(&env);
    for command in [["run", "batch.csv"], ["status", "batch"], ["jobs", "batch"], ["retry", "batch"]] {
        env.run(command).exited(2).says("batch batch is finished, and its files are no longer in");
    }
    let daemon = env.daemon("info");
    for command in
        [["submit", "batch.csv"], ["status", "batch"], ["cancel", "batch"], ["explain", "batch/image-1"]]
    {
        env.run(command).exited(2).says("batch batch is finished, and its files are no longer in");
    }
    env.run(["status"]).exited(0);
    daemon.stop();
    env.configure(FOREVER);
    assert!(env.run(["status"]).exited(0).stdout.contains("batch"), "its numbers are known");
    env.run(["jobs"]).exited(0);
    fs::rename(&elsewhere, folder(&env)).unwrap();
    env.run(["run", "batch.csv"]).exited(0).says("5 already there");
    is_paid_once(&env);
}

#[test]
fn an_export_carries_finished_batches_and_a_rebuild_finds_them() {
    let env = finished();
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    env.run(["--state", "imported", "state", "import", "dump.jsonl"]).exited(0).says("1 batch with 5 jobs");
    env.run(["--state", "imported", "state", "verify"]).exited(0).says("all fits");
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["run", "batch.csv"]).exited(6);
    env.run(["state", "rebuild"]).exited(0).says("rebuilt 1 batch with 5 jobs: 5 have ended");
    is_sound(&env);
    assert_eq!(status(&env)["not_listed"], 1, "its end and that it was announced are known");
    env.run(["run", "batch.csv"]).exited(0).says("5 already there");
    is_paid_once(&env);
}

#[test]
fn what_ended_where_nobody_announced_it_is_announced_once_by_the_next_daemon() {
    let env = TestEnv::new();
    let hook = "[hooks]\nbatch_done = [\"sh\", \"-c\", \"cat >> told; echo >> told\"]\n";
    env.configure(&format!("{SOON}\n{hook}"));
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    let told =
        || fs::read_to_string(env.path("told")).unwrap_or_default().lines().filter(|l| !l.is_empty()).count();
    for _ in 0..2 {
        let daemon = env.daemon("info");
        until("it to be told", || told() == 1);
        until("the hook's record to be forgotten", || {
            fs::read_dir(env.path("state/hooks/told")).unwrap().count() == 0
        });
        daemon.stop();
    }
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    until("its next end to be told", || told() == 2);
    daemon.stop();
    is_sound(&env);
}

/// A list leaves out what finished before; the result of a command must not.
#[test]
fn who_waits_for_manifests_is_told_of_every_batch_although_it_is_not_listed() {
    let env = TestEnv::with_faults(
        "[[rules]]\ncontains = 'unfit'\neffect = { do = 'task-fails', code = 'content_rejected' }\n",
    );
    let names: Vec<String> = (0..23).map(|n| format!("m{n}.csv")).collect();
    for (n, name) in names.iter().enumerate() {
        let prompt = if n == 0 { "unfit" } else { "a gull" };
        env.write(name, format!("id,kind,model,prompt\none,image,gi-2,{prompt} {n}\n"));
    }
    let daemon = env.daemon("info");
    let words = || ["submit", "--wait", "--json"].into_iter().chain(names.iter().map(String::as_str));
    let report = env.run(words()).exited(1).json();
    assert_eq!(report["batches"].as_array().unwrap().len(), names.len());
    // The first one has finished before the 20 that are listed.
    for command in [&["submit", "m0.csv", "--wait"][..], &["run", "m0.csv"]] {
        env.run(command.iter().copied()).exited(1).says("m0: 1 row would fail again as it is");
    }
    daemon.stop();
    env.configure(SOON);
    let daemon = env.daemon("info");
    let again = env.run(words()).exited(1).json();
    assert_eq!(again["batches"].as_array().unwrap().len(), names.len());
    daemon.stop();
}
