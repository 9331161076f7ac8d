//! Batches that are done.

use super::*;
use crate::domain::ids::BatchName;
use crate::store::commit::{READ, Writes};
use crate::store::finished::{entries, insert};
use crate::store::finished_sums::StoredTotal;
use crate::store::state_folders::folder_name;

/// A batch of one job that was dropped.
fn done(no: u32, name: &str) -> BatchRecord {
    let ended = Ended { canceled: 1, ..Ended::default() };
    let (name, finished) = (name.parse().unwrap(), Some(Timestamp(i64::from(no) * 1000)));
    BatchRecord { name, ended, finished, ..batch(no, 1) }
}

/// The state after it has ended.
fn finish(store: &Store, batch: &BatchRecord) {
    let end = Change::End(job(batch.no.0, 0, State::DROPPED));
    store.commit(&[end, Change::Batch(Box::new(batch.clone()))]).unwrap();
}

/// It with a further row, of one byte.
fn longer(batch: &BatchRecord) -> BatchRecord {
    let segments = vec![Segment::mixed(0, 0, 1)];
    BatchRecord { rows: 2, finished: None, spool_bytes: 1, segments, ..batch.clone() }
}

fn listed(store: &Store) -> Vec<String> {
    store.listed_finished().unwrap().into_iter().map(|line| line.name.to_string()).collect()
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn a_batch_that_is_done_leaves_a_line_and_is_found_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let totals = Totals { spent: Credits(7), ..Totals::default() };
    let first = BatchRecord { totals, ..done(1, "first") };
    let end = Change::End(job(1, 0, State::DROPPED));
    store
        .commit(&[Change::Batch(Box::new(BatchRecord { ended: Ended::default(), ..first.clone() }))])
        .unwrap();
    assert_eq!(store.batches().unwrap().len(), 1);
    store.commit(&[end, Change::Batch(Box::new(first.clone())), Change::Total(totals)]).unwrap();
    let length = fs::metadata(store.spool(BatchNo(1)).outcomes_path()).unwrap().len();
    let check = |store: &Store| {
        assert_eq!((store.batches().unwrap(), store.finished_count()), (vec![], 1));
        assert_eq!(store.batch_named(&first.name).unwrap().as_ref(), Some(&first));
        assert_eq!(store.batch(BatchNo(1)).unwrap().as_ref(), Some(&first));
        assert_eq!(store.batch_named(&"batch-2".parse().unwrap()).unwrap(), None);
        assert_eq!(store.next_batch_no(), BatchNo(2), "no number is given twice");
        assert_eq!(store.outcomes_bytes(&first).unwrap(), length);
        assert_eq!(store.unannounced().unwrap(), [BatchNo(1)]);
        assert_eq!(store.verify(drop).unwrap().finished, 1);
    };
    let written = files(&dir.path().join("spool"));
    check(&store);
    assert_eq!(files(&dir.path().join("spool")), written, "looking changes nothing");
    drop(store);
    check(&open(&dir));
    assert_eq!(files(&dir.path().join("spool")), written, "opening changes nothing");
}

