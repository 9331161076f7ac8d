//! Requests that are to be as long as an output of another row.

use serde_json::{Value, json};

use super::{catalog, quoted, request, sent_options, transcript, with};
use crate::domain::job_reference::InputField;
use crate::domain::quote::{
    Rules, fitting_length, fitting_length_of_body, milliseconds_of, reprice, wants_source_seconds,
};
use crate::domain::request::Kind;
use crate::domain::time::Millis;

fn video(model: &str, more: Value) -> Value {
    let mut fields = json!({"model": model, "prompt": "a fox", "options": {"duration": "job:voice"}});
    fields["options"] = with(fields["options"].take(), more);
    fields
}

/// The range of the price and how it comes about.
#[track_caller]
fn range(kind: Kind, fields: Value, expected: &str) {
    let quote = quoted(kind, fields).unwrap();
    let price = match (quote.price, quote.cheapest) {
        (Some(price), None) => price.0.to_string(),
        (None, Some(least)) if quote.bound.is_firm => format!("{} to {}", least.0, quote.bound.dearest.0),
        _ => "not known".to_owned(),
    };
    assert_eq!(format!("{price}: {}", quote.formula), expected);
}

#[test]
fn a_length_that_is_not_known_is_priced_at_both_ends() {
    range(
        Kind::Video,
        video("house-c1", json!({})),
        "2 to 30: 1 s x 2/s = 2 up to 15 s x 2/s = 30, by the length of job:voice",
    );
    let sound = |seconds: &str| json!({"prompt": "a waltz", "options": {"duration_seconds": seconds}});
    range(
        Kind::Music,
        sound("job:voice"),
        "60 to 300: the greater of 60 and 3 s = 60 up to the greater of 60 and 300 s = 300, by the length of job:voice",
    );
    range(Kind::SoundEffect, sound("job:voice"), "5: each sound effect: 5, however long job:voice is");
    // Only what the resolution leaves counts, and one that is left alone costs what it costs.
    let at_1080p = video("model-r", json!({"resolution": "1080p"}));
    let alone = with(at_1080p.clone(), json!({"options": {"resolution": "1080p", "duration": "5s"}}));
    let price = quoted(Kind::Video, alone).unwrap().price;
    assert_eq!(quoted(Kind::Video, at_1080p).unwrap().price, price);
}

#[test]
fn the_reference_stays_in_the_body_and_is_priced_again_later() {
    let quote = quoted(Kind::Video, video("house-c1", json!({}))).unwrap();
    assert_eq!(quote.body["options"]["duration"], "job:voice");
    assert_eq!(
        quote.body["options"]["resolution"], "768P",
        "what decides the price is spelled out all the same"
    );
    assert_eq!(
        quote.waivable.as_ref().unwrap().units,
        15,
        "it may need as much of an allowance as the longest one"
    );
    let again = reprice(Kind::Video, &quote.body, &catalog(), &Rules::builtin()).unwrap();
    assert_eq!(again, quote.cost());
}

#[test]
fn what_is_wrong_beside_the_length_is_told_once() {
    let fields = video("house-c1", json!({"resolution": "9000p"}));
    let told = transcript(Kind::Video, fields);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("options.resolution: "), "{told}");
    let told = transcript(Kind::Video, video("model-v-3-1", json!({})));
    assert_eq!(
        told,
        "options.duration: takes the length of an output, and model-v-3-1 takes no duration in text-to-video; leave it \
         out"
    );
    let told = transcript(Kind::Video, video("nobody", json!({})));
    assert!(told.contains("is not in the video catalog"), "{told}");
}

#[test]
fn the_next_length_that_is_taken_is_sent() {
    let fit = |kind, fields: Value, seconds: Value| {
        let own = InputField::length_of(kind).unwrap();
        match fitting_length((kind, &request(fields)), own, &seconds, &catalog(), &Rules::builtin()) {
            Ok(length) => length.to_string(),
            Err(why) => why.to_string(),
        }
    };
    let clip = || video("house-c1", json!({}));
    assert_eq!(fit(Kind::Video, clip(), json!(4)), "\"4s\"");
    assert_eq!(fit(Kind::Video, clip(), json!(4.001)), "\"5s\"");
    let spelled = video("House-C1", json!({"resolution": "768p"}));
    assert_eq!(fit(Kind::Video, spelled, json!(4)), "\"4s\"", "as its quote reads it");
    assert_eq!(fit(Kind::Video, clip(), json!(0.2)), "\"1s\"");
    assert_eq!(fit(Kind::Video, clip(), json!("15s")), "\"15s\"");
    assert_eq!(fit(Kind::Video, clip(), json!(15.3)), "is 15.3 s long, and house-c1 takes 15s at most");
    let short = || video("model-r", json!({"resolution": "1080p"}));
    assert_eq!(fit(Kind::Video, short(), json!(6)), "is 6 s long, and model-r takes 5s at most");
    let track = || json!({"prompt": "a waltz", "options": {"duration_seconds": "job:voice"}});
    assert_eq!(fit(Kind::Music, track(), json!(2)), "3");
    assert_eq!(fit(Kind::Music, track(), json!(12.345)), "12.345");
    assert_eq!(fit(Kind::Music, track(), json!(301)), "is 301 s long, and music takes 300 at most");
    assert_eq!(fit(Kind::SoundEffect, track(), json!(0.1)), "0.5");
    let body = quoted(Kind::Video, clip()).unwrap().body;
    let own = InputField::Duration;
    let measured =
        fitting_length_of_body((Kind::Video, &body), own, Millis(4_290), &catalog(), &Rules::builtin());
    assert_eq!(measured.unwrap(), json!("5s"));
    assert_eq!(sent_options(Kind::Video, clip())["duration"], "job:voice");
}

