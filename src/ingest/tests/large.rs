//! Large manifests: rows that are shortened in their spool, and threads beside each other.

use super::*;
use crate::ingest::batch_locks::BatchLocks;
use crate::store::unopened_state::NewState;
use crate::store::{BatchRecord, StoreError};

const ROWS: usize = 3_000;

/// `ROWS` rows of one class, or of two priorities; every third has no `id`.
fn accepted(has_priorities: bool) -> (Ingest, BatchRecord) {
    let ingest = ingest();
    let mut text = HEADER.to_owned();
    for n in 0..ROWS {
        let id = if n % 3 == 0 { String::new() } else { format!("row-{n}") };
        let priority = if has_priorities && n % 2 == 0 { "5" } else { "" };
        text.push_str(&format!(
            "{id},image,flat,\"a \"\"fox\"\" that runs through the snow of a long winter, {n}\",,{priority}\n"
        ));
    }
    ingest.check("m.csv", &text, "3000 new 0 have 0 invalid 9000 credits");
    ingest.check("m.csv", &text, "0 new 3000 have 0 invalid 0 credits");
    let batch = ingest.store.batches().unwrap().remove(0);
    (ingest, batch)
}

fn rows_path(ingest: &Ingest, batch: &BatchRecord) -> PathBuf {
    ingest.store.spool(batch.no).dir().join("rows")
}

#[test]
fn rows_are_shortened_and_read_back_one_after_the_other_and_each_by_itself() {
    for has_priorities in [false, true] {
        let (ingest, batch) = accepted(has_priorities);
        let path = rows_path(&ingest, &batch);
        let mut lines = ingest.store.spool(batch.no).rows(0, batch.spool_bytes).unwrap();
        let mut rows = Vec::new();
        let mut in_full = 0;
        while let Some((at, spec)) = lines.next_line::<JobSpec>().unwrap() {
            in_full += serde_json::to_vec(&spec).unwrap().len();
            rows.push((at, spec));
        }
        assert_eq!(rows.len(), ROWS);
        let bytes = fs::metadata(&path).unwrap().len();
        assert_eq!(bytes, batch.spool_bytes);
        assert!(bytes < in_full as u64 * 3 / 4, "{bytes} bytes, in full {in_full}");
        let mut single = ingest.store.spool(batch.no).rows_scattered(0, batch.spool_bytes).unwrap();
        for (at, spec) in rows.iter().rev().step_by(7) {
            assert_eq!(single.line_at::<JobSpec>(*at).unwrap(), *spec);
            let found = ingest.store.rows_called(&batch, &spec.label).unwrap();
            assert_eq!(found, [(*at, spec.clone())]);
        }
        let mut seqs: Vec<u32> = rows.iter().map(|(_, spec)| spec.seq.0).collect();
        assert_eq!(seqs.is_sorted(), !has_priorities);
        seqs.sort_unstable();
        assert_eq!(seqs, (0..3_000).collect::<Vec<u32>>());
        let prompt = |row: &(u64, JobSpec)| row.1.order.text().ends_with(&format!(", {}", row.1.seq.0));
        assert!(rows.iter().all(prompt), "each is the row of its place");
    }
}

#[test]
fn an_export_brings_every_row_back_to_the_byte_where_it_was() {
    for has_priorities in [false, true] {
        let (ingest, batch) = accepted(has_priorities);
        let mut dump = Vec::new();
        ingest.store.export(&mut dump).unwrap();
        let elsewhere = ingest.dir.path().join("elsewhere");
        let (state, records) = NewState::read(&dump[..], &elsewhere).unwrap();
        let copy = elsewhere.join("spool/000001/rows");
        assert_eq!(fs::read(copy).unwrap(), fs::read(rows_path(&ingest, &batch)).unwrap());
        state.install(records).unwrap();
        assert!(elsewhere.join("db").exists());
    }
}

