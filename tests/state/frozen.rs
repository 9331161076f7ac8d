//! A state that an earlier version left behind opens, reads the same, and resumes without paying again.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use callsheet::store::JobRecord;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Outcome;
use crate::support::{TestEnv, audit_of_state};

const STATE: [&str; 2] = ["--state", "state/emulator"];

/// A folder of `tests/fixtures`, and what its README says of it.
struct Frozen {
    folder: &'static str,
    /// Its export by a version that writes the latest format.
    export: &'static str,
    batches: usize,
    rows: usize,
    /// Tasks at the service.
    tasks: usize,
    /// Jobs of `half` that have not begun.
    not_begun: usize,
    /// Attempts of other batches that have not begun: their requests were on their way.
    unsent: usize,
    /// Its manifests, and how each ends.
    manifests: &'static [(&'static str, i32)],
}

const FORMAT_1: Frozen = Frozen {
    folder: "state-1",
    export: "dump.format-2.jsonl",
    batches: 4,
    rows: 11,
    tasks: 9,
    not_begun: 1,
    unsent: 0,
    manifests: &[("half.csv", 0), ("done.csv", 0), ("dropped.csv", 1), ("doubt.jsonl", 7)],
};

const FORMAT_2: Frozen = Frozen {
    folder: "state-2",
    export: "dump.jsonl",
    batches: 7,
    rows: 15,
    tasks: 11,
    not_begun: 2,
    unsent: 1,
    manifests: &[
        ("half.csv", 0),
        ("done.csv", 0),
        ("failed.csv", 1),
        ("dropped.csv", 1),
        ("doubt.jsonl", 7),
        ("twice.json", 0),
    ],
};

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

impl Frozen {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(self.folder).join(name)
    }

    fn stored(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The folder, thawed.
    fn thawed(&self) -> TestEnv {
        let env = TestEnv::new();
        let archive = self.path("state.tar.gz");
        let untar = Command::new("tar").arg("-xzf").arg(archive).current_dir(env.path("")).status();
        assert!(untar.unwrap().success());
        // Its configuration is no state: its keys are renamed as the error says.
        let configuration = fs::read_to_string(env.path("callsheet.toml")).unwrap();
        let configuration = configuration.replace("late_window", "watch_overdue_for");
        // It is as old as it is: what it has finished is listed whenever it is thawed.
        env.write(
            "callsheet.toml",
            format!("{configuration}\n[retention]\nlist_finished_for = \"forever\"\n"),
        );
        env
    }

    fn reads_the_same(&self) {
        let env = self.thawed();
        // Fields that were added since stand at the end of a line; what was there is said word for word.
        let jobs = said(&env, &["jobs", "--json"]);
        let before = |line: &str| format!("{}}}\n", line.split_once(",\"prompt\":").unwrap().0);
        assert_eq!(jobs.lines().map(before).collect::<String>(), self.stored("jobs.jsonl"));
        // So do columns.
        let ledger = said(&env, &["ledger", "--csv"]);
        let stored = self.stored("ledger.csv");
        assert_eq!(ledger.lines().count(), stored.lines().count());
        for (line, before) in ledger.lines().zip(stored.lines()) {
            assert!(
                line.strip_prefix(before).is_some_and(|added| added.starts_with(',')),
                "{line} was {before}"
            );
        }
        assert_eq!(said(&env, &["state", "export"]), self.stored(self.export));
        let read = format!("read {} batches with {} rows", self.batches, self.rows);
        env.run(["state", "verify"].into_iter().chain(STATE)).exited(0).says(&read);
    }

    /// Returns the folder as it is then, for more.
    fn resumes_to_the_end(&self) -> TestEnv {
        let env = self.thawed();
        let before = charges(&env);
        let half = env.path("output/emulator/half");
        let is_sidecar = |name: &String| name.ends_with(".json") && name != "report.json";
        let sidecars: BTreeSet<String> = names_in(&half).into_iter().filter(is_sidecar).collect();
        assert!(!sidecars.is_empty(), "it was killed in the middle");
        for (manifest, exit) in self.manifests {
            run(&env, manifest).exited(*exit);
        }
        let after = charges(&env);
        assert_eq!((before.len(), after.len()), (self.tasks, self.tasks + self.not_begun));
        assert!(after.values().all(|charges| *charges == 1), "{after:?}");
        assert!(before.keys().all(|task| after.contains_key(task)));
        let ids = ["one", "two", "three", "four", "five", "six"].map(str::to_owned);
        let mut outputs = Outputs::in_dir(half);
        outputs.beside = sidecars;
        outputs.is_complete(&ids);
        env
    }

    fn export_is_taken_in(&self) {
        let env = self.thawed();
        env.write("dump.jsonl", self.stored("dump.jsonl"));
        env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
        env.run(["state", "verify", "--state", "new"]).exited(0).says("all fits");
    }

    fn is_rebuilt_without_its_database(&self) {
        let env = self.thawed();
        fs::remove_dir_all(env.path("state/emulator/db")).unwrap();
        let before = charges(&env).len();
        let rebuilt = format!("rebuilt {} batches with {} jobs", self.batches, self.rows);
        env.run(["state", "rebuild"].into_iter().chain(STATE)).exited(0).says(&rebuilt);
        env.run(["resume", "half"].into_iter().chain(STATE)).exited(0);
        run(&env, "half.csv").exited(0);
        assert_eq!(charges(&env).len(), before + self.not_begun);
    }
}

