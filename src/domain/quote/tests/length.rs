//! Requests that are to be as long as an output of another row.

use serde_json::{Value, json};

use super::{catalog, quoted, request, sent_options, transcript, with};
use crate::domain::quote::{Rules, fitting_length, fitting_length_of_body, milliseconds_of, reprice};
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
    assert!(quote.waivable.is_none(), "it may need more of an allowance than is left");
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
    let fit = |kind, fields: Value, seconds: Value| match fitting_length(
        kind,
        &request(fields),
        &seconds,
        &catalog(),
        &Rules::builtin(),
    ) {
        Ok(length) => length.to_string(),
        Err(why) => why.to_string(),
    };
    let clip = || video("house-c1", json!({}));
    assert_eq!(fit(Kind::Video, clip(), json!(4)), "\"4s\"");
    assert_eq!(fit(Kind::Video, clip(), json!(4.001)), "\"5s\"");
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
    let measured = fitting_length_of_body(Kind::Video, &body, Millis(4_290), &catalog(), &Rules::builtin());
    assert_eq!(measured.unwrap(), json!("5s"));
    assert_eq!(sent_options(Kind::Video, clip())["duration"], "job:voice");
}

#[test]
fn a_part_of_a_millisecond_is_a_whole_one() {
    assert_eq!(milliseconds_of(&json!("8s")), Some(Millis(8_000)));
    assert_eq!(milliseconds_of(&json!(4.2901)), Some(Millis(4_291)));
    assert_eq!(milliseconds_of(&json!("job:voice")), None);
}
