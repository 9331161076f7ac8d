//! The store as its callers meet it.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchNo, Fingerprint, JobId, JobKey, Seq, TaskId};
use crate::domain::job::{Job, JobSpec, Order, OrderTerms, State};
use crate::domain::json_object::JsonObject;
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::queue_class::Classes;
use crate::domain::request::Kind;
use crate::domain::row_verdict::JobStanding;
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;
use crate::store::commit::{READ, Writes};
use crate::store::spool::{Appender, Lines};
use crate::store::staging::{
    AcceptedTerms, AskedJobs, EncodedRow, ExistingJob, ExistingRow, RowRequest, RowWithVerdict, StagedOrder,
    StagedRow, VariationChange, Verdict,
};

mod finished;
mod interrupted;
mod outcomes;

const SERVICE: &str = "https://media.example";

fn open(dir: &TempDir) -> Store {
    Store::open(dir.path(), SERVICE, false).unwrap()
}

fn refusal(dir: &Path, service: &str) -> String {
    Store::open(dir, service, false).unwrap_err().to_string().replace(&dir.display().to_string(), "STATE")
}

fn batch(no: u32, rows: u32) -> BatchRecord {
    BatchRecord {
        rows,
        ..BatchRecord::new(BatchNo(no), format!("batch-{no}").parse().unwrap(), Timestamp(0))
    }
}

fn job(batch: u32, seq: u32, state: State) -> JobRecord {
    let key = JobKey { batch: BatchNo(batch), seq: Seq(seq) };
    JobRecord { key, id: JobId([0; 16]), row_at: 0, job: Job::at(AttemptNo(1), state) }
}

fn order(line: u64, priority: i8) -> Box<Order> {
    Box::new(Order {
        line,
        body: serde_json::from_value(json!({"prompt": "a gull"})).unwrap(),
        inputs: Default::default(),
        files: Default::default(),
        written: None,
        meta: JsonObject::default(),
        terms: OrderTerms { price: Some(Credits(5)), priority, ..OrderTerms::of(Kind::SoundEffect) }.into(),
    })
}

fn running() -> State {
    State::Running { task: TaskId("t".into()) }
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let totals = Totals { held: Credits(7), ..Totals::default() };
    let batch = BatchRecord { totals, ..batch(1, 2) };
    let mut account = AccountBlock::default();
    account.refuse(Credits(7), None, Timestamp(1));
    let changes = [
        Change::Batch(Box::new(batch.clone())),
        Change::Open(job(1, 0, State::Queued)),
        Change::Open(job(1, 1, running())),
        Change::Total(totals),
        Change::Day(UtcDay(20_000), totals),
        Change::Account(account.clone()),
    ];
    store.commit(&changes).unwrap();
    store.commit(&[Change::Open(job(1, 0, running()))]).unwrap();
    drop(store);
    let store = open(&dir);
    assert_eq!(store.batches().unwrap(), [batch]);
    assert_eq!(store.open_jobs().unwrap(), [job(1, 0, running()), job(1, 1, running())]);
    assert_eq!(store.total().unwrap(), totals);
    assert_eq!(store.day(UtcDay(20_000)).unwrap(), totals);
    assert_eq!(store.day(UtcDay(20_001)).unwrap(), Totals::default());
    assert_eq!(store.account().unwrap(), account);
    store.commit(&[Change::Account(AccountBlock::default())]).unwrap();
    drop(store);
    assert_eq!(open(&dir).account().unwrap(), AccountBlock::default(), "what is lifted leaves no record");
}