fn said(env: &TestEnv, command: &[&str]) -> String {
    env.run(command.iter().copied().chain(STATE)).exited(0).stdout
}

fn run(env: &TestEnv, manifest: &str) -> Outcome {
    env.run(["run", "--emulator", "--emulator-speed", "500", manifest])
}

/// Charges at the service, task by task.
fn charges(env: &TestEnv) -> BTreeMap<String, u64> {
    let audit = audit_of_state(&env.path("state/emulator-service"));
    audit.tasks.into_iter().map(|task| (task.id, task.charges)).collect()
}

#[test]
fn it_reads_the_same() {
    FORMAT_1.reads_the_same();
    FORMAT_2.reads_the_same();
}

/// What format 1 said of batches, rows, ended jobs and credits is said word for word; open jobs are the same ones.
#[test]
fn what_is_carried_over_is_what_it_was() {
    let (before, after) = (FORMAT_1.stored("dump.jsonl"), FORMAT_1.stored(FORMAT_1.export));
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
    FORMAT_1.resumes_to_the_end();
    let env = FORMAT_2.resumes_to_the_end();
    // Its second request was on its way when the program was killed, while its first task was watched: both are
    // read to their end, under the keys that they had.
    let ended = (0..20).any(|_| run(&env, "late.json").code == Some(0));
    assert!(ended, "{}", said(&env, &["jobs", "late"]));
    let after = charges(&env);
    assert_eq!(after.len(), FORMAT_2.tasks + FORMAT_2.not_begun + FORMAT_2.unsent);
    assert!(after.values().all(|charges| *charges == 1), "{after:?}");
    env.run(["state", "verify"].into_iter().chain(STATE)).exited(0).says("all fits");
}

#[test]
fn its_export_is_taken_in() {
    FORMAT_1.export_is_taken_in();
    FORMAT_2.export_is_taken_in();
}

#[test]
fn it_is_rebuilt_without_its_database() {
    FORMAT_1.is_rebuilt_without_its_database();
    FORMAT_2.is_rebuilt_without_its_database();
}

/// A program of before format 2 takes none of it for damage: it refuses the folder by its format.
#[test]
fn a_state_says_the_latest_format_once_it_is_opened_to_be_changed() {
    let env = FORMAT_1.thawed();
    let format = || {
        let marker = fs::read_to_string(env.path("state/emulator/callsheet-state.json")).unwrap();
        serde_json::from_str::<Value>(&marker).unwrap()["format"].clone()
    };
    assert_eq!(format(), 1);
    env.run(["resume", "half"].into_iter().chain(STATE)).exited(0);
    assert_eq!(format(), 2);
}
