//! What a run comes to: problems, a table, and where the files are.

use std::path::Path;

use anstream::{eprintln, println};
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::cli::printable;
use crate::domain::admission::Parked;
use crate::engine::conductor::BatchOverview;
use crate::intake::receipt::Receipt;

/// Problems shown on a terminal; the rest are counted.
const SHOWN_MAX: usize = 20;

/// Says what was read in a manifest.
pub(super) fn receipt(receipt: &Receipt) {
    problems(receipt);
    let file = receipt.file.display();
    if let Some(batch) = &receipt.batch {
        let mut parts = vec![format!("{} new ({})", receipt.new, receipt.price)];
        if receipt.have > 0 {
            parts.push(format!("{} already there", receipt.have));
        }
        if receipt.invalid > 0 {
            parts.push(format!("{} not valid", receipt.invalid));
        }
        let refused = if receipt.refused { "; nothing was accepted" } else { "" };
        eprintln!("{file}: batch {batch}: {}{refused}", parts.join(", "));
    }
}

/// Says what is wrong with a manifest, and what is worth saying.
pub(super) fn problems(receipt: &Receipt) {
    let file = receipt.file.display();
    for problem in receipt.problems.iter().take(SHOWN_MAX) {
        eprintln!("{file}:{}", printable(&problem.to_string()));
    }
    let more = receipt.problems_total.saturating_sub(receipt.problems.len().min(SHOWN_MAX) as u64);
    if more > 0 {
        eprintln!("{file}: and {more} more problems");
    }
    for note in receipt.notes.iter().take(SHOWN_MAX) {
        eprintln!("{file}:{} (note)", printable(&note.to_string()));
    }
}

/// What `run --json` prints.
#[derive(Debug, Serialize)]
struct RunReport<'a> {
    receipts: &'a [Receipt],
    batches: Vec<BatchReport<'a>>,
    exit_code: u8,
}

#[derive(Debug, Serialize)]
struct BatchReport<'a> {
    name: String,
    output: String,
    jobs: u32,
    states: std::collections::BTreeMap<&'a str, u32>,
    planned_credits: u64,
    held_credits: u64,
    charged_credits: u64,
    waived_credits: u64,
    refunded_credits: u64,
    parked_by: Option<&'static str>,
}

/// Prints the run's report as one JSON object.
pub(super) fn json(receipts: &[Receipt], batches: &[BatchOverview], output: &Path, exit_code: u8) {
    let batches = batches.iter().map(|batch| BatchReport {
        name: batch.name.to_string(),
        output: output.join(batch.name.as_str()).display().to_string(),
        jobs: batch.rows,
        states: batch.states.iter().copied().collect(),
        planned_credits: batch.planned.0,
        held_credits: batch.totals.held.0,
        charged_credits: batch.totals.spent.0,
        waived_credits: batch.totals.waived.0,
        refunded_credits: batch.totals.refunded.0,
        parked_by: batch.parked.map(Parked::name),
    });
    let report = RunReport { receipts, batches: batches.collect(), exit_code };
    match serde_json::to_string_pretty(&report) {
        Ok(text) => println!("{text}"),
        Err(error) => eprintln!("error: failed to print the report: {error}"),
    }
}

/// Prints a table of the batches as they stand.
pub(super) fn states(batches: &[BatchOverview]) {
    table_of(batches, ["held", "parked by"], |batch| {
        let parked = batch.parked.map(Parked::name).unwrap_or_default();
        [batch.totals.held.0.to_string(), parked.to_owned()]
    });
}

/// Prints a table of the batches, and where their files are.
pub(super) fn files(batches: &[BatchOverview], output: &Path) {
    let folder = |batch: &BatchOverview| output.join(batch.name.as_str()).display().to_string();
    table_of(batches, ["files"], |batch| [folder(batch)]);
}

/// A table of the batches with the columns that every one has, and `more`.
fn table_of<const N: usize>(
    batches: &[BatchOverview],
    more: [&str; N],
    cells: impl Fn(&BatchOverview) -> [String; N],
) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["batch", "jobs", "state", "planned", "spent", "refunded"].into_iter().chain(more));
    for batch in batches {
        let states: Vec<String> = batch.states.iter().map(|(state, n)| format!("{n} {state}")).collect();
        let usual = [
            batch.name.to_string(),
            batch.rows.to_string(),
            states.join(", "),
            batch.planned.0.to_string(),
            batch.totals.spent.0.to_string(),
            batch.totals.refunded.0.to_string(),
        ];
        table.add_row(usual.into_iter().chain(cells(batch)));
    }
    println!("{table}");
}