#[test]
fn the_open_jobs_of_a_batch_are_read_whatever_else_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let open_of = |no, jobs| (0..jobs).map(move |seq| Change::Open(job(no, seq, running())));
    store.commit(&open_of(1, 90).chain(open_of(2, 3)).chain(open_of(3, 90)).collect::<Vec<_>>()).unwrap();
    READ.set(0);
    let of_two = store.open_jobs_of(BatchNo(2)).unwrap();
    assert_eq!(of_two, [job(2, 0, running()), job(2, 1, running()), job(2, 2, running())]);
    assert_eq!(READ.get(), 3);
    let records = store.open_records_of(BatchNo(2)).unwrap();
    assert_eq!(READ.get(), 6);
    for open in of_two {
        assert_eq!(records.get(open.key.seq).unwrap(), Some(open));
    }
    assert_eq!(records.get(Seq(3)).unwrap(), None);
    let mut damaged = Writes::default();
    damaged.insert_encoded(&db_keys::job(JobKey { batch: BatchNo(2), seq: Seq(1) }), vec![2; 9]);
    store.database().unwrap().damage(damaged);
    let records = store.open_records_of(BatchNo(2)).unwrap();
    assert!(records.get(Seq(0)).is_ok() && records.get(Seq(2)).is_ok());
    let error = records.get(Seq(1)).unwrap_err().to_string();
    assert!(error.contains("job 1 in batch 2") && error.contains("its checksum is wrong"), "{error}");
}

#[test]
fn an_ended_job_leaves_the_database_for_the_outcomes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(&[Change::Open(job(1, 0, running())), Change::Open(job(1, 1, running()))]).unwrap();
    store.commit(&[Change::End(job(1, 0, State::DROPPED))]).unwrap();
    assert_eq!(store.open_jobs().unwrap(), [job(1, 1, running())]);
    let mut lines =
        Lines::open(&store.spool(BatchNo(1)).outcomes_path(), 0, store.outcomes_bytes(&batch(1, 0)).unwrap())
            .unwrap();
    assert_eq!(lines.next_line::<JobRecord>().unwrap().unwrap().1, job(1, 0, State::DROPPED));
    assert!(lines.next_line::<JobRecord>().unwrap().is_none());
}

#[test]
fn what_has_ended_since_is_told_and_nothing_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let batch = batch(1, 3);
    store.commit(&[Change::End(job(1, 0, State::DROPPED))]).unwrap();
    let as_of = store.outcomes_bytes(&batch).unwrap();
    let mut ended = HashSet::new();
    assert_eq!(store.add_ended_since(&batch, as_of, &mut ended).unwrap(), as_of);
    assert!(ended.is_empty());
    store.commit(&[Change::End(job(1, 2, State::DROPPED)), Change::End(job(1, 0, State::Expired))]).unwrap();
    let now = store.add_ended_since(&batch, as_of, &mut ended).unwrap();
    assert_eq!((now, &ended), (store.outcomes_bytes(&batch).unwrap(), &[Seq(0), Seq(2)].into()));
    ended.clear();
    store.add_ended_since(&batch, 0, &mut ended).unwrap();
    assert_eq!(ended, [Seq(0), Seq(2)].into());
}

#[test]
fn an_outcome_that_was_never_acknowledged_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(&[Change::End(job(1, 0, State::DROPPED))]).unwrap();
    let path = store.spool(BatchNo(1)).outcomes_path();
    let acknowledged = store.outcomes_bytes(&batch(1, 0)).unwrap();
    drop(store);
    fs::write(&path, [fs::read(&path).unwrap(), b"deadbeef {\"half\": ".to_vec()].concat()).unwrap();
    let store = open(&dir);
    store.commit(&[Change::End(job(1, 1, State::Expired))]).unwrap();
    let mut lines = Lines::open(&path, 0, store.outcomes_bytes(&batch(1, 0)).unwrap()).unwrap();
    let mut states = Vec::new();
    while let Some((_, record)) = lines.next_line::<JobRecord>().unwrap() {
        states.push(record.job.state().name());
    }
    assert_eq!(states, ["canceled", "expired"]);
    assert!(acknowledged > 0);
}

#[test]
fn a_second_process_is_told_who_has_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let _store = open(&dir);
    assert_eq!(refusal(dir.path(), SERVICE), format!("STATE is in use by process {}", std::process::id()));
}

