//! Sound effects: two ranges (POST /api/v1/sound-effects).

use serde_json::Value;

use crate::domain::diagnostic::Diagnostics;

use super::sound_effect_price::price;
use super::validate::number_within;
use super::{PricedBody, QuoteContext, request_body, validate};

/// The shortest and the longest sound effect, in seconds.
pub(super) const SECONDS: (f64, f64) = (0.5, 22.0);

/// Validates and prices a sound effect.
pub(super) fn draft(basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) -> PricedBody {
    let prompt = validate::prompt("prompt", basis.request.prompt.as_deref(), basis.rules, diagnostics);
    let options = validate::present(&basis.request.options);
    number_within(&options, "duration_seconds", SECONDS, diagnostics);
    number_within(&options, "prompt_influence", (0.0, 1.0), diagnostics);
    let body = request_body::body([("prompt", Some(Value::from(prompt)))], options);
    PricedBody::new(None, body, price())
}
