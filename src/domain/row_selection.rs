//! A part of a manifest: a sample of its rows, under the keys that they have in the whole.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::diagnostic::Diagnostic;
use crate::domain::manifest::row::Row;
use crate::domain::manifest::{canonical_field, kind_of_cell};
use crate::domain::request::Kind;

/// Which rows of a manifest are handed in. Everything that is set must hold of a row.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RowSelection {
    /// So many rows from the top of those that the rest selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// So many rows of those that the rest selects, in the order of a hash of what they are: the same ones every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<u32>,
    /// Rows with one of these ids; any where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Fields that have these values.
    #[serde(rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FieldFilter>,
}

/// `meta.client=acme`: a field that has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FieldFilter {
    /// The canonical name of the field: `kind`, `options.duration`, `meta.client`.
    field: String,
    /// Its value as a text; empty where the field must be absent.
    value: String,
}

/// A text that does not say which field must have which value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    /// There is no `=`.
    #[error("found {0:?}, expected FIELD=VALUE, such as meta.client=acme or kind=image")]
    NoField(String),
    /// No manifest has such a field.
    #[error("no manifest has a field {0:?}; expected FIELD=VALUE, such as meta.client=acme or kind=image")]
    UnknownField(String),
    /// No row can be of that kind.
    #[error("kind: {}", .0.field_message())]
    Kind(Diagnostic),
}

impl FromStr for FieldFilter {
    type Err = BadFilter;
    fn from_str(text: &str) -> Result<FieldFilter, BadFilter> {
        let bad = || BadFilter::NoField(text.to_owned());
        let (field, value) = text.split_once('=').ok_or_else(bad)?;
        let unknown = || BadFilter::UnknownField(field.trim().to_owned());
        let field = canonical_field(field.trim()).ok_or_else(unknown)?;
        let mut value = value.trim().to_owned();
        if field == "kind"
            && let Some(kind) = kind_of_cell(&value).map_err(BadFilter::Kind)?
        {
            kind.name().clone_into(&mut value);
        }
        Ok(FieldFilter { field, value })
    }
}

impl TryFrom<String> for FieldFilter {
    type Error = BadFilter;
    fn try_from(text: String) -> Result<FieldFilter, BadFilter> {
        text.parse()
    }
}

impl From<FieldFilter> for String {
    fn from(filter: FieldFilter) -> String {
        format!("{}={}", filter.field, filter.value)
    }
}

impl RowSelection {
    /// Whether every row is selected.
    pub fn is_whole(&self) -> bool {
        *self == RowSelection::default()
    }

    /// Whether `only` and `where` select a row of `kind`; `first` and `random` then choose among those.
    pub fn matches(&self, row: &Row, kind: Option<Kind>) -> bool {
        let is_named = self.only.is_empty() || row.id.as_ref().is_some_and(|id| self.only.contains(id));
        is_named && self.filters.iter().all(|filter| filter.matches(row, kind))
    }
}

impl FieldFilter {
    fn matches(&self, row: &Row, kind: Option<Kind>) -> bool {
        value_of(row, kind, &self.field).unwrap_or_default() == self.value
    }
}

/// The value of a column `meta.NAME`: spreadsheets write `Meta.Client` for `meta.client`, so that case decides only
/// between columns that differ in nothing else.
pub fn meta_value<'m>(meta: &'m Map<String, Value>, name: &str) -> Option<&'m Value> {
    meta.get(name).or_else(|| {
        let mut same = meta.iter().filter(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        same.next().filter(|_| same.next().is_none())
    })
}

/// The value of a field as a text; nothing where it is absent.
fn value_of(row: &Row, kind: Option<Kind>, field: &str) -> Option<String> {
    let request = &row.request;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(name) = field.strip_prefix("options.") {
        return request.options.get(name).map(text);
    }
    if let Some(name) = field.strip_prefix("meta.") {
        return meta_value(&row.meta, name).map(text);
    }
    match field {
        "id" => row.id.clone(),
        "kind" => kind.map(|kind| kind.name().to_owned()),
        "count" => Some(row.count.to_string()),
        "priority" => Some(row.priority.unwrap_or_default().to_string()),
        "max_credits" => row.max_credits.map(|most| most.0.to_string()),
        "model" => request.model.clone(),
        "prompt" => request.prompt.clone(),
        "text" => request.text.clone(),
        "voice_id" => request.voice_id.clone(),
        "mode" => request.mode.clone(),
        "scene" => request.scene.clone(),
        "image_urls" => Some(request.image_urls.join(" ")),
        "video_urls" => Some(request.video_urls.join(" ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::diagnostic::Position;

    fn row() -> Row {
        let mut row = Row::at(Position::line(2));
        row.id = Some("poster".to_owned());
        row.request = serde_json::from_value(json!({"model": "gi-2", "options": {"duration": 5}})).unwrap();
        row.meta = json!({"client": "acme", "n": 7}).as_object().cloned().unwrap();
        row
    }

    #[test]
    fn a_row_is_selected_where_everything_holds() {
        let selects = |only: &[&str], filters: &[&str]| {
            let selection = RowSelection {
                only: only.iter().map(|id| (*id).to_owned()).collect(),
                filters: filters.iter().map(|filter| filter.parse().unwrap()).collect(),
                ..RowSelection::default()
            };
            selection.matches(&row(), Some(Kind::Image))
        };
        assert!(selects(&[], &[]));
        assert!(selects(&["icon", "poster"], &["meta.client=acme", "kind=image"]));
        assert!(selects(
            &[],
            &["duration=5", "options.duration = 5", "Model=gi-2", "meta.n=7", "meta.other="]
        ));
        assert!(selects(&[], &["meta.Client=acme", "kind=Image"]));
        assert!(!selects(&["icon"], &[]));
        assert!(!selects(&["poster"], &["meta.client=beta"]));
        assert!(!selects(&[], &["meta.client=acme", "kind=video"]));
    }

    #[test]
    fn a_filter_names_a_field_that_there_is() {
        for (wrong, expected) in [
            ("", "expected FIELD=VALUE"),
            ("client", "expected FIELD=VALUE"),
            ("meta.=x", "no manifest has a field \"meta.\""),
            ("clinet=acme", "no manifest has a field \"clinet\""),
            ("=acme", "no manifest has a field \"\""),
        ] {
            let said = wrong.parse::<FieldFilter>().unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        let said = "kind=vidoe".parse::<FieldFilter>().unwrap_err().to_string();
        assert!(said.starts_with("kind: found \"vidoe\", did you mean \"video\"?"), "{said}");
        let selection = RowSelection {
            random: Some(3),
            filters: vec!["meta.client=a=b".parse().unwrap()],
            ..RowSelection::default()
        };
        let json = serde_json::to_string(&selection).unwrap();
        assert_eq!(json, r#"{"random":3,"where":["meta.client=a=b"]}"#);
        assert_eq!(serde_json::from_str::<RowSelection>(&json).unwrap(), selection);
    }
}
