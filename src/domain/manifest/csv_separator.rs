//! Which separator a CSV file has: comma, semicolon or tab, whichever cuts its heading into most cells.

use std::io::Read;

use super::csv_records::{CsvRecord, CsvRecords, SEPARATORS};
use crate::domain::diagnostic::{Diagnostic, Position};

/// The first record that is not blank, and the separator it is cut at. A line `sep=;`, which some
/// spreadsheets put before it, decides the separator.
pub(super) fn read_heading<R: Read>(records: &mut CsvRecords<R>) -> Result<(u8, CsvRecord), Diagnostic> {
    let mut told = None;
    while let Some(record) = records.next()? {
        if let [b's', b'e', b'p', b'=', separator] = record.bytes[..]
            && SEPARATORS.contains(&separator)
        {
            told = Some(separator);
        } else if !record.bytes.trim_ascii().is_empty() {
            return Ok(cut(record, told));
        }
    }
    Err(Diagnostic::at(Position::line(1), "there is no heading: the first line names the columns"))
}

/// The heading, cut at the separator that stands in it most often.
fn cut(heading: &CsvRecord, told: Option<u8>) -> (u8, CsvRecord) {
    let candidates = SEPARATORS.map(|separator| (separator, heading.cut_at(separator)));
    let chosen = candidates
        .into_iter()
        .rev()
        .max_by_key(|(separator, record)| (told == Some(*separator), record.cells.len()));
    chosen.unwrap_or_else(|| (b',', heading.cut_at(b',')))
}
