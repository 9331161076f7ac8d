//! What a request without an exact price may cost at most, and what is priced again later.

use serde_json::{Value, json};

use super::{catalog, quoted, request, with};
use crate::domain::credits::Credits;
use crate::domain::quote::{Catalog, Rules, Surcharges, quote, reprice};
use crate::domain::request::Kind;

/// `at most 84`, `84 or more`, or the price.
#[track_caller]
fn check(kind: Kind, fields: Value, expected: &str) {
    let quote = quoted(kind, fields).unwrap();
    let dearest = quote.bound.dearest.0;
    let said = match (quote.price, quote.bound.is_firm) {
        (Some(price), is_firm) => {
            assert!(is_firm && price.0 == dearest, "a price bounds itself");
            format!("{}", price.0)
        }
        (None, true) => format!("at most {dearest}"),
        (None, false) => format!("{dearest} or more"),
    };
    assert_eq!(said, expected, "{}", quote.formula);
}

#[test]
fn exact_pixels_cost_at_most_the_dearest_ratio_and_resolution_at_their_quality() {
    let size = |quality: &str| {
        let options = json!({"size": "3840x2160", "quality": quality});
        json!({"model": "gi-2-5", "prompt": "x", "options": options})
    };
    check(Kind::Image, size("Max"), "at most 84");
    check(Kind::Image, size("medium"), "at most 20");
    check(Kind::Image, size("Low"), "2");
}

#[test]
fn a_quality_that_nothing_chooses_is_bounded_by_the_dearest() {
    let video = |duration: &str| json!({"model": "model-s-1-0-pro", "prompt": "x", "options": {"duration": duration}});
    check(Kind::Video, video("5s"), "14");
    check(Kind::Video, video("10s"), "at most 30");
}

#[test]
fn source_seconds_that_nobody_speaks_of_are_bounded_by_what_there_are() {
    let entry = json!([{"id": "vendor/a", "modes": {"video-to-video": {
        "durations": ["5s", "10s"], "resolutions": ["720p"], "aspect_ratios": [],
        "credits_per_second": {"720p": 3}, "defaults": {"duration": "5s", "resolution": "720p"},
    }}}]);
    let catalog = Catalog::of(&entry, &json!([]), &json!([]), &Value::Null);
    let fields = json!({"model": "vendor/a", "prompt": "x", "video_urls": ["https://h.example/v.mp4"],
        "options": {"source_video_duration_seconds": 7.5}});
    let quote = quote(Some(Kind::Video), &request(fields), &catalog, &Rules::builtin()).unwrap();
    assert_eq!(
        (quote.price, quote.bound.dearest, quote.bound.is_firm),
        (None, Credits(38), true),
        "12.5 x 3"
    );
}

#[test]
fn what_the_catalog_does_not_price_is_bounded_by_nothing() {
    check(Kind::Image, json!({"model": "x-labelled", "prompt": "x"}), "0 or more");
    check(Kind::ShortsStudio, json!({"options": {"anything": 1}}), "0 or more");
    let broken =
        json!({"model": "model-half-broken", "prompt": "x", "image_urls": ["https://h.example/i.png"]});
    check(Kind::Video, broken, "0 or more");
}

#[test]
fn a_note_about_audio_that_is_not_understood_leaves_the_price_open_upwards() {
    let entry = json!([{"id": "a", "modes": {"text-to-video": {
        "durations": ["5s"], "resolutions": [], "aspect_ratios": [], "audio_toggle": true,
        "credits": {"5s": 30}, "pricing_note": "audio costs more", "defaults": {"duration": "5s"},
    }}}]);
    let catalog = Catalog::of(&entry, &json!([]), &json!([]), &Value::Null);
    let fields = json!({"model": "a", "prompt": "x", "options": {"audio": true}});
    let quote = quote(Some(Kind::Video), &request(fields), &catalog, &Rules::builtin()).unwrap();
    assert_eq!((quote.price, quote.bound.dearest, quote.bound.is_firm), (None, Credits(60), false));
}

fn house(options: Value) -> Value {
    with(json!({"model": "house-c1", "prompt": "x"}), json!({"options": options}))
}

#[test]
fn a_price_that_changed_is_the_new_one_when_a_body_is_priced_again() {
    let accepted = quoted(Kind::Video, house(json!({}))).unwrap();
    assert_eq!(accepted.price, Some(Credits(10)));
    let mut parts: Value = serde_json::from_str(include_str!("../fixtures/catalog.json")).unwrap();
    let text = parts["video"].to_string().replace(
        r#""credits_per_second":{"480p":2,"768P":2}"#,
        r#""credits_per_second":{"480p":4,"768P":4}"#,
    );
    let doubled: Value = serde_json::from_str(&text).unwrap();
    assert_ne!(doubled, parts["video"]);
    parts["video"] = doubled;
    let dearer = Catalog::of(&parts["video"], &parts["image"], &parts["music"], &parts["voices"]);
    let again = reprice(Kind::Video, &accepted.body, &dearer, &Rules::builtin()).unwrap();
    assert_eq!(again.price, Some(Credits(20)));
}

#[test]
fn a_model_that_is_gone_has_no_price_and_says_why() {
    let accepted = quoted(Kind::Video, house(json!({}))).unwrap();
    let other = json!([{"id": "other", "modes": {}}]);
    let without = Catalog::of(&other, &json!([]), &json!([]), &Value::Null);
    let gone = reprice(Kind::Video, &accepted.body, &without, &Rules::builtin()).unwrap_err();
    assert_eq!(gone.message, "\"house-c1\" is not in the video catalog, which lists 1");
}

#[test]
fn what_was_charged_above_the_catalog_is_planned_for_the_same_cell_until_the_catalog_changes() {
    let rules = Rules::builtin();
    let plain = quoted(Kind::Video, house(json!({}))).unwrap();
    let mut surcharges = Surcharges::default();
    assert!(surcharges.learn(&plain.cell, Credits(10), Credits(13)));
    let charged = Catalog { surcharges, ..catalog() };
    let dearer =
        |options: Value| quote(Some(Kind::Video), &request(house(options)), &charged, &rules).unwrap();
    let same = dearer(json!({}));
    assert_eq!((same.price, same.listed), (Some(Credits(13)), Some(Credits(10))));
    assert_eq!(same.formula, "5 s x 2/s = 10, and 13 as 13 was charged for 10 before");
    let note = "the catalog's price is 10, but 13 was charged for 10 before: 13 is planned";
    assert!(same.notes.iter().any(|said| said.message == note), "{:?}", same.notes);
    // The same rate for another length; another resolution is another cell.
    assert_eq!(dearer(json!({"duration": "10s"})).price, Some(Credits(26)));
    assert_eq!(dearer(json!({"resolution": "480p"})).price, Some(Credits(10)));
    // The catalog's own number changes: what was charged for the old one says nothing any more.
    let mut changed = charged.clone();
    let entry = json!([{"id": "house-c1", "modes": {"text-to-video": {
        "durations": ["5s"], "resolutions": ["768P"], "aspect_ratios": [], "credits_per_second": {"768P": 3},
        "defaults": {"duration": "5s", "resolution": "768P"},
    }}}]);
    changed.read(crate::domain::quote::CatalogPart::Video, &entry);
    let after = quote(Some(Kind::Video), &request(house(json!({}))), &changed, &rules).unwrap();
    assert_eq!(after.price, Some(Credits(15)));
}
