//! What a sound effect costs: each the same (POST /api/v1/sound-effects).

use rust_decimal::Decimal;

use super::price_formula::Priced;

const CREDITS: u32 = 5;

/// The price of any sound effect.
pub(super) fn price() -> Priced {
    Priced::of(Decimal::from(CREDITS), "each sound effect: ", "each")
}
