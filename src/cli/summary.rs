//! What a run comes to: problems, a table, and where the files are.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cli::continue_pilot;
use crate::cli::failure::Failure;
use crate::cli::progress_lines::span;
use crate::cli::table::{self, Cell, Table};
use crate::cli::terminal::{Tone, say};
use crate::cli::{group_budgets, printable, printable_path, written};
use crate::domain::batch_terms::TermChange;
use crate::domain::credits::Credits;
use crate::domain::job_state::JobState;
use crate::domain::manifest::row::Deadline;
use crate::domain::parked_reason::Parked;
use crate::domain::plural::counted;
use crate::domain::time::Millis;
use crate::ingest::receipt::Receipt;
use crate::server::protocol::{BatchState, BatchStatus};
use crate::store::BatchRecord;

/// Diagnostics shown on a terminal; the rest are counted.
const SHOWN_MAX: usize = 20;
/// Most batches out of budget that are listed; the table shows all.
const SHORT_SHOWN: usize = 20;

/// Says what was read in a manifest.
pub(super) fn receipt(receipt: &Receipt) {
    say_receipt(receipt, "the manifest is strict (--strict, policy.strict), so one invalid row rejects all");
}

/// Says what was read of rows with edited fields.
pub(super) fn receipt_of_edits(receipt: &Receipt) {
    say_receipt(receipt, "each of these rows must be valid with the new fields");
}

/// `all_or_nothing` tells why one invalid row rejects all.
fn say_receipt(receipt: &Receipt, all_or_nothing: &str) {
    problems(receipt);
    let file = printable_path(&receipt.file);
    if let Some(batch) = &receipt.batch {
        let mut parts = vec![format!("{} new ({})", receipt.added(), receipt.price)];
        if receipt.changed > 0 {
            parts[0].push_str(&format!(", {} of them changed", receipt.changed));
        }
        if receipt.have > 0 {
            parts.push(format!("{} already there{}", receipt.have, standing(receipt)));
        }
        if receipt.invalid > 0 {
            parts.push(format!("{} not valid", receipt.invalid));
        }
        parts.extend(part(receipt));
        parts.extend(pilot_plan(receipt));
        let refused = match receipt.refused {
            true if !receipt.file_refused => format!("; nothing was accepted: {all_or_nothing}"),
            true => "; nothing was accepted".to_owned(),
            false => terms(receipt),
        };
        say!("{file}: batch {batch}: {}{refused}", parts.join(", "));
    } else if receipt.refused {
        say!("{file}: nothing was accepted");
    }
    if !receipt.refused {
        group_budgets::lines(&receipt.group_budgets, true).iter().for_each(|line| say!("{line}"));
    }
}

/// `a part: 997 rows left out`; nothing where the whole manifest was handed in.
pub(super) fn part(receipt: &Receipt) -> Option<String> {
    let rows = if receipt.left_out == 1 { "row" } else { "rows" };
    (receipt.left_out > 0).then(|| format!("a part: {} {rows} left out", receipt.left_out))
}

/// Says of a part of a manifest that other jobs of its batch are sent, too: they were accepted before.
pub(super) fn continued_besides(receipt: &Receipt, batch: &BatchRecord) {
    let unfinished = batch.rows.saturating_sub(batch.ended.all());
    let in_part = receipt.added() + receipt.waiting + receipt.running;
    let others = unfinished.saturating_sub(in_part);
    if receipt.left_out > 0 && others > 0 {
        let name = &batch.name;
        say!(
            "{name}: {others} other jobs of the batch were accepted before and are not done: they are sent, too; to hold \
             all of it back: callsheet pause {name}"
        );
    }
}

/// `pilot: 3 jobs (24 credits), then 97 jobs (776 credits) wait for callsheet continue BATCH`.
pub(super) fn pilot_plan(receipt: &Receipt) -> Option<String> {
    let numbers = receipt.pilot?;
    let (first, rest) = (continue_pilot::first(numbers), continue_pilot::rest(numbers));
    let batch = receipt.batch.as_ref().map(|batch| format!(" {batch}")).unwrap_or_default();
    Some(format!("pilot: {first}, then {rest} wait for callsheet continue{batch}"))
}

