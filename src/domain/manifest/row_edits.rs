//! Fields of rows that a person sets to other values, read as the cells of a CSV manifest are.

use std::collections::HashSet;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Limits;
use super::cell_value::CellValue;
use super::coerce::RowBuilder;
use super::csv::unknown_column;
use super::fields::Field;
use super::row::{ReadRow, Row};
use crate::domain::diagnostic::{Diagnostic, Position};

/// `options.duration=5s`: a field and the value that it gets. An empty value removes the field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FieldEdit {
    /// As it was written.
    spelled: String,
    value: String,
}

/// A text that does not say which field to set to what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFieldEdit {
    /// There is no `=`.
    #[error("found {0:?}, expected FIELD=VALUE, such as model=house-c1 or options.duration=5s")]
    NoValue(String),
    /// No manifest has such a field: what one with that column is told.
    #[error("{}", .0.field_message())]
    UnknownField(Diagnostic),
}

impl FromStr for FieldEdit {
    type Err = BadFieldEdit;
    fn from_str(text: &str) -> Result<FieldEdit, BadFieldEdit> {
        let (field, value) = text.split_once('=').ok_or_else(|| BadFieldEdit::NoValue(text.to_owned()))?;
        let (spelled, value) = (field.trim().to_owned(), value.trim().to_owned());
        match Field::column(&spelled) {
            Some(_) => Ok(FieldEdit { spelled, value }),
            None => Err(BadFieldEdit::UnknownField(unknown_column(&spelled, Position::line(1)))),
        }
    }
}

impl TryFrom<String> for FieldEdit {
    type Error = BadFieldEdit;
    fn try_from(text: String) -> Result<FieldEdit, BadFieldEdit> {
        text.parse()
    }
}

impl From<FieldEdit> for String {
    fn from(edit: FieldEdit) -> String {
        format!("{}={}", edit.spelled, edit.value)
    }
}

impl FieldEdit {
    /// The one name of the field, however it was written (`options.duration`).
    pub fn field(&self) -> String {
        Field::column(&self.spelled).map(|field| field.canonical()).unwrap_or_default()
    }
}

/// Edits of some rows of a manifest.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct RowEdits {
    /// What is set, in this order.
    pub fields: Vec<FieldEdit>,
    /// The lines of the rows that are edited.
    pub lines: Arc<HashSet<u64>>,
}

impl RowEdits {
    /// Whether a field is set to what may be the output of another row.
    pub fn may_name_rows(&self) -> bool {
        self.fields.iter().any(|edit| edit.value.contains("job:"))
    }

    /// The row with the edits, where it is one of those that are edited.
    pub(super) fn apply(&self, read: ReadRow, limits: &Limits) -> ReadRow {
        match read {
            ReadRow::Good(row) if self.lines.contains(&row.position.line) => self.edited(&row, limits),
            other => other,
        }
    }

    fn edited(&self, row: &Row, limits: &Limits) -> ReadRow {
        let mut builder = RowBuilder::new(row.position, Some(row), limits);
        for FieldEdit { spelled, value } in &self.fields {
            let Some(field) = Field::column(spelled) else { continue };
            let given = match value.as_str() {
                "" => CellValue::Json(Value::Null),
                value => CellValue::Cell(value),
            };
            builder.set(&field, &field.canonical().into(), spelled, row.position, given);
        }
        builder.finish().map_or_else(ReadRow::Bad, ReadRow::Good)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::manifest;

    fn rows(edits: &[&str], lines: &[u64], text: &str) -> Vec<ReadRow> {
        let edits = RowEdits {
            fields: edits.iter().map(|edit| edit.parse().unwrap()).collect(),
            lines: Arc::new(lines.iter().copied().collect()),
        };
        let manifest =
            manifest::open("a.jsonl", text.as_bytes(), &Limits::default(), &mut |_| unreachable!());
        manifest.unwrap().with_edits(edits).collect()
    }

    const TWO: &str = "\n{\"id\":\"a\",\"kind\":\"video\",\"prompt\":\"x\",\"options\":{\"duration\":\"8s\",\"seed\":7}}\n\
                       {\"id\":\"b\",\"kind\":\"video\",\"prompt\":\"y\",\"options\":{\"duration\":\"8s\"}}\n";

    #[test]
    fn the_rows_of_the_lines_are_edited_and_no_others() {
        let rows = rows(&["duration=5s", "options.seed=", "model=house-c1"], &[2], TWO);
        let [ReadRow::Good(edited), ReadRow::Good(other)] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!(Value::from(edited.request.options.clone()), json!({"duration": "5s"}));
        assert_eq!(edited.request.model.as_deref(), Some("house-c1"));
        assert_eq!(Value::from(other.request.options.clone()), json!({"duration": "8s"}));
        assert_eq!(other.request.model, None);
    }

    #[test]
    fn a_value_is_refused_as_in_a_cell() {
        let rows = rows(&["count=0", "audio=perhaps"], &[3], TWO);
        let [ReadRow::Good(_), ReadRow::Bad(bad)] = rows.as_slice() else { panic!("{rows:?}") };
        let said: Vec<String> = bad.problems.iter().map(ToString::to_string).collect();
        assert!(said.len() == 2, "{said:?}");
        assert!(said[0].starts_with("3:1: count: found \"0\", expected a whole number from 1"), "{said:?}");
    }

    #[test]
    fn an_edit_is_written_as_it_is_read() {
        let edit: FieldEdit = " Duration = 5s ".parse().unwrap();
        assert_eq!((edit.field().as_str(), String::from(edit).as_str()), ("options.duration", "Duration=5s"));
        assert_eq!(serde_json::from_value::<FieldEdit>(json!("prompt=a=b")).unwrap().value, "a=b");
        let said = |text: &str| text.parse::<FieldEdit>().unwrap_err().to_string();
        assert_eq!(said("durration=5s"), "durration: unknown column; did you mean \"duration\"?");
        assert!(said("duration").contains("expected FIELD=VALUE"));
    }
}
