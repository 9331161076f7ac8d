//! The tables of a matrix: files with a row for each value of an axis.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::domain::diagnostic::{Diagnostic, Position};

use super::Limits;
use super::csv;
use super::format::without_mark;
use super::messages::{nearest, quoted, shortened};
use super::spanned::{PositionTracker, Shape, Spanned, offset_within};

/// Reads the file that a matrix names, or says why it cannot be read.
pub type ReadTable<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

#[derive(Debug)]
pub(super) struct AxisValue {
    /// As templates see it.
    pub value: Value,
    /// As messages name it.
    pub shown: String,
}

/// Where tables come from that a matrix names.
pub(super) struct Tables<'a, 't> {
    /// Those that came with the manifest (`"tables"`); all that it names are among them then.
    pub given: Option<Spanned<'a>>,
    /// Reads the others.
    pub read: &'t mut ReadTable<'t>,
    pub limits: &'t Limits,
}

/// The rows of a table, as values of an axis.
pub(super) fn read(
    name: &str,
    at: Position,
    tables: &mut Tables<'_, '_>,
) -> Result<Vec<AxisValue>, Diagnostic> {
    let rows = match tables.given {
        Some(given) => given_table(name, given, at)?,
        None => {
            let bytes = (tables.read)(name).map_err(|why| Diagnostic::at(at, why))?;
            rows(name, bytes, at, tables.limits)?
        }
    };
    let shown = |(row, (value, first)): (usize, (Value, Option<String>))| {
        let shown = first.and_then(|first| {
            let named = value.get(&first)?;
            Some(format!(".{first}{}", shown_value(named, row)))
        });
        AxisValue { shown: shown.unwrap_or_else(|| shown_value(&value, row)), value }
    };
    Ok(rows.into_iter().enumerate().map(shown).collect())
}

/// A row as a value, with the name of its first column, by which messages name it.
type TableRow = (Value, Option<String>);

/// The rows of a file: CSV with a heading, or a JSON array.
fn rows(name: &str, bytes: Vec<u8>, at: Position, limits: &Limits) -> Result<Vec<TableRow>, Diagnostic> {
    let within = |problem: Diagnostic| {
        let place = problem.position.map_or(String::new(), |Position { line, column }| {
            column.map_or(format!(":{line}"), |column| format!(":{line}:{column}"))
        });
        let message = format!("{name}{place}: {}", problem.field_message());
        Diagnostic { position: Some(at), field: None, message, hint: problem.hint, price: None }
    };
    let bytes = without_mark(bytes);
    if extension(name).eq_ignore_ascii_case("json") {
        let text = String::from_utf8(bytes)
            .map_err(|_| within(Diagnostic::new("found bytes that are not UTF-8, expected UTF-8")))?;
        let document = Spanned::new(&text, Position::at(1, 1));
        return match document.value().map_err(within)? {
            Value::Array(rows) => Ok(rows.into_iter().map(|row| (row, None)).collect()),
            _ => Err(within(Diagnostic::new("expected a JSON array of values or objects"))),
        };
    }
    let (names, rows) = csv::read_table(bytes.as_slice(), limits).map_err(within)?;
    let first = names.first().cloned();
    let object = |cells: Vec<String>| {
        let fields = names.iter().cloned().zip(cells.into_iter().map(Value::String));
        (Value::Object(fields.collect::<Map<_, _>>()), first.clone())
    };
    Ok(rows.into_iter().map(object).collect())
}

fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// A table that came with the manifest: `{"first": "sku", "rows": [...]}`.
fn given_table(name: &str, given: Spanned<'_>, at: Position) -> Result<Vec<TableRow>, Diagnostic> {
    let Value::Object(mut tables) = given.value()? else {
        return Err(given.is_not("an object of tables by their names").in_field("tables"));
    };
    let Some(table) = tables.remove(name) else {
        let near = nearest(name, tables.keys().map(String::as_str));
        let near = near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        return Err(Diagnostic::at(at, format!("there is no table {} in \"tables\"{near}", quoted(name))));
    };
    match table {
        Value::Array(rows) => Ok(rows.into_iter().map(|row| (row, None)).collect()),
        Value::Object(mut table) => {
            let first = table.remove("first").and_then(|first| first.as_str().map(str::to_owned));
            match table.remove("rows") {
                Some(Value::Array(rows)) => Ok(rows.into_iter().map(|row| (row, first.clone())).collect()),
                _ => Err(given.is_not("a table with \"rows\", an array").in_field("tables")),
            }
        }
        _ => Err(given.is_not("a table: an array of rows").in_field("tables")),
    }
}

/// A JSON manifest with the tables in it that it names, so that who reads it needs no other file. Nothing where it names
/// none, has them already, or is no JSON manifest. They stand at its end: what stands before keeps its place.
///
/// # Errors
/// When a table cannot be read.
pub fn with_tables(
    document: &str,
    read: &mut ReadTable<'_>,
    limits: &Limits,
) -> Result<Option<String>, Diagnostic> {
    let document = document.strip_prefix('\u{feff}').unwrap_or(document);
    let whole = document.trim_end();
    let manifest = Spanned::new(whole.trim_start(), Position::at(1, 1));
    if manifest.shape() != Shape::Object || manifest.check_syntax().is_err() {
        return Ok(None);
    }
    let mut tracker = PositionTracker::new(Spanned::new(document, Position::at(1, 1)));
    let manifest = Spanned::new(manifest.text, tracker.to(offset_within(document, manifest.text)));
    let (mut matrix, mut has_tables) = (None, false);
    manifest.entries(&mut |key, value| match key.name.as_str() {
        "matrix" => matrix = Some(value),
        "tables" => has_tables = true,
        _ => {}
    })?;
    let Some(matrix) = matrix.filter(|matrix| matrix.shape() == Shape::Object && !has_tables) else {
        return Ok(None);
    };
    let mut named = BTreeMap::new();
    matrix.entries(&mut |key, value| {
        if let Ok(Value::String(table)) = value.value() {
            named.entry(table).or_insert((format!("matrix.{}", key.name), value.at));
        }
    })?;
    let mut tables = Map::new();
    for (name, (field, at)) in named {
        let bytes = read(&name).map_err(|why| Diagnostic::at(at, why).in_field(field.as_str()))?;
        let rows = rows(&name, bytes, at, limits).map_err(|problem| problem.in_field(field.as_str()))?;
        let first = rows.first().and_then(|(_, first)| first.clone());
        let rows = Value::Array(rows.into_iter().map(|(row, _)| row).collect());
        let table = match first {
            Some(first) => {
                Value::Object(Map::from_iter([("first".to_owned(), first.into()), ("rows".to_owned(), rows)]))
            }
            None => rows,
        };
        tables.insert(name, table);
    }
    let Some(body) = whole.strip_suffix('}').filter(|_| !tables.is_empty()) else { return Ok(None) };
    Ok(Some(format!("{body}, \"tables\": {}}}\n", Value::Object(tables))))
}

/// What stands behind the name of the axis: ` "de"`, or `.sku "A-1"`, the first text of an object.
pub(super) fn shown_value(value: &Value, at: usize) -> String {
    match value {
        Value::Object(fields) => {
            let field = fields.iter().find(|(_, value)| value.is_string() || value.is_number());
            field.map_or(format!(" {}", at + 1), |(name, value)| {
                format!(".{}{}", shortened(name), shown_value(value, at))
            })
        }
        Value::Array(_) => format!(" {}", at + 1),
        Value::String(text) => format!(" {}", quoted(text)),
        scalar => format!(" {scalar}"),
    }
}
