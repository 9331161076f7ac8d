//! Rows made from what the state keeps of them are the rows that were accepted: they have the keys that they had.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use callsheet::domain::ids::{BatchName, Fingerprint};
use callsheet::domain::job::{JobSpec, Order};
use callsheet::domain::quote::{Catalog, Rules};
use callsheet::domain::time::Timestamp;
use callsheet::ingest::accepted_row::AcceptedRow;
use callsheet::ingest::batch_locks::BatchLocks;
use callsheet::ingest::{self, IngestContext, IngestOptions};
use callsheet::store::{Change, Store};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/keys").join(name)
}

/// The rows of a batch, with the variations that it has of each.
fn accepted(store: &Store) -> BTreeMap<u32, (JobSpec, u32)> {
    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    let mut rows: BTreeMap<Fingerprint, (JobSpec, u32)> = BTreeMap::new();
    for line in String::from_utf8(export).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Ok(spec) = serde_json::from_value::<JobSpec>(line["row"].clone()) else { continue };
        let row = rows.entry(spec.fingerprint).or_insert((spec, 0));
        row.1 += 1;
    }
    rows.into_values().map(|(spec, count)| (spec.seq.0, (spec, count))).collect()
}

#[test]
fn golden_rows_made_from_the_state_have_the_keys_that_they_had() {
    let catalogs: Value = serde_json::from_slice(&fs::read(fixture("catalogs.json")).unwrap()).unwrap();
    let catalog =
        Catalog::of(&catalogs["video"], &catalogs["image"], &catalogs["music"], &catalogs["voices"]);
    let rules = Rules::builtin();
    let context = |batch: Option<BatchName>| {
        IngestContext::new(&catalog, &rules, IngestOptions { batch, ..IngestOptions::default() })
    };
    let now = Timestamp(1_795_230_010_000);
    let (mut made, mut otherwise, mut unknown) = (0, 0, Vec::new());
    for entry in fs::read_dir(fixture("manifests")).unwrap() {
        let path = entry.unwrap().path();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state"), "s", false).unwrap();
        let Ok(taken) = ingest::accept(&store, &path, &context(None), now) else { continue };
        let Some(batch) = taken.batch else { continue };
        let name = batch.name.clone();
        store.commit(&[Change::Batch(Box::new(batch))]).unwrap();
        let mut manifest = String::new();
        let mut jobs = 0;
        for (spec, count) in accepted(&store).into_values() {
            let Some(row) = AcceptedRow::of(&spec, &name, "") else {
                let file = path.file_name().unwrap().to_string_lossy();
                unknown.push(format!("{file}:{} {}", spec.order.line, spec.order.body.as_str()));
                continue;
            };
            if spec.order.written.is_some() {
                // As an earlier version stored it: nothing is guessed.
                let order = Order { written: None, ..spec.order.clone() };
                assert_eq!(AcceptedRow::of(&JobSpec { order, ..spec.clone() }, &name, ""), None);
                otherwise += 1;
            }
            manifest.push_str(&format!("{}\n", row.line(&spec.order, count)));
            made += 1;
            jobs += count;
        }
        let again = dir.path().join("again.jsonl");
        fs::write(&again, &manifest).unwrap();
        let locks = BatchLocks::default();
        let receipt = ingest::plan(&store, &again, &context(Some(name)), now, &locks).unwrap();
        assert_eq!(
            (receipt.added(), receipt.have, receipt.problems.as_slice()),
            (0, jobs, &[][..]),
            "{}\n{manifest}\n{:?}",
            path.display(),
            receipt.notes
        );
    }
    assert!(unknown.is_empty(), "{} of {made}:\n{}", unknown.len(), unknown.join("\n"));
    assert!(
        made > 300 && otherwise > 20,
        "{made} rows only, {otherwise} of them read otherwise than written"
    );
}
