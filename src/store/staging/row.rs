//! The rows of a draft, as they lie in its file: written once and read a few times, so that an order is made into JSON
//! once, and read from it only where somebody looks into it.
//!
//! A row is a head of fixed length, with the length and the checksum of what follows, and then its texts. The file ends
//! with its process: nothing in it need ever be read by another version.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::Fingerprint;
use crate::domain::job::Order;
use crate::domain::queue_class::{Classes, GroupHash, QueueClass};
use crate::domain::request::Kind;
use crate::store::StoreError;
use crate::store::staging::partition_entry::{PartitionEntry, Tag, label_place, name_entry};

/// A row of the manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct StagedRow {
    /// What it wants, whichever variation; nothing that counts for a row that could not be read.
    pub fingerprint: Fingerprint,
    /// Its `id`.
    pub label: Option<String>,
    /// How many variations it wants.
    pub count: u32,
    /// Its line of the manifest.
    pub line: u64,
    /// Which combination of a matrix it was made for first.
    pub cell: Option<u64>,
    /// The plan allowance that each variation would draw from.
    pub draws: Option<AllowanceDraw>,
    /// Its `id` differs from another's only by case or by Unicode normal form; known once all rows are validated.
    pub apart: bool,
    /// What is wanted.
    pub wanted: RowRequest,
}

/// A part of a daily plan allowance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowanceDraw {
    /// Which allowance: models with the same pool draw from the same one.
    pub pool: String,
    /// How much of it one variation needs.
    pub units: u64,
    /// How much there is a UTC day.
    pub per_day: u64,
}

/// What a row wants, if it is valid.
#[derive(Debug, Clone, PartialEq)]
pub enum RowRequest {
    /// An order.
    Order(Box<StagedOrder>),
    /// Nothing that can be sent today. The batch may have it from a day when it was valid.
    Invalid(Vec<Diagnostic>),
}

/// An order as JSON, with what decides where its row lies and what it counts as.
#[derive(Debug, Clone, PartialEq)]
pub struct StagedOrder {
    pub kind: Kind,
    /// Higher goes first.
    pub priority: i8,
    /// As [`Order::hold`] says.
    pub hold: Option<Credits>,
    /// Its classes.
    pub classes: Classes,
    /// The text that describes it, which names the jobs of a row without an `id`; empty where it has one.
    pub text: String,
    /// The order.
    pub json: String,
}

impl StagedOrder {
    /// `classes` are those of the order; `has_id` says whether its row has an `id`.
    pub fn new(order: &Order, classes: Classes, has_id: bool) -> StagedOrder {
        StagedOrder {
            kind: order.kind,
            priority: order.priority,
            hold: order.hold(),
            classes,
            text: if has_id { String::new() } else { order.text() },
            // A plain struct with string keys always prints.
            json: serde_json::to_string(order).unwrap_or_default(),
        }
    }

    /// The order itself.
    ///
    /// # Errors
    /// When it cannot be read, which is a defect.
    pub fn order(&self) -> Result<Order, StoreError> {
        let unread = |error: serde_json::Error| StoreError::io(Path::new("rows"))(error.into());
        serde_json::from_str(&self.json).map_err(unread)
    }
}

/// A row as the draft keeps it, with what decides where it is compared. It is made by the thread that validated the row, so
/// that little of what one thread allocates is freed by another.
#[derive(Debug)]
pub struct EncodedRow {
    bytes: Vec<u8>,
    pub(super) fingerprint: Fingerprint,
    pub(super) label: Option<EncodedLabel>,
    pub(super) count: u32,
    pub(super) line: u64,
    pub(super) order: Option<EncodedOrder>,
}

/// What the order of a row is counted by.
#[derive(Debug, Clone, Copy)]
pub(super) struct EncodedOrder {
    pub(super) priority: i8,
    pub(super) classes: Classes,
    /// Of one variation, as [`Order::hold`] says; 0 where no price is known.
    pub(super) hold: Credits,
}

/// The `id` of a row, with what it is compared by.
#[derive(Debug)]
pub(super) struct EncodedLabel {
    pub(super) label: String,
    pub(super) place: [u8; 16],
    /// Of the files of the row; its row is not known yet.
    pub(super) name: PartitionEntry,
}

impl EncodedRow {
    /// A row of the manifest.
    ///
    /// # Errors
    /// When it is longer than 4 GiB.
    pub fn new(row: StagedRow) -> Result<EncodedRow, StoreError> {
        let mut bytes = Vec::with_capacity(TYPICAL_BYTES);
        encode(&row, &mut bytes).map_err(StoreError::io(Path::new("rows")))?;
        let StagedRow { fingerprint, label, count, line, wanted, .. } = row;
        let label = label.map(|label| EncodedLabel {
            place: label_place(&label),
            name: name_entry(&label, Tag::Name, 0),
            label,
        });
        let order = match wanted {
            RowRequest::Order(order) => {
                let StagedOrder { priority, classes, hold, .. } = *order;
                Some(EncodedOrder { priority, classes, hold: hold.unwrap_or_default() })
            }
            RowRequest::Invalid(_) => None,
        };
        Ok(EncodedRow { bytes, fingerprint, label, count, line, order })
    }
}

