//! Which fields and options belong to which kind (the field tables under Endpoints).

use serde_json::Value;

use super::model_rules::Rules;
use super::validate;
use super::validate::{either, found};
use crate::domain::diagnostic::{Diagnostic, Diagnostics};
use crate::domain::request::{Kind, Request};

/// The options that the service documents for a kind.
pub fn documented_options(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Video => &["duration", "resolution", "aspect_ratio", "audio", "source_video_duration_seconds"],
        Kind::Image => &["aspect_ratio", "quality", "resolution", "size"],
        Kind::Music => &["duration_seconds", "instrumental", "style", "title", "lyrics"],
        Kind::Speech => &["model_id", "speed", "stability", "similarity_boost"],
        Kind::SoundEffect => &["duration_seconds", "prompt_influence"],
        Kind::ShortsStudio => &[],
    }
}

/// The kinds that document an option.
pub fn kinds_of_option(name: &str) -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(move |kind| documented_options(*kind).contains(&name))
}

/// The kinds whose requests have a field outside `options`.
///
/// The POST for music has no field `model`. A music row may still name one, which tells its kind.
pub fn kinds_of_field(name: &str) -> &'static [Kind] {
    match name {
        "model" => &[Kind::Video, Kind::Image, Kind::Music],
        "prompt" => &[Kind::Video, Kind::Image, Kind::Music, Kind::SoundEffect],
        "text" | "voice_id" => &[Kind::Speech],
        "mode" | "video_urls" => &[Kind::Video],
        "scene" => &[Kind::Image],
        "image_urls" => &[Kind::Video, Kind::Image],
        _ => &[],
    }
}

/// The fields outside `options` that a request gives.
pub(super) fn given(request: &Request) -> impl Iterator<Item = &'static str> {
    let fields = [
        ("model", request.model.is_some()),
        ("prompt", request.prompt.is_some()),
        ("text", request.text.is_some()),
        ("voice_id", request.voice_id.is_some()),
        ("mode", request.mode.is_some()),
        ("scene", request.scene.is_some()),
        ("image_urls", !request.image_urls.is_empty()),
        ("video_urls", !request.video_urls.is_empty()),
    ];
    fields.into_iter().filter(|(_, present)| *present).map(|(name, _)| name)
}

/// Refuses fields of other kinds, and says which options the kind has no use for and which the service may refuse.
pub(super) fn check(kind: Kind, request: &Request, rules: &Rules, diagnostics: &mut Diagnostics) {
    for field in given(request).filter(|field| !kinds_of_field(field).contains(&kind)) {
        let message = format!("is not a field of {kind}{}", owners(kinds_of_field(field).iter().copied()));
        let hint = instead(kind, field).map(str::to_owned);
        diagnostics.push(Diagnostic { hint, ..Diagnostic::new(message).in_field(field) });
    }
    if kind != Kind::ShortsStudio {
        request.options.iter().for_each(|(name, value)| check_option(kind, name, value, diagnostics));
    }
    for (name, value) in &request.options {
        if let Value::String(text) = value {
            validate::prohibited_words(&validate::option(name), text, rules, diagnostics);
        }
    }
}

/// Options that are nobody's, and so near to one of the kind's that this one was meant: what it was to change would
/// not be changed, and the default be paid for.
pub fn misspelt_options(kind: Kind, request: &Request) -> Vec<Diagnostic> {
    let documented = documented_options(kind);
    let given = request.options.iter().filter(|(_, value)| !value.is_null());
    let unknown = given.filter(|(name, _)| kinds_of_option(name).next().is_none() && !renamed(kind, name));
    let meant = unknown.filter_map(|(name, _)| Some((name, misspelt(name, documented)?)));
    let error = |(name, meant): (&String, &str)| {
        Diagnostic::new(format!("is not an option of {kind}; did you mean {meant}?"))
            .in_field(validate::option(name))
            .hint(format!("write {meant}, or give --allow-unknown-options to send it as it is"))
    };
    meant.map(error).collect()
}

/// What a note on an option that no kind documents says of it.
const UNDOCUMENTED: &str = " that the service documents; it is sent as it is, unchecked";

/// Whether a note is on an option that no kind documents: the same for every row that has it.
pub fn is_on_unknown_option(note: &Diagnostic) -> bool {
    note.message.contains(UNDOCUMENTED)
}

/// An option of another kind, or a misspelt one, is forwarded as every unknown one is; the writer
/// should know, since what it was meant to change is not changed.
fn check_option(kind: Kind, name: &str, value: &Value, diagnostics: &mut Diagnostics) {
    let documented = documented_options(kind);
    if value.is_null() || documented.contains(&name) || renamed(kind, name) {
        return;
    }
    let whose = owners(kinds_of_option(name));
    let meant = meant(kind, name).or_else(|| misspelt(name, documented));
    if whose.is_empty() && meant.is_none() {
        // Without the value: rows that each have another one are told of once.
        diagnostics.note(&format!("options.{name}"), format!("is not an option of {kind}{UNDOCUMENTED}"));
        return;
    }
    let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
    let message =
        format!("is not an option of {kind}{whose}; {} is sent as it is, unchecked{meant}", found(value));
    diagnostics.note(&format!("options.{name}"), message);
}

/// What the length is called where the kind calls it otherwise.
fn meant(kind: Kind, name: &str) -> Option<&'static str> {
    match (kind, name) {
        (Kind::Video, "duration_seconds") => Some("duration"),
        (Kind::SoundEffect, "duration") => Some("duration_seconds"),
        _ => None,
    }
}

/// Options that providers know, and that are near to documented ones all the same.
const NO_SLIPS: [&str; 2] = ["seed", "seeds"];

/// The documented option that is a slip of the pen away; case and what stands between words is no difference.
fn misspelt(name: &str, documented: &'static [&'static str]) -> Option<&'static str> {
    let plain = |name: &str| -> String {
        name.chars().filter(|c| !matches!(c, '_' | '-' | ' ' | '.')).flat_map(char::to_lowercase).collect()
    };
    // Longer than any option there is: it is not compared letter by letter.
    if !(4..=64).contains(&name.len()) {
        return None;
    }
    let given = plain(name);
    if NO_SLIPS.contains(&given.as_str()) {
        return None;
    }
    let most = if given.len() <= 5 { 1 } else { 2 };
    let distance = |option: &str| strsim::osa_distance(&plain(option), &given);
    let near = documented.iter().copied().map(|option| (distance(option), option));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, option)| option)
}

/// Options that the service refuses by name: `music` validates them.
fn renamed(kind: Kind, name: &str) -> bool {
    kind == Kind::Music && super::music::RENAMED.contains(&name)
}

fn owners(kinds: impl Iterator<Item = Kind>) -> String {
    let names: Vec<&str> = kinds.map(Kind::name).collect();
    if names.is_empty() { String::new() } else { format!(", but of {}", either(&names)) }
}

/// Where the thing meant may go.
fn instead(kind: Kind, field: &str) -> Option<&'static str> {
    match (kind, field) {
        (Kind::ShortsStudio, _) => Some("the whole body of shorts-studio stands under options"),
        (Kind::Speech, "prompt") => Some("what is said goes into text"),
        (Kind::Speech, "model") => Some("speech chooses its model with options.model_id"),
        (Kind::Video | Kind::Image | Kind::Music | Kind::SoundEffect, "text") => {
            Some("what to make goes into prompt")
        }
        (Kind::Image, "mode") => Some("images call it scene"),
        (Kind::Video, "scene") => Some("videos call it mode"),
        _ => None,
    }
}
