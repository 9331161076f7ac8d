//! Rows sorted into parts as they come: one pass, whatever the number of parts.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::store::StoreError;
use crate::store::new_row::NewRow;
use crate::store::spool::{Appender, RowEncoder};

/// Lines of several parts that come mixed and are to lie together: each part is gathered in a file of its own until
/// all have come.
#[derive(Debug)]
pub struct RowPartitions {
    dir: PathBuf,
    parts: Vec<Partition>,
    line: Vec<u8>,
    /// Rows of all parts.
    rows: u64,
}

#[derive(Debug, Default)]
struct Partition {
    buffer: Vec<u8>,
    /// Bytes in file and buffer.
    bytes: u64,
    encoder: RowEncoder,
    /// Whether it has a file, which the buffer continues.
    has_file: bool,
}

/// What a part keeps in memory, in bytes, before it goes to its file.
const PART_BUFFER_BYTES: usize = 32 * 1024;

impl RowPartitions {
    /// No part yet; those that grow large get files in `dir`, which is the caller's to remove.
    pub(super) fn begin(dir: &Path) -> RowPartitions {
        RowPartitions { dir: dir.to_owned(), parts: Vec::new(), line: Vec::new(), rows: 0 }
    }

    /// Adds a row to a part: one that is there, or the next new one.
    pub fn push(&mut self, part: usize, row: &NewRow<'_>) -> Result<(), StoreError> {
        if part >= self.parts.len() {
            self.parts.resize_with(part + 1, Partition::default);
        }
        let path = self.path(part);
        let Partition { buffer, bytes, encoder, has_file } = &mut self.parts[part];
        encoder.encode(row, *bytes, self.rows, &mut self.line).map_err(StoreError::io(&path))?;
        buffer.extend_from_slice(&self.line);
        *bytes += self.line.len() as u64;
        self.rows += 1;
        if buffer.len() >= PART_BUFFER_BYTES {
            // One file is open at a time, however many there are.
            let mut options = File::options();
            let file = options.append(true).create(true).open(&path);
            file.and_then(|mut file| file.write_all(buffer)).map_err(StoreError::io(&path))?;
            buffer.clear();
            *has_file = true;
        }
        Ok(())
    }

    /// Appends a part to a file of lines.
    pub fn append_to(&self, part: usize, lines: &mut Appender) -> Result<(), StoreError> {
        let Some(Partition { buffer, has_file, .. }) = self.parts.get(part) else { return Ok(()) };
        if *has_file {
            lines.push_file(&self.path(part))?;
        }
        lines.push_encoded(buffer)
    }

    fn path(&self, part: usize) -> PathBuf {
        self.dir.join(format!("part.{part}"))
    }
}
