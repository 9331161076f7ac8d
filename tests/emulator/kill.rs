//! The emulator's process is killed while it works; another one goes on from the same state.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::emulator::process::http_client;
use callsheet_emulator::{DEFAULT_API_KEY, Options, start};
use reqwest::Client;
use serde_json::{Value, json};

const STATE: &str = "EMULATOR_KILL_TEST_STATE";
const ANNOUNCES: &str = "emulator at ";

/// Not a test of its own: the process that is killed.
#[tokio::test]
async fn the_process_that_is_killed() {
    let Ok(state) = std::env::var(STATE) else { return };
    let options =
        Options { state_dir: Some(state.into()), speed: 20.0, credits: 10_000, ..Options::default() };
    let emulator = start(options).await.unwrap();
    println!("\n{ANNOUNCES}{}", emulator.base_url());
    emulator.wait().await;
}

/// Starts this program again as an emulator; returns it with its address.
fn spawn(state: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "emulator::kill::the_process_that_is_killed", "--nocapture"])
        .env(STATE, state)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(ANNOUNCES).map(str::to_owned));
    (child, url.unwrap())
}

async fn post(client: &Client, url: &str, n: usize) -> Option<Value> {
    let (path, body) = match n % 3 {
        0 => ("videos", json!({"model": "house-c1", "prompt": format!("boat {n}")})),
        1 => ("speech", json!({"text": format!("boat {n}"), "voice_id": "aria"})),
        _ => ("images", json!({"model": "gi-2", "prompt": format!("boat {n}")})),
    };
    let request = client.post(format!("{url}/api/v1/{path}")).bearer_auth(DEFAULT_API_KEY);
    let answer = request.header("Idempotency-Key", format!("key-{n}")).json(&body).send().await.ok()?;
    answer.json().await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_was_answered_before_a_kill_is_known_after_it_and_nothing_is_charged_twice() {
    let state = tempfile::tempdir().unwrap();
    let client = http_client().retry(reqwest::retry::never()).build().unwrap();
    let mut known: Vec<Option<String>> = vec![None; 60];
    for round in 0..6_u64 {
        let (mut child, url) = spawn(state.path());
        let deadline = tokio::time::Instant::now() + Duration::from_millis(40 + 23 * round);
        let calls = (0..known.len()).map(|n| {
            let (client, url) = (&client, url.as_str());
            async move { tokio::time::timeout_at(deadline, post(client, url, n)).await.ok().flatten() }
        });
        let answers = futures_util::future::join_all(calls).await;
        child.kill().unwrap();
        child.wait().unwrap();
        for (known, answer) in known.iter_mut().zip(answers) {
            let Some(answer) = answer else { continue };
            let id = answer["data"]["id"].as_str().unwrap().to_owned();
            assert_eq!(known.get_or_insert(id.clone()), &id, "a key changed its task");
        }
    }

    assert!(known.iter().any(Option::is_some), "every process died before it answered");
    let options = Options { state_dir: Some(state.path().to_owned()), speed: 1_000.0, ..Options::default() };
    let emulator = start(options).await.unwrap();
    for (n, known) in known.iter().enumerate() {
        let answer = post(&client, &emulator.base_url(), n).await.unwrap();
        assert!(known.as_deref().is_none_or(|id| answer["data"]["id"] == id), "key-{n} was forgotten");
    }
    let totals = emulator.audit()["totals"].clone();
    assert_eq!((&totals["tasks"], &totals["keys"]), (&json!(60), &json!(60)));
    // 20 of each: videos 10, speech 1, images 8.
    assert_eq!((&totals["charged_credits"], &totals["balance"]), (&json!(380), &json!(9_620)));
    emulator.stop().await;
}
