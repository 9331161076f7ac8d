//! The JSON Schema of manifests, made from the same tables that the reader asks: a name or type that
//! the reader learns is in the schema, too.
//!
//! A schema knows no catalog: models, voices and values are for `plan` to validate.

use serde_json::{Map, Value, json};

use super::Limits;
use super::coerce::ID_CHARS;
use super::fields::{KNOWN, KnownField, OptionType, Slot};
use super::header::{MOST_ATTEMPTS, ON_DEADLINE, ON_DRIFT};
use crate::domain::quote::kind_fields::{kinds_of_field, kinds_of_option};
use crate::domain::request::Kind;

/// The schema of a JSON manifest: an array of jobs, or an object that holds one. A line of JSON Lines
/// is one `#/$defs/job`.
pub fn manifest() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "callsheet manifest",
        "description": "A manifest: an array of jobs, or an object with jobs, defaults and terms.",
        "oneOf": [
            {"$ref": "#/$defs/jobs"},
            {
                "type": "object",
                "required": ["jobs"],
                "additionalProperties": false,
                "properties": {
                    "batch": text("Name of the batch. Default: the file's name."),
                    "defaults": {"$ref": "#/$defs/defaults"},
                    "policy": {"$ref": "#/$defs/policy"},
                    "jobs": {"$ref": "#/$defs/jobs"},
                },
            },
            {
                "type": "object",
                "required": ["matrix", "jobs"],
                "additionalProperties": false,
                "properties": {
                    "batch": text("Name of the batch. Default: the file's name."),
                    "defaults": {"$ref": "#/$defs/templated_job"},
                    "policy": {"$ref": "#/$defs/policy"},
                    "matrix": {"$ref": "#/$defs/matrix"},
                    "matrix_max": {"type": "integer", "minimum": 1, "description": "Most rows that the matrix may make. Default: 10000."},
                    "tables": {"type": "object", "description": "Tables of the matrix by their names, if they come with the manifest."},
                    "jobs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/templated_job"}},
                },
            },
        ],
        "$defs": {
            "jobs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/job"}},
            "job": job(true),
            "defaults": job(false),
            "policy": policy(),
            "options": options(),
            "matrix": matrix(),
            "templated_job": templated_job(),
        },
    })
}

/// Axes with their values, and what is done with their combinations.
fn matrix() -> Value {
    let combinations = json!({"type": "array", "items": {"type": "object", "minProperties": 1}});
    json!({
        "type": "object",
        "description": "What jobs are made for: axes with their values, or with the name of a table.",
        "minProperties": 1,
        "properties": {
            "zip": {"type": "array", "description": "Axes that go on together: a list of names, or of such lists."},
            "include": combinations,
            "exclude": combinations,
        },
        "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1}]},
    })
}

/// A job of a manifest with a matrix: each value may be a template.
fn templated_job() -> Value {
    let template = json!({"type": "string", "pattern": r"\{[{%#]"});
    let of_field = |known: &KnownField| {
        let typed = match known.slot {
            Slot::Option(accepts) => option_type(accepts),
            _ => field(known),
        };
        (known.name.to_owned(), json!({"anyOf": [typed, template]}))
    };
    let mut properties: Map<String, Value> = KNOWN.iter().map(of_field).collect();
    for group in ["options", "meta"] {
        properties.insert(
            group.to_owned(),
            json!({"type": ["object", "null"], "propertyNames": {"pattern": NOT_BLANK}}),
        );
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

/// A job, or what all jobs have in common; an id names one job only.
fn job(with_id: bool) -> Value {
    let known = KNOWN.iter().filter(|known| with_id || known.slot != Slot::Id);
    let mut properties: Map<String, Value> =
        known.map(|known| (known.name.to_owned(), field(known))).collect();
    properties.insert("options".to_owned(), json!({"$ref": "#/$defs/options"}));
    properties.insert(
        "meta".to_owned(),
        json!({
            "type": ["object", "null"],
            "description": "Your own columns: never sent, copied to the results.",
            "propertyNames": {"pattern": NOT_BLANK},
        }),
    );
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "allOf": option_types(),
    })
}

