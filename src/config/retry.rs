//! `[retry]`: attempts and delays. How a delay is made of them is `domain::retry_delay`'s.

use serde::Deserialize;

use super::read::Positions;
use super::span::{Span, secs};
use crate::domain::diagnostic::Diagnostic;

/// `[retry]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Attempts (idempotency keys) of a job.
    pub attempts: u32,
    /// Longest first delay after a fault.
    pub base: Span,
    /// Longest delay after a fault, unless the service asks for more.
    pub max: Span,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts: 3, base: secs(2), max: secs(5 * 60) }
    }
}

impl Retry {
    /// Values that are out of their range.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        let none = (self.attempts == 0).then(|| positions.problem("retry.attempts", 0, "must be at least 1"));
        none.into_iter().collect()
    }
}
