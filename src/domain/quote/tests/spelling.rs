//! Values in another spelling than the catalog's.

use serde_json::json;

use super::{check, quoted, request, sent, transcript, with};
use crate::domain::quote::{canonical_body, infer_kind};
use crate::domain::request::Kind;

fn video() -> serde_json::Value {
    json!({"model": "house-c1", "prompt": "x"})
}

fn with_option(name: &str, value: &str) -> serde_json::Value {
    with(video(), json!({"options": {name: value}}))
}

#[test]
fn a_value_that_can_mean_one_listed_value_is_read_as_that() {
    for (name, written, listed) in [
        ("duration", "5 s", "5s"),
        ("duration", "5sec", "5s"),
        ("duration", "5 Seconds", "5s"),
        ("duration", "5,0", "5s"),
        ("aspect_ratio", "16:09", "16:9"),
        ("aspect_ratio", "16:09:00", "16:9"),
        ("aspect_ratio", "09:16", "9:16"),
        ("aspect_ratio", "16x9", "16:9"),
        ("aspect_ratio", "16 / 9", "16:9"),
        ("resolution", "768 p", "768P"),
        ("resolution", "480", "480p"),
    ] {
        let fields = with_option(name, written);
        let quote =
            quoted(Kind::Video, fields.clone()).unwrap_or_else(|errors| panic!("{written}: {errors:?}"));
        assert_eq!(quote.body["options"][name], listed, "{written}");
        let notes: Vec<String> = quote.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes, [format!("options.{name}: \"{written}\" is read as {listed}")]);
        // What was written is what the row is: its key stays when a catalog begins or ends to list values.
        assert_eq!(canonical_body(Kind::Video, &request(fields))["options"][name].as_str(), Some(written));
    }
}

#[test]
fn what_is_listed_or_can_mean_more_than_one_value_is_not_read() {
    check(Kind::Video, with_option("duration", "5"), &transcript(Kind::Video, with_option("duration", "5s")));
    for (name, written) in [
        ("duration", "5,000"),
        ("duration", "00:05"),
        ("duration", "99 s"),
        ("duration", "soon"),
        ("aspect_ratio", "16:10"),
        ("aspect_ratio", "16:9:30"),
        ("aspect_ratio", "wide"),
        ("resolution", "8K"),
    ] {
        let said = transcript(Kind::Video, with_option(name, written));
        assert!(said.contains("found \"") && said.contains("takes"), "{written}: {said}");
    }
}

#[test]
fn ids_and_modes_are_read_in_any_case() {
    let body = sent(Kind::Video, with(video(), json!({"model": "House-C1", "mode": "Text to video"})));
    assert_eq!((body["model"].as_str(), body["mode"].as_str()), (Some("house-c1"), Some("text-to-video")));
    let body = sent(Kind::Image, json!({"model": "GI-2", "prompt": "x", "scene": "TEXT_TO_IMAGE"}));
    assert_eq!((body["model"].as_str(), body["scene"].as_str()), (Some("gi-2"), Some("text-to-image")));
    let by_model = request(json!({"model": "GI-2", "prompt": "x"}));
    assert_eq!(infer_kind(&by_model, &super::catalog(), &super::Rules::builtin()), Ok(Kind::Image));
}
