//! Sound effects: two ranges and one price (POST /api/v1/sound-effects).

use rust_decimal::Decimal;
use serde_json::Value;

use super::check::number_within;
use super::price::Priced;
use super::{Basis, Diagnostics, Draft, check, wire};

/// What each sound effect costs.
const CREDITS: u32 = 5;

/// Judges and prices a sound effect.
pub(super) fn draft(basis: &Basis<'_>, diagnostics: &mut Diagnostics) -> Draft {
    let prompt = check::prompt("prompt", basis.request.prompt.as_deref(), basis.rules, diagnostics);
    let options = check::present(&basis.request.options);
    number_within(&options, "duration_seconds", (0.5, 22.0), diagnostics);
    number_within(&options, "prompt_influence", (0.0, 1.0), diagnostics);
    let body = wire::body([("prompt", Some(Value::from(prompt)))], options);
    Draft::new(None, body, Priced::of(Decimal::from(CREDITS), "each sound effect: ", "each"))
}
