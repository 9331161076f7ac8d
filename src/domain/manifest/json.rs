//! A JSON manifest: an array of jobs, or an object that holds one.
//!
//! The document is held whole, within [`Limits::max_json_bytes`]; its jobs are typed one at a time.
//! One that is not JSON to its end is refused before its first job: no part of it can be trusted.

use std::io::Read;

use crate::domain::diagnostic::{Diagnostic, Position};

use super::Limits;
use super::header::{self, JsonHeader};
use super::job;
use super::matrix_rows::{MatrixRows, Part};
use super::matrix_table::ReadTable;
use super::messages::{bytes, shortened};
use super::row::{Header, ReadRow, Row};
use super::source::{not_utf8, unreadable};
use super::spanned::{PositionTracker, Shape, Spanned, next_element, offset_within};

/// The jobs of a document, in its order.
#[derive(Debug)]
pub(super) struct Jobs {
    document: String,
    defaults: Option<Box<Row>>,
    /// The rows that a matrix makes of the jobs.
    matrix_rows: Option<Box<MatrixRows>>,
    limits: Limits,
    /// Where to look for the next job, and what line and column that is.
    offset: usize,
    at: Position,
}

/// Reads the document and what it says about all its jobs; beside them all that is wrong with that.
pub(super) fn open(
    source: impl Read,
    limits: &Limits,
    read_table: &mut ReadTable<'_>,
) -> Result<(Header, Jobs, Vec<Diagnostic>), Vec<Diagnostic>> {
    let document = whole(source, limits.max_json_bytes).map_err(|problem| vec![problem])?;
    let start = Spanned::new(&document, Position::at(1, 1));
    start.check_syntax().map_err(|problem| vec![about_lines(start, problem)])?;
    let mut tracker = PositionTracker::new(start);
    let value = document.trim();
    let manifest = Spanned::new(value, tracker.to(offset_within(&document, value)));
    let JsonHeader { header, defaults, templated_defaults, matrix, jobs, mut problems } =
        match manifest.shape() {
            Shape::Array => {
                let header = Header::default();
                JsonHeader {
                    header,
                    defaults: None,
                    templated_defaults: None,
                    matrix: None,
                    jobs: manifest,
                    problems: Vec::new(),
                }
            }
            Shape::Object => header::read(manifest, limits, read_table)?,
            Shape::Scalar => return Err(vec![not_a_manifest(manifest)]),
        };
    let matrix_rows = matrix.map(|(matrix, rows_max)| {
        let defaults = templated_defaults.map(|defaults| Part::of(&document, defaults));
        MatrixRows::new(&document, (matrix, defaults), jobs, rows_max, limits)
    });
    let matrix_rows = match matrix_rows.transpose() {
        Ok(rows) => rows.map(Box::new),
        Err(found) => {
            problems.extend(found);
            return Err(problems);
        }
    };
    let offset = offset_within(&document, jobs.text) + 1;
    let at = Position::at(jobs.at.line, jobs.at.column.unwrap_or(1) + 1);
    Ok((header, Jobs { document, defaults, matrix_rows, limits: limits.clone(), offset, at }, problems))
}

impl Jobs {
    /// Whether a matrix makes them.
    pub(super) fn has_matrix(&self) -> bool {
        self.matrix_rows.is_some()
    }
}

impl Iterator for Jobs {
    type Item = ReadRow;

    fn next(&mut self) -> Option<ReadRow> {
        if let Some(rows) = &mut self.matrix_rows {
            return rows.next_row(&self.document, self.defaults.as_deref(), &self.limits);
        }
        let element = match next_element(&self.document, self.offset) {
            Ok(element) => element?,
            Err(error) => {
                return Some(ReadRow::Unreadable(Diagnostic::at(self.at, format!("not JSON: {error}"))));
            }
        };
        let begins = offset_within(&self.document, element);
        let mut tracker = PositionTracker::resume(&self.document, self.offset, self.at);
        let placed = Spanned::new(element, tracker.to(begins));
        let row = job::read(placed, self.defaults.as_deref(), &self.limits);
        self.offset = begins + element.len();
        self.at = tracker.to(self.offset);
        Some(row.map_or_else(ReadRow::Bad, ReadRow::Good))
    }
}

/// The whole text, if it is not too large and is text.
fn whole(source: impl Read, most: usize) -> Result<String, Diagnostic> {
    let mut read = Vec::new();
    let over = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    source.take(over).read_to_end(&mut read).map_err(|error| unreadable(Position::line(1), &error))?;
    if read.len() > most {
        let message = format!("the document is larger than {}", bytes(most));
        return Err(Diagnostic::at(Position::line(1), message).hint(
            "write it as JSON Lines, one job a line, in a file named .jsonl: that is read as a stream",
        ));
    }
    String::from_utf8(read)
        .map_err(|error| not_utf8(error.as_bytes(), error.utf8_error().valid_up_to(), Position::at(1, 1)))
}

fn not_a_manifest(found: Spanned<'_>) -> Diagnostic {
    let message =
        format!("found {}, expected an array of jobs or an object with \"jobs\"", shortened(found.text));
    Diagnostic::at(found.at, message)
}

/// A document that is JSON Lines in truth is told its right name.
fn about_lines(document: Spanned<'_>, problem: Diagnostic) -> Diagnostic {
    let first = document.text.trim_start().lines().next().unwrap_or_default();
    let object = first.starts_with('{') && Spanned::new(first, document.at).check_syntax().is_ok();
    if object { problem.hint("one job a line is JSON Lines: name the file .jsonl") } else { problem }
}