#[test]
fn a_damaged_row_is_noticed_and_so_are_those_that_refer_to_it() {
    let (ingest, batch) = accepted(false);
    let path = rows_path(&ingest, &batch);
    let whole = fs::read(&path).unwrap();
    let begins: Vec<usize> = std::iter::once(0)
        .chain(whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1))
        .collect();
    let is_full = |at: &&usize| whole.get(**at + 9) == Some(&b'{');
    let last_full = *begins.iter().rfind(is_full).unwrap();
    let last = begins[begins.len() - 2];
    assert_ne!(last, last_full);
    let damaged = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at + 20] ^= 1;
        fs::write(&path, bytes).unwrap();
        let mut lines = ingest.store.spool(batch.no).rows(0, batch.spool_bytes).unwrap();
        let mut count = 0;
        loop {
            match lines.next_line::<JobSpec>() {
                Ok(Some(_)) => {}
                Ok(None) => return count,
                Err(StoreError::Damaged { .. }) => count += 1,
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert_eq!(damaged(0), 1, "the first rows are in full");
    assert_eq!(damaged(last), 1);
    assert!(damaged(last_full) > 1);
}

#[test]
fn a_small_batch_is_taken_in_while_a_large_one_is_read() {
    let ingest = ingest();
    let (large, small) = (ingest.dir.path().join("large.csv"), ingest.dir.path().join("small.csv"));
    let rows: String = (0..ROWS).map(|n| format!("row-{n},image,flat,fox {n},,\n")).collect();
    fs::write(&large, format!("{HEADER}{rows}")).unwrap();
    fs::write(&small, format!("{HEADER}urgent,image,flat,owl,,\n")).unwrap();
    let (context, locks) = (ingest.context(IngestOptions::default()), BatchLocks::default());
    let take_up =
        |path: &Path| prepare(&ingest.store, path, &context, Timestamp(0), (&locks, || ())).unwrap();
    let commit = |prepared: Prepared| {
        let accepted = prepared.publish(&ingest.store).unwrap();
        ingest.store.commit(&[Change::Batch(Box::new(accepted.batch.unwrap()))]).unwrap();
        accepted.receipt
    };
    let being_read = take_up(&large);
    assert_eq!(commit(take_up(&small)).new, 1, "nothing waits for the large one");
    assert_eq!(commit(being_read).new, 3_000);
    let batches: Vec<_> = ingest
        .store
        .batches()
        .unwrap()
        .into_iter()
        .map(|batch| (batch.no.0, batch.name.to_string()))
        .collect();
    assert_eq!(batches, [(1, "small".to_owned()), (2, "large".to_owned())]);
    assert_eq!(ingest.labels("small"), ["0 urgent"]);
    assert_eq!(ingest.labels("large").len(), ROWS);
    assert_eq!(ingest.labels("large")[2_999], "2999 row-2999");
    let found = ingest.store.rows_called(&ingest.store.batches().unwrap()[1], "row-2500").unwrap();
    assert_eq!(found.len(), 1);
    let spool = ingest.dir.path().join("state/spool");
    let mut left: Vec<_> = fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["000001", "000002"], "no draft is left");
}

#[test]
fn two_manifests_of_one_batch_are_read_one_after_the_other() {
    let ingest = ingest();
    let path = ingest.dir.path().join("m.csv");
    fs::write(&path, format!("{HEADER}a,image,flat,fox,,\n")).unwrap();
    let (context, locks) = (ingest.context(IngestOptions::default()), BatchLocks::default());
    let take_up = || prepare(&ingest.store, &path, &context, Timestamp(0), (&locks, || ())).unwrap();
    let first = take_up();
    std::thread::scope(|scope| {
        // It waits for the first one to be committed: its jobs would be new otherwise, and bought twice.
        let second = scope.spawn(|| take_up().publish(&ingest.store).unwrap().receipt);
        let first = first.publish(&ingest.store).unwrap();
        ingest.store.commit(&[Change::Batch(Box::new(first.batch.unwrap()))]).unwrap();
        drop(first.lock);
        let second = second.join().unwrap();
        assert_eq!((second.new, second.have), (0, 1));
    });
}