#[test]
fn another_service_is_refused_unless_the_state_is_handed_over() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let other = "https://other.example";
    assert_eq!(
        refusal(dir.path(), other),
        "STATE belongs to https://media.example, not to https://other.example"
    );
    drop(Store::open(dir.path(), other, true).unwrap());
    // Nothing says yet that the other one is there.
    let store = Store::open(dir.path(), SERVICE, false).unwrap();
    assert_eq!((store.is_of_another(SERVICE).unwrap(), store.is_of_another(other).unwrap()), (false, true));
    store.adopt(other).unwrap();
    drop(store);
    assert!(refusal(dir.path(), SERVICE).contains("belongs to https://other.example"));
}

#[test]
fn a_folder_with_something_else_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.docx"), "years of work").unwrap();
    assert_eq!(refusal(dir.path(), SERVICE), "STATE is not a state of callsheet: it holds thesis.docx");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_state_of_another_version_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let marker = dir.path().join("callsheet-state.json");
    let text = fs::read_to_string(&marker).unwrap().replace("\"format\": 2", "\"format\": 9");
    fs::write(&marker, &text).unwrap();
    assert_eq!(refusal(dir.path(), SERVICE), "STATE has state format 9; this version reads formats up to 2");
    assert_eq!(fs::read_to_string(&marker).unwrap(), text);
}

#[test]
fn a_marker_that_cannot_be_read_is_named_and_what_it_holds_brings_the_state_back() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let marker = dir.path().join("callsheet-state.json");
    for content in [&b""[..], b"\xff\xfe", b"{\"format\": 2}"] {
        fs::write(&marker, content).unwrap();
        let refused = refusal(dir.path(), SERVICE);
        assert!(refused.starts_with("STATE/callsheet-state.json is damaged: "), "{refused}");
    }
    fs::remove_file(&marker).unwrap();
    let refused = refusal(dir.path(), SERVICE);
    assert_eq!(refused, "STATE/callsheet-state.json is damaged: it is missing");
    let refused = Store::open_existing(dir.path()).unwrap_err().to_string();
    assert!(refused.ends_with("callsheet-state.json is damaged: it is missing"), "{refused}");
    fs::write(&marker, format!("{{\"format\": 2, \"service\": \"{SERVICE}\"}}\n")).unwrap();
    drop(open(&dir));
}

#[test]
fn an_older_database_that_came_back_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(&[Change::Batch(Box::new(batch(1, 1))), Change::Open(job(1, 0, State::Queued))]).unwrap();
    drop(store);
    let (db, kept) = (dir.path().join("db"), dir.path().join(".kept"));
    copy_dir(&db, &kept);
    let store = open(&dir);
    store.commit(&[Change::Open(job(1, 0, running()))]).unwrap();
    drop(store);
    fs::remove_dir_all(&db).unwrap();
    fs::rename(&kept, &db).unwrap();
    let refused = refusal(dir.path(), SERVICE);
    assert!(refused.contains("it is at commit 1, but commit 2 was acknowledged"), "{refused}");
}

#[test]
fn a_batch_that_was_accepted_and_is_gone_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let (db, kept) = (dir.path().join("db"), dir.path().join(".kept"));
    copy_dir(&db, &kept);
    let store = open(&dir);
    store.commit(&[Change::Batch(Box::new(batch(1, 1))), Change::Open(job(1, 0, State::Queued))]).unwrap();
    store.commit(&[Change::Open(job(1, 0, running()))]).unwrap();
    drop(store);
    // An older database came back, and the number beside it is lost.
    fs::remove_dir_all(&db).unwrap();
    fs::rename(&kept, &db).unwrap();
    fs::remove_file(dir.path().join("commits")).unwrap();
    fs::write(dir.path().join("spool/000001/batch.json"), backup_for_commit(&dir, 2)).unwrap();
    let refused = refusal(dir.path(), SERVICE);
    assert!(
        refused.contains("batch batch-1 in STATE is damaged: its batch.json was written for commit 2"),
        "{refused}"
    );
}

