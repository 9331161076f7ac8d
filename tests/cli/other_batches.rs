//! A run works on the batches of its manifests. What is asked of the others of its state is answered as it is, or refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

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
    env.run(["status", "spring", "--json"]).exited(0).json()["batches"][0].clone()
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
    assert_eq!((&meanwhile["state"], &meanwhile["parked_by"]), (&"parked".into(), &"no_process".into()));
    for same in ["queued", "succeeded", "budget_credits", "charged_credits", "waiting_for_review"] {
        assert_eq!(meanwhile[same], before[same], "{same}");
    }
    let explained = env.run(["explain", "spring/b"]).exited(0).stdout;
    assert!(explained.contains("no process"), "{explained}");
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
