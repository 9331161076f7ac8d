//! Video cost, and Price matrix shapes.

use serde_json::{Value, json};

use super::{check, quoted, sent_options, with};
use crate::domain::quote::{AllowanceUnit, Catalog, Rules, quote};
use crate::domain::request::Kind;

#[track_caller]
fn priced(model: &str, more: Value, expected: &str) {
    check(Kind::Video, with(json!({"model": model, "prompt": "a fox"}), more), expected);
}

#[test]
fn per_second_rate_times_seconds() {
    priced("house-c1", json!({}), "10 credits: 5 s x 2/s = 10");
    priced("house-c1", json!({"options": {"duration": 15}}), "30 credits: 15 s x 2/s = 30");
}

#[test]
fn per_second_price_is_rounded_up_without_float_error() {
    priced("model-h3", json!({}), "13 credits: 5 s x 2.5/s = 12.5, rounded up to 13");
    priced("model-h3", json!({"options": {"duration": "10s"}}), "25 credits: 10 s x 2.5/s = 25");
}

#[test]
fn a_rate_that_floats_cannot_hold_is_exact() {
    let entry = |rate: f64| {
        json!([{"id": "m", "modes": {"text-to-video": {"durations": ["10s"], "credits_per_second": {"720p": rate},
            "resolutions": ["720p"], "defaults": {"duration": "10s", "resolution": "720p"}}}}])
    };
    let request = super::request(json!({"model": "m", "prompt": "a fox"}));
    for (rate, expected) in [(0.1, 1), (0.3, 3), (1.1, 11), (2.2, 22), (0.7, 7), (0.05, 1)] {
        let catalog = Catalog::of(&entry(rate), &Value::Null, &Value::Null, &Value::Null);
        let quote = quote(Some(Kind::Video), &request, &catalog, &Rules::builtin()).unwrap();
        assert_eq!(quote.price.unwrap().0, expected, "{}", quote.formula);
    }
}

#[test]
fn by_resolution_and_duration() {
    priced("model-r", json!({}), "24 credits: 720p, 10s: 24");
    priced(
        "model-r",
        json!({"options": {"resolution": "1080P", "duration": "5"}}),
        "30 credits: 1080p, 5s: 30",
    );
}

#[test]
fn model_f_3_is_priced_by_720p_without_taking_a_resolution() {
    priced("model-f-3", json!({"options": {"duration": "20s"}}), "320 credits: 720p, 20s: 320");
    priced(
        "model-f-3",
        json!({"options": {"resolution": "720p"}}),
        "options.resolution: found \"720p\"; model-f-3 takes no resolution in text-to-video, leave it out",
    );
}

#[test]
fn per_generation_by_resolution() {
    priced("model-v-3-1", json!({}), "225 credits: 720p, per_generation: 225");
    priced(
        "model-v-3-1",
        json!({"options": {"resolution": "1080p"}}),
        "285 credits: 1080p, per_generation: 285",
    );
}

#[test]
fn model_k_2_6_is_chosen_by_audio_and_never_doubled() {
    priced("model-k-2-6", json!({}), "55 credits: 5s, without-audio: 55");
    priced("model-k-2-6", json!({"options": {"audio": true}}), "110 credits: 5s, with-audio: 110");
    priced(
        "model-k-2-6",
        json!({"options": {"audio": true, "duration": 10}}),
        "220 credits: 10s, with-audio: 220",
    );
    let fields = json!({"model": "model-k-2-6", "prompt": "a fox"});
    assert_eq!(sent_options(Kind::Video, fields)["audio"], json!(false));
}

#[test]
fn quality_matrix_is_priced_only_where_all_qualities_agree() {
    priced("model-s-1-0-pro", json!({}), "14 credits: any quality, 5s: 14");
    priced(
        "model-s-1-0-pro",
        json!({"options": {"duration": 10}}),
        "unpriced: the price depends on the quality (basic, pro), which the request does not set",
    );
}

#[test]
fn an_undocumented_quality_option_decides_nothing() {
    priced(
        "model-s-1-0-pro",
        json!({"options": {"duration": 10, "quality": "pro"}}),
        "unpriced: the price depends on the quality (basic, pro), which the request does not set\nnote: \
         options.quality: is not an option of video, but of image; \"pro\" is sent as it is, unchecked",
    );
}

#[test]
fn pricing_note_doubles_with_audio_only() {
    priced("model-s-1-5-pro", json!({}), "7 credits: 480p, 5s: 7");
    priced("model-s-1-5-pro", json!({"options": {"audio": false}}), "7 credits: 480p, 5s: 7");
    priced(
        "model-s-1-5-pro",
        json!({"options": {"audio": true, "resolution": "720p", "duration": "10s"}}),
        "90 credits: 720p, 10s: 45, x 2 for audio = 90",
    );
}

