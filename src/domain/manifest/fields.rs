//! The field names a manifest may use, and the headers of CSV columns that mean them.
//!
//! The names are the service's own; beside them stand callsheet's terms of a job. Every reader
//! of manifests asks this table, so that a CSV column and a JSON key can never mean two things. Which kinds
//! take a field is for `quote` to say.

use super::messages::{nearest, plain};

/// Before the name of an option, documented or not (`options.seed`).
pub(super) const OPTIONS: &str = "options.";
/// Before the name of a column of the pipeline's own (`meta.sku`).
pub(super) const META: &str = "meta.";

/// A name a manifest may use bare.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownField {
    /// As it is spelled.
    pub name: &'static str,
    pub slot: Slot,
}

/// What a known name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The job's label and file name.
    Id,
    /// What is generated.
    Kind,
    /// How many variations.
    Count,
    /// Higher goes first.
    Priority,
    /// When the job is overdue.
    Deadline,
    /// The most the job may cost.
    MaxCredits,
    /// Whether a person decides about the outputs.
    Review,
    /// A text of the request's body.
    Body(BodyText),
    /// Source images.
    ImageUrls,
    /// Source videos.
    VideoUrls,
    /// An option the service documents.
    Option(OptionType),
}

/// The texts of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyText {
    Model,
    Prompt,
    Text,
    VoiceId,
    Mode,
    Scene,
}

/// What the service accepts as a documented option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionType {
    Text,
    /// Text such as `8s`, or a whole number of seconds.
    Duration,
    /// `true` or `false`.
    Flag,
    /// A JSON number.
    Number,
    /// A JSON number of seconds, or a reference to the output of another row.
    Length,
}

const fn known(name: &'static str, slot: Slot) -> KnownField {
    KnownField { name, slot }
}

const fn option(name: &'static str, accepts: OptionType) -> KnownField {
    known(name, Slot::Option(accepts))
}

/// Every bare name: the terms of a job, the body of a request, the options the service documents.
pub static KNOWN: [KnownField; 32] = [
    known("id", Slot::Id),
    known("kind", Slot::Kind),
    known("count", Slot::Count),
    known("priority", Slot::Priority),
    known("deadline", Slot::Deadline),
    known("max_credits", Slot::MaxCredits),
    known("review", Slot::Review),
    known("model", Slot::Body(BodyText::Model)),
    known("prompt", Slot::Body(BodyText::Prompt)),
    known("text", Slot::Body(BodyText::Text)),
    known("voice_id", Slot::Body(BodyText::VoiceId)),
    known("mode", Slot::Body(BodyText::Mode)),
    known("scene", Slot::Body(BodyText::Scene)),
    known("image_urls", Slot::ImageUrls),
    known("video_urls", Slot::VideoUrls),
    option("duration", OptionType::Duration),
    option("resolution", OptionType::Text),
    option("aspect_ratio", OptionType::Text),
    option("audio", OptionType::Flag),
    option("source_video_duration_seconds", OptionType::Length),
    option("quality", OptionType::Text),
    option("size", OptionType::Text),
    option("duration_seconds", OptionType::Length),
    option("instrumental", OptionType::Flag),
    option("style", OptionType::Text),
    option("title", OptionType::Text),
    option("lyrics", OptionType::Text),
    option("model_id", OptionType::Text),
    option("speed", OptionType::Number),
    option("stability", OptionType::Number),
    option("similarity_boost", OptionType::Number),
    option("prompt_influence", OptionType::Number),
];

