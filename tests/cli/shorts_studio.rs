//! Shorts Studio from manifest to file: polled where it is polled, and sent once whatever happens.

#![allow(clippy::unwrap_used)]

use callsheet_emulator::Options;
use serde_json::{Value, json};

use crate::support::TestEnv;
use crate::support::collect_outputs::Outputs;

fn manifest() -> String {
    json!([{"id": "short", "kind": "shorts-studio", "max_credits": 100, "options": {"taskId": "t"}}])
        .to_string()
}

/// Runs one job, twice, against an emulator with these faults: exit codes, the line of the results, and
/// the credits that are gone.
fn run_twice(faults: &str) -> (Vec<i32>, Value, u64) {
    run_twice_then(faults, &[])
}

/// The same, with further commands between the last run and the look at its results.
fn run_twice_then(faults: &str, then: &[&[&str]]) -> (Vec<i32>, Value, u64) {
    let env = TestEnv::with_faults(faults);
    env.write("m.json", manifest());
    let call = |arguments: &[&str]| env.run(arguments.iter().copied()).code.unwrap();
    let runs = [["run", "m.json"]; 2];
    let calls = runs.iter().map(|run| run.as_slice()).chain(then.iter().copied());
    let codes = calls.map(call).collect();
    let gone = Options::default().credits - env.audit().totals.balance;
    (codes, Outputs::of(&env, "m").lines.remove(0), gone)
}

#[test]
fn a_short_is_made_and_its_charge_is_known() {
    let (codes, line, gone) = run_twice("");
    assert_eq!(codes, [0, 0]);
    assert_eq!((&line["state"], &line["charged_credits"]), (&json!("succeeded"), &json!(gone)));
    assert_eq!(line["files"].as_array().unwrap().len(), 1);
}