#[test]
fn a_note_about_audio_that_is_not_understood_leaves_audio_unpriced() {
    let quoted = |note: &str, options: Value| {
        let entry = json!([{"id": "m", "modes": {"text-to-video": {"audio_toggle": true, "credits": {"720p": 5},
            "pricing_note": note}}}]);
        let catalog = Catalog::of(&entry, &Value::Null, &Value::Null, &Value::Null);
        let fields = json!({"model": "m", "prompt": "a fox", "options": options});
        quote(Some(Kind::Video), &super::request(fields), &catalog, &Rules::builtin()).unwrap()
    };
    for (note, loud) in [
        ("audio costs more", None),
        ("audio costs 1.5x", Some(8)),
        ("audio included", Some(5)),
        ("50-240 credits", Some(5)),
    ] {
        let price = |audio: bool| quoted(note, json!({"audio": audio})).price.map(|price| price.0);
        assert_eq!((price(false), price(true)), (Some(5), loud), "{note}");
    }
    // Whatever a note says of audio, its absence is spelled out: the body, and with it the key, is the same.
    for (note, spelled) in [("audio costs more", true), ("audio included", true), ("50-240 credits", false)] {
        let body = Value::Object(quoted(note, json!({})).body);
        assert_eq!(body.pointer("/options/audio").is_some(), spelled, "{note}");
    }
}

#[test]
fn with_video_input_its_own_rates_apply() {
    let fields = json!({"mode": "video-to-video", "video_urls": ["https://h.example/v.mp4"],
        "options": {"source_video_duration_seconds": 40}});
    priced("model-h3", fields, "18 credits: 5 s x 3.5/s = 17.5, rounded up to 18");
}

#[test]
fn model_s_2_0_bills_source_seconds_up_to_15() {
    let source = |seconds: f64| {
        json!({"mode": "reference-to-video", "image_urls": ["https://h.example/i.png"], "video_urls": ["https://h.example/v.mp4"],
            "options": {"source_video_duration_seconds": seconds}})
    };
    priced(
        "model-s-2-0",
        source(20.0),
        "171 credits: (4 s + 15 s of source) x 9/s = 171\n\
         note: options.source_video_duration_seconds: of 20 s of source video 15 s are billed",
    );
    priced(
        "model-s-2-0",
        source(7.5),
        "104 credits: (4 s + 7.5 s of source) x 9/s = 103.5, rounded up to 104\n\
         note: options.source_video_duration_seconds: of 7.5 s of source video 7.5 s are billed",
    );
}

