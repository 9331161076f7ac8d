//! The catalogs: what may be asked for and what it costs (document: "Video model catalog entry", "Image catalog
//! entry", "Music catalog entry", "Voice catalog").
//!
//! Every entry is kept twice: as it is served, untouched, and as the typed view the rules read. A recorded
//! catalog may carry fields nobody here knows; they are served as they came.

use std::collections::BTreeMap;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Stands for the media origin in `preview_url`.
const MEDIA_PLACEHOLDER: &str = "{media_url}";

/// `resolution or quality -> value`, in catalog order where order matters.
type Table<T> = BTreeMap<String, T>;

/// A price or a rate, read without going through binary fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amount(pub(crate) Decimal);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        Ok(Self(decimal(&number)))
    }
}

/// A JSON number, exactly as written. What is too large for a decimal is the largest one, what is too small
/// is 0.
pub(crate) fn decimal(number: &serde_json::Number) -> Decimal {
    let text = number.to_string();
    let exact = Decimal::from_str(&text).or_else(|_| Decimal::from_scientific(&text));
    exact.unwrap_or_else(|_| match number.as_f64() {
        Some(number) if number >= 1.0 => Decimal::MAX,
        Some(number) if number <= -1.0 => Decimal::MIN,
        _ => Decimal::ZERO,
    })
}

/// One mode of a video model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct VideoMode {
    #[serde(default)]
    pub(crate) durations: Vec<String>,
    #[serde(default)]
    pub(crate) resolutions: Vec<String>,
    #[serde(default)]
    pub(crate) aspect_ratios: Vec<String>,
    #[serde(default)]
    pub(crate) audio_toggle: bool,
    #[serde(default)]
    pub(crate) defaults: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) credits: Option<Table<Table<Amount>>>,
    #[serde(default)]
    pub(crate) credits_per_second: Option<Table<Amount>>,
    #[serde(default)]
    pub(crate) credits_per_second_with_video_input: Option<Table<Amount>>,
    #[serde(default)]
    pub(crate) pricing_note: Option<String>,
}

/// A video model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct VideoModel {
    pub(crate) id: String,
    pub(crate) modes: BTreeMap<String, VideoMode>,
    #[serde(default)]
    pub(crate) coming_soon: bool,
    #[serde(default)]
    pub(crate) max_prompt_length: Option<usize>,
}

/// One scene of an image model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ImageMode {
    #[serde(default)]
    pub(crate) aspect_ratios: Vec<String>,
    #[serde(default)]
    pub(crate) qualities: Vec<String>,
    #[serde(default)]
    pub(crate) credits: Option<Table<Amount>>,
    #[serde(default)]
    pub(crate) credits_per_generation: Option<Amount>,
    #[serde(default)]
    pub(crate) credits_by_resolution_and_aspect_ratio: Option<Table<Table<Table<Amount>>>>,
}

/// An image model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ImageModel {
    pub(crate) id: String,
    pub(crate) modes: BTreeMap<String, ImageMode>,
}

/// A voice.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Voice {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) recommended_model: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Voices {
    #[serde(default)]
    default_model: Option<String>,
    voices: Vec<Voice>,
}

/// How many inputs a model takes in a mode: least and most (document: "Input limits").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct InputLimits {
    pub(crate) images: (usize, usize),
    pub(crate) videos: (usize, usize),
}

/// All catalogs, as served and as read.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) video: Vec<VideoModel>,
    pub(crate) image: Vec<ImageModel>,
    pub(crate) music_model: String,
    voices: Voices,
    limits: BTreeMap<String, BTreeMap<String, InputLimits>>,
    served: BTreeMap<&'static str, Value>,
    served_voices: Value,
}

impl Catalog {
    /// The catalog that ships with the emulator.
    pub(crate) fn built_in() -> Result<Self, String> {
        let read = |name: &str, text: &str| {
            serde_json::from_str::<Value>(text).map_err(|error| format!("{name}: {error}"))
        };
        Self::from_parts(
            read("video", include_str!("catalog/video.json"))?,
            read("image", include_str!("catalog/image.json"))?,
            read("music", include_str!("catalog/music.json"))?,
            read("voices", include_str!("catalog/voices.json"))?,
        )
    }