#[test]
fn a_part_of_a_millisecond_is_a_whole_one() {
    assert_eq!(milliseconds_of(&json!("8s")), Some(Millis(8_000)));
    assert_eq!(milliseconds_of(&json!(4.2901)), Some(Millis(4_291)));
    assert_eq!(milliseconds_of(&json!("job:voice")), None);
}

fn longer(model: &str, options: Value) -> Value {
    json!({"model": model, "prompt": "on", "video_urls": ["job:clip"], "options": options})
}

/// A model that bills seconds of a source video, which it takes beside an image.
fn billed(options: Value) -> Value {
    let fields = longer("model-s-2-0", options);
    with(fields, json!({"mode": "reference-to-video", "image_urls": ["https://a.example/a.png"]}))
}

#[test]
fn a_source_video_whose_length_is_not_known_is_priced_at_both_ends() {
    const SOURCE: &str = "source_video_duration_seconds";
    let open = |more: Value| with(json!({SOURCE: "job:clip"}), more);
    // Its seconds are billed beside those of the video, up to 15.
    let alone =
        |seconds: u32| quoted(Kind::Video, billed(json!({SOURCE: seconds, "duration": "4s"}))).unwrap();
    let (least, most) = (alone(1).price.unwrap(), alone(15).price.unwrap());
    assert_eq!(alone(40).price.unwrap(), most);
    let quote = quoted(Kind::Video, billed(open(json!({"duration": "4s"})))).unwrap();
    assert_eq!((quote.price, quote.cheapest, quote.bound.dearest), (None, Some(least), most));
    assert!(quote.bound.is_firm && least < most);
    assert_eq!(quote.body["options"][SOURCE], "job:clip");
    assert_eq!(reprice(Kind::Video, &quote.body, &catalog(), &Rules::builtin()).unwrap(), quote.cost());
    let notes: Vec<_> = quote.notes.iter().filter_map(|note| note.field.as_deref()).collect();
    assert!(!notes.iter().any(|field| field.ends_with(SOURCE)), "of neither end alone: {notes:?}");
    // Others need them, and cost the same.
    let quote = quoted(Kind::Video, longer("model-h3", open(json!({"duration": "5s"})))).unwrap();
    assert!(
        quote.price.is_some() && quote.formula.ends_with(", however long job:clip is"),
        "{}",
        quote.formula
    );
    // Both lengths may be open.
    let both = quoted(Kind::Video, billed(open(json!({"duration": "job:voice"})))).unwrap();
    assert!(both.cheapest == Some(least) && both.bound.dearest > most, "{both:?}");
    assert!(both.formula.ends_with(", by the length of job:voice and job:clip"), "{}", both.formula);
}

#[test]
fn the_length_of_a_source_video_is_sent_as_it_is_and_refused_where_it_is_too_long() {
    let fit = |model: &str, ms: u64| {
        let body = longer(model, json!({})).as_object().cloned().unwrap();
        let field = InputField::SourceVideoDurationSeconds;
        match fitting_length_of_body((Kind::Video, &body), field, Millis(ms), &catalog(), &Rules::builtin()) {
            Ok(length) => length.to_string(),
            Err(why) => why.to_string(),
        }
    };
    assert_eq!(fit("model-h3", 5_000), "5");
    assert_eq!(fit("model-h3", 5_042), "5.042");
    assert_eq!(fit("model-g-omni", 10_000), "10");
    assert_eq!(fit("model-g-omni", 10_001), "is 10.001 s long, and model-g-omni takes 10 at most");
    let wants = |fields: Value| wants_source_seconds(&request(fields), &catalog(), &Rules::builtin());
    assert!(wants(longer("model-h3", json!({}))) && wants(longer("model-g-omni", json!({}))));
    assert!(wants(billed(json!({}))) && !wants(longer("model-f-3", json!({}))));
    let spelled = with(longer("Model-H3", json!({})), json!({"mode": "Video to video"}));
    assert!(wants(spelled), "as its quote reads it");
}
