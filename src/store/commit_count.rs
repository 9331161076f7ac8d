//! The number of the last commit, beside the database: one that is behind it is an older one that came back, and going on
//! with it would forget what was sent.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::store::StoreError;
use crate::store::state_folders::open_or_create;

fn path(dir: &Path) -> PathBuf {
    dir.join("commits")
}

/// Opens the file to write the numbers of later commits to, after [`must_be_latest`].
pub(super) fn open(dir: &Path, stored: u64) -> Result<File, StoreError> {
    let file = open_or_create(&path(dir))?;
    must_be_latest(dir, stored, read(dir)?)?;
    Ok(file)
}

/// Refuses a database that is at commit `stored` where commit `seen` was acknowledged.
pub(super) fn must_be_latest(dir: &Path, stored: u64, seen: u64) -> Result<(), StoreError> {
    if stored < seen {
        let detail = format!("it is at commit {stored}, but commit {seen} was acknowledged");
        return Err(StoreError::Damaged { dir: dir.to_owned(), what: "the database".to_owned(), detail });
    }
    Ok(())
}

/// The number of the last commit as it was written beside the database; 0 when it was not.
pub(super) fn read(dir: &Path) -> Result<u64, StoreError> {
    let path = path(dir);
    match fs::read(&path) {
        Ok(bytes) => Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::io(&path)(error)),
    }
}

/// Writes the number of a new database.
pub(super) fn write(dir: &Path, commits: u64) -> Result<(), StoreError> {
    let path = path(dir);
    fs::write(&path, commits.to_be_bytes()).map_err(StoreError::io(&path))
}
