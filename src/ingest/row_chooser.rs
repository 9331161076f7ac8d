//! The part of a manifest that is handed in: which of its rows are in it.

use std::collections::{BTreeSet, BinaryHeap};
use std::io::Read;

use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::ids::Fingerprint;
use crate::domain::manifest::Manifest;
use crate::domain::manifest::row::{ReadRow, Row};
use crate::domain::row_selection::RowSelection;
use crate::ingest::row_validator::{RowRules, RowValidator};

/// Says row by row, in the order of the manifest, whether it is in the part.
#[derive(Debug)]
pub(super) struct RowChooser<'a> {
    selection: &'a RowSelection,
    /// The rows of a random part, by their place among all.
    drawn: Option<BTreeSet<u64>>,
    /// Rows that were asked about.
    seen: u64,
    /// Rows that are in the part.
    taken: u64,
    /// Rows that are not.
    pub(super) left_out: u64,
    /// Ids of `only` that no row had so far.
    missing: BTreeSet<&'a str>,
}

impl<'a> RowChooser<'a> {
    /// For a part that draws no rows, or those of `drawn`.
    pub(super) fn new(selection: &'a RowSelection, drawn: Option<BTreeSet<u64>>) -> RowChooser<'a> {
        let missing = selection.only.iter().map(String::as_str).collect();
        RowChooser { selection, drawn, seen: 0, taken: 0, left_out: 0, missing }
    }

    /// Whether the next row is in the part. What cannot be read further is told in any case.
    pub(super) fn takes(&mut self, read: &ReadRow, rules: RowRules<'_>) -> bool {
        let ordinal = self.seen;
        self.seen += 1;
        if self.selection.is_whole() || matches!(read, ReadRow::Unreadable(_)) {
            return true;
        }
        let row = row_of(read);
        if let Some(id) = row.and_then(|row| row.id.as_deref()) {
            self.missing.remove(id);
        }
        let is_drawn = self.drawn.as_ref().is_none_or(|drawn| drawn.contains(&ordinal));
        let is_first = self.selection.first.is_none_or(|most| self.taken < u64::from(most));
        let takes = is_drawn && is_first && matches(self.selection, row, rules);
        *(if takes { &mut self.taken } else { &mut self.left_out }) += 1;
        takes
    }

    /// Whether a row without an `id` that comes next may be in the part.
    pub(super) fn may_take_unnamed(&self) -> bool {
        let has_room = self.selection.first.is_none_or(|most| self.taken < u64::from(most));
        let is_drawn = self.drawn.as_ref().is_none_or(|drawn| drawn.range(self.seen..).next().is_some());
        has_room && is_drawn && self.selection.only.is_empty()
    }

    /// The last row is in the part for the sake of another.
    pub(super) fn take_for_another(&mut self) {
        self.left_out -= 1;
    }

    /// What is wrong with the part: ids that no row has, and that it is empty.
    pub(super) fn problems(&self) -> Vec<Diagnostic> {
        let at = Position::line(1);
        let absent =
            self.missing.iter().map(|id| Diagnostic::at(at, format!("no row has the id \"{id}\" (--only)")));
        let mut problems: Vec<Diagnostic> = absent.collect();
        if problems.is_empty() && self.left_out > 0 && self.taken == 0 {
            let message = format!("none of the {} rows is selected", self.left_out);
            problems.push(Diagnostic::at(at, message).hint("check --only and --where"));
        }
        problems
    }
}

fn row_of(read: &ReadRow) -> Option<&Row> {
    match read {
        ReadRow::Good(row) => Some(row),
        ReadRow::Bad(bad) => bad.row.as_deref(),
        ReadRow::Unreadable(_) => None,
    }
}

/// A row that cannot be cut into fields has none that could be compared.
fn matches(selection: &RowSelection, row: Option<&Row>, rules: RowRules<'_>) -> bool {
    match row {
        Some(row) => selection.matches(row, rules.kind_of(row).ok()),
        None => selection.only.is_empty() && selection.filters.is_empty(),
    }
}

/// Draws the rows of a random part: those whose identities are the least. An identity is a hash, so that they are
/// spread over the manifest, and are the same ones every time.
pub(super) fn draw<R: Read>(
    manifest: Manifest<R>,
    selection: &RowSelection,
    validator: &RowValidator<'_>,
) -> Option<BTreeSet<u64>> {
    let most = usize::try_from(selection.random?).unwrap_or(usize::MAX);
    let mut least: BinaryHeap<([u8; 16], u64)> = BinaryHeap::new();
    for (ordinal, read) in (0..).zip(manifest) {
        let ReadRow::Good(mut row) = read else { continue };
        if !matches(selection, Some(&row), validator.rules) {
            continue;
        }
        let Some(Fingerprint(identity)) = validator.identity_for_drawing(&mut row) else { continue };
        least.push((identity, ordinal));
        if least.len() > most {
            least.pop();
        }
    }
    Some(least.into_iter().map(|(_, ordinal)| ordinal).collect())
}