/// The types of options are those of the job's kind: others are forwarded as they are. Where the job does not say its
/// kind, they are those of every kind that documents them.
fn option_types() -> Vec<Value> {
    let is = |kinds: Value| json!({"properties": {"kind": kinds}, "required": ["kind"]});
    let mut types: Vec<Value> = Kind::ALL
        .into_iter()
        .map(|kind| json!({"if": is(json!({"const": kind.name()})), "then": typed(Some(kind))}))
        .collect();
    types.push(json!({"if": is(json!({"enum": Kind::ALL.map(Kind::name)})), "else": typed(None)}));
    types
}

/// The options that a kind documents, or all, with their types, bare and under `options`.
fn typed(kind: Option<Kind>) -> Value {
    let mut types = Map::new();
    for known in &KNOWN {
        let Slot::Option(accepts) = known.slot else { continue };
        if kind.is_none_or(|kind| kinds_of_option(known.name).any(|owner| owner == kind)) {
            types.insert(known.name.to_owned(), option_type(accepts));
        }
    }
    let under = json!({"properties": types.clone()});
    types.insert("options".to_owned(), under);
    json!({"properties": types})
}

fn option_type(accepts: OptionType) -> Value {
    match accepts {
        OptionType::Text => json!({"type": ["string", "null"]}),
        OptionType::Duration => json!({
            "anyOf": [{"type": ["string", "null"]}, {"type": "integer", "minimum": 0}],
        }),
        OptionType::Flag => json!({"type": ["boolean", "null"]}),
        OptionType::Length => json!({"type": ["number", "string", "null"], "pattern": r"^\s*job:"}),
        OptionType::Number => json!({"type": ["number", "null"]}),
    }
}

/// A name or text that is more than white space.
const NOT_BLANK: &str = r"\S";

fn options() -> Value {
    let properties: Map<String, Value> = KNOWN
        .iter()
        .filter(|known| matches!(known.slot, Slot::Option(_)))
        .map(|known| (known.name.to_owned(), field(known)))
        .collect();
    json!({
        "type": ["object", "null"],
        "description": "Options of the service. Undocumented ones are forwarded unchanged.",
        "properties": properties,
        "propertyNames": {"pattern": NOT_BLANK},
    })
}

fn field(known: &KnownField) -> Value {
    let mut schema = match known.slot {
        Slot::Id => json!({
            "type": ["string", "integer", "null"],
            "maxLength": ID_CHARS,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        }),
        Slot::Kind => kind(),
        Slot::Count => whole(1, i64::from(Limits::default().max_count)),
        Slot::Priority => whole(i64::from(i8::MIN), i64::from(i8::MAX)),
        Slot::Deadline => span(),
        Slot::MaxCredits => credits(),
        Slot::Review => json!({"type": ["boolean", "null"]}),
        Slot::Body(_) => json!({"type": ["string", "null"]}),
        Slot::ImageUrls | Slot::VideoUrls => urls(),
        // Its type depends on the kind: see `option_types`.
        Slot::Option(_) => json!({}),
    };
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("description".to_owned(), describe(known).into());
    }
    schema
}

