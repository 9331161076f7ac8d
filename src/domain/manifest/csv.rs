//! A CSV manifest: a heading that names the columns, then one job a row, read as a stream.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use ::csv::{Reader, ReaderBuilder, StringRecord};

use crate::domain::diagnostic::{Diagnostic, Diagnostics, Position};

use super::Limits;
use super::cell_value::CellValue;
use super::coerce::RowBuilder;
use super::csv_records::{CsvRecord, CsvRecords};
use super::csv_separator::read_heading;
use super::fields::{Field, META, OPTIONS, suggestion};
use super::messages::{bytes, quoted, shortened};
use super::row::{BadRow, ReadRow};
use super::source::not_utf8;

/// The jobs of a stream of rows.
#[derive(Debug)]
pub(super) struct Rows<R> {
    records: CsvRecords<R>,
    cells: Cells,
    columns: Vec<Column>,
    limits: Limits,
}

#[derive(Debug)]
struct Column {
    /// What it is; nothing where that is not known.
    field: Option<Field>,
    canonical: Arc<str>,
    spelled: String,
}

/// Reads the heading; beside the rows all that is wrong with its columns.
pub(super) fn open<R: Read>(
    source: R,
    limits: &Limits,
) -> Result<(Rows<R>, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut records = CsvRecords::new(source, limits.max_line_bytes);
    let (separator, heading) = read_heading(&mut records).map_err(|problem| vec![problem])?;
    records.separate_at(separator);
    let mut cells = Cells::new(separator);
    let names = cells.of(&heading, limits).map_err(|problem| vec![problem])?;
    let (columns, problems) = columns(names, &heading);
    Ok((Rows { records, cells, columns, limits: limits.clone() }, problems))
}

/// The names of the columns and the rows of a table: its columns are not those of a manifest.
///
/// # Errors
/// The first thing that is wrong with it.
pub(super) fn read_table(
    source: impl Read,
    limits: &Limits,
) -> Result<(Vec<String>, Vec<Vec<String>>), Diagnostic> {
    let mut records = CsvRecords::new(source, limits.max_line_bytes);
    let (separator, heading) = read_heading(&mut records)?;
    records.separate_at(separator);
    let mut cells = Cells::new(separator);
    let names = cells.of(&heading, limits)?;
    let names: Vec<String> = names.iter().take(used(names)).map(str::to_owned).collect();
    for (index, name) in names.iter().enumerate() {
        let at = heading.cells.get(index).copied().unwrap_or(heading.at);
        if name.is_empty() {
            return Err(Diagnostic::at(at, format!("column {} has no name", index + 1)));
        }
        if names[..index].contains(name) {
            return Err(Diagnostic::at(at, "the column appears twice; keep one").in_field(shortened(name)));
        }
    }
    let mut rows = Vec::new();
    while let Some(record) = records.next()? {
        if record.bytes.trim_ascii().is_empty() && !record.too_long {
            continue;
        }
        let cells = cells.of(record, limits)?;
        if used(cells) == 0 {
            continue;
        }
        if let Some(problem) = ragged(cells, record, names.len()) {
            return Err(open_late_quote(cells, record).unwrap_or(problem));
        }
        if let Some(problem) = open_late_quote(cells, record) {
            return Err(problem);
        }
        rows.push(cells.iter().take(names.len()).map(str::to_owned).collect());
    }
    Ok((names, rows))
}

/// The columns by their names, and all that is wrong with them. A column that is not known stands for the field that it
/// was probably meant to be, so that its cells are checked as well; the file is refused all the same.
fn columns(names: CellTexts<'_>, heading: &CsvRecord) -> (Vec<Column>, Vec<Diagnostic>) {
    let mut columns = Vec::new();
    let mut problems = Diagnostics::default();
    let mut seen = BTreeMap::new();
    let none_known = names.iter().all(|name| Field::column(name).is_none());
    for (index, name) in names.iter().take(used(names)).enumerate() {
        let at = heading.cells.get(index).copied().unwrap_or(heading.at);
        let Some(field) = Field::column(name) else {
            problems.push_with(|| not_a_column(name, index, at, none_known));
            columns.push(Column::unknown(name));
            continue;
        };
        match column(field, name, at, &mut seen) {
            Ok(column) => columns.push(column),
            Err(problem) => {
                problems.push(problem);
                columns.push(Column::unknown(name));
            }
        }
    }
    let problems = problems.finish().err().unwrap_or_default();
    if !problems.is_empty() {
        columns.iter_mut().for_each(|column| column.guess(&mut seen));
    }
    (columns, problems)
}

