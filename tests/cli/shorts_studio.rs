//! Shorts Studio from manifest to file: polled where it is polled, and sent once whatever happens.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use callsheet_emulator::{self as emulator, Faults};
use serde_json::{Value, json};

use crate::support::api_key::{KEY, key_is_nowhere};

/// Runs one job, twice, against an emulator with these faults: exit codes, the line of the results, and
/// the credits that are gone.
async fn run_twice(faults: &str) -> (Vec<i32>, Value, u64) {
    run_twice_then(faults, &[]).await
}

/// The same, with further commands between the last run and the look at its results.
async fn run_twice_then(faults: &str, then: &[&[&str]]) -> (Vec<i32>, Value, u64) {
    const CREDITS: u64 = 1000;
    let dir = tempfile::tempdir().unwrap();
    let job =
        json!([{"id": "short", "kind": "shorts-studio", "max_credits": 100, "options": {"taskId": "t"}}]);
    fs::write(dir.path().join("m.json"), job.to_string()).unwrap();
    fs::write(dir.path().join("callsheet.toml"), "[poll]\nmin = \"50ms\"\nmax = \"100ms\"\n").unwrap();
    let options = emulator::Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        speed: 200.0,
        api_key: KEY.to_owned(),
        credits: CREDITS,
        faults: Some(Faults::parse(faults).unwrap()),
        ..emulator::Options::default()
    };
    let service = emulator::start(options).await.unwrap();
    let call = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
        command.args(arguments).args(["--base-url", &service.base_url()]).current_dir(dir.path());
        command.env_clear().env("CALLSHEET_API_KEY", KEY);
        let place = dir.path().to_owned();
        tokio::task::spawn_blocking(move || {
            let output = command.output().unwrap();
            key_is_nowhere(&place, &[&output.stdout, &output.stderr]);
            output
        })
    };
    let mut codes = Vec::new();
    for _ in 0..2 {
        codes.push(call(&["run", "m.json"]).await.unwrap().status.code().unwrap());
    }
    for arguments in then {
        codes.push(call(arguments).await.unwrap().status.code().unwrap());
    }
    let balance = call(&["credits", "--json"]).await.unwrap().stdout;
    let balance: Value = serde_json::from_slice(&balance).unwrap();
    service.stop().await;
    let line = fs::read_to_string(dir.path().join("output/m/results.jsonl")).unwrap();
    let gone = CREDITS - balance["balance_credits"].as_u64().unwrap();
    (codes, serde_json::from_str(&line).unwrap(), gone)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_is_made_and_its_charge_is_known() {
    let (codes, line, gone) = run_twice("").await;
    assert_eq!(codes, [0, 0]);
    assert_eq!((&line["state"], &line["charged_credits"]), (&json!("succeeded"), &json!(gone)));
    assert_eq!(line["files"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_waits_for_a_person_and_is_not_sent_again() {
    let faults = "[[rules]]\non = \"create\"\neffect = { do = \"drop\", when = \"after\" }\n";
    let (codes, line, gone) = run_twice(faults).await;
    assert_eq!(codes, [7, 7]);
    assert_eq!(line["state"], "in_doubt");
    assert_eq!(line["attempts"], 1);
    // The service took the one request that it never answered.
    assert!((1..=100).contains(&gone), "{gone}");
    let once = run_twice("").await.2;
    assert_eq!(gone, once, "charged once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_ends_the_doubt() {
    let faults = "[[rules]]\non = \"create\"\neffect = { do = \"drop\", when = \"after\" }\n";
    let found = [
        ["resolve", "short", "--charged", "999"].as_slice(),
        ["resolve", "short", "--charged", "20"].as_slice(),
        ["resolve", "short", "--not-charged"].as_slice(),
        ["run", "m.json"].as_slice(),
    ];
    let (codes, line, _) = run_twice_then(faults, &found).await;
    assert_eq!(codes, [7, 7, 2, 0, 2, 1], "999 are more than were set aside; once told, there is no doubt");
    assert_eq!((&line["state"], &line["charged_credits"]), (&json!("failed"), &json!(20)));
    let above =
        [["resolve", "short", "--charged", "999", "--above-hold"].as_slice(), ["run", "m.json"].as_slice()];
    let (codes, line, _) = run_twice_then(faults, &above).await;
    assert_eq!((codes, &line["charged_credits"]), (vec![7, 7, 0, 1], &json!(999)));
    let nothing = [["resolve", "short", "--not-charged"].as_slice(), ["retry", "short"].as_slice()];
    let (codes, _, _) = run_twice_then(faults, &nothing).await;
    assert_eq!(codes, [7, 7, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_begun_anew_buys_nothing_again_that_lies_there() {
    let anew = [
        ["run", "m.json", "--state", "anew"].as_slice(),
        ["retry", "short", "--state", "anew"].as_slice(),
        ["run", "m.json", "--state", "anew"].as_slice(),
    ];
    let (codes, line, gone) = run_twice_then("", &anew).await;
    assert_eq!(codes, [0, 0, 1, 0, 1]);
    assert_eq!((&line["state"], &line["error"]["code"]), (&json!("failed"), &json!("made_before")));
    assert!(line["error"]["message"].as_str().unwrap().contains("short.json"), "{line:#}");
    assert_eq!(gone, run_twice("").await.2, "charged once");
}
