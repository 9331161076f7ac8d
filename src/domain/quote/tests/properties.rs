//! What holds for every request and every catalog.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{catalog, request};
use crate::domain::quote::{Catalog, Rules, canonical_body, quote, reprice};
use crate::domain::request::{Kind, Request};

const MODELS: [&str; 16] = [
    "house-c1",
    "model-h3",
    "model-s-2-0",
    "model-s-1-5-pro",
    "model-s-1-0-pro",
    "model-v-3-1",
    "model-k-2-6",
    "model-r",
    "model-g-omni-video",
    "model-f-3",
    "model-half-broken",
    "gi-2",
    "gi-2-5",
    "ni-2",
    "x-flat",
    "tune-1",
];

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

fn value() -> impl Strategy<Value = Value> {
    let known = [
        json!("5s"),
        json!("10"),
        json!(5),
        json!(10.0),
        json!("720P"),
        json!("480p"),
        json!("2k"),
        json!("High"),
        json!("medium"),
        json!("1:1"),
        json!("16:9"),
        json!(true),
        json!(false),
        json!(null),
        json!([]),
        json!(60),
        json!(7.5),
        json!(0.5),
        json!("1024x1024"),
        json!({"deep": [1.0, null]}),
        json!(-0.0),
        json!(1e300),
    ];
    prop_oneof![
        4 => prop::sample::select(known.to_vec()),
        1 => (-4000..4000).prop_map(|eighths| json!(f64::from(eighths) / 8.0)),
        1 => "\\PC{0,6}".prop_map(Value::from),
    ]
}

fn options() -> impl Strategy<Value = Map<String, Value>> {
    let names = [
        "duration",
        "resolution",
        "aspect_ratio",
        "audio",
        "quality",
        "size",
        "duration_seconds",
        "seed",
        "style",
        "lyrics",
        "speed",
        "prompt_influence",
        "source_video_duration_seconds",
    ];
    let pair = (prop::sample::select(names.to_vec()), value());
    prop::collection::vec(pair, 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn urls() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop::sample::select(vec!["https://h.example/a".to_owned(), "http://h.example/b".to_owned()]),
        0..3,
    )
}

fn row() -> impl Strategy<Value = Request> {
    let model = prop::option::of(prop::sample::select(MODELS.to_vec()).prop_map(str::to_owned));
    let mode = prop::option::weighted(0.2, Just("reference-to-video".to_owned()));
    let voice = prop::option::weighted(0.3, Just("v-anna".to_owned()));
    (
        model,
        prop::option::of("\\PC{1,30}"),
        prop::option::of("\\PC{1,30}"),
        voice,
        mode,
        urls(),
        urls(),
        options(),
    )
        .prop_map(|(model, prompt, text, voice_id, mode, image_urls, video_urls, options)| Request {
            model,
            prompt,
            text,
            voice_id,
            mode,
            scene: None,
            image_urls,
            video_urls,
            options,
        })
}

/// A request that is likely to pass: only the fields of its kind.
fn fitting() -> impl Strategy<Value = (Kind, Request)> {
    prop_oneof![
        6 => (prop::sample::select(MODELS.to_vec()), urls(), options()).prop_map(modelled),
        1 => (0.1..40.0, options()).prop_map(with_source),
        1 => ("\\PC{1,60}", options()).prop_map(spoken),
        1 => options().prop_map(|options| {
            (Kind::SoundEffect, Request { prompt: Some("rain".to_owned()), options, ..Request::default() })
        }),
    ]
}

fn modelled((model, urls, options): (&str, Vec<String>, Map<String, Value>)) -> (Kind, Request) {
    let image = ["gi", "ni", "x-"].iter().any(|start| model.starts_with(start));
    let kind = match model {
        "tune-1" => Kind::Music,
        _ if image => Kind::Image,
        _ => Kind::Video,
    };
    let image_urls = if model == "gi-2" { urls } else { Vec::new() };
    let (model, prompt) = (Some(model.to_owned()), Some("a fox".to_owned()));
    (kind, Request { model, prompt, image_urls, options, ..Request::default() })
}

