//! A pilot: some rows of a manifest are done first, and the rest waits until a person continues.
//!
//! All rows are accepted under their final keys, so that nothing is bought twice by going on, and nothing at all by not.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::ids::Fingerprint;

/// Which of the new rows of a manifest are done first. The rows that these take outputs of are done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PilotRows {
    /// So many from the top.
    First(NonZeroU32),
    /// So many, drawn by their identity: the same ones every time.
    Random(NonZeroU32),
    /// The first row of each entry of `jobs`, of which a matrix makes many.
    Entries,
    /// The first row of each combination of values of a matrix.
    Cells,
}

impl PilotRows {
    /// Whether it chooses by a matrix. Of rows without one each would be chosen, or none.
    pub fn needs_matrix(self) -> bool {
        matches!(self, PilotRows::Entries | PilotRows::Cells)
    }
}

/// The text names no rows of a pilot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "found {0:?}, expected a number of rows, random:N, or for a matrix cells (one row of each combination) or entries \
     (one row of each entry of jobs)"
)]
pub struct BadPilotRows(String);

impl FromStr for PilotRows {
    type Err = BadPilotRows;
    fn from_str(text: &str) -> Result<PilotRows, BadPilotRows> {
        let number = |digits: &str| digits.parse().map_err(|_| BadPilotRows(text.to_owned()));
        match text.split_once(':') {
            None if text == "entries" => Ok(PilotRows::Entries),
            None if text == "cells" => Ok(PilotRows::Cells),
            None => number(text).map(PilotRows::First),
            Some(("random", digits)) => number(digits).map(PilotRows::Random),
            Some(_) => Err(BadPilotRows(text.to_owned())),
        }
    }
}

impl TryFrom<String> for PilotRows {
    type Error = BadPilotRows;
    fn try_from(text: String) -> Result<PilotRows, BadPilotRows> {
        text.parse()
    }
}

impl From<PilotRows> for String {
    fn from(rows: PilotRows) -> String {
        rows.to_string()
    }
}

impl fmt::Display for PilotRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PilotRows::First(rows) => write!(f, "{rows}"),
            PilotRows::Random(rows) => write!(f, "random:{rows}"),
            PilotRows::Entries => f.write_str("entries"),
            PilotRows::Cells => f.write_str("cells"),
        }
    }
}

/// A pilot in numbers: what is done first, and what waits until a person continues.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pilot {
    /// Jobs that are done first.
    pub jobs: u32,
    /// What they are planned to cost.
    pub planned_credits: Credits,
    /// Jobs that wait.
    pub rest_jobs: u32,
    /// What they would cost.
    pub rest_credits: Credits,
}

impl Pilot {
    /// Counts the new jobs of a row.
    pub fn count(&mut self, is_first: bool, jobs: u32, credits: Credits) {
        let (all, sum) = match is_first {
            true => (&mut self.jobs, &mut self.planned_credits),
            false => (&mut self.rest_jobs, &mut self.rest_credits),
        };
        *all = all.saturating_add(jobs);
        *sum = *sum + credits;
    }

    /// A job that waits for its end is wanted again, or is not any more, at such a price.
    pub fn change_waiting(&mut self, is_wanted: bool, credits: Credits) {
        match is_wanted {
            true => self.count(false, 1, credits),
            false => {
                self.rest_jobs = self.rest_jobs.saturating_sub(1);
                self.rest_credits = self.rest_credits.saturating_sub(credits);
            }
        }
    }

    /// All that waits is dropped.
    #[must_use]
    pub fn without_rest(self) -> Pilot {
        Pilot { rest_jobs: 0, rest_credits: Credits::ZERO, ..self }
    }

    /// All that waits is dropped but so many jobs, which cost no more than all of it.
    #[must_use]
    pub fn without_rest_beyond(self, kept: u32) -> Pilot {
        match self.rest_jobs.min(kept) {
            0 => self.without_rest(),
            rest_jobs => Pilot { rest_jobs, ..self },
        }
    }

    /// With no more waiting than waited before and came since: `jobs`, for so many credits.
    #[must_use]
    pub fn at_most(self, before: Pilot, jobs: u32, credits: Credits) -> Pilot {
        Pilot {
            rest_jobs: self.rest_jobs.min(before.rest_jobs.saturating_add(jobs)),
            rest_credits: self.rest_credits.min(before.rest_credits + credits),
            ..self
        }
    }
}

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// Its line of the manifest; rows that a matrix makes of one entry of `jobs` have the same one.
    pub line: u64,
    /// Which combination of a matrix it was made for first.
    pub cell: Option<u64>,
}

