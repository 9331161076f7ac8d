//! By what a report adds up, and from when on.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, NaiveTime};

use crate::domain::time::{Millis, Timestamp};

/// What the groups of a report have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    Batch,
    Kind,
    Model,
    /// The UTC day of a charge or refund, of a hold, or of a job's end.
    Day,
    /// A column `meta.NAME` of the manifest.
    Meta(String),
}

/// The text names nothing that a report is grouped by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found {0:?}, expected batch, kind, model, day or meta.NAME, such as meta.client")]
pub struct BadGroupBy(String);

impl FromStr for GroupBy {
    type Err = BadGroupBy;
    fn from_str(text: &str) -> Result<GroupBy, BadGroupBy> {
        Ok(match text {
            "batch" => GroupBy::Batch,
            "kind" => GroupBy::Kind,
            "model" => GroupBy::Model,
            "day" => GroupBy::Day,
            other => match other.strip_prefix("meta.").filter(|name| !name.is_empty()) {
                Some(name) => GroupBy::Meta(name.to_owned()),
                None => return Err(BadGroupBy(text.to_owned())),
            },
        })
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupBy::Batch => f.write_str("batch"),
            GroupBy::Kind => f.write_str("kind"),
            GroupBy::Model => f.write_str("model"),
            GroupBy::Day => f.write_str("day"),
            GroupBy::Meta(name) => write!(f, "meta.{name}"),
        }
    }
}

/// From when on a report counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    At(Timestamp),
    /// This long ago.
    Ago(Millis),
}

/// The text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found {0:?}, expected a UTC day as 2026-11-01, an instant as 2026-11-01T08:00:00Z, or a span as 7d")]
pub struct BadSince(String);

impl FromStr for Since {
    type Err = BadSince;
    fn from_str(text: &str) -> Result<Since, BadSince> {
        let bad = || BadSince(text.to_owned());
        if let Ok(day) = text.parse::<NaiveDate>() {
            return Ok(Since::At(Timestamp(day.and_time(NaiveTime::MIN).and_utc().timestamp_millis())));
        }
        if let Ok(instant) = DateTime::parse_from_rfc3339(text) {
            return Ok(Since::At(Timestamp(instant.timestamp_millis())));
        }
        let span = humantime::parse_duration(text).map_err(|_| bad())?;
        u64::try_from(span.as_millis()).map(|ms| Since::Ago(Millis(ms))).map_err(|_| bad())
    }
}

impl Since {
    pub fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Since::At(at) => at,
            Since::Ago(span) => Timestamp(now.0.saturating_sub_unsigned(span.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_times() {
        for text in ["batch", "kind", "model", "day", "meta.client", "meta.a.b"] {
            assert_eq!(text.parse::<GroupBy>().unwrap().to_string(), text);
        }
        for wrong in ["client", "meta.", "Kind", ""] {
            assert!(wrong.parse::<GroupBy>().is_err(), "{wrong}");
        }
        let now = Timestamp(10_000_000);
        let since = |text: &str| text.parse::<Since>().map(|since| since.instant(now));
        assert_eq!(since("1970-01-02"), Ok(Timestamp(86_400_000)));
        assert_eq!(since("1970-01-01T01:00:00+01:00"), Ok(Timestamp(0)));
        assert_eq!(since("1h"), Ok(Timestamp(6_400_000)));
        assert!(since("yesterday").unwrap_err().to_string().contains("expected a UTC day"));
    }
}