/// Says of manifests of which a part was handed in what adds the rest.
pub(super) fn parts(receipts: &[Receipt]) {
    for receipt in receipts {
        if let Some(part) = part(receipt) {
            let file = printable_path(&receipt.file);
            say!("{file}: {part}; the same command without --first, --random, --only and --where adds them");
        }
    }
}

/// `: 2 waiting (20 credits), 3 done`; nothing where all are done.
fn standing(receipt: &Receipt) -> String {
    if receipt.done == receipt.have {
        return String::new();
    }
    let waiting = receipt.total_credits.saturating_sub(receipt.price);
    let known = [
        (receipt.waiting, "waiting", waiting),
        (receipt.running, "running", Credits::ZERO),
        (receipt.in_doubt, "in doubt", Credits::ZERO),
        (receipt.failed, "failed, canceled or expired", Credits::ZERO),
        (receipt.done, "done", Credits::ZERO),
    ];
    let parts = known.iter().filter(|(count, ..)| *count > 0).map(|(count, what, credits)| {
        let credits = if credits.is_zero() { String::new() } else { format!(" ({credits})") };
        format!("{count} {what}{credits}")
    });
    format!(": {}", parts.collect::<Vec<_>>().join(", "))
}

/// Says what is wrong with a manifest, and what is worth saying.
pub(super) fn problems(receipt: &Receipt) {
    let file = printable_path(&receipt.file);
    for problem in receipt.problems.iter().take(SHOWN_MAX) {
        say!("{file}:{}", printable(&problem.to_string()));
    }
    let more = receipt.problems_total.saturating_sub(receipt.problems.len().min(SHOWN_MAX) as u64);
    if more > 0 {
        say!("{file}: and {more} more problems; --json lists more of them");
    }
    for note in receipt.notes.iter().take(SHOWN_MAX) {
        say!("{file}:{} (note)", printable(&note.to_string()));
    }
}

/// Says of batches that the balance or their budget parks what is left, what is needed, and what to type.
///
/// Where `is_priced` is false, no process knows the prices in force: what is needed was planned.
pub(super) fn short_of_credits(batches: &[BatchStatus], is_priced: bool) {
    short_balances(batches);
    short_budgets(batches, is_priced);
}

fn short_balances(batches: &[BatchStatus]) {
    let short =
        batches.iter().filter_map(|batch| Some((batch, batch.needed_credits?, batch.balance_credits?)));
    for (BatchStatus { name, parked_by, .. }, needed, balance) in short.take(SHORT_SHOWN) {
        match parked_by {
            Some(Parked::Credits) => say!(
                "{name}: the next job needs {needed} credits, the balance is {balance}; after adding credits: callsheet \
                 resume {name}"
            ),
            Some(Parked::MinBalance) => say!(
                "{name}: the next job needs {needed} credits, the balance is {balance}, of which \
                 budget.min_balance must stay; add credits, or lower budget.min_balance"
            ),
            _ => {}
        }
    }
}

/// Says of batches that their budget parks what is left, what is needed, and what to type.
pub(super) fn short_budgets(batches: &[BatchStatus], is_priced: bool) {
    let shared = batches.iter().filter_map(|batch| Some((&batch.name, batch.budget_shortage.as_ref()?)));
    for (name, shortage) in shared.take(SHORT_SHOWN) {
        say!("{name}: {}", printable(&shortage.to_string()));
    }
    let short = batches.iter().filter(|batch| batch.parked_by == Some(Parked::BatchBudget));
    for batch in short.take(SHORT_SHOWN) {
        let BatchStatus { name, budget_credits: budget, .. } = batch;
        let left = batch.left_credits();
        let Some((needed, (next, all))) = batch.needed_credits.zip(batch.larger_budgets()) else {
            say!("{name}: {left} of {budget} credits are left");
            continue;
        };
        say!(
            "{name}: the next job needs {needed}, {left} of {budget} credits are left: callsheet budget {name} N, where N \
             is {next} for that job{}{}",
            if all > next { format!(", {all} for all of the batch") } else { String::new() },
            if is_priced {
                ""
            } else {
                ", at the prices at which they were accepted; they may cost more by now"
            }
        );
    }
}

