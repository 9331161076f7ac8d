//! The rules table: every row of the document's Input limits, and its extension.

use serde_json::{Value, json};

use super::{catalog, request};
use crate::domain::quote::{Catalog, Rules, RulesExtension, quote};
use crate::domain::request::Kind;

/// `images 1-2, videos 0-1 (timed)` per mode, or `-`.
fn row(id: &str) -> String {
    let rules = Rules::builtin();
    let modes =
        ["text-to-video", "image-to-video", "frames-to-video", "reference-to-video", "video-to-video"];
    let cells = modes.map(|mode| {
        let Some(limits) = rules.model(id).and_then(|rules| rules.inputs.get(mode)) else {
            return "-".to_owned();
        };
        let range = |bounds: crate::domain::quote::model_rules::Bounds| match (bounds.min, bounds.max) {
            (min, max) if min == max => max.to_string(),
            (min, max) => format!("{min}-{max}"),
        };
        let foot =
            match (limits.source_seconds_required, limits.source_seconds_max, limits.source_seconds_used) {
                (true, _, _) => " timed".to_owned(),
                (_, Some(max), Some(used)) => format!(" max{max}/{used}"),
                (_, Some(max), None) => format!(" max{max}"),
                _ => String::new(),
            };
        format!("{}i {}v{foot}", range(limits.images), range(limits.videos))
    });
    cells.join(" | ")
}

#[test]
fn input_limits_table() {
    let rows = [
        ("house-c1", "0i 0v | 1i 0v | 2i 0v | 1-9i 0v | -"),
        ("house-turbo", "0i 0v | 1i 0v | 2i 0v | - | -"),
        ("model-s-2-5", "0i 0v | 1i 0v | 2i 0v | 1-3i 0v | 0i 1v timed"),
        ("model-s-2-0", "0i 0v | 1-2i 0v | 2i 0v | 1-2i 0-1v timed | -"),
        ("model-s-2-0-fast", "0i 0v | 1-2i 0v | 2i 0v | 1-2i 0-1v timed | -"),
        ("model-s-2-mini", "0i 0v | 1-2i 0v | 2i 0v | 1-2i 0-1v timed | -"),
        ("model-s-1-5-pro", "0i 0v | 1i 0v | - | - | -"),
        ("model-h3", "0i 0v | 1i 0v | 2i 0v | 1-4i 0-1v timed | 0-2i 1v timed"),
        ("model-v-3-1", "0i 0v | 1i 0v | 2i 0v | 1-3i 0v | -"),
        ("model-v-3-1-fast", "0i 0v | 1i 0v | 2i 0v | 1-3i 0v | -"),
        ("model-v-3-1-lite", "0i 0v | 1i 0v | 2i 0v | 1-3i 0v | -"),
        ("model-g-omni", "0i 0v | 1i 0v | - | - | 0-2i 1v max10"),
        ("model-g-omni-video", "0i 0v | 1i 0v | - | - | 0i 1v max30/10"),
        ("model-g-omni-cheap", "0i 0v | 1-2i 0v | - | - | -"),
        ("model-f-3", "0i 0v | 1i 0v | 2-3i 0v | - | 0i 1v"),
        ("model-k-2-6", "0i 0v | 1i 0v | - | - | -"),
        ("model-x-imagine", "0i 0v | 1i 0v | - | - | -"),
        ("model-x-imagine-1-5", "0i 0v | 1i 0v | - | - | -"),
        ("model-r", "0i 0v | 1i 0v | - | - | -"),
        ("model-s-1-0-pro", "0i 0v | 1i 0v | - | - | -"),
        ("model-s-1-0-lite", "0i 0v | 1i 0v | - | - | -"),
        ("model-p-video", "0i 0v | 1-2i 0v | - | - | -"),
        ("model-s-1-0-pro-fast", "- | 1i 0v | - | - | -"),
    ];
    for (id, expected) in rows {
        assert_eq!(row(id), expected, "{id}");
    }
}

#[test]
fn billed_source_seconds_table() {
    let rules = Rules::builtin();
    let billed = |id: &str| rules.model(id).and_then(|model| model.billed_source_seconds_max);
    for id in ["model-s-2-0", "model-s-2-0-fast", "model-s-2-mini"] {
        assert_eq!(billed(id), Some(15), "{id}");
    }
    assert_eq!((billed("model-s-2-5"), billed("model-h3")), (None, None));
}

fn extension(value: Value) -> RulesExtension {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_real_id_takes_a_stand_ins_rules() {
    let more = json!({"models": {"omega-pro": {"inherit": "model-s-2-0", "inputs": {"image-to-video": {"images": [1, 4]}}}}});
    let rules = Rules::builtin().extended(extension(more)).unwrap();
    let omega = rules.model("omega-pro").unwrap();
    assert_eq!(omega.billed_source_seconds_max, Some(15));
    assert_eq!(omega.inputs["image-to-video"].images.max, 4);
    assert_eq!(omega.inputs["frames-to-video"].images.max, 2);
}

#[test]
fn the_extension_is_checked() {
    let more = json!({"models": {"a": {"inherit": "model-zz"}, "b": {"inputs": {"text-to-video": {"images": [3, 1]}}}}});
    let errors = Rules::builtin().extended(extension(more)).unwrap_err();
    let fields: Vec<&str> = errors.iter().filter_map(|error| error.field.as_deref()).collect();
    assert_eq!(fields, ["models.a.inherit", "models.b.inputs.text-to-video.images"]);
    let typo = serde_json::from_value::<RulesExtension>(json!({"models": {"a": {"lyke": "x"}}}));
    assert!(typo.unwrap_err().to_string().contains("lyke"));
}

#[test]
fn more_wording_can_be_prohibited() {
    let rules = Rules::builtin().extended(extension(json!({"prohibited": ["Lookalike"]}))).unwrap();
    let row = request(json!({"model": "house-c1", "prompt": "a LOOKALIKE fox"}));
    let quote = quote(Some(Kind::Video), &row, &catalog(), &rules).unwrap();
    assert!(quote.notes[0].message.contains("LOOKALIKE"));
}

#[test]
fn a_catalog_that_lists_a_withdrawn_model_again_wins() {
    let back = json!([{"id": "model-o-2", "modes": {"text-to-video": {"credits": {"720p": {"per_generation": 3}}}}}]);
    let catalog = Catalog::of(&back, &Value::Null, &Value::Null, &Value::Null);
    let row = request(json!({"model": "model-o-2", "prompt": "a fox"}));
    let quote = quote(Some(Kind::Video), &row, &catalog, &Rules::builtin()).unwrap();
    assert_eq!(quote.price.unwrap().0, 3);
}
