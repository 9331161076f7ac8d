//! Speech: voices and clamped settings (POST /api/v1/speech).

use serde_json::Value;

use crate::domain::diagnostic::Diagnostics;

use super::catalog::CatalogEntry;
use super::speech_price::price;
use super::validate::{clamped, either, nearest, shorten, text};
use super::{PricedBody, QuoteContext, request_body, validate};

/// Settings that the service moves into their range, unasked.
const CLAMPED: [(&str, (f64, f64)); 3] =
    [("speed", (0.25, 4.0)), ("stability", (0.0, 1.0)), ("similarity_boost", (0.0, 1.0))];

/// What the service makes of a setting that is outside its range.
pub(super) fn clamped_setting(name: &str, value: &Value) -> Option<Value> {
    let (_, (least, most)) = CLAMPED.into_iter().find(|(clamped, _)| *clamped == name)?;
    let number = value.as_f64().filter(|number| !(least..=most).contains(number))?;
    Some(Value::from(number.clamp(least, most)))
}

/// Validates and prices a speech. What is clamped is said, and sent as it was asked.
pub(super) fn draft(basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) -> PricedBody {
    let request = basis.request;
    let spoken = validate::prompt("text", request.text.as_deref(), basis.rules, diagnostics);
    check_voice(basis, diagnostics);
    let options = validate::present(&request.options);
    for (name, range) in CLAMPED {
        clamped(&options, name, range, diagnostics);
    }
    text(&options, "model_id", diagnostics);
    let priced = price(&spoken, &basis.catalog.voices);
    let voice = request.voice_id.as_deref().map(Value::from);
    let body = request_body::body([("text", Some(Value::from(spoken))), ("voice_id", voice)], options);
    PricedBody::new(None, body, priced)
}

/// A voice of the catalog. An empty catalog validates nothing.
fn check_voice(basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) {
    let voices = &basis.catalog.voices.voices;
    let Some(id) = basis.request.voice_id.as_deref() else {
        let message = "is missing; speech needs a voice of the catalog";
        diagnostics.refuse_with("voice_id", message, "`callsheet voices` lists them");
        return;
    };
    if voices.is_empty() || voices.get(id).is_some() {
        return;
    }
    let named = voices.iter().filter(|voice| voice.label().is_some_and(|name| name.eq_ignore_ascii_case(id)));
    let mut near: Vec<&str> = named.map(|voice| voice.id()).collect();
    if near.is_empty() {
        near = nearest(id, voices.iter().map(|voice| voice.id()));
    }
    let message = format!("\"{}\" is not in the voice catalog, which lists {}", shorten(id), voices.len());
    let hint = if near.is_empty() {
        "`callsheet voices` lists them".to_owned()
    } else {
        format!("did you mean {}?", either(&near))
    };
    diagnostics.refuse_with("voice_id", message, hint);
}