/// The terms of a batch as they are now, and what they were before, where that differs.
fn terms(receipt: &Receipt) -> String {
    let change = |change: &TermChange| {
        let is_of_rows = ["priority", "deadline", "max_credits", "review"].contains(&change.term.as_str());
        let kept = if is_of_rows && receipt.have > 0 { " (accepted rows keep theirs)" } else { "" };
        format!("; {} {} -> {}{kept}", change.term, shown_term(&change.before), shown_term(&change.now))
    };
    let mut text: String = receipt.changes.iter().map(change).collect();
    let is_told = receipt.changes.iter().any(|change| change.term == "budget");
    if let Some(budget) = receipt.terms.budget.filter(|_| !is_told) {
        text.push_str(&format!("; budget {}", budget.0));
    }
    text
}

/// The value of a term: `default`, `16`, `30 min`.
fn shown_term(value: &serde_json::Value) -> String {
    match (value, Deadline::deserialize(value)) {
        (serde_json::Value::Null, _) => "default".to_owned(),
        (_, Ok(Deadline::After(after))) => span(after),
        (_, Ok(Deadline::At(at))) => at.to_string(),
        (serde_json::Value::String(text), Err(_)) => printable(text),
        (value, Err(_)) => value.to_string(),
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
///
/// # Errors
/// When stdout cannot be written to.
pub(super) fn json(
    receipts: &[Receipt],
    batches: &[BatchStatus],
    output: &Path,
    exit_code: u8,
) -> Result<(), Failure> {
    let batches = batches.iter().map(|status| BatchReport {
        output: output.join(status.name.as_str()).display().to_string(),
        states: &status.states,
        status,
    });
    let report = RunReport { receipts, batches: batches.collect(), exit_code };
    let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from);
    written(text.and_then(|text| writeln!(anstream::stdout(), "{text}")))
}

/// What a batch's counts say, in their tone.
fn counts(batch: &BatchStatus) -> Cell {
    let has_trouble = batch.in_state(JobState::Failed) + batch.in_state(JobState::InDoubt) > 0;
    Cell::toned(batch.states_text(), if has_trouble { Tone::Failed } else { Tone::Plain })
}

/// A table of the batches as they stand.
pub(super) fn states(batches: &[BatchStatus]) -> Table {
    let headings =
        ["batch", "state", "jobs", "by state", "planned", "spent", "waived", "refunded", "held", "parked by"];
    let mut table = table::with_headings(headings).spare(&[6, 7, 8, 9]);
    for batch in batches {
        let tone = match batch.state {
            BatchState::Parked | BatchState::Paused | BatchState::Review => Tone::Waiting,
            BatchState::Active | BatchState::Done => Tone::Plain,
        };
        table.add_row([
            batch.name.as_str().into(),
            Cell::toned(batch.state.name(), tone),
            batch.jobs.to_string().into(),
            counts(batch),
            batch.planned_credits.to_string().into(),
            batch.charged_credits.to_string().into(),
            batch.waived_credits.to_string().into(),
            batch.refunded_credits.to_string().into(),
            batch.held_credits.to_string().into(),
            Cell::toned(batch.parked_by.map(Parked::name).unwrap_or_default(), tone),
        ]);
    }
    table
}

/// Why batches wait and what lifts that, in commands that name the batch where only one waits for it.
pub(super) fn why_parked(parked: Parked, batches: &[BatchStatus]) -> String {
    let mut waiting = batches.iter().filter(|batch| batch.parked_by == Some(parked));
    match (waiting.next(), waiting.next()) {
        (Some(only), None) => parked.explain_for(&only.name),
        _ => parked.explain().to_owned(),
    }
}

/// Says why the program paused batches by itself.
pub(super) fn why_paused(batches: &[BatchStatus]) {
    for BatchStatus { name, pause_reason, .. } in batches {
        if let Some(reason) = pause_reason {
            say!("{name} is paused, since {reason}; to continue: callsheet resume {name}");
        }
    }
}

/// Says of batches what they may have been charged by a state that is gone.
pub(super) fn may_be_charged(batches: &[BatchStatus]) {
    for BatchStatus { name, state, may_be_charged_credits: credits, .. } in batches {
        if *credits > 0 {
            let verb = if *state == BatchState::Done { "retry" } else { "resume" };
            say!(
                "{name}: up to {credits} credits may have been charged before the state was rebuilt or imported; they count against its own \
                 budget, budget.total, budget.per_day and budget.by until its jobs are looked up: callsheet {verb} {name}"
            );
        }
    }
}

/// Says of batches how many of their jobs are in doubt, and what settles them.
pub(super) fn in_doubt(batches: &[BatchStatus]) {
    for batch in batches {
        let (name, in_doubt) = (&batch.name, batch.in_state(JobState::InDoubt));
        if in_doubt > 0 {
            say!(
                "{name}: {} in doubt, whose credits stay held; to list the jobs: callsheet jobs {name}; \
                 look up each charge in the account and record it: callsheet resolve JOB --charged N, or --not-charged",
                counted(in_doubt, "job")
            );
        }
    }
}

/// Says of batches whose jobs have ended what is held for earlier attempts in doubt, and how that is settled.
pub(super) fn earlier_attempts_in_doubt(batches: &[BatchStatus]) {
    for batch in batches.iter().filter(|batch| batch.held_for_earlier_attempts() > 0) {
        let (name, held) = (&batch.name, batch.held_for_earlier_attempts());
        say!(
            "{name}: {held} credits are held for earlier attempts in doubt; report.json lists them as in_doubt_attempts; look up \
             each charge in the account and record it: callsheet resolve JOB --attempt N --charged CREDITS, or --not-charged"
        );
    }
}

/// Says of batches how many of their jobs are overdue.
pub(super) fn overdue(batches: &[BatchStatus]) {
    for BatchStatus { name, overdue, .. } in batches.iter().filter(|batch| batch.overdue > 0) {
        say!(
            "{name}: {overdue} overdue: watched until the service ends them, up to deadlines.watch_overdue_for; to see \
             what ends one: callsheet explain JOB"
        );
    }
    for BatchStatus { name, watched, .. } in batches.iter().filter(|batch| batch.watched > 0) {
        say!(
            "{name}: {watched} queued for another attempt while an earlier task, which is paid for, is still running: if it \
             succeeds before another attempt is sent, it is collected"
        );
    }
}

/// Says of batches that outputs of theirs wait for a decision, and what to type.
pub(super) fn waiting_for_review(batches: &[BatchStatus]) {
    for batch in batches.iter().filter(|batch| batch.waiting_for_review > 0) {
        let BatchStatus { name, waiting_for_review: waiting, .. } = batch;
        say!("{name}: {waiting} waiting for review; to see and decide them: callsheet review {name}");
    }
}

/// Says of batches that more was charged than their rows were planned at, and where each job's difference is.
pub(super) fn above_plan(batches: &[BatchStatus]) {
    for batch in batches {
        let BatchStatus { name, planned_credits: planned, charged_credits: charged, .. } = batch;
        if charged > planned {
            say!(
                "{name}: {charged} credits were charged and {planned} were planned; what each job was charged: callsheet \
                 ledger {name}"
            );
        }
    }
}

/// Says how long the command took.
pub(super) fn elapsed(elapsed: Millis) {
    say!("elapsed: {}", span(elapsed));
}

/// Prints a table of the batches, and where their files are.
///
/// # Errors
/// When stdout cannot be written to.
pub(super) fn files(batches: &[BatchStatus], output: &Path) -> Result<(), Failure> {
    let headings = ["batch", "jobs", "state", "planned", "spent", "waived", "refunded", "files"];
    let mut table = table::with_headings(headings).spare(&[5, 6]);
    for batch in batches {
        table.add_row([
            batch.name.as_str().into(),
            batch.jobs.to_string().into(),
            counts(batch),
            batch.planned_credits.to_string().into(),
            batch.charged_credits.to_string().into(),
            batch.waived_credits.to_string().into(),
            batch.refunded_credits.to_string().into(),
            printable_path(&output.join(batch.name.as_str())).into(),
        ]);
    }
    written(table::print(&mut anstream::stdout(), &table))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terms_are_shown_as_people_write_them() {
        let shown = |term| shown_term(&term);
        assert_eq!(shown(json!(null)), "default");
        assert_eq!(shown(json!(16)), "16");
        assert_eq!(shown(json!("once")), "once");
        assert_eq!(shown(json!({"after": 1_000})), "1 s");
        assert_eq!(shown(json!({"at": 0})), "1970-01-01T00:00:00.000Z");
    }
}
