//! A plan as a person reads it: the rows, or the dearest of many, then tables and sums.

use std::io::{self, Write};

use crate::cli::absent_rows::{self, AbsentLine};
use crate::cli::plan::budgets::Budgets;
use crate::cli::plan::plan_row::PlanRow;
use crate::cli::plan::totals::{ByLength, Totals};
use crate::cli::plan::{PlanReport, shown};
use crate::cli::table::{self, Table};
use crate::cli::{group_budgets, printable, summary, terminal};
use crate::domain::credits::Credits;
use crate::domain::job::Order;
use crate::domain::plural::counted;
use crate::domain::quote::AccountPlan;
use crate::domain::row_verdict::RowVerdict;
use crate::ingest::receipt::Receipt;
use crate::store::read_only::Visibility;

/// Up to so many rows are all listed.
const LISTED_MAX: usize = 40;
/// Of more rows, so many of the dearest are.
const DEAREST: usize = 10;

#[derive(Debug)]
struct ListedRow {
    credits: Credits,
    cells: [String; 5],
}

impl ListedRow {
    fn of(row: &PlanRow<'_>) -> ListedRow {
        let why = match (row.order, row.problems) {
            (Some(order), _) => format!("{}{}{}", order.formula, taken(order), remark(row)),
            (None, []) => format!("accepted earlier{}", remark(row)),
            (None, [first, rest @ ..]) => {
                let more =
                    if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
                format!("{}{more}", first.field_message())
            }
        };
        let credits = row.to_be_spent();
        let place = format!("{}:{}", shown(row.file), row.line);
        let verdict = row.verdict.name().to_owned();
        let cells = [place, row.name().to_owned(), verdict, price(row), why];
        ListedRow { credits, cells: cells.map(|cell| printable(&cell)) }
    }
}

/// The credits of a row: what is still to be spent for it, or what is set aside for it.
fn price(row: &PlanRow<'_>) -> String {
    let unpriced = row.order.filter(|order| order.price.is_none());
    match (row.verdict, unpriced) {
        (RowVerdict::Invalid, _) => "-".to_owned(),
        (RowVerdict::Done | RowVerdict::Failed, _) => "0".to_owned(),
        (RowVerdict::Running | RowVerdict::InDoubt, _) | (_, None) => row.credits.0.to_string(),
        (_, Some(order)) => match order.cheapest {
            Some(least) => format!("{} to {}", least.0, row.credits.0),
            None => format!("up to {}", row.credits.0),
        },
    }
}

/// `; takes clip-boat`: the rows whose outputs a row takes.
fn taken(order: &Order) -> String {
    let inputs = order.inputs_shown();
    if inputs.is_empty() { String::new() } else { format!("; takes {}", inputs.join(", ")) }
}

/// What is worth saying of a job beside its verdict and its price.
fn remark(row: &PlanRow<'_>) -> String {
    let changed = row.changed.iter().map(|one| format!("{}: {}", one.field, one.message));
    let changed = changed.collect::<Vec<_>>().join(", ");
    let standing = match row.verdict {
        _ if row.is_counted => "; also in an earlier manifest: counted once".to_owned(),
        RowVerdict::Running => "; held".to_owned(),
        RowVerdict::InDoubt => "; held until callsheet resolve".to_owned(),
        RowVerdict::Failed if row.credits.is_zero() => "; see callsheet explain".to_owned(),
        RowVerdict::Failed => format!("; callsheet retry would cost {}", row.credits.0),
        _ => String::new(),
    };
    match row.verdict {
        _ if row.changed.is_empty() || row.is_counted => standing,
        RowVerdict::Changed => format!("; {changed}"),
        _ => format!("{standing}; back to an earlier request: {changed}"),
    }
}

/// Lists rows as they come: all of them, or as many as a person reads.
pub(super) struct RowListing {
    all: bool,
    seen: usize,
    first: Vec<ListedRow>,
    /// The dearest so far, dearest first.
    dearest: Vec<ListedRow>,
}

