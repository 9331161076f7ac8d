//! Where the rows of a batch lie by the names of their jobs: label and identity.
//!
//! `spool/000012/jobs` is derived from `rows` and never believed alone: what it points at is read and compared, and where
//! it does not reach to the end of the accepted rows, those are read instead. It is written with the rows, and made anew
//! where it is missing when more of them come.
//!
//! It is a sequence of runs, each for the rows from one byte to another: a head of 32 bytes, then for every row 16 bytes
//! in the order of the hashes of labels, then as many in the order of identities. A run has at most [`RUN_MAX`] rows, so
//! that a batch of any size is indexed in bounded memory, and a name is found by a few reads in each.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::domain::ids::JobId;
use crate::domain::job::JobSpec;
use crate::store::spool::{Lines, Spool};
use crate::store::state_folders::{batch_dir, open_or_create};
use crate::store::{BatchRecord, FinishedBatch, Store, StoreError};

/// Most rows of one run.
const RUN_MAX: usize = 65_536;
/// The first bytes of every run.
const MAGIC: u32 = u32::from_be_bytes(*b"cjx1");
const HEAD_BYTES: u64 = 32;
const ENTRY_BYTES: u64 = 16;
/// Fewest characters of an identity that name a job.
const IDENTITY_MIN: usize = 8;
/// Digits of an identity that the index tells apart.
const IDENTITY_DIGITS: usize = 16;

/// The part of a row that a job is called by.
#[derive(Deserialize)]
struct NamedRow {
    id: JobId,
    label: String,
}

/// The head of a run, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Its first byte in the index.
    at: u64,
    /// First byte of its rows.
    from: u64,
    /// Byte after its rows.
    end: u64,
    /// How many there are.
    count: u64,
}

impl Run {
    fn after(&self) -> u64 {
        self.at + HEAD_BYTES + 2 * self.count * ENTRY_BYTES
    }

    fn head(&self) -> [u8; 32] {
        let mut head = [0; 32];
        head[..4].copy_from_slice(&MAGIC.to_be_bytes());
        head[8..16].copy_from_slice(&self.from.to_be_bytes());
        head[16..24].copy_from_slice(&self.end.to_be_bytes());
        head[24..].copy_from_slice(&self.count.to_be_bytes());
        let checksum = crc32fast::hash(&head[8..]);
        head[4..8].copy_from_slice(&checksum.to_be_bytes());
        head
    }

    /// The run that begins there; nothing where none does.
    fn read(file: &File, at: u64) -> io::Result<Option<Run>> {
        let mut head = [0; 32];
        match file.read_exact_at(&mut head, at) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let number = |place: usize| head[place..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let run = Run { at, from: number(8), end: number(16), count: number(24) };
        Ok((run.head() == head && run.count <= RUN_MAX as u64).then_some(run))
    }

    /// What lies under the keys from `first` to `last` in one of its two halves.
    fn offsets(&self, file: &File, half: u64, (first, last): (u64, u64)) -> io::Result<Vec<u64>> {
        let start = self.at + HEAD_BYTES + half * self.count * ENTRY_BYTES;
        let entry = |index: u64| -> io::Result<(u64, u64)> {
            let mut bytes = [0; 16];
            file.read_exact_at(&mut bytes, start + index * ENTRY_BYTES)?;
            let number =
                |place: usize| bytes[place..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            Ok((number(0), number(8)))
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if entry(middle)?.0 < first { low = middle + 1 } else { high = middle }
        }
        let mut offsets = Vec::new();
        for index in low..self.count {
            let (key, offset) = entry(index)?;
            if key > last {
                break;
            }
            offsets.push(offset);
        }
        Ok(offsets)
    }
}

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("jobs")
}

/// The runs that follow each other from the first row on, none of them beyond byte `end` of the rows.
fn runs(file: &File, end: u64) -> io::Result<Vec<Run>> {
    let bytes = file.metadata()?.len();
    let mut runs: Vec<Run> = Vec::new();
    loop {
        let (at, from) = runs.last().map_or((0, 0), |last| (last.after(), last.end));
        match Run::read(file, at)? {
            Some(run) if run.from == from && run.end > from && run.end <= end && run.after() <= bytes => {
                runs.push(run);
            }
            _ => return Ok(runs),
        }
    }
}

/// Leaves out what was indexed of rows beyond byte `committed`: they were never acknowledged, and others take their place.
pub(super) fn cut(folder: &Path, committed: u64) -> Result<(), StoreError> {
    let path = path(folder);
    let cut = || -> io::Result<()> {
        let file = File::options().read(true).write(true).open(&path)?;
        file.set_len(runs(&file, committed)?.last().map_or(0, Run::after))
    };
    match cut() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.map_err(StoreError::io(&path)),
    }
}

