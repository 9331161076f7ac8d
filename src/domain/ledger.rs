//! Holds, charges and refunds as movements between a few totals.
//!
//! Every movement comes out of the lifecycle, is committed together with the state change that
//! caused it, and is added to each account that covers the job: its batch, the UTC day of its POST,
//! and the whole state.

use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;

/// One movement of credits. The ledger is the list of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Movement {
    /// Set aside before a POST leaves (money rule 1).
    Hold(Credits),
    /// The task's record showed what was charged: the hold is over.
    Settle {
        /// The hold that ends.
        held: Credits,
        /// `costCredits` of the task.
        spent: Credits,
        /// `waivedCredits` of the task: what a plan allowance covered.
        waived: Credits,
    },
    /// The attempt charged nothing: the hold is given back.
    Release(Credits),
    /// A task that had been charged ended `failed` or `canceled`, so the service gave it all back.
    Refund {
        /// What had been charged.
        spent: Credits,
        /// What an allowance had covered.
        waived: Credits,
    },
    /// A later reading of the task shows another charge than an earlier one.
    Correct {
        /// Charged according to the earlier reading.
        from: Credits,
        /// Charged according to the later one.
        to: Credits,
    },
}

/// A movement in a few words.
impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Movement::Hold(credits) => write!(f, "{} held", credits.0),
            Movement::Settle { held, spent, waived } => {
                write!(f, "{} held became {} charged, {} waived", held.0, spent.0, waived.0)
            }
            Movement::Release(credits) => write!(f, "{} released", credits.0),
            Movement::Refund { spent, waived } => {
                write!(f, "{} refunded, {} waived given back", spent.0, waived.0)
            }
            Movement::Correct { from, to } => write!(f, "charge corrected from {} to {}", from.0, to.0),
        }
    }
}

/// Running totals of one account.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Set aside for POSTs whose charge is not known yet.
    pub held: Credits,
    /// Charged and not refunded.
    pub spent: Credits,
    /// Covered by a plan allowance and not returned.
    pub waived: Credits,
    /// Charged once, and given back.
    pub refunded: Credits,
}

/// A movement would take more out of an account than is in it: the books are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the books do not balance: {movement:?} does not fit {totals:?}")]
pub struct OutOfBalance {
    movement: Movement,
    totals: Totals,
}

impl Add for Totals {
    type Output = Totals;

    fn add(self, more: Totals) -> Totals {
        Totals {
            held: self.held + more.held,
            spent: self.spent + more.spent,
            waived: self.waived + more.waived,
            refunded: self.refunded + more.refunded,
        }
    }
}

impl Totals {
    /// What counts against a budget.
    pub fn committed(self) -> Credits {
        self.held + self.spent
    }

    /// The same with what jobs may have been charged besides that a state which is gone may have sent: admission counts it as
    /// held.
    #[must_use]
    pub fn with_may_be_charged(self, may_be_charged: Credits) -> Totals {
        Totals { held: self.held + may_be_charged, ..self }
    }

    /// Adds a movement.
    pub fn apply(&mut self, movement: Movement) -> Result<(), OutOfBalance> {
        *self = self.after(movement).ok_or(OutOfBalance { movement, totals: *self })?;
        Ok(())
    }

    fn after(self, movement: Movement) -> Option<Totals> {
        let Totals { held, spent, waived, refunded } = self;
        Some(match movement {
            Movement::Hold(credits) => Totals { held: held + credits, ..self },
            Movement::Settle { held: over, spent: cost, waived: covered } => Totals {
                held: held.checked_sub(over)?,
                spent: spent + cost,
                waived: waived + covered,
                refunded,
            },
            Movement::Release(credits) => Totals { held: held.checked_sub(credits)?, ..self },
            Movement::Refund { spent: cost, waived: covered } => Totals {
                held,
                spent: spent.checked_sub(cost)?,
                waived: waived.checked_sub(covered)?,
                refunded: refunded + cost,
            },
            Movement::Correct { from, to } => Totals { spent: spent.checked_sub(from)? + to, ..self },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(held: u64, spent: u64, waived: u64, refunded: u64) -> Totals {
        Totals {
            held: Credits(held),
            spent: Credits(spent),
            waived: Credits(waived),
            refunded: Credits(refunded),
        }
    }

    fn after(movements: &[Movement]) -> Totals {
        let mut totals = Totals::default();
        movements.iter().for_each(|movement| totals.apply(*movement).unwrap());
        totals
    }

    const HOLD: Movement = Movement::Hold(Credits(10));

    #[test]
    fn a_hold_becomes_a_charge() {
        let settle = Movement::Settle { held: Credits(10), spent: Credits(10), waived: Credits(0) };
        assert_eq!(after(&[HOLD]), totals(10, 0, 0, 0));
        assert_eq!(after(&[HOLD, settle]), totals(0, 10, 0, 0));
    }

    #[test]
    fn an_allowance_covers_the_price() {
        let settle = Movement::Settle { held: Credits(10), spent: Credits(0), waived: Credits(10) };
        assert_eq!(after(&[HOLD, settle]), totals(0, 0, 10, 0));
    }

    #[test]
    fn a_failed_task_gives_everything_back() {
        let settle = Movement::Settle { held: Credits(10), spent: Credits(8), waived: Credits(2) };
        let refund = Movement::Refund { spent: Credits(8), waived: Credits(2) };
        assert_eq!(after(&[HOLD, settle, refund]), totals(0, 0, 0, 8));
        assert_eq!(after(&[HOLD, Movement::Release(Credits(10))]), totals(0, 0, 0, 0));
    }

    #[test]
    fn what_was_never_held_cannot_be_released() {
        let mut totals = Totals::default();
        assert!(totals.apply(Movement::Release(Credits(1))).is_err());
        assert_eq!(totals, Totals::default(), "a refused movement changes nothing");
    }
}
