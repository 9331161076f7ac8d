//! POST /api/v1/videos: fields, options, input limits.

use serde_json::{Value, json};

use super::{check, quoted, sent, sent_options, transcript, with};
use crate::domain::request::Kind;

#[track_caller]
fn validated(model: &str, more: Value, expected: &str) {
    check(Kind::Video, with(json!({"model": model, "prompt": "a fox"}), more), expected);
}

fn images(count: usize) -> Value {
    json!((0..count).map(|n| format!("https://h.example/{n}.png")).collect::<Vec<_>>())
}

#[test]
fn the_body_spells_out_mode_and_defaults() {
    let body = sent(Kind::Video, json!({"model": "house-c1", "prompt": "  a fox \n"}));
    let expected = json!({"model": "house-c1", "prompt": "a fox", "mode": "text-to-video",
        "options": {"duration": "5s", "resolution": "768P", "aspect_ratio": "16:9"}});
    assert_eq!(Value::Object(body), expected);
}

#[test]
fn duration_has_three_spellings() {
    for spelling in [json!("8s"), json!("8"), json!(8), json!(8.0)] {
        let fields = json!({"model": "house-c1", "prompt": "a fox", "options": {"duration": spelling}});
        assert_eq!(sent_options(Kind::Video, fields)["duration"], json!("8s"));
    }
}

#[test]
fn duration_must_be_listed() {
    validated(
        "model-r",
        json!({"options": {"duration": "7s"}}),
        "options.duration: found \"7s\"; model-r takes 5s or 10s in text-to-video",
    );
}

#[test]
fn duration_is_not_sent_where_the_list_is_empty() {
    validated(
        "model-v-3-1",
        json!({"options": {"duration": 8}}),
        "options.duration: found 8; model-v-3-1 takes no duration in text-to-video, leave it out",
    );
}

#[test]
fn resolution_ignores_case_and_is_sent_as_the_catalog_spells_it() {
    let fields = json!({"model": "house-c1", "prompt": "a fox", "options": {"resolution": "768p"}});
    assert_eq!(sent_options(Kind::Video, fields)["resolution"], json!("768P"));
}

#[test]
fn aspect_ratio_is_sent_as_the_catalog_spells_it() {
    validated(
        "model-h3",
        json!({"options": {"aspect_ratio": "auto"}}),
        "13 credits: 5 s x 2.5/s = 12.5, rounded up to 13\nnote: options.aspect_ratio: \"auto\" is read as Auto",
    );
}

#[test]
fn model_r_has_5s_only_at_1080p() {
    let expected = "options.duration: 10s is not available at 1080p; model-r takes 5s there";
    validated("model-r", json!({"options": {"resolution": "1080p", "duration": 10}}), expected);
    validated("model-r", json!({"options": {"resolution": "1080p"}}), expected);
}

#[test]
fn audio_true_needs_the_toggle_and_false_is_always_allowed() {
    validated(
        "house-c1",
        json!({"options": {"audio": true}}),
        "options.audio: found true; house-c1 makes no audio in text-to-video, so false is accepted",
    );
    validated("house-c1", json!({"options": {"audio": false}}), "10 credits: 5 s x 2/s = 10");
    validated(
        "house-c1",
        json!({"options": {"audio": "yes"}}),
        "options.audio: found \"yes\"; true or false is accepted",
    );
}

#[test]
fn undocumented_options_are_forwarded_untouched() {
    let odd = json!({"seed": 7.0, "camera": {"zoom": null}});
    let fields = json!({"model": "house-c1", "prompt": "a fox", "options": odd});
    let options = sent_options(Kind::Video, fields);
    assert_eq!((&options["seed"], &options["camera"]), (&json!(7.0), &json!({"zoom": null})));
}

#[test]
fn prompt_is_required_and_not_blank() {
    check(Kind::Video, json!({"model": "house-c1"}), "prompt: is missing, and the service needs one");
    let blank = json!({"model": "house-c1", "prompt": " \t"});
    check(Kind::Video, blank, "prompt: is empty, and the service needs one");
}

#[test]
fn prompt_length_counts_characters() {
    let prompt = |n: usize| json!({"model": "model-h3", "prompt": "é".repeat(n)});
    assert!(quoted(Kind::Video, prompt(7000)).is_ok());
    check(Kind::Video, prompt(7001), "prompt: has 7001 characters; model-h3 takes 7000 at most");
}