#[test]
fn a_limit_beyond_all_measure_unbalances_no_books() {
    let env = TestEnv::new();
    let short = json!({"id": "a", "kind": "shorts-studio", "max_credits": u64::MAX, "options": {"x": 1}});
    let image = |id: &str| json!({"id": id, "kind": "image", "model": "gi-2", "prompt": id});
    env.write("m.json", json!({"jobs": [short, image("b"), image("c")]}).to_string());
    env.run(["run", "m.json"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.faults("[[rules]]\non = 'create'\nkind = 'shorts-studio'\neffect = { do = 'drop', when = 'after' }");
    env.write("n.json", manifest().replace("100", &u64::MAX.to_string()));
    env.run(["run", "n.json"]).exited(7);
    let most = u64::MAX.to_string();
    env.run(["resolve", "n/short", "--charged", &most, "--above-hold"]).exited(2).says("at most");
    env.run(["resolve", "n/short", "--charged", "20"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn an_unknown_outcome_waits_for_a_person_and_is_not_sent_again() {
    let faults = "[[rules]]\non = \"create\"\neffect = { do = \"drop\", when = \"after\" }\n";
    let (codes, line, gone) = run_twice(faults);
    assert_eq!(codes, [7, 7]);
    assert_eq!(line["state"], "in_doubt");
    assert_eq!(line["attempts"], 1);
    // The service took the one request that it never answered.
    assert!((1..=100).contains(&gone), "{gone}");
    let once = run_twice("").2;
    assert_eq!(gone, once, "charged once");
}

#[test]
fn a_person_ends_the_doubt() {
    let faults = "[[rules]]\non = \"create\"\neffect = { do = \"drop\", when = \"after\" }\n";
    let found = [
        ["resolve", "short", "--charged", "999"].as_slice(),
        ["resolve", "short", "--charged", "20"].as_slice(),
        ["resolve", "short", "--charged", "20"].as_slice(),
        ["resolve", "short", "--not-charged"].as_slice(),
        ["resolve", "short", "--charged", "999"].as_slice(),
        ["resolve", "short", "--charged", "20"].as_slice(),
        ["run", "m.json"].as_slice(),
    ];
    let (codes, line, _) = run_twice_then(faults, &found);
    let expected = [7, 7, 2, 0, 2, 0, 2, 0, 1];
    assert_eq!(
        codes, expected,
        "999 are more than were held; what was found is corrected, and not found twice"
    );
    assert_eq!((&line["state"], &line["charged_credits"]), (&json!("failed"), &json!(20)));
    let above =
        [["resolve", "short", "--charged", "999", "--above-hold"].as_slice(), ["run", "m.json"].as_slice()];
    let (codes, line, _) = run_twice_then(faults, &above);
    assert_eq!((codes, &line["charged_credits"]), (vec![7, 7, 0, 1], &json!(999)));
    // The results have it at once: no process is there that would write them.
    let (codes, line, _) = run_twice_then(faults, &found[1..2]);
    assert_eq!(codes, [7, 7, 0]);
    assert_eq!((&line["state"], &line["charged_credits"]), (&json!("failed"), &json!(20)));
    let nothing = [["resolve", "short", "--not-charged"].as_slice(), ["retry", "short"].as_slice()];
    let (codes, _, _) = run_twice_then(faults, &nothing);
    assert_eq!(codes, [7, 7, 0, 0]);
}

#[test]
fn no_key_is_promised_where_the_endpoint_supports_none() {
    let env =
        TestEnv::with_faults("[[rules]]\non = \"create\"\neffect = { do = \"drop\", when = \"after\" }\n");
    env.write("m.json", manifest());
    env.run(["run", "m.json"]).exited(7);
    let resolved = env.run(["resolve", "short", "--not-charged"]).exited(0);
    let explained = env.run(["explain", "short"]).exited(0);
    for said in [&resolved.stdout, &explained.stdout] {
        assert!(!said.contains("same key"), "{said}");
    }
    assert!(explained.stdout.contains("both are charged"), "{}", explained.stdout);
}

#[test]
fn a_state_that_was_begun_anew_buys_nothing_again_that_lies_there() {
    let anew = [
        ["run", "m.json", "--state", "anew"].as_slice(),
        ["retry", "short", "--state", "anew"].as_slice(),
        ["run", "m.json", "--state", "anew"].as_slice(),
    ];
    let (codes, line, gone) = run_twice_then("", &anew);
    assert_eq!(codes, [0, 0, 1, 0, 1]);
    assert_eq!((&line["state"], &line["error"]["code"]), (&json!("failed"), &json!("made_before")));
    assert!(line["error"]["message"].as_str().unwrap().contains("short.json"), "{line:#}");
    assert_eq!(gone, run_twice("").2, "charged once");
}

#[test]
fn what_was_made_before_is_named_with_the_file_that_tells_so_and_not_with_a_retry_that_fails_again() {
    let env = TestEnv::new();
    env.write("m.json", manifest());
    env.run(["run", "m.json"]).exited(0);
    let paid = env.audit().totals.charged_credits;
    std::fs::remove_dir_all(env.path("state")).unwrap();
    let told = "m: 1 job is made and paid for before, and nothing was bought. To pay for one again, move the file away that \
                its error names, then:\n    callsheet retry m/short\n";
    let ended = env.run(["run", "m.json"]).exited(1).says(told);
    assert!(!ended.stderr.contains("may succeed at another attempt"), "{}", ended.stderr);
    let explained = env.run(["explain", "short"]).exited(0).stdout;
    assert!(explained.contains("move that file away"), "{explained}");
    env.run(["retry", "m"])
        .exited(0)
        .says("m: 1 queued again, without a key, since the endpoint supports none")
        .says("1 were made and paid for already");
    env.run(["run", "m.json"]).exited(1).says(told);
    assert_eq!(env.audit().totals.charged_credits, paid, "bought once");
    env.run(["retry", "m/short"]).exited(0);
    std::fs::rename(env.path("output/m/sidecars/short.json"), env.path("short.json")).unwrap();
    env.run(["run", "m.json"]).exited(0);
    assert_eq!(env.audit().totals.charged_credits, 2 * paid, "bought again as it was wanted");
}

#[test]
fn the_record_of_a_short_is_what_its_poll_shows() {
    let env = TestEnv::new();
    env.write("m.json", manifest());
    env.run(["run", "m.json"]).exited(0);
    let task = env.audit().tasks[0].id.clone();
    let shown = env.run(["tasks", &task, "--json"]).exited(0).json();
    assert_eq!((&shown["status"], &shown["costCredits"]), (&json!("success"), &json!(20)), "{shown:#}");
    let unknown = "00000000-0000-4000-8000-000000000000";
    env.run(["tasks", unknown]).exited(2).says("the service knows no task");
}
