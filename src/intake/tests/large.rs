//! Large manifests: rows that are shortened in their spool, and threads beside each other.

use super::*;
use crate::store::locked_state::NewState;
use crate::store::{BatchRecord, StoreError};

const ROWS: usize = 3_000;

/// `ROWS` rows of one class, or of two priorities; every third has no `id`.
fn accepted(has_priorities: bool) -> (Door, BatchRecord) {
    let door = door();
    let mut text = HEADER.to_owned();
    for n in 0..ROWS {
        let id = if n % 3 == 0 { String::new() } else { format!("row-{n}") };
        let priority = if has_priorities && n % 2 == 0 { "5" } else { "" };
        text.push_str(&format!(
            "{id},image,flat,\"a \"\"fox\"\" that runs through the snow of a long winter, {n}\",,{priority}\n"
        ));
    }
    door.check("m.csv", &text, "3000 new 0 have 0 invalid 9000 credits");
    door.check("m.csv", &text, "0 new 3000 have 0 invalid 0 credits");
    let batch = door.store.batches().unwrap().remove(0);
    (door, batch)
}

fn rows_path(door: &Door, batch: &BatchRecord) -> PathBuf {
    door.store.spool(batch.no).rows_path()
}

#[test]
fn rows_are_shortened_and_read_back_one_after_the_other_and_each_by_itself() {
    for has_priorities in [false, true] {
        let (door, batch) = accepted(has_priorities);
        let path = rows_path(&door, &batch);
        let mut lines = Lines::open(&path, 0, batch.spool_bytes).unwrap();
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
        let mut single = Lines::open_scattered(&path, 0, batch.spool_bytes).unwrap();
        for (at, spec) in rows.iter().rev().step_by(7) {
            assert_eq!(single.line_at::<JobSpec>(*at).unwrap(), *spec);
            let found = door.store.rows_called(&batch, &spec.label).unwrap();
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
        let (door, batch) = accepted(has_priorities);
        let mut dump = Vec::new();
        door.store.export(&mut dump).unwrap();
        let elsewhere = door.dir.path().join("elsewhere");
        let (state, records) = NewState::read(&dump[..], &elsewhere).unwrap();
        let copy = elsewhere.join("spool/000001/rows");
        assert_eq!(fs::read(copy).unwrap(), fs::read(rows_path(&door, &batch)).unwrap());
        state.install(records).unwrap();
        assert!(elsewhere.join("db").exists());
    }
}

#[test]
fn a_damaged_row_is_noticed_and_so_are_those_that_refer_to_it() {
    let (door, batch) = accepted(false);
    let path = rows_path(&door, &batch);
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
        let mut lines = Lines::open(&path, 0, batch.spool_bytes).unwrap();
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