/// A video from a source video, whose seconds are billed.
fn with_source((seconds, mut options): (f64, Map<String, Value>)) -> (Kind, Request) {
    options.insert("source_video_duration_seconds".to_owned(), json!((seconds * 8.0).ceil() / 8.0));
    let mut row = request(json!({"model": "model-s-2-0", "prompt": "a fox", "mode": "reference-to-video",
        "image_urls": ["https://h.example/i"], "video_urls": ["https://h.example/v"]}));
    row.options = options;
    (Kind::Video, row)
}

fn spoken((text, options): (String, Map<String, Value>)) -> (Kind, Request) {
    let (text, voice_id) = (Some(text), Some("v-anna".to_owned()));
    (Kind::Speech, Request { text, voice_id, options, ..Request::default() })
}

/// Rows of a few requests that come mixed, with prompts of all sorts.
pub(crate) fn mixed() -> impl Strategy<Value = Vec<(Kind, Request)>> {
    let prompts =
        [None, Some(""), Some("a fox"), Some(" a hen "), Some("a deepfake"), Some("a vixen, running")];
    // One model of the fixture takes no more than 7,000 characters.
    let long = [1_700, 1_800].map(|foxes| Some("fox ".repeat(foxes)));
    let prompts: Vec<Option<String>> =
        prompts.into_iter().map(|prompt| prompt.map(str::to_owned)).chain(long).collect();
    let request = prop_oneof![2 => fitting(), 1 => (kind(), row())];
    let requests = prop::collection::vec(request, 1..4);
    let rows = prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(prompts)), 1..24);
    (requests, rows).prop_map(|(requests, rows)| {
        let row = |(index, prompt): (prop::sample::Index, Option<String>)| {
            let (kind, request) = index.get(&requests).clone();
            (kind, Request { prompt, ..request })
        };
        rows.into_iter().map(row).collect()
    })
}

/// Anything a catalog might hold where a price should be.
fn prices() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<f64>().prop_map(|float| json!(float)),
        any::<i64>().prop_map(|whole| json!(whole)),
        any::<u64>().prop_map(|whole| json!(whole)),
        Just(json!("2.5")),
        Just(json!(null)),
        Just(json!([1])),
    ];
    let keys = [
        "720p",
        "5s",
        "with-audio",
        "without-audio",
        "per_generation",
        "pro",
        "10",
        "99999999999999999999999s",
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop::collection::btree_map(prop::sample::select(keys.to_vec()), inner, 0..4).prop_map(|map| {
            map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
        })
    })
}

fn from_body(body: Map<String, Value>) -> Request {
    request(Value::Object(body))
}

