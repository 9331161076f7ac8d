//! Whether another attempt would help, and how long to wait before the next try of anything.

use serde::{Deserialize, Serialize};

use crate::domain::time::Millis;

/// What a failed task's error code says about another attempt under a new key; the stricter, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prospect {
    /// The same request may succeed the next time: as many attempts as the policy allows.
    MayHelp,
    /// One more attempt for this reason, and no more.
    Once,
    /// Somebody stopped it: only a person asks for it again.
    OnlyAsked,
    /// The same request would fail again (money rule 8).
    Hopeless,
}

/// A code that tells why an attempt failed, and what follows. The next attempt always has a new key: the old one keeps
/// returning the task that failed (Idempotency, 4).
struct RetryRule {
    code: &'static str,
    prospect: Prospect,
    /// How many doublings of the backoff its wait begins with.
    doublings: u32,
}

const fn rule(code: &'static str, prospect: Prospect, doublings: u32) -> RetryRule {
    RetryRule { code, prospect, doublings }
}

/// The provider could not use what it was given.
const INVALID_INPUT: &str = "invalid_input";

/// Every `errorCode` (the list under Task object), and the types of the errors that name a task (Errors). A code that
/// is not here is treated as `generic`: the policy's number of attempts bounds it.
const RETRY_RULES: [RetryRule; 12] = [
    rule("generic", Prospect::MayHelp, 0),
    // The balance, or the key, is asked for before anything more is sent.
    rule("insufficient_credits", Prospect::MayHelp, 0),
    rule("auth_required", Prospect::MayHelp, 0),
    rule("rate_limited", Prospect::MayHelp, 3),
    rule("busy", Prospect::MayHelp, 3),
    rule("provider_unavailable", Prospect::MayHelp, 3),
    // 500 with `error.task_id`: "retry once".
    rule("internal_error", Prospect::Once, 3),
    // Something like it is under way at the provider: further keys would only meet that again.
    rule("duplicate_request", Prospect::Once, 4),
    rule("request_cancelled", Prospect::OnlyAsked, 0),
    rule(INVALID_INPUT, Prospect::Hopeless, 0),
    rule("invalid_request", Prospect::Hopeless, 0),
    rule("content_rejected", Prospect::Hopeless, 0),
];

fn row_of(code: &str) -> Option<&'static RetryRule> {
    RETRY_RULES.iter().find(|rule| rule.code == code)
}

/// What a task's `errorCode`, or the type of an error that named it, says about another attempt.
pub fn prospect(code: &str) -> Prospect {
    row_of(code).map_or(Prospect::MayHelp, |rule| rule.prospect)
}

/// Whether what a person asks for again would be refused again. Links to the inputs of a job are found anew for each attempt,
/// so one that could not use its inputs (`invalid_input`) may succeed with others.
pub fn is_hopeless(code: &str, has_inputs: bool) -> bool {
    prospect(code) == Prospect::Hopeless && !(has_inputs && code == INVALID_INPUT)
}

/// How many doublings of the backoff the wait for another attempt begins with, after a failure with this code.
pub fn doublings(code: &str) -> u32 {
    row_of(code).map_or(0, |rule| rule.doublings)
}

/// The longest wait that the service can ask for (`Retry-After`). A longer wait is a mistake, or comes from clocks
/// that disagree.
pub const RETRY_AFTER_MAX: Millis = Millis::from_secs(3_600);

/// Exponential backoff with full jitter: the n-th wait is drawn evenly from nothing to
/// `base * 2^n`, never above `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Upper bound of the first wait.
    pub base: Millis,
    /// Upper bound of any wait that nobody asked for.
    pub max: Millis,
}

impl Backoff {
    /// The wait before try `n` (0: the first repetition). `draw` is evenly distributed over 0..1;
    /// an `at_least` asked for by the service (`Retry-After`) is honoured, up to [`RETRY_AFTER_MAX`].
    pub fn wait(self, n: u32, draw: f64, at_least: Option<Millis>) -> Millis {
        let ceiling = self.base.0.saturating_mul(1u64 << n.min(32)).min(self.max.0);
        // A quarter of the ceiling is the floor, so that an unlucky draw is not a busy loop.
        let floor = ceiling / 4;
        let span = Millis(floor + scale(ceiling - floor, draw));
        span.max(at_least.unwrap_or_default().min(RETRY_AFTER_MAX))
    }
}

/// `draw` (0..1) of `span`, in whole milliseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub fn scale(span: u64, draw: f64) -> u64 {
    (span as f64 * draw.clamp(0.0, 1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { base: Millis(2_000), max: Millis(300_000) };

    #[test]
    fn waits_double_up_to_the_bound() {
        let longest: Vec<u64> = (0..10).map(|n| BACKOFF.wait(n, 1.0, None).0 / 1000).collect();
        assert_eq!(longest, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(BACKOFF.wait(u32::MAX, 1.0, None), Millis(300_000));
    }

    #[test]
    fn waits_are_jittered_and_never_nothing() {
        assert_eq!(BACKOFF.wait(1, 0.0, None), Millis(1_000));
        assert_eq!(BACKOFF.wait(1, 0.5, None), Millis(2_500));
    }

    #[test]
    fn the_service_may_ask_for_more_but_not_for_ever() {
        assert_eq!(BACKOFF.wait(0, 0.0, Some(Millis(30_000))), Millis(30_000));
        assert_eq!(
            BACKOFF.wait(0, 0.0, Some(Millis(1_800_000))),
            Millis(1_800_000),
            "above its own longest wait"
        );
        assert_eq!(BACKOFF.wait(0, 0.0, Some(Millis(u64::MAX))), Millis(3_600_000));
    }

    #[test]
    fn every_code_of_the_document_has_a_row() {
        for (code, expected) in [
            ("insufficient_credits", (Prospect::MayHelp, 0)),
            ("auth_required", (Prospect::MayHelp, 0)),
            ("rate_limited", (Prospect::MayHelp, 3)),
            ("request_cancelled", (Prospect::OnlyAsked, 0)),
            ("provider_unavailable", (Prospect::MayHelp, 3)),
            ("invalid_input", (Prospect::Hopeless, 0)),
            ("content_rejected", (Prospect::Hopeless, 0)),
            ("busy", (Prospect::MayHelp, 3)),
            ("duplicate_request", (Prospect::Once, 4)),
            ("generic", (Prospect::MayHelp, 0)),
            ("internal_error", (Prospect::Once, 3)),
            ("invalid_request", (Prospect::Hopeless, 0)),
            ("a_new_code", (Prospect::MayHelp, 0)),
        ] {
            assert_eq!((prospect(code), doublings(code)), expected, "{code}");
        }
    }
}
