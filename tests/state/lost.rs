//! A job was bought, its answer was lost, and the state with it: rebuilt, carried elsewhere, or begun anew. Whatever its
//! operator says then, there is one task and one charge, and the books know it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::live_page::Server;
use crate::support::collect_outputs::Outputs;
use crate::support::own_address::own_address;
use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

const RUN: [&str; 3] = ["run", "--json", "batch.csv"];
/// The service does its work, and nothing of it is ever heard.
const UNHEARD: &str = "[[rules]]\non = 'create'\neffect = { do = 'drop', when = 'after' }\n";

/// A batch whose first job is bought, and whose client was killed before it heard of that.
fn bought_and_unheard(manifest: &str, budget: &str) -> TestEnv {
    let env = TestEnv::with_faults(UNHEARD);
    env.configure("[limits]\nin_flight = 1\n");
    env.write("batch.csv", manifest);
    let running = env.start(["run", "batch.csv", "--budget", budget]);
    until("the job is bought", || env.audit().tasks.len() == 1);
    running.signal(Signal::KILL);
    running.end().was_killed("while its answer is waited for");
    env.faults("");
    env
}

fn one_image() -> TestEnv {
    bought_and_unheard(&manifests::manifest("image", 1), "1000")
}

fn states(env: &TestEnv) -> Vec<Value> {
    let told = env.run(["jobs", "batch", "--json"]).exited(0).stdout;
    told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone()).collect()
}

/// Its operator drops it, wants it again, and lets it go on: it is collected, and paid for once.
#[track_caller]
fn is_paid_once_whatever_its_owner_says(env: &TestEnv) {
    let canceled = env.run(["cancel", "batch"]).exited(0);
    assert!(canceled.stderr.contains("0 canceled"), "{}", canceled.stderr);
    canceled.says("1 may have been sent before the state was rebuilt or imported").says("resolve");
    env.run(["cancel", "batch/image-1"]).exited(0).says("may have been sent");
    assert_eq!(states(env), ["queued"]);
    env.run(["explain", "batch/image-1"]).exited(0);
    env.run(["retry", "batch"]).exited(0);
    let posts = env.audit().posts();
    env.run(RUN).exited(7).says("paused");
    assert_eq!(env.audit().posts(), posts, "nothing is asked before it is resumed");
    env.run(["resume"]).exited(0).says("it was canceled and stays paused");
    env.run(["resume", "batch"]).exited(0).says("1 canceled job may have been sent");
    is_collected_and_paid_once(env);
}

