//! The UTC day: where a day's budget and a plan's daily allowance begin and end.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::time::Timestamp;

/// Length of a UTC day, in milliseconds.
pub(in crate::domain) const DAY_MS: i64 = 86_400_000;

/// A calendar day in UTC, counted from 1970-01-01: the span of day budgets and plan allowances.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UtcDay(pub i32);

impl UtcDay {
    /// When it begins.
    pub fn start(self) -> Timestamp {
        Timestamp(i64::from(self.0) * DAY_MS)
    }
}

/// `2026-05-04`
impl fmt::Display for UtcDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.start().to_string().get(.."2026-05-04".len()).unwrap_or_default())
    }
}

impl Timestamp {
    /// The UTC day, counted from 1970-01-01.
    pub fn utc_day(self) -> UtcDay {
        UtcDay(i32::try_from(self.0.div_euclid(DAY_MS)).unwrap_or(i32::MAX))
    }
}