#[test]
fn a_finished_batch_goes_on_within_the_commit_that_adds_to_it_and_ends_within_the_one_that_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let first = done(1, "first");
    finish(&store, &first);
    let length = store.outcomes_bytes(&first).unwrap();
    let again = longer(&first);
    fs::write(store.spool(BatchNo(1)).rows_path(), "x").unwrap();
    store.commit(&[Change::Batch(Box::new(again.clone()))]).unwrap();
    assert_eq!((store.batches().unwrap(), store.finished_count()), (vec![again.clone()], 0));
    assert_eq!((store.outcomes_bytes(&again).unwrap(), listed(&store)), (length, vec![]));
    drop(store);
    let store = open(&dir);
    assert_eq!(store.batch_named(&first.name).unwrap(), Some(again.clone()));
    let ended = Ended { canceled: 2, ..Ended::default() };
    let over = BatchRecord { ended, finished: Some(Timestamp(5)), ..again };
    store.commit(&[Change::End(job(1, 1, State::DROPPED)), Change::Batch(Box::new(over.clone()))]).unwrap();
    assert_eq!(store.batch_named(&first.name).unwrap().as_ref(), Some(&over));
    assert_eq!(store.outcomes_bytes(&over).unwrap(), 2 * length);
    // An outcome of a finished batch that stays finished: a doubt that a person ended.
    let resolved = BatchRecord { announced: true, ..over.clone() };
    store
        .commit(&[Change::End(job(1, 1, State::DROPPED)), Change::Batch(Box::new(resolved.clone()))])
        .unwrap();
    assert_eq!(store.batch(BatchNo(1)).unwrap(), Some(resolved));
    assert_eq!((store.outcomes_bytes(&over).unwrap(), store.unannounced().unwrap()), (3 * length, vec![]));
    assert_eq!((store.batches().unwrap(), store.finished_count(), listed(&store).len()), (vec![], 1, 1));
}

#[test]
fn finished_batches_are_listed_in_the_order_of_their_ends_and_from_a_time_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for (no, name) in [(3, "third"), (1, "first"), (2, "second")] {
        finish(&store, &done(no, name));
    }
    assert_eq!(listed(&store), ["first", "second", "third"]);
    store.list_finished_since(Timestamp(2000));
    assert_eq!(listed(&store), ["second", "third"]);
    let of = |name: &str| name.parse::<BatchName>().unwrap();
    assert!(!store.is_unlisted(&of("first")).unwrap(), "its end was not announced");
    let announced = BatchRecord { announced: true, ..done(1, "first") };
    store.commit(&[Change::Batch(Box::new(announced))]).unwrap();
    assert!(store.is_unlisted(&of("first")).unwrap() && !store.is_unlisted(&of("third")).unwrap());
    assert!(store.batch_named(&of("first")).unwrap().is_some(), "by its name for ever");
    assert_eq!((store.finished_count(), store.finished_jobs().unwrap()[&None].canceled), (3, 3));
    let names: Vec<String> =
        store.listed_batches().unwrap().into_iter().map(|batch| batch.name.to_string()).collect();
    assert_eq!(names, ["second", "third"]);
}

#[test]
fn a_batch_is_found_while_it_ends_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let (first, again) = (done(1, "first"), longer(&done(1, "first")));
    finish(&store, &first);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = || {
            let mut asked = 0;
            while !over.load(Ordering::Relaxed) {
                let found = store.batch_named(&first.name).unwrap().expect("its name is taken");
                assert!(found == first || found == again, "{found:?}");
                assert!(store.batch(BatchNo(1)).unwrap().is_some());
                assert!(store.outcomes_bytes(&first).unwrap() > 0);
                assert_eq!(store.next_batch_no(), BatchNo(2));
                asked += 1;
            }
            asked
        };
        let askers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        for _ in 0..40 {
            store.commit(&[Change::Batch(Box::new(again.clone()))]).unwrap();
            store.commit(&[Change::Batch(Box::new(first.clone()))]).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        assert!(askers.into_iter().all(|asker| asker.join().unwrap() > 0));
    });
}

#[test]
fn a_batch_whose_files_were_moved_away_keeps_its_name_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let first = done(1, "first");
    finish(&store, &first);
    finish(&store, &done(2, "second"));
    let (here, elsewhere) = (store.spool(BatchNo(1)).dir().to_owned(), dir.path().join("aside-by-hand"));
    fs::rename(&here, &elsewhere).unwrap();
    drop(store);
    let store = open(&dir);
    let error = store.batch_named(&first.name).unwrap_err();
    assert!(matches!(error, StoreError::BatchMoved { .. }), "{error}");
    assert!(matches!(store.batch(BatchNo(1)).unwrap_err(), StoreError::BatchMoved { .. }));
    assert_eq!(store.listed_batches().unwrap().len(), 1);
    assert_eq!((listed(&store), store.next_batch_no()), (vec!["first".into(), "second".into()], BatchNo(3)));
    fs::rename(&elsewhere, &here).unwrap();
    assert_eq!(store.batch_named(&first.name).unwrap(), Some(first));
}

