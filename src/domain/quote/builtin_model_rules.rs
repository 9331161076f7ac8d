//! The built-in rules: one row per model of the document, in its order. Data, no decisions.

use std::collections::{BTreeMap, BTreeSet};

use super::model_rules::{AllowanceRule, AllowanceUnit, Bounds, ExactPixels, InputLimits, ModelRules, Rules};
use crate::domain::request::Kind;

pub(super) const TEXT: &str = "text-to-video";
pub(super) const IMAGE: &str = "image-to-video";
pub(super) const FRAMES: &str = "frames-to-video";
pub(super) const REFERENCE: &str = "reference-to-video";
pub(super) const VIDEO: &str = "video-to-video";

/// All video modes, in the order of the document.
pub(super) const VIDEO_MODES: [&str; 5] = [TEXT, IMAGE, VIDEO, FRAMES, REFERENCE];
/// All image scenes.
pub(super) const SCENES: [&str; 2] = ["text-to-image", "image-to-image"];

/// A row: its ids, and its limits by mode (images from-to, videos from-to, the table's footnote).
type Row = (&'static [&'static str], &'static [(&'static str, [u32; 2], [u32; 2], Foot)]);

/// The footnotes of the Input limits table.
#[derive(Clone, Copy, PartialEq)]
enum Foot {
    None,
    /// ¹ the source's seconds are required.
    Timed,
    /// ² at most so long.
    Max(u32),
    /// ³ at most so long, of which so much is used.
    MaxUsed(u32, u32),
}

const ONE: [u32; 2] = [1, 1];
const NO: [u32; 2] = [0, 0];
const MAY: [u32; 2] = [0, 1];
const PLAIN: (&str, [u32; 2], [u32; 2], Foot) = (TEXT, NO, NO, Foot::None);
const ONE_IMAGE: (&str, [u32; 2], [u32; 2], Foot) = (IMAGE, ONE, NO, Foot::None);
const TWO_FRAMES: (&str, [u32; 2], [u32; 2], Foot) = (FRAMES, [2, 2], NO, Foot::None);

#[rustfmt::skip]
const INPUTS: &[Row] = &[
    (&["house-c1"], &[PLAIN, ONE_IMAGE, TWO_FRAMES, (REFERENCE, [1, 9], NO, Foot::None)]),
    (&["house-turbo"], &[PLAIN, ONE_IMAGE, TWO_FRAMES]),
    (&["model-s-2-5"], &[PLAIN, ONE_IMAGE, TWO_FRAMES, (REFERENCE, [1, 3], NO, Foot::None),
        (VIDEO, NO, ONE, Foot::Timed)]),
    (&["model-s-2-0", "model-s-2-0-fast", "model-s-2-mini"], &[PLAIN, (IMAGE, [1, 2], NO, Foot::None),
        TWO_FRAMES, (REFERENCE, [1, 2], MAY, Foot::Timed)]),
    (&["model-s-1-5-pro"], &[PLAIN, ONE_IMAGE]),
    (&["model-h3"], &[PLAIN, ONE_IMAGE, TWO_FRAMES, (REFERENCE, [1, 4], MAY, Foot::Timed),
        (VIDEO, [0, 2], ONE, Foot::Timed)]),
    (&["model-v-3-1", "model-v-3-1-fast", "model-v-3-1-lite"], &[PLAIN, ONE_IMAGE, TWO_FRAMES,
        (REFERENCE, [1, 3], NO, Foot::None)]),
    (&["model-g-omni"], &[PLAIN, ONE_IMAGE, (VIDEO, [0, 2], ONE, Foot::Max(10))]),
    (&["model-g-omni-video"], &[PLAIN, ONE_IMAGE, (VIDEO, NO, ONE, Foot::MaxUsed(30, 10))]),
    (&["model-g-omni-cheap"], &[PLAIN, (IMAGE, [1, 2], NO, Foot::None)]),
    (&["model-f-3"], &[PLAIN, ONE_IMAGE, (FRAMES, [2, 3], NO, Foot::None), (VIDEO, NO, ONE, Foot::None)]),
    (&["model-k-2-6", "model-x-imagine", "model-x-imagine-1-5", "model-r", "model-s-1-0-pro",
        "model-s-1-0-lite"], &[PLAIN, ONE_IMAGE]),
    (&["model-p-video"], &[PLAIN, (IMAGE, [1, 2], NO, Foot::None)]),
    (&["model-s-1-0-pro-fast"], &[ONE_IMAGE]),
];

