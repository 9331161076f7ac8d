//! A state that an earlier version left behind opens, reads the same, and resumes without paying again.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use callsheet::store::JobRecord;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, audit_of_state};

const STATE: [&str; 2] = ["--state", "state/emulator"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-1").join(name)
}

/// The frozen folder, thawed.
fn thawed() -> TestEnv {
    let env = TestEnv::new();
    let untar =
        Command::new("tar").arg("-xzf").arg(fixture("state.tar.gz")).current_dir(env.path("")).status();
    assert!(untar.unwrap().success());
    // Its configuration is no state: whoever keeps one calls a key as the error says that it is called now.
    let configuration = fs::read_to_string(env.path("callsheet.toml")).unwrap();
    env.write("callsheet.toml", configuration.replace("late_window", "watch_overdue_for"));
    env
}

fn said(env: &TestEnv, command: &[&str]) -> String {
    env.run(command.iter().copied().chain(STATE)).exited(0).stdout
}

fn stored(name: &str) -> String {
    fs::read_to_string(fixture(name)).unwrap()
}

/// Charges at the service, task by task.
fn charges(env: &TestEnv) -> BTreeMap<String, u64> {
    let audit = audit_of_state(&env.path("state/emulator-service"));
    audit.tasks.into_iter().map(|task| (task.id, task.charges)).collect()
}

#[test]
fn it_reads_the_same() {
    let env = thawed();
    assert_eq!(said(&env, &["jobs", "--json"]), stored("jobs.jsonl"));
    assert_eq!(said(&env, &["ledger", "--csv"]), stored("ledger.csv"));
    assert_eq!(said(&env, &["state", "export"]), stored("dump.format-2.jsonl"));
    env.run(["state", "verify"].into_iter().chain(STATE)).exited(0).says("read 4 batches with 11 rows");
}

/// What format 1 said of batches, rows, ended jobs and credits is said word for word; open jobs are the same ones.
#[test]
fn what_is_carried_over_is_what_it_was() {
    let (before, after) = (stored("dump.jsonl"), stored("dump.format-2.jsonl"));
    let unchanged = |dump: &str| {
        let kinds = ["{\"batch\"", "{\"row\"", "{\"outcome\"", "{\"total\"", "{\"day\""];
        let lines = dump.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(unchanged(&after), unchanged(&before));
    let open = |dump: &str| {
        let lines =
            dump.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?.get("open").cloned());
        lines.map(|line| serde_json::from_value::<JobRecord>(line).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(open(&after), open(&before));
    assert_eq!(open(&after).len(), 3);
}

#[test]
fn it_resumes_to_the_end_and_what_was_paid_for_is_not_charged_again() {
    let env = thawed();
    let before = charges(&env);
    for (manifest, exit) in [("half.csv", 0), ("done.csv", 0), ("dropped.csv", 1), ("doubt.jsonl", 7)] {
        env.run(["run", "--emulator", "--emulator-speed", "500", manifest]).exited(exit);
    }
    let after = charges(&env);
    assert_eq!((before.len(), after.len()), (9, 10), "one job had not begun");
    assert!(after.values().all(|charges| *charges == 1), "{after:?}");
    assert!(before.keys().all(|task| after.contains_key(task)));
    let ids = ["one", "two", "three", "four", "five", "six"].map(str::to_owned);
    Outputs::in_dir(env.path("output/emulator/half")).is_complete(&ids);
}

#[test]
fn its_export_is_taken_in() {
    let env = thawed();
    env.write("dump.jsonl", stored("dump.jsonl"));
    env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    env.run(["state", "verify", "--state", "new"]).exited(0).says("all fits");
}

#[test]
fn it_is_rebuilt_without_its_database() {
    let env = thawed();
    fs::remove_dir_all(env.path("state/emulator/db")).unwrap();
    let before = charges(&env).len();
    env.run(["state", "rebuild"].into_iter().chain(STATE)).exited(0).says("rebuilt 4 batches with 11 jobs");
    env.run(["resume", "half"].into_iter().chain(STATE)).exited(0);
    env.run(["run", "--emulator", "--emulator-speed", "500", "half.csv"]).exited(0);
    assert_eq!(charges(&env).len(), before + 1, "one job had not begun");
}
