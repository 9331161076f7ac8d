//! What a row asks the service for, in the service's own field names.

use std::fmt;
use std::str::FromStr;

use enum_map::Enum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is generated. One creating endpoint each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `POST /api/v1/videos`, asynchronous.
    Video,
    /// `POST /api/v1/images`, asynchronous for most models.
    Image,
    /// `POST /api/v1/music`, rendered inside the call.
    Music,
    /// `POST /api/v1/speech`, rendered inside the call.
    Speech,
    /// `POST /api/v1/sound-effects`, rendered inside the call.
    SoundEffect,
    /// `POST /api/v1/shorts-studio`: no idempotency key, body not documented.
    ShortsStudio,
}

impl Kind {
    /// Every kind, in the order in which people are shown them.
    pub const ALL: [Kind; 6] =
        [Kind::Video, Kind::Image, Kind::Music, Kind::Speech, Kind::SoundEffect, Kind::ShortsStudio];

    /// The name in manifests and in everything shown.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Video => "video",
            Kind::Image => "image",
            Kind::Music => "music",
            Kind::Speech => "speech",
            Kind::SoundEffect => "sound-effect",
            Kind::ShortsStudio => "shorts-studio",
        }
    }

    /// Path of the creating endpoint (the document's Endpoints table).
    pub fn endpoint(self) -> &'static str {
        match self {
            Kind::Video => "/api/v1/videos",
            Kind::Image => "/api/v1/images",
            Kind::Music => "/api/v1/music",
            Kind::Speech => "/api/v1/speech",
            Kind::SoundEffect => "/api/v1/sound-effects",
            Kind::ShortsStudio => "/api/v1/shorts-studio",
        }
    }

    /// Whether the service may render inside the creating call, so that the call may last minutes. Music, speech and
    /// sound effects always are; images are "for most models" not, and of Shorts Studio nothing is said. Videos are
    /// only submitted.
    pub fn may_render_in_call(self) -> bool {
        self != Kind::Video
    }

    /// Whether the endpoint honours idempotency keys. Shorts Studio does not (money rule 11): its POST
    /// leaves at most once.
    pub fn is_keyed(self) -> bool {
        self != Kind::ShortsStudio
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is none of the kinds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a kind; one of video, image, music, speech, sound-effect, shorts-studio")]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(text: &str) -> Result<Kind, UnknownKind> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

/// The fields of one generation as its manifest gave them: prompts trimmed, lists split, options
/// typed; not yet validated against a catalog, no defaults filled.
///
/// Empty cells are absent fields. For `shorts-studio` the whole body is `options`.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// A catalog id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What to generate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What to say (speech).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whose voice says it (speech).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice_id: Option<String>,
    /// Video mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Image scene.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scene: Option<String>,
    /// Source images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_urls: Vec<String>,
    /// Source videos.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub video_urls: Vec<String>,
    /// The service's `options` object.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}
