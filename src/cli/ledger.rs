//! `callsheet ledger`: every hold, charge and refund.

use std::io::{self, BufWriter, Write};

use clap::Args;

use crate::cli::client;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::table::{self, RowPrinter};
use crate::cli::{printable, written};
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::ledger::Movement;
use crate::server::protocol::{LedgerEntry, LedgerRequest, Request};

/// What `ledger` takes.
#[derive(Debug, Args)]
pub(super) struct LedgerCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
    /// Print CSV
    #[arg(long)]
    pub(super) csv: bool,
}

const COLUMNS: [&str; 13] = [
    "time",
    "batch",
    "job",
    "attempt",
    "movement",
    "held_credits",
    "charged_credits",
    "waived_credits",
    "task_id",
    "kind",
    "model",
    "meta",
    "superseded",
];

pub(super) async fn run(command: &LedgerCommand, global: &Global) -> Result<Exit, Failure> {
    client::with(global, LedgerRequest::METHOD, async |client| {
        let mut out = BufWriter::new(anstream::stdout());
        if command.csv {
            written(writeln!(out, "{}", COLUMNS.join(",")))?;
        }
        let headings = ["time", "job", "attempt", "movement"];
        let mut rows = RowPrinter::new(table::with_headings(headings).minor(&[2]));
        let mut print = |line: &[u8]| {
            if global.json && !command.csv {
                return out.write_all(line);
            }
            let entry: LedgerEntry = serde_json::from_slice(line)?;
            if command.csv { as_csv(&entry, &mut out) } else { add_row(&entry, &mut rows, &mut out) }
        };
        let not_listed = client.lines(&LedgerRequest { batch: command.batch.clone() }, &mut print).await?;
        written(rows.finish(&mut out).and_then(|()| out.flush()))?;
        client::report_not_listed(not_listed);
        Ok(Exit::Success)
    })
    .await
}

fn add_row(entry: &LedgerEntry, rows: &mut RowPrinter, out: &mut impl Write) -> io::Result<()> {
    let LedgerEntry { time, batch, job, attempt, movement, superseded, .. } = entry;
    let version = if *superseded { " (superseded)" } else { "" };
    let job = format!("{batch}/{}{version}", printable(job));
    rows.add_row(out, [time.clone(), job, attempt.to_string(), movement.to_string()])
}

fn as_csv(entry: &LedgerEntry, out: &mut impl Write) -> io::Result<()> {
    let (name, held, charged, waived) = columns(entry.movement);
    let number = |n: i128| n.to_string();
    // One column for all of them, as JSON: rows come as a stream, and may have any.
    let meta = if entry.meta.is_empty() { String::new() } else { serde_json::to_string(&entry.meta)? };
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record([
        &entry.time,
        entry.batch.as_str(),
        &entry.job,
        &entry.attempt.to_string(),
        name,
        &number(held),
        &number(charged),
        &number(waived),
        &entry.task_id,
        &entry.kind,
        entry.model.as_deref().unwrap_or_default(),
        &meta,
        &entry.superseded.to_string(),
    ])?;
    writer.flush()
}

/// A movement's name, and what it changes: held, charged, waived. The columns add up to the books.
fn columns(movement: Movement) -> (&'static str, i128, i128, i128) {
    let number = |credits: crate::domain::credits::Credits| i128::from(credits.0);
    match movement {
        Movement::Hold(credits) => ("hold", number(credits), 0, 0),
        Movement::Settle { held, spent, waived } => ("settle", -number(held), number(spent), number(waived)),
        Movement::Release(credits) => ("release", -number(credits), 0, 0),
        Movement::Refund { spent, waived } => ("refund", 0, -number(spent), -number(waived)),
        Movement::Correct { from, to } => ("correct", 0, number(to) - number(from), 0),
    }
}