/// What a field is for, and of which kinds.
fn describe(known: &KnownField) -> String {
    let what = match known.name {
        "id" => "Label of the job and name of its files.",
        "kind" => "Kind of output. Can be omitted if the model or the fields determine it.",
        "count" => "Number of variations; each is a job.",
        "priority" => "Priority: higher goes first.",
        "deadline" => "When the job is overdue: a duration (30m) after it was first sent, or an instant.",
        "max_credits" => "Price limit of the job. Required if the price cannot be computed.",
        "review" => "Whether its outputs wait for a decision.",
        "model" => "Model id; `callsheet models` lists them.",
        "prompt" => "Prompt.",
        "text" => "Text to speak.",
        "voice_id" => "Voice id; `callsheet voices` lists them.",
        "mode" => "Video mode; default: from the inputs.",
        "scene" => "Image scene; default: from the inputs.",
        "image_urls" => {
            "Source images: http(s) addresses, or job:ID for the output of another row, as a list or with white space or ; \
             between them."
        }
        "video_urls" => "Source video: an http(s) address, or job:ID for the output of another row.",
        "duration" => "Seconds of video: 8, or \"8s\"; or job:ID for as long as the output of another row.",
        "audio" => "Whether the video has sound.",
        "source_video_duration_seconds" => {
            "Seconds of the source video, or job:ID for the length of that row's output; filled where video_urls is a job:ID."
        }
        "size" => "Exact pixels, such as 1024x1536, for models that take them.",
        "duration_seconds" => "Seconds of sound, or job:ID for as long as the output of another row.",
        "instrumental" => "No vocals.",
        "style" | "title" => "With it the prompt is used as lyrics.",
        _ => "An option of the service.",
    };
    let kinds: Vec<&str> = match known.slot {
        Slot::Id
        | Slot::Kind
        | Slot::Count
        | Slot::Priority
        | Slot::Deadline
        | Slot::MaxCredits
        | Slot::Review => return what.to_owned(),
        Slot::Body(_) | Slot::ImageUrls | Slot::VideoUrls => {
            kinds_of_field(known.name).iter().map(|kind| kind.name()).collect()
        }
        Slot::Option(_) => kinds_of_option(known.name).map(Kind::name).collect(),
    };
    format!("{what} For {}.", kinds.join(", "))
}

fn policy() -> Value {
    let choice = |names: Vec<&str>| nullable_enum(&names);
    json!({
        "type": "object",
        "additionalProperties": false,
        "description": "Terms of the batch. Flags override them.",
        "properties": {
            "budget": credits(),
            "priority": whole(i64::from(i8::MIN), i64::from(i8::MAX)),
            "deadline": span(),
            "on_deadline": choice(ON_DEADLINE.iter().map(|(name, _)| *name).collect()),
            "expires": span(),
            "attempts": whole(1, i64::from(MOST_ATTEMPTS)),
            "strict": {"type": ["boolean", "null"]},
            "allow_unknown_options": {
                "type": ["boolean", "null"],
                "description": "Send options that look misspelt.",
            },
            "on_drift": choice(ON_DRIFT.iter().map(|(name, _)| *name).collect()),
            "review": {"type": ["boolean", "null"], "description": "Outputs wait for a decision."},
            "layout": text("Names of output files, such as {batch}/{job}{-n}.{ext}."),
        },
    })
}

fn text(description: &str) -> Value {
    json!({"type": ["string", "null"], "description": description})
}

fn kind() -> Value {
    nullable_enum(&Kind::ALL.map(Kind::name))
}

/// One of the names; blank and null leave it open.
fn nullable_enum(names: &[&str]) -> Value {
    let mut values: Vec<Value> = names.iter().map(|name| Value::from(*name)).collect();
    values.extend([Value::from(""), Value::Null]);
    json!({"enum": values})
}

fn whole(least: i64, most: i64) -> Value {
    json!({"type": ["integer", "null"], "minimum": least, "maximum": most})
}

fn credits() -> Value {
    json!({"type": ["integer", "null"], "minimum": 0})
}

/// The grammar of spans and instants is the reader's; here only their shape is.
fn span() -> Value {
    json!({"type": ["string", "null"], "pattern": "^(\\s*$|\\s*[0-9])"})
}

fn urls() -> Value {
    json!({"anyOf": [
        {"type": ["string", "null"]},
        {"type": "array", "items": {"type": "string", "pattern": NOT_BLANK}},
    ]})
}