#[test]
fn a_finished_batch_that_the_database_forgot_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    for part in 0..4 {
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        let store = open(&dir);
        finish(&store, &done(1, "first"));
        let line = store.line(&"first".parse().unwrap()).unwrap().unwrap();
        let mut forget = Writes::default();
        forget.remove(&entries(&line).swap_remove(part).0);
        store.database().unwrap().damage(forget);
        drop(store);
        // It is not as a process left it that knew of it.
        fs::remove_file(dir.path().join("closed")).unwrap();
        let refused = refusal(dir.path(), SERVICE);
        assert!(
            refused
                == "batch first in STATE is damaged: jobs of it have ended, and the database does not know it"
                || refused == "the database in STATE is damaged: finished batches are not listed as they are",
            "{refused}"
        );
    }
}

#[test]
fn a_record_of_a_finished_batch_that_is_damaged_is_no_other_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let first = done(1, "first");
    finish(&store, &first);
    let path = store.spool(BatchNo(1)).dir().join("finished");
    let whole = fs::read(&path).unwrap();
    for bytes in [&whole[..whole.len() - 2], b"", &[&whole[..20], b"x", &whole[21..]].concat()] {
        fs::write(&path, bytes).unwrap();
        let error = store.batch_named(&first.name).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert_eq!(store.verify(drop).unwrap().faults, 1);
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(store.batch_named(&first.name).unwrap_err(), StoreError::Damaged { .. }));
    fs::write(&path, &whole).unwrap();
    assert_eq!(store.batch_named(&first.name).unwrap(), Some(first));
}

#[test]
fn one_number_or_one_name_for_two_batches_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    finish(&store, &done(1, "first"));
    let unfinished = |no, name: u32| BatchRecord { name: batch(name, 1).name, ..batch(no, 1) };
    for (no, name) in [(1, 1), (2, 2), (3, 2)] {
        store.commit(&[Change::Batch(Box::new(unfinished(no, name)))]).unwrap();
    }
    let mut faults = Vec::new();
    store.verify(|fault| faults.push(fault.to_string())).unwrap();
    for expected in [
        "batch batch-2: there are two of that name",
        "batch first: another one that is not finished has its number, 1",
    ] {
        assert!(faults.iter().any(|fault| fault == expected), "{faults:#?}");
    }
    // A second batch of a finished one's name is refused before anything of it is written.
    let twin = BatchRecord { name: "first".parse().unwrap(), ..batch(4, 1) };
    let error = store.commit(&[Change::Batch(Box::new(twin))]).unwrap_err().to_string();
    assert!(error.contains("it has number 4, and a finished one of its name 1"), "{error}");
}

