//! A job's history, kept short: what is forgotten never changes what the movements that stay add up to.

use thin_vec::ThinVec;

use crate::domain::credits::Credits;
use crate::domain::ids::AttemptNo;
use crate::domain::job::{HISTORY_MAX_LINES, HistoryLine, Job, State};
use crate::domain::ledger::{Movement, Totals};
use crate::domain::time::Timestamp;

/// How the line begins that says that a download was given up.
pub(super) const DOWNLOAD_GIVEN_UP: &str = "download given up";

impl Job {
    /// Whether the last that happened to it, at this time or later, is that its outputs were to be downloaded again, and it
    /// has succeeded with those that it had.
    pub fn gave_up_download_since(&self, since: Timestamp) -> bool {
        let has_given_up = |line: &HistoryLine| line.at >= since && line.what.starts_with(DOWNLOAD_GIVEN_UP);
        matches!(self.state(), State::Succeeded { .. }) && self.history().last().is_some_and(has_given_up)
    }
}

/// Adds a line, and forgets the oldest ones where there are too many.
pub(super) fn push(history: &mut ThinVec<HistoryLine>, line: HistoryLine) {
    if history.len() >= HISTORY_MAX_LINES {
        forget_oldest(history);
    }
    history.push(line);
}

/// Makes room for a line. What moved and what it came to go together: the movements that stay still add
/// up to the books.
fn forget_oldest(history: &mut ThinVec<HistoryLine>) {
    let mut totals = Totals::default();
    let is_settled = |line: &HistoryLine| {
        let fits = line.movement.is_none_or(|movement| totals.apply(movement).is_ok());
        fits && totals.committed().is_zero() && totals.waived.is_zero()
    };
    if let Some(settled) = history.iter().position(is_settled) {
        history.drain(..=settled);
    } else if let Some(words) = history.iter().position(|line| line.movement.is_none()) {
        history.remove(words);
    } else {
        merge_corrections(history);
    }
}

/// Of an open charge that was corrected again and again, the first two corrections become one. Charges of
/// different attempts have nothing to do with each other.
fn merge_corrections(history: &mut ThinVec<HistoryLine>) {
    let corrections: Vec<(usize, AttemptNo, Credits, Credits)> = (history.iter().enumerate())
        .filter_map(|(at, line)| match line.movement {
            Some(Movement::Correct { from, to }) => Some((at, line.attempt, from, to)),
            _ => None,
        })
        .collect();
    let two = corrections.iter().enumerate().find_map(|(index, first)| {
        let second = corrections[index + 1..].iter().find(|second| second.1 == first.1)?;
        Some((*first, *second))
    });
    if let Some(((first, _, from, _), (second, _, _, to))) = two {
        history[second].movement = Some(Movement::Correct { from, to });
        history.remove(first);
    }
    // Otherwise it grows: there are no more movements of other kinds than a few for each attempt.
}