/// Most rows need no more.
const TYPICAL_BYTES: usize = 1024;

/// What precedes each row: the length and the CRC-32 of what follows.
const HEAD_BYTES: usize = 8;
const BUFFER_BYTES: usize = 256 * 1024;

const HAS_LABEL: u8 = 1;
const HAS_DRAWS: u8 = 2;
const HAS_HOLD: u8 = 4;
const IS_ORDER: u8 = 8;
const HAS_CELL: u8 = 16;

/// Appends rows to the file of a draft.
#[derive(Debug)]
pub(super) struct RowWriter {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
}

impl RowWriter {
    pub(super) fn create(path: &Path) -> Result<RowWriter, StoreError> {
        let file = File::create(path).map_err(StoreError::io(path))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(RowWriter { path: path.to_owned(), file, bytes: 0 })
    }

    pub(super) fn push(&mut self, row: &EncodedRow) -> Result<(), StoreError> {
        self.file.write_all(&row.bytes).map_err(StoreError::io(&self.path))?;
        self.bytes += row.bytes.len() as u64;
        Ok(())
    }

    /// Hands everything to the operating system and returns the length: nothing of a draft outlives its process.
    pub(super) fn finish(mut self) -> Result<u64, StoreError> {
        self.file.flush().map_err(StoreError::io(&self.path))?;
        Ok(self.bytes)
    }
}

/// Reads them again.
#[derive(Debug)]
pub(super) struct RowReader {
    path: PathBuf,
    file: BufReader<File>,
    left: u64,
    row: Vec<u8>,
}

impl RowReader {
    /// Reads a file of that many bytes.
    pub(super) fn open(path: &Path, bytes: u64) -> Result<RowReader, StoreError> {
        let file = File::open(path).map_err(StoreError::io(path))?;
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(RowReader { path: path.to_owned(), file, left: bytes, row: Vec::new() })
    }

    /// The next row; nothing at the end.
    pub(super) fn next_row(&mut self) -> Result<Option<StagedRow>, StoreError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.read().map(Some).map_err(StoreError::io(&self.path))
    }

    fn read(&mut self) -> io::Result<StagedRow> {
        let mut head = [0; HEAD_BYTES];
        self.file.read_exact(&mut head)?;
        let [a, b, c, d, checksum @ ..] = head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let bytes = (HEAD_BYTES + length) as u64;
        self.left = self.left.checked_sub(bytes).ok_or(io::ErrorKind::InvalidData)?;
        self.row.resize(length, 0);
        self.file.read_exact(&mut self.row)?;
        if crc32fast::hash(&self.row).to_be_bytes() != checksum {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of a row is wrong"));
        }
        decode(&self.row)
    }
}

