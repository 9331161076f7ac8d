//! What the service's document says about a model and its catalog does not.
//!
//! One table keyed by model id. The ids of the document are stand-ins, so a deployment adds its
//! real ids through its configuration ([`Rules::extended`]); `inherit` lends them a stand-in's rules.
//! An id that the table does not know is left for the service to validate.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::prohibited_words::Expressions;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::request::Kind;

/// The table.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    models: BTreeMap<String, ModelRules>,
    /// The video models that the document itself describes.
    documented_videos: BTreeSet<&'static str>,
    prohibited: Expressions,
}

/// What a configuration adds: the same table, for more ids.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RulesExtension {
    /// Rules by model id. What is given replaces what the table said of that id.
    pub models: BTreeMap<String, ModelRules>,
    /// More wording that the service refuses, by how it begins.
    pub prohibited: Vec<String>,
}

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelRules {
    /// Begins with the built-in rules of this id.
    pub inherit: Option<String>,
    /// What the model makes; only needed for ids that no catalog lists.
    pub kind: Option<Kind>,
    /// Withdrawn, and what the service says of it. A catalog that lists the model again wins.
    pub withdrawn: Option<String>,
    /// Input limits by video mode.
    pub inputs: BTreeMap<String, InputLimits>,
    /// Source seconds are billed beside the output's, up to so many; 0 when none are.
    pub billed_source_seconds_max: Option<u32>,
    /// The durations that are left at some resolutions.
    pub durations_at: BTreeMap<String, Vec<String>>,
    /// Takes exact pixel sizes (`size`), and refuses values that others replace.
    pub exact_pixels: Option<ExactPixels>,
    /// The plan allowance that may cover it.
    pub allowance: Option<AllowanceRule>,
}

/// What is billed of a source video beside the output's seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BilledSource {
    /// Nobody says it.
    Unsaid,
    Nothing,
    /// Its seconds, up to so many.
    UpTo(u32),
}

/// Input limits of one mode (the Input limits table).
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InputLimits {
    /// How many `image_urls`.
    pub images: Bounds,
    /// How many `video_urls`.
    pub videos: Bounds,
    /// A source video needs `source_video_duration_seconds`.
    pub source_seconds_required: bool,
    /// The longest source video that the provider takes.
    pub source_seconds_max: Option<u32>,
    /// How much of the source video is used.
    pub source_seconds_used: Option<u32>,
}

/// From so many to so many, written `[1, 9]`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 2]", into = "[u32; 2]")]
pub struct Bounds {
    /// The least.
    pub min: u32,
    /// The most.
    pub max: u32,
}

impl Bounds {
    /// Whether `count` is within.
    pub fn hold(self, count: usize) -> bool {
        u32::try_from(count).is_ok_and(|count| (self.min..=self.max).contains(&count))
    }
}

impl From<[u32; 2]> for Bounds {
    fn from([min, max]: [u32; 2]) -> Bounds {
        Bounds { min, max }
    }
}

impl From<Bounds> for [u32; 2] {
    fn from(bounds: Bounds) -> [u32; 2] {
        [bounds.min, bounds.max]
    }
}

/// The image family that takes exact pixels (POST images, `size`, and Unrecognized values).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExactPixels {
    /// Both sides are multiples of it.
    pub multiple_of: u64,
    /// The longest side at most.
    pub longest_side: u64,
    /// The longer side at most so many times the shorter.
    pub ratio_max: u64,
    /// The fewest pixels.
    pub pixels_min: u64,
    /// The most pixels.
    pub pixels_max: u64,
    /// The `resolution` values.
    pub resolutions: Vec<String>,
    /// The `quality` values, where the catalog lists none.
    pub qualities: Vec<String>,
    /// `quality` when left out.
    pub default_quality: String,
    /// `resolution` when left out.
    pub default_resolution: String,
    /// `aspect_ratio` when left out.
    pub default_aspect_ratio: String,
}

impl Default for ExactPixels {
    fn default() -> ExactPixels {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        ExactPixels {
            multiple_of: 16,
            longest_side: 3840,
            ratio_max: 3,
            pixels_min: 655_360,
            pixels_max: 8_294_400,
            resolutions: words(&["1K", "2K", "4K"]),
            qualities: words(&["Low", "Medium", "High", "XHigh", "Max"]),
            default_quality: "Medium".to_owned(),
            default_resolution: "1K".to_owned(),
            default_aspect_ratio: "1:1".to_owned(),
        }
    }
}

/// What a plan allowance counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllowanceUnit {
    /// Seconds of finished video.
    OutputSeconds,
    /// Finished images.
    Images,
}

/// A daily plan allowance (Plan allowance for video; Image plan allowance). Models of one pool share it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowanceRule {
    /// Which allowance: models with the same pool draw from the same one.
    pub pool: String,
    /// What it counts.
    pub unit: AllowanceUnit,
    /// Units per UTC day on the Pro plan.
    #[serde(default)]
    pub pro_per_day: u64,
    /// Units per UTC day on the Ultra plan.
    #[serde(default)]
    pub ultra_per_day: u64,
}