/// Indexes the rows up to byte `end` that are not indexed yet; the index is on the device on return.
pub(super) fn extend(folder: &Path, end: u64) -> Result<(), StoreError> {
    let mut index = JobIndexWriter::open(folder, end)?;
    let mut rows = Lines::open(&Spool::new(folder.to_owned()).rows_path(), index.from, end)?;
    while let Some((offset, NamedRow { id, label })) = rows.next_line()? {
        index.add(JobName::of(&label, id), offset)?;
    }
    index.finish(end)
}

/// What a job is called, as the index has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobName {
    label: u64,
    identity: u64,
}

impl JobName {
    pub(super) fn of(label: &str, id: JobId) -> JobName {
        JobName { label: hash(label), identity: first_digits(id) }
    }
}

/// Indexes rows as they are written, so that nobody reads them again for it.
#[derive(Debug)]
pub struct JobIndexWriter {
    path: PathBuf,
    file: File,
    /// Where the next run begins in the index.
    at: u64,
    /// First byte of its rows.
    from: u64,
    labels: Vec<(u64, u64)>,
    identities: Vec<(u64, u64)>,
}

impl JobIndexWriter {
    /// For rows that follow byte `from`; nothing where rows before it are not indexed.
    pub(super) fn begin(folder: &Path, from: u64) -> Result<Option<JobIndexWriter>, StoreError> {
        let index = JobIndexWriter::open(folder, from)?;
        Ok((index.from == from).then_some(index))
    }

    /// For rows that follow those that are indexed, none of them beyond byte `end`.
    fn open(folder: &Path, end: u64) -> Result<JobIndexWriter, StoreError> {
        let path = path(folder);
        let file = open_or_create(&path)?;
        let known = runs(&file, end).map_err(StoreError::io(&path))?;
        let (at, from) = known.last().map_or((0, 0), |last| (last.after(), last.end));
        file.set_len(at).map_err(StoreError::io(&path))?;
        Ok(JobIndexWriter { path, file, at, from, labels: Vec::new(), identities: Vec::new() })
    }

    /// Adds the row that begins at byte `offset`, after those before it.
    pub(super) fn add(&mut self, name: JobName, offset: u64) -> Result<(), StoreError> {
        if self.labels.len() >= RUN_MAX {
            self.end_run(offset)?;
        }
        self.labels.push((name.label, offset));
        self.identities.push((name.identity, offset));
        Ok(())
    }

    /// The rows end at byte `end`; the index is on the device on return.
    ///
    /// # Errors
    /// When the index cannot be written.
    pub fn finish(mut self, end: u64) -> Result<(), StoreError> {
        if !self.labels.is_empty() {
            self.end_run(end)?;
        }
        self.file.sync_data().map_err(StoreError::io(&self.path))
    }

    fn end_run(&mut self, end: u64) -> Result<(), StoreError> {
        let JobIndexWriter { path, file, at, from, labels, identities } = self;
        let run = Run { at: *at, from: *from, end, count: labels.len() as u64 };
        append(file, &run, labels, identities).map_err(StoreError::io(path))?;
        (*at, *from) = (run.after(), run.end);
        Ok(())
    }
}

fn append(
    file: &mut File,
    run: &Run,
    labels: &mut Vec<(u64, u64)>,
    identities: &mut Vec<(u64, u64)>,
) -> io::Result<()> {
    let mut bytes = run.head().to_vec();
    for half in [labels, identities] {
        half.sort_unstable();
        for (key, offset) in half.drain(..) {
            bytes.extend_from_slice(&key.to_be_bytes());
            bytes.extend_from_slice(&offset.to_be_bytes());
        }
    }
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::Start(run.at))?;
    file.write_all(&bytes)
}