/// What a column or key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    /// A bare name of the table.
    Known(&'static KnownField),
    /// An option the service documents, written under `options`.
    Documented(&'static KnownField, OptionType),
    /// Any other option: forwarded as it is.
    Forwarded(String),
    /// A column of the pipeline's own.
    Meta(String),
}

impl Field {
    /// A name that may stand bare.
    pub(super) fn bare(name: &str) -> Option<Field> {
        let known = KNOWN.iter().find(|known| known.name == name)?;
        match known.slot {
            Slot::Option(accepts) => Some(Field::Documented(known, accepts)),
            _ => Some(Field::Known(known)),
        }
    }

    /// A name under `options`.
    pub(super) fn option(name: &str) -> Field {
        match Field::bare(name) {
            Some(documented @ Field::Documented(..)) => documented,
            _ => Field::Forwarded(name.to_owned()),
        }
    }

    /// A CSV column: a bare name, `options.NAME` or `meta.NAME`. Bare names and prefixes are read in any case, and with
    /// any of `_`, `-` and spaces between their words: `Aspect Ratio` is `aspect_ratio`.
    pub(super) fn column(name: &str) -> Option<Field> {
        let part = |prefix: &str| {
            let begin = name.get(..prefix.len())?;
            let rest = name.get(prefix.len()..)?.trim();
            (begin.eq_ignore_ascii_case(prefix) && !rest.is_empty()).then_some(rest)
        };
        if let Some(option) = part(OPTIONS) {
            return Some(Field::option(option));
        }
        if let Some(meta) = part(META) {
            return Some(Field::Meta(meta.to_owned()));
        }
        Field::bare(name).or_else(|| {
            let known = KNOWN.iter().find(|known| plain(known.name) == plain(name))?;
            Field::bare(known.name)
        })
    }

    /// The one name of the field, however it was spelled: options as `options.duration`.
    pub(super) fn canonical(&self) -> String {
        match self {
            Field::Known(known) => known.name.to_owned(),
            Field::Documented(known, _) => format!("{OPTIONS}{}", known.name),
            Field::Forwarded(name) => format!("{OPTIONS}{name}"),
            Field::Meta(name) => format!("{META}{name}"),
        }
    }
}

/// The bare name that `name` was probably meant to be. `beside` are names that are known where it
/// stands, next to the table.
pub(super) fn suggestion(name: &str, beside: &[&'static str]) -> Option<&'static str> {
    let names = KNOWN.iter().map(|known| known.name).chain(beside.iter().copied());
    nearest(name.strip_prefix(OPTIONS).unwrap_or(name), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN.len());
    }

    #[test]
    fn no_two_names_differ_only_in_case_and_what_stands_between_words() {
        let mut names: Vec<_> = KNOWN.iter().map(|known| plain(known.name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN.len());
    }

    #[test]
    fn the_options_of_the_table_are_those_that_kinds_document() {
        use crate::domain::quote::kind_fields::documented_options;
        use crate::domain::request::Kind;

        let mut documented: Vec<_> = Kind::ALL.into_iter().flat_map(documented_options).copied().collect();
        let options = KNOWN.iter().filter(|known| matches!(known.slot, Slot::Option(_)));
        let mut known: Vec<_> = options.map(|known| known.name).collect();
        documented.sort_unstable();
        documented.dedup();
        known.sort_unstable();
        assert_eq!(known, documented);
    }

    #[test]
    fn a_documented_option_is_one_field_however_it_is_spelled() {
        let bare = Field::column("duration").unwrap();
        let under = Field::column("options.duration").unwrap();
        assert_eq!(bare, under);
        assert_eq!(bare.canonical(), "options.duration");
    }

    #[test]
    fn columns() {
        let check = |name: &str, expected: Option<&str>| {
            let found = Field::column(name).map(|field| field.canonical());
            assert_eq!(found.as_deref(), expected, "{name}");
        };
        check("prompt", Some("prompt"));
        check("options.seed", Some("options.seed"));
        check("options.prompt", Some("options.prompt"));
        check("meta.sku", Some("meta.sku"));
        check("meta.a.b", Some("meta.a.b"));
        check("meta.", None);
        check("options.", None);
        check("seed", None);
        check("Prompt", Some("prompt"));
        check("PROMPT", Some("prompt"));
        check("Aspect Ratio", Some("options.aspect_ratio"));
        check("imageUrls", Some("image_urls"));
        check("max-credits", Some("max_credits"));
        check("Meta.SKU", Some("meta.SKU"));
        check("Options.Seed", Some("options.Seed"));
        check("promt", None);
    }
}
