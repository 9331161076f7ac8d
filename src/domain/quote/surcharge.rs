//! Charges above the catalog's own price, which are believed until the catalog says otherwise.
//!
//! A task's record may show a higher charge than the catalog's price. The next request of the same cell is then priced
//! by that record. A cell is named with the number that the catalog gives it, so a catalog that changes the number
//! names another cell, and what was charged for the old one is no longer applied.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;

/// Most cells that are remembered: a service that charges anything at all must not fill the memory.
const CELLS_MAX: usize = 4_096;

/// What was charged for one price of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surcharge {
    /// The catalog's price.
    pub price: Credits,
    /// The charge, which is above it.
    pub charged: Credits,
}

/// Charges above the catalog's price, by cell.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Surcharges {
    cells: BTreeMap<String, Surcharge>,
}

impl Surcharges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// What was charged for a cell, where that is above its price.
    pub fn of(&self, cell: &str) -> Option<Surcharge> {
        self.cells.get(cell).copied()
    }

    /// Remembers a charge. False: it is no more than is known, or is none above the price.
    pub fn learn(&mut self, cell: &str, price: Credits, charged: Credits) -> bool {
        let new = Surcharge { price, charged };
        let is_known = self.of(cell).is_some_and(|known| known.on(price).is_some_and(|most| most >= charged));
        let has_room = self.cells.len() < CELLS_MAX || self.cells.contains_key(cell);
        if charged <= price || is_known || !has_room {
            return false;
        }
        self.cells.insert(cell.to_owned(), new);
        true
    }

    /// Takes over what others remember.
    pub fn merge(&mut self, others: &Surcharges) {
        for (cell, other) in &others.cells {
            self.learn(cell, other.price, other.charged);
        }
    }
}

impl Surcharge {
    /// A price of the same cell, raised as this one was, rounded up to whole credits; nothing where that cannot be
    /// counted. Where the catalog says that it costs nothing, the charge itself.
    pub fn on(self, price: Credits) -> Option<Credits> {
        if self.price.is_zero() {
            return Some(self.charged.max(price));
        }
        let raised = u128::from(price.0).checked_mul(u128::from(self.charged.0))?;
        let raised = raised.checked_add(u128::from(self.price.0).checked_sub(1)?)?;
        u64::try_from(raised.checked_div(u128::from(self.price.0))?).ok().map(Credits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_raises_every_price_of_its_cell_in_proportion_and_up() {
        let surcharge = Surcharge { price: Credits(10), charged: Credits(13) };
        assert_eq!(surcharge.on(Credits(10)), Some(Credits(13)));
        assert_eq!(surcharge.on(Credits(5)), Some(Credits(7)), "6.5, rounded up");
        assert_eq!(surcharge.on(Credits(u64::MAX)), None);
        let of_nothing = Surcharge { price: Credits(0), charged: Credits(3) };
        assert_eq!(
            (of_nothing.on(Credits(0)), of_nothing.on(Credits(5))),
            (Some(Credits(3)), Some(Credits(5)))
        );
    }

    #[test]
    fn only_what_is_above_all_that_is_known_is_learned() {
        let mut known = Surcharges::default();
        assert!(!known.learn("a", Credits(10), Credits(10)));
        assert!(!known.learn("free", Credits(0), Credits(0)));
        assert!(known.learn("free", Credits(0), Credits(10)));
        assert!(!known.learn("free", Credits(0), Credits(10)));
        assert!(known.learn("a", Credits(10), Credits(20)));
        assert!(!known.learn("a", Credits(5), Credits(10)), "the same in proportion");
        assert!(known.learn("a", Credits(5), Credits(11)));
        assert_eq!(known.of("a"), Some(Surcharge { price: Credits(5), charged: Credits(11) }));
        assert_eq!(known.of("b"), None);
    }
}