proptest! {
    #[test]
    fn quoting_what_would_be_sent_changes_nothing((kind, row) in fitting()) {
        let (catalog, rules) = (catalog(), Rules::builtin());
        if let Ok(first) = quote(Some(kind), &row, &catalog, &rules) {
            let again = quote(Some(kind), &from_body(first.body.clone()), &catalog, &rules).unwrap();
            prop_assert_eq!(&again.body, &first.body);
            prop_assert_eq!((again.price, &again.formula), (first.price, &first.formula));
            prop_assert_eq!(reprice(kind, &first.body, &catalog, &rules), Ok(first.cost()));
        }
    }

    #[test]
    fn quoting_never_panics(kind in prop::option::of(kind()), row in row()) {
        match quote(kind, &row, &catalog(), &Rules::builtin()) {
            Ok(quote) => prop_assert!(!quote.formula.is_empty()),
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
    }

    #[test]
    fn no_catalog_can_make_it_panic_or_overflow(credits in prices(), rates in prices(), with_video in prices(), audio: bool, seconds in "[0-9]{1,30}(\\.[0-9]{1,9})?s?") {
        let mode = json!({"durations": ["5s", seconds], "resolutions": ["720p"], "audio_toggle": true,
            "credits": credits, "credits_per_second": rates, "credits_per_second_with_video_input": with_video,
            "credits_per_generation": credits, "credits_by_resolution_and_aspect_ratio": rates,
            "pricing_note": "audio 2x", "defaults": {"duration": seconds, "resolution": "720p"}});
        let video = json!([{"id": "model-s-2-0", "modes": {"text-to-video": mode, "reference-to-video": mode}}]);
        let image = json!([{"id": "i", "modes": {"text-to-image": mode}}]);
        let music = json!([{"id": "t", "credits": credits}]);
        let voices = json!({"characters_per_credit": rates, "minimum_credits": credits, "voices": []});
        let catalog = Catalog::of(&video, &image, &music, &voices);
        let rules = Rules::builtin();
        let rows = [
            (Kind::Video, json!({"model": "model-s-2-0", "prompt": "x", "options": {"audio": audio}})),
            (Kind::Video, json!({"model": "model-s-2-0", "prompt": "x", "mode": "reference-to-video",
                "image_urls": ["https://h.example/i"], "video_urls": ["https://h.example/v"],
                "options": {"source_video_duration_seconds": 1e27}})),
            (Kind::Image, json!({"model": "i", "prompt": "x"})),
            (Kind::Music, json!({"prompt": "x"})),
            (Kind::Speech, json!({"text": "x", "voice_id": "v"})),
        ];
        for (kind, fields) in rows {
            drop(quote(Some(kind), &request(fields), &catalog, &rules));
        }
    }

    #[test]
    fn price_and_identity_ignore_the_order_of_fields((kind, row) in fitting()) {
        let turned: Vec<String> =
            row.options.iter().rev().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
        let options: Map<String, Value> = serde_json::from_str(&format!("{{{}}}", turned.join(","))).unwrap();
        let other = Request { options, ..row.clone() };
        prop_assert_eq!(canonical_body(kind, &row), canonical_body(kind, &other));
        let price = |row: &Request| quote(Some(kind), row, &catalog(), &Rules::builtin()).map(|quote| quote.price);
        prop_assert_eq!(price(&row), price(&other));
    }

    #[test]
    fn price_and_identity_ignore_spelling_that_the_service_ignores((kind, row) in fitting(), form in 0..3usize) {
        let mut other = row.clone();
        other.prompt = row.prompt.as_ref().map(|prompt| format!("  {prompt}\n"));
        for (name, value) in &mut other.options {
            respell(kind, name, value, form);
        }
        other.options.insert("nothing".to_owned(), Value::Null);
        prop_assert_eq!(canonical_body(kind, &row), canonical_body(kind, &other));
        let price = |row: &Request| quote(Some(kind), row, &catalog(), &Rules::builtin()).ok().map(|q| (q.price, q.body));
        let (before, after) = (price(&row), price(&other));
        prop_assert_eq!(before.as_ref().map(|found| found.0), after.as_ref().map(|found| found.0));
        prop_assert_eq!(before.map(|found| from_body(found.1)).map(|row| canonical_body(kind, &row)),
            after.map(|found| from_body(found.1)).map(|row| canonical_body(kind, &row)));
    }

    #[test]
    fn canonical_body_is_idempotent(kind in kind(), row in row()) {
        let body = canonical_body(kind, &row);
        let again = match kind {
            Kind::ShortsStudio => Request { options: body.clone(), ..Request::default() },
            _ => from_body(body.clone()),
        };
        prop_assert_eq!(canonical_body(kind, &again), body);
    }
}

/// Another spelling of the same value, where the service has more than one.
fn respell(kind: Kind, name: &str, value: &mut Value, form: usize) {
    match (kind, name, value.clone()) {
        (Kind::Video, "duration", Value::String(text)) if text == "5s" || text == "10" => {
            let seconds = text.trim_end_matches('s').parse::<u64>().unwrap();
            *value = [json!(seconds), json!(seconds.to_string()), json!(format!("{seconds}s"))][form].clone();
        }
        (Kind::Video | Kind::Image, "resolution", Value::String(text))
        | (Kind::Image, "quality", Value::String(text)) => {
            *value = if form == 0 { text.to_ascii_uppercase() } else { text.to_ascii_lowercase() }.into();
        }
        _ => {}
    }
}
