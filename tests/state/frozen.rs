//! A state that an earlier version left behind opens, reads the same, and resumes without paying again.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::harvest::Harvest;
use crate::support::{Stage, audit_of_state};

const STATE: [&str; 2] = ["--state", "state/emulator"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-1").join(name)
}

/// The frozen folder, thawed.
fn thawed() -> Stage {
    let stage = Stage::new();
    let untar =
        Command::new("tar").arg("-xzf").arg(fixture("state.tar.gz")).current_dir(stage.path("")).status();
    assert!(untar.unwrap().success());
    stage
}

fn said(stage: &Stage, command: &[&str]) -> String {
    stage.run(command.iter().copied().chain(STATE)).exited(0).stdout
}

fn stored(name: &str) -> String {
    fs::read_to_string(fixture(name)).unwrap()
}

/// Charges at the service, task by task.
fn charges(stage: &Stage) -> BTreeMap<String, u64> {
    let audit = audit_of_state(&stage.path("state/emulator-service"));
    audit.tasks.into_iter().map(|task| (task.id, task.charges)).collect()
}

#[test]
fn it_reads_the_same() {
    let stage = thawed();
    assert_eq!(said(&stage, &["jobs", "--json"]), stored("jobs.jsonl"));
    assert_eq!(said(&stage, &["ledger", "--csv"]), stored("ledger.csv"));
    assert_eq!(said(&stage, &["state", "export"]), stored("dump.jsonl"));
    stage.run(["state", "verify"].into_iter().chain(STATE)).exited(0).says("read 4 batches with 11 rows");
}

#[test]
fn it_resumes_to_the_end_and_what_was_paid_for_is_not_charged_again() {
    let stage = thawed();
    let before = charges(&stage);
    for (manifest, exit) in [("half.csv", 0), ("done.csv", 0), ("dropped.csv", 1), ("doubt.jsonl", 7)] {
        stage.run(["run", "--emulator", "--emulator-speed", "500", manifest]).exited(exit);
    }
    let after = charges(&stage);
    assert_eq!((before.len(), after.len()), (9, 10), "one job had not begun");
    assert!(after.values().all(|charges| *charges == 1), "{after:?}");
    assert!(before.keys().all(|task| after.contains_key(task)));
    let ids = ["one", "two", "three", "four", "five", "six"].map(str::to_owned);
    Harvest::in_dir(stage.path("output/emulator/half")).is_complete(&ids);
}

#[test]
fn its_export_is_taken_in() {
    let stage = thawed();
    stage.write("dump.jsonl", stored("dump.jsonl"));
    stage.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    stage.run(["state", "verify", "--state", "new"]).exited(0).says("all fits");
}

#[test]
fn it_is_rebuilt_without_its_database() {
    let stage = thawed();
    fs::remove_dir_all(stage.path("state/emulator/db")).unwrap();
    let before = charges(&stage).len();
    stage.run(["state", "rebuild"].into_iter().chain(STATE)).exited(0).says("rebuilt 4 batches with 11 jobs");
    stage.run(["resume", "half"].into_iter().chain(STATE)).exited(0);
    stage.run(["run", "--emulator", "--emulator-speed", "500", "half.csv"]).exited(0);
    assert_eq!(charges(&stage).len(), before + 1, "one job had not begun");
}
