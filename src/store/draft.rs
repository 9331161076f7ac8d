//! A manifest on its way in: which of its rows are new, without holding the rows in memory.
//!
//! Rows are appended to a draft file as they are read. Their fingerprints go into 256 partition
//! files, and one partition after the other is judged, so memory holds a 256th of the fingerprints
//! and, for each row, the 8 bytes of its verdict.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::domain::ids::Fingerprint;
use crate::domain::job::Order;
use crate::domain::label::{folded, name_stem};
use crate::domain::problem::Problem;
use crate::domain::queue_class::Census;
use crate::store::StoreError;
use crate::store::parts::Parts;
use crate::store::spool::{Appender, Lines};

/// How drafts are called in the spool folder; leftovers of a killed process are swept by it.
pub(super) const PREFIX: &str = "draft-";

const PARTITIONS: usize = 256;
/// Write buffer of a partition, in bytes.
const PARTITION_BUFFER_BYTES: usize = 4096;

/// A row of the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DraftRow {
    /// What it wants, whichever variation; nothing that counts for a row that could not be read.
    pub fingerprint: Fingerprint,
    /// Its `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How many variations it wants.
    pub count: u32,
    /// Its line of the manifest.
    pub line: u64,
    /// The plan allowance that each variation would draw from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draws: Option<Draw>,
    /// Its `id` differs from another's only by case or by Unicode normal form; known once all rows are judged.
    #[serde(skip)]
    pub apart: bool,
    /// What is wanted.
    pub wanted: Wanted,
}

/// A part of a daily plan allowance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draw {
    /// Which allowance: models with the same pool draw from the same one.
    pub pool: String,
    /// How much of it one variation needs.
    pub units: u64,
    /// How much there is a UTC day.
    pub per_day: u64,
}

/// What a row wants, if it is valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// An order.
    Order(Box<Order>),
    /// Nothing that can be sent today. The batch may have it from a day when it was valid.
    Invalid(Vec<Problem>),
}

/// What is to become of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It asks for the variations from `first` on; those up to `have` exist already.
    Wanted {
        /// Its first variation.
        first: u32,
        /// The last variation that the batch has already; 0 for none.
        have: u32,
    },
    /// An earlier row of the manifest has the same `id`.
    RepeatedId {
        /// The line of that row.
        first_line: u64,
    },
    /// It could not be read far enough to tell what it wants.
    Unread,
}

/// An `id` that two rows have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatedId {
    /// Line of the later row.
    pub line: u64,
    /// Line of the first row.
    pub first_line: u64,
}

/// Rows being collected.
#[derive(Debug)]
pub struct Draft {
    dir: TempDir,
    rows: Appender,
    row_count: u32,
    partitions: Vec<Option<BufWriter<File>>>,
    census: Census,
}

impl Draft {
    /// Begins a draft apart from any state: for a plan, of which nothing is kept.
    pub fn apart() -> Result<Draft, StoreError> {
        Draft::begin(&std::env::temp_dir())
    }

    /// Begins a draft in the spool folder.
    pub(super) fn begin(spool: &Path) -> Result<Draft, StoreError> {
        std::fs::create_dir_all(spool).map_err(StoreError::io(spool))?;
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(spool).map_err(StoreError::io(spool))?;
        let rows = Appender::open(&dir.path().join("rows"), 0)?;
        let partitions = (0..PARTITIONS).map(|_| None).collect();
        Ok(Draft { dir, rows, row_count: 0, partitions, census: Census::default() })
    }

    /// Tells of a variation that the batch has already.
    pub fn note_existing(&mut self, fingerprint: Fingerprint, variation: u32) -> Result<(), StoreError> {
        let entry = Entry { place: fingerprint.0, fingerprint, ordinal: EXISTING, count: variation, line: 0 };
        self.partition(&entry)
    }

    /// Tells of what a job of the batch is called.
    pub fn note_label(&mut self, label: &str) -> Result<(), StoreError> {
        self.partition(&name_entry(label, EXISTING))
    }

    /// Adds a row.
    pub fn push(&mut self, row: &DraftRow) -> Result<(), StoreError> {
        self.rows.push(row)?;
        if let Wanted::Order(order) = &row.wanted {
            self.census.count(order);
        }
        let entry = Entry {
            place: row.fingerprint.0,
            fingerprint: row.fingerprint,
            ordinal: self.row_count,
            count: row.count,
            line: row.line,
        };
        self.partition(&entry)?;
        if let Some(label) = &row.label {
            self.partition(&Entry { place: label_place(label), count: LABEL, ..entry })?;
            self.partition(&name_entry(label, self.row_count))?;
        }
        self.row_count += 1;
        Ok(())
    }

