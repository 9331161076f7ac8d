//! Exact pixel sizes (POST images, `size`).

use serde_json::{Map, Value};

use super::model_rules::ExactPixels;
use super::validate::found;
use crate::domain::diagnostic::Diagnostics;

const FIELD: &str = "options.size";

/// Whether a size is given; errors for all that is wrong with it.
pub(super) fn check(
    family: &ExactPixels,
    options: &Map<String, Value>,
    diagnostics: &mut Diagnostics,
) -> bool {
    let Some(value) = options.get("size") else { return false };
    match value.as_str().and_then(sides) {
        Some((width, height)) => check_sides(family, width, height, diagnostics),
        None => {
            diagnostics.refuse(FIELD, format!("found {}; WIDTHxHEIGHT in pixels is accepted", found(value)));
        }
    }
    true
}

/// The options that a size overrides.
pub(super) const OVERRIDDEN: [&str; 2] = ["aspect_ratio", "resolution"];

/// Leaves out, and says, what a size overrides: whatever its value is, nobody reads it.
pub(super) fn leave_out_overridden(options: &mut Map<String, Value>, diagnostics: &mut Diagnostics) {
    for name in OVERRIDDEN {
        if options.remove(name).is_some() {
            diagnostics.note(&format!("options.{name}"), "is not sent: size overrides it");
        }
    }
}

fn sides(text: &str) -> Option<(u64, u64)> {
    let digits = |side: &str| {
        let plain = !side.is_empty() && side.bytes().all(|b| b.is_ascii_digit());
        side.parse().ok().filter(|_| plain)
    };
    let (width, height) = text.split_once('x')?;
    Some((digits(width)?, digits(height)?))
}

fn check_sides(family: &ExactPixels, width: u64, height: u64, diagnostics: &mut Diagnostics) {
    let size = format!("{width}x{height}");
    let (longer, shorter) = (width.max(height), width.min(height));
    let multiple = family.multiple_of;
    if ![width, height].iter().all(|side| side.is_multiple_of(multiple)) {
        diagnostics.refuse(FIELD, format!("found {size}; both sides must be multiples of {multiple}"));
    }
    if longer > family.longest_side {
        diagnostics.refuse(FIELD, format!("found {size}; a side has {} pixels at most", family.longest_side));
    }
    if longer > shorter.saturating_mul(family.ratio_max) {
        let most = family.ratio_max;
        diagnostics.refuse(FIELD, format!("found {size}; one side is at most {most} times the other"));
    }
    let pixels = width.saturating_mul(height);
    if !(family.pixels_min..=family.pixels_max).contains(&pixels) {
        let (least, most) = (family.pixels_min, family.pixels_max);
        diagnostics.refuse(FIELD, format!("found {size}, {pixels} pixels; {least} to {most} are accepted"));
    }
}
