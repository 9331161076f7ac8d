//! Whether another attempt would help, and how long to wait before the next try of anything.

use serde::{Deserialize, Serialize};

use crate::domain::time::Millis;

/// What a failed task's error code says about another attempt under a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prospect {
    /// The same request may succeed the next time.
    MayHelp,
    /// The same request would fail again (money rule 8).
    Hopeless,
}

/// Reads a task's `errorCode` (the list under Task object). A code that is not on the list is
/// treated as a passing fault: the policy's number of attempts bounds it.
pub fn prospect(error_code: &str) -> Prospect {
    match error_code {
        "invalid_input" | "content_rejected" | "invalid_request" => Prospect::Hopeless,
        _ => Prospect::MayHelp,
    }
}

/// The longest wait that the service can ask for (`Retry-After`). Whoever asks for longer is mistaken, or has clocks
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
    fn rejected_content_and_invalid_input_are_never_sent_again() {
        for code in ["invalid_input", "content_rejected"] {
            assert_eq!(prospect(code), Prospect::Hopeless, "{code}");
        }
        for code in ["rate_limited", "busy", "provider_unavailable", "generic", "a_new_code"] {
            assert_eq!(prospect(code), Prospect::MayHelp, "{code}");
        }
    }
}
