//! A price and the formula that a plan shows for it: `5 x 12/s = 60`.

use rust_decimal::Decimal;

use super::duration::plain;
use super::price_matrix::{Bound, Cell, Undecided, round_up};
use crate::domain::credits::Credits;

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
