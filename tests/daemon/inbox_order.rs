//! Manifests of one inbox are taken in in the order in which they were dropped; a large one keeps no small one waiting.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{TestEnv, until};

/// Rows of a manifest that takes some seconds to read where nothing is optimised.
const MANY_ROWS: usize = 60_000;
/// Enough for one that takes moments, yet is as large.
const FEWER_ROWS: usize = MANY_ROWS / 4;
/// A manifest above 4 MiB is a large one.
const LARGE_BYTES: usize = 4 * 1024 * 1024;

/// Drops a manifest as pipelines do: whole, under its name.
fn drop_in(env: &TestEnv, name: &str, text: &str) {
    let draft = env.write(&format!("jobs/inbox/.{name}"), text);
    std::fs::rename(draft, env.path("jobs/inbox").join(name)).unwrap();
}

fn receipt(env: &TestEnv, name: &str) -> Option<Value> {
    let text = std::fs::read(env.path("jobs/accepted").join(format!("{name}.receipt.json"))).ok()?;
    Some(serde_json::from_slice(&text).unwrap())
}

/// A large manifest of so many rows.
fn large(rows: usize) -> String {
    let prompt = "a fox in the snow ".repeat(LARGE_BYTES / rows / 18);
    let mut text = String::from("id,kind,model,prompt\n");
    (0..rows).for_each(|n| writeln!(text, "row-{n},image,gi-2,{prompt}and number {n}").unwrap());
    assert!(text.len() > LARGE_BYTES);
    text
}

#[test]
fn a_small_manifest_does_not_wait_until_a_large_one_is_read() {
    let env = TestEnv::with_credits(0);
    let daemon = env.daemon("info");
    drop_in(&env, "large.csv", &large(MANY_ROWS));
    drop_in(&env, "urgent.csv", "id,kind,model,prompt\nnow,image,gi-2,an owl\n");
    until("the small one", || receipt(&env, "urgent.csv").is_some());
    assert!(receipt(&env, "large.csv").is_none(), "the large one was read first");
    until("the large one", || receipt(&env, "large.csv").is_some());
    assert_eq!(receipt(&env, "large.csv").unwrap()["new"], MANY_ROWS);
    daemon.stop();
}

#[test]
fn what_may_name_rows_of_a_large_manifest_follows_it() {
    let env = TestEnv::with_credits(0);
    let daemon = env.daemon("info");
    drop_in(&env, "large.csv", &large(FEWER_ROWS));
    let child = r#"{"jobs": [{"id": "runs", "kind": "video", "model": "house-c1", "prompt": "it runs", "duration": "2s", "image_urls": ["job:large/row-7"]}]}"#;
    drop_in(&env, "child.json", child);
    until("the child", || receipt(&env, "child.json").is_some());
    assert_eq!(receipt(&env, "large.csv").unwrap()["new"], FEWER_ROWS, "it was read before");
    assert_eq!(receipt(&env, "child.json").unwrap()["new"], 1);
    daemon.stop();
}

#[test]
fn a_small_manifest_of_the_same_batch_follows_a_large_one() {
    let env = TestEnv::with_credits(0);
    let daemon = env.daemon("info");
    drop_in(&env, "large.csv", &large(FEWER_ROWS));
    let edited = r#"{"batch": "large", "jobs": [{"id": "row-7", "kind": "image", "model": "gi-2", "prompt": "a hare"}]}"#;
    drop_in(&env, "edited.json", edited);
    until("the edit", || receipt(&env, "edited.json").is_some());
    assert_eq!(receipt(&env, "large.csv").unwrap()["new"], FEWER_ROWS, "it was read before");
    assert_eq!(receipt(&env, "edited.json").unwrap()["changed"], 1);
    daemon.stop();
}
