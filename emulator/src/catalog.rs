//! The catalogs: what may be asked for and what it costs (document: "Video model catalog entry", "Image catalog
//! entry", "Music catalog entry", "Voice catalog").
//!
//! Every entry is kept twice: as it is served, untouched, and as the typed view the rules read. A recorded
//! catalog may carry fields nobody here knows; they are served as they came.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::account;

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

/// A music model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MusicModel {
    #[serde(default)]
    pub(crate) id: Option<String>,
    /// The base price; the document's where it is missing.
    #[serde(default)]
    pub(crate) credits: Option<Amount>,
}

#[derive(Debug, Clone, Deserialize)]
struct Voices {
    #[serde(default)]
    default_model: Option<String>,
    #[serde(default)]
    characters_per_credit: Option<Amount>,
    #[serde(default)]
    minimum_credits: Option<Amount>,
    voices: Vec<Voice>,
}

/// What speech costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpeechRate {
    pub(crate) characters_per_credit: Decimal,
    pub(crate) minimum_credits: Decimal,
}

/// What a catalog file says that no catalog of the service carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rules {
    /// Model ids of the catalog, each with the id of the document whose rules it has: input counts, billed source
    /// seconds, plan allowances.
    pub(crate) inherit: BTreeMap<String, String>,
    /// The price of a sound effect.
    pub(crate) sound_effect_credits: u64,
    /// The price of a Shorts Studio task. The document names none.
    pub(crate) shorts_studio_credits: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { inherit: BTreeMap::new(), sound_effect_credits: 5, shorts_studio_credits: 20 }
    }
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
    pub(crate) music: Vec<MusicModel>,
    pub(crate) rules: Rules,
    voices: Voices,
    limits: BTreeMap<String, BTreeMap<String, InputLimits>>,
    served: BTreeMap<&'static str, Value>,
    served_voices: Value,
}

/// The built-in catalog; a process with many emulators reads it once.
static BUILT_IN: LazyLock<Result<Arc<Catalog>, String>> =
    LazyLock::new(|| Catalog::read_built_in().map(Arc::new));

impl Catalog {
    /// The catalog that ships with the emulator.
    pub(crate) fn built_in() -> Result<Arc<Self>, String> {
        BUILT_IN.clone()
    }

    fn read_built_in() -> Result<Self, String> {
        let read = |name: &str, text: &str| {
            serde_json::from_str::<Value>(text).map_err(|error| format!("{name}: {error}"))
        };
        Self::from_parts(
            read("video", include_str!("catalog/video.json"))?,
            read("image", include_str!("catalog/image.json"))?,
            read("music", include_str!("catalog/music.json"))?,
            read("voices", include_str!("catalog/voices.json"))?,
            Rules::default(),
        )
    }

    /// A recorded catalog: an object with any of `video`, `image`, `music` (lists of entries) and `voices` (the
    /// voice object). Each may also be the service's whole answer, envelope and all. What is missing is built in.
    /// `rules` says what no catalog carries (see [`Rules`]), and `multiply` multiplies all prices.
    pub(crate) fn recorded(text: &str) -> Result<Self, String> {
        Self::built_in()?.replaced(text)
    }

    /// This catalog with what a recorded one holds in place of its own.
    pub(crate) fn replaced(&self, text: &str) -> Result<Self, String> {
        let recorded: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Value::Object(mut recorded) = recorded else {
            return Err(String::from("a catalog file is an object with video, image, music and voices"));
        };
        if let Some(unknown) = recorded.keys().find(|name| !PARTS.contains(&name.as_str())) {
            return Err(format!("unknown catalog {unknown:?}; known: {}", PARTS.join(", ")));
        }
        let mut part = |name: &str| recorded.remove(name).map(unwrap_envelope);
        let list = |part: Option<Value>, name: &str| match part {
            Some(value) => only_list(value).ok_or_else(|| format!("{name}: no list of models found")),
            None => Ok(self.served.get(name).cloned().unwrap_or_default()),
        };
        let (mut video, mut image) = (list(part("video"), "video")?, list(part("image"), "image")?);
        let mut music = list(part("music"), "music")?;
        let mut voices = part("voices").unwrap_or_else(|| self.served_voices.clone());
        let rules = match part("rules") {
            Some(rules) => typed("rules", &rules)?,
            None => self.rules.clone(),
        };
        if let Some(factor) = part("multiply") {
            let Amount(factor) = typed("multiply", &factor)?;
            for catalog in [&mut video, &mut image, &mut music, &mut voices] {
                multiply(catalog, factor, false)
                    .ok_or("multiply: a price becomes more than can be counted")?;
            }
        }
        Self::from_parts(video, image, music, voices, rules)
    }

    /// What [`Catalog::replaced`] takes, for all that is served.
    pub(crate) fn parts(&self, media_url: &str) -> Value {
        let mut parts = json!({"voices": self.voices(media_url), "rules": self.rules});
        for (name, list) in &self.served {
            parts[*name] = list.clone();
        }
        parts
    }