#[test]
fn prohibited_wording_is_said_even_when_negated() {
    validated(
        "house-c1",
        json!({"prompt": "no Deepfake, please"}),
        "10 credits: 5 s x 2/s = 10\n\
         note: prompt: says \"Deepfake\": the service refuses such wording, even where it is negated",
    );
    for form in ["deep fakes", "deep-faked", "face-swapped", "faceswap", "swapping faces", "impersonating"] {
        let quote =
            quoted(Kind::Video, json!({"model": "house-c1", "prompt": format!("a {form} clip")})).unwrap();
        assert!(quote.notes.iter().any(|note| note.message.contains(form)), "{form}: {:?}", quote.notes);
    }
}

#[test]
fn prohibited_wording_is_said_of_texts_beside_the_prompt() {
    let options = json!({"lyrics": "la", "style": "impersonated voice"});
    let song = quoted(Kind::SoundEffect, json!({"prompt": "a gull", "options": options})).unwrap();
    assert!(
        song.notes
            .iter()
            .any(|note| note.field.as_deref() == Some("options.style")
                && note.message.contains("impersonated"))
    );
}

#[test]
fn a_model_of_a_million_characters_is_not_told_whole() {
    let id = "x".repeat(1 << 20);
    let told = format!("model: \"{}...\" is not in the video catalog", &id[..60]);
    validated(&id, json!({}), &format!("{told}, which lists 15 (hint: `callsheet models` lists them)"));
}

#[test]
fn unknown_model_lists_near_ones() {
    validated(
        "house-c2",
        json!({}),
        "model: \"house-c2\" is not in the video catalog, which lists 15 (hint: did you mean house-c1?)",
    );
    validated(
        "gi-2",
        json!({}),
        "model: gi-2 is not a model for video, but for image (hint: set kind to image, or pick a video model)",
    );
}

#[test]
fn model_is_required() {
    let hint = "(hint: `callsheet models` lists them)";
    let expected = format!("model: is missing; a video needs a model id of the catalog {hint}");
    check(Kind::Video, json!({"prompt": "a fox"}), &expected);
}

#[test]
fn withdrawn_and_announced_models_are_refused() {
    let hint = "(hint: pick another model)";
    let gone = |id: &str, said: &str| format!("model: {id} is withdrawn; the service says: {said} {hint}");
    validated("model-o-2", json!({}), &gone("model-o-2", "temporarily unavailable"));
    validated("model-o-2-pro", json!({}), &gone("model-o-2-pro", "temporarily unavailable"));
    let retired = "model-k-2-6-motion-control";
    validated(retired, json!({}), &gone(retired, "this capability is unavailable"));
    validated("model-soon", json!({}), "model: model-soon is announced but not available yet");
}

#[test]
fn mode_defaults_by_inputs() {
    let mode = |fields: Value| sent(Kind::Video, with(json!({"prompt": "a fox"}), fields))["mode"].clone();
    assert_eq!(mode(json!({"model": "house-c1"})), "text-to-video");
    assert_eq!(mode(json!({"model": "house-c1", "image_urls": images(1)})), "image-to-video");
    let source = json!({"model": "model-g-omni", "video_urls": ["https://h.example/v.mp4"]});
    assert_eq!(mode(source), "video-to-video");
}

#[test]
fn mode_must_be_one_of_the_models() {
    let expected = "mode: house-c1 has no video-to-video; frames-to-video, image-to-video, \
                    reference-to-video or text-to-video is accepted";
    let said = transcript(
        Kind::Video,
        json!({"model": "house-c1", "prompt": "a fox", "mode": "video-to-video",
        "video_urls": ["https://h.example/v.mp4"]}),
    );
    assert!(said.starts_with(expected), "{said}");
    validated(
        "model-s-1-0-pro-fast",
        json!({}),
        "mode: model-s-1-0-pro-fast has no text-to-video, which the inputs imply; image-to-video is accepted",
    );
}

#[test]
fn input_counts_by_mode() {
    validated(
        "house-c1",
        json!({"image_urls": images(2)}),
        "image_urls: 2 given; house-c1 takes 1 image in image-to-video \
         (hint: these inputs fit mode frames-to-video or reference-to-video)",
    );
    validated(
        "house-c1",
        json!({"mode": "text-to-video", "image_urls": images(1)}),
        "image_urls: 1 given; house-c1 takes no image in text-to-video \
         (hint: these inputs fit mode image-to-video or reference-to-video)",
    );
    validated(
        "house-c1",
        json!({"mode": "reference-to-video", "image_urls": images(10)}),
        "image_urls: 10 given; house-c1 takes 1 to 9 images in reference-to-video",
    );
    validated(
        "model-f-3",
        json!({"mode": "frames-to-video", "image_urls": images(3)}),
        "80 credits: 720p, 5s: 80",
    );
}