fn backup_for_commit(dir: &TempDir, commit: u64) -> String {
    let text = fs::read_to_string(dir.path().join("spool/000001/batch.json")).unwrap();
    let mut card: serde_json::Value = serde_json::from_str(&text).unwrap();
    card["commit"] = commit.into();
    // As an earlier version wrote it.
    card.as_object_mut().unwrap().remove("checksum");
    serde_json::to_string_pretty(&card).unwrap()
}

#[test]
fn a_card_with_a_flipped_bit_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(&[Change::Batch(Box::new(batch(1, 1))), Change::Open(job(1, 0, State::Queued))]).unwrap();
    drop(store);
    let folder = dir.path().join("spool/000001");
    let whole = fs::read(folder.join("batch.json")).unwrap();
    let written = batch_backup::read(&folder).unwrap();
    for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << bit;
        fs::write(folder.join("batch.json"), flipped).unwrap();
        // The name of the checksum itself may be what was hit: then the rest is as it was written.
        let read = batch_backup::read(&folder);
        assert!(read.is_none_or(|read| read == written), "byte {at}, bit {bit}");
    }
}

#[test]
fn a_card_of_a_commit_that_never_was_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(&[Change::Batch(Box::new(batch(1, 1))), Change::Open(job(1, 0, State::Queued))]).unwrap();
    drop(store);
    fs::create_dir_all(dir.path().join("spool/000002")).unwrap();
    let backup = backup_for_commit(&dir, 2).replace("\"no\": 1", "\"no\": 2");
    fs::write(dir.path().join("spool/000002/batch.json"), backup).unwrap();
    drop(open(&dir));
    assert!(!dir.path().join("spool/000002/batch.json").exists());
}

#[test]
fn an_outcome_that_the_database_knows_nothing_of_shows_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let rows = BatchRecord { spool_bytes: 0, ..batch(1, 1) };
    store.commit(&[Change::Batch(Box::new(rows)), Change::Open(job(1, 0, running()))]).unwrap();
    drop(store);
    let path = dir.path().join("spool/000001/outcomes");
    let mut outcomes = Appender::open(&path, 0).unwrap();
    let fault = crate::domain::task::Fault::new("x", "x");
    outcomes.push(&job(1, 0, State::Failed { fault: fault.clone(), task: None })).unwrap();
    outcomes.sync().unwrap();
    drop(open(&dir));
    outcomes.push(&job(1, 5, State::Failed { fault, task: Some(TaskId("t".into())) })).unwrap();
    outcomes.sync().unwrap();
    let refused = refusal(dir.path(), SERVICE);
    assert!(refused.contains("job 5 has ended, and the database knows neither"), "{refused}");
}

#[test]
fn jobs_that_are_missing_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    store.commit(&[Change::Batch(Box::new(batch(1, 3))), Change::Open(job(1, 0, running()))]).unwrap();
    drop(store);
    let refused = refusal(dir.path(), SERVICE);
    assert!(refused.contains("3 jobs were accepted, 0 have ended and 1 are open"), "{refused}");
}

/// Whatever of the database noticed nothing: the page that it lies in is as it was written.
#[test]
fn a_record_that_comes_out_changed_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let record = job(1, 0, running());
    let key = db_keys::job(record.key);
    let mut bytes = codec::encode(&record);
    let digit = bytes.iter().position(|byte| *byte == b't').unwrap();
    bytes[digit] = b'u';
    let store = open(&dir);
    store.commit(&[Change::Batch(Box::new(batch(1, 1))), Change::Open(record)]).unwrap();
    let mut changed = Writes::default();
    changed.insert_encoded(&key, bytes);
    store.database().unwrap().damage(changed);
    drop(store);
    let refused = refusal(dir.path(), SERVICE);
    assert!(refused.contains("the record of job 0 in batch 1: its checksum is wrong"), "{refused}");
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_dir(&path, &target) } else { assert!(fs::copy(&path, &target).is_ok()) }
    }
}

