//! The options of a video: checked against the mode's lists, defaulted, priced.

use rust_decimal::Decimal;
use serde_json::Value;

use super::Options;
use crate::catalog::{VideoMode, decimal};
use crate::errors::ApiError;
use crate::pricing::{self, VideoAsk};

/// The fields of a request.
pub(super) struct Ask<'a> {
    pub(super) prompt: &'a str,
    pub(super) images: Vec<&'a str>,
    pub(super) videos: Vec<&'a str>,
    pub(super) options: Options<'a>,
}

/// Who is speaking in an error message.
pub(super) struct Subject<'a> {
    pub(super) model: &'a str,
    pub(super) mode: &'a str,
    /// The model's id in the document, whose rules it has.
    pub(super) rules_of: &'a str,
}

impl Subject<'_> {
    /// A refusal in this name.
    pub(super) fn refuse(&self, what: impl AsRef<str>) -> ApiError {
        ApiError::invalid(format!("{} {} {}", self.model, self.mode, what.as_ref()))
    }
}

/// The values that are priced and sent, in catalog spelling.
pub(super) struct Chosen {
    pub(super) duration: Option<String>,
    pub(super) resolution: Option<String>,
    pub(super) aspect_ratio: Option<String>,
    pub(super) audio: Option<bool>,
    pub(super) source_seconds: Option<Decimal>,
    pub(super) price_credits: u64,
}

/// The options of a request, or the first that does not fit.
pub(super) fn choose(subject: &Subject<'_>, mode: &VideoMode, ask: &Ask<'_>) -> Result<Chosen, ApiError> {
    let resolution = choose_resolution(subject, mode, ask)?;
    let duration = choose_duration(subject, mode, ask, resolution.as_deref())?;
    let aspect_ratio = choose_aspect_ratio(subject, mode, ask)?;
    let audio = ask.options.boolean("audio")?;
    if audio == Some(true) && !mode.audio_toggle {
        return Err(subject.refuse("supports audio false, got true"));
    }
    let source_seconds = ask.options.number("source_video_duration_seconds")?;
    let priced = VideoAsk {
        rules_of: subject.rules_of,
        duration: duration.as_deref(),
        resolution: resolution.as_deref(),
        quality: ask.options.get("quality").and_then(Value::as_str),
        audio: audio == Some(true),
        has_video: !ask.videos.is_empty(),
        source_seconds,
    };
    let price_credits = pricing::video(mode, &priced)
        .map_err(|_| subject.refuse("has no price for these options; pick other catalog values"))?;
    Ok(Chosen { duration, resolution, aspect_ratio, audio, source_seconds, price_credits })
}

fn default_of(mode: &VideoMode, name: &str) -> Option<String> {
    mode.defaults.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// A value the mode has no list for must not be sent.
fn refuse_unlisted(subject: &Subject<'_>, name: &str, list: &[String]) -> Result<(), ApiError> {
    if list.is_empty() { Err(subject.refuse(format!("does not accept {name}"))) } else { Ok(()) }
}

fn choose_resolution(
    subject: &Subject<'_>,
    mode: &VideoMode,
    ask: &Ask<'_>,
) -> Result<Option<String>, ApiError> {
    let Some(asked) = ask.options.text("resolution")? else { return Ok(default_of(mode, "resolution")) };
    refuse_unlisted(subject, "resolution", &mode.resolutions)?;
    let listed = mode.resolutions.iter().find(|listed| listed.eq_ignore_ascii_case(asked));
    let supported = mode.resolutions.join("|");
    listed
        .cloned()
        .map(Some)
        .ok_or_else(|| subject.refuse(format!("supports resolution {supported}, got {asked}")))
}

fn choose_duration(
    subject: &Subject<'_>,
    mode: &VideoMode,
    ask: &Ask<'_>,
    resolution: Option<&str>,
) -> Result<Option<String>, ApiError> {
    let asked = match ask.options.get("duration") {
        None => None,
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        // 8.0 is an integer in JSON as much as 8 is.
        Some(Value::Number(number)) if decimal(number).is_integer() => {
            Some(decimal(number).normalize().to_string())
        }
        Some(_) => return Err(ApiError::invalid("options.duration must be a string or an integer")),
    };
    if asked.is_some() {
        refuse_unlisted(subject, "duration", &mode.durations)?;
    }
    let Some(wanted) = asked.or_else(|| default_of(mode, "duration")) else { return Ok(None) };
    let allowed = resolution
        .and_then(|resolution| pricing::durations_at(mode, resolution))
        .unwrap_or_else(|| mode.durations.iter().map(String::as_str).collect());
    let bare = |text: &str| text.strip_suffix('s').unwrap_or(text).to_owned();
    if let Some(listed) = allowed.iter().find(|listed| bare(listed) == bare(&wanted)) {
        return Ok(Some((*listed).to_owned()));
    }
    let place = resolution.map(|resolution| format!(" at {resolution}")).unwrap_or_default();
    Err(subject.refuse(format!("supports duration {}{place}, got {wanted}", allowed.join("|"))))
}

fn choose_aspect_ratio(
    subject: &Subject<'_>,
    mode: &VideoMode,
    ask: &Ask<'_>,
) -> Result<Option<String>, ApiError> {
    let Some(asked) = ask.options.text("aspect_ratio")? else { return Ok(default_of(mode, "aspect_ratio")) };
    refuse_unlisted(subject, "aspect_ratio", &mode.aspect_ratios)?;
    if mode.aspect_ratios.iter().any(|listed| listed == asked) {
        return Ok(Some(asked.to_owned()));
    }
    Err(subject.refuse(format!("supports aspect_ratio {}, got {asked}", mode.aspect_ratios.join("|"))))
}
