//! A state as one file of JSON Lines that people and scripts can read, and back.
//!
//! The first line says what it is, the last one how many lines there should be and their checksum.
//! Between them, batch by batch: the batch, its rows and its outcomes as they were accepted and as they
//! ended; then open jobs, totals and days. Rows and outcomes are carried word for word, so that every
//! byte of an imported spool lies where it lay.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::ids::BatchNo;
use crate::domain::job::JobSpec;
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::row_versions::VersionChange;
use crate::domain::utc_day::UtcDay;
use crate::store::finished::FinishedBatch;
use crate::store::row_delta::KnownRows;
use crate::store::snapshot::Snapshot;
use crate::store::spool::{Appender, Lines, Spool};
use crate::store::state_folders::batch_dir;
use crate::store::{BatchRecord, JobRecord, Store, StoreError, state_format};

/// Version of the dump's format. In version 2 a job's record is a list of attempts; the outcomes of older batches are
/// carried word for word, in the format that they were written in.
const VERSION: u32 = 2;
/// The oldest version that is taken in.
const OLDEST: u32 = 1;

/// The dump cannot be written, or not be taken in.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Writing the dump, or reading it, failed.
    #[error("failed to read or write the export: {0}")]
    Io(#[from] io::Error),
    /// A line of it is not what was written.
    #[error("line {line} of the export: {found}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        found: String,
    },
    /// It was made of another state than the one that it is to repair.
    #[error("the export is of another state: {found}")]
    OtherState {
        /// How that shows.
        found: String,
    },
    /// The folder is not empty.
    #[error("{} is not empty: it holds {found}", .dir.display())]
    NotEmpty {
        /// The folder.
        dir: std::path::PathBuf,
        /// What lies in it.
        found: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct DumpHeader {
    callsheet_dump: u32,
    service: String,
    commit: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct DumpDay {
    /// As people write it; the number counts.
    date: String,
    number: UtcDay,
    totals: Totals,
}

#[derive(Debug, Serialize, Deserialize)]
struct BatchLine {
    outcomes_bytes: u64,
    record: BatchRecord,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DumpEnd {
    lines: u64,
    crc32: String,
}

/// One line between head and end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DumpLine {
    Batch(Box<BatchLine>),
    Row(Box<RawValue>),
    /// A row that is shortened in its spool.
    ShortRow(ShortRow),
    Outcome(Box<RawValue>),
    /// Which version of an edited row is wanted.
    Version(Box<RawValue>),
    Open(Box<JobRecord>),
    /// A finished batch whose folder was moved away.
    #[serde(alias = "archived")]
    Moved(FinishedBatch),
    Total(Totals),
    /// What the account refused, where it refused something.
    Account(AccountBlock),
    Day(DumpDay),
    End(DumpEnd),
}

/// A row in full, and how many bytes before it the row begins that it refers to in its spool: rows and jobs are found by
/// byte, so that every line has to be as long as it was.
#[derive(Debug, Serialize, Deserialize)]
struct ShortRow {
    distance: u64,
    row: Box<RawValue>,
}

/// Writes lines and counts them.
struct DumpWriter<W> {
    out: W,
    lines: u64,
    checksum: crc32fast::Hasher,
}

impl<W: Write> DumpWriter<W> {
    fn line<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.lines += 1;
        self.checksum.update(&text);
        self.out.write_all(&text)
    }

    fn batch(&mut self, spool: &Spool, record: &BatchRecord, outcomes_bytes: u64) -> Result<(), DumpError> {
        self.line(&DumpLine::Batch(Box::new(BatchLine { outcomes_bytes, record: record.clone() })))?;
        self.spooled(&spool.rows_path(), record.spool_bytes, |row, distance| match distance {
            Some(distance) => DumpLine::ShortRow(ShortRow { distance, row }),
            None => DumpLine::Row(row),
        })?;
        self.spooled(&spool.outcomes_path(), outcomes_bytes, |outcome, _| DumpLine::Outcome(outcome))?;
        self.spooled(&spool.versions_path(), record.versions_bytes, |version, _| DumpLine::Version(version))
    }

    fn spooled(
        &mut self,
        path: &Path,
        bytes: u64,
        line: impl Fn(Box<RawValue>, Option<u64>) -> DumpLine,
    ) -> Result<(), DumpError> {
        let mut lines = Lines::open(path, 0, bytes)?;
        while let Some((_, text)) = lines.next_line::<Box<RawValue>>()? {
            self.line(&line(text, lines.distance()))?;
        }
        Ok(())
    }
}

impl Store {
    /// Writes the whole state as a dump.
    ///
    /// # Errors
    /// [`DumpError`] when the state cannot be read, or the dump not be written.
    pub fn export(&self, out: impl Write) -> Result<(), DumpError> {
        // No commit in between: what is read of the database is of one moment. The files beside it only grow.
        let records = self.at_rest(Store::records)?;
        let service = state_format::service(&self.dir)?.unwrap_or_default();
        let mut sheet = DumpWriter { out, lines: 0, checksum: crc32fast::Hasher::new() };
        sheet.line(&DumpHeader { callsheet_dump: VERSION, service, commit: records.commits })?;
        let unfinished = records.batches.iter().map(|batch| (batch.no, Err(batch)));
        let finished = records.finished.values().map(|line| (line.no, Ok(line)));
        let all: BTreeMap<BatchNo, Result<&FinishedBatch, &BatchRecord>> =
            unfinished.chain(finished).collect();
        for (no, batch) in all {
            let spool = self.spool(no);
            match batch.map(|line| (line, line.read(&self.dir))) {
                Err(batch) => sheet.batch(&spool, batch, records.outcomes_bytes(no))?,
                Ok((_, Ok(kept))) => sheet.batch(&spool, &kept.record, kept.outcomes_bytes)?,
                Ok((line, Err(StoreError::BatchMoved { .. }))) => {
                    sheet.line(&DumpLine::Moved(line.clone()))?;
                }
                Ok((_, Err(error))) => return Err(error.into()),
            }
        }
        for open in &records.open {
            sheet.line(&DumpLine::Open(Box::new(open.clone())))?;
        }
        sheet.line(&DumpLine::Total(records.total))?;
        if !records.account.is_empty() {
            sheet.line(&DumpLine::Account(records.account))?;
        }
        for (number, totals) in records.days {
            let date = number.to_string();
            sheet.line(&DumpLine::Day(DumpDay { date, number, totals }))?;
        }
        let crc32 = format!("{:08x}", sheet.checksum.clone().finalize());
        let end = DumpLine::End(DumpEnd { lines: sheet.lines, crc32 });
        sheet.line(&end)?;
        Ok(sheet.out.flush()?)
    }
}

/// Reads a dump: its rows and outcomes go into the spool of `dir`; the service that the state belongs to and its
/// records are returned.
pub(super) fn read_into(dump: impl io::Read, dir: &Path) -> Result<(String, Snapshot), DumpError> {
    let mut reader = DumpReader {
        dump: BufReader::new(dump),
        line: 0,
        text: Vec::new(),
        checksum: crc32fast::Hasher::new(),
    };
    let head: DumpHeader = reader.next()?;
    if !(OLDEST..=VERSION).contains(&head.callsheet_dump) {
        let version = head.callsheet_dump;
        let found = format!("it has export version {version}; this version reads {OLDEST} to {VERSION}");
        return Err(reader.wrong(found));
    }
    let mut records = Snapshot::at(head.commit);
    let mut spool: Option<DumpedSpool> = None;
    let mut known_rows = KnownRows::default();
    loop {
        let end =
            DumpEnd { lines: reader.line, crc32: format!("{:08x}", reader.checksum.clone().finalize()) };
        match reader.next::<DumpLine>()? {
            DumpLine::Batch(batch) => {
                finish(spool.take())?;
                known_rows = KnownRows::default();
                let at = Spool::new(batch_dir(dir, batch.record.no));
                let (rows, outcomes) =
                    (Appender::open(&at.rows_path(), 0)?, Appender::open(&at.outcomes_path(), 0)?);
                spool = Some(DumpedSpool { at, rows, outcomes, versions: None });
                if batch.outcomes_bytes > 0 {
                    records.outcomes_bytes.insert(batch.record.no, batch.outcomes_bytes);
                }
                records.batches.push(batch.record);
            }
            DumpLine::Row(text) => {
                let Some(DumpedSpool { rows, .. }) = &mut spool else {
                    return Err(reader.wrong("a row before any batch"));
                };
                if let Err(error) = serde_json::from_str::<JobSpec>(text.get()) {
                    return Err(reader.wrong(error.to_string()));
                }
                known_rows.add(text.get().as_bytes(), rows.bytes());
                rows.push(&text)?;
            }
            DumpLine::ShortRow(ShortRow { distance, row }) => {
                let Some(DumpedSpool { rows, .. }) = &mut spool else {
                    return Err(reader.wrong("a row before any batch"));
                };
                if let Err(error) = serde_json::from_str::<JobSpec>(row.get()) {
                    return Err(reader.wrong(error.to_string()));
                }
                let text = known_rows.shorten(row.get().as_bytes(), rows.bytes(), distance);
                let text = text.ok_or_else(|| reader.wrong("it refers to no row"))?;
                rows.push_text(&text)?;
            }
            DumpLine::Outcome(text) => {
                let Some(DumpedSpool { outcomes, .. }) = &mut spool else {
                    return Err(reader.wrong("an outcome before any batch"));
                };
                if let Err(error) = serde_json::from_str::<JobRecord>(text.get()) {
                    return Err(reader.wrong(error.to_string()));
                }
                outcomes.push(&text)?;
            }
            DumpLine::Version(text) => {
                let Some(DumpedSpool { at, versions, .. }) = &mut spool else {
                    return Err(reader.wrong("a version before any batch"));
                };
                if let Err(error) = serde_json::from_str::<VersionChange>(text.get()) {
                    return Err(reader.wrong(error.to_string()));
                }
                let file = match versions {
                    Some(file) => file,
                    None => versions.insert(Appender::open(&at.versions_path(), 0)?),
                };
                file.push(&text)?;
            }
            DumpLine::Open(open) => records.open.push(*open),
            DumpLine::Moved(line) => records.add_finished(line),
            DumpLine::Total(total) => records.total = total,
            DumpLine::Account(account) => records.account = account,
            DumpLine::Day(day) => {
                records.days.insert(day.number, day.totals);
            }
            DumpLine::End(found) if found == end => break,
            DumpLine::End(_) => return Err(reader.wrong("lines before it are missing or were changed")),
        }
    }
    reader.must_be_over()?;
    finish(spool.take())?;
    // Versions that archived batches wrote those after the others.
    records.batches.sort_by_key(|batch| batch.no);
    Ok((head.service, records))
}

/// The files of a batch that are being read in.
struct DumpedSpool {
    at: Spool,
    rows: Appender,
    outcomes: Appender,
    versions: Option<Appender>,
}

fn finish(spool: Option<DumpedSpool>) -> Result<(), StoreError> {
    let Some(DumpedSpool { mut rows, mut outcomes, versions, .. }) = spool else { return Ok(()) };
    rows.sync()?;
    outcomes.sync()?;
    versions.map_or(Ok(()), |mut versions| versions.sync().map(drop))
}

struct DumpReader<R> {
    dump: BufReader<R>,
    line: u64,
    text: Vec<u8>,
    checksum: crc32fast::Hasher,
}

impl<R: io::Read> DumpReader<R> {
    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, DumpError> {
        self.text.clear();
        let read = self.dump.read_until(b'\n', &mut self.text)?;
        self.line += 1;
        if read == 0 {
            return Err(self.wrong("it is missing; the export is cut off"));
        }
        self.checksum.update(&self.text);
        serde_json::from_slice(&self.text).map_err(|error| self.wrong(error.to_string()))
    }

    /// Nothing follows but blank lines.
    fn must_be_over(&mut self) -> Result<(), DumpError> {
        loop {
            self.text.clear();
            let read = self.dump.read_until(b'\n', &mut self.text)?;
            self.line += 1;
            if read == 0 {
                return Ok(());
            }
            if !self.text.trim_ascii().is_empty() {
                return Err(self.wrong(
                    "the export ends on a line before; one export is accepted, and nothing after it: import each into a state \
                     of its own",
                ));
            }
        }
    }

    fn wrong(&self, found: impl Into<String>) -> DumpError {
        DumpError::Line { line: self.line, found: found.into() }
    }
}
