//! Credits: the service's money, always whole.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// A number of credits. Whole and never negative: the service charges integers
/// (`costCredits`, Task object).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Credits(pub u64);

/// No number of credits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found {0:?}, expected a whole number of credits, 0 or more")]
pub struct NotCredits(String);

impl Credits {
    /// No credits.
    pub const ZERO: Credits = Credits(0);
    /// Most credits that one task is believed to cost, and that are held for it: far above any price, and low enough that no
    /// sum of them runs over.
    pub const TASK_MAX: Credits = Credits(1_000_000_000_000);

    /// A number of credits as people type it.
    ///
    /// # Errors
    /// [`NotCredits`]: it is no whole number from 0 to 2^64-1.
    pub fn amount(text: &str) -> Result<u64, NotCredits> {
        text.parse().map_err(|_| NotCredits(text.to_owned()))
    }

    /// Whether this is nothing.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, never below zero.
    pub fn saturating_sub(self, other: Credits) -> Credits {
        Credits(self.0.saturating_sub(other.0))
    }

    /// So many times this, never above `u64::MAX`.
    #[must_use]
    pub fn times(self, count: u32) -> Credits {
        Credits(self.0.saturating_mul(u64::from(count)))
    }

    /// `self - other`, or nothing when `other` is larger.
    pub fn checked_sub(self, other: Credits) -> Option<Credits> {
        self.0.checked_sub(other.0).map(Credits)
    }
}

/// Saturating: a sum that would pass `u64::MAX` stays there, above every budget.
impl Add for Credits {
    type Output = Credits;
    fn add(self, other: Credits) -> Credits {
        Credits(self.0.saturating_add(other.0))
    }
}

impl Sum for Credits {
    fn sum<I: Iterator<Item = Credits>>(items: I) -> Credits {
        items.fold(Credits::ZERO, Add::add)
    }
}

/// `1 credit`, `12 credits`.
impl fmt::Display for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.0 == 1 { "credit" } else { "credits" };
        write!(f, "{} {unit}", self.0)
    }
}