#[track_caller]
fn is_collected_and_paid_once(env: &TestEnv) {
    let report = env.run(RUN).exited(0).json();
    let audit = env.audit();
    audit.each_paid_once(1);
    let outputs = Outputs::of(env, "batch");
    outputs.is_complete(&["image-1".to_owned()]);
    outputs.agrees_with(&audit);
    assert_eq!(report["batches"][0]["charged_credits"], audit.totals.charged_credits);
    assert_eq!(report["batches"][0]["held_credits"], 0);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn after_a_rebuild_of_a_whole_database() {
    let env = one_image();
    env.run(["state", "rebuild"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    is_paid_once_whatever_its_owner_says(&env);
}

#[test]
fn after_a_rebuild_without_a_database() {
    let env = one_image();
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    is_paid_once_whatever_its_owner_says(&env);
}

#[test]
fn what_may_have_been_charged_counts_until_it_is_asked_for() {
    let env = one_image();
    fs::remove_dir_all(env.path("state/db")).unwrap();
    let rebuilt = env.run(["state", "rebuild"]).exited(0);
    rebuilt.says("up to 8 credits may have been charged for requests without a record");
    env.run(["status"]).exited(0).says("up to 8 credits may have been charged before the state was rebuilt");
    // Another one, of a whole database, knows of it.
    env.run(["state", "rebuild"]).exited(0);
    env.write("other.csv", "id,kind,model,prompt\nother-1,image,gi-2,A lighthouse at dusk\n");
    for limit in ["total", "per_day"] {
        env.configure(&format!("[limits]\nin_flight = 1\n[budget]\n{limit} = 12\n"));
        let parked = env.run(["run", "other.csv"]).exited(4);
        parked.says("the next job needs 8, 4 of 12 credits are left: 4 are missing");
    }
    env.audit().each_paid_once(1);
    // It is asked for within the same limit, and costs nothing more.
    env.run(["resume", "batch"]).exited(0);
    is_collected_and_paid_once(&env);
    env.run(["run", "other.csv"]).exited(4);
    env.configure("[limits]\nin_flight = 1\n[budget]\ntotal = 16\n");
    env.run(["run", "other.csv"]).exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn after_a_dump_that_was_taken_in() {
    let env = one_image();
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    is_paid_once_whatever_its_owner_says(&env);
}

#[test]
fn after_a_dump_that_is_older_than_what_was_sent() {
    let env = TestEnv::with_faults(UNHEARD);
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    let running = env.start(["run", "batch.csv", "--budget", "1000"]);
    until("the job is bought", || env.audit().tasks.len() == 1);
    running.signal(Signal::KILL);
    running.end().was_killed("while its answer is waited for");
    env.faults("");
    fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    let canceled = env.run(["cancel", "batch"]).exited(0);
    assert!(canceled.stderr.contains("0 canceled"), "{}", canceled.stderr);
    assert_eq!(states(&env), ["queued"]);
    env.run(["retry", "batch"]).exited(0);
    env.run(["resume", "batch"]).exited(0);
    env.run(["run", "batch.csv", "--budget", "1000"]).exited(0);
    is_collected_and_paid_once(&env);
}

#[test]
fn after_a_state_that_was_begun_anew() {
    let env = one_image();
    fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["cancel", "batch"]).exited(0).says("1 canceled");
    env.run(["retry", "batch"]).exited(0).says("under its old key");
    env.run(["run", "batch.csv", "--budget", "1000"]).exited(0);
    is_collected_and_paid_once(&env);
}

#[test]
fn what_was_set_aside_stays_so_for_what_may_have_been_bought() {
    let env = bought_and_unheard(&manifests::manifest("music", 2), "60");
    env.run(["state", "rebuild"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    let status = env.run(["status", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["held_credits"], 60, "{status:#}");
    env.run(["resume"]).exited(0);
    // Its own hold does not stand in its way, and nothing else is bought for it.
    env.run(["run", "batch.csv", "--budget", "60"]).exited(4);
    env.audit().each_paid_once(1);
    assert_eq!(states(&env), ["succeeded", "queued"]);
}

#[test]
fn a_person_who_knows_what_was_charged_ends_it_where_it_waits() {
    let env = one_image();
    let charged = env.audit().totals.charged_credits.to_string();
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    env.run(["resolve", "batch/image-1", "--charged", "999"]).exited(2).says("--above-hold");
    env.run(["resolve", "batch/image-1", "--charged", &charged]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    assert_eq!(states(&env), ["failed"]);
    let status = env.run(["status", "batch", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["charged_credits"].to_string(), charged, "{status:#}");

    fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    env.run(["resolve", "batch/image-1", "--not-charged"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    // Should the person be mistaken, the key still finds the task.
    env.run(["retry", "batch"]).exited(0).says("under its old key");
    env.run(["resume"]).exited(0);
    is_collected_and_paid_once(&env);
}

/// A manifest of three images.
fn write_images(env: &TestEnv, what: &str) {
    let rows = (1..=3).map(|n| format!("image-{n},image,gi-2,{what} {n}\n"));
    env.write("batch.csv", format!("id,kind,model,prompt\n{}", rows.collect::<String>()));
}

fn move_state(env: &TestEnv) {
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    fs::remove_file(env.path("dump.jsonl")).unwrap();
}

fn rebuild_without_database(env: &TestEnv) {
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
}

#[test]
fn a_version_that_may_have_been_sent_is_not_bought_beside_the_one_that_is_wanted() {
    for lose in [move_state, rebuild_without_database] {
        let env = TestEnv::new();
        write_images(&env, "a gull");
        env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
        lose(&env);
        write_images(&env, "a better gull");
        let plan = env.run(["plan", "batch.csv"]).exited(0);
        let told = plan.stdout + &plan.stderr;
        assert!(told.contains("and may have cost up to 24 credits beside this plan"), "{told}");
        assert!(!told.contains("replaced free of charge"), "{told}");
        env.run(["run", "batch.csv", "--budget", "none"]).exited(7);
        assert_eq!(env.audit().posts(), 0);
        env.run(["resume", "batch"]).exited(0);
        let done = env.run(["run", "batch.csv", "--budget", "none"]).exited(7).says("resolve");
        env.audit().each_paid_once(3);
        let mut all = states(&env);
        all.sort_by_key(Value::to_string);
        assert_eq!(all, ["in_doubt", "in_doubt", "in_doubt", "succeeded", "succeeded", "succeeded"]);
        // The command that is named means the version that is in doubt.
        let told = done.stdout + &done.stderr;
        let resolve = told.lines().find(|line| line.contains("callsheet resolve batch/")).unwrap();
        let job = resolve.split_whitespace().find(|word| word.starts_with("batch/")).unwrap();
        env.run(["resolve", job, "--not-charged"]).exited(0);
        for n in 1..=3 {
            env.run(["resolve", &format!("batch/image-{n}@1"), "--not-charged"]);
        }
        env.run(["run", "batch.csv"]).exited(0);
        env.run(["state", "verify"]).exited(0).says("all fits");
        env.audit().each_paid_once(3);
    }
}

#[test]
fn a_version_that_was_replaced_before_the_export_ends_with_the_import() {
    let env = TestEnv::new();
    write_images(&env, "a gull");
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    write_images(&env, "a better gull");
    let mut dying = env.command(["run", "batch.csv", "--budget", "none"]);
    dying.env("CALLSHEET_FAILPOINT", "accepted");
    Running::start(dying).end().was_killed("accepted");
    move_state(&env);
    let batch = env.status("batch");
    assert_eq!((&batch["replaced"], &batch["queued"]), (&3.into(), &3.into()), "{batch:#}");
    env.run(["resume", "batch"]).exited(0);
    env.run(["run", "batch.csv", "--budget", "none"]).exited(0);
    env.audit().each_paid_once(3);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

const SHORT: &str =
    r#"{"id": "short", "kind": "shorts-studio", "options": {"topic": "a boat"}, "max_credits": 20}"#;

/// An export; what it knows is asked for again, bought and lost.
fn bought_after_an_export(env: &TestEnv) {
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    env.run(["retry", "batch"]).exited(0);
    env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(0);
    for folder in ["state", "output"] {
        fs::remove_dir_all(env.path(folder)).unwrap();
    }
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

/// A job that runs when the export is made. Then its task fails, and the engine sends it again by itself; of that the state
/// alone knew.
fn running_in_an_export_and_bought_again_since(row: &str) -> TestEnv {
    let run_until = |env: &TestEnv, step| {
        let mut dying = env.command(["run", "batch.jsonl", "--budget", "1000"]);
        dying.env("CALLSHEET_FAILPOINT", step);
        Running::start(dying).end()
    };
    let killed = || {
        let env = TestEnv::with_faults(
            "[[rules]]\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }",
        );
        env.write("batch.jsonl", row);
        run_until(&env, "task-known");
        env
    };
    // On a busy machine a task may have failed before the answer to its request leaves: then the next one is known, or has
    // succeeded by then as well.
    let env = (0..20).map(|_| killed()).find(|env| env.audit().tasks.len() == 1);
    let env = env.unwrap();
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    copy_dir(&env.path("state/db"), &env.path("older"));
    run_until(&env, "posted").was_killed("posted");
    assert_eq!((env.audit().tasks.len(), env.audit().totals.charges), (2, 2));
    env
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_dir(&path, &target);
        } else if path.is_file() {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// What is known of it is what the export has.
fn go_back_to_the_export(env: &TestEnv, way: &str) {
    match way {
        "import" => {
            fs::remove_dir_all(env.path("state")).unwrap();
            env.run(["state", "import", "dump.jsonl"]).exited(0);
        }
        "export" => {
            fs::remove_dir_all(env.path("state/db")).unwrap();
            env.run(["state", "rebuild", "--export", "dump.jsonl"]).exited(0);
        }
        _ => {
            fs::remove_dir_all(env.path("state/db")).unwrap();
            copy_dir(&env.path("older"), &env.path("state/db"));
            env.run(["status"]).exited(6);
            env.run(["state", "rebuild"]).exited(0);
        }
    }
    env.run(["state", "verify"]).exited(0).says("all fits");
}

const WAYS: [&str; 3] = ["import", "export", "older database"];

#[test]
fn what_ran_without_a_key_in_an_export_is_not_bought_a_third_time() {
    for way in WAYS {
        let env = running_in_an_export_and_bought_again_since(SHORT);
        go_back_to_the_export(&env, way);
        env.run(["resume"]).exited(0);
        env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(7).says("resolve");
        assert_eq!((states(&env), env.audit().totals.charges), (vec!["in_doubt".into()], 2), "{way}");
        env.run(["resolve", "batch/short", "--charged", "20"]).exited(0);
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

const IMAGE: &str = r#"{"id": "image-1", "kind": "image", "model": "gi-2", "prompt": "a gull"}"#;

#[test]
fn what_ran_in_an_export_finds_its_next_task_and_is_not_dropped_as_unsent() {
    for way in WAYS {
        let env = running_in_an_export_and_bought_again_since(IMAGE);
        go_back_to_the_export(&env, way);
        env.run(["resume"]).exited(0);
        env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(0);
        let totals = env.audit().totals;
        assert_eq!((totals.tasks, totals.charges, totals.refunds), (2, 2, 1), "{way}");

        let env = running_in_an_export_and_bought_again_since(IMAGE);
        go_back_to_the_export(&env, way);
        env.run(["cancel", "batch"]).exited(0);
        env.run(["resume", "batch"]).exited(0);
        env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(7).says("resolve");
        assert_eq!(states(&env), ["in_doubt"], "{way}");
        let counted = env.run(["status"]).exited(0);
        counted.says("up to 8 credits may have been charged before the state was rebuilt");
        env.run(["resolve", "batch/image-1", "--charged", "8"]).exited(0);
        let status = env.run(["status", "batch", "--json"]).exited(0).json();
        let batch = &status["batches"][0];
        assert_eq!((&batch["charged_credits"], batch.get("may_be_charged_credits")), (&8.into(), None));
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

/// What a person had said of it before the loss may have been followed by another request.
#[test]
fn what_was_in_doubt_in_an_export_and_bought_since_is_in_doubt_again_when_it_is_retried() {
    let env = TestEnv::with_faults("[[rules]]\ntimes = 1\neffect = { do = 'fail-at-submission' }");
    env.write("batch.jsonl", SHORT);
    env.run(["run", "batch.jsonl"]).exited(7);
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    env.run(["resolve", "batch/short", "--not-charged"]).exited(0);
    env.run(["retry", "batch"]).exited(0);
    env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(0);
    let charges = env.audit().totals.charges;
    for folder in ["state", "output"] {
        fs::remove_dir_all(env.path(folder)).unwrap();
    }
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    env.run(["resolve", "batch/short", "--not-charged"]).exited(0);
    env.run(["retry", "batch"]).exited(0);
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(7);
    assert_eq!((states(&env), env.audit().totals.charges), (vec!["in_doubt".into()], charges));
}

/// No key would find its task again: a person has to tell whether it was bought.
#[test]
fn what_had_ended_without_a_key_before_an_export_is_in_doubt_when_it_is_retried() {
    let failed = TestEnv::with_faults("[[rules]]\ntimes = 1\neffect = { do = 'fail-at-submission' }");
    failed.write("batch.jsonl", SHORT);
    failed.run(["run", "batch.jsonl"]).exited(7);
    failed.run(["resolve", "batch/short", "--not-charged"]).exited(0);
    let canceled = TestEnv::new();
    canceled.write("batch.jsonl", SHORT);
    canceled.run(["run", "batch.jsonl", "--budget", "0"]).exited(4);
    canceled.run(["cancel", "batch"]).exited(0).says("1 canceled");
    for env in [failed, canceled] {
        bought_after_an_export(&env);
        let charges = env.audit().totals.charges;
        env.run(["retry", "batch"]).exited(0);
        env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(7);
        assert_eq!((states(&env), env.audit().totals.charges), (vec!["in_doubt".into()], charges));
        // Who says that it was not charged has it made.
        env.run(["resolve", "batch/short", "--not-charged"]).exited(0);
        env.run(["retry", "batch"]).exited(0);
        env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(0);
        assert_eq!((states(&env), env.audit().totals.charges), (vec!["succeeded".into()], charges + 1));
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

/// Its key finds its task: it is not dropped as something that was never sent.
#[test]
fn what_had_been_canceled_before_an_export_may_have_been_sent_when_it_is_retried() {
    let env = TestEnv::new();
    let row = r#"{"id": "image-1", "kind": "image", "model": "gi-2", "prompt": "a gull"}"#;
    env.write("batch.jsonl", row);
    env.run(["run", "batch.jsonl", "--budget", "0"]).exited(4);
    env.run(["cancel", "batch"]).exited(0).says("1 canceled");
    bought_after_an_export(&env);
    env.run(["retry", "batch"]).exited(0);
    env.run(["cancel", "batch"])
        .exited(0)
        .says("1 may have been sent before the state was rebuilt or imported");
    env.run(["resume", "batch"]).exited(0);
    env.run(["run", "batch.jsonl", "--budget", "1000"]).exited(0);
    env.audit().each_paid_once(1);
    assert_eq!(states(&env), ["succeeded"]);
    let status = env.run(["status", "batch", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["charged_credits"], env.audit().totals.charged_credits);
}

/// More rows than a step ends; the cancel is durable when its process is killed, and not all of them have ended.
fn canceled_and_killed(rows: usize) -> TestEnv {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", rows));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["budget", "batch", "none"]).exited(0);
    let mut dying = env.command(["cancel", "batch"]);
    dying.env("CALLSHEET_FAILPOINT", "flushed");
    Running::start(dying).end().was_killed("flushed");
    assert!(in_state(&env, "queued") > 0);
    env
}

fn in_state(env: &TestEnv, state: &str) -> usize {
    states(env).iter().filter(|found| *found == state).count()
}

#[test]
fn what_was_canceled_before_an_export_ends_with_the_import() {
    let env = canceled_and_killed(80);
    move_state(&env);
    assert_eq!(in_state(&env, "canceled"), 80);
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.csv"]).exited(1);
    assert_eq!(env.audit().posts(), 0);
}

/// Nothing tells which of them were sent: who resumes all batches does not mean them.
#[test]
fn what_was_canceled_and_may_have_been_sent_is_resumed_by_its_name_alone() {
    let rebuilt = canceled_and_killed(80);
    rebuild_without_database(&rebuilt);
    let imported = TestEnv::new();
    write_images(&imported, "a gull");
    imported.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    imported.run(["budget", "batch", "none"]).exited(0);
    move_state(&imported);
    imported.run(["cancel", "batch"]).exited(0).says("3 may have been sent");
    for env in [rebuilt, imported] {
        let waiting = in_state(&env, "queued");
        env.run(["resume"]).exited(0).says("it was canceled and stays paused").says("callsheet resume batch");
        env.run(["status"]).exited(0);
        assert_eq!((in_state(&env, "queued"), env.audit().posts()), (waiting, 0));
        let resumed = env.run(["resume", "batch"]).exited(0);
        resumed.says(&format!("{waiting} canceled jobs may have been sent"));
    }
}

/// Bought, and never heard of, by a client that is killed; its database is lost with it.
fn buy_unheard_and_lose_the_database(env: &TestEnv, run: &[&str], tasks: usize) {
    env.faults(UNHEARD);
    let running = env.start(run.iter().copied());
    until("the jobs are bought", || env.audit().tasks.len() == tasks);
    running.signal(Signal::KILL);
    running.end().was_killed("while its answers are waited for");
    env.faults("");
    fs::remove_dir_all(env.path("state/db")).unwrap();
}

/// Its outcomes say that they were canceled, and that they were asked for again only the database knew.
#[test]
fn what_was_canceled_and_then_bought_after_all_is_counted_and_found_again() {
    let env = TestEnv::new();
    let limits = "[limits]\nin_flight = 3\n[budget]\ntotal = 24\n";
    env.configure(limits);
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["cancel", "batch"]).exited(0).says("3 canceled");
    env.run(["retry", "batch"]).exited(0);
    buy_unheard_and_lose_the_database(&env, &["run", "batch.csv", "--budget", "24"], 3);

    let rebuilt = env.run(["state", "rebuild"]).exited(0);
    assert!(rebuilt.stderr.contains("note: 3 jobs are known to have failed"), "{}", rebuilt.stderr);
    rebuilt.says("up to 24 credits may have been charged");
    env.run(["state", "verify"]).exited(0).says("all fits");
    let counted = "batch: up to 24 credits may have been charged before the state was rebuilt";
    env.run(["status"]).exited(0).says(counted).says("callsheet retry batch");
    env.write("other.csv", "id,kind,model,prompt\nother-1,image,gi-2,A lighthouse at dusk\n");
    env.run(["run", "other.csv"]).exited(4).says("the next job needs 8, 0 of 24 credits are left");
    env.audit().each_paid_once(3);
    // The pages and the metrics tell of no room that is not there.
    let address = own_address();
    env.configure(&format!("{limits}[control]\nhttp = \"{address}\"\n"));
    let daemon = env.daemon("info");
    let server = Server { env, address, daemon };
    for (page, told) in [
        ("/", "<b>0</b> left of 24"),
        ("/", "24 perhaps charged"),
        ("/batches/batch", "24 perhaps charged"),
        ("/metrics", "callsheet_budget_room_credits{budget=\"total\"} 0\n"),
    ] {
        let shown = server.ask(&format!("GET {page}"), &[], "").body;
        assert!(shown.contains(told), "{page} {told}: {shown}");
    }
    let Server { env, daemon, .. } = server;
    daemon.stop();
    env.configure(limits);
    // Another one, of a whole database, knows of it.
    env.run(["state", "rebuild"]).exited(0);
    env.run(["status"]).exited(0).says(counted);

    env.run(["retry", "batch"]).exited(0).says("under its old key");
    env.run(RUN).exited(0);
    env.audit().each_paid_once(3);
    assert_eq!(states(&env), ["succeeded"; 3]);
    let status = env.run(["status"]).exited(0);
    assert!(!status.stderr.contains("may have been charged"), "{}", status.stderr);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

/// Of its second attempt the database alone knew.
#[test]
fn what_failed_and_was_retried_under_a_new_key_is_counted_and_found_again() {
    let env = TestEnv::with_faults(
        "[[rules]]\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }",
    );
    let job = r#"{"id": "image-1", "kind": "image", "model": "gi-2", "prompt": "a gull"}"#;
    env.write("batch.json", format!(r#"{{"policy": {{"attempts": 1}}, "jobs": [{job}]}}"#));
    let run = ["run", "--json", "batch.json"];
    env.run(run).exited(1);
    env.run(["retry", "batch"]).exited(0);
    buy_unheard_and_lose_the_database(&env, &run, 2);
    env.run(["state", "rebuild"]).exited(0).says("up to 8 credits may have been charged");
    env.run(["retry", "batch"]).exited(0);
    env.run(run).exited(0);
    let totals = env.audit().totals;
    assert_eq!((totals.tasks, totals.charges, totals.refunds), (2, 2, 1));
    assert_eq!(states(&env), ["succeeded"]);
}

#[test]
fn what_was_canceled_and_not_asked_for_again_takes_no_room_in_a_budget() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["cancel", "batch"]).exited(0).says("3 canceled");
    fs::remove_dir_all(env.path("state/db")).unwrap();
    let rebuilt = env.run(["state", "rebuild", "--json"]).exited(0).json();
    assert_eq!((&rebuilt["may_be_charged_credits"], &rebuilt["notes"]), (&0.into(), &Value::Array(vec![])));
}

/// As if it were carried to another machine.
fn move_the_state(env: &TestEnv) {
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    env.run(["resume"]).exited(0);
}

#[test]
fn what_may_have_been_sent_and_has_expired_waits_for_a_person_and_says_so() {
    let env = TestEnv::new();
    let manifest = |expires: &str| {
        let job = |n: u32| {
            format!(r#"{{"id": "image-{n}", "kind": "image", "model": "gi-2", "prompt": "gull {n}"}}"#)
        };
        format!(r#"{{"policy": {{"expires": "{expires}"}}, "jobs": [{}, {}]}}"#, job(1), job(2))
    };
    env.write("batch.json", manifest("3s"));
    env.run(["run", "batch.json", "--budget", "0"]).exited(4);
    move_the_state(&env);
    until("it has expired", || env.run(["run", "batch.json", "--budget", "0"]).code == Some(7));
    let run = env.run(["run", "batch.json", "--budget", "100"]).exited(7);
    assert!(!run.stderr.contains("callsheet resume"), "{}", run.stderr);
    run.says("2 jobs are queued and may have been sent").says("resolve batch/JOB --charged N");
    let explained = env.run(["explain", "batch/image-1"]).exited(0).stdout;
    assert!(explained.contains("its batch has expired"), "{explained}");
    assert!(
        explained.contains("callsheet resolve batch/image-1 --charged N or --not-charged"),
        "{explained}"
    );
    assert!(explained.contains("submit its manifest with a later policy.expires"), "{explained}");
    env.run(["resolve", "batch/image-1", "--not-charged"]).exited(0);
    env.audit().each_paid_once(0);
    env.write("batch.json", manifest("2999-01-01T00:00:00Z"));
    env.run(["run", "batch.json"]).exited(1);
    env.audit().each_paid_once(1);
    assert_eq!(states(&env), ["failed", "succeeded"]);
}

#[test]
fn what_may_have_been_sent_and_costs_more_than_it_may_names_its_price_and_what_helps() {
    let env = TestEnv::new();
    env.write(
        "batch.csv",
        "id,kind,model,prompt,max_credits\nimage-1,image,gi-2,a gull,8\nimage-2,image,gi-2,a crow,8\n",
    );
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    move_the_state(&env);
    env.prices(&serde_json::json!({"multiply": 2}));
    let run = env.run(["run", "batch.csv", "--budget", "1000"]).exited(7);
    assert!(!run.stderr.contains("callsheet cancel"), "{}", run.stderr);
    run.says("2 jobs are queued and may have been sent").says("retry batch/JOB --max-credits N");
    let explains = |parts: &[&str]| {
        let explained = env.run(["explain", "batch/image-1"]).exited(0).stdout;
        parts.iter().for_each(|part| assert!(explained.contains(part), "{part}: {explained}"));
    };
    let resolve = "callsheet resolve batch/image-1 --charged N or --not-charged";
    explains(&["no process works on this state", "callsheet retry batch/image-1 --max-credits N", resolve]);
    let daemon = env.daemon("info");
    let parked_by = || env.run(["status", "--json"]).exited(0).json()["batches"][0]["parked_by"].clone();
    until("it is parked", || parked_by() == "perhaps_sent");
    let price = "the price is 16 credits now, and its max_credits is 8";
    explains(&[price, "callsheet retry batch/image-1 --max-credits 16", resolve]);
    daemon.stop();
    env.audit().each_paid_once(0);
    env.run(["retry", "batch/image-1", "--max-credits", "16"]).exited(0);
    env.run(["resolve", "batch/image-2", "--not-charged"]).exited(0);
    env.run(["run", "batch.csv", "--budget", "1000"]).exited(1);
    env.audit().each_paid_once(1);
    assert_eq!(states(&env), ["succeeded", "failed"]);
}

#[test]
fn what_may_have_been_charged_counts_for_the_budget_of_a_client() {
    let env = TestEnv::new();
    env.configure("[limits]\nin_flight = 3\n[budget.by.\"meta.client\"]\ndefault = 24\n");
    let manifest = |ids: &[&str]| {
        let row = |id: &&str| format!("{id},image,gi-2,a gull called {id},acme\n");
        format!("id,kind,model,prompt,meta.client\n{}", ids.iter().map(row).collect::<String>())
    };
    env.write("batch.csv", manifest(&["a", "b", "c"]));
    env.write("other.csv", manifest(&["d"]));
    buy_unheard_and_lose_the_database(&env, &["run", "batch.csv"], 3);
    env.run(["state", "rebuild"]).exited(0).says("up to 24 credits may have been charged");
    let parked = env.run(["run", "other.csv"]).exited(4);
    parked.says("the next job of meta.client acme needs 8, 0 of 24 credits are left");
    env.audit().each_paid_once(3);
    // They are asked for within the same limit.
    env.run(["resume", "batch"]).exited(0);
    env.run(RUN).exited(0);
    env.run(["run", "other.csv"]).exited(4);
    env.audit().each_paid_once(3);
}

/// Overdue jobs leave their slots to others: more have been sent than slots there are.
#[test]
fn what_was_overdue_when_the_database_was_lost_counts_against_the_budgets() {
    let env = TestEnv::with_faults("[[rules]]\neffect = { do = 'task-never' }");
    env.configure("[limits]\nin_flight = 2\n[deadlines]\nimage = \"20ms\"\n[budget]\ntotal = 300\n");
    env.write("batch.csv", manifests::manifest("image", 20));
    // A run would end by itself once all are overdue.
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    until("all are sent", || env.audit().tasks.len() == 20);
    daemon.signal(Signal::KILL);
    daemon.end().was_killed("while its tasks run");
    env.faults("");
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0).says("up to 160 credits may have been charged");
    env.configure("[budget]\ntotal = 300\n");
    let other = |n| format!("other-{n},image,gi-2,A lighthouse {n}\n");
    env.write("other.csv", format!("id,kind,model,prompt\n{}", (1..=20).map(other).collect::<String>()));
    env.run(["run", "other.csv"]).exited(4).says("the next job needs 8, 4 of 300 credits are left");
    assert_eq!(env.audit().totals.charges, 37);
}

/// Which of them were sent nothing tells, but how many were at one time.
#[test]
fn no_more_counts_than_was_sent_at_one_time_and_all_where_that_is_not_known() {
    let env = bought_and_unheard(&manifests::manifest("image", 20), "144");
    fs::remove_dir_all(env.path("state/db")).unwrap();
    copy_dir(&env.path("state"), &env.path("kept"));
    // Sixteen: fewer are not told apart.
    env.run(["state", "rebuild"]).exited(0).says("up to 128 credits may have been charged");
    // As an earlier version wrote it: all of them, as far as the budget went.
    fs::remove_dir_all(env.path("state")).unwrap();
    copy_dir(&env.path("kept"), &env.path("state"));
    let path = env.path("state/spool/000001/batch.json");
    let mut backup: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let fields = backup.as_object_mut().unwrap();
    assert_eq!(fields.remove("sent_at_once"), Some(16.into()));
    fields.remove("checksum");
    fs::write(&path, backup.to_string()).unwrap();
    env.run(["state", "rebuild"]).exited(0).says("up to 144 credits may have been charged");
}
