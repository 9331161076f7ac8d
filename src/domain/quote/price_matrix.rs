//! Prices as the catalog nests them, and how one of them is picked. All arithmetic is decimal: a
//! rate of 2.5 has no float error, and nothing here can overflow unseen.

use std::collections::BTreeMap;
use std::str::FromStr;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Serialize;
use serde_json::Value;

use super::duration::decimal;
use crate::domain::credits::Credits;

/// A price, or prices by some key (Price matrix shapes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prices {
    /// One number.
    One(Decimal),
    /// By resolution, duration, quality, aspect ratio or audio.
    By(BTreeMap<String, Prices>),
    /// Something that is no price. Kept, because a gap must never look like agreement.
    Unreadable,
}

impl Prices {
    /// Reads a catalog's price value; `None` when there is none.
    pub fn read(value: Option<&Value>) -> Option<Prices> {
        match value? {
            Value::Null => None,
            Value::Object(map) if map.is_empty() => None,
            present => Some(Prices::of(present)),
        }
    }

    fn of(value: &Value) -> Prices {
        let number = match value {
            Value::Object(map) => {
                let inner = map.iter().map(|(key, value)| (key.clone(), Prices::of(value)));
                return Prices::By(inner.collect());
            }
            Value::Number(number) => decimal(number),
            Value::String(text) => Decimal::from_str(text.trim()).ok(),
            _ => None,
        };
        match number {
            Some(number) if number >= Decimal::ZERO => Prices::One(number),
            _ => Prices::Unreadable,
        }
    }

    /// The prices below `key`, case ignored.
    pub(super) fn below(&self, key: &str) -> Option<(&str, &Prices)> {
        match self {
            Prices::By(map) => below(map, key),
            _ => None,
        }
    }
}

/// The entry for `key`: as spelled, or else with case ignored.
pub(super) fn below<'a>(map: &'a BTreeMap<String, Prices>, key: &str) -> Option<(&'a str, &'a Prices)> {
    let exact = map.get_key_value(key);
    exact
        .or_else(|| map.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)))
        .map(|(name, prices)| (name.as_str(), prices))
}

/// How one level of prices is decided.
pub(super) enum Pick<'a> {
    Key(&'a str, &'a Prices),
    /// The request does not decide it; what the keys are is named. All of them must agree.
    Any(&'static str),
    /// There is no price for what was asked, and why.
    Nothing(String),
}

/// One price and the keys that led to it.
pub(super) struct Cell {
    pub(super) price: Decimal,
    pub(super) path: Vec<String>,
}

/// The dearest price among the cells that a request may be charged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    /// That price; 0 where no cell is known.
    pub(super) price: Decimal,
    /// No other price is possible: every cell that comes into question could be read.
    pub(super) is_firm: bool,
}

impl Most {
    /// Nothing is known.
    pub(super) const UNKNOWN: Most = Most { price: Decimal::ZERO, is_firm: false };

    fn exactly(price: Decimal) -> Most {
        Most { price, is_firm: true }
    }

    /// The greater of two that both come into question.
    pub(super) fn or(self, other: Most) -> Most {
        Most { price: self.price.max(other.price), is_firm: self.is_firm && other.is_firm }
    }

    /// So many times as much; not firm where that cannot be counted.
    pub(super) fn times(self, factor: Decimal) -> Most {
        let product = self.price.checked_mul(factor);
        Most { price: product.unwrap_or(self.price), is_firm: self.is_firm && product.is_some() }
    }

    /// The dearest of all cells there are.
    fn of(prices: &Prices) -> Most {
        match prices {
            Prices::One(price) => Most::exactly(*price),
            Prices::Unreadable => Most::UNKNOWN,
            Prices::By(map) => map.values().map(Most::of).reduce(Most::or).unwrap_or(Most::UNKNOWN),
        }
    }
}

/// Why there is no single price, and the most that it may be.
pub(super) struct Undecided {
    pub(super) why: String,
    pub(super) most: Most,
}

/// Follows `pick` down to one price. `pick` is told how deep it is.
pub(super) fn settle<'a, F>(prices: &'a Prices, depth: usize, pick: &F) -> Result<Cell, Undecided>
where
    F: Fn(&'a BTreeMap<String, Prices>, usize) -> Pick<'a>,
{
    match prices {
        Prices::One(price) => Ok(Cell { price: *price, path: Vec::new() }),
        Prices::Unreadable => {
            Err(Undecided { why: "the catalog's price is not a number".to_owned(), most: Most::UNKNOWN })
        }
        Prices::By(map) => match pick(map, depth) {
            Pick::Key(key, inner) => {
                let mut cell = settle(inner, depth + 1, pick)?;
                cell.path.insert(0, key.to_owned());
                Ok(cell)
            }
            Pick::Any(what) => agree(map, depth, what, pick),
            Pick::Nothing(why) => Err(Undecided { why, most: Most::of(prices) }),
        },
    }
}

/// The price that all keys share, if they do.
fn agree<'a, F>(
    map: &'a BTreeMap<String, Prices>,
    depth: usize,
    what: &'static str,
    pick: &F,
) -> Result<Cell, Undecided>
where
    F: Fn(&'a BTreeMap<String, Prices>, usize) -> Pick<'a>,
{
    let cells: Vec<_> = map.values().map(|inner| settle(inner, depth + 1, pick)).collect();
    let each = cells.iter().map(|cell| match cell {
        Ok(cell) => Most::exactly(cell.price),
        Err(undecided) => undecided.most,
    });
    let most = each.reduce(Most::or).unwrap_or(Most::UNKNOWN);
    let cells: Result<Vec<Cell>, Undecided> = cells.into_iter().collect();
    let mut cells = cells.map_err(|undecided| Undecided { most, ..undecided })?.into_iter();
    let Some(mut first) = cells.next() else {
        return Err(Undecided { why: format!("the catalog lists no price for any {what}"), most });
    };
    if cells.any(|cell| cell.price != first.price) {
        let keys: Vec<&str> = map.keys().map(String::as_str).collect();
        let keys = keys.join(", ");
        let why = format!("the price depends on the {what} ({keys}), which the request does not set");
        return Err(Undecided { why, most });
    }
    let only = map.keys().next().filter(|_| map.len() == 1);
    first.path.insert(0, only.cloned().unwrap_or_else(|| format!("any {what}")));
    Ok(first)
}

/// The most that a request without an exact price may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// The dearest price among the cells of the catalog that it may be charged by; 0 where none is known.
    pub dearest: Credits,
    /// The catalog rules out a higher one. Otherwise nothing does.
    pub is_firm: bool,
}

impl Bound {
    /// Nothing is known of what it may cost.
    pub(super) const UNKNOWN: Bound = Bound { dearest: Credits::ZERO, is_firm: false };
}

impl From<Most> for Bound {
    fn from(most: Most) -> Bound {
        match round_up(most.price) {
            Some(dearest) => Bound { dearest, is_firm: most.is_firm },
            None => Bound::UNKNOWN,
        }
    }
}

/// Whole credits, rounded up; `None` for what is negative or too large.
pub(super) fn round_up(price: Decimal) -> Option<Credits> {
    price.ceil().to_u64().map(Credits)
}
