//! The `versions` file of a batch: which versions of its edited rows are wanted, a checksummed JSON line for each change.
//! Its length is committed with the batch's record, like that of its rows.

use std::fs;
use std::io;

use crate::domain::row_versions::{RowVersions, VersionChange};
use crate::store::spool::{Appender, Lines, Spool};
use crate::store::{BatchRecord, Store, StoreError};

impl Store {
    /// The versions of the edited rows of a batch.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn row_versions(&self, batch: &BatchRecord) -> Result<RowVersions, StoreError> {
        match batch.versions_bytes {
            0 => Ok(RowVersions::default()),
            bytes => read(&self.spool(batch.no), bytes),
        }
    }

    /// Adds changes after those that were accepted; they are on the device on return. Returns the length, in bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn append_versions(&self, batch: &BatchRecord, changes: &[VersionChange]) -> Result<u64, StoreError> {
        let mut file = Appender::open(&self.spool(batch.no).versions_path(), batch.versions_bytes)?;
        for change in changes {
            file.push(change)?;
        }
        file.sync()
    }
}

/// The versions up to byte `bytes` of the file.
pub(super) fn read(spool: &Spool, bytes: u64) -> Result<RowVersions, StoreError> {
    let mut versions = RowVersions::default();
    let mut lines = Lines::open(&spool.versions_path(), 0, bytes)?;
    while let Some((_, change)) = lines.next_line()? {
        versions.add(change);
    }
    Ok(versions)
}

/// The versions as far as they can be read, whatever was acknowledged, and the byte after them.
pub(super) fn read_whole_lines(spool: &Spool) -> Result<(RowVersions, u64), StoreError> {
    let path = spool.versions_path();
    let bytes = match fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(<_>::default()),
        Err(error) => return Err(StoreError::io(&path)(error)),
    };
    let mut lines = Lines::open(&path, 0, bytes)?;
    let (mut versions, mut end) = (RowVersions::default(), 0);
    loop {
        match lines.next_line() {
            Ok(Some((_, change))) => versions.add(change),
            Ok(None) | Err(StoreError::Damaged { .. }) => return Ok((versions, end)),
            Err(error) => return Err(error),
        }
        end = lines.at();
    }
}