/// Chooses the rows of a pilot, from all new rows of a manifest in their order.
///
/// It keeps no row in memory but 16 bytes of each that is chosen, and of each with references whose outputs it takes.
#[derive(Debug)]
pub struct PilotChooser {
    rows: PilotRows,
    chosen: HashSet<Fingerprint>,
    /// The least identities, the greatest of them first.
    drawn: BinaryHeap<[u8; 16]>,
    /// Entries of `jobs` that have a row, by their lines, or combinations of the matrix, by their numbers.
    groups: BTreeSet<u64>,
    /// Whose outputs a row takes.
    parents: HashMap<Fingerprint, Vec<Fingerprint>>,
}

impl PilotChooser {
    /// One that has seen no row.
    pub fn new(rows: PilotRows) -> PilotChooser {
        PilotChooser {
            rows,
            chosen: HashSet::new(),
            drawn: BinaryHeap::new(),
            groups: BTreeSet::new(),
            parents: HashMap::new(),
        }
    }

    /// Looks at the next row that is valid, which takes outputs of `parents`. A row all of whose jobs the batch has already is
    /// not new, and is not chosen.
    pub fn look_at(&mut self, row: Fingerprint, place: RowPlace, is_new: bool, parents: Vec<Fingerprint>) {
        if !parents.is_empty() {
            self.parents.insert(row, parents);
        }
        if !is_new {
            return;
        }
        match self.rows {
            PilotRows::First(most) => {
                if self.chosen.len() < most.get() as usize {
                    self.chosen.insert(row);
                }
            }
            PilotRows::Random(most) => {
                self.drawn.push(row.0);
                if self.drawn.len() > most.get() as usize {
                    self.drawn.pop();
                }
            }
            PilotRows::Entries => {
                if self.groups.insert(place.line) {
                    self.chosen.insert(row);
                }
            }
            PilotRows::Cells => {
                if place.cell.is_some_and(|cell| self.groups.insert(cell)) {
                    self.chosen.insert(row);
                }
            }
        }
    }

    /// The rows that are done first: those that were chosen, and all whose outputs they take.
    pub fn finish(mut self) -> HashSet<Fingerprint> {
        let mut next: Vec<Fingerprint> = self.drawn.into_iter().map(Fingerprint).collect();
        next.extend(self.chosen);
        next.sort_unstable_by_key(|row| Reverse(row.0));
        let mut rows = HashSet::new();
        while let Some(row) = next.pop() {
            if rows.insert(row) {
                next.extend(self.parents.remove(&row).into_iter().flatten());
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u8) -> Fingerprint {
        Fingerprint([n; 16])
    }

    fn chosen(rows: &str, seen: &[(u8, u64, bool, &[u8])]) -> Vec<u8> {
        let mut chooser = PilotChooser::new(rows.parse().unwrap());
        for (n, line, is_new, parents) in seen {
            let place = RowPlace { line: *line, cell: Some(u64::from(*n) / 2) };
            chooser.look_at(row(*n), place, *is_new, parents.iter().copied().map(row).collect());
        }
        let mut found: Vec<u8> = chooser.finish().iter().map(|row| row.0[0]).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn the_first_new_rows_are_chosen_and_those_whose_outputs_they_take() {
        let rows: [(u8, u64, bool, &[u8]); 5] = [
            (1, 2, false, &[]),
            (2, 3, true, &[5]),
            (3, 4, true, &[]),
            (4, 5, true, &[]),
            (5, 6, true, &[4]),
        ];
        assert_eq!(chosen("1", &rows), [2, 4, 5]);
        assert_eq!(chosen("2", &rows), [2, 3, 4, 5]);
        assert_eq!(chosen("9", &rows), [2, 3, 4, 5], "the first is not new");
    }

    #[test]
    fn random_rows_are_the_same_ones_in_any_order_and_entries_give_one_each() {
        let rows: [(u8, u64, bool, &[u8]); 4] =
            [(9, 4, true, &[]), (1, 4, true, &[]), (7, 5, true, &[]), (3, 5, true, &[])];
        let turned: Vec<_> = rows.iter().rev().copied().collect();
        assert_eq!(chosen("random:2", &rows), [1, 3]);
        assert_eq!(chosen("random:2", &turned), [1, 3]);
        assert_eq!(chosen("entries", &rows), [7, 9]);
        let rows: [(u8, u64, bool, &[u8]); 5] = [
            (2, 4, true, &[]),
            (3, 5, true, &[2]),
            (4, 4, false, &[]),
            (5, 5, true, &[4]),
            (6, 4, true, &[]),
        ];
        assert_eq!(chosen("cells", &rows), [2, 4, 5, 6], "one of each pair, and whose outputs it takes");
    }

    #[test]
    fn a_pilot_is_written_as_it_is_read() {
        for text in ["3", "random:20", "entries", "cells"] {
            assert_eq!(text.parse::<PilotRows>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "random", "random:0", "each:3", "all"] {
            let error = text.parse::<PilotRows>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("found {text:?}, expected a number of rows")), "{error}");
        }
    }
}