#[test]
fn a_model_without_rules_is_left_to_the_service() {
    validated(
        "model-half-broken",
        json!({"image_urls": images(30), "mode": "image-to-video"}),
        "unpriced: the catalog's price is not a number",
    );
}

#[test]
fn one_source_video_at_most() {
    let two = json!({"mode": "video-to-video", "video_urls": ["https://h.example/1.mp4", "https://h.example/2.mp4"]});
    validated("model-g-omni", two, "video_urls: 2 given; model-g-omni takes 1 video in video-to-video");
}

#[test]
fn source_seconds_are_required_where_seconds_are_priced() {
    let fields = json!({"mode": "video-to-video", "video_urls": ["https://h.example/v.mp4"]});
    validated(
        "model-h3",
        fields.clone(),
        "options.source_video_duration_seconds: is missing; model-h3 needs the source video's seconds",
    );
    let text = with(fields, json!({"options": {"source_video_duration_seconds": "12"}}));
    let expected = "options.source_video_duration_seconds: found \"12\"; a number above 0 is accepted";
    validated("model-h3", text, expected);
}

#[test]
fn model_g_omni_takes_10_seconds_of_source_at_most() {
    let source = |seconds: f64| json!({"video_urls": ["https://h.example/v.mp4"], "options": {"source_video_duration_seconds": seconds}});
    validated("model-g-omni", source(10.0), "50 credits: 720p, per_generation: 50");
    validated(
        "model-g-omni",
        source(10.5),
        "options.source_video_duration_seconds: found 10.5 s; model-g-omni takes source videos of at most 10 s \
         (hint: a longer one fails after it was submitted)",
    );
}

#[test]
fn model_g_omni_video_uses_10_of_30_seconds() {
    let source = |seconds: f64| json!({"video_urls": ["https://h.example/v.mp4"], "options": {"source_video_duration_seconds": seconds}});
    validated(
        "model-g-omni-video",
        source(30.0),
        "180 credits: 720p, per_generation: 180\n\
         note: options.source_video_duration_seconds: of 30 s the first 10 s are used",
    );
    validated(
        "model-g-omni-video",
        source(31.0),
        "options.source_video_duration_seconds: found 31 s; model-g-omni-video takes source videos of at most 30 s \
         (hint: a longer one fails after it was submitted)",
    );
}

#[test]
fn urls_are_http_or_https() {
    let validate = |url: &str, why: &str| {
        let accepted = "an address begins with http:// or https://, a file of this machine with ./ or /";
        let expected = format!("image_urls: \"{url}\" {why}; {accepted}");
        validated("house-c1", json!({"image_urls": [url]}), &expected);
    };
    validate("data:image/png;base64,AA", "is a data: address");
    validate("ftp://h.example/i.png", "is a ftp: address");
    validate("i.png", "is not an address (relative URL without a base)");
    validate("https://h.example/a b.png", "holds white space");
}

#[test]
fn fields_of_other_kinds_are_refused() {
    validated("house-c1", json!({"voice_id": "v-anna"}), "voice_id: is not a field of video, but of speech");
    let scene = json!({"scene": "text-to-image"});
    validated("house-c1", scene, "scene: is not a field of video, but of image (hint: videos call it mode)");
}

#[test]
fn all_errors_are_reported() {
    validated(
        "model-r",
        json!({"voice_id": "x", "options": {"duration": 7, "resolution": "8k", "audio": true}}),
        "voice_id: is not a field of video, but of speech\n\
         options.resolution: found \"8k\"; model-r takes 720p or 1080p in text-to-video\n\
         options.duration: found 7; model-r takes 5s or 10s in text-to-video\n\
         options.audio: found true; model-r makes no audio in text-to-video, so false is accepted",
    );
}

#[test]
fn a_misspelt_or_misplaced_option_is_said() {
    validated(
        "house-c1",
        json!({"options": {"durration": 15, "duration_seconds": 15, "seed": 4}}),
        "10 credits: 5 s x 2/s = 10\nnote: options.duration_seconds: is not an option of video, but of music or \
         sound-effect; 15 is sent as it is, unchecked; did you mean duration?\nnote: options.durration: is not an \
         option of video; 15 is sent as it is, unchecked; did you mean duration?\nnote: options.seed: is not an option of \
         video that the service documents; it is sent as it is, unchecked",
    );
}
