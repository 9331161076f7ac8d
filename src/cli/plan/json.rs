//! A plan as one JSON object: its rows as they come, then what they add up to. Scripts rely on the
//! names: fields may be added, not renamed.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::plan::plan_row::PlanRow;
use crate::cli::plan::totals::{ByLength, Counts, Totals};
use crate::cli::plan::{PlanReport, shown};
use crate::domain::absent_rows::AbsentRows;
use crate::domain::budget::BudgetShortage;
use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::JobId;
use crate::domain::pilot::Pilot;
use crate::domain::row_changes::FieldChange;
use crate::domain::row_verdict::RowVerdict;
use crate::store::read_only::Visibility;

#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    file: String,
    line: u64,
    id: Option<&'a str>,
    /// Who it is, whatever it is called: its idempotency keys are derived from it.
    job_id: Option<JobId>,
    batch: Option<&'a str>,
    verdict: &'static str,
    kind: Option<&'static str>,
    model: Option<&'a str>,
    price_credits: Option<Credits>,
    /// Of a row whose price hangs on a length that is measured before it is sent: the least and the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_from_credits: Option<Credits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_to_credits: Option<Credits>,
    max_credits: Option<Credits>,
    waivable_credits: Credits,
    /// Of a row that is running or in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_credits: Option<Credits>,
    /// Of a row that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_credits: Option<Credits>,
    /// An earlier manifest of the plan wants the same job, and `total_credits` counts it once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    counted_earlier: bool,
    formula: Option<&'a str>,
    /// The outputs of other rows that it takes: `still-07`, `still-07-v2#3`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<String>,
    #[serde(skip_serializing_if = "<[FieldChange]>::is_empty")]
    changed: &'a [FieldChange],
    problems: Vec<JsonDiagnostic<'a>>,
}

#[derive(Debug, Serialize)]
struct JsonDiagnostic<'a> {
    field: Option<&'a str>,
    message: &'a str,
    hint: Option<&'a str>,
    line: u64,
    column: Option<u64>,
}

impl<'a> JsonDiagnostic<'a> {
    fn of(problem: &'a Diagnostic) -> JsonDiagnostic<'a> {
        JsonDiagnostic {
            field: problem.field.as_deref(),
            message: &problem.message,
            hint: problem.hint.as_deref(),
            line: problem.line(),
            column: problem.position.and_then(|position| position.column),
        }
    }
}

#[derive(Debug, Serialize)]
struct JsonTotals<'a> {
    total_credits: Credits,
    waivable_credits: Credits,
    balance_credits: Option<Credits>,
    held_credits: Credits,
    retry_credits: Credits,
    jobs: Counts,
    /// Whether it is known which of the waiting jobs were sent: beside a `run` it is not.
    sent_is_known: bool,
    unpriced: JsonUnpriced,
    /// Rows whose price hangs on a length that is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_length: Option<JsonByLength>,
    batches: Vec<JsonBatch<'a>>,
    groups: Vec<JsonGroup<'a>>,
    /// What must stay of the balance.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_balance_credits: Option<Credits>,
    /// Limits of the whole state that what is planned would pass, that of a day if all of it were sent today.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    account_budgets: Vec<BudgetShortage>,
    /// Groups of rows whose limit what is planned would pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    group_budgets: Vec<BudgetShortage>,
    files: Vec<JsonFile<'a>>,
    catalog: JsonCatalog<'a>,
}

#[derive(Debug, Serialize)]
struct JsonUnpriced {
    jobs: u64,
    max_credits: Credits,
}

#[derive(Debug, Serialize)]
struct JsonByLength {
    jobs: u64,
    from_credits: Credits,
    to_credits: Credits,
}

#[derive(Debug, Serialize)]
struct JsonBatch<'a> {
    name: &'a str,
    total_credits: Credits,
    budget_credits: Option<Credits>,
    committed_credits: Credits,
}

#[derive(Debug, Serialize)]
struct JsonGroup<'a> {
    batch: Option<&'a str>,
    kind: Option<&'static str>,
    model: Option<&'a str>,
    #[serde(flatten)]
    jobs: Counts,
    total_credits: Credits,
    waivable_credits: Credits,
}

#[derive(Debug, Serialize)]
struct JsonFile<'a> {
    file: String,
    batch: Option<&'a str>,
    /// Nothing of it would be taken in.
    refused: bool,
    /// Rows that are not in the part of it that is planned.
    left_out: u64,
    /// What of its batch is done first and what waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pilot: Option<Pilot>,
    notes: Vec<JsonDiagnostic<'a>>,
    /// Rows of its batch that it does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<&'a AbsentRows>,
}

#[derive(Debug, Serialize)]
struct JsonCatalog<'a> {
    fetched: String,
    stale_because: Option<&'a str>,
}

/// Writes the object.
pub(super) struct JsonWriter<'w, W> {
    out: &'w mut W,
    rows: u64,
}

