//! `policy.on_deadline = "resubmit"`, from manifest to books: an overdue task is watched on beside a new attempt,
//! whichever succeeds first is kept, and what was paid for is in the books.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, until};

/// The first task comes a second after its deadline.
const FIRST_IS_LATE: &str = "[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'task-late', ms = 3000 }\n";
/// The second never comes.
const SECOND_NEVER: &str = "[[rules]]\non = 'create'\nskip = 1\ntimes = 1\neffect = { do = 'task-never' }\n";

/// A batch of one video that is overdue after two seconds.
fn env(faults: &str, policy: &Value) -> TestEnv {
    let env = TestEnv::with_faults(faults);
    env.configure("[deadlines]\noverdue_poll = \"50ms\"\n");
    let job =
        json!({"id": "boat", "kind": "video", "model": "house-turbo", "prompt": "a boat", "duration": 5});
    env.write("m.json", json!({"policy": policy, "jobs": [job]}).to_string());
    env
}

fn resubmitting() -> Value {
    json!({"on_deadline": "resubmit", "deadline": "2s", "attempts": 2, "budget": 1000})
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn both_attempts_succeed_and_both_are_in_the_books() {
    let env = env(FIRST_IS_LATE, &resubmitting());
    env.run(["run", "m.json"]).exited(7).says("the remaining tasks are overdue");
    let line = Outputs::of(&env, "m").lines.remove(0);
    assert_eq!((&line["state"], &line["attempts"]), (&json!("succeeded"), &json!(2)), "{line:#}");
    until("the first task ends", || env.audit().tasks.iter().all(|task| task.status == "success"));

    env.run(["run", "m.json"]).exited(0);
    let (audit, line) = (env.audit(), Outputs::of(&env, "m").lines.remove(0));
    assert_eq!(audit.tasks.len(), 2, "{:#?}", audit.tasks);
    assert_ne!(audit.tasks[0].key, audit.tasks[1].key);
    let second = audit.tasks.iter().find(|task| line["task_id"] == task.id.as_str()).unwrap();
    assert!(second.key.as_deref().unwrap().ends_with("-2"), "the second came first, and is kept");
    assert_eq!(number(&line["charged_credits"]), audit.totals.charged_credits);
    assert_eq!(number(&line["charged_credits"]), 2 * number(&line["price_credits"]));
    assert_eq!(line["late"], true);
    // Both are in what a state is held against, and in what one is rebuilt to.
    env.run(["state", "verify"]).exited(0).says("all fits");
    let ledger = crate::support::fault_matrix::ledger(&env);
    env.run(["state", "rebuild"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    assert_eq!(crate::support::fault_matrix::ledger(&env), ledger);
    let report = std::fs::read_to_string(env.path("output/m/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let reason = report["resubmitted"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("of attempt 1") && reason.ends_with("credits charged"), "{reason}");
    let story = env.run(["explain", "m/boat"]).exited(0).stdout;
    for told in ["retrying with a new key, charged as well", "finished late; it is paid for"] {
        assert!(story.contains(told), "{story}");
    }
}

#[test]
fn the_first_task_is_collected_when_it_succeeds_after_all() {
    let env = env(&format!("{FIRST_IS_LATE}{SECOND_NEVER}"), &resubmitting());
    env.run(["run", "m.json"]).exited(7);
    let (audit, line) = (env.audit(), Outputs::of(&env, "m").lines.remove(0));
    assert_eq!(audit.tasks.len(), 2, "{:#?}", audit.tasks);
    assert_eq!(line["state"], "succeeded", "{line:#}");
    let first = audit.tasks.iter().find(|task| line["task_id"] == task.id.as_str()).unwrap();
    assert!(first.key.as_deref().unwrap().ends_with("-1"), "{first:#?}");
    assert_eq!(number(&line["charged_credits"]), audit.totals.charged_credits);
    assert_eq!(line["late"], true);
}

#[test]
fn a_second_attempt_that_no_budget_covers_is_not_sent() {
    let env = env(FIRST_IS_LATE, &json!({"on_deadline": "resubmit", "deadline": "2s"}));
    env.run(["run", "m.json"])
        .exited(4)
        .says("does not fit into the rest of the batch's budget")
        .says(
            "m: the overdue task of 1 queued job is still running and paid for; to collect what has succeeded by then, \
             without paying for another attempt, repeat the command later:\n    callsheet run m.json\nm: the next job needs",
        );
    assert_eq!(env.status("m")["watched"], 1);
    until("the task ends", || env.audit().tasks[0].status == "success");
    env.run(["run", "m.json"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn a_task_that_cannot_be_read_is_not_bought_again_and_the_run_ends() {
    let unreadable =
        "[[rules]]\non = 'poll'\neffect = { do = 'answer', status = 500, body = 'error', when = 'before' }\n";
    let env = env(unreadable, &resubmitting());
    env.run(["run", "m.json"]).exited(7).says("the remaining tasks are overdue");
    assert_eq!(env.audit().tasks.len(), 1);
    env.faults("");
    env.run(["run", "m.json"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn two_tasks_without_an_end_are_resolved_one_by_one() {
    let env = env("[[rules]]\neffect = { do = 'task-never' }\n", &resubmitting());
    env.run(["run", "m.json"]).exited(7);
    assert_eq!(env.audit().tasks.len(), 2);
    let resolved = env.run(["resolve", "m/boat", "--attempt", "2", "--not-charged"]).exited(0);
    resolved.says("attempt 2 not charged, as you say; to see what follows: callsheet explain m/boat");
    let refused = env.run(["retry", "m/boat"]).exited(0);
    refused.says("nothing was queued again").says("the task of an earlier attempt has not");
    let watched = env.run(["download", "m/boat"]).exited(0);
    let watched = watched.says("1 have ended, but the task of another attempt has not, and is watched");
    assert!(!watched.stderr.contains("nothing to download"), "{}", watched.stderr);
    let explained = env.run(["explain", "m/boat"]).exited(0).stdout;
    let to_end_it = "callsheet resolve m/boat --attempt 1 --charged N or --not-charged";
    assert!(explained.contains(to_end_it), "{explained}");
    env.run(["resolve", "m/boat", "--attempt", "1", "--charged", "1"]).exited(0);
    assert_eq!(env.status("m")["state"], "done");
    env.run(["run", "m.json"]).exited(1);
    env.run(["state", "verify"]).exited(0).says("all fits");
    assert_eq!(crate::support::fault_matrix::ledger(&env), (0, 1));
    assert_eq!(env.audit().tasks.len(), 2);
}

#[test]
fn an_earlier_attempt_in_doubt_is_told_though_the_job_has_succeeded() {
    let never = "[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'task-never' }\n";
    let env = env(never, &resubmitting());
    env.configure("[deadlines]\noverdue_poll = \"50ms\"\nwatch_overdue_for = \"1s\"\n");
    let daemon = env.daemon("info");
    env.run(["submit", "m.json"]).exited(0);
    daemon.says("an earlier attempt is in doubt: record the charge");
    let explained = env.run(["explain", "m/boat"]).exited(0).stdout;
    assert!(explained.starts_with("m/boat: succeeded"), "{explained}");
    assert!(
        explained.contains("callsheet resolve m/boat --attempt 1 --charged N, or --not-charged"),
        "{explained}"
    );
    daemon.stop();
    env.run(["run", "m.json"])
        .exited(0)
        .says("m/boat (line 1): its attempt 1 is in doubt, and ")
        .says("    callsheet resolve m/boat --attempt 1 --charged N\n");
    let report = std::fs::read_to_string(env.path("output/m/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["in_doubt_attempts"][0]["attempt"], 1, "{report:#}");
    let resolved = env.run(["resolve", "m/boat", "--attempt", "1", "--not-charged"]).exited(0);
    resolved.says("attempt 1 not charged, as you say; to see what follows: callsheet explain m/boat");
    env.run(["run", "m.json"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn an_overdue_job_that_was_resolved_stays_resolved_though_its_task_still_runs() {
    let env = env("[[rules]]\neffect = { do = 'task-never' }\n", &json!({"deadline": "1s"}));
    env.run(["run", "m.json"]).exited(7).says("see what ends one: callsheet explain JOB");
    let explained = || env.run(["explain", "m/boat"]).exited(0).stdout;
    let (next, named) =
        (explained(), "It is overdue. To end it: callsheet resolve m/boat --charged N or --not-charged");
    assert!(next.contains("its task is not polled") && next.contains(named), "{next}");

    env.run(["resolve", "m/boat", "--charged", "1"]).exited(0);
    let resolved = |job: &Value| job["state"] == "failed" && job["error"]["code"] == "resolved";
    let job = || env.run(["jobs", "m", "--json"]).exited(0).stdout;
    let line = || serde_json::from_str::<Value>(job().lines().next().unwrap()).unwrap();
    assert!(resolved(&line()), "{:#}", line());
    env.run(["download", "m"]).exited(0);
    assert!(!explained().contains("downloaded again"), "{}", explained());
    // Its outputs are asked for by its name alone, and are not there.
    env.run(["download", "m/boat"]).exited(1);
    assert!(
        resolved(&line()) && explained().contains("what was recorded of its charge stays"),
        "{}",
        explained()
    );
    env.run(["run", "m.json"]).exited(1);
    assert_eq!(env.audit().tasks.len(), 1);
    env.run(["state", "verify"]).exited(0).says("all fits");
}
