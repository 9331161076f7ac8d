//! Rows that are edited: which version is wanted, what is bought, and what its files are called.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::fs;

use serde_json::Value;

use crate::support::TestEnv;
use crate::support::process::Outcome;

/// A manifest of images, as `id: prompt`.
fn write(env: &TestEnv, rows: &[(&str, &str)]) {
    let rows = rows.iter().map(|(id, prompt)| format!("{id},image,gi-2,{prompt}\n"));
    env.write("birds.csv", format!("id,kind,model,prompt\n{}", rows.collect::<String>()));
}

/// The results as `prompt: state`, superseded ones in brackets.
fn results(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(env.path("output/birds/results.jsonl")).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let told = format!("{}: {}", line["prompt"].as_str().unwrap(), line["state"].as_str().unwrap());
        if line["superseded"] == true { format!("({told})") } else { told }
    };
    text.lines().map(line).collect()
}

fn shows(outcome: &Outcome, text: &str) {
    assert!(outcome.stdout.contains(text), "not shown: {text}\n--- stdout\n{}", outcome.stdout);
}

/// Jobs of the batch that succeeded, were canceled, and were replaced before they were sent.
fn counts(env: &TestEnv) -> [u64; 3] {
    let status = env.run(["status", "birds", "--json"]).exited(0).json()["batches"][0].clone();
    ["succeeded", "canceled", "replaced"].map(|state| status[state].as_u64().unwrap_or_default())
}

#[test]
fn a_version_that_was_not_sent_is_replaced_free_of_charge() {
    let env = TestEnv::new();
    write(&env, &[("crow", "a crow"), ("gull", "a gull")]);
    env.run(["run", "birds.csv", "--budget", "8"]).exited(4);
    write(&env, &[("crow", "a crow"), ("gull", "a gull in a storm")]);
    shows(&env.run(["run", "birds.csv", "--budget", "16"]).exited(0), "2 succeeded, 1 replaced");
    env.audit().each_paid_once(2);
    assert_eq!(results(&env), ["a crow: succeeded", "(a gull: canceled)", "a gull in a storm: succeeded"]);
    assert_eq!(counts(&env), [2, 0, 1]);
    // A retry of the whole, and of the version by its number, buys nothing.
    env.run(["retry", "birds"]).says("1 are older versions of edited rows");
    env.run(["retry", "gull@1"]).says("1 are older versions of edited rows");
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(2);
    let first = env.run(["explain", "gull@1", "--json"]).exited(0).json();
    assert_eq!((&first["superseded"], &first["versions"][1]["name"]), (&true.into(), &"gull@2".into()));
    shows(&env.run(["explain", "gull"]).exited(0), "gull@2 of 2, the one that is wanted");
}

#[test]
fn a_name_means_the_version_of_the_last_manifest_whichever_was_accepted_first() {
    let env = TestEnv::new();
    for prompt in ["a gull", "a gull in a storm", "a gull"] {
        write(&env, &[("gull", prompt)]);
        env.run(["run", "birds.csv"]).exited(0);
        let found = env.run(["explain", "gull", "--json"]).exited(0).json();
        assert_eq!(found["spec"]["order"]["body"]["prompt"], prompt);
    }
    env.audit().each_paid_once(2);
    assert_eq!(results(&env), ["a gull: succeeded", "(a gull in a storm: succeeded)"]);
    shows(&env.run(["jobs", "birds"]).exited(0), "birds/gull (superseded, ");
}
