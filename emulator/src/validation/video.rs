//! `POST /api/v1/videos`: request format, prohibited-use wording, model, mode, prompt length, inputs, options.

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::Value;

use super::video_options::{Ask, Chosen, Subject, choose};
use super::{
    Body, Order, ProviderRejection, json_number, millis, ratio_of, refuse_prohibited, require_http_urls,
};
use crate::account::{Pool, may_cover_video};
use crate::catalog::{Catalog, InputLimits, VideoMode, VideoModel};
use crate::errors::ApiError;
use crate::pricing;
use crate::tasks::{Kind, Shape};

const MODES: [&str; 5] =
    ["text-to-video", "image-to-video", "video-to-video", "frames-to-video", "reference-to-video"];
/// Absent from the catalog: withdrawn for now.
const UNAVAILABLE: [&str; 2] = ["model-o-2", "model-o-2-pro"];
/// Absent from the catalog: retired.
const RETIRED: &str = "model-k-2-6-motion-control";
/// What a model without `durations` renders.
const FIXED_SECONDS: u64 = 8;

pub(super) fn order(catalog: &Catalog, body: &Body<'_>) -> Result<Order, ApiError> {
    let id = body.required("model")?;
    let ask = Ask {
        prompt: body.required("prompt")?,
        images: body.strings("image_urls")?,
        videos: body.strings("video_urls")?,
        options: body.options()?,
    };
    let mode_asked = body.optional("mode")?;

    refuse_prohibited(ask.prompt)?;
    let model = known_model(catalog, id)?;
    let name = mode_asked.unwrap_or_else(|| default_mode(&ask));
    let Some(mode) = model.modes.get(name).filter(|_| MODES.contains(&name)) else {
        return Err(ApiError::invalid(format!("{id} does not support mode {name}")));
    };
    check_prompt_length(model, ask.prompt)?;
    let subject = Subject { model: id, mode: name, rules_of: catalog.ruled_as(id) };
    check_inputs(&subject, catalog.input_limits(id, name), mode, &ask)?;
    let chosen = choose(&subject, mode, &ask)?;
    Ok(finish(&subject, &ask, chosen))
}

fn known_model<'a>(catalog: &'a Catalog, id: &str) -> Result<&'a VideoModel, ApiError> {
    catalog.video_model(id).ok_or_else(|| {
        ApiError::invalid(if UNAVAILABLE.contains(&id) {
            format!("video model temporarily unavailable: {id}. Please pick a different model.")
        } else if id == RETIRED {
            String::from("This capability is unavailable.")
        } else {
            format!("unsupported video model: {id}")
        })
    })
}

