//! How many jobs have ended, and how: of a batch, and of one kind in it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::default_fields::is_default;
use crate::domain::job::State;
use crate::domain::job_state::{JobState, JobStateCounts};

/// How many jobs of a batch have ended, and how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ended {
    /// Every output on disk.
    pub succeeded: u32,
    /// No attempt left.
    pub failed: u32,
    /// Dropped before they were sent, or canceled at the service.
    pub canceled: u32,
    /// Out of time before they were sent.
    pub expired: u32,
    /// Waiting for a person.
    pub in_doubt: u32,
    /// Without outputs, of versions of rows in whose place others are wanted: never sent, or failed, canceled or expired.
    /// They are nobody's failure.
    #[serde(skip_serializing_if = "is_default")]
    pub replaced: u32,
}

/// `2 succeeded, 1 failed`, without what there is none of.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended { succeeded, failed, canceled, expired, in_doubt, replaced } = *self;
        let counts = [
            (succeeded, "succeeded"),
            (failed, "failed"),
            (canceled, "canceled"),
            (expired, "expired"),
            (in_doubt, "in doubt"),
            (replaced, "replaced"),
        ];
        let mut counts = counts.into_iter().filter(|(count, _)| *count > 0).peekable();
        if counts.peek().is_none() {
            return f.write_str("none that has ended");
        }
        for (index, (count, how)) in counts.enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{count} {how}")?;
        }
        Ok(())
    }
}

impl Ended {
    /// By state, with those that have not begun.
    pub fn by_state(self, not_begun: u32) -> JobStateCounts {
        let Ended { succeeded, failed, canceled, expired, in_doubt, replaced } = self;
        enum_map::enum_map! {
            JobState::Queued => not_begun,
            JobState::Submitting | JobState::Running | JobState::Fetching => 0,
            JobState::Succeeded => succeeded,
            JobState::Failed => failed,
            JobState::Canceled => canceled + replaced,
            JobState::Expired => expired,
            JobState::InDoubt => in_doubt,
        }
    }

    /// Those of both.
    #[must_use]
    pub fn plus(self, more: Ended) -> Ended {
        self.with(more, u32::saturating_add)
    }

    /// Those that are not among `some` of them.
    #[must_use]
    pub fn minus(self, some: Ended) -> Ended {
        self.with(some, u32::saturating_sub)
    }

    fn with(self, other: Ended, each: fn(u32, u32) -> u32) -> Ended {
        Ended {
            succeeded: each(self.succeeded, other.succeeded),
            failed: each(self.failed, other.failed),
            canceled: each(self.canceled, other.canceled),
            expired: each(self.expired, other.expired),
            in_doubt: each(self.in_doubt, other.in_doubt),
            replaced: each(self.replaced, other.replaced),
        }
    }

    /// All that have ended.
    pub fn all(self) -> u32 {
        self.succeeded + self.failed + self.canceled + self.expired + self.in_doubt + self.replaced
    }

    /// Counts one less: the job was taken up again.
    pub fn reopen(&mut self, state: &State, is_superseded: bool) {
        // An earlier version of the program counted it as what it was.
        let is_superseded = is_superseded && self.replaced > 0;
        if let Some(count) = self.counter(state, is_superseded) {
            *count = count.saturating_sub(1);
        }
    }

    /// Counts one more; a state that is not final counts nowhere.
    pub fn count(&mut self, state: &State, is_superseded: bool) {
        if let Some(count) = self.counter(state, is_superseded) {
            *count += 1;
        }
    }

    /// Counts a job that has ended as that of a version that is superseded from now on, or is not any more.
    pub fn recount(&mut self, state: &State, is_superseded: bool) {
        let before = self.counter(state, !is_superseded).map(|count| *count);
        if before.is_some_and(|count| count > 0) {
            self.reopen(state, !is_superseded);
            self.count(state, is_superseded);
        }
    }

    /// Those that failed, were canceled or expired with those that were replaced: what a batch whose rows were edited has
    /// by its outcomes, whichever version of the program counted them.
    #[must_use]
    pub fn without_versions(self) -> Ended {
        let Ended { succeeded, failed, canceled, expired, in_doubt, replaced } = self;
        let replaced = replaced + failed + canceled + expired;
        Ended { succeeded, in_doubt, replaced, ..Ended::default() }
    }

    fn counter(&mut self, state: &State, is_superseded: bool) -> Option<&mut u32> {
        Some(match state {
            State::Succeeded { .. } => &mut self.succeeded,
            State::InDoubt { .. } => &mut self.in_doubt,
            state if state.is_replaced() => &mut self.replaced,
            State::Failed { .. } | State::Canceled { .. } | State::Expired if is_superseded => {
                &mut self.replaced
            }
            State::Failed { .. } => &mut self.failed,
            State::Canceled { .. } => &mut self.canceled,
            State::Expired => &mut self.expired,
            State::Queued | State::Submitting { .. } | State::Running { .. } | State::Fetching { .. } => {
                return None;
            }
        })
    }
}

/// The jobs of one kind in a batch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KindCounts {
    /// Accepted so far.
    pub rows: u32,
    /// Ended so far.
    pub ended: Ended,
}