    /// Adds a row that could not be read far enough to tell what it wants, in its place.
    pub fn push_unread(&mut self, line: u64, problems: Vec<Problem>) -> Result<(), StoreError> {
        let wanted = Wanted::Invalid(problems);
        let fingerprint = Fingerprint([0; 16]);
        self.rows.push(&DraftRow {
            fingerprint,
            label: None,
            count: 1,
            line,
            draws: None,
            apart: false,
            wanted,
        })?;
        self.row_count += 1;
        Ok(())
    }

    fn partition(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let index = usize::from(entry.place[0]);
        let path = partition_path(self.dir.path(), index);
        let slot = &mut self.partitions[index];
        let file = match slot {
            Some(file) => file,
            None => {
                let file = File::create(&path).map_err(StoreError::io(&path))?;
                slot.insert(BufWriter::with_capacity(PARTITION_BUFFER_BYTES, file))
            }
        };
        file.write_all(&entry.to_bytes()).map_err(StoreError::io(&path))
    }

    /// Compares all rows with each other and with what the batch has.
    pub fn judge(mut self) -> Result<Judged, StoreError> {
        let rows_bytes = self.rows.sync()?;
        let mut verdicts = vec![(0, 0); self.row_count as usize];
        let mut repeated = Vec::new();
        let mut apart = HashSet::new();
        for index in 0..PARTITIONS {
            if let Some(mut file) = self.partitions[index].take() {
                let path = partition_path(self.dir.path(), index);
                file.flush().map_err(StoreError::io(&path))?;
                drop(file);
                judge_partition(&path, &mut verdicts, &mut repeated, &mut apart)
                    .map_err(StoreError::io(&path))?;
            }
        }
        repeated.sort_by_key(|repeat: &RepeatedId| repeat.line);
        Ok(Judged { dir: self.dir, rows_bytes, verdicts, repeated, apart, census: self.census })
    }
}

/// Rows with their verdicts.
#[derive(Debug)]
pub struct Judged {
    dir: TempDir,
    rows_bytes: u64,
    /// First variation and last existing one; `(0, EXISTING)` for a repeated id, `(0, 0)` for a row
    /// that could not be read.
    verdicts: Vec<(u32, u32)>,
    /// Rows whose `id` an earlier row has, in order of lines.
    pub repeated: Vec<RepeatedId>,
    /// Rows, by their place among all, whose `id` differs from another's only by case or by Unicode normal form.
    apart: HashSet<u32>,
    /// The classes of all rows that could be sent.
    pub census: Census,
}

impl Judged {
    /// Where its rows can be sorted into parts, for as long as it is kept.
    pub fn parts(&self) -> Parts {
        Parts::begin(self.dir.path())
    }

    /// The rows, in manifest order.
    pub fn rows(&self) -> Result<JudgedRows<'_>, StoreError> {
        let lines = Lines::open(&self.dir.path().join("rows"), 0, self.rows_bytes)?;
        let (verdicts, repeated) = (self.verdicts.iter(), self.repeated.as_slice());
        Ok(JudgedRows { lines, verdicts, repeated, apart: &self.apart, next: 0 })
    }
}

/// The rows of a judged draft, one after the other.
#[derive(Debug)]
pub struct JudgedRows<'a> {
    lines: Lines,
    verdicts: std::slice::Iter<'a, (u32, u32)>,
    repeated: &'a [RepeatedId],
    apart: &'a HashSet<u32>,
    next: u32,
}

impl JudgedRows<'_> {
    /// The next row; nothing at the end.
    pub fn next_row(&mut self) -> Result<Option<(DraftRow, Verdict)>, StoreError> {
        let Some((_, mut row)) = self.lines.next_line::<DraftRow>()? else { return Ok(None) };
        row.apart = self.apart.contains(&self.next);
        self.next += 1;
        let verdict = match self.verdicts.next() {
            Some(&(first @ 1.., have)) => Verdict::Wanted { first, have },
            Some(&(0, EXISTING)) => Verdict::RepeatedId { first_line: self.first_line(row.line) },
            _ => Verdict::Unread,
        };
        Ok(Some((row, verdict)))
    }

    fn first_line(&self, line: u64) -> u64 {
        let found = self.repeated.binary_search_by_key(&line, |repeat| repeat.line);
        found.ok().and_then(|index| self.repeated.get(index)).map_or(line, |repeat| repeat.first_line)
    }
}