/// The fixture's `model-s-2-0` as an account lists it: the same entry under an id of its own, with what the
/// configuration says of it.
#[track_caller]
fn real_id(said: Value, more: Value, expected: &str) {
    let parts: Value = serde_json::from_str(include_str!("../fixtures/catalog.json")).unwrap();
    let listed = parts["video"]["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|model| model["id"] == "model-s-2-0")
        .unwrap();
    let entry = json!([with(listed.clone(), json!({"id": "vendor/real-2"}))]);
    let catalog = Catalog::of(&entry, &Value::Null, &Value::Null, &Value::Null);
    let rules = Rules::builtin().extended(serde_json::from_value(json!({"models": said})).unwrap()).unwrap();
    let fields = with(json!({"model": "vendor/real-2", "prompt": "a fox"}), more);
    let quote = quote(Some(Kind::Video), &super::request(fields), &catalog, &rules).unwrap();
    let price = quote.price.map_or("unpriced".to_owned(), |price| price.to_string());
    assert_eq!(format!("{price}: {}", quote.formula), expected, "{said}");
}

fn with_source() -> Value {
    json!({"mode": "reference-to-video", "image_urls": ["https://h.example/i.png"], "video_urls": ["https://h.example/v.mp4"],
        "options": {"source_video_duration_seconds": 7.5}})
}

#[test]
fn an_unknown_id_has_no_price_with_a_source_video_as_its_seconds_may_be_billed() {
    let unpriced = "unpriced: the catalog does not say whether vendor/real-2 bills the seconds of a source video; set \
        inherit or billed_source_seconds_max in [rules.models.\"vendor/real-2\"] of the configuration";
    real_id(json!({}), with_source(), unpriced);
    // Said of it, but not this.
    let inputs = json!({"reference-to-video": {"images": [1, 2], "videos": [0, 1]}});
    real_id(json!({"vendor/real-2": {"inputs": inputs}}), with_source(), unpriced);
    real_id(json!({"vendor/real-2": {"inherit": "gi-2"}}), with_source(), unpriced);
}

#[test]
fn an_id_that_is_told_about_is_priced_with_a_source_video() {
    let billed = "104 credits: (4 s + 7.5 s of source) x 9/s = 103.5, rounded up to 104";
    real_id(json!({"vendor/real-2": {"inherit": "model-s-2-0"}}), with_source(), billed);
    real_id(json!({"vendor/real-2": {"billed_source_seconds_max": 15}}), with_source(), billed);
    let unbilled = "36 credits: 4 s x 9/s = 36";
    real_id(json!({"vendor/real-2": {"inherit": "model-h3"}}), with_source(), unbilled);
    real_id(json!({"vendor/real-2": {"billed_source_seconds_max": 0}}), with_source(), unbilled);
}

#[test]
fn an_unknown_id_without_a_source_video_is_priced_by_the_catalog_alone() {
    real_id(
        json!({}),
        json!({"mode": "reference-to-video", "image_urls": ["https://h.example/i.png"]}),
        "56 credits: 4 s x 14/s = 56",
    );
}

#[test]
fn an_unknown_id_with_a_fixed_price_for_a_source_video_has_that_price() {
    let entry =
        json!([{"id": "m", "modes": {"video-to-video": {"credits": {"720p": {"per_generation": 45}}}}}]);
    let catalog = Catalog::of(&entry, &Value::Null, &Value::Null, &Value::Null);
    let row =
        super::request(json!({"model": "m", "prompt": "a fox", "video_urls": ["https://h.example/v.mp4"]}));
    let quote = quote(Some(Kind::Video), &row, &catalog, &Rules::builtin()).unwrap();
    assert_eq!(quote.price.map(|price| price.0), Some(45), "{}", quote.formula);
}

#[test]
fn source_seconds_that_are_billed_must_be_told() {
    let entry = json!([{"id": "m", "modes": {"video-to-video": {"durations": ["5s"], "defaults": {"duration": "5s"},
        "credits_per_second_with_video_input": {"720p": 2}}}}]);
    let catalog = Catalog::of(&entry, &Value::Null, &Value::Null, &Value::Null);
    let more = json!({"models": {"m": {"billed_source_seconds_max": 15}}});
    let rules = Rules::builtin().extended(serde_json::from_value(more).unwrap()).unwrap();
    let row =
        super::request(json!({"model": "m", "prompt": "a fox", "video_urls": ["https://h.example/v.mp4"]}));
    let errors = quote(Some(Kind::Video), &row, &catalog, &rules).unwrap_err();
    assert_eq!(errors[0].field.as_deref(), Some("options.source_video_duration_seconds"));
}

#[test]
fn a_label_is_not_a_price() {
    priced(
        "model-label-only",
        json!({}),
        "unpriced: the catalog gives it no price; the catalog's label says \"from 20 credits\"",
    );
}

#[test]
fn a_price_that_is_no_number_is_no_price() {
    let fields =
        json!({"model": "model-half-broken", "prompt": "a fox", "image_urls": ["https://h.example/i.png"]});
    check(Kind::Video, fields, "unpriced: the catalog's price is not a number");
}

#[test]
fn a_matrix_and_a_rate_that_disagree_give_no_price() {
    let entry = json!([{"id": "m", "modes": {"text-to-video": {"durations": ["5s"], "resolutions": ["720p"],
        "credits": {"720p": {"5s": 9}}, "credits_per_second": {"720p": 2},
        "defaults": {"duration": "5s", "resolution": "720p"}}}}]);
    let catalog = Catalog::of(&entry, &Value::Null, &Value::Null, &Value::Null);
    let request = super::request(json!({"model": "m", "prompt": "a fox"}));
    let quote = quote(Some(Kind::Video), &request, &catalog, &Rules::builtin()).unwrap();
    assert_eq!(quote.price, None);
    let expected = "the catalog contradicts itself: 720p, 5s: 9 by its matrix, 5 s x 2/s = 10 by its rate";
    assert_eq!(quote.formula, expected);
}

#[test]
fn ultra_covers_300_output_seconds_of_house_c1() {
    let fields = json!({"model": "house-c1", "prompt": "a fox", "options": {"duration": 8}});
    let quote = quoted(Kind::Video, fields).unwrap();
    let allowance = quote.waivable.unwrap();
    assert_eq!((allowance.units, allowance.rule.unit), (8, AllowanceUnit::OutputSeconds));
    assert_eq!((allowance.rule.pro_per_day, allowance.rule.ultra_per_day), (0, 300));
    assert_eq!(quote.price.unwrap().0, 16, "the price stays the full price");
    let other = json!({"model": "model-h3", "prompt": "a fox"});
    assert_eq!(quoted(Kind::Video, other).unwrap().waivable, None);
}