    /// A recorded catalog: an object with any of `video`, `image`, `music` (lists of entries) and `voices` (the
    /// voice object). Each may also be the service's whole answer, envelope and all. What is missing is built in.
    pub(crate) fn recorded(text: &str) -> Result<Self, String> {
        let recorded: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Value::Object(mut recorded) = recorded else {
            return Err(String::from("a catalog file is an object with video, image, music and voices"));
        };
        if let Some(unknown) =
            recorded.keys().find(|k| !["video", "image", "music", "voices"].contains(&k.as_str()))
        {
            return Err(format!("unknown catalog {unknown:?}; known: video, image, music, voices"));
        }
        let base = Self::built_in()?;
        let mut part = |name: &str| recorded.remove(name).map(unwrap_envelope);
        let list = |part: Option<Value>, name: &str| match part {
            Some(value) => only_list(value).ok_or_else(|| format!("{name}: no list of models found")),
            None => Ok(base.served.get(name).cloned().unwrap_or_default()),
        };
        let (video, image) = (list(part("video"), "video")?, list(part("image"), "image")?);
        let music = list(part("music"), "music")?;
        Self::from_parts(video, image, music, part("voices").unwrap_or_else(|| base.served_voices.clone()))
    }

    fn from_parts(video: Value, image: Value, music: Value, voices: Value) -> Result<Self, String> {
        fn typed<T: serde::de::DeserializeOwned>(name: &str, value: &Value) -> Result<T, String> {
            T::deserialize(value).map_err(|error| format!("{name}: {error}"))
        }
        let limits = serde_json::from_str(include_str!("catalog/limits.json"))
            .map_err(|error| format!("limits: {error}"))?;
        let music_model = music.get(0).and_then(|m| m.get("id")).and_then(Value::as_str).unwrap_or("music");
        Ok(Self {
            video: typed("video", &video)?,
            image: typed("image", &image)?,
            music_model: music_model.to_owned(),
            voices: typed("voices", &voices)?,
            limits,
            served: BTreeMap::from([("video", video), ("image", image), ("music", music)]),
            served_voices: voices,
        })
    }

    /// `data` of `GET /api/v1/models`; an unknown type gives the video catalog.
    pub(crate) fn models(&self, kind: Option<&str>) -> Value {
        let kind = kind.filter(|kind| self.served.contains_key(kind)).unwrap_or("video");
        json!({"models": self.served.get(kind)})
    }

    /// `data` of `GET /api/v1/voices`.
    pub(crate) fn voices(&self, media_url: &str) -> Value {
        let mut voices = self.served_voices.clone();
        if let Some(list) = voices.get_mut("voices").and_then(Value::as_array_mut) {
            for voice in list {
                if let Some(Value::String(url)) = voice.get_mut("preview_url") {
                    *url = url.replace(MEDIA_PLACEHOLDER, media_url);
                }
            }
        }
        voices
    }

    pub(crate) fn video_model(&self, id: &str) -> Option<&VideoModel> {
        self.video.iter().find(|model| model.id == id && !model.coming_soon)
    }

    pub(crate) fn image_model(&self, id: &str) -> Option<&ImageModel> {
        self.image.iter().find(|model| model.id == id)
    }

    pub(crate) fn voice(&self, id: &str) -> Option<&Voice> {
        self.voices.voices.iter().find(|voice| voice.id == id)
    }

    /// The speech model of a voice that was not given one.
    pub(crate) fn speech_model<'a>(&'a self, voice: &'a Voice) -> &'a str {
        voice.recommended_model.as_deref().or(self.voices.default_model.as_deref()).unwrap_or("voice")
    }

    /// Whether any voice speaks with this model.
    pub(crate) fn knows_speech_model(&self, id: &str) -> bool {
        self.voices.default_model.as_deref() == Some(id)
            || self.voices.voices.iter().any(|voice| voice.recommended_model.as_deref() == Some(id))
    }

