//! A plan as a person reads it: the rows, or the dearest of many, then tables and sums.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table};

use crate::cli::plan::entry::{Entry, Verdict};
use crate::cli::plan::totals::Totals;
use crate::cli::plan::{Sheet, shown};
use crate::cli::{printable, table};
use crate::domain::credits::Credits;
use crate::domain::quote::AccountPlan;

/// Up to so many rows are all listed.
const LISTED_MAX: usize = 40;
/// Of more rows, so many of the dearest are.
const DEAREST: usize = 10;

/// A row of the listing.
#[derive(Debug)]
struct Line {
    credits: Credits,
    cells: [String; 5],
}

impl Line {
    fn of(entry: &Entry<'_>) -> Line {
        let price = entry.order.map(|order| match (order.price, order.hold()) {
            (Some(price), _) => price.0.to_string(),
            (None, Some(most)) => format!("up to {}", most.0),
            (None, None) => "-".to_owned(),
        });
        let why = match (entry.order, entry.problems) {
            (Some(order), _) => order.formula.clone(),
            (None, []) => "accepted earlier".to_owned(),
            (None, [first, rest @ ..]) => {
                let more =
                    if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
                let field = first.field.as_ref().map_or(String::new(), |field| format!("{field}: "));
                format!("{field}{}{more}", first.message)
            }
        };
        let credits = if entry.verdict == Verdict::New { entry.hold() } else { Credits::ZERO };
        let place = format!("{}:{}", shown(entry.file), entry.line);
        let verdict = entry.verdict.name().to_owned();
        let cells = [place, entry.name().to_owned(), verdict, price.unwrap_or_else(|| "-".to_owned()), why];
        Line { credits, cells: cells.map(|cell| printable(&cell)) }
    }
}

/// Lists rows as they come: all of them, or as many as a person reads.
pub(super) struct Rows {
    all: bool,
    seen: usize,
    first: Vec<Line>,
    /// The dearest so far, dearest first.
    dearest: Vec<Line>,
}

impl Rows {
    pub(super) fn new(all: bool) -> Rows {
        Rows { all, seen: 0, first: Vec::new(), dearest: Vec::new() }
    }

    pub(super) fn entry(&mut self, out: &mut impl Write, entry: &Entry<'_>) -> io::Result<()> {
        self.seen += 1;
        if self.all {
            let [place, job, verdict, credits, why] = Line::of(entry).cells;
            return writeln!(out, "{place}  {job}  {verdict}  {credits}  {why}");
        }
        if self.first.len() < LISTED_MAX {
            self.first.push(Line::of(entry));
        }
        let least = self.dearest.last().map_or(Credits::ZERO, |line| line.credits);
        if entry.verdict == Verdict::New && (self.dearest.len() < DEAREST || entry.hold() > least) {
            let line = Line::of(entry);
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
            (self.dearest, Some(format!("the dearest of {of} rows; --rows lists them all")))
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
pub(super) fn totals(out: &mut impl Write, sheet: &Sheet, totals: &Totals) -> io::Result<()> {
    if !totals.groups.is_empty() {
        groups(out, totals)?;
        writeln!(out)?;
    }
    let Totals { new, have, invalid, credits, .. } = totals;
    let mut parts = vec![format!("{new} new {}", if *new == 1 { "job" } else { "jobs" })];
    if *have > 0 {
        parts.push(format!("{have} already there, which cost nothing"));
    }
    if *invalid > 0 {
        parts.push(format!("{invalid} not valid"));
    }
    writeln!(out, "total: {credits} for {}", parts.join(", "))?;
    if totals.unpriced.0 > 0 {
        let (jobs, most) = totals.unpriced;
        writeln!(out, "unpriced: {jobs} of them have no price; their rows allow up to {most}")?;
    }
    for judgement in sheet.judgements.iter().filter(|judgement| judgement.is_refused()) {
        let file = printable(&shown(&judgement.receipt.file));
        writeln!(out, "refused: nothing of {file} would be taken in until it is mended")?;
    }
    allowance(out, sheet.plan, totals.waivable)?;
    budgets(out, totals)?;
    balance(out, sheet.balance, totals.credits)?;
    out.flush()
}

fn groups(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let mut table = table::with_headings(["batch", "kind", "model", "new", "have", "credits"]);
    for ((batch, what), group) in &totals.groups {
        let kind = what.as_ref().map_or("-", |(kind, _)| kind.name());
        let model = what.as_ref().and_then(|(_, model)| model.as_deref()).unwrap_or("-");
        table.add_row([
            batch.as_ref().map_or("-", |batch| batch.as_str()).to_owned(),
            kind.to_owned(),
            printable(model),
            group.new.to_string(),
            group.have.to_string(),
            group.credits.0.to_string(),
        ]);
    }
    print(out, table, &[3, 4, 5])
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
        "allowance: {whose} daily allowance could cover up to {waivable} of it; what is left of it cannot be asked for"
    )
}

fn budgets(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    for (name, batch) in &totals.batches {
        let Some(budget) = batch.budget else { continue };
        let short = batch.credits.saturating_sub(budget);
        let earlier = if batch.have > 0 { ", from which its earlier jobs are paid, too" } else { "" };
        if short.is_zero() {
            writeln!(out, "budget: {name} may spend {budget}{earlier}: enough")?;
        } else {
            let short = short.0;
            writeln!(
                out,
                "budget: {name} may spend {budget}{earlier}: {short} short, so jobs will wait for a larger one"
            )?;
        }
    }
    Ok(())
}

fn balance(out: &mut impl Write, balance: Option<Credits>, price: Credits) -> io::Result<()> {
    match balance {
        None => writeln!(out, "balance: not known"),
        Some(balance) if balance < price => {
            writeln!(out, "balance: {balance}: {} short", price.saturating_sub(balance).0)
        }
        Some(balance) => writeln!(out, "balance: {balance}: enough"),
    }
}

/// Prints a table without trailing spaces, its numbers to the right.
fn print(out: &mut impl Write, mut table: Table, numbers: &[usize]) -> io::Result<()> {
    for index in numbers {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table::print(out, &table)
}