    fn from_parts(
        video: Value,
        image: Value,
        music: Value,
        voices: Value,
        rules: Rules,
    ) -> Result<Self, String> {
        let limits: BTreeMap<String, BTreeMap<String, InputLimits>> =
            serde_json::from_str(include_str!("catalog/limits.json"))
                .map_err(|error| format!("limits: {error}"))?;
        let known = |id: &String| limits.contains_key(id) || account::may_cover_image(id);
        if let Some(unknown) = rules.inherit.values().find(|id| !known(id)) {
            return Err(format!("rules: inherit: the document has no rules for {unknown:?}"));
        }
        Ok(Self {
            video: typed("video", &video)?,
            image: typed("image", &image)?,
            music: typed("music", &music)?,
            voices: typed("voices", &voices)?,
            rules,
            limits,
            served: BTreeMap::from([("video", video), ("image", image), ("music", music)]),
            served_voices: voices,
        })
    }

    /// The id of the document whose rules a model has: its own, unless the catalog file says another.
    pub(crate) fn ruled_as<'a>(&'a self, id: &'a str) -> &'a str {
        self.rules.inherit.get(id).map_or(id, String::as_str)
    }

    /// The list in `data` of `GET /api/v1/models`; an unknown type gives the video catalog.
    pub(crate) fn models(&self, kind: Option<&str>) -> &Value {
        let kind = kind.filter(|kind| self.served.contains_key(kind)).unwrap_or("video");
        self.served.get(kind).unwrap_or(&Value::Null)
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

    /// The music model that the service runs: its first.
    pub(crate) fn music_model(&self) -> &str {
        self.music.first().and_then(|model| model.id.as_deref()).unwrap_or("music")
    }

    /// The base price of music: the catalog's, or else the document's.
    pub(crate) fn music_base(&self) -> Decimal {
        self.music.first().and_then(|model| model.credits).map_or(Decimal::from(60), |amount| amount.0)
    }

    /// What speech costs: the catalog's numbers, or else the document's.
    pub(crate) fn speech_rate(&self) -> SpeechRate {
        let positive = |amount: &Amount| amount.0 > Decimal::ZERO;
        let per_credit = self.voices.characters_per_credit.filter(positive);
        SpeechRate {
            characters_per_credit: per_credit.map_or(Decimal::from(20), |amount| amount.0),
            minimum_credits: self.voices.minimum_credits.map_or(Decimal::ONE, |amount| amount.0),
        }
    }

    /// The input-limits table; for models it does not name, the widest count any named model has.
    pub(crate) fn input_limits(&self, model: &str, mode: &str) -> InputLimits {
        if let Some(limits) = self.limits.get(self.ruled_as(model)).and_then(|modes| modes.get(mode)) {
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

/// What a catalog file may hold.
const PARTS: [&str; 6] = ["video", "image", "music", "voices", "rules", "multiply"];

fn typed<T: serde::de::DeserializeOwned>(name: &str, value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("{name}: {error}"))
}

/// Multiplies every number that is a price: those under a name that begins with `credits` or is
/// `minimum_credits`. `None` when one becomes too large.
fn multiply(value: &mut Value, factor: Decimal, is_price: bool) -> Option<()> {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_price = is_price || name.starts_with("credits") || name == "minimum_credits";
                multiply(value, factor, is_price)?;
            }
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| multiply(item, factor, is_price))?,
        Value::Number(number) if is_price => {
            let product = decimal(number).checked_mul(factor)?.round_dp(6).normalize();
            *value = serde_json::from_str(&product.to_string()).ok()?;
        }
        _ => {}
    }
    Some(())
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
        for model in &Catalog::built_in().unwrap().video {
            for (name, mode) in &model.modes {
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
        assert_eq!(catalog.models(None)[0]["extra"], 1);
        assert!(catalog.image_model("gi-2").is_some());
        assert!(Catalog::recorded("[]").is_err());
        assert!(Catalog::recorded("{\"vidoe\": []}").is_err());
    }

    #[test]
    fn a_catalog_file_lends_the_documents_rules_to_other_ids() {
        let recorded = json!({"rules": {"inherit": {"real-1": "house-c1", "real-2": "gi-2"}}});
        let catalog = Catalog::recorded(&recorded.to_string()).unwrap();
        assert_eq!((catalog.ruled_as("real-1"), catalog.ruled_as("other")), ("house-c1", "other"));
        assert_eq!(catalog.input_limits("real-1", "reference-to-video").images, (1, 9));
        let wrong = Catalog::recorded("{\"rules\": {\"inherit\": {\"real-1\": \"nope\"}}}").unwrap_err();
        assert!(wrong.contains("nope"), "{wrong}");
    }

    #[test]
    fn prices_are_multiplied_and_nothing_else_is() {
        let before = Catalog::built_in().unwrap();
        let after = before.replaced("{\"multiply\": 1.5}").unwrap();
        let label = |catalog: &Catalog| catalog.models(None)[0]["credits_label"].clone();
        assert_eq!(label(&before), label(&after));
        assert_eq!(
            (after.music_base(), after.speech_rate().minimum_credits),
            (Decimal::from(90), Decimal::new(15, 1))
        );
        let rate = |catalog: &Catalog| {
            catalog.video_model("house-c1").unwrap().modes["text-to-video"]
                .credits_per_second
                .clone()
                .unwrap()["768P"]
        };
        assert_eq!((rate(&before).0, rate(&after).0), (Decimal::from(2), Decimal::from(3)));
        assert_eq!(&after.parts("m")["image"], after.models(Some("image")));
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