/// Ordinal of an entry that stands for an accepted job, whose variation is in `count`.
const EXISTING: u32 = u32::MAX;
/// Count of an entry that stands for a label.
const LABEL: u32 = u32::MAX;
/// Count of an entry that stands for the name of files: its `place` is a hash of the name as a disk may see it, its
/// `fingerprint` one of the name as it is.
const NAME: u32 = u32::MAX - 1;

/// What a partition file holds for a row, an accepted job or a label.
struct Entry {
    /// Decides the partition: the fingerprint, or a hash of the label.
    place: [u8; 16],
    fingerprint: Fingerprint,
    ordinal: u32,
    count: u32,
    line: u64,
}

impl Entry {
    const BYTES: usize = 48;

    fn to_bytes(&self) -> [u8; Entry::BYTES] {
        let mut bytes = [0; Entry::BYTES];
        bytes[..16].copy_from_slice(&self.place);
        bytes[16..32].copy_from_slice(&self.fingerprint.0);
        bytes[32..36].copy_from_slice(&self.ordinal.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.count.to_be_bytes());
        bytes[40..].copy_from_slice(&self.line.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Entry::BYTES]) -> Entry {
        let mut entry =
            Entry { place: [0; 16], fingerprint: Fingerprint([0; 16]), ordinal: 0, count: 0, line: 0 };
        let (mut ordinal, mut count, mut line) = ([0; 4], [0; 4], [0; 8]);
        entry.place.copy_from_slice(&bytes[..16]);
        entry.fingerprint.0.copy_from_slice(&bytes[16..32]);
        ordinal.copy_from_slice(&bytes[32..36]);
        count.copy_from_slice(&bytes[36..40]);
        line.copy_from_slice(&bytes[40..]);
        entry.ordinal = u32::from_be_bytes(ordinal);
        entry.count = u32::from_be_bytes(count);
        entry.line = u64::from_be_bytes(line);
        entry
    }
}

fn name_entry(label: &str, ordinal: u32) -> Entry {
    let stem = name_stem(label);
    let (place, exact) = (label_place(&folded(stem)), label_place(stem));
    Entry { place, fingerprint: Fingerprint(exact), ordinal, count: NAME, line: 0 }
}

fn label_place(label: &str) -> [u8; 16] {
    use sha2::{Digest, Sha256};
    let mut place = [0; 16];
    place.copy_from_slice(&Sha256::digest(label.as_bytes())[..16]);
    place
}

fn partition_path(dir: &Path, index: usize) -> std::path::PathBuf {
    dir.join(format!("fingerprints.{index:02x}"))
}

/// Judges the entries of one partition. Entries of accepted jobs were written before the rows.
fn judge_partition(
    path: &Path,
    verdicts: &mut [(u32, u32)],
    repeated: &mut Vec<RepeatedId>,
    apart: &mut HashSet<u32>,
) -> io::Result<()> {
    #[derive(Default)]
    struct Seen {
        /// The last variation that the batch has.
        have: u32,
        /// The last variation that the manifest asks for.
        asked: u32,
    }
    let mut seen: HashMap<Fingerprint, Seen> = HashMap::new();
    let mut labels: HashMap<[u8; 16], u64> = HashMap::new();
    // The first of several has the plain name.
    let mut names: HashMap<[u8; 16], Fingerprint> = HashMap::new();
    let mut file = BufReader::new(File::open(path)?);
    let mut bytes = [0; Entry::BYTES];
    while read_entry(&mut file, &mut bytes)? {
        let entry = Entry::from_bytes(&bytes);
        if entry.count == NAME {
            let first = *names.entry(entry.place).or_insert(entry.fingerprint);
            if first != entry.fingerprint && entry.ordinal != EXISTING {
                apart.insert(entry.ordinal);
            }
            continue;
        }
        if entry.ordinal == EXISTING {
            let row = seen.entry(entry.fingerprint).or_default();
            row.have = row.have.max(entry.count);
            continue;
        }
        // Written by `push` for this very draft, so the ordinal has a verdict.
        let Some(verdict) = verdicts.get_mut(entry.ordinal as usize) else { continue };
        if entry.count == LABEL {
            match labels.get(&entry.place) {
                Some(&first_line) => {
                    *verdict = (0, EXISTING);
                    repeated.push(RepeatedId { line: entry.line, first_line });
                }
                None => {
                    labels.insert(entry.place, entry.line);
                }
            }
        } else if verdict.1 != EXISTING {
            let row = seen.entry(entry.fingerprint).or_default();
            *verdict = (row.asked + 1, row.have);
            row.asked = row.asked.saturating_add(entry.count);
        }
    }
    Ok(())
}

/// Reads one entry; false at the end.
fn read_entry(file: &mut impl Read, bytes: &mut [u8; Entry::BYTES]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
