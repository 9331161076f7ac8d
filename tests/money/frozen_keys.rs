//! No row that was ever accepted changes its idempotency key: manifests in every format and spelling, read by the
//! built program, against keys that were frozen when they were first accepted (`fixtures/keys/README.md`).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use callsheet::domain::idempotency_key::IdempotencyKey;
use callsheet::domain::ids::{AttemptNo, JobId};
use callsheet::domain::quote::{Catalog, Rules};
use callsheet::domain::schedule::placeholders::ScheduledRun;
use callsheet::domain::time::Timestamp;
use callsheet::ingest::{self, IngestContext, IngestOptions};
use callsheet::store::{Change, Store};
use callsheet_emulator::Options;
use serde_json::{Value, json};

use crate::support::TestEnv;

/// The one manifest that is read under many names.
const NAMED: &str = "id,kind,model,prompt\na,image,gi-2,A compass\n,image,gi-2,A compass\n";
/// In the place of a key: the row is not accepted.
const REFUSED: &str = "refused";

const HINT: &str = "a key may never change: the row would be bought again by everybody who has it. Let a new reading \
                    apply only to rows that are refused so far, or to the body on the wire alone";
const FREEZE: &str = "freeze it: CALLSHEET_FREEZE_KEYS=1 cargo test --test program money::frozen_keys";

/// A job, or a row that is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    setting: String,
    file: String,
    line: u64,
    /// The key of its first attempt, or `refused`.
    key: String,
    batch: Option<String>,
    label: Option<String>,
}

impl Line {
    fn read(text: &str) -> Line {
        let (setting, file, line, batch, label, key) =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        Line { setting, file, line, key, batch, label }
    }

    fn written(&self) -> String {
        let Line { setting, file, line, key, batch, label } = self;
        json!([setting, file, line, batch, label, key]).to_string()
    }

    fn row(&self) -> (&str, &str, u64) {
        (&self.setting, &self.file, self.line)
    }

    fn is_refused(&self) -> bool {
        self.key == REFUSED
    }

