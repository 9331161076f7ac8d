//! Prices as the catalog nests them, and how one of them is picked. All arithmetic is decimal: a
//! rate of 2.5 has no float error, and nothing here can overflow unseen.

use std::collections::BTreeMap;
use std::str::FromStr;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Serialize;
use serde_json::Value;

use super::duration::{decimal, plain};
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

/// A price with its formula, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Priced {
    pub(super) credits: Option<Credits>,
    pub(super) formula: String,
    /// Where there is no price: the most that it may be.
    pub(super) bound: Bound,
    /// Where there is a price: the catalog's number and the keys that led to it, without the amounts of the
    /// request. Requests of the same cell are priced by the same number.
    pub(super) cell: String,
}

impl Priced {
    /// No price, and why; nothing bounds it.
    pub(super) fn unpriced(why: impl Into<String>) -> Priced {
        Priced { credits: None, formula: why.into(), bound: Bound::UNKNOWN, cell: String::new() }
    }

    /// No price, and why, and the most that it may be.
    pub(super) fn at_most(why: impl Into<String>, bound: impl Into<Bound>) -> Priced {
        Priced { bound: bound.into(), ..Priced::unpriced(why) }
    }

    /// What cells leave undecided.
    pub(super) fn undecided(undecided: Undecided) -> Priced {
        Priced::at_most(undecided.why, undecided.most)
    }

    /// `price` rounded up to whole credits; `formula` says where it comes from, `cell` which number of the catalog.
    pub(super) fn of(price: Decimal, formula: &str, cell: impl Into<String>) -> Priced {
        let Some(credits) = round_up(price) else {
            return Priced::unpriced(format!("{formula}: more than can be counted"));
        };
        let rounded = if price.fract().is_zero() { "" } else { ", rounded up to " };
        let whole = if rounded.is_empty() { String::new() } else { credits.0.to_string() };
        Priced {
            credits: Some(credits),
            formula: format!("{formula}{}{rounded}{whole}", plain(price)),
            bound: Bound { dearest: credits, is_firm: true },
            cell: cell.into(),
        }
    }

    /// The fixed price of a cell: `768P, 5s: 12`.
    pub(super) fn fixed(cell: &Cell) -> Priced {
        let path = if cell.path.is_empty() { "fixed".to_owned() } else { cell.path.join(", ") };
        Priced::of(cell.price, &format!("{path}: "), format!("{path}: {}", plain(cell.price)))
    }

    /// So many times the price, because of audio.
    pub(super) fn times(self, factor: Decimal) -> Priced {
        let times = |credits: Credits| Decimal::from(credits.0).checked_mul(factor).and_then(round_up);
        let Some(credits) = self.credits else {
            let bound = match times(self.bound.dearest) {
                Some(dearest) => Bound { dearest, ..self.bound },
                None => Bound { is_firm: false, ..self.bound },
            };
            return Priced { bound, ..self };
        };
        let formula = format!("{}, x {} for audio", self.formula, plain(factor));
        let cell = format!("{}, x {} for audio", self.cell, plain(factor));
        match Decimal::from(credits.0).checked_mul(factor) {
            Some(product) => Priced::of(product, &format!("{formula} = "), cell),
            None => Priced::unpriced(format!("{formula}: more than can be counted")),
        }
    }

    /// No price, because of what is said of audio, which may double it or do anything else.
    pub(super) fn unclear(self, why: &str) -> Priced {
        Priced::at_most(why, Bound { is_firm: false, ..self.twice_bound() })
    }

    fn twice_bound(&self) -> Bound {
        match self.bound.dearest.0.checked_mul(2) {
            Some(twice) => Bound { dearest: Credits(twice), ..self.bound },
            None => Bound { is_firm: false, ..self.bound },
        }
    }
}

/// Whole credits, rounded up; `None` for what is negative or too large.
pub(super) fn round_up(price: Decimal) -> Option<Credits> {
    price.ceil().to_u64().map(Credits)
}