#[test]
fn a_damaged_row_is_named_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows");
    let mut appender = Appender::open(&path, 0).unwrap();
    let places: Vec<u64> = ["one", "two", "three"].iter().map(|text| appender.push(text).unwrap()).collect();
    let end = appender.sync().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[usize::try_from(places[1]).unwrap() + 11] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut lines = Lines::open(&path, 0, end).unwrap();
    assert_eq!(lines.next_line::<String>().unwrap(), Some((0, "one".to_owned())));
    let damage = lines.next_line::<String>().unwrap_err().to_string();
    assert!(damage.contains(&format!("the line at byte {}", places[1])), "{damage}");
    assert!(damage.contains("its checksum is wrong"), "{damage}");
}

#[test]
fn who_reads_on_in_a_file_that_is_too_short_comes_to_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows");
    let mut appender = Appender::open(&path, 0).unwrap();
    appender.push(&"one").unwrap();
    let end = appender.sync().unwrap();
    let mut lines = Lines::open(&path, 0, end + 100).unwrap();
    assert_eq!(lines.next_line::<String>().unwrap(), Some((0, "one".to_owned())));
    let damage = lines.next_line::<String>().unwrap_err().to_string();
    assert!(damage.contains("it is cut off"), "{damage}");
    assert_eq!(lines.next_line::<String>().unwrap(), None);
}

#[test]
fn a_file_shorter_than_what_was_acknowledged_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows");
    fs::write(&path, "short").unwrap();
    let damage = Appender::open(&path, 100).unwrap_err().to_string();
    assert!(damage.contains("it has 5 bytes, but 100 were acknowledged"), "{damage}");
}

/// A row of a manifest at that line.
fn row(line: u64, fingerprint: u8, label: Option<&str>, count: u32) -> EncodedRow {
    let staged = StagedOrder::new(&order(line, 0), Classes::default(), label.is_some());
    EncodedRow::new(StagedRow {
        fingerprint: Fingerprint([fingerprint; 16]),
        label: label.map(str::to_owned),
        count,
        line,
        cell: None,
        draws: None,
        apart: false,
        wanted: RowRequest::Order(Box::new(staged)),
    })
    .unwrap()
}

/// Rows as `fingerprint:label:count`, with what was decided as `first..=last have N`.
fn classify(existing: &[(u8, u32)], rows: &[(u8, Option<&str>, u32)]) -> (Vec<String>, Vec<(u64, u64)>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let mut draft = store.begin_staging().unwrap();
    for (fingerprint, variation) in existing {
        let existing = ExistingJob {
            fingerprint: Fingerprint([*fingerprint; 16]),
            variation: *variation,
            seq: Seq(0),
            is_superseded: false,
            standing: JobStanding::Done,
            credits: Credits::ZERO,
            is_counted: false,
            unspent: Credits::ZERO,
            terms: AcceptedTerms::default(),
            row: None,
        };
        draft.note_existing(&existing).unwrap();
    }
    for (index, (fingerprint, label, count)) in rows.iter().enumerate() {
        let line = index as u64 + 2;
        draft.push(&row(line, *fingerprint, *label, *count)).unwrap();
    }
    let staged = draft.classify().unwrap();
    let mut said = Vec::new();
    let mut walk = staged.rows().unwrap();
    let mut all_new = Some(AskedJobs::default());
    while let Some(RowWithVerdict { row, verdict, .. }) = walk.next_row().unwrap() {
        let is_new = matches!(verdict, Verdict::Wanted { have: 0, .. });
        all_new = all_new.filter(|_| is_new).map(|before| before + AskedJobs::of(row.count, Credits(5)));
        said.push(match verdict {
            Verdict::Wanted { first, have } => format!("{first}..={} have {have}", first + row.count - 1),
            Verdict::RepeatedId { first_line } => format!("as line {first_line}"),
            Verdict::Unread => "unread".to_owned(),
        });
    }
    assert_eq!(staged.all_new(), all_new);
    (said, staged.repeated().iter().map(|repeat| (repeat.line, repeat.first_line)).collect())
}

#[test]
fn rows_that_want_the_same_are_variations() {
    let (said, _) = classify(&[], &[(1, None, 1), (2, None, 3), (1, None, 2)]);
    assert_eq!(said, ["1..=1 have 0", "1..=3 have 0", "2..=3 have 0"]);
}