impl RowListing {
    pub(super) fn new(all: bool) -> RowListing {
        RowListing { all, seen: 0, first: Vec::new(), dearest: Vec::new() }
    }

    pub(super) fn add_row(&mut self, out: &mut impl Write, row: &PlanRow<'_>) -> io::Result<()> {
        self.seen += 1;
        if self.all {
            let [place, job, verdict, credits, why] = ListedRow::of(row).cells;
            return writeln!(out, "{place}  {job}  {verdict}  {credits}  {why}");
        }
        if self.first.len() < LISTED_MAX {
            self.first.push(ListedRow::of(row));
        }
        let least = self.dearest.last().map_or(Credits::ZERO, |line| line.credits);
        let credits = row.to_be_spent();
        if row.verdict.is_to_be_spent() && (self.dearest.len() < DEAREST || credits > least) {
            let line = ListedRow::of(row);
            let place = self.dearest.partition_point(|other| other.credits >= line.credits);
            self.dearest.insert(place, line);
            self.dearest.truncate(DEAREST);
        }
        Ok(())
    }

    /// Prints what was not printed as it came.
    pub(super) fn finish(self, out: &mut impl Write) -> io::Result<()> {
        if self.all {
            return writeln!(out);
        }
        let (lines, more) = if self.seen <= LISTED_MAX {
            (self.first, None)
        } else {
            let of = self.seen;
            (self.dearest, Some(format!("the most expensive of {of} rows; --rows lists all")))
        };
        let mut table = table::with_headings(["row", "job", "verdict", "credits", "formula"]);
        for line in lines {
            table.add_row(line.cells);
        }
        print(out, table, &[3])?;
        match more {
            Some(more) => writeln!(out, "{more}\n"),
            None => writeln!(out),
        }
    }
}

/// Prints the tables and sums below the rows.
pub(super) fn totals(out: &mut impl Write, report: &PlanReport, totals: &Totals) -> io::Result<()> {
    if !totals.groups.is_empty() {
        groups(out, totals)?;
        writeln!(out)?;
    }
    let mut text = Vec::new();
    sentences(&mut text, report, totals)?;
    terminal::write_wrapped(out, &String::from_utf8_lossy(&text))?;
    let receipts: Vec<&Receipt> = report.validated.iter().map(|validated| &validated.receipt).collect();
    for line in absent_rows::lines(&receipts, &report.invocation) {
        match line {
            AbsentLine::Text(text) => terminal::write_wrapped(out, &printable(&text))?,
            AbsentLine::Command(command) => writeln!(out, "    {}", printable(&command))?,
        }
    }
    out.flush()
}

fn sentences(out: &mut impl Write, report: &PlanReport, totals: &Totals) -> io::Result<()> {
    sums(out, totals)?;
    for batch in report.shared_batches() {
        writeln!(
            out,
            "several of these manifests go into batch {batch}: of rows that have the same id in more than one, the version of \
             the last is wanted, and the others are replaced free of charge; the total counts them all"
        )?;
    }
    for receipt in report.validated.iter().map(|validated| &validated.receipt) {
        if let (Some(batch), Some(pilot)) = (&receipt.batch, summary::pilot_plan(receipt)) {
            writeln!(out, "{batch}: {pilot}")?;
        }
    }
    if report.seen == Visibility::SentUnknown && totals.counts.waiting > 0 {
        let waiting = counted(totals.counts.waiting, "job");
        writeln!(
            out,
            "unknown: how many of the waiting jobs ({waiting}) are submitted already; another process works on this \
             state, or its database cannot be read"
        )?;
    }
    if totals.unpriced.0 > 0 {
        let (jobs, most) = totals.unpriced;
        writeln!(out, "unpriced: {jobs} of them have no price; their rows allow up to {most}")?;
    }
    if totals.by_length.jobs > 0 {
        let ByLength { jobs, least, most } = totals.by_length;
        let them = if jobs == 1 { "one of them costs" } else { "of them cost" };
        let count = if jobs == 1 { String::new() } else { format!("{jobs} ") };
        writeln!(
            out,
            "by length: {count}{them} {} to {most}, depending on the length of an output that is not made yet; the \
             totals count the most",
            least.0
        )?;
    }
    for validated in report.validated.iter().filter(|validated| validated.is_refused()) {
        let file = printable(&shown(&validated.receipt.file));
        writeln!(out, "{file} was rejected; fix the errors above and submit it again")?;
    }
    for validated in &report.validated {
        if let Some(part) = summary::part(&validated.receipt) {
            writeln!(out, "{}: {part}", printable(&shown(&validated.receipt.file)))?;
        }
    }
    allowance(out, report.plan, totals.waivable)?;
    budgets(out, totals)?;
    account_budgets(out, &report.budgets, totals)?;
    let short = report.budgets.group_shortages(totals);
    for line in group_budgets::lines(&short, report.budgets.groups_are_known()) {
        writeln!(out, "{line}")?;
    }
    balance(out, report.balance, report.budgets.min_balance, totals.credits)
}