fn default_mode(ask: &Ask<'_>) -> &'static str {
    if !ask.images.is_empty() {
        "image-to-video"
    } else if !ask.videos.is_empty() {
        "video-to-video"
    } else {
        "text-to-video"
    }
}

fn check_prompt_length(model: &VideoModel, prompt: &str) -> Result<(), ApiError> {
    let length = prompt.chars().count();
    match model.max_prompt_length {
        Some(most) if length > most => Err(ApiError::invalid(format!(
            "{} prompt must be {most} characters or fewer, got {length}",
            model.id
        ))),
        _ => Ok(()),
    }
}

fn check_inputs(
    subject: &Subject<'_>,
    limits: InputLimits,
    mode: &VideoMode,
    ask: &Ask<'_>,
) -> Result<(), ApiError> {
    for (field, urls, (least, most)) in
        [("image_urls", &ask.images, limits.images), ("video_urls", &ask.videos, limits.videos)]
    {
        if most == 0 && !urls.is_empty() {
            let supported = supported_inputs(limits);
            return Err(subject.refuse(format!("does not accept {field}; supported inputs: {supported}")));
        }
        if urls.len() < least {
            return Err(subject.refuse(format!("requires {field} (at least {least})")));
        }
        if urls.len() > most {
            return Err(subject.refuse(format!("supports at most {most} {field}, got {}", urls.len())));
        }
        require_http_urls(field, urls)?;
    }
    let seconds = ask.options.number("source_video_duration_seconds")?;
    if seconds.is_some_and(|seconds| seconds <= Decimal::ZERO) {
        return Err(ApiError::invalid("options.source_video_duration_seconds must be a positive number"));
    }
    if !ask.videos.is_empty() && mode.credits_per_second.is_some() && seconds.is_none() {
        return Err(
            subject.refuse("requires options.source_video_duration_seconds when video_urls is provided")
        );
    }
    Ok(())
}

fn supported_inputs(limits: InputLimits) -> String {
    let mut inputs = vec!["prompt"];
    if limits.images.1 > 0 {
        inputs.push("image_urls");
    }
    if limits.videos.1 > 0 {
        inputs.push("video_urls");
    }
    inputs.join(", ")
}

fn finish(subject: &Subject<'_>, ask: &Ask<'_>, chosen: Chosen) -> Order {
    let Subject { model, mode, rules_of } = *subject;
    let seconds = chosen.duration.as_deref().and_then(pricing::seconds_of);
    let claim = seconds
        .filter(|_| may_cover_video(rules_of))
        .and_then(|seconds| seconds.ceil().to_u64())
        .map(|seconds| (Pool::HouseSeconds, seconds));
    let shape = Shape {
        ratio: ratio_of(chosen.aspect_ratio.as_deref(), (16, 9)),
        pixels: None,
        length_ms: millis(seconds.unwrap_or(Decimal::from(FIXED_SECONDS))),
    };
    let mut options = ask.options.to_map();
    for (name, value) in [
        ("duration", chosen.duration),
        ("resolution", chosen.resolution),
        ("aspect_ratio", chosen.aspect_ratio),
        ("mode", Some(mode.to_owned())),
    ] {
        if let Some(value) = value {
            options.insert(name.to_owned(), Value::String(value));
        }
    }
    if let Some(audio) = chosen.audio {
        options.insert(String::from("audio"), Value::Bool(audio));
    }
    if let Some(seconds) = chosen.source_seconds {
        options.insert(String::from("source_video_duration_seconds"), json_number(seconds));
    }
    Order {
        kind: Kind::Video,
        model: format!("{model}/{mode}"),
        scene: mode.to_owned(),
        prompt: ask.prompt.to_owned(),
        options,
        price_credits: chosen.price_credits,
        claim,
        shape,
        provider_rejection: source_too_long(rules_of, ask, chosen.source_seconds),
    }
}

/// Notes 2 and 3 of the input limits: the provider, not the service, measures the source video.
fn source_too_long(model: &str, ask: &Ask<'_>, source_seconds: Option<Decimal>) -> Option<ProviderRejection> {
    let most = match model {
        "model-g-omni" => 10,
        "model-g-omni-video" => 30,
        _ => return None,
    };
    let too_long = !ask.videos.is_empty() && source_seconds? > Decimal::from(most);
    too_long
        .then(|| ProviderRejection::WhileRendering(format!("source video must be at most {most} seconds")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::order as check;
    use super::*;

    fn ok(body: &Value) -> Order {
        check(&Catalog::built_in().unwrap(), Kind::Video, body).unwrap()
    }

    fn refused(body: &Value) -> String {
        check(&Catalog::built_in().unwrap(), Kind::Video, body).unwrap_err().message
    }

    fn urls(n: usize) -> Vec<String> {
        (0..n).map(|n| format!("https://example.com/{n}")).collect()
    }

    #[test]
    fn omitted_options_are_filled_from_the_defaults_of_the_mode() {
        let order = ok(&json!({"model": "house-c1", "prompt": "  a boat  "}));
        assert_eq!(order.prompt, "a boat");
        assert_eq!(
            Value::Object(order.options),
            json!({"duration": "5s", "resolution": "768P", "aspect_ratio": "16:9", "mode": "text-to-video"})
        );
        assert_eq!((order.price_credits, order.claim), (10, Some((Pool::HouseSeconds, 5))));
        assert_eq!(order.model, "house-c1/text-to-video");
    }

    #[test]
    fn the_mode_defaults_to_image_then_video_then_text() {
        let mode = |images: usize, videos: usize| {
            let options = json!({"source_video_duration_seconds": 5});
            ok(&json!({"model": "model-h3", "prompt": "x", "image_urls": urls(images), "video_urls": urls(videos), "options": options}))
                .scene
        };
        assert_eq!(mode(0, 0), "text-to-video");
        assert_eq!(mode(1, 0), "image-to-video");
        assert_eq!(mode(0, 1), "video-to-video");
    }

    #[test]
    fn duration_may_be_8s_or_8_or_the_integer_and_resolution_ignores_case() {
        for duration in [json!("8s"), json!("8"), json!(8), json!(8.0)] {
            let body = json!({"model": "house-c1", "prompt": "x", "options": {"duration": duration, "resolution": "768p"}});
            let order = ok(&body);
            assert_eq!(
                (&order.options["duration"], &order.options["resolution"]),
                (&json!("8s"), &json!("768P"))
            );
        }
        let float = json!({"model": "house-c1", "prompt": "x", "options": {"duration": 8.5}});
        assert_eq!(refused(&float), "options.duration must be a string or an integer");
    }

    #[test]
    fn aspect_ratio_is_case_exact() {
        let with =
            |ratio: &str| json!({"model": "model-h3", "prompt": "x", "options": {"aspect_ratio": ratio}});
        assert_eq!(ok(&with("Auto")).options["aspect_ratio"], "Auto");
        assert!(refused(&with("auto")).starts_with("model-h3 text-to-video supports aspect_ratio "));
    }

    #[test]
    fn model_r_has_only_5s_at_1080p() {
        let body =
            json!({"model": "model-r", "prompt": "x", "options": {"resolution": "1080p", "duration": "10s"}});
        assert_eq!(refused(&body), "model-r text-to-video supports duration 5s at 1080p, got 10s");
    }

    #[test]
    fn audio_true_needs_the_toggle_and_false_is_always_accepted() {
        let with =
            |model: &str, audio: bool| json!({"model": model, "prompt": "x", "options": {"audio": audio}});
        assert_eq!(refused(&with("house-c1", true)), "house-c1 text-to-video supports audio false, got true");
        ok(&with("house-c1", false));
        ok(&with("model-k-2-6", true));
    }

    #[test]
    fn values_without_a_list_must_not_be_sent() {
        let with = |model: &str, name: &str, value: &str| json!({"model": model, "prompt": "x", "options": {name: value}});
        assert!(refused(&with("model-v-3-1", "duration", "8s")).contains("does not accept duration"));
        assert!(refused(&with("model-k-2-6", "resolution", "720p")).contains("does not accept resolution"));
        assert!(refused(&with("model-f-3", "resolution", "720p")).contains("does not accept resolution"));
    }

    #[test]
    fn withdrawn_and_unknown_models_have_their_messages() {
        let with = |model: &str| json!({"model": model, "prompt": "x"});
        assert!(refused(&with("model-o-2")).starts_with("video model temporarily unavailable: model-o-2. "));
        assert_eq!(refused(&with("model-k-2-6-motion-control")), "This capability is unavailable.");
        assert_eq!(refused(&with("nope")), "unsupported video model: nope");
    }

    #[test]
    fn the_input_limits_table_is_held_row_by_row() {
        let limits: Value = serde_json::from_str(include_str!("../catalog/limits.json")).unwrap();
        for (model, modes) in limits.as_object().unwrap() {
            for (mode, row) in modes.as_object().unwrap() {
                let most = |kind: &str, n: usize| usize::try_from(row[kind][n].as_u64().unwrap()).unwrap();
                let body = |images: usize, videos: usize| {
                    json!({"model": model, "mode": mode, "prompt": "x", "image_urls": urls(images), "video_urls": urls(videos),
                        "options": {"source_video_duration_seconds": 4}})
                };
                let ((i0, i1), (v0, v1)) =
                    ((most("images", 0), most("images", 1)), (most("videos", 0), most("videos", 1)));
                ok(&body(i0, v0));
                ok(&body(i1, v1));
                if i0 > 0 {
                    assert_eq!(
                        refused(&body(i0 - 1, v0)),
                        format!("{model} {mode} requires image_urls (at least {i0})")
                    );
                }
                if v0 > 0 {
                    assert_eq!(
                        refused(&body(i0, v0 - 1)),
                        format!("{model} {mode} requires video_urls (at least {v0})")
                    );
                }
                let over = |most: usize, field: &str, said: String| {
                    let expected = if most == 0 {
                        format!("does not accept {field}; supported inputs: ")
                    } else {
                        format!("supports at most {most} {field}, got {}", most + 1)
                    };
                    assert!(said.contains(&expected), "{said}");
                };
                over(i1, "image_urls", refused(&body(i1 + 1, v0)));
                over(v1, "video_urls", refused(&body(i0, v1 + 1)));
            }
        }
    }

    #[test]
    fn frames_and_references_must_be_asked_for() {
        let two = json!({"model": "house-c1", "prompt": "x", "image_urls": urls(2)});
        assert_eq!(refused(&two), "house-c1 image-to-video supports at most 1 image_urls, got 2");
    }

    #[test]
    fn a_source_video_priced_by_the_second_needs_its_length() {
        let body = json!({"model": "model-s-2-5", "prompt": "x", "video_urls": urls(1)});
        assert_eq!(
            refused(&body),
            "model-s-2-5 video-to-video requires options.source_video_duration_seconds when video_urls is provided"
        );
        ok(&json!({"model": "model-f-3", "prompt": "x", "video_urls": urls(1)}));
    }

    #[test]
    fn a_source_longer_than_the_provider_takes_fails_there() {
        let with = |model: &str, seconds: u64| json!({"model": model, "prompt": "x", "video_urls": urls(1), "options": {"source_video_duration_seconds": seconds}});
        assert_eq!(ok(&with("model-g-omni", 10)).provider_rejection, None);
        assert!(matches!(
            ok(&with("model-g-omni", 11)).provider_rejection,
            Some(ProviderRejection::WhileRendering(_))
        ));
        assert_eq!(ok(&with("model-g-omni-video", 30)).provider_rejection, None);
    }

    #[test]
    fn the_first_failure_in_the_documented_order_is_returned() {
        let long = "deepfake ".repeat(1000);
        let mut body = json!({"model": 5, "prompt": long, "mode": "nope", "image_urls": ["ftp://x"], "options": {"audio": 1}});
        assert_eq!(refused(&body), "model must be a string");
        body["model"] = json!("nope");
        assert_eq!(refused(&body), "input content was rejected by safety filters");
        body["prompt"] = json!("x".repeat(7001));
        assert_eq!(refused(&body), "unsupported video model: nope");
        body["model"] = json!("model-h3");
        assert_eq!(refused(&body), "model-h3 does not support mode nope");
        body["mode"] = json!("image-to-video");
        assert_eq!(refused(&body), "model-h3 prompt must be 7000 characters or fewer, got 7001");
        body["prompt"] = json!("x");
        assert_eq!(refused(&body), "image_urls must contain valid http(s) URLs");
        body["image_urls"] = json!(urls(1));
        assert_eq!(refused(&body), "options.audio must be a boolean");
    }

    #[test]
    fn other_options_are_forwarded_unvalidated() {
        let order =
            ok(&json!({"model": "house-c1", "prompt": "x", "options": {"camera": {"pan": 3}, "seed": 7}}));
        assert_eq!(order.options["camera"]["pan"], 3);
    }
}
