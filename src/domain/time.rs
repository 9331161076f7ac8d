//! Instants and spans as plain numbers. Reading the clock is `crate::clock`'s work alone.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// Wall-clock time: milliseconds since 1970-01-01T00:00:00Z. Deadlines are kept in it, because they
/// must mean the same after a restart.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Time on a clock that never steps: milliseconds since the process began. Intervals between two
/// polls are measured on it; it is never written down.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

/// A span in milliseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// Both clocks, read at once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// What a calendar says.
    pub wall: Timestamp,
    /// What a stopwatch says.
    pub tick: Tick,
}

impl Millis {
    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Millis {
        Millis(secs * 1000)
    }
}

impl Timestamp {
    /// This instant moved later by `span`.
    pub fn after(self, span: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }

    /// This instant moved earlier by `span`; without one the first of all.
    pub fn before(self, span: Option<Millis>) -> Timestamp {
        let earlier = |span: Millis| self.0.saturating_sub(i64::try_from(span.0).unwrap_or(i64::MAX));
        Timestamp(span.map_or(i64::MIN, earlier))
    }

    /// How much later this is than `earlier`; zero when it is not later.
    pub fn since(self, earlier: Timestamp) -> Millis {
        Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Tick {
    /// This instant moved later by `span`.
    pub fn after(self, span: Millis) -> Tick {
        Tick(self.0.saturating_add(span.0))
    }

    /// How much later this is than `earlier`; zero when it is not later.
    pub fn since(self, earlier: Tick) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// ISO 8601 in UTC with milliseconds, as the service writes its own times.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_millis(self.0) {
            Some(instant) => f.write_str(&instant.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "{} ms since 1970", self.0),
        }
    }
}