#[test]
fn a_state_of_format_1_is_taken_over_whatever_of_it_was_archived() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for (no, name) in [(1, "archived"), (2, "done"), (3, "moved")] {
        finish(&store, &BatchRecord { announced: true, ..done(no, name) });
    }
    let records: Vec<BatchRecord> = (1..4).map(|no| store.batch(BatchNo(no)).unwrap().unwrap()).collect();
    let commits = store.records().unwrap().commits;
    // As an earlier version left it.
    let mut old = Writes::default();
    for record in &records {
        let line = store.line(&record.name).unwrap().unwrap();
        entries(&line).into_iter().for_each(|(key, _)| old.remove(&key));
        let spool = store.spool(record.no).dir().to_owned();
        fs::remove_file(spool.join("finished")).unwrap();
        let outcomes_bytes = line.outcomes_bytes(store.dir()).unwrap();
        if record.no == BatchNo(2) {
            old.insert(&db_keys::batch(record.no), record);
            old.insert(&db_keys::outcomes_bytes(record.no), &outcomes_bytes);
            continue;
        }
        let kept = json!({ "outcomes_bytes": outcomes_bytes, "record": record });
        fs::write(spool.join("record.json"), kept.to_string()).unwrap();
        let archived = json!({
            "no": record.no, "name": record.name, "at": 77, "rows": record.rows, "totals": record.totals,
        });
        old.insert(&db_keys::finished(&record.name), &archived);
        let place = dir.path().join("archive").join(folder_name(record.no));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::rename(spool, &place).unwrap();
    }
    old.insert(&db_keys::total(), &Totals::default());
    store.database().unwrap().damage(old);
    drop(store);
    fs::rename(dir.path().join("archive/000003"), dir.path().join("archive/elsewhere")).unwrap();
    for _ in 0..2 {
        let store = open(&dir);
        assert_eq!(store.batch(BatchNo(1)).unwrap().as_ref(), Some(&records[0]));
        assert_eq!(store.batch_named(&records[1].name).unwrap().as_ref(), Some(&records[1]));
        assert!(matches!(store.batch_named(&records[2].name), Err(StoreError::BatchMoved { .. })));
        assert_eq!((store.batches().unwrap(), store.finished_count()), (vec![], 3));
        assert_eq!(store.records().unwrap().commits, commits, "no decision was made");
    }
    // One that goes on stays where it lies.
    let store = open(&dir);
    let again = longer(&records[0]);
    fs::write(store.spool(BatchNo(1)).rows_path(), "x").unwrap();
    store.commit(&[Change::Batch(Box::new(again.clone()))]).unwrap();
    drop(store);
    let store = open(&dir);
    assert_eq!(store.batches().unwrap(), [again]);
    assert!(store.spool(BatchNo(1)).dir().ends_with("archive/000001"));
    assert!(!dir.path().join("archive/000001/record.json").exists());
}

/// Opening a state that is as it was left, and finding a batch in it by name and number, reads as much after a thousand
/// finished batches as after ten, and nothing of their folders.
#[test]
fn what_is_finished_is_not_read_when_a_state_is_opened() {
    let read_with = |finished: u32| {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        let first = done(1, "done-1");
        let live = batch(finished + 1, 1);
        finish(&store, &first);
        let begun = Change::Open(job(live.no.0, 0, State::Queued));
        store.commit(&[Change::Batch(Box::new(live.clone())), begun]).unwrap();
        // The others as if they had ended like it.
        let line = store.line(&first.name).unwrap().unwrap();
        let lines = (1..=finished).map(|no| FinishedBatch {
            no: BatchNo(no),
            name: format!("done-{no}").parse().unwrap(),
            totals: Totals { spent: Credits(3), ..Totals::default() },
            ..line.clone()
        });
        let lines: Vec<FinishedBatch> = lines.collect();
        let mut writes = Writes::default();
        lines.iter().for_each(|line| insert(&mut writes, line));
        let total = Totals { spent: Credits(3 * u64::from(finished)), ..Totals::default() };
        writes.insert(&db_keys::total(), &StoredTotal::of(total, lines.iter()));
        store.database().unwrap().damage(writes);
        drop(store);
        fs::remove_dir_all(dir.path().join("spool").join(folder_name(first.no))).unwrap();

        READ.set(0);
        let store = open(&dir);
        let opening = READ.get();
        assert_eq!(store.finished_count(), u64::from(finished));
        assert_eq!(store.next_batch_no(), BatchNo(finished + 2));
        assert_eq!(store.finished_jobs().unwrap()[&None].canceled, finished);
        assert_eq!(store.batch_named(&live.name).unwrap(), Some(live));
        let name = format!("done-{finished}").parse().unwrap();
        assert!(matches!(store.batch_named(&name), Err(StoreError::BatchMoved { .. })));
        assert!(matches!(store.batch(BatchNo(finished)), Err(StoreError::BatchMoved { .. })));
        assert_eq!(store.batch_named(&"other".parse().unwrap()).unwrap(), None);
        assert_eq!(store.total().unwrap(), total);
        assert_eq!(store.newest_finished(5).unwrap().len(), 5);
        let asked = READ.get();
        assert_eq!(store.listed_finished().unwrap().len(), finished as usize, "they are there");
        (opening, asked)
    };
    let (few, many) = (read_with(10), read_with(1000));
    assert_eq!(few, many, "records read by opening, and in all");
    assert!(few.0 < 20, "{few:?}");
}

