//! The service's catalogs, read tolerantly: what is not known is carried, and one broken entry
//! never loses the others.
//!
//! Each reader takes the `data` of an answer; envelopes are the API client's. The document does not
//! name the list inside `data`, so `data` may be the list itself or an object that holds it.

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::catalog_list::list_in;
pub use super::catalog_list::{CatalogEntry, CatalogList};
use super::duration::decimal;
use super::price_matrix::Prices;
use super::surcharge::Surcharges;
use crate::domain::request::Kind;
use crate::domain::time::Millis;

/// How old a catalog may be where it cannot be read again: the service lets it be cached for so long (Endpoints).
pub const CATALOG_MAX_AGE: Millis = Millis::from_secs(3_600);

/// How old the catalogs may be when a batch is accepted: what is asked for now is to be sent at the prices of now. Not less, so
/// that thousands of manifests a minute do not ask for them each.
pub const NEW_BATCH_MAX_AGE: Millis = Millis::from_secs(5);

/// Everything the service publishes about what can be asked for.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Catalog {
    /// `GET /api/v1/models`.
    pub video: CatalogList<VideoModel>,
    /// `GET /api/v1/models?type=image`.
    pub image: CatalogList<ImageModel>,
    /// `GET /api/v1/models?type=music`.
    pub music: CatalogList<MusicModel>,
    /// `GET /api/v1/voices`.
    pub voices: Voices,
    /// What was charged above its prices.
    pub surcharges: Surcharges,
    /// What could not be read, and where: said by `doctor`, in the way of nothing.
    pub oddities: Vec<(CatalogPart, String)>,
    /// Parts that are not there at all, and why: rows that need them cannot be validated.
    pub missing: Vec<(CatalogPart, String)>,
}

/// One of the four answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CatalogPart {
    /// `GET /api/v1/models`.
    Video,
    /// `GET /api/v1/models?type=image`.
    Image,
    /// `GET /api/v1/models?type=music`.
    Music,
    /// `GET /api/v1/voices`.
    Voices,
}

impl CatalogPart {
    /// All four.
    pub const ALL: [CatalogPart; 4] =
        [CatalogPart::Video, CatalogPart::Image, CatalogPart::Music, CatalogPart::Voices];

    /// Its name in what is kept and shown.
    pub fn name(self) -> &'static str {
        match self {
            CatalogPart::Video => "video",
            CatalogPart::Image => "image",
            CatalogPart::Music => "music",
            CatalogPart::Voices => "voices",
        }
    }

    /// What one of its entries is called.
    fn entry_name(self) -> &'static str {
        if self == CatalogPart::Voices { "voice" } else { self.name() }
    }

    /// The entries in the `data` of an answer, whole and as the service gave them, each with its id. One without is no entry.
    fn entries(self, data: &Value) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        let items = list_in(self.entry_name(), data).into_iter().flatten();
        items.filter_map(Value::as_object).filter_map(|entry| Some((text_in(entry, "id")?, entry)))
    }

    /// Whether the `data` of an answer lists anything that can be read.
    pub fn lists_any(self, data: &Value) -> bool {
        self.entries(data).next().is_some()
    }

    /// The entries in the `data` of an answer by id, whole and as the service gave them. The first of two counts.
    pub fn entries_by_id(self, data: &Value) -> BTreeMap<&str, &Map<String, Value>> {
        let mut by_id = BTreeMap::new();
        for (id, entry) in self.entries(data) {
            by_id.entry(id).or_insert(entry);
        }
        by_id
    }

    /// The one without which a request of a kind can be neither validated nor priced.
    pub fn needed_by(kind: Kind) -> Option<CatalogPart> {
        match kind {
            Kind::Video => Some(CatalogPart::Video),
            Kind::Image => Some(CatalogPart::Image),
            Kind::Music => Some(CatalogPart::Music),
            Kind::Speech => Some(CatalogPart::Voices),
            Kind::SoundEffect | Kind::ShortsStudio => None,
        }
    }
}

impl Catalog {
    /// Why a part is not there at all: the service did not give it, and none was kept. Without a word it may be
    /// validated by.
    pub fn why_missing(&self, part: CatalogPart) -> Option<&str> {
        self.missing.iter().find(|(missing, _)| *missing == part).map(|(_, why)| why.as_str())
    }

    /// Why nothing can be validated or priced by a part, as a sentence; nothing where it is there.
    pub fn unavailable(&self, part: CatalogPart) -> Option<String> {
        let what = part.entry_name();
        self.why_missing(part).map(|why| format!("the {what} catalog is not available: {why}"))
    }