/// Models that are absent from the catalog and answered with 400.
const WITHDRAWN: &[(&str, &str)] = &[
    ("model-o-2", "temporarily unavailable"),
    ("model-o-2-pro", "temporarily unavailable"),
    ("model-k-2-6-motion-control", "this capability is unavailable"),
];

/// Models whose source video is billed beside the output, and up to how many seconds.
const BILLED_SOURCE: &[(&str, u32)] =
    &[("model-s-2-0", 15), ("model-s-2-0-fast", 15), ("model-s-2-mini", 15)];

/// Image models that take exact pixel sizes.
const EXACT_PIXELS: &[&str] = &["gi-2-5", "gi-2-5-alt"];

/// Image models that the Pro and Ultra plans cover.
const ALLOWED_IMAGES: &[&str] = &["gi-2", "gi-2-5", "gi-2-5-alt", "ni-2", "x-imagine-image"];

impl Rules {
    /// The rules that the document states for its stand-in ids.
    pub fn builtin() -> Rules {
        let videos: BTreeSet<&str> = INPUTS.iter().flat_map(|(ids, _)| ids.iter().copied()).collect();
        Rules::new(models(), videos, prohibited())
    }
}

fn models() -> BTreeMap<String, ModelRules> {
    let mut models: BTreeMap<String, ModelRules> = BTreeMap::new();
    for (ids, modes) in INPUTS {
        for id in *ids {
            let rules = entry(&mut models, id, Kind::Video);
            rules.inputs = modes.iter().map(|row| (row.0.to_owned(), limits(row.1, row.2, row.3))).collect();
        }
    }
    for (id, said) in WITHDRAWN {
        entry(&mut models, id, Kind::Video).withdrawn = Some((*said).to_owned());
    }
    for (id, most) in BILLED_SOURCE {
        entry(&mut models, id, Kind::Video).billed_source_seconds_max = Some(*most);
    }
    let five_only = BTreeMap::from([("1080p".to_owned(), vec!["5s".to_owned()])]);
    entry(&mut models, "model-r", Kind::Video).durations_at = five_only;
    entry(&mut models, "house-c1", Kind::Video).allowance = Some(video_allowance());
    for id in EXACT_PIXELS {
        entry(&mut models, id, Kind::Image).exact_pixels = Some(ExactPixels::default());
    }
    for id in ALLOWED_IMAGES {
        entry(&mut models, id, Kind::Image).allowance = Some(image_allowance());
    }
    models
}

/// Wording that is refused wherever it stands, by how it begins (Errors, `content_rejected`).
fn prohibited() -> Vec<String> {
    let stems = ["deepfak", "face swap", "swap face", "swapped face", "swapping face", "impersonat"];
    stems.map(str::to_owned).to_vec()
}

fn entry<'a>(models: &'a mut BTreeMap<String, ModelRules>, id: &str, kind: Kind) -> &'a mut ModelRules {
    let rules = models.entry(id.to_owned()).or_default();
    rules.kind = Some(kind);
    rules
}

fn limits(images: [u32; 2], videos: [u32; 2], foot: Foot) -> InputLimits {
    let (source_seconds_max, source_seconds_used) = match foot {
        Foot::Max(most) => (Some(most), None),
        Foot::MaxUsed(most, used) => (Some(most), Some(used)),
        Foot::None | Foot::Timed => (None, None),
    };
    InputLimits {
        images: Bounds::from(images),
        videos: Bounds::from(videos),
        source_seconds_required: foot == Foot::Timed,
        source_seconds_max,
        source_seconds_used,
    }
}

fn video_allowance() -> AllowanceRule {
    let unit = AllowanceUnit::OutputSeconds;
    AllowanceRule { pool: "house-c1".to_owned(), unit, pro_per_day: 0, ultra_per_day: 300 }
}

fn image_allowance() -> AllowanceRule {
    let unit = AllowanceUnit::Images;
    AllowanceRule { pool: "images".to_owned(), unit, pro_per_day: 25, ultra_per_day: 100 }
}