impl Column {
    fn unknown(spelled: &str) -> Column {
        Column { field: None, canonical: "".into(), spelled: spelled.to_owned() }
    }

    /// Takes a column that is not known for the field that it was probably meant to be, where no other column is that.
    fn guess(&mut self, seen: &mut BTreeMap<String, String>) {
        if self.field.is_some() {
            return;
        }
        let Some(field) = suggestion(&self.spelled, &[]).and_then(Field::bare) else { return };
        let canonical = field.canonical();
        if !seen.contains_key(&canonical) {
            seen.insert(canonical.clone(), self.spelled.clone());
            (self.field, self.canonical) = (Some(field), canonical.into());
        }
    }
}

/// The column of `field`, if no column before it is the same.
fn column(
    field: Field,
    name: &str,
    at: Position,
    seen: &mut BTreeMap<String, String>,
) -> Result<Column, Diagnostic> {
    let canonical = field.canonical();
    if let Some(before) = seen.get(&canonical) {
        let twice = match before == name {
            true => "the column appears twice; keep one".to_owned(),
            false => format!("the column {} sets the same field; keep one", quoted(before)),
        };
        return Err(Diagnostic::at(at, twice).in_field(shortened(name)));
    }
    seen.insert(canonical.clone(), name.to_owned());
    Ok(Column { field: Some(field), canonical: canonical.into(), spelled: name.to_owned() })
}

fn not_a_column(name: &str, index: usize, at: Position, none_known: bool) -> Diagnostic {
    if name.is_empty() {
        return Diagnostic::at(at, format!("column {} has no name", index + 1));
    }
    let problem = unknown_column(name, at);
    if none_known { problem.hint("the first line names the columns") } else { problem }
}

pub(super) fn unknown_column(name: &str, at: Position) -> Diagnostic {
    let message = match suggestion(name, &[]) {
        Some(near) => format!("unknown column; did you mean \"{near}\"?"),
        None => "unknown column".to_owned(),
    };
    let name = shortened(name);
    let hint =
        format!("\"{OPTIONS}{name}\" would be sent to the service, \"{META}{name}\" kept for the results");
    Diagnostic::at(at, message).hint(hint).in_field(name)
}

impl<R: Read> Iterator for Rows<R> {
    type Item = ReadRow;

    fn next(&mut self) -> Option<ReadRow> {
        loop {
            let record = match self.records.next() {
                Ok(record) => record?,
                Err(problem) => return Some(ReadRow::Unreadable(problem)),
            };
            if record.bytes.trim_ascii().is_empty() && !record.too_long {
                continue;
            }
            let row = match self.cells.of(record, &self.limits) {
                Ok(cells) if used(cells) == 0 => continue,
                Ok(cells) => row(cells, record, &self.columns, &self.limits),
                Err(problem) => ReadRow::Bad(BadRow::unread(problem)),
            };
            return Some(row);
        }
    }
}

