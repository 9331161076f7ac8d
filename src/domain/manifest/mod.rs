//! Manifests: bytes in, typed rows and positioned problems out.
//!
//! A reader never stops at the first problem and never lets a bad row take a good one down. It takes
//! a stream and knows no files, no clock and no catalog: whether a model takes a duration, or a kind
//! takes a field, is for `quote` to validate.
//!
//! Reading order: [`row`] says what comes out, [`fields`] which names there are, `typing` what their
//! values may be; `csv`, `json` and `jsonl` bring the names and values.

use std::fmt;
use std::io::{Cursor, Read};

use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::request::Kind;

pub mod fields;
pub mod format;
pub mod row;
pub mod schema;

mod boolean_words;
mod cell_value;
mod coerce;
mod csv;
mod csv_records;
mod csv_separator;
mod deadline;
mod duplicate_keys;
mod header;
mod job;
mod json;
mod json_mistake;
mod jsonl;
mod matrix;
mod matrix_rows;
mod matrix_table;
mod messages;
mod row_edits;
mod row_template;
mod source;
mod spanned;
mod spreadsheet_values;
mod template_check;
#[cfg(test)]
mod tests;
mod url_list;

use format::Format;
pub use header::read_policy;
pub use matrix_table::{ReadTable, with_tables};
use row::{Header, ReadRow};
pub use row_edits::{BadFieldEdit, FieldEdit, RowEdits};
use source::Source;

/// Bounds on what a manifest may ask of memory, and of the purse by a slip of the finger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest CSV row or JSON line. A longer one is a bad row; it is never held.
    pub max_line_bytes: usize,
    /// Largest JSON document: it is held whole while it is read.
    pub max_json_bytes: usize,
    /// Most variations of one row.
    pub max_count: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_line_bytes: 1 << 20, max_json_bytes: 256 << 20, max_count: 1000 }
    }
}

/// A manifest that is being read: what it says about all its rows, and the rows as they come.
///
/// CSV and JSON Lines are streamed: one row is held at a time. Iteration ends after a
/// [`ReadRow::Unreadable`]. A manifest without any row is unreadable.
#[derive(Debug)]
pub struct Manifest<R> {
    header: Header,
    format: Format,
    rows: Rows<R>,
    state: State,
    /// What is set in some of the rows as they are read.
    edits: Option<(RowEdits, Limits)>,
}

#[derive(Debug)]
enum Rows<R> {
    Csv(Box<csv::Rows<Source<R>>>),
    Json(json::Jobs),
    JsonLines(jsonl::Lines<Source<R>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    NoRowYet,
    InRows,
    Ended,
}

/// A manifest of which nothing may be accepted.
pub struct RefusedManifest<R> {
    /// All that is wrong with the file as a whole. Never empty.
    pub problems: Vec<Diagnostic>,
    /// Its rows, where they can be read all the same: so that what is wrong with them is said at once.
    pub rows: Option<Box<Manifest<R>>>,
}

impl<R> fmt::Debug for RefusedManifest<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedManifest").field("problems", &self.problems).finish_non_exhaustive()
    }
}

/// Begins to read a manifest. `file_name` helps to tell the format; the bytes come from `source`, and tables that it
/// names from `read_table`.
///
/// # Errors
///
/// Everything that keeps any row from being accepted: a file that is empty or not text, columns that are
/// unknown or stand twice, a document that is not JSON, a broken policy or broken defaults.
pub fn open<R: Read>(
    file_name: &str,
    source: R,
    limits: &Limits,
    read_table: &mut ReadTable<'_>,
) -> Result<Manifest<R>, RefusedManifest<R>> {
    match read_header(file_name, source, limits, read_table) {
        Ok((manifest, problems)) if problems.is_empty() => Ok(manifest),
        Ok((manifest, problems)) => Err(RefusedManifest { problems, rows: Some(Box::new(manifest)) }),
        Err(problems) => Err(RefusedManifest { problems, rows: None }),
    }
}

/// The manifest, and what is wrong with its header.
fn read_header<R: Read>(
    file_name: &str,
    mut source: R,
    limits: &Limits,
    read_table: &mut ReadTable<'_>,
) -> Result<(Manifest<R>, Vec<Diagnostic>), Vec<Diagnostic>> {
    let head = source::head(&mut source)
        .map_err(|error| vec![source::unreadable(Position::line(1), &error)])
        .map(format::without_mark)?;
    let format = format::detect_media_type(file_name, &head).map_err(|problem| vec![problem])?;
    let source = Cursor::new(head).chain(source);
    let (header, rows, problems) = match format {
        Format::Csv => {
            let (rows, problems) = csv::open(source, limits)?;
            (Header::default(), Rows::Csv(Box::new(rows)), problems)
        }
        Format::JsonLines => {
            (Header::default(), Rows::JsonLines(jsonl::Lines::new(source, limits)), Vec::new())
        }
        Format::Json => {
            let (header, jobs, problems) = json::open(source, limits, read_table)?;
            (header, Rows::Json(jobs), problems)
        }
    };
    Ok((Manifest { header, format, rows, state: State::NoRowYet, edits: None }, problems))
}

/// The one name of a field that a heading may name, however it is spelled (`meta.client`, `options.duration`).
pub fn canonical_field(name: &str) -> Option<String> {
    fields::Field::column(name).map(|field| field.canonical())
}

/// The kind that a cell of a CSV manifest names; nothing where it is empty.
///
/// # Errors
/// When it names none.
pub fn kind_of_cell(cell: &str) -> Result<Option<Kind>, Diagnostic> {
    coerce::kind(&cell_value::CellValue::Cell(cell))
}

impl<R> Manifest<R> {
    /// What the manifest says about all its rows.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether its rows are made by a matrix.
    pub fn has_matrix(&self) -> bool {
        matches!(&self.rows, Rows::Json(jobs) if jobs.has_matrix())
    }

    /// The same manifest, in some of whose rows fields are set.
    #[must_use]
    pub fn with_edits(self, edits: RowEdits) -> Manifest<R> {
        Manifest { edits: Some((edits, Limits::default())), ..self }
    }

    /// The format it is read in.
    pub fn format(&self) -> Format {
        self.format
    }
}

impl<R: Read> Iterator for Manifest<R> {
    type Item = ReadRow;

    fn next(&mut self) -> Option<ReadRow> {
        if self.state == State::Ended {
            return None;
        }
        let row = match &mut self.rows {
            Rows::Csv(rows) => rows.next(),
            Rows::Json(rows) => rows.next(),
            Rows::JsonLines(rows) => rows.next(),
        };
        let row = row.or_else(|| (self.state == State::NoRowYet).then(no_row));
        self.state = match row {
            Some(ReadRow::Good(_) | ReadRow::Bad(_)) => State::InRows,
            Some(ReadRow::Unreadable(_)) | None => State::Ended,
        };
        match &self.edits {
            Some((edits, limits)) => row.map(|row| edits.apply(row, limits)),
            None => row,
        }
    }
}

fn no_row() -> ReadRow {
    ReadRow::Unreadable(Diagnostic::at(
        Position::line(1),
        "there is no job in the file, expected at least one",
    ))
}