    /// What a later reading must agree with.
    fn same(&self, other: &Line) -> bool {
        self.row() == other.row() && self.key == other.key
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/keys").join(name)
}

fn texts(name: &str) -> Vec<String> {
    let text = fs::read_to_string(fixture(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn frozen() -> Vec<Line> {
    fs::read_to_string(fixture("keys.jsonl")).unwrap_or_default().lines().map(Line::read).collect()
}

/// Rows whose frozen key no longer counts, with the reason.
fn withdrawn() -> BTreeMap<(String, String, u64), String> {
    let text = fs::read_to_string(fixture("withdrawn.jsonl")).unwrap();
    let read = |line: &str| {
        let (setting, file, line, reason): (String, String, u64, String) =
            serde_json::from_str(line).unwrap();
        ((setting, file, line), reason)
    };
    text.lines().map(read).collect()
}

/// A service with the frozen catalogs.
fn env(keys: &str) -> TestEnv {
    let env = TestEnv::with(Options { catalog: Some(fixture("catalogs.json")), ..Options::default() });
    env.configure_service(keys, "");
    env
}

/// Copies a folder of manifests into the environment; their names.
fn copied(env: &TestEnv, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(fixture(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    for name in &names {
        env.write(&format!("{folder}/{name}"), fs::read(fixture(folder).join(name)).unwrap());
    }
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

/// What the built program makes of manifests. A plan reads and validates them as accepting them does.
fn read_by_the_program(env: &TestEnv, setting: &str, files: &[String], flags: &[&str]) -> Vec<Line> {
    let words = ["plan", "--json"].into_iter().chain(flags.iter().copied());
    let planned = env.run(words.chain(files.iter().map(String::as_str)));
    let refused = |file: &str| Line {
        setting: setting.to_owned(),
        file: file.to_owned(),
        line: 0,
        key: REFUSED.to_owned(),
        batch: None,
        label: None,
    };
    if planned.stdout.is_empty() {
        let [file] = files else { panic!("one file keeps all others from being read: {}", planned.stderr) };
        return vec![refused(file)];
    }
    let plan: Value = serde_json::from_str(&planned.stdout).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let rows = plan["rows"].as_array().unwrap().iter();
    rows.map(|row| Line {
        line: row["line"].as_u64().unwrap(),
        key: row["job_id"].as_str().map_or(REFUSED.to_owned(), key_of),
        batch: text(&row["batch"]),
        label: text(&row["id"]),
        ..refused(row["file"].as_str().unwrap())
    })
    .collect()
}

/// The key of the first attempt at a job.
fn key_of(job_id: &str) -> String {
    let job = JobId::try_from(job_id.to_owned()).unwrap();
    IdempotencyKey::derive(job, AttemptNo::FIRST).to_string()
}

struct Job {
    batch: String,
    line: u64,
    label: String,
    key: String,
}

/// The jobs of an exported state.
fn jobs_of(export: &str) -> Vec<Job> {
    let mut batch = String::new();
    let mut jobs = Vec::new();
    for line in export.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(name) = line["batch"]["record"]["name"].as_str() {
            name.clone_into(&mut batch);
        }
        let row = &line["row"];
        let Some(id) = row["id"].as_str() else { continue };
        jobs.push(Job {
            batch: batch.clone(),
            line: row["order"]["line"].as_u64().unwrap(),
            label: row["label"].as_str().unwrap().to_owned(),
            key: key_of(id),
        });
    }
    jobs
}

fn plain() -> Vec<Line> {
    let env = env("");
    let mut files = copied(&env, "manifests");
    for name in texts("file-names.jsonl") {
        let file = format!("names/{name}");
        env.write(&file, NAMED);
        files.push(file);
    }
    let mut lines = read_by_the_program(&env, "plain", &files, &[]);
    for name in texts("nameless.jsonl") {
        let file = format!("names/{name}");
        env.write(&file, NAMED);
        lines.extend(read_by_the_program(&env, "plain", &[file], &[]));
    }
    lines
}

fn in_a_namespace() -> Vec<Line> {
    let env = env("key_namespace = \"client-a\"");
    let files = copied(&env, "namespace");
    read_by_the_program(&env, "namespace", &files, &[])
}

fn under_a_name() -> Vec<Line> {
    let env = env("");
    let files = copied(&env, "batch");
    read_by_the_program(&env, "batch", &files, &["--batch", "By-flag.1"])
}

/// A run of a schedule at a frozen instant, as the daemon takes it in.
fn of_a_schedule() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state"), "s", false).unwrap();
    let catalogs: Value = serde_json::from_slice(&fs::read(fixture("catalogs.json")).unwrap()).unwrap();
    let catalog =
        Catalog::of(&catalogs["video"], &catalogs["image"], &catalogs["music"], &catalogs["voices"]);
    let occasion = ScheduledRun {
        date: "2026-11-21".to_owned(),
        time: "03:00:10".to_owned(),
        weekday: "Saturday".to_owned(),
        n: 325,
    };
    let rules = Rules::builtin();
    let batch = Some("daily-2026-11-21".parse().unwrap());
    let options = IngestOptions { batch, occasion: Some(occasion), ..IngestOptions::default() };
    let context = IngestContext::new(&catalog, &rules, options);
    let accepted =
        ingest::accept(&store, &fixture("schedule/daily.csv"), &context, Timestamp(1_795_230_010_000))
            .unwrap();
    let line = |line, batch, label, key| Line {
        setting: "schedule".to_owned(),
        file: "schedule/daily.csv".to_owned(),
        line,
        key,
        batch,
        label,
    };
    let refused = accepted.receipt.problems.iter().map(|problem| problem.line());
    let mut lines: BTreeSet<Line> = refused.map(|at| line(at, None, None, REFUSED.to_owned())).collect();
    store.commit(&[Change::Batch(Box::new(accepted.batch.unwrap()))]).unwrap();
    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    for job in jobs_of(&String::from_utf8(export).unwrap()) {
        lines.insert(line(job.line, Some(job.batch), Some(job.label), job.key));
    }
    lines.into_iter().collect()
}

/// What is wrong with today's keys.
fn differences(
    frozen: &[Line],
    today: &[Line],
    withdrawn: &BTreeMap<(String, String, u64), String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_withdrawn = |line: &Line| {
        let (setting, file, at) = line.row();
        withdrawn.contains_key(&(setting.to_owned(), file.to_owned(), at))
    };
    for kept in frozen.iter().filter(|line| !line.is_refused() && !is_withdrawn(line)) {
        if today.iter().any(|line| line.same(kept)) {
            continue;
        }
        let now: Vec<_> = today.iter().filter(|line| line.row() == kept.row()).map(Line::written).collect();
        wrong.push(format!("{}\n  is now {now:?}\n  {HINT}", kept.written()));
    }
    for line in today.iter().filter(|line| !frozen.iter().any(|kept| kept.same(line))) {
        // One that was accepted and is refused has been told, unless it is withdrawn.
        let was_accepted = frozen.iter().any(|kept| kept.row() == line.row() && !kept.is_refused());
        if !(line.is_refused() && was_accepted) {
            wrong.push(format!("{}\n  is not frozen\n  {FREEZE}", line.written()));
        }
    }
    wrong
}

/// Nothing is frozen beside a key that counts: a key that moved stays a difference.
fn may_be_added(line: &Line, frozen: &[Line], withdrawn: &BTreeMap<(String, String, u64), String>) -> bool {
    let row = (line.setting.clone(), line.file.clone(), line.line);
    let of_row: Vec<_> = frozen.iter().filter(|kept| kept.row() == line.row()).collect();
    if line.is_refused() {
        return of_row.is_empty();
    }
    let counts = of_row.iter().any(|kept| !kept.is_refused()) && !withdrawn.contains_key(&row);
    !counts && !of_row.iter().any(|kept| kept.same(line))
}

#[test]
fn no_row_that_was_ever_accepted_has_another_key() {
    let today = [plain(), in_a_namespace(), under_a_name(), of_a_schedule()].concat();
    let mut frozen = frozen();
    let withdrawn = withdrawn();
    if std::env::var_os("CALLSHEET_FREEZE_KEYS").is_some() {
        let added: Vec<Line> =
            today.iter().filter(|line| may_be_added(line, &frozen, &withdrawn)).cloned().collect();
        let text: String = added.iter().map(|line| line.written() + "\n").collect();
        let mut kept = fs::read_to_string(fixture("keys.jsonl")).unwrap_or_default();
        kept.push_str(&text);
        fs::write(fixture("keys.jsonl"), kept).unwrap();
        frozen.extend(added);
    }
    assert!(frozen.len() > 700, "the corpus is not there: {} lines", frozen.len());
    let wrong = differences(&frozen, &today, &withdrawn);
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_key_that_moved_is_found_out() {
    let line = |key: &str| Line::read(&format!(r#"["plain","a.csv",2,"a","x","{key}"]"#));
    let refused = Line::read(r#"["plain","a.csv",2,"a",null,"refused"]"#);
    let none = BTreeMap::new();
    let gone = BTreeMap::from([(("plain".to_owned(), "a.csv".to_owned(), 2), "why".to_owned())]);
    let count = |frozen: &[Line], today: &[Line], withdrawn| differences(frozen, today, withdrawn).len();
    assert_eq!(count(&[line("k")], &[line("k")], &none), 0);
    // Another key, one that is refused, one that is not read at all.
    assert_eq!(count(&[line("k")], &[line("l")], &none), 2);
    assert_eq!(count(&[line("k")], std::slice::from_ref(&refused), &none), 1);
    assert_eq!(count(&[line("k")], &[], &none), 1);
    // Accepted since: its key has to be frozen, too.
    assert_eq!(count(std::slice::from_ref(&refused), &[line("k")], &none), 1);
    assert_eq!(count(&[refused.clone(), line("k")], &[line("k")], &none), 0);
    // Withdrawn: refused, or under a key that is frozen as well.
    assert_eq!(count(&[line("k")], std::slice::from_ref(&refused), &gone), 0);
    assert_eq!(count(&[line("k")], &[line("l")], &gone), 1);
    assert_eq!(count(&[line("k"), line("l")], &[line("l")], &gone), 0);
    // What freezing adds.
    assert!(may_be_added(&line("k"), &[], &none) && may_be_added(&refused, &[], &none));
    assert!(may_be_added(&line("k"), std::slice::from_ref(&refused), &none));
    assert!(!may_be_added(&line("l"), &[line("k")], &none) && !may_be_added(&refused, &[line("k")], &none));
    assert!(may_be_added(&line("l"), &[line("k")], &gone) && !may_be_added(&line("k"), &[line("k")], &gone));
}

#[test]
fn a_misspelt_option_that_is_allowed_keeps_its_key() {
    let env = env("");
    let file = "manifests/misspelt-options.csv";
    env.write(file, fs::read(fixture(file)).unwrap());
    let today = read_by_the_program(&env, "plain", &[file.to_owned()], &["--allow-unknown-options"]);
    let frozen: Vec<_> = frozen().into_iter().filter(|line| line.file == file).collect();
    assert_eq!(frozen.len(), 7);
    assert_eq!(differences(&frozen, &today, &BTreeMap::new()), Vec::<String>::new());
}

#[test]
fn what_is_accepted_and_sent_goes_under_the_frozen_keys() {
    let env = env("");
    let [csv, json] = ["manifests/comma.csv", "manifests/array.json"].map(|file| {
        env.write(file, fs::read(fixture(file)).unwrap());
        file
    });
    env.run(["run", csv, json]);
    let sent: BTreeSet<String> = env.audit().tasks.into_iter().filter_map(|task| task.key).collect();
    let export = env.run(["state", "export"]).exited(0).stdout;
    let accepted: BTreeSet<String> = jobs_of(&export).into_iter().map(|job| job.key).collect();
    let frozen = frozen().into_iter().filter(|line| [csv, json].contains(&line.file.as_str()));
    let frozen: BTreeSet<Line> = frozen.filter(|line| !line.is_refused()).collect();
    assert_eq!(accepted, frozen.iter().map(|line| line.key.clone()).collect());
    // Shorts Studio takes no key.
    let keyless = |line: &&Line| line.label.as_deref() == Some("short");
    assert_eq!(sent, frozen.iter().filter(|line| !keyless(line)).map(|line| line.key.clone()).collect());
}
