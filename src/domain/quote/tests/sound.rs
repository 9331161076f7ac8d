//! Music, speech, sound effects, and Shorts Studio.

use serde_json::{Value, json};

use super::{check, quoted, request, sent, sent_options, transcript};
use crate::domain::quote::{Catalog, Rules, quote};
use crate::domain::request::Kind;

fn music(options: Value) -> Value {
    json!({"prompt": "slow piano", "options": options})
}

fn speech(text: &str, options: Value) -> Value {
    json!({"text": text, "voice_id": "v-anna", "options": options})
}

fn effect(options: Value) -> Value {
    json!({"prompt": "rain", "options": options})
}

#[test]
fn music_costs_60_up_to_a_minute_and_a_credit_a_second_after() {
    check(Kind::Music, music(json!({})), "60 credits: the greater of 60 and 60 s = 60");
    check(Kind::Music, music(json!({"duration_seconds": 3})), "60 credits: the greater of 60 and 3 s = 60");
    let longer = music(json!({"duration_seconds": 60.01}));
    check(Kind::Music, longer, "61 credits: the greater of 60 and 60.01 s = 61");
    check(
        Kind::Music,
        music(json!({"duration_seconds": 300})),
        "300 credits: the greater of 60 and 300 s = 300",
    );
    assert_eq!(sent_options(Kind::Music, music(json!({}))), json!({"duration_seconds": 60}));
}

#[test]
fn music_length_is_a_number_from_3_to_300() {
    for (value, found) in [(json!(2.9), "2.9"), (json!(301), "301"), (json!("60"), "\"60\"")] {
        let expected = format!("options.duration_seconds: found {found}; a number from 3 to 300 is accepted");
        check(Kind::Music, music(json!({"duration_seconds": value})), &expected);
    }
}

#[test]
fn music_refuses_renamed_options() {
    for name in ["duration", "music_length_ms"] {
        let hint = "(hint: the length goes into duration_seconds)";
        check(
            Kind::Music,
            music(json!({name: 60})),
            &format!("options.{name}: is not accepted for music {hint}"),
        );
    }
}

#[test]
fn music_style_or_title_make_the_prompt_lyrics() {
    for name in ["style", "title"] {
        let said = transcript(Kind::Music, music(json!({name: "jazz"})));
        let note = format!("\nnote: options.{name}: with {name} the prompt is sung as lyrics");
        assert!(said.ends_with(&note), "{said}");
        let both = transcript(Kind::Music, music(json!({name: "jazz", "lyrics": "la"})));
        let expected = format!(
            "options.lyrics: stands beside {name}, with which the prompt itself is sung as lyrics \
             (hint: put the lyrics into prompt, or leave style and title out)"
        );
        assert_eq!(both, expected);
    }
    assert!(quoted(Kind::Music, music(json!({"lyrics": "la la"}))).is_ok());
}

#[test]
fn music_option_types() {
    check(
        Kind::Music,
        music(json!({"instrumental": "yes", "style": 7})),
        "options.instrumental: found \"yes\"; true or false is accepted\n\
         options.style: found 7; a text is accepted",
    );
}

#[test]
fn a_music_model_is_not_sent() {
    let fields = json!({"model": "tune-1", "prompt": "slow piano"});
    assert!(!sent(Kind::Music, fields.clone()).contains_key("model"));
    let quote = quoted(Kind::Music, fields).unwrap();
    assert_eq!(quote.model.as_deref(), Some("tune-1"));
    assert_eq!(quote.notes[0].message, "is not sent: the service takes no model for music");
    let unknown = transcript(Kind::Music, json!({"model": "tune-9", "prompt": "slow piano"}));
    assert!(unknown.starts_with("model: \"tune-9\" is not in the music catalog"), "{unknown}");
}

