//! What speech costs: a price by the character (POST /api/v1/speech).

use rust_decimal::Decimal;

use super::catalog::Voices;
use super::duration::plain;
use super::price_formula::Priced;

/// What the document says where the voice catalog does not.
const CHARACTERS_PER_CREDIT: u32 = 20;
const MINIMUM_CREDITS: Decimal = Decimal::ONE;

/// `max(minimum, ceil(characters / characters per credit))`, on the trimmed text.
pub(super) fn price(text: &str, voices: &Voices) -> Priced {
    let per_credit = voices.characters_per_credit.filter(|count| *count > Decimal::ZERO);
    let per_credit = per_credit.unwrap_or_else(|| Decimal::from(CHARACTERS_PER_CREDIT));
    let minimum = voices.minimum_credits.unwrap_or(MINIMUM_CREDITS);
    let characters = Decimal::from(text.chars().count());
    let formula = format!("{characters} characters at {} a credit = ", plain(per_credit));
    match characters.checked_div(per_credit) {
        Some(credits) if credits < minimum => {
            let cell = format!("minimum {}", plain(minimum));
            Priced::of(minimum, &format!("{characters} characters cost the minimum of "), cell)
        }
        Some(credits) => Priced::of(credits, &formula, format!("{} characters a credit", plain(per_credit))),
        None => Priced::unpriced(format!("{formula}more than can be counted")),
    }
}
