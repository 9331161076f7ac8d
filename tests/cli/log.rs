//! What the log says of a run, and how.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use callsheet_emulator::Options;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{TestEnv, manifests};

fn with_images(images: usize) -> TestEnv {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", images));
    env
}

/// The lines of a log in JSON; the other lines of stderr are for people.
fn lines(stderr: &str) -> Vec<Value> {
    stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn said<'a>(lines: &'a [Value], message: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["message"].as_str().unwrap().starts_with(message)).collect()
}

#[test]
fn a_job_is_followed_from_line_to_line() {
    let env = with_images(2);
    env.configure("[log]\nformat = \"json\"\nlevel = \"info\"");
    env.faults("[[rules]]\ncontains = 'image-2'\neffect = { do = 'task-fails', code = 'invalid_input', reason = 'too dark' }");
    let outcome = env.run(["run", "batch.csv"]).exited(1);
    let lines = lines(&outcome.stderr);
    assert_eq!(lines[0]["message"], "batch accepted", "{lines:#?}");
    assert_eq!((&lines[0]["batch"], &lines[0]["new"]), (&json!("batch"), &json!(2)));
    let submitted = said(&lines, "submitted");
    assert_eq!(submitted.len(), 2, "{lines:#?}");
    let tasks = env.audit().tasks;
    for line in submitted {
        assert_eq!((&line["batch"], &line["attempt"]), (&json!("batch"), &json!(1)));
        assert!(tasks.iter().any(|task| line["task"] == task.id.as_str()), "{line}");
        // On a busy machine the task of image-2 may have failed, and be refunded, before its response is written.
        let is_refunded = line["job"] == "image-2" && line["charged"] == 0;
        assert!(line["charged"] == 8 || is_refunded, "{line}");
    }
    let finished = said(&lines, "finished");
    assert_eq!(
        (finished.len(), &finished[0]["job"], &finished[0]["late"]),
        (1, &json!("image-1"), &json!(false))
    );
    let failed = said(&lines, "failed");
    assert_eq!(
        (failed.len(), &failed[0]["job"], &failed[0]["reason"]),
        (1, &json!("image-2"), &json!("too dark"))
    );
    let done = said(&lines, "batch done");
    assert_eq!((done.len(), &done[0]["succeeded"], &done[0]["failed"]), (1, &json!(1), &json!(1)));
}

#[test]
fn at_every_level_every_line_of_a_request_says_whom_it_is_for() {
    // Slow enough for the task to be read while it is at work.
    let env = TestEnv::with(Options { speed: 100.0, ..Options::default() });
    env.write("batch.csv", manifests::manifest("image", 1));
    env.configure("[log]\nformat = \"json\"");
    let outcome = env.run(["run", "batch.csv", "--log-level", "callsheet=debug"]).exited(0);
    let lines = lines(&outcome.stderr);
    for message in ["admitted", "posted", "submitted", "read", "downloaded", "finished"] {
        let said = said(&lines, message);
        assert!(!said.is_empty(), "{message} is not said: {lines:#?}");
        for line in said {
            let who = (&line["batch"], &line["job"], &line["attempt"]);
            assert_eq!(who, (&json!("batch"), &json!("image-1"), &json!(1)), "{line}");
            assert_eq!(line["task"].is_string(), !["admitted", "posted"].contains(&message), "{line}");
        }
    }
}

#[test]
fn budgets_and_pauses_are_said_once() {
    let env = with_images(4);
    env.configure("[budget]\ntotal = 17\n[log]\nformat = \"json\"\nlevel = \"info\"");
    let outcome = env.run(["run", "batch.csv"]).exited(4);
    let lines = lines(&outcome.stderr);
    let reached = said(&lines, "budget reached");
    assert_eq!(reached.len(), 1, "{lines:#?}");
    assert_eq!((&reached[0]["batch"], &reached[0]["reason"]), (&json!("batch"), &json!("total_budget")));
}

#[test]
fn a_command_that_is_watched_says_warnings_only() {
    let env = with_images(1);
    let outcome = env.run(["run", "batch.csv"]).exited(0);
    let said = env.plain(&outcome.stderr);
    assert_eq!(said, "batch.csv: batch batch: 1 new (8 credits)\nelapsed: TIME");
    let outcome = env.run(["run", "batch.csv", "--batch", "again", "--log-level", "info"]).exited(0);
    assert!(
        outcome.stderr.contains(" INFO submitted batch=again job=image-1 attempt=1 task="),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_daemon_that_nobody_watches_writes_json() {
    let env = with_images(1);
    let daemon = env.start(["daemon"]);
    daemon.says("ready");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    daemon.says("results written");
    daemon.signal(Signal::TERM);
    let outcome = daemon.end().exited(0);
    let lines = lines(&outcome.stderr);
    assert_eq!(lines.len(), outcome.stderr.lines().count(), "and nothing else: {}", outcome.stderr);
    for message in ["batch accepted", "submitted", "finished", "batch done", "results written", "stopping"] {
        assert_eq!(said(&lines, message).len(), 1, "{message}: {lines:#?}");
    }
}

#[test]
fn a_wrong_level_is_refused_wherever_it_stands() {
    let env = with_images(1);
    let accepted = "found \"inof\"; error, warn, info, debug, trace or off is accepted";
    env.run(["run", "batch.csv", "--log-level", "inof"]).exited(2).says(accepted);
    env.configure("[log]\nlevel = \"inof\"");
    env.run(["run", "batch.csv"]).exited(2).says(&format!(": log.level: {accepted}"));
    assert_eq!(env.audit().totals.tasks, 0);
}

#[test]
fn a_broken_configuration_is_reported_by_who_needs_it_and_by_nobody_else() {
    let env = with_images(1);
    env.configure("[log]\nformat = \"jsno\"");
    env.run(["run", "batch.csv"]).exited(2).says("did you mean `json`?");
    env.run(["schema"]).exited(0);
}
