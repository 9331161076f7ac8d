//! A charge, a model or options other than planned: told per job in the results.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use crate::support::TestEnv;
use crate::support::collect_outputs::Outputs;

/// Runs one video against an emulator with these faults, and returns its line of the results.
fn result_of(faults: &str) -> Value {
    let env = TestEnv::with_faults(faults);
    let rows = json!([{"id": "boat", "kind": "video", "model": "house-c1", "prompt": "A boat"}]);
    env.write("m.json", rows.to_string());
    env.run(["run", "m.json"]).exited(0);
    Outputs::of(&env, "m").lines.remove(0)
}

#[test]
fn a_run_as_planned_has_no_drift() {
    assert_eq!(result_of("")["drift"], json!([]));
}

#[test]
fn another_model_is_told() {
    let faults = "[[rules]]\neffect = { do = \"other-model\", model = \"house-understudy\" }\n";
    let line = result_of(faults);
    let expected =
        json!([{"field": "model", "planned": "house-c1", "actual": "house-understudy/text-to-video"}]);
    assert_eq!(line["drift"], expected);
    assert_eq!(line["model"], "house-understudy/text-to-video");
}