/// The job of a row of cells.
fn row(cells: CellTexts<'_>, record: &CsvRecord, columns: &[Column], limits: &Limits) -> ReadRow {
    if let Some(problem) = ragged(cells, record, columns.len()) {
        let problem = open_late_quote(cells, record).unwrap_or(problem);
        return ReadRow::Bad(BadRow::unread(problem));
    }
    let mut draft = RowBuilder::new(record.at, None, limits);
    let mut notes = Vec::new();
    for (index, (cell, column)) in cells.iter().zip(columns).enumerate() {
        if let Some(field) = column.field.as_ref().filter(|_| !cell.is_empty()) {
            let at = record.cells.get(index).copied().unwrap_or(record.at);
            match late_quote(cell, index, record) {
                None => {}
                Some(LateQuote::Open) => {
                    draft.refuse_value(
                        &column.canonical,
                        at,
                        open_quote(at).in_field(shortened(&column.spelled)),
                    );
                    continue;
                }
                Some(LateQuote::Closed) => {
                    let message = "the quotes are part of the value, because a space is before them";
                    let note = Diagnostic::at(at, message).hint("to leave them out, remove the space");
                    notes.push(note.in_field(shortened(&column.spelled)));
                }
            }
            draft.set(field, &column.canonical, &column.spelled, at, CellValue::Cell(cell));
        }
    }
    match draft.finish() {
        Ok(mut row) => {
            row.notes.append(&mut notes);
            ReadRow::Good(row)
        }
        Err(bad) => ReadRow::Bad(bad),
    }
}

/// Quotes behind a space, which quote nothing.
enum LateQuote {
    /// The last of them is closed in another cell, or not at all: a separator was probably meant to be text.
    Open,
    /// They are around the whole cell.
    Closed,
}

fn late_quote(cell: &str, index: usize, record: &CsvRecord) -> Option<LateQuote> {
    if !cell.starts_with('"') || !record.is_bare(index) {
        return None;
    }
    match cell.matches('"').count() {
        count if !count.is_multiple_of(2) => Some(LateQuote::Open),
        _ => cell.ends_with('"').then_some(LateQuote::Closed),
    }
}

/// The first cell whose quote behind a space is not closed in it: it makes cells of what was to be one.
fn open_late_quote(cells: CellTexts<'_>, record: &CsvRecord) -> Option<Diagnostic> {
    let is_open = |(index, cell)| matches!(late_quote(cell, index, record), Some(LateQuote::Open));
    let index = cells.iter().enumerate().position(is_open)?;
    Some(open_quote(record.cells.get(index).copied().unwrap_or(record.at)))
}

fn open_quote(at: Position) -> Diagnostic {
    Diagnostic::at(at, "a space is before the quote, so the cell ends at the next separator")
        .hint("remove the space before the quote")
}

/// Cells missing or left over. Empty ones left over are a spreadsheet's habit and mean nothing.
fn ragged(cells: CellTexts<'_>, record: &CsvRecord, expected: usize) -> Option<Diagnostic> {
    let found = used(cells);
    if cells.len() < expected {
        let found = cells.len();
        let noun = if found == 1 { "cell" } else { "cells" };
        let message = format!("found {found} {noun}, expected {expected}, one for each column");
        return Some(Diagnostic::at(record.at, message).hint("an empty cell needs its separator too"));
    }
    if found > expected {
        let at = record.cells.get(expected).copied().unwrap_or(record.at);
        let message = format!("found {found} cells, expected {expected}, one for each column");
        return Some(
            Diagnostic::at(at, message).hint("put a cell that contains the separator in double quotes"),
        );
    }
    None
}

/// How many cells there are up to the last that is not empty.
fn used(cells: CellTexts<'_>) -> usize {
    cells.ranges.iter().rposition(|range| !range.is_empty()).map_or(0, |last| last + 1)
}

/// The cells of one record, trimmed.
#[derive(Debug, Clone, Copy)]
struct CellTexts<'a> {
    text: &'a str,
    ranges: &'a [Range<usize>],
}

impl<'a> CellTexts<'a> {
    fn len(self) -> usize {
        self.ranges.len()
    }

    fn iter(self) -> impl Iterator<Item = &'a str> {
        self.ranges.iter().map(move |range| self.text.get(range.clone()).unwrap_or_default())
    }
}

/// Splits records into unquoted cells. Those without quotes within their cells are cut here, and the others by the csv
/// crate.
#[derive(Debug)]
struct Cells {
    reader: Reader<Fed>,
    record: StringRecord,
    /// Of the record that was split last.
    ranges: Vec<Range<usize>>,
}

