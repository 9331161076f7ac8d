//! `results.csv`: its columns, and a row for each file of a job, or for a job without files.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::domain::charge_drift::Drift;
use crate::domain::credits::Credits;
use crate::domain::job::OutputFile;
use crate::output::csv_dialect::{CsvDialect, FORMULA_STARTS};
use crate::output::own_file::OwnFile;
use crate::output::publish::create;
use crate::output::results::{BUFFER_BYTES, ResultLine};

/// The columns of `results.csv` before those of `meta`. Scripts rely on the names: columns may be added, not renamed.
pub(super) const COLUMNS: [&str; 30] = [
    "id",
    "batch",
    "state",
    "late",
    "files",
    "bytes",
    "sha256",
    "content_type",
    "price_credits",
    "charged_credits",
    "waived_credits",
    "attempts",
    "task_id",
    "model",
    "error_code",
    "error_message",
    "kind",
    "line",
    "drift",
    "prompt",
    "first_sent",
    "ended",
    "path",
    "file_no",
    "superseded",
    "decision",
    "decided_by",
    "decided_at",
    "decision_note",
    "object",
];

/// Writes the file, under another name until it is complete.
#[derive(Debug)]
pub(super) struct ResultsCsv {
    dir: PathBuf,
    csv: csv::Writer<File>,
    dialect: CsvDialect,
    meta_columns: BTreeSet<String>,
    /// A cell that is being written.
    cell: String,
}

/// A row of `results.csv`, cell by cell.
struct CsvRow<'a> {
    csv: &'a mut csv::Writer<File>,
    dialect: CsvDialect,
    cell: &'a mut String,
}

impl<'a> CsvRow<'a> {
    fn begin(csv: &'a mut csv::Writer<File>, dialect: CsvDialect, cell: &'a mut String) -> CsvRow<'a> {
        CsvRow { csv, dialect, cell }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if self.dialect == CsvDialect::Excel && text.starts_with(FORMULA_STARTS) {
            return Ok(self.csv.write_field(format!("'{text}"))?);
        }
        Ok(self.csv.write_field(text)?)
    }

    /// A value as it is shown; an empty cell without one.
    fn shown(&mut self, value: Option<impl Display>) -> io::Result<()> {
        let mut cell = std::mem::take(self.cell);
        cell.clear();
        if let Some(value) = value {
            // A text takes everything.
            let _ = write!(cell, "{value}");
        }
        let written = self.text(&cell);
        *self.cell = cell;
        written
    }

    fn end(self) -> io::Result<()> {
        Ok(self.csv.write_record(None::<&[u8]>)?)
    }
}

impl ResultsCsv {
    pub(super) fn begin(
        dir: &Path,
        dialect: CsvDialect,
        meta_columns: BTreeSet<String>,
    ) -> io::Result<ResultsCsv> {
        let mut file = create(&OwnFile::ResultsCsv.draft(dir))?;
        if dialect == CsvDialect::Excel {
            file.write_all("\u{feff}".as_bytes())?;
        }
        let mut csv = csv::WriterBuilder::new().buffer_capacity(BUFFER_BYTES).from_writer(file);
        let mut cell = String::new();
        let mut headings = CsvRow::begin(&mut csv, dialect, &mut cell);
        COLUMNS.into_iter().try_for_each(|name| headings.text(name))?;
        meta_columns.iter().try_for_each(|name| headings.shown(Some(format_args!("meta.{name}"))))?;
        headings.end()?;
        Ok(ResultsCsv { dir: dir.to_owned(), csv, dialect, meta_columns, cell })
    }

    /// Adds a job: a row for each of its files.
    pub(super) fn push(&mut self, line: &ResultLine<'_>) -> io::Result<()> {
        if line.files.is_empty() {
            return self.row(line, None);
        }
        line.files.iter().zip(1..).try_for_each(|(file, number)| self.row(line, Some((number, file))))
    }

    /// Adds the row of a job's file, numbered from 1, or of a job without files. Credits stand in its first row alone, so
    /// that a column adds up to what the batch came to.
    fn row(&mut self, line: &ResultLine<'_>, file: Option<(usize, &OutputFile)>) -> io::Result<()> {
        let is_first = file.is_none_or(|(number, _)| number == 1);
        let credits = |credits: Option<Credits>| credits.filter(|_| is_first).map(|credits| credits.0);
        let (number, file) = (file.map(|(number, _)| number), file.map(|(_, file)| file));
        let mut row = CsvRow::begin(&mut self.csv, self.dialect, &mut self.cell);
        row.text(line.id)?;
        row.text(line.batch.as_str())?;
        row.text(line.state)?;
        row.shown(Some(line.late))?;
        row.text(file.map_or("", |file| &file.path))?;
        row.shown(file.map(|file| file.bytes))?;
        row.text(file.map_or("", |file| &file.sha256))?;
        row.text(file.map_or("", |file| &file.content_type))?;
        row.shown(credits(line.price_credits))?;
        row.shown(credits(Some(line.charged_credits)))?;
        row.shown(credits(Some(line.waived_credits)))?;
        row.shown(Some(line.attempts))?;
        row.text(line.task_id.map_or("", |task| &task.0))?;
        row.text(line.model.unwrap_or_default())?;
        row.text(line.error.map_or("", |fault| &fault.code))?;
        row.text(line.error.map_or("", |fault| &fault.message))?;
        row.text(line.kind)?;
        row.shown(Some(line.line))?;
        row.text(&line.drift.iter().map(Drift::to_string).collect::<Vec<_>>().join("; "))?;
        row.text(&line.prompt)?;
        row.text(line.first_sent.as_deref().unwrap_or_default())?;
        row.text(line.ended.as_deref().unwrap_or_default())?;
        row.shown(file.map(|file| self.dir.join(&file.path).display().to_string()))?;
        row.shown(number)?;
        row.shown(Some(line.superseded))?;
        let review = line.review.as_ref();
        row.text(review.map_or("", |review| &review.decision))?;
        row.shown(review.and_then(|review| review.by.as_ref()))?;
        row.shown(review.and_then(|review| review.at.as_ref()))?;
        row.shown(review.and_then(|review| review.note.as_ref()))?;
        row.text(file.and_then(|file| file.object.as_deref()).unwrap_or_default())?;
        let meta = line.meta.fields();
        for name in &self.meta_columns {
            match meta.get(name) {
                None | Some(Value::Null) => row.text("")?,
                Some(Value::String(text)) => row.text(text)?,
                // As JSON.
                Some(other) => row.shown(Some(other))?,
            }
        }
        row.end()
    }

    /// All rows are on the device on return.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.csv.flush()?;
        let csv = self.csv.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        csv.sync_data()
    }
}
