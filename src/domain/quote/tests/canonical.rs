//! The identity of requests. The golden bodies below are frozen: idempotency keys are derived from
//! them, and a change here buys everything again. If one of these tests fails, the code is wrong.

use serde_json::{Value, json};

use super::request;
use crate::domain::quote::canonical_body;
use crate::domain::request::Kind;

#[track_caller]
fn golden(kind: Kind, fields: Value, expected: &str) {
    let body = canonical_body(kind, &request(fields));
    assert_eq!(serde_json::to_string(&body).unwrap(), expected);
}

#[test]
fn golden_video() {
    golden(
        Kind::Video,
        json!({"model": "house-c1", "prompt": "  a fox\n", "options": {"resolution": "768P", "duration": 8, "seed": 7.0,
            "aspect_ratio": "Auto", "camera": {"zoom": 2.0, "tilt": null}, "audio": false, "none": null, "empty": []}}),
        r#"{"mode":"text-to-video","model":"house-c1","options":{"aspect_ratio":"Auto","audio":false,"camera":{"tilt":null,"zoom":2},"duration":"8s","resolution":"768p","seed":7},"prompt":"a fox"}"#,
    );
    golden(
        Kind::Video,
        json!({"model": "m", "prompt": "x", "image_urls": ["https://h.example/1.png", "https://h.example/2.png"],
            "video_urls": ["https://h.example/v.mp4"], "options": {"source_video_duration_seconds": 7.50}}),
        r#"{"image_urls":["https://h.example/1.png","https://h.example/2.png"],"mode":"image-to-video","model":"m","options":{"source_video_duration_seconds":7.5},"prompt":"x","video_urls":["https://h.example/v.mp4"]}"#,
    );
    golden(
        Kind::Video,
        json!({"model": "m", "prompt": "x", "video_urls": ["https://h.example/v.mp4"]}),
        r#"{"mode":"video-to-video","model":"m","prompt":"x","video_urls":["https://h.example/v.mp4"]}"#,
    );
}

#[test]
fn golden_image() {
    golden(
        Kind::Image,
        json!({"model": "gi-2", "prompt": "a fox", "options": {"quality": "High", "size": "1024x1024", "aspect_ratio": "16:9"}}),
        r#"{"model":"gi-2","options":{"aspect_ratio":"16:9","quality":"high","size":"1024x1024"},"prompt":"a fox","scene":"text-to-image"}"#,
    );
    golden(
        Kind::Image,
        json!({"model": "gi-2", "prompt": "a fox", "image_urls": ["https://h.example/i.png"], "options": {"resolution": "2K"}}),
        r#"{"image_urls":["https://h.example/i.png"],"model":"gi-2","options":{"resolution":"2k"},"prompt":"a fox","scene":"image-to-image"}"#,
    );
}

#[test]
fn golden_sound() {
    golden(
        Kind::Music,
        json!({"model": "tune-1", "prompt": " slow piano ", "options": {"duration_seconds": 60.0, "instrumental": true}}),
        r#"{"options":{"duration_seconds":60,"instrumental":true},"prompt":"slow piano"}"#,
    );
    golden(
        Kind::Speech,
        json!({"text": " Hello. ", "voice_id": "v-anna", "options": {"speed": 1.0, "stability": 0.5}}),
        r#"{"options":{"speed":1,"stability":0.5},"text":"Hello.","voice_id":"v-anna"}"#,
    );
    golden(
        Kind::SoundEffect,
        json!({"prompt": "rain", "options": {"duration_seconds": 0.5}}),
        r#"{"options":{"duration_seconds":0.5},"prompt":"rain"}"#,
    );
    golden(
        Kind::ShortsStudio,
        json!({"options": {"taskId": "t", "style": null, "parts": [], "n": 1.0}}),
        r#"{"n":1.0,"parts":[],"style":null,"taskId":"t"}"#,
    );
}

#[test]
fn spellings_that_the_service_reads_alike_are_one_request() {
    let body = |fields: Value| canonical_body(Kind::Video, &request(fields));
    let one = body(json!({"model": "m", "prompt": "x", "options": {"duration": "8s", "resolution": "4K"}}));
    for duration in [json!("8"), json!(8), json!(8.0), json!("8S")] {
        let options = json!({"duration": duration, "resolution": "4k", "audio": null});
        assert_eq!(
            body(json!({"model": "m", "prompt": " x", "mode": "text-to-video", "options": options})),
            one
        );
    }
}

#[test]
fn what_the_service_tells_apart_stays_apart() {
    let body =
        |options: Value| canonical_body(Kind::Video, &request(json!({"prompt": "x", "options": options})));
    assert_ne!(body(json!({"aspect_ratio": "Auto"})), body(json!({"aspect_ratio": "auto"})));
    assert_ne!(body(json!({"seed": "8"})), body(json!({"seed": 8})));
    assert_ne!(body(json!({"audio": false})), body(json!({})));
    let large = |seed: f64| body(json!({"seed": seed}));
    assert_ne!(large(1e300), large(2e300));
}
