//! Clips that are as long as a voice: priced as a range, measured when the voice is there, and bought once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use callsheet::failpoint;
use serde_json::Value;

use crate::support::TestEnv;
use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;

/// The emulator speaks some 14 characters a second: 60 of them take 4.29 s.
const TEXT: &str = "The red boat leaves the harbour, and nobody looks after her.";

/// A voice, and a clip that is to be as long; the clip stands first.
fn story(env: &TestEnv, text: &str) {
    let jobs = serde_json::json!({"jobs": [
        {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the boat", "duration": "job:voice"},
        {"id": "voice", "kind": "speech", "voice_id": "aria", "text": text},
    ]});
    env.write("story.json", jobs.to_string());
}

fn explained(env: &TestEnv, job: &str) -> Value {
    env.run(["explain", job, "--json"]).exited(0).json()
}

/// The options of the tasks of a kind that the service made, and what they cost.
fn made(env: &TestEnv, scene: &str) -> Vec<(Value, u64)> {
    let tasks = env.audit().tasks.into_iter().filter(|task| task.scene == scene);
    tasks.map(|task| (task.options, task.cost_credits)).collect()
}

#[test]
fn a_clip_is_as_long_as_its_voice_rounded_up_and_costs_what_that_costs() {
    let env = TestEnv::new();
    story(&env, TEXT);
    let plan = env.run(["plan", "story.json"]).exited(0);
    plan.says("2 to 30").says("by the length of job:voice").says("total: 33 credits");
    plan.says("by length: one of them costs 2 to 30 credits");
    let plan = env.run(["plan", "story.json", "--json"]).exited(0).json();
    let clip = &plan["rows"][0];
    assert_eq!(
        (&clip["price_credits"], &clip["price_from_credits"], &clip["price_to_credits"]),
        (&Value::Null, &2.into(), &30.into())
    );
    assert_eq!((&plan["total_credits"], &plan["by_length"]["to_credits"]), (&33.into(), &30.into()));
    env.run(["run", "story.json"]).exited(0);
    let clips = made(&env, "text-to-video");
    assert_eq!(clips.len(), 1);
    assert_eq!((&clips[0].0["duration"], clips[0].1), (&"5s".into(), 10));
    let clip = explained(&env, "story/clip");
    let input = &clip["inputs"][0];
    assert_eq!(
        (&input["field"], &input["address"], &input["measured_ms"]),
        (&"duration".into(), &"5s".into(), &4290.into()),
        "{clip:#}"
    );
    assert!(clip.get("drift").is_none(), "{clip:#}");
    env.run(["explain", "story/clip"]).exited(0).says("5s, since that is 4.29 s long");
    env.run(["jobs", "story"]).exited(0).says("(takes voice; 5s)");
    let results = std::fs::read_to_string(env.path("output/story/results.jsonl")).unwrap();
    assert!(results.contains(r#""sent_length":"5s""#), "{results}");
    let sidecar = std::fs::read_to_string(env.path("output/story/clip.json")).unwrap();
    let sidecar: Value = serde_json::from_str(&sidecar).unwrap();
    assert_eq!(sidecar["request"]["options"]["duration"], "5s");
    // Nothing is bought again, however the file of the voice has changed since.
    std::fs::write(env.path("output/story/voice.wav"), "edited").unwrap();
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 2 already there");
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.audit().each_paid_once(2);
}
