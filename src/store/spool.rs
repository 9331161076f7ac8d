//! Append-only files of checksummed JSON lines: a batch's accepted rows, and its outcomes. Of the rows of large manifests
//! most say only in what they differ from another row (`row_delta`).
//!
//! What has not begun and what has ended lies here, so that the database stays as small as what is
//! in flight. A line is `CRC32 JSON`; its length is committed in the database, and whatever lies
//! beyond the committed length was never acknowledged.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::store::StoreError;
use crate::store::codec;
use crate::store::new_row::NewRow;
use crate::store::row_delta::{self, Base, MARK, RowShortener};
use crate::store::state_folders::{open_or_create, sync_dir_and_parent};

/// The longest line that is read back, in bytes: far above any row a manifest may have.
const LINE_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Size of read and write buffers, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// The same where the next line mostly lies elsewhere.
const SCATTERED_BUFFER_BYTES: usize = 4 * 1024;

/// No byte of a file.
const NO_POSITION: u64 = u64::MAX;

/// A batch's folder.
#[derive(Debug, Clone)]
pub struct Spool {
    dir: PathBuf,
}

impl Spool {
    pub(super) fn new(dir: PathBuf) -> Spool {
        Spool { dir }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Accepted rows, one `JobSpec` a line.
    pub(super) fn rows_path(&self) -> PathBuf {
        self.dir.join("rows")
    }

    /// Ended jobs, one `JobRecord` a line; the last line of a job counts.
    pub(super) fn outcomes_path(&self) -> PathBuf {
        self.dir.join("outcomes")
    }

    /// Which versions of edited rows are wanted, one `VersionChange` a line.
    pub(super) fn versions_path(&self) -> PathBuf {
        self.dir.join("versions")
    }

    /// Reads rows from byte `start` to byte `end`.
    pub fn rows(&self, start: u64, end: u64) -> Result<Lines, StoreError> {
        Lines::open(&self.rows_path(), start, end)
    }

    /// The same for rows that are read here and there.
    pub fn rows_scattered(&self, start: u64, end: u64) -> Result<Lines, StoreError> {
        Lines::open_scattered(&self.rows_path(), start, end)
    }

    /// Reads outcomes from byte `start` to byte `end`.
    pub fn outcomes(&self, start: u64, end: u64) -> Result<Lines, StoreError> {
        Lines::open(&self.outcomes_path(), start, end)
    }

    /// The same for outcomes that are read here and there.
    pub fn outcomes_scattered(&self, start: u64, end: u64) -> Result<Lines, StoreError> {
        Lines::open_scattered(&self.outcomes_path(), start, end)
    }

    /// How many bytes of rows lie on the disk, whatever was acknowledged.
    pub fn rows_on_disk(&self) -> u64 {
        fs::metadata(self.rows_path()).map_or(0, |meta| meta.len())
    }

    /// Reads all outcomes that lie on the disk, whatever was acknowledged; nothing where there are none.
    pub fn outcomes_on_disk(&self) -> Result<Option<Lines>, StoreError> {
        let path = self.outcomes_path();
        match fs::metadata(&path) {
            Ok(meta) => Lines::open(&path, 0, meta.len()).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Reads changes of versions from byte `start` to byte `end`.
    pub fn versions(&self, start: u64, end: u64) -> Result<Lines, StoreError> {
        Lines::open(&self.versions_path(), start, end)
    }
}

/// Writes one line.
fn encode_line<T: Serialize>(value: &T, line: &mut Vec<u8>) -> io::Result<()> {
    begin_line(line);
    serde_json::to_writer(&mut *line, value)?;
    end_line(line);
    Ok(())
}

/// Writes lines of rows that follow each other.
#[derive(Debug, Default)]
pub(super) struct RowEncoder {
    json: Vec<u8>,
    shortener: RowShortener,
}

impl RowEncoder {
    /// Writes the line of the row that begins at byte `at`, and comes after so many others of its manifest.
    pub(super) fn encode(
        &mut self,
        row: &NewRow<'_>,
        at: u64,
        rows_before: u64,
        line: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.json.clear();
        row.write(&mut self.json)?;
        begin_line(line);
        line.extend_from_slice(self.shortener.shorten(&self.json, at, rows_before));
        end_line(line);
        Ok(())
    }
}

/// Hexadecimal digits of a checksum, and a space.
const CHECKSUM_BYTES: usize = 9;

fn begin_line(line: &mut Vec<u8>) {
    line.clear();
    line.extend_from_slice(&[b' '; CHECKSUM_BYTES]);
}

fn end_line(line: &mut Vec<u8>) {
    let checksum = crc32fast::hash(&line[CHECKSUM_BYTES..]);
    line[..CHECKSUM_BYTES].copy_from_slice(&checksum_text(checksum));
    line.push(b'\n');
}

/// `00c0ffee `
fn checksum_text(checksum: u32) -> [u8; CHECKSUM_BYTES] {
    let mut text = [b' '; CHECKSUM_BYTES];
    for (place, digit) in text.iter_mut().take(CHECKSUM_BYTES - 1).enumerate() {
        *digit = b"0123456789abcdef"[(checksum >> (28 - 4 * place)) as usize & 0xf];
    }
    text
}

/// What a line says, without its checksum; the reason when it is not what was written.
fn checked(line: &[u8]) -> Result<&[u8], String> {
    let line = line.strip_suffix(b"\n").ok_or("it is cut off")?;
    let (checksum, json) = line.split_at_checked(CHECKSUM_BYTES).ok_or("it is too short")?;
    if checksum != checksum_text(crc32fast::hash(json)) {
        return Err("its checksum is wrong".to_owned());
    }
    Ok(json)
}

/// Appends lines after the committed length; what lay beyond it is cut off first.
#[derive(Debug)]
pub struct Appender {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    line: Vec<u8>,
}

impl Appender {
    /// Opens `path` to go on after `committed` bytes.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the file is shorter than what was acknowledged.
    pub(super) fn open(path: &Path, committed: u64) -> Result<Appender, StoreError> {
        let dir = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
        let appender = Appender::open_again(path, committed)?;
        // Not only where it is new: the process that made it may have been killed before this.
        sync_dir_and_parent(dir).map_err(StoreError::io(dir))?;
        Ok(appender)
    }

    /// The same of a file that this process has opened before.
    pub(super) fn open_again(path: &Path, committed: u64) -> Result<Appender, StoreError> {
        let mut file = open_or_create(path)?;
        let found = file.metadata().map_err(StoreError::io(path))?.len();
        if found < committed {
            return Err(StoreError::Damaged {
                dir: path.parent().unwrap_or(Path::new(".")).to_owned(),
                what: path.display().to_string(),
                detail: format!("it has {found} bytes, but {committed} were acknowledged"),
            });
        }
        file.set_len(committed).and_then(|()| file.seek(SeekFrom::End(0))).map_err(StoreError::io(path))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(Appender { path: path.to_owned(), file, bytes: committed, line: Vec::new() })
    }

    /// Adds a line and returns the byte where it begins.
    pub fn push<T: Serialize>(&mut self, value: &T) -> Result<u64, StoreError> {
        let at = self.bytes;
        encode_line(value, &mut self.line)
            .and_then(|()| self.file.write_all(&self.line))
            .map_err(StoreError::io(&self.path))?;
        self.bytes += self.line.len() as u64;
        Ok(at)
    }

    /// Adds a line of which the text is known: a row in full or shortened, as a reader had it.
    pub(super) fn push_text(&mut self, text: &[u8]) -> Result<(), StoreError> {
        begin_line(&mut self.line);
        self.line.extend_from_slice(text);
        end_line(&mut self.line);
        self.file.write_all(&self.line).map_err(StoreError::io(&self.path))?;
        self.bytes += self.line.len() as u64;
        Ok(())
    }

    /// Adds encoded lines.
    pub(super) fn push_encoded(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(lines).map_err(StoreError::io(&self.path))?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Adds all lines of a file.
    pub(super) fn push_file(&mut self, path: &Path) -> Result<(), StoreError> {
        let mut file = File::open(path).map_err(StoreError::io(path))?;
        self.bytes += io::copy(&mut file, &mut self.file).map_err(StoreError::io(&self.path))?;
        Ok(())
    }

    /// The length so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until every line is on the device and returns the length.
    pub fn sync(&mut self) -> Result<u64, StoreError> {
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_data())
            .map_err(StoreError::io(&self.path))?;
        Ok(self.bytes)
    }
}

/// The line that begins at byte `at` of a file, wherever it is read otherwise.
fn line_at(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while (line.len() as u64) < LINE_MAX_BYTES {
        let before = line.len();
        line.resize(before + SCATTERED_BUFFER_BYTES, 0);
        let read = file.read_at(&mut line[before..], at + before as u64)?;
        line.truncate(before + read);
        if let Some(end) = memchr::memchr(b'\n', &line[before..]) {
            line.truncate(before + end + 1);
            break;
        }
        if read == 0 {
            break;
        }
    }
    Ok(line)
}

/// Reads lines from one byte to another.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    /// The byte of the file that is read next, or [`NO_POSITION`].
    position: u64,
    at: u64,
    end: u64,
    line: Vec<u8>,
    /// The row that was referred to last, and the byte where it begins.
    base: Option<(u64, Base)>,
    /// A row that was shortened, in full.
    row: Vec<u8>,
}

impl Lines {
    /// Reads `path` from byte `start` to byte `end`. A file that does not exist has no lines.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when there should be some.
    pub(super) fn open(path: &Path, start: u64, end: u64) -> Result<Lines, StoreError> {
        Lines::open_with(path, start, end, BUFFER_BYTES)
    }

    /// The same for lines that are read here and there.
    pub(super) fn open_scattered(path: &Path, start: u64, end: u64) -> Result<Lines, StoreError> {
        Lines::open_with(path, start, end, SCATTERED_BUFFER_BYTES)
    }

    fn open_with(path: &Path, start: u64, end: u64, buffer_bytes: usize) -> Result<Lines, StoreError> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && start == end => File::open("/dev/null"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Damaged {
                    dir: path.parent().unwrap_or(Path::new(".")).to_owned(),
                    what: path.display().to_string(),
                    detail: "it is missing".to_owned(),
                });
            }
            other => other,
        };
        let mut file = file.map_err(StoreError::io(path))?;
        if start > 0 {
            file.seek(SeekFrom::Start(start)).map_err(StoreError::io(path))?;
        }
        let file = BufReader::with_capacity(buffer_bytes, file);
        let (line, row) = (Vec::new(), Vec::new());
        Ok(Lines { path: path.to_owned(), file, position: start, at: start, end, line, base: None, row })
    }

    /// The next line and the byte where it begins; nothing at the end.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the line is not what was written.
    pub fn next_line<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<(u64, T)>, StoreError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let at = self.at;
        self.line.clear();
        let read = (&mut self.file).take(LINE_MAX_BYTES).read_until(b'\n', &mut self.line);
        // After a fault it is not known.
        self.position = read.as_ref().map_or(NO_POSITION, |read| self.position.saturating_add(*read as u64));
        match read.map_err(StoreError::io(&self.path))? {
            // The file is shorter than it should be. Reported once: reading on comes to the end.
            0 => self.at = self.end,
            read => self.at += read as u64,
        }
        let value = self.decode(at).map_err(|detail| StoreError::Damaged {
            dir: self.path.parent().unwrap_or(Path::new(".")).to_owned(),
            what: format!("the line at byte {at} of {}", self.path.display()),
            detail,
        })?;
        Ok(Some((at, value)))
    }

    /// What the line says that begins at byte `at` and was read last.
    fn decode<T: for<'de> Deserialize<'de>>(&mut self, at: u64) -> Result<T, String> {
        let text = checked(&self.line)?;
        let json = if text.first() == Some(&MARK) {
            let base_at = row_delta::distance(text).and_then(|distance| at.checked_sub(distance));
            let base_at = base_at.ok_or("it refers to no row")?;
            if self.base.as_ref().is_none_or(|(known, _)| *known != base_at) {
                let base = line_at(self.file.get_ref(), base_at);
                let base =
                    base.map_err(|error| format!("the row that it refers to cannot be read: {error}"))?;
                let json = checked(&base).map_err(|why| format!("of the row that it refers to: {why}"))?;
                self.base = Some((base_at, Base::new(json.to_vec())));
            }
            let base = self.base.as_ref().map(|(_, base)| base).ok_or("it refers to no row")?;
            base.row(text, &mut self.row)?;
            &self.row
        } else {
            text
        };
        codec::json_value(json)
    }

    /// How many bytes before the last line read the row begins that it refers to; nothing of a line in full.
    pub(super) fn distance(&self) -> Option<u64> {
        let text = self.line.get(CHECKSUM_BYTES..).filter(|text| text.first() == Some(&MARK))?;
        row_delta::distance(text.strip_suffix(b"\n").unwrap_or(text))
    }

    /// The byte after the last line read.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The line that begins at byte `at`.
    pub fn line_at<T: for<'de> Deserialize<'de>>(&mut self, at: u64) -> Result<T, StoreError> {
        // It may be in the buffer already: lines that are asked for mostly lie near each other.
        let distance = i64::try_from(at).ok().zip(i64::try_from(self.position).ok());
        let moved = match distance.map(|(to, from)| to - from) {
            Some(distance) => self.file.seek_relative(distance),
            None => self.file.seek(SeekFrom::Start(at)).map(drop),
        };
        moved.map_err(StoreError::io(&self.path))?;
        (self.position, self.at, self.end) = (at, at, u64::MAX);
        let found = self.next_line()?;
        found.map(|(_, value)| value).ok_or_else(|| StoreError::Damaged {
            dir: self.path.parent().unwrap_or(Path::new(".")).to_owned(),
            what: format!("the line at byte {at} of {}", self.path.display()),
            detail: "it is missing".to_owned(),
        })
    }
}