impl Cells {
    fn new(separator: u8) -> Cells {
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(separator)
            .from_reader(Fed::default());
        Cells { reader, record: StringRecord::new(), ranges: Vec::new() }
    }

    /// The cells of `record`, if it can be trusted to be what its writer meant.
    fn of<'a>(&'a mut self, record: &'a CsvRecord, limits: &Limits) -> Result<CellTexts<'a>, Diagnostic> {
        let text = whole(record, limits)?;
        self.ranges.clear();
        if record.plain_cells(&mut self.ranges) {
            trim(text, &mut self.ranges);
            return Ok(CellTexts { text, ranges: &self.ranges });
        }
        self.reader.get_mut().feed(&record.bytes);
        match self.reader.read_record(&mut self.record) {
            Ok(true) if self.record.len() == record.cells.len() => {
                let text = self.record.as_slice();
                self.ranges.clear();
                self.ranges
                    .extend((0..self.record.len()).map(|cell| self.record.range(cell).unwrap_or(0..0)));
                trim(text, &mut self.ranges);
                Ok(CellTexts { text, ranges: &self.ranges })
            }
            Ok(_) => Err(Diagnostic::at(record.at, "the row cannot be split into cells")),
            Err(error) => Err(Diagnostic::at(record.at, format!("the row cannot be read: {error}"))),
        }
    }
}

/// Leaves out white space around cells.
fn trim(text: &str, ranges: &mut [Range<usize>]) {
    for range in ranges {
        let cell = text.get(range.clone()).unwrap_or_default();
        let begin = range.start + (cell.len() - cell.trim_start().len());
        *range = begin..begin + cell.trim().len();
    }
}

/// The record as text, if it is all there.
fn whole<'a>(record: &'a CsvRecord, limits: &Limits) -> Result<&'a str, Diagnostic> {
    if record.too_long {
        let message = format!("the row is longer than {}", bytes(limits.max_line_bytes));
        return Err(Diagnostic::at(record.at, message).hint("an unclosed quote joins rows"));
    }
    let text = std::str::from_utf8(&record.bytes)
        .map_err(|error| not_utf8(&record.bytes, error.valid_up_to(), record.at))?;
    if let Some(stray) = record.stray {
        let closed = format!("{}:{}", stray.at.line, stray.at.column.unwrap_or(1));
        let message = format!("text follows the closing quote of this cell at {closed}");
        return Err(
            Diagnostic::at(stray.opened, message).hint("inside a quoted cell a quote is written twice")
        );
    }
    Ok(text)
}

/// Feeds the csv crate one record at a time.
#[derive(Debug, Default)]
struct Fed {
    bytes: Vec<u8>,
    read: usize,
}

impl Fed {
    fn feed(&mut self, record: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(record);
        self.bytes.push(b'\n');
        self.read = 0;
    }
}

impl Read for Fed {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.get(self.read..).unwrap_or_default().read(room)?;
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The cells of every record as the csv crate alone splits it.
    fn of_the_crate(record: &CsvRecord) -> Vec<String> {
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&record.bytes[..]);
        let mut records = reader.into_records();
        let cells = records.next().unwrap().unwrap();
        cells.iter().map(|cell| cell.trim().to_owned()).collect()
    }

    proptest! {
        #[test]
        fn cells_are_those_of_the_csv_crate(text in "([a\u{fc} ,\"]|\"\"|\",\"|, \"| a,b|\r|\n){0,24}") {
            let mut records = CsvRecords::new(text.as_bytes(), 1000);
            records.separate_at(b',');
            let mut cells = Cells::new(b',');
            while let Ok(Some(record)) = records.next() {
                if record.bytes.is_empty() {
                    continue;
                }
                if let Ok(found) = cells.of(record, &Limits::default()) {
                    let found: Vec<_> = found.iter().map(str::to_owned).collect();
                    prop_assert_eq!(found, of_the_crate(record));
                }
            }
        }
    }
}
