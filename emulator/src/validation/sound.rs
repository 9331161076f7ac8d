//! `POST /api/v1/music`, `/speech`, `/sound-effects`, and the little that is known of `/shorts-studio`.

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::{Body, Options, Order, ProviderRejection, json_number, millis, refuse_prohibited};
use crate::catalog::Catalog;
use crate::errors::ApiError;
use crate::pricing;
use crate::tasks::{Kind, Shape};

const EFFECTS_MODEL: &str = "sound-effects-1";
/// The document names no default length of a sound effect.
const EFFECT_SECONDS: u64 = 4;

pub(super) fn music(catalog: &Catalog, body: &Body<'_>) -> Result<Order, ApiError> {
    let prompt = body.required("prompt")?;
    let options = body.options()?;
    refuse_prohibited(prompt)?;
    for renamed in ["duration", "music_length_ms"] {
        if options.get(renamed).is_some() {
            return Err(ApiError::invalid(format!(
                "options.{renamed} is not supported; use options.duration_seconds"
            )));
        }
    }
    let seconds = options.number_within("duration_seconds", "3", "300")?.unwrap_or(Decimal::from(60));
    options.boolean("instrumental")?;
    for words in ["style", "title", "lyrics"] {
        if let Some(text) = options.text(words)? {
            refuse_prohibited(text)?;
        }
    }
    Ok(Order {
        model: catalog.music_model().to_owned(),
        price_credits: pricing::music(catalog.music_base(), seconds),
        ..order(
            Kind::Music,
            "text-to-music",
            prompt,
            seconds,
            with(options, "duration_seconds", json_number(seconds)),
        )
    })
}

pub(super) fn speech(catalog: &Catalog, body: &Body<'_>) -> Result<Order, ApiError> {
    let text = body.required("text")?;
    let voice_id = body.required("voice_id")?;
    let options = body.options()?;
    refuse_prohibited(text)?;
    let Some(voice) = catalog.voice(voice_id) else {
        return Err(ApiError::invalid(format!(
            "unknown voice_id: {voice_id}. Use an id from GET /api/v1/voices."
        )));
    };
    let model = options.text("model_id")?.filter(|id| !id.is_empty());
    let speed = clamped(options, "speed", Decimal::new(25, 2), Decimal::from(4))?;
    let mut filled = options.to_map();
    for (name, value) in [
        ("speed", speed),
        ("stability", clamped(options, "stability", Decimal::ZERO, Decimal::ONE)?),
        ("similarity_boost", clamped(options, "similarity_boost", Decimal::ZERO, Decimal::ONE)?),
    ] {
        if let Some(value) = value {
            filled.insert(name.to_owned(), json_number(value));
        }
    }
    filled.insert(String::from("voice_id"), Value::String(voice_id.to_owned()));
    let model_id = model.unwrap_or_else(|| catalog.speech_model(voice));
    filled.insert(String::from("model_id"), Value::String(model_id.to_owned()));
    let characters = text.chars().count();
    let seconds = spoken_seconds(characters, speed.unwrap_or(Decimal::ONE));
    let unknown = model.filter(|id| !catalog.knows_speech_model(id));
    let provider_rejection =
        unknown.map(|id| ProviderRejection::AtSubmission(format!("unknown model_id: {id}")));
    Ok(Order {
        model: model_id.to_owned(),
        price_credits: pricing::speech(catalog.speech_rate(), characters),
        provider_rejection,
        ..order(Kind::Speech, "text-to-speech", text, seconds, filled)
    })
}

/// Out-of-range values are clamped, not refused.
fn clamped(
    options: Options<'_>,
    name: &str,
    low: Decimal,
    high: Decimal,
) -> Result<Option<Decimal>, ApiError> {
    Ok(options.number(name)?.map(|value| value.clamp(low, high)))
}

/// About 14 characters are spoken in a second.
fn spoken_seconds(characters: usize, speed: Decimal) -> Decimal {
    let characters = Decimal::from(characters.min(10_000));
    characters.checked_div(Decimal::from(14) * speed).unwrap_or(Decimal::ONE).max(Decimal::ONE).round_dp(2)
}

pub(super) fn effect(catalog: &Catalog, body: &Body<'_>) -> Result<Order, ApiError> {
    let prompt = body.required("prompt")?;
    let options = body.options()?;
    refuse_prohibited(prompt)?;
    let seconds = options.number_within("duration_seconds", "0.5", "22")?;
    options.number_within("prompt_influence", "0", "1")?;
    let length = seconds.unwrap_or(Decimal::from(EFFECT_SECONDS));
    Ok(Order {
        model: EFFECTS_MODEL.to_owned(),
        price_credits: catalog.rules.sound_effect_credits,
        ..order(Kind::SoundEffect, "text-to-sound-effects", prompt, length, options.to_map())
    })
}

/// Bodies of Shorts Studio are not documented: any object is taken.
pub(super) fn shorts_studio(catalog: &Catalog, body: &Body<'_>) -> Order {
    let prompt = body.get("prompt").and_then(Value::as_str).unwrap_or("Shorts Studio").trim();
    let length = body.get("duration").and_then(Value::as_u64).unwrap_or(5).clamp(1, 15);
    Order {
        model: String::from("shorts-studio"),
        price_credits: catalog.rules.shorts_studio_credits,
        shape: Shape { ratio: (9, 16), pixels: None, length_ms: millis(Decimal::from(length)) },
        ..order(Kind::ShortsStudio, "shorts-studio", prompt, Decimal::from(length), body.fields.clone())
    }
}