/// The plan of the account, as far as it is told.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountPlan {
    /// Nobody said: what is shown is the most that there could be.
    #[default]
    #[serde(skip)]
    Unknown,
    /// No plan, and so no allowance.
    None,
    Pro,
    Ultra,
}

impl AllowanceRule {
    /// Units per UTC day on that plan.
    pub fn per_day(&self, plan: AccountPlan) -> u64 {
        match plan {
            AccountPlan::None => 0,
            AccountPlan::Pro => self.pro_per_day,
            AccountPlan::Ultra | AccountPlan::Unknown => self.ultra_per_day,
        }
    }
}

/// The allowance that may cover one request. It covers all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// The allowance itself.
    #[serde(flatten)]
    pub rule: AllowanceRule,
    /// How much of it the request needs.
    pub units: u64,
}

impl Rules {
    /// Rules by model id, of which `documented_videos` are the document's own, and prohibited wording by how it begins.
    pub(super) fn new(
        models: BTreeMap<String, ModelRules>,
        documented_videos: BTreeSet<&'static str>,
        prohibited: Vec<String>,
    ) -> Rules {
        Rules { models, documented_videos, prohibited: Expressions::new(prohibited) }
    }

    /// These rules, and the configuration's beside or in place of them.
    ///
    /// # Errors
    /// A `inherit` that names no built-in id, and limits that nothing can satisfy.
    pub fn extended(mut self, extension: RulesExtension) -> Result<Rules, Vec<Diagnostic>> {
        let mut errors = Vec::new();
        let builtin = self.models.clone();
        for (id, given) in extension.models {
            errors.extend(senseless_limits(&id, &given));
            let base = match &given.inherit {
                None => self.models.remove(&id).unwrap_or_default(),
                Some(inherit) => builtin.get(inherit).cloned().unwrap_or_else(|| {
                    errors.push(unknown_inherit(&id, inherit));
                    ModelRules::default()
                }),
            };
            self.models.insert(id, merged(base, given));
        }
        self.prohibited.extend(extension.prohibited);
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    /// What is known about a model.
    pub fn model(&self, id: &str) -> Option<&ModelRules> {
        self.models.get(id)
    }

    /// The input limits of a model's mode.
    pub(super) fn inputs(&self, id: &str, mode: &str) -> Option<&InputLimits> {
        self.model(id).and_then(|model| model.inputs.get(mode))
    }

    /// What is billed of a model's source video. The document says it of its own video models, and of those that
    /// are like one of them.
    pub(super) fn billed_source(&self, id: &str) -> BilledSource {
        let rules = self.model(id);
        let inherit = rules.and_then(|rules| rules.inherit.as_deref());
        match rules.and_then(|rules| rules.billed_source_seconds_max) {
            Some(0) => BilledSource::Nothing,
            Some(most) => BilledSource::UpTo(most),
            None if self.documented_videos.contains(inherit.unwrap_or(id)) => BilledSource::Nothing,
            None => BilledSource::Unsaid,
        }
    }

    /// The allowance that may cover `units` of a model.
    pub(super) fn allowance(&self, id: &str, units: u64) -> Option<Allowance> {
        let rule = self.model(id)?.allowance.clone()?;
        Some(Allowance { rule, units })
    }

    /// Whether `text` has wording that the service refuses.
    pub fn prohibits(&self, text: &str) -> bool {
        self.prohibited_in(text).is_some()
    }

    /// The wording in `text` that the service refuses, even in a negated sentence: as it stands there.
    pub(super) fn prohibited_in(&self, text: &str) -> Option<String> {
        self.prohibited.find_in(text)
    }
}

/// `given` over `base`; inputs and durations key by key.
fn merged(mut base: ModelRules, given: ModelRules) -> ModelRules {
    base.inputs.extend(given.inputs);
    base.durations_at.extend(given.durations_at);
    ModelRules {
        inherit: given.inherit,
        kind: given.kind.or(base.kind),
        withdrawn: given.withdrawn.or(base.withdrawn),
        inputs: base.inputs,
        billed_source_seconds_max: given.billed_source_seconds_max.or(base.billed_source_seconds_max),
        durations_at: base.durations_at,
        exact_pixels: given.exact_pixels.or(base.exact_pixels),
        allowance: given.allowance.or(base.allowance),
    }
}

fn unknown_inherit(id: &str, inherit: &str) -> Diagnostic {
    Diagnostic::new(format!("\"{inherit}\" is not a model id of the built-in table"))
        .in_field(format!("models.{id}.inherit"))
}

/// Bounds that are upside down.
fn senseless_limits(id: &str, given: &ModelRules) -> Vec<Diagnostic> {
    let mut errors = Vec::new();
    for (mode, limits) in &given.inputs {
        for (name, bounds) in [("images", limits.images), ("videos", limits.videos)] {
            if bounds.min > bounds.max {
                let field = format!("models.{id}.inputs.{mode}.{name}");
                let message =
                    format!("[{}, {}] holds no number; the lesser comes first", bounds.min, bounds.max);
                errors.push(Diagnostic::new(message).in_field(field));
            }
        }
    }
    errors
}
