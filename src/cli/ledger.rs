//! `callsheet ledger`: every hold, charge and refund.

use std::io::{BufWriter, Write};

use serde_json::json;

use crate::cli::arguments::{Global, LedgerCommand};
use crate::cli::exit::Exit;
use crate::cli::explain::moved;
use crate::cli::failure::Failure;
use crate::cli::{printable, state, written};
use crate::domain::job::HistoryLine;
use crate::domain::ledger::Movement;
use crate::engine::walk::Walk;

const COLUMNS: [&str; 9] = [
    "time",
    "batch",
    "job",
    "attempt",
    "movement",
    "held_credits",
    "charged_credits",
    "waived_credits",
    "task_id",
];

pub(super) fn run(command: &LedgerCommand, global: &Global) -> Result<Exit, Failure> {
    let store = state::open(global)?;
    let mut out = BufWriter::new(anstream::stdout().lock());
    if command.csv {
        written(writeln!(out, "{}", COLUMNS.join(",")))?;
    }
    for batch in state::batches(&store, command.batch.as_ref())? {
        let mut walk = Walk::begin(&store, &batch)?;
        while let Some((spec, record)) = walk.next_job()? {
            let task = record.job.state.task().map(|task| task.0.clone()).unwrap_or_default();
            for line in &record.job.history {
                let Some(movement) = line.movement else { continue };
                let entry =
                    Entry { batch: batch.name.as_str(), job: &spec.label, task: &task, line, movement };
                let print = if command.csv {
                    entry.csv(&mut out)
                } else if global.json {
                    entry.json(&mut out)
                } else {
                    entry.text(&mut out)
                };
                written(print)?;
            }
        }
    }
    written(out.flush())?;
    Ok(Exit::Success)
}

/// One movement and whose it is.
struct Entry<'a> {
    batch: &'a str,
    job: &'a str,
    task: &'a str,
    line: &'a HistoryLine,
    movement: Movement,
}

impl Entry<'_> {
    fn text(&self, out: &mut impl Write) -> std::io::Result<()> {
        let what = moved(self.movement);
        writeln!(
            out,
            "{}  {}/{} #{}  {what}",
            self.line.at,
            self.batch,
            printable(self.job),
            self.line.attempt.0
        )
    }

    fn json(&self, out: &mut impl Write) -> std::io::Result<()> {
        let entry = json!({
            "time": self.line.at.to_string(),
            "batch": self.batch,
            "job": self.job,
            "attempt": self.line.attempt.0,
            "movement": self.movement,
            "task_id": self.task,
        });
        writeln!(out, "{entry}")
    }

    fn csv(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (name, held, charged, waived) = columns(self.movement);
        let number = |n: i128| n.to_string();
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record([
            &self.line.at.to_string(),
            self.batch,
            self.job,
            &self.line.attempt.0.to_string(),
            name,
            &number(held),
            &number(charged),
            &number(waived),
            self.task,
        ])?;
        writer.flush()
    }
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
