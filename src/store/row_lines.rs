//! Rows of a manifest as lines that follow each other, wherever these come to lie: several threads can make them.

use std::path::Path;

use crate::store::StoreError;
use crate::store::job_index::JobName;
use crate::store::new_row::NewRow;
use crate::store::spool::RowEncoder;

/// Lines of rows, of which none refers to one before them.
#[derive(Debug, Default)]
pub struct RowLines {
    encoder: RowEncoder,
    line: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    /// What the job of each line is called, and the byte of these lines where it begins.
    pub(super) names: Vec<(JobName, u64)>,
}

impl RowLines {
    /// Adds a row that comes after so many others of its manifest.
    ///
    /// # Errors
    /// When it cannot be printed, which is a defect.
    pub fn push(&mut self, row: &NewRow<'_>, rows_before: u64) -> Result<(), StoreError> {
        let RowLines { encoder, line, bytes, names } = self;
        let at = bytes.len() as u64;
        encoder.encode(row, at, rows_before, line).map_err(StoreError::io(Path::new("rows")))?;
        bytes.extend_from_slice(line);
        names.push((JobName::of(row.label, row.id), at));
        Ok(())
    }
}
