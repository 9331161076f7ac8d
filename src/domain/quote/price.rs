//! Prices as the catalog nests them, and how one of them is picked. All arithmetic is decimal: a
//! rate of 2.5 has no float error, and nothing here can overflow unseen.

use std::collections::BTreeMap;
use std::str::FromStr;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
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
    /// This key.
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

/// Follows `pick` down to one price. `pick` is told how deep it is.
pub(super) fn settle<'a, F>(prices: &'a Prices, depth: usize, pick: &F) -> Result<Cell, String>
where
    F: Fn(&'a BTreeMap<String, Prices>, usize) -> Pick<'a>,
{
    match prices {
        Prices::One(price) => Ok(Cell { price: *price, path: Vec::new() }),
        Prices::Unreadable => Err("the catalog's price is not a number".to_owned()),
        Prices::By(map) => match pick(map, depth) {
            Pick::Key(key, inner) => {
                let mut cell = settle(inner, depth + 1, pick)?;
                cell.path.insert(0, key.to_owned());
                Ok(cell)
            }
            Pick::Any(what) => agree(map, depth, what, pick),
            Pick::Nothing(why) => Err(why),
        },
    }
}

/// The price that all keys share, if they do.
fn agree<'a, F>(
    map: &'a BTreeMap<String, Prices>,
    depth: usize,
    what: &'static str,
    pick: &F,
) -> Result<Cell, String>
where
    F: Fn(&'a BTreeMap<String, Prices>, usize) -> Pick<'a>,
{
    let cells: Result<Vec<Cell>, String> = map.values().map(|inner| settle(inner, depth + 1, pick)).collect();
    let mut cells = cells?.into_iter();
    let Some(mut first) = cells.next() else {
        return Err(format!("the catalog lists no price for any {what}"));
    };
    if cells.any(|cell| cell.price != first.price) {
        let keys: Vec<&str> = map.keys().map(String::as_str).collect();
        let keys = keys.join(", ");
        return Err(format!(
            "the price depends on the {what} ({keys}), which nothing in the request decides"
        ));
    }
    let only = map.keys().next().filter(|_| map.len() == 1);
    first.path.insert(0, only.cloned().unwrap_or_else(|| format!("any {what}")));
    Ok(first)
}

/// A price with its formula, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Priced {
    pub(super) credits: Option<Credits>,
    pub(super) formula: String,
}

impl Priced {
    /// No price, and why.
    pub(super) fn unpriced(why: impl Into<String>) -> Priced {
        Priced { credits: None, formula: why.into() }
    }

    /// `price` rounded up to whole credits; `formula` says where it comes from.
    pub(super) fn of(price: Decimal, formula: &str) -> Priced {
        let Some(credits) = round_up(price) else {
            return Priced::unpriced(format!("{formula}: more than can be counted"));
        };
        let rounded = if price.fract().is_zero() { "" } else { ", rounded up to " };
        let whole = if rounded.is_empty() { String::new() } else { credits.0.to_string() };
        Priced { credits: Some(credits), formula: format!("{formula}{}{rounded}{whole}", plain(price)) }
    }

    /// The fixed price of a cell: `768P, 5s: 12`.
    pub(super) fn fixed(cell: &Cell) -> Priced {
        let path = if cell.path.is_empty() { "fixed".to_owned() } else { cell.path.join(", ") };
        Priced::of(cell.price, &format!("{path}: "))
    }

    /// Twice the price, because of audio.
    pub(super) fn doubled(self) -> Priced {
        let Some(credits) = self.credits else { return self };
        match credits.0.checked_mul(2) {
            Some(twice) => Priced {
                credits: Some(Credits(twice)),
                formula: format!("{}, x 2 for audio = {twice}", self.formula),
            },
            None => Priced::unpriced(format!("{}, x 2 for audio: more than can be counted", self.formula)),
        }
    }
}

/// Whole credits, rounded up; `None` for what is negative or too large.
pub(super) fn round_up(price: Decimal) -> Option<Credits> {
    price.ceil().to_u64().map(Credits)
}