    /// The input-limits table; for models it does not name, the widest count any named model has.
    pub(crate) fn input_limits(&self, model: &str, mode: &str) -> InputLimits {
        if let Some(limits) = self.limits.get(model).and_then(|modes| modes.get(mode)) {
            return *limits;
        }
        match mode {
            "text-to-video" => InputLimits { images: (0, 0), videos: (0, 0) },
            "image-to-video" => InputLimits { images: (1, 2), videos: (0, 0) },
            "frames-to-video" => InputLimits { images: (2, 3), videos: (0, 0) },
            "reference-to-video" => InputLimits { images: (1, 9), videos: (0, 1) },
            _ => InputLimits { images: (0, 2), videos: (1, 1) },
        }
    }
}

fn unwrap_envelope(value: Value) -> Value {
    match value {
        Value::Object(mut map) if map.contains_key("code") && map.contains_key("data") => {
            map.remove("data").unwrap_or_default()
        }
        other => other,
    }
}

fn only_list(value: Value) -> Option<Value> {
    match value {
        Value::Array(_) => Some(value),
        Value::Object(map) => one_array(map),
        _ => None,
    }
}

fn one_array(map: Map<String, Value>) -> Option<Value> {
    let mut lists = map.into_iter().map(|(_, value)| value).filter(Value::is_array);
    lists.next().filter(|_| lists.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_has_the_23_models_of_the_document_and_their_modes() {
        let catalog = Catalog::built_in().unwrap();
        let modes = |id: &str| catalog.video_model(id).unwrap().modes.len();
        assert_eq!(catalog.video.len(), 23);
        assert_eq!((modes("model-h3"), modes("model-s-2-5"), modes("model-s-1-0-pro-fast")), (5, 5, 1));
        for model in &catalog.video {
            let table = catalog.limits.get(&model.id).unwrap();
            assert!(table.keys().eq(model.modes.keys()), "{}", model.id);
        }
    }

    #[test]
    fn an_unknown_type_returns_the_video_catalog() {
        let catalog = Catalog::built_in().unwrap();
        assert_eq!(catalog.models(Some("podcasts")), catalog.models(None));
        assert_ne!(catalog.models(Some("image")), catalog.models(None));
    }

    #[test]
    fn defaults_contain_only_the_keys_the_mode_has_and_only_its_values() {
        for model in Catalog::built_in().unwrap().video {
            for (name, mode) in model.modes {
                for (key, list) in [
                    ("duration", &mode.durations),
                    ("resolution", &mode.resolutions),
                    ("aspect_ratio", &mode.aspect_ratios),
                ] {
                    let default = mode.defaults.get(key).and_then(Value::as_str);
                    match default {
                        None => assert!(list.is_empty(), "{} {name} {key}", model.id),
                        Some(value) => assert!(list.iter().any(|v| v == value), "{} {name} {key}", model.id),
                    }
                }
            }
        }
    }

    #[test]
    fn a_recorded_catalog_replaces_what_it_holds_and_round_trips() {
        let recorded = json!({
            "video": {"code": 0, "message": "ok", "data": {"list": [
                {"id": "real-1", "modes": {"text-to-video": {"credits_per_second": {"720p": 1.5}}}, "extra": 1}]}},
        });
        let catalog = Catalog::recorded(&recorded.to_string()).unwrap();
        assert_eq!(catalog.models(None)["models"][0]["extra"], 1);
        assert!(catalog.image_model("gi-2").is_some());
        assert!(Catalog::recorded("[]").is_err());
        assert!(Catalog::recorded("{\"vidoe\": []}").is_err());
    }

    #[test]
    fn amounts_are_read_as_written() {
        let amount: Amount = serde_json::from_str("0.1").unwrap();
        assert_eq!(amount.0.to_string(), "0.1");
        for (text, bound) in [("1e300", Decimal::MAX), ("-1e300", Decimal::MIN), ("5e-324", Decimal::ZERO)] {
            assert_eq!(decimal(&serde_json::from_str(text).unwrap()), bound);
        }
    }
}