fn encode(row: &StagedRow, bytes: &mut Vec<u8>) -> io::Result<()> {
    let StagedRow { fingerprint, label, count, line, cell, draws, apart: _, wanted } = row;
    bytes.clear();
    bytes.extend_from_slice(&[0; HEAD_BYTES]);
    let (order, is_order) = match wanted {
        RowRequest::Order(order) => (Some(order), IS_ORDER),
        RowRequest::Invalid(_) => (None, 0),
    };
    let hold = order.and_then(|order| order.hold);
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    bytes.push(
        is_order
            | flag(label.is_some(), HAS_LABEL)
            | flag(draws.is_some(), HAS_DRAWS)
            | flag(hold.is_some(), HAS_HOLD)
            | flag(cell.is_some(), HAS_CELL),
    );
    bytes.extend_from_slice(&fingerprint.0);
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(&line.to_be_bytes());
    if let Some(cell) = cell {
        bytes.extend_from_slice(&cell.to_be_bytes());
    }
    if let Some(label) = label {
        text(label, bytes);
    }
    if let Some(draws) = draws {
        text(&serde_json::to_string(draws)?, bytes);
    }
    match wanted {
        RowRequest::Order(order) => {
            let StagedOrder { kind, priority, hold: _, classes, text: described, json } = &**order;
            let kind = Kind::ALL.iter().position(|other| other == kind).unwrap_or_default();
            bytes.push(u8::try_from(kind).unwrap_or_default());
            bytes.extend_from_slice(&priority.to_be_bytes());
            if let Some(hold) = hold {
                bytes.extend_from_slice(&hold.0.to_be_bytes());
            }
            let Classes { by_grain, group } = classes;
            let hashes = by_grain.iter().map(|class| class.0).chain([group.0]);
            hashes.for_each(|hash| bytes.extend_from_slice(&hash.to_be_bytes()));
            text(described, bytes);
            bytes.extend_from_slice(json.as_bytes());
        }
        RowRequest::Invalid(problems) => serde_json::to_writer(&mut *bytes, problems)?,
    }
    let length = u32::try_from(bytes.len() - HEAD_BYTES).map_err(io::Error::other)?;
    let checksum = crc32fast::hash(&bytes[HEAD_BYTES..]);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes[4..HEAD_BYTES].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// A text after its length. None is longer than a row.
fn text(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn decode(bytes: &[u8]) -> io::Result<StagedRow> {
    let mut fields = Fields(bytes);
    let [flags] = fields.next()?;
    let fingerprint = Fingerprint(fields.next()?);
    let count = u32::from_be_bytes(fields.next()?);
    let line = u64::from_be_bytes(fields.next()?);
    let cell = if flags & HAS_CELL != 0 { Some(u64::from_be_bytes(fields.next()?)) } else { None };
    let label = if flags & HAS_LABEL != 0 { Some(fields.text()?) } else { None };
    let draws = if flags & HAS_DRAWS != 0 { Some(serde_json::from_str(&fields.text()?)?) } else { None };
    let wanted = if flags & IS_ORDER == 0 {
        RowRequest::Invalid(serde_json::from_slice(fields.0)?)
    } else {
        let [kind] = fields.next()?;
        let kind = Kind::ALL.get(usize::from(kind)).copied().ok_or(io::ErrorKind::InvalidData)?;
        let priority = i8::from_be_bytes(fields.next()?);
        let hold =
            if flags & HAS_HOLD != 0 { Some(Credits(u64::from_be_bytes(fields.next()?))) } else { None };
        let mut classes = Classes::default();
        for class in &mut classes.by_grain {
            *class = QueueClass(u32::from_be_bytes(fields.next()?));
        }
        classes.group = GroupHash(u32::from_be_bytes(fields.next()?));
        let text = fields.text()?;
        let json = fields.rest()?;
        RowRequest::Order(Box::new(StagedOrder { kind, priority, hold, classes, text, json }))
    };
    Ok(StagedRow { fingerprint, label, count, line, cell, draws, apart: false, wanted })
}

/// What is left to be read of a row.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const BYTES: usize>(&mut self) -> io::Result<[u8; BYTES]> {
        let (field, rest) = self.0.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(*field)
    }

    fn text(&mut self) -> io::Result<String> {
        let length = u32::from_be_bytes(self.next()?) as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        owned(text)
    }

    fn rest(&mut self) -> io::Result<String> {
        owned(std::mem::take(&mut self.0))
    }
}

fn owned(text: &[u8]) -> io::Result<String> {
    let text =
        std::str::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back() {
        let order = StagedOrder {
            kind: Kind::SoundEffect,
            priority: -3,
            hold: Some(Credits(12)),
            classes: Classes {
                by_grain: [1, 2, 3, 4, 5, 6].map(QueueClass),
                group: crate::domain::queue_class::GroupHash(7),
            },
            text: "gulls".to_owned(),
            json: "{\"line\":2}".to_owned(),
        };
        let row = StagedRow {
            fingerprint: Fingerprint([7; 16]),
            label: None,
            count: 3,
            line: 2,
            cell: Some(5),
            draws: Some(AllowanceDraw { pool: "p".to_owned(), units: 1, per_day: 10 }),
            apart: false,
            wanted: RowRequest::Order(Box::new(order.clone())),
        };
        let labelled = StagedRow {
            label: Some("möwe".to_owned()),
            cell: None,
            draws: None,
            wanted: RowRequest::Order(Box::new(StagedOrder { hold: None, text: String::new(), ..order })),
            ..row
        };
        let invalid =
            StagedRow { wanted: RowRequest::Invalid(vec![Diagnostic::new("is bad")]), ..labelled.clone() };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let mut writer = RowWriter::create(&path).unwrap();
        let rows = [row, labelled, invalid];
        rows.iter().for_each(|row| writer.push(&EncodedRow::new(row.clone()).unwrap()).unwrap());
        let bytes = writer.finish().unwrap();
        let mut reader = RowReader::open(&path, bytes).unwrap();
        for row in rows {
            assert_eq!(reader.next_row().unwrap(), Some(row));
        }
        assert_eq!(reader.next_row().unwrap(), None);
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let row = StagedRow {
            fingerprint: Fingerprint([7; 16]),
            label: Some("a".to_owned()),
            count: 1,
            line: 2,
            cell: None,
            draws: None,
            apart: false,
            wanted: RowRequest::Invalid(Vec::new()),
        };
        let mut bytes = Vec::new();
        encode(&row, &mut bytes).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &flipped).unwrap();
            assert!(RowReader::open(&path, flipped.len() as u64).unwrap().next_row().is_err(), "bit {bit}");
        }
    }
}
