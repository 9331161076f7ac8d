//! What a run comes to: problems, a table, and where the files are.

use std::path::Path;

use anstream::{eprintln, println};
use serde::Serialize;

use crate::cli::{printable, printable_path, table};
use crate::control::protocol::BatchStatus;
use crate::domain::admission::Parked;
use crate::intake::receipt::Receipt;

/// Problems shown on a terminal; the rest are counted.
const SHOWN_MAX: usize = 20;

/// Says what was read in a manifest.
pub(super) fn receipt(receipt: &Receipt) {
    problems(receipt);
    let file = printable_path(&receipt.file);
    if let Some(batch) = &receipt.batch {
        let mut parts = vec![format!("{} new ({})", receipt.new, receipt.price)];
        if receipt.have > 0 {
            parts.push(format!("{} already there", receipt.have));
        }
        if receipt.invalid > 0 {
            parts.push(format!("{} not valid", receipt.invalid));
        }
        let refused = match receipt.refused {
            true if !receipt.file_refused => {
                "; nothing was accepted: the manifest is strict (--strict, policy.strict), so one bad row refuses all"
            }
            true => "; nothing was accepted",
            false => "",
        };
        eprintln!("{file}: batch {batch}: {}{refused}", parts.join(", "));
    }
}

/// Says what is wrong with a manifest, and what is worth saying.
pub(super) fn problems(receipt: &Receipt) {
    let file = printable_path(&receipt.file);
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
    #[serde(flatten)]
    status: &'a BatchStatus,
    states: &'a std::collections::BTreeMap<String, u32>,
    output: String,
}

/// Prints the run's report as one JSON object.
pub(super) fn json(receipts: &[Receipt], batches: &[BatchStatus], output: &Path, exit_code: u8) {
    let batches = batches.iter().map(|status| BatchReport {
        output: output.join(status.name.as_str()).display().to_string(),
        states: &status.states,
        status,
    });
    let report = RunReport { receipts, batches: batches.collect(), exit_code };
    match serde_json::to_string_pretty(&report) {
        Ok(text) => println!("{text}"),
        Err(error) => eprintln!("error: failed to print the report: {error}"),
    }
}

/// A table of the batches as they stand.
pub(super) fn states(batches: &[BatchStatus]) -> String {
    let mut table = table::with_headings([
        "batch",
        "state",
        "jobs",
        "by state",
        "planned",
        "spent",
        "waived",
        "refunded",
        "held",
        "parked by",
    ]);
    for batch in batches {
        table.add_row([
            batch.name.to_string(),
            batch.state.name().to_owned(),
            batch.jobs.to_string(),
            batch.states_in_words(),
            batch.planned_credits.to_string(),
            batch.charged_credits.to_string(),
            batch.waived_credits.to_string(),
            batch.refunded_credits.to_string(),
            batch.held_credits.to_string(),
            batch.parked_by.map(Parked::name).unwrap_or_default().to_owned(),
        ]);
    }
    table.to_string()
}

/// Prints a table of the batches, and where their files are.
pub(super) fn files(batches: &[BatchStatus], output: &Path) {
    let mut table =
        table::with_headings(["batch", "jobs", "state", "planned", "spent", "waived", "refunded", "files"]);
    for batch in batches {
        table.add_row([
            batch.name.to_string(),
            batch.jobs.to_string(),
            batch.states_in_words(),
            batch.planned_credits.to_string(),
            batch.charged_credits.to_string(),
            batch.waived_credits.to_string(),
            batch.refunded_credits.to_string(),
            printable_path(&output.join(batch.name.as_str())),
        ]);
    }
    println!("{table}");
}