impl<'w, W: Write> JsonWriter<'w, W> {
    pub(super) fn begin(out: &'w mut W) -> io::Result<JsonWriter<'w, W>> {
        out.write_all(b"{\"rows\":[")?;
        Ok(JsonWriter { out, rows: 0 })
    }

    pub(super) fn add_row(&mut self, row: &PlanRow<'_>) -> io::Result<()> {
        self.out.write_all(if self.rows == 0 { b"\n" } else { b",\n" })?;
        self.rows += 1;
        let order = row.order;
        let waivable = order.map(|order| order.waivable).filter(|_| row.verdict.is_to_be_spent());
        let when = |verdicts: &[RowVerdict]| verdicts.contains(&row.verdict).then_some(row.credits);
        // Of a row that cannot be sent today, the price at which its job was accepted.
        let accepted_at = when(&[RowVerdict::Waiting, RowVerdict::Failed]);
        serde_json::to_writer(
            &mut *self.out,
            &JsonRow {
                file: shown(row.file),
                line: row.line,
                id: row.id,
                job_id: row.job,
                batch: row.batch.map(|batch| batch.as_str()),
                verdict: row.verdict.name(),
                kind: order.map(|order| order.kind.name()),
                model: order.and_then(|order| order.model.as_deref()),
                price_credits: order.map_or(accepted_at, |order| order.price),
                price_from_credits: order.and_then(|order| order.cheapest),
                price_to_credits: order
                    .filter(|order| order.cheapest.is_some())
                    .and_then(|order| order.bound),
                max_credits: order.and_then(|order| order.max_credits),
                waivable_credits: waivable.unwrap_or_default(),
                held_credits: when(&[RowVerdict::Running, RowVerdict::InDoubt]),
                retry_credits: when(&[RowVerdict::Failed]),
                counted_earlier: row.is_counted,
                changed: row.changed,
                inputs: order.map(|order| order.inputs_shown()).unwrap_or_default(),
                formula: order.map(|order| order.formula.as_str()),
                problems: row.problems.iter().map(JsonDiagnostic::of).collect(),
            },
        )
        .map_err(io::Error::from)
    }

    /// Adds what the rows come to.
    pub(super) fn finish(self, report: &PlanReport, totals: &Totals) -> io::Result<()> {
        let totals_object = serde_json::to_string_pretty(&totals_object(report, totals))?;
        // The object was begun with its rows.
        writeln!(self.out, "\n],{}", totals_object.trim_start_matches('{'))?;
        self.out.flush()
    }
}

fn totals_object<'a>(report: &'a PlanReport, totals: &'a Totals) -> JsonTotals<'a> {
    let batches = totals.batches.iter().map(|(name, batch)| JsonBatch {
        name: name.as_str(),
        total_credits: batch.credits,
        budget_credits: batch.budget,
        committed_credits: batch.committed,
    });
    let groups = totals.groups.iter().map(|((batch, what), group)| JsonGroup {
        batch: batch.as_ref().map(|batch| batch.as_str()),
        kind: what.as_ref().map(|(kind, _)| kind.name()),
        model: what.as_ref().and_then(|(_, model)| model.as_deref()),
        jobs: group.counts,
        total_credits: group.credits,
        waivable_credits: group.waivable,
    });
    let files = report.validated.iter().map(|validated| JsonFile {
        file: shown(&validated.receipt.file),
        batch: validated.receipt.batch.as_ref().map(|batch| batch.as_str()),
        refused: validated.is_refused(),
        left_out: validated.receipt.left_out,
        pilot: validated.receipt.pilot,
        notes: validated.receipt.notes.iter().map(JsonDiagnostic::of).collect(),
        absent: validated.receipt.absent.as_ref(),
    });
    JsonTotals {
        total_credits: totals.credits,
        waivable_credits: totals.waivable,
        balance_credits: report.balance,
        held_credits: totals.running + totals.in_doubt,
        retry_credits: totals.retry,
        jobs: totals.counts,
        sent_is_known: report.seen == Visibility::All,
        by_length: Some(totals.by_length).filter(|by_length| by_length.jobs > 0).map(|by_length| {
            let ByLength { jobs, least, most } = by_length;
            JsonByLength { jobs, from_credits: least, to_credits: most }
        }),
        unpriced: JsonUnpriced { jobs: totals.unpriced.0, max_credits: totals.unpriced.1 },
        batches: batches.collect(),
        groups: groups.collect(),
        min_balance_credits: report.budgets.min_balance,
        account_budgets: [report.budgets.total_shortage(totals), report.budgets.day_shortage(totals)]
            .into_iter()
            .flatten()
            .collect(),
        group_budgets: report.budgets.group_shortages(totals),
        files: files.collect(),
        catalog: JsonCatalog {
            fetched: report.catalogs.fetched.to_string(),
            stale_because: report.catalogs.stale_because.as_deref(),
        },
    }
}
