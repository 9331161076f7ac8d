//! Rows of a batch that a later manifest does not have: what a plan, `run` and `submit` say of them.

use crate::cli::invocation::Invocation;
use crate::cli::printable_path;
use crate::domain::absent_rows::{AbsentRow, AbsentRows};
use crate::domain::row_verdict::RowVerdict;
use crate::ingest::receipt::Receipt;

/// A line of it. A command is not broken, so that it can be copied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AbsentLine {
    Text(String),
    Command(String),
}

/// Of manifests that were handed in together: what is said of each. Of several for one batch the rows of the others would
/// be among them, so that nothing is said.
pub(super) fn lines(receipts: &[&Receipt], invocation: &Invocation) -> Vec<AbsentLine> {
    let is_alone =
        |receipt: &&&Receipt| receipts.iter().filter(|one| one.batch == receipt.batch).count() == 1;
    receipts.iter().filter(is_alone).flat_map(|receipt| of_receipt(receipt, invocation)).collect()
}

fn of_receipt(receipt: &Receipt, invocation: &Invocation) -> Vec<AbsentLine> {
    let (Some(AbsentRows { jobs, not_valid, unspent_credits, rows }), Some(batch)) =
        (&receipt.absent, &receipt.batch)
    else {
        return Vec::new();
    };
    let file = printable_path(&receipt.file);
    let (what, stay) =
        if *jobs == 1 { ("1 job", "stays wanted") } else { (&*format!("{jobs} jobs"), "stay wanted") };
    let cost = match unspent_credits.is_zero() {
        true => "at no further cost".to_owned(),
        false => format!("and may still cost {unspent_credits}"),
    };
    let place = match *not_valid {
        0 => format!("not in {file}"),
        all if all == *jobs => format!("not valid in {file}"),
        _ => format!("not in {file}, or not valid there"),
    };
    let mut lines = vec![AbsentLine::Text(format!("{place}: {what} of {batch}, which {stay} {cost}"))];
    for AbsentRow { id, verdict, unspent_credits, not_valid, command } in rows {
        let state = verdict.name().replace('_', " ");
        let state = match (verdict, command) {
            (RowVerdict::Running, _) => format!("{state}, {unspent_credits} held; it cannot be canceled"),
            (RowVerdict::InDoubt, _) => format!("{state}, {unspent_credits} held"),
            (_, Some(_)) => format!("{state}, {unspent_credits}; to drop it:"),
            (_, None) => format!("{state}, no further cost"),
        };
        let why = if *not_valid { "its row is not valid, and what was accepted before is " } else { "" };
        lines.push(AbsentLine::Text(format!("  {batch}/{id}: {why}{state}")));
        lines.extend(command.iter().map(|command| AbsentLine::Command(invocation.with_flags(command))));
    }
    match jobs.saturating_sub(rows.len() as u64) {
        0 => {}
        more => lines.push(AbsentLine::Text(format!("  and {more} more"))),
    }
    lines
}