#[test]
fn music_base_price_is_the_catalogs() {
    let price = |models: Value| {
        let catalog = Catalog::of(&Value::Null, &Value::Null, &models, &Value::Null);
        let quote = quote(Some(Kind::Music), &request(music(json!({}))), &catalog, &Rules::builtin());
        quote.unwrap().price.map(|price| price.0)
    };
    assert_eq!(price(json!([{"id": "a", "credits": 80}])), Some(80));
    assert_eq!(price(json!([{"id": "a", "credits": 80}, {"id": "b", "credits": 80}])), Some(80));
    assert_eq!(price(json!([{"id": "a", "credits": 60}, {"id": "b", "credits": 80}])), None);
    assert_eq!(price(json!([{"id": "a"}])), Some(60));
    assert_eq!(price(json!(null)), Some(60));
}

#[test]
fn speech_costs_a_credit_per_20_characters_of_the_trimmed_text() {
    check(Kind::Speech, speech("  hi  ", json!({})), "1 credit: 2 characters cost the minimum of 1");
    for (characters, credits) in [(1, 1), (19, 1), (20, 1), (21, 2), (40, 2), (1000, 50), (1001, 51)] {
        let quote = quoted(Kind::Speech, speech(&"ü".repeat(characters), json!({}))).unwrap();
        assert_eq!(quote.price.unwrap().0, credits, "{characters}: {}", quote.formula);
    }
    assert_eq!(sent(Kind::Speech, speech("  hi  ", json!({})))["text"], "hi");
}

#[test]
fn speech_needs_text_and_a_known_voice() {
    check(
        Kind::Speech,
        json!({"prompt": "hello"}),
        "prompt: is not a field of speech, but of video, image, music or sound-effect \
         (hint: what is said goes into text)\n\
         text: is missing, and the service needs one\n\
         voice_id: is missing; speech needs a voice of the catalog (hint: `callsheet voices` lists them)",
    );
    check(
        Kind::Speech,
        json!({"text": "hello", "voice_id": "anna"}),
        "voice_id: \"anna\" is not in the voice catalog, which lists 2 (hint: did you mean v-anna?)",
    );
}

#[test]
fn speech_clamping_is_said_and_sent_as_asked() {
    let options = json!({"speed": 9, "stability": -1, "similarity_boost": 0.5});
    check(
        Kind::Speech,
        speech("hi", options.clone()),
        "1 credit: 2 characters cost the minimum of 1\n\
         note: options.speed: 9 is outside 0.25 to 4; the service makes it 4\n\
         note: options.stability: -1 is outside 0 to 1; the service makes it 0",
    );
    assert_eq!(sent_options(Kind::Speech, speech("hi", options.clone())), options);
    check(
        Kind::Speech,
        speech("hi", json!({"speed": "fast"})),
        "options.speed: found \"fast\"; a number is accepted",
    );
}

#[test]
fn sound_effects_cost_5() {
    check(
        Kind::SoundEffect,
        effect(json!({"duration_seconds": 22, "prompt_influence": 0})),
        "5 credits: each sound effect: 5",
    );
}

#[test]
fn sound_effect_ranges() {
    check(
        Kind::SoundEffect,
        effect(json!({"duration_seconds": 0.4, "prompt_influence": 1.1})),
        "options.duration_seconds: found 0.4; a number from 0.5 to 22 is accepted\n\
         options.prompt_influence: found 1.1; a number from 0 to 1 is accepted",
    );
}

#[test]
fn plan_allowances_do_not_apply_to_sound() {
    for (kind, fields) in [
        (Kind::Music, music(json!({}))),
        (Kind::Speech, speech("hi", json!({}))),
        (Kind::SoundEffect, effect(json!({}))),
    ] {
        assert_eq!(quoted(kind, fields).unwrap().waivable, None);
    }
}

#[test]
fn shorts_studio_is_passed_through_unpriced() {
    let options = json!({"taskId": "t", "style": null, "parts": []});
    assert_eq!(Value::Object(sent(Kind::ShortsStudio, json!({"options": options}))), options);
    check(
        Kind::ShortsStudio,
        json!({"options": {"taskId": "t"}}),
        "unpriced: the service does not document its price",
    );
    check(
        Kind::ShortsStudio,
        json!({"prompt": "x"}),
        "prompt: is not a field of shorts-studio, but of video, image, music or sound-effect \
         (hint: the whole body of shorts-studio stands under options)",
    );
}
