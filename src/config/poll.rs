//! `[poll]`: how often a task is asked about. How an interval is chosen between the two is `domain::poll_interval`'s.

use serde::Deserialize;

use super::read::Positions;
use super::span::{Span, secs};
use crate::domain::diagnostic::Diagnostic;
use crate::domain::time::Millis;

/// `[poll]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Poll {
    /// Shortest poll interval of a task. The document advises 5 to 10 seconds.
    pub min: Span,
    /// Longest poll interval of a task.
    pub max: Span,
}

/// Shorter poll intervals are against the service's advice (Limits, polling interval).
pub const POLL_ADVISED: Millis = Millis::from_secs(5);

impl Poll {
    /// A warning if the poll interval is shorter than the service advises.
    pub fn hasty(&self) -> Option<String> {
        let min = self.min.0;
        (min < POLL_ADVISED).then(|| {
            let min = humantime::format_duration(std::time::Duration::from_millis(min.0));
            format!("poll.min is {min}, but the service advises polling a task every 5 to 10 seconds")
        })
    }
}

impl Poll {
    /// Values that are out of their range.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        if self.min.0 > self.max.0 {
            problems.push(positions.problem("poll.min", 0, "is longer than poll.max"));
        }
        if self.min.0.0 == 0 {
            problems.push(positions.problem("poll.min", 0, "must be greater than 0"));
        }
        problems
    }
}

impl Default for Poll {
    fn default() -> Poll {
        Poll { min: Span(POLL_ADVISED), max: secs(10) }
    }
}
