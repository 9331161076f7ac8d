//! A run works on the batches of its manifests. What is asked of the others of its state is answered as it is, or refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, until};

/// Two of its three jobs wait for a larger budget.
const SPRING: &str =
    "id,kind,prompt,review\na,sound-effect,gull,yes\nb,sound-effect,wind,\nc,sound-effect,sea,\n";
const LATE: &str = "[[rules]]\non = 'create'\neffect = { do = 'task-late', ms = 600000 }";
const REFUSED: &str = "a run that works on other batches has this state open; nothing was changed";

fn status(env: &TestEnv) -> Value {
    env.status("spring")
}

#[test]
fn commands_about_batches_that_a_run_leaves_alone_change_nothing_and_say_so() {
    let env = TestEnv::new();
    env.write("spring.csv", SPRING);
    env.run(["run", "spring.csv", "--budget", "5"]).exited(4);
    let before = status(&env);
    env.faults(LATE);
    env.write("autumn.csv", "id,kind,model,prompt\nd,image,gi-2,boat\n");
    let running = env.start(["run", "autumn.csv"]);
    until("its task", || env.audit().totals.tasks == 2);

    let commands: &[&[&str]] = &[
        &["cancel", "spring"],
        &["cancel", "spring/c"],
        &["budget", "spring", "15"],
        &["pause", "spring"],
        &["resume", "spring"],
        &["retry", "spring/c", "--max-credits", "9"],
        &["review", "reject", "spring/a"],
    ];
    for command in commands {
        env.run(command.iter().copied()).exited(2).says(REFUSED);
    }
    let listed = env.run(["status", "--json"]).exited(0).json();
    let listed: Vec<&Value> =
        listed["batches"].as_array().unwrap().iter().map(|batch| &batch["name"]).collect();
    assert_eq!(listed, ["spring", "autumn"]);
    let meanwhile = status(&env);
    assert_eq!((&meanwhile["state"], &meanwhile["parked_by"]), (&"parked".into(), &"another_run".into()));
    for same in ["queued", "succeeded", "budget_credits", "charged_credits", "waiting_for_review"] {
        assert_eq!(meanwhile[same], before[same], "{same}");
    }
    let explained = env.run(["explain", "spring/b"]).exited(0).stdout;
    assert!(explained.contains("a run that works on other batches has this state open"), "{explained}");
    // Those of its own take effect.
    env.run(["pause", "autumn"]).exited(0);

    running.signal(Signal::INT);
    running.end().exited(130);
    assert_eq!(status(&env), before);
    env.run(["cancel", "spring"]).exited(0);
    env.run(["review", "reject", "spring/a"]).exited(0);
    assert_eq!(status(&env)["canceled"], 2);
    // No process writes them besides.
    let outputs = Outputs::of(&env, "spring");
    assert_eq!(outputs.column("state"), ["succeeded", "canceled", "canceled"]);
    assert_eq!(env.audit().totals.tasks, 2, "nothing of it was bought");
}

#[test]
fn a_pause_of_a_batch_that_a_run_leaves_alone_is_told_first() {
    let env = TestEnv::with_faults(LATE);
    env.write("spring.csv", SPRING);
    env.run(["run", "spring.csv", "--budget", "0"]).exited(4);
    env.run(["pause", "spring"]).exited(0);
    env.write("autumn.csv", "id,kind,model,prompt\nd,image,gi-2,boat\n");
    let running = env.start(["run", "autumn.csv"]);
    until("its task", || env.audit().totals.tasks == 1);
    assert_eq!(status(&env)["state"], "paused");
    let explained = env.run(["explain", "spring/b"]).exited(0).stdout;
    assert!(explained.contains("callsheet resume spring"), "{explained}");
    running.signal(Signal::INT);
    running.end().exited(130);
}

/// What a command takes up of a batch that was done is worked on while the run lasts, and is neither waited for nor shown.
#[test]
fn a_run_ends_with_its_own_batches_whatever_is_taken_up_of_others() {
    let fails =
        "[[rules]]\ncontains = 'once'\neffect = { do = 'task-fails', code = 'provider_unavailable' }\n";
    let env = TestEnv::with_faults(fails);
    let once =
        r#"{"policy": {"attempts": 1}, "jobs": [{"id": "a", "kind": "sound-effect", "prompt": "once"}]}"#;
    env.write("spring.json", once);
    env.run(["run", "spring.json"]).exited(1);
    env.faults(
        "[[rules]]\ncontains = 'once'\neffect = { do = 'task-late', ms = 6000000 }\n\
         [[rules]]\ncontains = 'boat'\neffect = { do = 'task-late', ms = 60000 }\n",
    );
    env.write("autumn.csv", "id,kind,model,prompt\nd,image,gi-2,boat\n");
    let running = env.start(["run", "autumn.csv"]);
    until("its task", || env.audit().totals.tasks == 2);
    env.run(["retry", "spring"]).exited(0).says("spring: 1 queued again");
    until("the task of the other batch", || env.audit().totals.tasks == 3);
    env.advance(Duration::from_secs(61));
    let ended = running.end().exited(0);
    assert!(!ended.stdout.contains("spring") && !ended.stderr.contains("spring"), "{ended:?}");
    let left = status(&env);
    assert_eq!((&left["state"], &left["running"]), (&"parked".into(), &1.into()), "{left:#}");
    env.advance(Duration::from_secs(6_000));
    env.run(["run", "spring.json"]).exited(0);
    assert_eq!(env.audit().totals.tasks, 3, "nothing was bought twice");
    env.run(["state", "verify"]).exited(0).says("all fits");
}

/// A request without a key that is left unanswered would be in doubt.
#[test]
fn a_run_that_ends_waits_for_the_answers_to_requests_of_other_batches() {
    let env = TestEnv::new();
    env.write("spring.csv", "id,kind,model,prompt\na,image,gi-2,once\n");
    env.run(["run", "spring.csv", "--budget", "0"]).exited(4);
    env.run(["cancel", "spring"]).exited(0);
    env.run(["budget", "spring", "none"]).exited(0);
    env.faults(
        "[[rules]]\non = 'create'\ncontains = 'once'\neffect = { do = 'delay', ms = 3000, when = 'after' }\n\
         [[rules]]\ncontains = 'boat'\neffect = { do = 'task-late', ms = 60000 }\n",
    );
    env.write("autumn.csv", "id,kind,model,prompt\nd,image,gi-2,boat\n");
    let running = env.start(["run", "autumn.csv"]);
    until("its task", || env.audit().totals.tasks == 1);
    env.run(["retry", "spring"]).exited(0).says("spring: 1 queued again");
    until("the request of the other batch", || env.audit().totals.tasks == 2);
    env.advance(Duration::from_secs(61));
    running.end().exited(0);
    let left = status(&env);
    assert!(left["submitting"].is_null(), "its answer was taken in: {left:#}");
    env.run(["run", "spring.csv"]).exited(0);
    env.audit().each_paid_once(2);
}
