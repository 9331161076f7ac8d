//! A job as a JSON object: one row of a JSON array, one line of JSON Lines, or the defaults.

use serde_json::Value;

use crate::domain::diagnostic::{Diagnostic, Position};

use super::Limits;
use super::cell_value::CellValue;
use super::coerce::RowBuilder;
use super::duplicate_keys::UniqueNames;
use super::fields::{Field, META, OPTIONS, suggestion};
use super::messages::{quoted, shortened};
use super::row::{BadRow, Row};
use super::row_template::is_template;
use super::spanned::{Key, Shape, Spanned};

/// Keys of a job that hold objects.
const GROUPS: &[&str] = &["options", "meta"];

/// Fills a template: given are the field as it is spelled, the template and where it stands.
pub(super) type Fill<'a> = dyn Fn(&str, &str, Position) -> Result<String, Diagnostic> + 'a;

/// Reads a job under `defaults`: its own fields win, options and meta key by key.
pub(super) fn read(job: Spanned<'_>, defaults: Option<&Row>, limits: &Limits) -> Result<Box<Row>, BadRow> {
    read_filled(job, defaults, limits, None)
}

/// The same for a job whose values may be templates. A value that is a template is read as a cell of a CSV file is.
pub(super) fn read_filled(
    job: Spanned<'_>,
    defaults: Option<&Row>,
    limits: &Limits,
    fill: Option<&Fill<'_>>,
) -> Result<Box<Row>, BadRow> {
    if job.shape() != Shape::Object {
        let found = shortened(job.text.trim());
        let message = format!("found {found}, expected a job: an object such as {{\"prompt\": \"...\"}}");
        return Err(BadRow::unread(Diagnostic::at(job.at, message)));
    }
    let mut reading =
        JobReader { draft: RowBuilder::new(job.at, defaults, limits), given: UniqueNames::default(), fill };
    let walked = job.entries(&mut |key, value| reading.field(&key, value));
    if let Err(problem) = walked {
        // What stands behind it was not read.
        reading.draft.refuse_unknown(|| problem);
    }
    reading.draft.finish()
}

struct JobReader<'l> {
    draft: RowBuilder<'l>,
    given: UniqueNames,
    fill: Option<&'l Fill<'l>>,
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
        let given = value.value().and_then(|json| match self.fill {
            Some(fill) if is_template(value.text) => {
                let fill = |text: &str| {
                    fill(spelled, text, value.at).map_err(|problem| problem.positioned(value.at))
                };
                filled(json, &fill)
            }
            _ => Ok(Filled::Json(json)),
        });
        let canonical = canonical.into();
        match given {
            Ok(Filled::Json(json)) => {
                self.draft.set(field, &canonical, spelled, value.at, CellValue::Json(json));
            }
            Ok(Filled::Text(text)) if text.trim().is_empty() => {}
            Ok(Filled::Text(text)) => {
                self.draft.set(field, &canonical, spelled, value.at, CellValue::Cell(text.trim()));
            }
            Err(problem) => {
                self.draft.refuse_value(&canonical, value.at, problem.in_field(shortened(spelled)));
            }
        }
    }
}

/// A value in which templates were filled.
enum Filled {
    /// A template by itself.
    Text(String),
    /// Anything else.
    Json(Value),
}

fn filled(json: Value, fill: &dyn Fn(&str) -> Result<String, Diagnostic>) -> Result<Filled, Diagnostic> {
    fn within(json: Value, fill: &dyn Fn(&str) -> Result<String, Diagnostic>) -> Result<Value, Diagnostic> {
        Ok(match json {
            Value::String(text) if is_template(&text) => Value::String(fill(&text)?),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| within(item, fill)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| Ok((name, within(value, fill)?)));
                Value::Object(fields.collect::<Result<_, Diagnostic>>()?)
            }
            other => other,
        })
    }
    match json {
        Value::String(text) if is_template(&text) => fill(&text).map(Filled::Text),
        other => within(other, fill).map(Filled::Json),
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
