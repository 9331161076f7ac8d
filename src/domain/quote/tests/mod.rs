//! The service's document, rule by rule, as transcripts: a request goes in, and what a person would
//! be told comes out.

#![allow(clippy::needless_pass_by_value, reason = "rows are written where they are used")]

mod bound;
mod canonical;
mod catalog;
mod image;
mod kind;
mod length;
pub(crate) mod properties;
mod rules;
mod sound;
mod spelling;
mod video_options;
mod video_price;

use serde_json::{Map, Value, json};

use super::{Catalog, Quote, Rules, quote};
use crate::domain::request::{Kind, Request};

/// The fixture: every price shape, and entries that are broken on purpose.
pub(crate) fn catalog() -> Catalog {
    let parts: Value = serde_json::from_str(include_str!("../fixtures/catalog.json")).unwrap();
    Catalog::of(&parts["video"], &parts["image"], &parts["music"], &parts["voices"])
}

/// A request, written as JSON.
pub(super) fn request(fields: Value) -> Request {
    serde_json::from_value(fields).unwrap()
}

pub(super) fn quoted(kind: Kind, fields: Value) -> Result<Quote, Vec<crate::domain::diagnostic::Diagnostic>> {
    quote(Some(kind), &request(fields), &catalog(), &Rules::builtin())
}

/// What a person is told: the price with its formula and the notes, or all errors.
pub(super) fn transcript(kind: Kind, fields: Value) -> String {
    match quoted(kind, fields) {
        Ok(quote) => {
            let price = quote.price.map_or("unpriced".to_owned(), |price| price.to_string());
            let notes = quote.notes.iter().map(|note| format!("\nnote: {note}"));
            format!("{price}: {}{}", quote.formula, notes.collect::<String>())
        }
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

/// The transcript of `fields` of this kind is exactly this.
#[track_caller]
pub(super) fn check(kind: Kind, fields: Value, expected: &str) {
    assert_eq!(transcript(kind, fields), expected);
}

/// The options of the body that would be sent.
#[track_caller]
pub(super) fn sent_options(kind: Kind, fields: Value) -> Value {
    let body = sent(kind, fields);
    body.get("options").cloned().unwrap_or_else(|| json!({}))
}

/// The body that would be sent.
#[track_caller]
pub(super) fn sent(kind: Kind, fields: Value) -> Map<String, Value> {
    quoted(kind, fields).unwrap().body
}

/// `base` with the fields of `more` over it.
pub(super) fn with(mut base: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut base, more) {
        fields.extend(more);
    }
    base
}