/// The newest row of an `id` is the one that a row replaces, and what the batch had before that is no change.
#[test]
fn a_row_replaces_the_newest_one_of_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let path = dir.path().join("accepted");
    let mut accepted = Appender::open(&path, 0).unwrap();
    let mut draft = store.begin_staging().unwrap();
    draft.note_rows_of(&path);
    let mut before = 0;
    for fingerprint in [1, 2] {
        let spec = JobSpec {
            seq: Seq(u32::from(fingerprint)),
            id: JobId([fingerprint; 16]),
            fingerprint: Fingerprint([fingerprint; 16]),
            variation: 1,
            label: "hero".to_owned(),
            apart: false,
            order: *order(2, 0),
        };
        let at = accepted.push(&spec).unwrap();
        before = at;
        let existing = ExistingJob {
            fingerprint: spec.fingerprint,
            variation: 1,
            seq: spec.seq,
            is_superseded: false,
            standing: JobStanding::Running,
            credits: Credits(7),
            is_counted: false,
            unspent: Credits(7),
            terms: AcceptedTerms::default(),
            row: Some(ExistingRow { label: &spec.label, has_id: true, at }),
        };
        draft.note_existing(&existing).unwrap();
    }
    accepted.sync().unwrap();
    for (line, fingerprint, label) in [(2, 3, Some("hero")), (3, 4, Some("other")), (4, 2, None)] {
        draft.push(&row(line, fingerprint, label, 1)).unwrap();
    }
    let staged = draft.classify().unwrap();
    assert!(!staged.goes_back());
    let mut rows = staged.rows().unwrap();
    let mut next = || rows.next_row().unwrap().unwrap();
    let first = next();
    assert_eq!(first.replaces.map(|(spec, _)| spec.seq), Some(Seq(2)));
    let change = VariationChange {
        variation: 1,
        instead_of: Seq(2),
        was_wanted: true,
        back_to: None,
        is_dropped: false,
        before,
        standing: JobStanding::Running,
    };
    assert_eq!(first.changes, [change]);
    assert!(next().replaces.is_none());
    let known = next().known.into_iter().flatten().next().unwrap();
    assert_eq!((known.standing, known.credits), (JobStanding::Running, Some(Credits(7))));
}

#[test]
fn what_the_batch_has_is_known_whatever_the_order() {
    let (said, _) = classify(&[(1, 1), (1, 2), (2, 1)], &[(2, None, 1), (1, None, 1), (1, None, 2)]);
    assert_eq!(said, ["1..=1 have 1", "1..=1 have 1", "2..=3 have 2"]);
}

/// Rows that came when rows before them that want the same were left out are told from those.
#[test]
fn a_row_is_not_there_because_a_later_one_is_that_wants_the_same() {
    let (said, _) = classify(&[(1, 2), (1, 3)], &[(1, None, 1), (1, None, 2), (1, None, 1)]);
    assert_eq!(said, ["1..=1 have 0", "2..=3 have 3", "4..=4 have 0"]);
    let (said, _) = classify(&[(1, 2), (1, 3)], &[(1, None, 2), (1, None, 2)]);
    assert_eq!(said, ["1..=2 have 2", "3..=4 have 3"]);
}

#[test]
fn an_id_names_one_row() {
    let rows = [(1, Some("hero"), 1), (2, Some("fox"), 1), (3, Some("hero"), 1), (1, Some("hero"), 1)];
    let (said, repeated) = classify(&[], &rows);
    assert_eq!(said, ["1..=1 have 0", "1..=1 have 0", "as line 2", "as line 2"]);
    assert_eq!(repeated, [(4, 2), (5, 2)]);
}

#[test]
fn the_draft_of_a_killed_process_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join("spool").join("draft-1234");
    drop(open(&dir));
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("rows"), "half").unwrap();
    drop(open(&dir));
    assert!(!left.exists());
}

