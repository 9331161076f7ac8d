//! A charge, a model or options other than planned: told per job in the results.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use callsheet_emulator::{self as emulator, Faults};
use serde_json::{Value, json};

use crate::support::api_key::{KEY, key_is_nowhere};

/// Runs one video against an emulator with these faults, and returns its line of the results.
async fn result_of(faults: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let rows = json!([{"id": "boat", "kind": "video", "model": "house-c1", "prompt": "A boat"}]);
    fs::write(dir.path().join("m.json"), rows.to_string()).unwrap();
    fs::write(dir.path().join("callsheet.toml"), "[poll]\nmin = \"50ms\"\nmax = \"100ms\"\n").unwrap();
    let options = emulator::Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        speed: 200.0,
        api_key: KEY.to_owned(),
        faults: Some(Faults::parse(faults).unwrap()),
        ..emulator::Options::default()
    };
    let service = emulator::start(options).await.unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
    command.args(["run", "m.json", "--base-url", &service.base_url()]).current_dir(dir.path());
    command.env_clear().env("CALLSHEET_API_KEY", KEY);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    service.stop().await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    key_is_nowhere(dir.path(), &[&output.stdout, &output.stderr]);
    let line = fs::read_to_string(dir.path().join("output/m/results.jsonl")).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_as_planned_has_no_drift() {
    assert_eq!(result_of("").await["drift"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_model_is_told() {
    let faults = "[[rules]]\neffect = { do = \"other-model\", model = \"house-understudy\" }\n";
    let line = result_of(faults).await;
    let expected =
        json!([{"field": "model", "planned": "house-c1", "actual": "house-understudy/text-to-video"}]);
    assert_eq!(line["drift"], expected);
    assert_eq!(line["model"], "house-understudy/text-to-video");
}
