//! Manifests by standard input.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs::File;
use std::process::Output;

use crate::support::TestEnv;

const IMAGE: &str = "id,kind,model,prompt\none,image,gi-2,a harbour\n";

/// Runs a command with a file on its standard input.
fn piped(env: &TestEnv, file: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = env.command(words.iter().copied());
    let Output { status, stderr, .. } = command.stdin(File::open(env.path(file)).unwrap()).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_manifest_by_standard_input_is_the_same_manifest() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    let (code, said) = piped(&env, "batch.csv", &["run", "-", "--name", "piped"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("standard input: batch piped: 1 new"), "{said}");
    // Its key depends on the batch's name, not on where it came from.
    env.run(["run", "batch.csv", "--batch", "piped"]).exited(0).says("0 new (0 credits), 1 already there");
    let (code, said) = piped(&env, "batch.csv", &["plan", "-", "--name", "piped"]);
    assert_eq!(code, Some(0), "{said}");
    let daemon = env.daemon("info");
    let (code, said) = piped(&env, "batch.csv", &["submit", "-", "--name", "more", "--format", "csv"]);
    assert!(code == Some(0) && said.contains("batch more: 1 new"), "{said}");
    daemon.stop();
    env.run(["run", "batch.csv", "--batch", "more"]).exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn standard_input_has_a_name_and_a_format() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    let refused = |words: &[&str], says: &str| {
        let (code, said) = piped(&env, "batch.csv", words);
        assert!(code == Some(2) && said.contains(says), "{said}");
    };
    refused(&["run", "-"], "hint: name the batch with --name");
    refused(&["run", "-", "-", "--name", "a"], "can be given only once");
    refused(&["run", "batch.csv", "--format", "csv"], "--format is for standard input");
    refused(&["plan", "-", "--name", "a", "--format", "json"], "standard input:1:1: not JSON");
    env.write("batch.json", r#"{"matrix": {"bird": "gone.csv"}, "jobs": [{"prompt": "a {bird}"}]}"#);
    let (code, said) = piped(&env, "batch.json", &["plan", "-", "--name", "a"]);
    assert!(code == Some(2) && said.contains("standard input:1:21: matrix.bird: failed to read"), "{said}");
    env.write(
        "batch.json",
        r#"{"batch": "told", "jobs": [{"kind": "image", "model": "gi-2", "prompt": "x"}]}"#,
    );
    let (code, said) = piped(&env, "batch.json", &["run", "-"]);
    assert!(code == Some(0) && said.contains("batch told: 1 new"), "{said}");
}