fn with(options: Options<'_>, name: &str, value: Value) -> Map<String, Value> {
    let mut filled = options.to_map();
    filled.insert(name.to_owned(), value);
    filled
}

fn order(kind: Kind, scene: &str, prompt: &str, seconds: Decimal, mut options: Map<String, Value>) -> Order {
    options.insert(String::from("mode"), Value::String(scene.to_owned()));
    Order {
        kind,
        model: String::new(),
        scene: scene.to_owned(),
        prompt: prompt.to_owned(),
        options,
        price_credits: 0,
        claim: None,
        shape: Shape { ratio: (1, 1), pixels: None, length_ms: millis(seconds) },
        provider_rejection: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::order as check;
    use super::*;

    fn run(kind: Kind, body: &Value) -> Result<Order, String> {
        check(&Catalog::built_in().unwrap(), kind, body).map_err(|error| error.message)
    }

    #[test]
    fn music_takes_duration_seconds_from_3_to_300_and_defaults_to_60() {
        let with = |options: Value| run(Kind::Music, &json!({"prompt": "x", "options": options}));
        assert_eq!(with(json!({})).unwrap().price_credits, 60);
        assert_eq!(with(json!({"duration_seconds": 60.5})).unwrap().price_credits, 61);
        assert_eq!(with(json!({"duration_seconds": 300})).unwrap().shape.length_ms, 300_000);
        for bad in [json!(2.9), json!(301), json!("60"), json!(1e300)] {
            assert_eq!(
                with(json!({"duration_seconds": bad})).unwrap_err(),
                "options.duration_seconds must be a number from 3 to 300"
            );
        }
        assert_eq!(
            with(json!({"duration": 60})).unwrap_err(),
            "options.duration is not supported; use options.duration_seconds"
        );
        assert!(with(json!({"music_length_ms": 60})).is_err());
    }

    #[test]
    fn speech_counts_the_trimmed_text_and_knows_its_voices() {
        let with = |text: &str, voice: &str| run(Kind::Speech, &json!({"text": text, "voice_id": voice}));
        assert_eq!(with(&format!("  {}  ", "é".repeat(20)), "aria").unwrap().price_credits, 1);
        assert_eq!(with(&"x".repeat(21), "aria").unwrap().price_credits, 2);
        assert!(with("hello", "nobody").unwrap_err().starts_with("unknown voice_id: nobody. "));
        assert_eq!(run(Kind::Speech, &json!({"voice_id": "aria"})).unwrap_err(), "text is required");
        assert_eq!(run(Kind::Speech, &json!({"text": "x"})).unwrap_err(), "voice_id is required");
    }

    #[test]
    fn a_voice_without_a_recommended_model_speaks_with_the_default_one() {
        let model = |voice: &str| run(Kind::Speech, &json!({"text": "x", "voice_id": voice})).unwrap().model;
        assert_eq!(model("bram"), "voice-turbo-2");
        assert_eq!(model("esme"), "voice-multilingual-2");
        assert_eq!(model("lin"), "voice-multilingual-2");
    }

    #[test]
    fn speech_clamps_and_an_unknown_model_fails_at_the_provider() {
        let options = json!({"speed": 9, "stability": -1, "similarity_boost": 2, "model_id": "nope"});
        let order = run(Kind::Speech, &json!({"text": "x", "voice_id": "aria", "options": options})).unwrap();
        assert_eq!(
            (&order.options["speed"], &order.options["stability"], &order.options["similarity_boost"]),
            (&json!(4), &json!(0), &json!(1))
        );
        assert!(matches!(order.provider_rejection, Some(ProviderRejection::AtSubmission(_))));
    }

    #[test]
    fn sound_effects_cost_5_and_hold_their_ranges() {
        let with = |options: Value| run(Kind::SoundEffect, &json!({"prompt": "rain", "options": options}));
        assert_eq!(with(json!({"duration_seconds": 22, "prompt_influence": 1})).unwrap().price_credits, 5);
        assert_eq!(
            with(json!({"duration_seconds": 0.4})).unwrap_err(),
            "options.duration_seconds must be a number from 0.5 to 22"
        );
        assert_eq!(
            with(json!({"prompt_influence": 1.1})).unwrap_err(),
            "options.prompt_influence must be a number from 0 to 1"
        );
    }

    #[test]
    fn prohibited_wording_is_caught_inside_negated_sentences() {
        for prompt in ["no deepfake please", "not a Face-Swap", "without impersonating anyone"] {
            let said = run(Kind::SoundEffect, &json!({"prompt": prompt})).unwrap_err();
            assert_eq!(said, "input content was rejected by safety filters");
        }
        assert!(run(Kind::SoundEffect, &json!({"prompt": "a surface: swap faces down"})).is_err());
        assert!(
            run(Kind::SoundEffect, &json!({"prompt": "a surface, swapped"})).is_ok(),
            "it begins no word"
        );
    }
}
