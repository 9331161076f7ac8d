//! Durations as people write them.

use serde::{Deserialize, Deserializer};

use super::read::Positions;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::time::Millis;

/// Those of the spans at these keys that are none.
pub(super) fn zero_problems<const N: usize>(
    spans: [(&str, Span); N],
    positions: &Positions<'_>,
) -> Vec<Diagnostic> {
    let zeros = spans.into_iter().filter(|(_, span)| span.0.0 == 0);
    zeros.map(|(key, _)| positions.problem(key, 0, "must be greater than 0")).collect()
}

/// A span of time as people write it: `10s`, `30m`, `24h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Millis);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        Span::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Span {
    pub(super) fn parse(text: &str) -> Result<Span, String> {
        let span = humantime::parse_duration(text).ok();
        let ms = span.and_then(|span| u64::try_from(span.as_millis()).ok());
        let wrong = || format!("\"{text}\" is not a duration; write it as 10s, 30m or 24h");
        ms.map(|ms| Span(Millis(ms))).ok_or_else(wrong)
    }
}

pub(super) const fn secs(secs: u64) -> Span {
    Span(Millis::from_secs(secs))
}