    /// Reads the `data` of one answer in the place of what that part held.
    pub fn read(&mut self, part: CatalogPart, data: &Value) {
        let (name, mut odd) = (part.entry_name(), Vec::new());
        match part {
            CatalogPart::Video => self.video = CatalogList::read(name, data, &mut odd, VideoModel::read),
            CatalogPart::Image => self.image = CatalogList::read(name, data, &mut odd, ImageModel::read),
            CatalogPart::Music => self.music = CatalogList::read(name, data, &mut odd, MusicModel::read),
            CatalogPart::Voices => self.voices = Voices::read(data, &mut odd),
        }
        self.oddities.retain(|(of, _)| *of != part);
        self.oddities.extend(odd.into_iter().map(|said| (part, said)));
    }

    /// Reads all four answers.
    pub fn of(video: &Value, image: &Value, music: &Value, voices: &Value) -> Catalog {
        let mut catalog = Catalog::default();
        catalog.read(CatalogPart::Video, video);
        catalog.read(CatalogPart::Image, image);
        catalog.read(CatalogPart::Music, music);
        catalog.read(CatalogPart::Voices, voices);
        catalog
    }
}

/// What every model entry carries.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct About {
    /// Sent as `model`.
    pub id: String,
    /// Display text; not unique.
    pub label: Option<String>,
    /// Display text.
    pub vendor: Option<String>,
    /// Display text.
    pub description: Option<String>,
    /// A display range, not a price.
    pub credits_label: Option<String>,
    /// Announced, not available yet.
    pub coming_soon: bool,
}

impl About {
    fn read(entry: &Map<String, Value>) -> Option<About> {
        Some(About {
            id: text(entry, "id")?,
            label: text(entry, "label"),
            vendor: text(entry, "vendor"),
            description: text(entry, "description"),
            credits_label: text(entry, "credits_label"),
            coming_soon: flag(entry, "coming_soon"),
        })
    }
}

/// A model entry, of whichever catalog.
pub trait Model: CatalogEntry {
    /// What every model entry carries.
    fn about(&self) -> &About;
}

macro_rules! model_entry {
    ($($entry:ty),*) => {$(
        impl CatalogEntry for $entry {
            fn id(&self) -> &str {
                &self.about.id
            }
            fn label(&self) -> Option<&str> {
                self.about.label.as_deref()
            }
        }
        impl Model for $entry {
            fn about(&self) -> &About {
                &self.about
            }
        }
    )*};
}
model_entry!(VideoModel, ImageModel, MusicModel);

/// Video model catalog entry.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct VideoModel {
    /// What every entry carries.
    pub about: About,
    /// The modes it supports.
    pub modes: BTreeMap<String, VideoMode>,
    /// The most characters of its prompt, where it limits them.
    pub max_prompt_length: Option<u64>,
}

/// `modes.<mode>` of a video model. A list that the catalog leaves out is `None` and validates nothing;
/// an empty one means: do not send.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct VideoMode {
    /// Allowed `duration` values.
    pub durations: Option<Vec<String>>,
    /// Allowed `resolution` values.
    pub resolutions: Option<Vec<String>>,
    /// Allowed `aspect_ratio` values.
    pub aspect_ratios: Option<Vec<String>>,
    /// Whether `audio: true` is accepted.
    pub audio_toggle: bool,
    /// Used and billed for what is left out.
    pub defaults: BTreeMap<String, String>,
    /// Price matrix.
    pub credits: Option<Prices>,
    /// Rate by resolution.
    pub credits_per_second: Option<Prices>,
    /// Rate by resolution when `video_urls` is sent.
    pub credits_per_second_with_video_input: Option<Prices>,
    /// A multiplier for audio; a label when there is no matrix.
    pub pricing_note: Option<String>,
}

impl VideoModel {
    fn read(entry: &Map<String, Value>, odd: &mut Vec<String>) -> Option<VideoModel> {
        let about = About::read(entry)?;
        let modes = modes(entry, &about.id, odd, VideoMode::read);
        Some(VideoModel {
            max_prompt_length: entry.get("max_prompt_length").and_then(Value::as_u64),
            modes,
            about,
        })
    }
}

impl VideoMode {
    fn read(mode: &Map<String, Value>) -> VideoMode {
        VideoMode {
            durations: texts(mode, "durations"),
            resolutions: texts(mode, "resolutions"),
            aspect_ratios: texts(mode, "aspect_ratios"),
            audio_toggle: flag(mode, "audio_toggle"),
            defaults: defaults(mode),
            credits: Prices::read(mode.get("credits")),
            credits_per_second: Prices::read(mode.get("credits_per_second")),
            credits_per_second_with_video_input: Prices::read(
                mode.get("credits_per_second_with_video_input"),
            ),
            pricing_note: text(mode, "pricing_note"),
        }
    }
}

/// Image catalog entry.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ImageModel {
    /// What every entry carries.
    pub about: About,
    /// The scenes it supports.
    pub modes: BTreeMap<String, ImageMode>,
}

