//! Variables of the environment that stand for flags.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::support::process::{Outcome, Running};
use crate::support::{TestEnv, manifests};

/// An address that nobody answers at.
const NOBODY: &str = "http://127.0.0.1:1";

fn with(env: &TestEnv, variables: &[(&str, &str)], words: &[&str]) -> Outcome {
    let mut command = env.command(words.iter().copied());
    command.envs(variables.iter().copied());
    Running::start(command).end()
}

#[test]
fn a_flag_takes_the_place_of_a_variable_that_excludes_it() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    for json in ["0", "false", "1"] {
        for (words, begins) in [
            (&["ledger", "--csv"][..], "time,batch,job,"),
            (&["report", "--csv"], "batch,"),
            (&["plan", "batch.csv", "--graph"], "digraph"),
        ] {
            let printed = with(&env, &[("CALLSHEET_JSON", json)], words).exited(0).stdout;
            assert!(printed.starts_with(begins), "{words:?} with {json}: {printed}");
        }
    }
    env.run(["ledger", "--csv", "--json"]).exited(2).says("--csv' cannot be used with '--json'");
    env.run(["--json", "report", "--csv"]).exited(2);
    let base_url = env.base_url();
    with(&env, &[("CALLSHEET_EMULATOR", "0")], &["plan", "batch.csv", "--base-url", &base_url]).exited(0);
    with(&env, &[("CALLSHEET_BASE_URL", NOBODY)], &["run", "batch.csv", "--emulator"]).exited(0);
    env.audit().each_paid_once(1);
}

/// A variable that keeps every command from the service is not passed over.
#[test]
fn an_address_does_not_take_the_place_of_a_variable_for_the_emulator() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    let emulator = ("CALLSHEET_EMULATOR", "1");
    let told = "to use the service, unset CALLSHEET_EMULATOR or set it to 0";
    with(&env, &[emulator], &["run", "batch.csv", "--base-url", &env.base_url()]).exited(2).says(told);
    with(&env, &[emulator, ("CALLSHEET_BASE_URL", &env.base_url())], &["run", "batch.csv"])
        .exited(2)
        .says("CALLSHEET_EMULATOR cannot be used with CALLSHEET_BASE_URL");
    env.run(["run", "batch.csv", "--emulator", "--base-url", NOBODY]).exited(2).says("cannot be used with");
    env.audit().each_paid_once(0);
}

#[test]
fn a_wrong_value_of_a_variable_is_reported_with_its_name() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    for (variable, value) in [
        ("CALLSHEET_MAX_CREDITS", "many"),
        ("CALLSHEET_BATCH", "a/b"),
        ("CALLSHEET_STRICT", "maybe"),
        ("CALLSHEET_LOG_LEVEL", "inof"),
    ] {
        let told = format!("hint: the value comes from the environment variable {variable}");
        with(&env, &[(variable, value)], &["plan", "batch.csv"]).exited(2).says(&told);
    }
    let variable = ("CALLSHEET_BATCH", "ads");
    let named = with(&env, &[variable], &["plan", "batch.csv", "--name", "a/b"]).exited(2);
    assert!(!named.stderr.contains("CALLSHEET_BATCH"), "{}", named.stderr);
    let json = with(&env, &[("CALLSHEET_BUDGET", "lots")], &["plan", "batch.csv", "--json"]).exited(2);
    let error: serde_json::Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["error"]["hint"], "the value comes from the environment variable CALLSHEET_BUDGET");
}

/// A budget in the environment is given each time: the command for the manifest would lower again what was raised.
#[test]
fn the_command_after_a_raised_budget_leaves_out_the_one_of_the_environment() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    let stopped = with(&env, &[("CALLSHEET_BUDGET", "8")], &["run", "batch.csv"]).exited(4);
    stopped.says("callsheet budget batch 16\n").says("    env -u CALLSHEET_BUDGET callsheet run batch.csv\n");
    env.run(["budget", "batch", "24"]).exited(0);
    env.run(["run", "batch.csv"]).exited(0);
    env.audit().each_paid_once(3);
    let part = ["run", "batch.csv", "--batch", "part", "--first", "2", "--budget", "8"];
    env.run(part)
        .exited(4)
        .says("repeat this command, with the same part of the manifest and without --budget\n");
}

#[test]
fn what_is_no_number_of_credits_is_told_with_what_would_be() {
    let env = TestEnv::new();
    for words in [
        ["retry", "batch", "--max-credits", "1.5"],
        ["resolve", "batch/a", "--charged", "1.5"],
        ["plan", "batch.csv", "--max-credits", "1.5"],
    ] {
        let refused = env.run(words).exited(2);
        refused.says("found \"1.5\", expected a whole number of credits, 0 or more");
    }
}
