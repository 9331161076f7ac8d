//! What is held for a job when it is admitted (money rule 5).
//!
//! The price is the one in force at that moment, not the one that was planned. A job without an exact price is held at
//! the most that the catalog can reach for it, and where nothing bounds it, at what its row allows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::quote::Cost;

/// The code of a job that was not sent because it costs more than it may.
pub const ABOVE_MAX: &str = "above_max_credits";

/// What a hold is taken for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The exact price.
    #[default]
    Price,
    /// The dearest price that the catalog can reach; there is no exact one.
    Bound,
    /// What the row allows; nothing bounds what may be charged.
    MaxCredits,
}

/// The price at which a job is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Set aside for it.
    pub hold: Credits,
    pub basis: Basis,
}

impl Hold {
    /// Held at an exact price.
    pub fn priced(hold: Credits) -> Hold {
        Hold { hold, basis: Basis::Price }
    }

    /// The exact price, where the hold is one.
    pub fn price(self) -> Option<Credits> {
        Some(self.hold).filter(|_| self.basis == Basis::Price)
    }
}

/// Why a job is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldRefusal {
    /// It costs more than it may.
    AboveMax {
        /// The price in force.
        price: Credits,
        /// What it may cost.
        max: Credits,
    },
    /// Only its length leaves its price open, and by that it may cost more than it may.
    MayExceedMax {
        /// The most that it may come to at the prices in force.
        dearest: Credits,
        /// What it may cost.
        max: Credits,
    },
    /// It has no exact price, and what it may cost is not known to suffice.
    NoPrice {
        /// Why there is no price.
        why: String,
        /// What `max_credits` must be at least, where that would let it go.
        needs: Option<Credits>,
    },
}

/// The price at which a job that costs this is admitted, where it may cost `max`. No more is held than any task is charged.
///
/// # Errors
/// [`HoldRefusal`]: it must not be sent at this price.
pub fn hold_for(cost: &Result<Cost, Diagnostic>, max: Option<Credits>) -> Result<Hold, HoldRefusal> {
    let Hold { hold, basis } = uncapped(cost, max)?;
    Ok(Hold { hold: hold.min(Credits::TASK_MAX), basis })
}

fn uncapped(cost: &Result<Cost, Diagnostic>, max: Option<Credits>) -> Result<Hold, HoldRefusal> {
    let cost = match cost {
        Ok(cost) => cost,
        Err(finding) => {
            return Err(HoldRefusal::NoPrice { why: finding.field_message(), needs: None });
        }
    };
    let bound = cost.bound;
    match (cost.price, max) {
        (Some(price), Some(max)) if price > max => Err(HoldRefusal::AboveMax { price, max }),
        (Some(price), _) => Ok(Hold::priced(price)),
        // What only its length leaves open is known at both ends.
        (None, None) if cost.cheapest.is_some() && bound.is_firm => {
            Ok(Hold { hold: bound.dearest, basis: Basis::Bound })
        }
        (None, Some(max)) if max >= bound.dearest && bound.is_firm => {
            Ok(Hold { hold: bound.dearest, basis: Basis::Bound })
        }
        (None, Some(max)) if max >= bound.dearest => Ok(Hold { hold: max, basis: Basis::MaxCredits }),
        (None, Some(max)) if cost.cheapest.is_some() && bound.is_firm => {
            Err(HoldRefusal::MayExceedMax { dearest: bound.dearest, max })
        }
        (None, _) => Err(HoldRefusal::NoPrice {
            why: cost.formula.clone(),
            needs: Some(bound.dearest.max(Credits(1))),
        }),
    }
}

/// `the price is 20 credits now, and at most 10 are allowed`
impl fmt::Display for HoldRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldRefusal::AboveMax { price, max } => {
                write!(f, "the price is {price} now, and its max_credits is {}", max.0)
            }
            HoldRefusal::MayExceedMax { dearest, max } => {
                let max = max.0;
                write!(f, "by its length it may cost up to {dearest} now, and its max_credits is {max}")
            }
            HoldRefusal::NoPrice { why, needs: None } => write!(f, "{why}"),
            HoldRefusal::NoPrice { why, needs: Some(needs) } => {
                write!(f, "the price is not known: {why}; it needs max_credits of {} or more", needs.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quote::Bound;

    fn cost(price: Option<u64>, dearest: u64, is_firm: bool) -> Result<Cost, Diagnostic> {
        let bound = Bound { dearest: Credits(dearest), is_firm };
        let price = price.map(Credits);
        let formula = "why".to_owned();
        Ok(Cost { price, bound, cheapest: None, formula, listed: price, cell: String::new() })
    }

    /// `10 price`, or the reason.
    fn decide(cost: &Result<Cost, Diagnostic>, max: Option<u64>) -> String {
        match hold_for(cost, max.map(Credits)) {
            Ok(Hold { hold, basis }) => format!("{} {basis:?}", hold.0),
            Err(withheld) => withheld.to_string(),
        }
    }

    #[test]
    fn an_exact_price_is_held_unless_it_is_above_the_maximum() {
        let ten = cost(Some(10), 10, true);
        assert_eq!(decide(&ten, None), "10 Price");
        assert_eq!(decide(&ten, Some(10)), "10 Price");
        assert_eq!(decide(&ten, Some(9)), "the price is 10 credits now, and its max_credits is 9");
    }

    #[test]
    fn without_a_price_the_bound_is_held_and_the_maximum_must_reach_it() {
        let bounded = cost(None, 220, true);
        assert_eq!(decide(&bounded, Some(220)), "220 Bound");
        assert_eq!(decide(&bounded, Some(1000)), "220 Bound");
        let short = "the price is not known: why; it needs max_credits of 220 or more";
        assert_eq!(decide(&bounded, Some(219)), short);
        assert_eq!(decide(&bounded, None), short);
    }

    #[test]
    fn what_its_length_may_make_dearer_than_its_maximum_is_told_with_the_most_that_it_may_cost() {
        let by_length = cost(None, 30, true).map(|cost| Cost { cheapest: Some(Credits(2)), ..cost });
        assert_eq!(decide(&by_length, None), "30 Bound");
        assert_eq!(decide(&by_length, Some(30)), "30 Bound");
        let above = "by its length it may cost up to 30 credits now, and its max_credits is 29";
        assert_eq!(decide(&by_length, Some(29)), above);
    }

    #[test]
    fn where_nothing_bounds_it_the_maximum_is_held() {
        assert_eq!(decide(&cost(None, 0, false), Some(7)), "7 MaxCredits");
        assert_eq!(decide(&cost(None, 20, false), Some(30)), "30 MaxCredits");
        let beyond = Credits::TASK_MAX.0 + 1;
        assert_eq!(decide(&cost(None, 20, false), Some(beyond)), "1000000000000 MaxCredits");
        let short = "the price is not known: why; it needs max_credits of 20 or more";
        assert_eq!(decide(&cost(None, 20, false), Some(19)), short);
        let none = "the price is not known: why; it needs max_credits of 1 or more";
        assert_eq!(decide(&cost(None, 0, false), None), none);
    }

    #[test]
    fn what_the_catalog_would_not_take_is_not_admitted_whatever_it_may_cost() {
        let gone = Diagnostic::new("is withdrawn").in_field("model");
        assert_eq!(decide(&Err(gone), Some(1000)), "model: is withdrawn");
    }
}