/// `modes.<scene>` of an image model.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ImageMode {
    /// Allowed `aspect_ratio` values; empty: any, unchecked.
    pub aspect_ratios: Vec<String>,
    /// Allowed `quality` values.
    pub qualities: Vec<String>,
    /// Used for what is left out, where the catalog says so.
    pub defaults: BTreeMap<String, String>,
    /// Price by quality.
    pub credits: Option<Prices>,
    /// One price.
    pub credits_per_generation: Option<Prices>,
    /// Price by resolution, aspect ratio and quality: the mark of the exact-pixel family.
    pub credits_by_resolution_and_aspect_ratio: Option<Prices>,
}

impl ImageModel {
    fn read(entry: &Map<String, Value>, odd: &mut Vec<String>) -> Option<ImageModel> {
        let about = About::read(entry)?;
        let modes = modes(entry, &about.id, odd, ImageMode::read);
        Some(ImageModel { modes, about })
    }
}

impl ImageMode {
    fn read(mode: &Map<String, Value>) -> ImageMode {
        ImageMode {
            aspect_ratios: texts(mode, "aspect_ratios").unwrap_or_default(),
            qualities: texts(mode, "qualities").unwrap_or_default(),
            defaults: defaults(mode),
            credits: Prices::read(mode.get("credits")),
            credits_per_generation: Prices::read(mode.get("credits_per_generation")),
            credits_by_resolution_and_aspect_ratio: Prices::read(
                mode.get("credits_by_resolution_and_aspect_ratio"),
            ),
        }
    }
}

/// Music catalog entry.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct MusicModel {
    /// What every entry carries.
    pub about: About,
    /// The base price.
    pub credits: Option<Prices>,
}

impl MusicModel {
    fn read(entry: &Map<String, Value>, _odd: &mut Vec<String>) -> Option<MusicModel> {
        Some(MusicModel { about: About::read(entry)?, credits: Prices::read(entry.get("credits")) })
    }
}

/// Voice catalog: how speech is priced, and the voices.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Voices {
    /// The model of a voice that recommends none.
    pub default_model: Option<String>,
    /// Characters that one credit pays.
    pub characters_per_credit: Option<Decimal>,
    /// The least a speech costs.
    pub minimum_credits: Option<Decimal>,
    pub voices: CatalogList<Voice>,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Voice {
    /// Sent as `voice_id`.
    pub id: String,
    pub name: Option<String>,
    /// The model it speaks best with.
    pub recommended_model: Option<String>,
}

impl Voices {
    fn read(data: &Value, odd: &mut Vec<String>) -> Voices {
        let number = |name| data.get(name).and_then(Value::as_number);
        Voices {
            default_model: data.as_object().and_then(|fields| text(fields, "default_model")),
            characters_per_credit: number("characters_per_credit").and_then(decimal),
            minimum_credits: number("minimum_credits").and_then(decimal),
            voices: CatalogList::read(CatalogPart::Voices.entry_name(), data, odd, Voice::read),
        }
    }
}

impl Voice {
    fn read(item: &Map<String, Value>, _odd: &mut Vec<String>) -> Option<Voice> {
        Some(Voice {
            id: text(item, "id")?,
            name: text(item, "name"),
            recommended_model: text(item, "recommended_model"),
        })
    }
}

impl CatalogEntry for Voice {
    fn id(&self) -> &str {
        &self.id
    }
    fn label(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// The `modes` of an entry. One that is no object is left out, and said.
fn modes<M>(
    entry: &Map<String, Value>,
    id: &str,
    odd: &mut Vec<String>,
    read: fn(&Map<String, Value>) -> M,
) -> BTreeMap<String, M> {
    let mut modes = BTreeMap::new();
    let Some(listed) = entry.get("modes").and_then(Value::as_object) else {
        odd.push(format!("{id} lists no modes"));
        return modes;
    };
    for (name, mode) in listed {
        match mode.as_object() {
            Some(mode) => drop(modes.insert(name.clone(), read(mode))),
            None => odd.push(format!("mode {name} of {id} is not an object")),
        }
    }
    modes
}

fn defaults(mode: &Map<String, Value>) -> BTreeMap<String, String> {
    let listed = mode.get("defaults").and_then(Value::as_object);
    let spelled = listed.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), word(value)?)));
    spelled.collect()
}

/// A non-empty text.
fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    text_in(fields, name).map(str::to_owned)
}

fn text_in<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn flag(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn texts(fields: &Map<String, Value>, name: &str) -> Option<Vec<String>> {
    fields.get(name).and_then(Value::as_array).map(|items| items.iter().filter_map(word).collect())
}

/// A text, or a number as it is spelled.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
