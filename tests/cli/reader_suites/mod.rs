//! Cases that others test their readers with, held against the readers of manifests: those of csv-spectrum, a
//! selection of those of the csv crate and of Python's csv module, and values of our own in the categories of
//! JSONTestSuite. Each case says what must come of it here, which is stricter than a mere parser where money hangs
//! on it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod csv_cases;
mod json_cases;

use callsheet::domain::manifest::row::ReadRow;
use callsheet::domain::manifest::{Limits, open};
use serde_json::Value;

/// Reads a manifest; a line for each row: its `meta` as JSON, `bad ...`, `refused ...` or `unreadable ...`.
fn transcript(name: &str, bytes: &[u8]) -> Vec<String> {
    let limits = Limits { max_line_bytes: 1 << 20, max_json_bytes: 1 << 20, max_count: 10 };
    let manifest = match open(name, bytes, &limits, &mut |_| Err("no table".to_owned())) {
        Ok(manifest) => manifest,
        Err(refused) => return refused.problems.iter().map(|problem| format!("refused {problem}")).collect(),
    };
    let told = |row| match row {
        ReadRow::Good(row) => vec![Value::Object(row.meta.clone()).to_string()],
        ReadRow::Bad(bad) => bad.problems.iter().map(|problem| format!("bad {problem}")).collect(),
        ReadRow::Unreadable(problem) => vec![format!("unreadable {problem}")],
    };
    manifest.flat_map(told).collect()
}
