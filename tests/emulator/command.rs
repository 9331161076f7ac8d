//! `callsheet emulator` as a user and a script meet it: ready, ended, refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use crate::emulator::process::{Running, http_client, program};
use reqwest::Client;
use rustix::process::Signal;
use serde_json::{Value, json};

async fn balance(emulator: &Running, key: &str) -> (u16, Value) {
    let client = http_client().build().unwrap();
    let call = client.get(format!("{}/api/v1/credits", emulator.base_url)).bearer_auth(key);
    let answer = call.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Exit code and stderr of a command that does not start.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = program(arguments).output().unwrap();
    assert!(output.stdout.is_empty());
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn one_line_says_that_it_is_ready_and_where() {
    let mut emulator = Running::start(&["--credits", "7", "--api-key", "another"]);
    let mut fields: Vec<&str> = emulator.ready.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["api_key", "base_url", "media_url"]);
    assert_eq!(emulator.ready["api_key"], "another");
    assert_ne!(emulator.ready["media_url"], emulator.ready["base_url"]);
    assert_eq!(balance(&emulator, "another").await.1["data"]["remainingCredits"], 7);
    assert_eq!(balance(&emulator, "emulator-key").await.0, 401);
    let (_, out, err) = emulator.end(Signal::TERM);
    assert_eq!(out, "");
    assert!(err.contains(&emulator.base_url) && err.contains("curl"), "{err}");
}

#[tokio::test]
async fn results_are_named_by_the_address_that_clients_reach() {
    let arguments = ["--media-url", "http://emulator.test:8788/", "--speed", "inf"];
    let emulator = Running::start(&arguments);
    assert_eq!(emulator.ready["media_url"], "http://emulator.test:8788");
    let client = http_client().build().unwrap();
    let call = client.post(format!("{}/api/v1/sound-effects", emulator.base_url)).bearer_auth("emulator-key");
    let task: Value = call.json(&json!({"prompt": "x"})).send().await.unwrap().json().await.unwrap();
    let url = task["data"]["taskUrls"][0].as_str().unwrap();
    assert!(url.starts_with("http://emulator.test:8788/media/"), "{url}");
}

#[test]
fn terminate_and_interrupt_end_it_with_exit_code_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let (status, _, err) = Running::start(&[]).end(signal);
        assert_eq!(status.code(), Some(0), "{err}");
    }
}

#[tokio::test]
async fn a_call_in_flight_does_not_hold_up_the_end() {
    let mut emulator = Running::start(&["--speed", "0.01"]);
    let client = http_client().build().unwrap();
    let call = client.post(format!("{}/api/v1/music", emulator.base_url)).bearer_auth("emulator-key");
    let call = tokio::spawn(call.json(&json!({"prompt": "x"})).send());
    while audit(&client, &emulator).await["totals"]["tasks"] == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let (status, ..) = tokio::task::spawn_blocking(move || emulator.end(Signal::TERM)).await.unwrap();
    assert_eq!(status.code(), Some(0));
    drop(call.await);
}

async fn audit(client: &Client, emulator: &Running) -> Value {
    client.get(format!("{}/emulator/audit", emulator.base_url)).send().await.unwrap().json().await.unwrap()
}

#[test]
fn a_port_in_use_is_named_with_a_way_out() {
    let first = Running::start(&[]);
    let taken = first.base_url.strip_prefix("http://").unwrap();
    let (code, said) = refused(&["--listen", taken]);
    assert_eq!(code, 2);
    assert!(said.contains(&format!("error: failed to start: cannot listen on {taken}")), "{said}");
    assert!(said.contains("hint: ") && said.contains("--listen 127.0.0.1:0"), "{said}");
    let (_, said) = refused(&["--listen", "127.0.0.1:0", "--media-listen", taken]);
    assert!(said.contains("--media-listen 127.0.0.1:0"), "{said}");
}

#[test]
fn what_it_cannot_use_is_named_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, "[[rules]]\neffect = { do = 'explode' }").unwrap();
    for (arguments, expected) in [
        (["--speed", "0"], "must be a number greater than 0, such as 20, or inf"),
        (["--plan", "gold"], "[possible values: none, pro, ultra]"),
        (["--api-key", "two words"], "the API key must be visible ASCII characters"),
        (["--faults", "hurricane"], "hint: --faults takes calm, flaky-network, storm, or a file"),
        (["--faults", plan.to_str().unwrap()], "explode"),
        (["--media-url", "http://emulator/path"], "must be an http(s) origin"),
        (["--catalog", "/nonexistent.json"], "cannot serve the catalog /nonexistent.json"),
    ] {
        let (code, said) = refused(&[&["--listen", "127.0.0.1:0"], &arguments[..]].concat());
        assert_eq!(code, 2, "{arguments:?}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn settings_may_come_from_the_environment_and_state_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let start = |credits: &str| {
        let mut command = program(&["--json"]);
        command
            .env("CALLSHEET_EMULATOR_LISTEN", "127.0.0.1:0")
            .env("CALLSHEET_EMULATOR_API_KEY", "from-the-environment")
            .env("CALLSHEET_EMULATOR_CREDITS", credits)
            .env("CALLSHEET_EMULATOR_STATE", folder.path());
        Running::spawn(command)
    };
    let mut first = start("41");
    assert_eq!(balance(&first, "from-the-environment").await.1["data"]["remainingCredits"], 41);
    let second =
        program(&["--listen", "127.0.0.1:0", "--emulator-state", folder.path().to_str().unwrap()]).output();
    let said = String::from_utf8(second.unwrap().stderr).unwrap();
    assert!(said.contains("in use by another emulator") && said.contains("hint: "), "{said}");
    first.end(Signal::TERM);
    let again = start("99");
    assert_eq!(balance(&again, "from-the-environment").await.1["data"]["remainingCredits"], 41);
}

#[tokio::test]
async fn a_manual_clock_gives_the_same_ids_each_time() {
    let client = http_client().build().unwrap();
    let mut ids = Vec::new();
    for seed in ["1", "1", "2"] {
        let emulator = Running::start(&["--manual-clock", "--seed", seed]);
        let call = client.post(format!("{}/api/v1/videos", emulator.base_url)).bearer_auth("emulator-key");
        let answer = call.json(&json!({"model": "house-c1", "prompt": "x"})).send().await.unwrap();
        let task: Value = answer.json().await.unwrap();
        assert_eq!(task["data"]["createdAt"], "2026-01-01T00:00:00.000Z");
        ids.push(task["data"]["id"].clone());
    }
    assert!(ids[0] == ids[1] && ids[1] != ids[2]);
}

#[test]
fn help_teaches() {
    let output = program(&["--help"]).output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for part in [
        "curl ",
        "Idempotency-Key",
        "flaky-network",
        "[[rules]]",
        "/emulator/audit",
        "--manual-clock",
        "SIGTERM",
    ] {
        assert!(help.contains(part), "{part}");
    }
}