/// What is still to be spent, and what is not counted in it.
fn sums(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let Totals { counts, credits, .. } = totals;
    let mut parts = vec![format!("{} new {}", counts.new, if counts.new == 1 { "job" } else { "jobs" })];
    for (count, what) in
        [(counts.changed, "changed"), (counts.waiting, "waiting"), (counts.invalid, "not valid")]
    {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    writeln!(out, "total: {credits} for {}", parts.join(", "))?;
    if counts.running > 0 {
        writeln!(
            out,
            "running: {}, with {} held or charged",
            counted(counts.running, "job"),
            totals.running
        )?;
    }
    if counts.in_doubt > 0 {
        let (count, held) = (counted(counts.in_doubt, "job"), totals.in_doubt);
        writeln!(out, "in doubt: {count}, with {held} held until callsheet resolve JOB records the charge")?;
    }
    if counts.failed > 0 {
        let failed =
            totals.batches.iter().filter(|(_, batch)| batch.failed > 0).map(|(name, _)| name.as_str());
        let name = failed.clone().next().filter(|_| failed.count() == 1).unwrap_or("BATCH");
        writeln!(out, "{}", failed_line(name, totals))?;
    }
    if counts.done > 0 {
        writeln!(out, "done: {}, no further cost", counted(counts.done, "job"))?;
    }
    Ok(())
}

/// How many jobs failed, what a retry of those would cost that it queues again, and how the others are explained.
fn failed_line(batch: &str, totals: &Totals) -> String {
    let Totals { counts, retry, failed_for_good, .. } = totals;
    let count = counted(counts.failed, "job");
    match failed_for_good {
        0 => format!("failed: {count}; callsheet retry {batch} would cost {retry}"),
        all if *all == counts.failed => format!(
            "failed: {count}; callsheet retry {batch} would queue none again as they are; to see what helps: callsheet \
             explain JOB"
        ),
        some => format!(
            "failed: {count}; callsheet retry {batch} would cost {retry} and not queue {some} of them again as they are; \
             to see what helps: callsheet explain JOB"
        ),
    }
}

fn groups(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let headings = ["batch", "kind", "model", "new", "changed", "waiting", "other", "credits"];
    let mut table = table::with_headings(headings);
    for ((batch, what), group) in &totals.groups {
        let kind = what.as_ref().map_or("-", |(kind, _)| kind.name());
        let model = what.as_ref().and_then(|(_, model)| model.as_deref()).unwrap_or("-");
        table.add_row([
            batch.as_ref().map_or("-", |batch| batch.as_str()).to_owned(),
            kind.to_owned(),
            printable(model),
            group.counts.new.to_string(),
            group.counts.changed.to_string(),
            group.counts.waiting.to_string(),
            (group.counts.known() - group.counts.waiting).to_string(),
            group.credits.0.to_string(),
        ]);
    }
    print(out, table, &[3, 4, 5, 6, 7])
}

fn allowance(out: &mut impl Write, plan: AccountPlan, waivable: Credits) -> io::Result<()> {
    if waivable.is_zero() {
        return Ok(());
    }
    let whose = match plan {
        AccountPlan::Unknown => "an Ultra plan's",
        AccountPlan::Pro => "the Pro plan's",
        AccountPlan::None | AccountPlan::Ultra => "the Ultra plan's",
    };
    writeln!(
        out,
        "allowance: {whose} daily allowance could cover up to {waivable} of it; how much of it is left is unknown"
    )
}

fn budgets(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    for (name, batch) in &totals.batches {
        let Some(budget) = batch.budget else { continue };
        let short = (batch.committed + batch.credits).saturating_sub(budget);
        let earlier = match batch.committed.0 {
            0 => String::new(),
            committed => format!(", of which {committed} are spent or held"),
        };
        let end = match short {
            // What is spent may be more than a budget that was lowered afterwards.
            _ if batch.credits.is_zero() && !short.is_zero() => "nothing more is to be spent".to_owned(),
            Credits(0) => "enough".to_owned(),
            Credits(short) => format!("{short} short, so jobs will wait for a larger budget"),
        };
        writeln!(out, "budget: {name} may spend {budget}{earlier}: {end}")?;
    }
    Ok(())
}

/// What the budgets of the whole state are short of.
fn account_budgets(out: &mut impl Write, budgets: &Budgets, totals: &Totals) -> io::Result<()> {
    let known = if budgets.are_known() { "are left" } else { "at most are left" };
    if let Some(short) = budgets.total_shortage(totals) {
        let (limit, left, missing) = (short.limit_credits.0, short.left_credits.0, short.missing().0);
        writeln!(
            out,
            "budget: all batches may spend {limit} in total, {left} {known}: {missing} short, so jobs will wait for a \
             larger limit (budget.total)"
        )?;
    }
    match (budgets.per_day, budgets.day_shortage(totals)) {
        (Some(limit), _) if totals.dearest > limit => writeln!(
            out,
            "budget: a job costs {}, more than {} a day: it will wait for a larger limit (budget.per_day)",
            totals.dearest, limit.0
        ),
        (_, Some(short)) => writeln!(
            out,
            "budget: all batches may spend {} a day, {} {known} today: {} short, so jobs will wait for the next UTC day \
             (budget.per_day)",
            short.limit_credits.0,
            short.left_credits.0,
            short.missing().0
        ),
        (_, None) => Ok(()),
    }
}

/// The balance, less what must stay on the account.
fn balance(
    out: &mut impl Write,
    balance: Option<Credits>,
    least: Option<Credits>,
    price: Credits,
) -> io::Result<()> {
    let Some(balance) = balance else { return writeln!(out, "balance: not known") };
    let stays = match least {
        Some(least) => format!(", of which {} must stay (budget.min_balance)", least.0),
        None => String::new(),
    };
    match (price + least.unwrap_or_default()).saturating_sub(balance) {
        Credits(0) => writeln!(out, "balance: {balance}{stays}: enough"),
        Credits(short) => writeln!(out, "balance: {balance}{stays}: {short} short"),
    }
}

/// Prints a table, its numbers to the right.
fn print(out: &mut impl Write, table: Table, numbers: &[usize]) -> io::Result<()> {
    table::print(out, &table.numbers(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_said_to_do_what_it_does() {
        let said = |failed, failed_for_good, retry| {
            let mut totals = Totals::default();
            (totals.counts.failed, totals.failed_for_good) = (failed, failed_for_good);
            totals.retry = Credits(retry);
            failed_line("birds", &totals)
        };
        assert_eq!(said(2, 0, 16), "failed: 2 jobs; callsheet retry birds would cost 16 credits");
        assert_eq!(
            said(1, 1, 0),
            "failed: 1 job; callsheet retry birds would queue none again as they are; to see what helps: callsheet explain \
             JOB"
        );
        assert_eq!(
            said(3, 1, 16),
            "failed: 3 jobs; callsheet retry birds would cost 16 credits and not queue 1 of them again as they are; to see \
             what helps: callsheet explain JOB"
        );
    }
}