/// With a finished batch and without, after a crash and after a stop in order.
#[test]
fn open_jobs_are_read_once_when_a_state_is_opened() {
    for (has_finished, is_killed) in [(false, false), (false, true), (true, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        if has_finished {
            finish(&store, &done(1, "done-1"));
        }
        let live = BatchRecord { rows: 190, planned: Credits(1_900), ..batch(2, 190) };
        let begun = (0..190).map(|seq| Change::Open(job(2, seq, State::Queued)));
        let changes: Vec<Change> = begun.chain([Change::Batch(Box::new(live))]).collect();
        store.commit(&changes).unwrap();
        drop(store);
        if is_killed {
            fs::remove_file(dir.path().join("closed")).unwrap();
        }
        READ.set(0);
        let store = open(&dir);
        assert_eq!(store.open_jobs().unwrap().len(), 190);
        let read = READ.get();
        assert!((190..240).contains(&read), "{read} records, {has_finished}, {is_killed}");
    }
}

/// The sums are derived: those that an earlier version left out or did not keep up are made anew from the lines.
#[test]
fn sums_of_finished_batches_that_do_not_fit_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let totals = Totals { spent: Credits(3), ..Totals::default() };
    let mut store = open(&dir);
    let first = BatchRecord { totals, ..done(1, "first") };
    store.commit(&[Change::Batch(Box::new(first)), Change::Total(totals)]).unwrap();
    let wrong = json!({ "count": 7, "totals": {}, "kinds": {}, "other": {} });
    for stored in [json!(totals), json!({ "spent": 3, "finished": wrong })] {
        let mut old = Writes::default();
        old.insert(&db_keys::total(), &stored);
        store.database().unwrap().damage(old);
        drop(store);
        store = open(&dir);
        assert_eq!((store.finished_count(), store.total().unwrap()), (1, totals));
        assert_eq!(store.finished_jobs().unwrap()[&None].canceled, 1);
        store.verify(|fault| assert_ne!(fault.place, "the totals")).unwrap();
    }
}

/// The disk is full when the number of the commit is written beside the database, which has the commit.
#[test]
fn a_commit_that_is_repeated_although_it_had_landed_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let first = done(1, "first");
    let under_way = BatchRecord { ended: Ended::default(), finished: None, ..first.clone() };
    store.commit(&[Change::End(job(1, 0, State::DROPPED)), Change::Batch(Box::new(under_way))]).unwrap();
    let bytes = store.outcomes_bytes(&first).unwrap();
    let repeated = |batch: &BatchRecord| {
        let changes = [Change::Batch(Box::new(batch.clone()))];
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let kept = store.writer.lock().unwrap().replace_commits_file(full);
        assert!(store.commit(&changes).unwrap_err().is_full());
        store.writer.lock().unwrap().replace_commits_file(kept);
        store.commit_again(&changes).unwrap();
        store.verify(|fault| assert_ne!(fault.place, "the totals", "{fault}")).unwrap();
        assert_eq!(store.outcomes_bytes(batch).unwrap(), bytes);
        store.finished_count()
    };
    assert_eq!(repeated(&first), 1);
    let again = longer(&first);
    fs::write(store.spool(BatchNo(1)).rows_path(), "x").unwrap();
    assert_eq!(repeated(&again), 0);
    drop(store);
    let store = open(&dir);
    assert_eq!((store.batches().unwrap(), store.finished_count()), (vec![again.clone()], 0));
    assert_eq!(store.outcomes_bytes(&again).unwrap(), bytes);
}