#[test]
fn a_row_reads_back_as_it_was_spooled() {
    let dir = tempfile::tempdir().unwrap();
    let spec = JobSpec {
        seq: Seq(3),
        id: JobId([1; 16]),
        fingerprint: Fingerprint([2; 16]),
        variation: 4,
        label: "gull \u{1F426}\n".into(),
        apart: false,
        order: *order(9, -3),
    };
    let mut appender = Appender::open(&dir.path().join("rows"), 0).unwrap();
    let at = appender.push(&spec).unwrap();
    appender.sync().unwrap();
    let mut lines = Lines::open(&dir.path().join("rows"), 0, u64::MAX).unwrap();
    assert_eq!(lines.line_at::<JobSpec>(at).unwrap(), spec);
}

#[test]
fn lines_are_found_wherever_the_last_one_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    let mut appender = Appender::open(&path, 0).unwrap();
    let line = |n: usize| format!("{n}: {}", "x".repeat(n * 37 % 5_000));
    let at: Vec<u64> = (0..400).map(|n| appender.push(&line(n)).unwrap()).collect();
    let end = appender.sync().unwrap();
    for mut lines in
        [Lines::open(&path, at[7], end).unwrap(), Lines::open_scattered(&path, at[7], end).unwrap()]
    {
        for step in 0..2_000 {
            let n = step * step * 31 % at.len();
            assert_eq!(lines.line_at::<String>(at[n]).unwrap(), line(n));
            // The one after it, or nothing beyond the end.
            if step % 3 == 0 && n + 1 < at.len() {
                assert_eq!(lines.next_line::<String>().unwrap(), Some((at[n + 1], line(n + 1))));
            }
            if step % 100 == 0 {
                assert!(lines.line_at::<String>(end).is_err() && lines.line_at::<String>(end + 9).is_err());
                assert!(lines.line_at::<String>(at[n] + 1).is_err(), "in the middle of a line");
            }
        }
    }
}

#[test]
fn files_of_the_state_have_the_permissions_of_other_new_files() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let kept = catalog_cache::CachedCatalogs::none("x");
    catalog_cache::keep(dir.path(), &kept).unwrap();
    fs::write(dir.path().join("new"), "").unwrap();
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
    for name in ["callsheet-state.json", "catalogs.json"] {
        assert_eq!(mode(name), mode("new"), "{name}");
    }
}

#[test]
fn a_batch_that_is_done_keeps_no_file_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let open_files = || store.writer.lock().unwrap().open_files();
    store.commit(&[Change::Batch(Box::new(batch(1, 2))), Change::End(job(1, 0, State::DROPPED))]).unwrap();
    assert_eq!(open_files(), 1);
    let done = BatchRecord { ended: Ended { canceled: 2, ..Ended::default() }, ..batch(1, 2) };
    store.commit(&[Change::End(job(1, 1, State::DROPPED)), Change::Batch(Box::new(done))]).unwrap();
    assert_eq!(open_files(), 0);
}

#[test]
fn of_many_batches_under_way_few_files_are_open_and_every_outcome_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let batches = 1..=300;
    for seq in 0..2 {
        for no in batches.clone() {
            let end = Change::End(job(no, seq, State::DROPPED));
            store.commit(&[Change::Batch(Box::new(batch(no, 3))), end]).unwrap();
            assert!(store.writer.lock().unwrap().open_files() <= 64);
        }
    }
    // All in one commit.
    store
        .commit(&batches.clone().map(|no| Change::End(job(no, 2, State::DROPPED))).collect::<Vec<_>>())
        .unwrap();
    assert!(store.writer.lock().unwrap().open_files() <= 64);
    for no in batches {
        let bytes = store.outcomes_bytes(&batch(no, 3)).unwrap();
        let mut outcomes = store.spool(BatchNo(no)).outcomes(0, bytes).unwrap();
        let seqs: Vec<u32> = std::iter::from_fn(|| outcomes.next_line::<JobRecord>().unwrap())
            .map(|(_, record)| record.key.seq.0)
            .collect();
        assert_eq!(seqs, [0, 1, 2], "{no}");
    }
}