fn hash(label: &str) -> u64 {
    Sha256::digest(label.as_bytes()).first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn first_digits(id: JobId) -> u64 {
    id.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The first digits of the identities that begin with `text`, from and to; nothing where it begins none.
fn identities(text: &str) -> Option<(u64, u64)> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() < IDENTITY_MIN || !text.bytes().all(is_digit) {
        return None;
    }
    let digits = &text[..text.len().min(IDENTITY_DIGITS)];
    let bound = |fill: &str| {
        let rest = fill.repeat(IDENTITY_DIGITS - digits.len());
        u64::from_str_radix(&format!("{digits}{rest}"), 16).ok()
    };
    Some((bound("0")?, bound("f")?))
}

/// Whether `text` names the job: its label, its identity, or the beginning of that.
fn is_called(spec: &JobSpec, text: &str) -> bool {
    spec.label == text || text.len() >= IDENTITY_MIN && spec.id.to_string().starts_with(text)
}

/// Where rows lie that may be called so, of those up to byte `end`; nothing where the index does not tell.
fn candidates(folder: &Path, end: u64, text: &str) -> io::Result<Option<Vec<u64>>> {
    let file = match File::open(path(folder)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let runs = runs(&file, end)?;
    if runs.last().map_or(0, |last| last.end) != end {
        return Ok(None);
    }
    let label = hash(text);
    let mut offsets = Vec::new();
    for run in runs {
        offsets.extend(run.offsets(&file, 0, (label, label))?);
        if let Some(range) = identities(text) {
            offsets.extend(run.offsets(&file, 1, range)?);
        }
    }
    offsets.sort_unstable();
    offsets.dedup();
    Ok(Some(offsets))
}

impl Store {
    /// The jobs of a batch that are called so, by label, identity or the beginning of that: the byte where each row lies,
    /// and the row.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub fn rows_called(&self, batch: &BatchRecord, text: &str) -> Result<Vec<(u64, JobSpec)>, StoreError> {
        let spool = self.spool(batch.no);
        let mut rows = Lines::open_scattered(&spool.rows_path(), 0, batch.spool_bytes)?;
        let mut found = Vec::new();
        // An index that cannot be read is none.
        if let Some(offsets) = candidates(spool.dir(), batch.spool_bytes, text).ok().flatten() {
            for at in offsets.into_iter().filter(|at| *at < batch.spool_bytes) {
                found.push((at, rows.line_at::<JobSpec>(at)?));
            }
        } else {
            let mut rows = Lines::open(&spool.rows_path(), 0, batch.spool_bytes)?;
            while let Some(row) = rows.next_line::<JobSpec>()? {
                if is_called(&row.1, text) {
                    found.push(row);
                }
            }
        }
        found.retain(|(_, spec)| is_called(spec, text));
        Ok(found)
    }

    /// The versions of a row's variation, in the order in which they were accepted: the byte where each row lies, and the
    /// row.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub fn versions_called(
        &self,
        batch: &BatchRecord,
        label: &str,
        variation: u32,
    ) -> Result<Vec<(u64, JobSpec)>, StoreError> {
        let mut found = self.rows_called(batch, label)?;
        found.retain(|(_, spec)| spec.label == label && spec.variation == variation);
        found.sort_by_key(|(_, spec)| spec.seq);
        Ok(found)
    }

    /// Whether a finished batch may have a job that is called so: no row is read for it.
    pub fn may_have_job(&self, finished: &FinishedBatch, text: &str) -> bool {
        let Some(end) = finished.rows_bytes() else { return true };
        let found = candidates(&batch_dir(&self.dir, finished.no), end, text).ok().flatten();
        found.is_none_or(|offsets| !offsets.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_found_by_its_first_digits() {
        assert_eq!(identities("0123456"), None, "too short");
        assert_eq!(identities("0123456g"), None);
        assert_eq!(identities("0123ABCD"), None, "they are shown in small letters");
        assert_eq!(identities("01234567"), Some((0x0123_4567_0000_0000, 0x0123_4567_ffff_ffff)));
        let whole = identities("0123456789abcdef0123456789abcdef");
        assert_eq!(whole, Some((0x0123_4567_89ab_cdef, 0x0123_4567_89ab_cdef)));
    }
}
