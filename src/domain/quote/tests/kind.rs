//! The kind of rows that leave it out.

use serde_json::{Value, json};

use super::{catalog, request};
use crate::domain::quote::{Rules, infer_kind, quote};
use crate::domain::request::Kind;

fn inferred(fields: Value) -> Result<Kind, String> {
    infer_kind(&request(fields), &catalog(), &Rules::builtin()).map_err(|finding| finding.message)
}

#[test]
fn the_catalog_that_lists_the_model_decides() {
    assert_eq!(inferred(json!({"model": "house-c1"})), Ok(Kind::Video));
    assert_eq!(inferred(json!({"model": "gi-2"})), Ok(Kind::Image));
    assert_eq!(inferred(json!({"model": "tune-1"})), Ok(Kind::Music));
    assert_eq!(inferred(json!({"model": "model-o-2"})), Ok(Kind::Video), "withdrawn, and still known");
}

#[test]
fn fields_of_one_kind_decide() {
    assert_eq!(inferred(json!({"text": "hi"})), Ok(Kind::Speech));
    assert_eq!(inferred(json!({"video_urls": ["https://h.example/v.mp4"]})), Ok(Kind::Video));
    assert_eq!(inferred(json!({"prompt": "x", "scene": "text-to-image"})), Ok(Kind::Image));
    assert_eq!(inferred(json!({"prompt": "x", "options": {"lyrics": "la"}})), Ok(Kind::Music));
    assert_eq!(inferred(json!({"prompt": "x", "options": {"prompt_influence": 1}})), Ok(Kind::SoundEffect));
    assert_eq!(inferred(json!({"model": "?", "prompt": "x", "options": {"audio": true}})), Ok(Kind::Video));
}

#[test]
fn an_undecided_kind_says_between_which() {
    let both = inferred(json!({"prompt": "x", "options": {"duration_seconds": 5}})).unwrap_err();
    assert_eq!(
        both,
        "is missing, and the fields match more than one kind; music or sound-effect is accepted"
    );
    let none = inferred(json!({"prompt": "x", "text": "y"})).unwrap_err();
    assert!(none.starts_with("is missing, and the fields match no kind; video, image"), "{none}");
}

#[test]
fn a_contradiction_between_model_and_fields_is_found_by_the_kind() {
    let row = request(json!({"model": "gi-2", "prompt": "x", "mode": "text-to-video"}));
    let errors = quote(None, &row, &catalog(), &Rules::builtin()).unwrap_err();
    assert_eq!(errors[0].field.as_deref(), Some("mode"));
}
