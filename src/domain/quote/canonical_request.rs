//! The identity of a request: one form for every spelling that the service reads alike.
//!
//! **Frozen.** Idempotency keys are derived from this form, so any change of it buys everything
//! again. It must never depend on catalogs, rules or configuration, and what it yields for a given
//! request must stay the same for ever; golden tests pin it.

use serde_json::{Map, Number, Value};

use super::builtin_model_rules::{IMAGE, SCENES, TEXT, VIDEO};
use super::duration::{plain, seconds};
use super::{request_body, validate};
use crate::domain::request::{Kind, Request};

/// The canonical body of a request: what makes it the same request, not what is sent.
///
/// - prompts and texts are trimmed; nulls and empty lists are left out; numbers without a fraction
///   are integers;
/// - a video's `duration` is one form for `8s`, `8` and 8, its `resolution` and an image's
///   `quality` and `resolution` lose their case, since the service ignores it;
/// - a video's mode and an image's scene are filled in by the document's rule, which needs no
///   catalog;
/// - a music model is left out: the service takes none, so it changes nothing;
/// - Shorts Studio's options are its body, untouched.
///
/// Keys are sorted, at every depth. **This must be stable for ever**: see the module's comment.
pub fn canonical_body(kind: Kind, request: &Request) -> Map<String, Value> {
    if kind == Kind::ShortsStudio {
        return request.options.clone();
    }
    let trimmed = |text: &Option<String>| text.as_deref().map(|text| Value::from(text.trim()));
    let plain = |text: &Option<String>| text.as_deref().map(Value::from);
    let mode = if kind == Kind::Video { Some(video_mode(request).into()) } else { plain(&request.mode) };
    let scene = if kind == Kind::Image { Some(image_scene(request).into()) } else { plain(&request.scene) };
    request_body::body(
        [
            ("model", plain(&request.model).filter(|_| kind != Kind::Music)),
            ("prompt", trimmed(&request.prompt)),
            ("text", trimmed(&request.text)),
            ("voice_id", plain(&request.voice_id)),
            ("mode", mode),
            ("scene", scene),
            ("image_urls", request_body::list(&request.image_urls)),
            ("video_urls", request_body::list(&request.video_urls)),
        ],
        canonical_options(kind, request),
    )
}

/// The mode of a video: given, or by its inputs (POST videos, Default mode).
pub(super) fn video_mode(request: &Request) -> &str {
    match &request.mode {
        Some(mode) => mode,
        None if !request.image_urls.is_empty() => IMAGE,
        None if !request.video_urls.is_empty() => VIDEO,
        None => TEXT,
    }
}

/// The scene of an image: given, or by its inputs (POST images, `scene`).
pub(super) fn image_scene(request: &Request) -> &str {
    let [from_text, from_image] = SCENES;
    match &request.scene {
        Some(scene) => scene,
        None if !request.image_urls.is_empty() => from_image,
        None => from_text,
    }
}

fn canonical_options(kind: Kind, request: &Request) -> Map<String, Value> {
    let mut options = validate::present(&request.options);
    for (name, value) in &mut options {
        *value = canonical_option(kind, name, value.take());
    }
    options
}

pub(super) fn canonical_option(kind: Kind, name: &str, value: Value) -> Value {
    match (kind, name) {
        (Kind::Video, "duration") => match seconds(&value) {
            Some(seconds) => Value::from(format!("{}s", plain(seconds))),
            None => integral(value),
        },
        (Kind::Video, "resolution") | (Kind::Image, "resolution" | "quality") => folded(value),
        _ => integral(value),
    }
}

fn folded(value: Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.to_ascii_lowercase()),
        other => integral(other),
    }
}

/// Numbers without a fraction become integers, at every depth, where a float holds them exactly.
fn integral(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(whole(&number).unwrap_or(number)),
        Value::Array(items) => items.into_iter().map(integral).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, integral(value))).collect())
        }
        other => other,
    }
}

fn whole(number: &Number) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    if float.fract() != 0.0 || float.abs() > EXACT {
        return None;
    }
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}
