//! A job as a JSON object: one row of a JSON array, one line of JSON Lines, or the defaults.

use std::collections::BTreeMap;

use crate::domain::diagnostic::{Diagnostic, Position};

use super::Limits;
use super::cell_value::CellValue;
use super::coerce::RowBuilder;
use super::fields::{Field, META, OPTIONS, suggestion};
use super::messages::{quoted, shortened};
use super::row::{BadRow, Row};
use super::spanned::{Key, Shape, Spanned};

/// Keys of a job that hold objects.
const GROUPS: &[&str] = &["options", "meta"];

/// Reads a job under `defaults`: its own fields win, options and meta key by key.
pub(super) fn read(job: Spanned<'_>, defaults: Option<&Row>, limits: &Limits) -> Result<Box<Row>, BadRow> {
    if job.shape() != Shape::Object {
        let found = shortened(job.text.trim());
        let message = format!("found {found}, expected a job: an object such as {{\"prompt\": \"...\"}}");
        return Err(BadRow::unread(Diagnostic::at(job.at, message)));
    }
    let mut reading =
        JobReader { draft: RowBuilder::new(job.at, defaults, limits), given: UniqueNames::default() };
    let walked = job.entries(&mut |key, value| reading.field(&key, value));
    if let Err(problem) = walked {
        reading.draft.refuse(problem);
    }
    reading.draft.finish()
}

/// Names that may be given once only, and where they were.
#[derive(Debug, Default)]
pub(super) struct UniqueNames(BTreeMap<String, Position>);

impl UniqueNames {
    /// Notes that `name` is given at `at`; a problem if it was before.
    pub(super) fn first(&mut self, name: String, spelled: &str, at: Position) -> Result<(), Diagnostic> {
        let Some(before) = self.0.get(&name) else {
            self.0.insert(name, at);
            return Ok(());
        };
        let column = before.column.map(|column| format!(":{column}")).unwrap_or_default();
        let message = format!("given twice, first at {}{column}; keep one", before.line);
        Err(Diagnostic::at(at, message).in_field(shortened(spelled)))
    }
}

struct JobReader<'l> {
    draft: RowBuilder<'l>,
    given: UniqueNames,
}

impl JobReader<'_> {
    fn field(&mut self, key: &Key, value: Spanned<'_>) {
        match key.name.as_str() {
            "options" => self.group(key, value, &|name| (Field::option(name), OPTIONS)),
            "meta" => self.group(key, value, &|name| (Field::Meta(name.to_owned()), META)),
            name => match Field::bare(name) {
                Some(field) => self.set(&field, name, key.at, value),
                None => self.draft.refuse_unknown(|| unknown_key(key, GROUPS)),
            },
        }
    }

    /// The entries of `options` or `meta`.
    fn group(&mut self, key: &Key, object: Spanned<'_>, member: &dyn Fn(&str) -> (Field, &'static str)) {
        if let Err(problem) = self.given.first(key.name.clone(), &key.name, key.at) {
            return self.draft.refuse(problem);
        }
        let group = key.name.as_str();
        if object.text == "null" {
            return;
        }
        if object.shape() != Shape::Object {
            let message = format!("found {}, expected an object", shortened(object.text));
            return self.draft.refuse(Diagnostic::at(object.at, message).in_field(group));
        }
        let walked = object.entries(&mut |key, value| {
            if key.name.trim().is_empty() {
                return self.draft.refuse(Diagnostic::at(key.at, "found an empty name").in_field(group));
            }
            let (field, prefix) = member(&key.name);
            self.set(&field, &format!("{prefix}{}", key.name), key.at, value);
        });
        if let Err(problem) = walked {
            self.draft.refuse(problem);
        }
    }

    fn set(&mut self, field: &Field, spelled: &str, key_at: Position, value: Spanned<'_>) {
        let canonical = field.canonical();
        if let Err(problem) = self.given.first(canonical.clone(), spelled, key_at) {
            return self.draft.refuse(problem);
        }
        match value.value() {
            Ok(json) => self.draft.set(field, &canonical.into(), spelled, value.at, CellValue::Json(json)),
            Err(problem) => self.draft.refuse(problem.in_field(shortened(spelled))),
        }
    }
}

/// A key that is none of the known ones, of which `beside` are not in the table.
fn unknown_key(key: &Key, beside: &[&'static str]) -> Diagnostic {
    let message = match suggestion(&key.name, beside) {
        Some(near) => format!("unknown key; did you mean \"{near}\"?"),
        None => "unknown key".to_owned(),
    };
    let name = quoted(&key.name);
    let hint = format!(
        "to send {name} to the service put it inside \"options\", to keep it for the results inside \"meta\""
    );
    Diagnostic::at(key.at, message).in_field(shortened(&key.name)).hint(hint)
}
