//! Commands that are named when something ended badly: copied as they stand, each does what its sentence says, and buys
//! nothing else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde_json::json;

use crate::support::TestEnv;

/// The first task of a row with this prompt fails.
const ONCE: &str = "[[rules]]\ncontains = 'once'\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }\n";

#[test]
fn the_command_for_failed_jobs_buys_no_canceled_one() {
    let env = TestEnv::with_faults(ONCE);
    let jobs = json!([
        {"id": "a", "kind": "sound-effect", "prompt": "once"},
        {"id": "b", "kind": "video", "model": "house-c1", "prompt": "unwanted"},
        {"id": "c", "kind": "sound-effect", "prompt": "fine"},
    ]);
    env.write("w.json", json!({"batch": "w", "policy": {"attempts": 1}, "jobs": jobs}).to_string());
    env.run(["run", "w.json", "--budget", "0"]).exited(4);
    env.run(["cancel", "w/b"]).exited(0);
    env.run(["run", "w.json", "--budget", "100"])
        .exited(1)
        .says("w: 1 failed job may succeed at another attempt:\n    callsheet retry w --failed\n")
        .says("w: 1 canceled; to queue them again, together with 1 failed:\n    callsheet retry w\n");
    env.run(["retry", "w", "--failed"]).exited(0).says("w: 1 queued again");
    env.run(["run", "w.json"]).exited(1).says("w: 1 canceled; to queue them again:\n    callsheet retry w\n");
    let audit = env.audit();
    assert!(audit.tasks.iter().all(|task| task.prompt != "unwanted"), "{:#?}", audit.tasks);
}
