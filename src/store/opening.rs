//! Opening the database so that damage in it is a message and not the end of the process.

use std::path::Path;

use crate::store::probe::{self, Tried};
use crate::store::{CACHE_BYTES, StoreError, aside, closed, database};

/// Opens the database of the state in `dir`, which this process has locked.
///
/// A snapshot that is torn is set aside: the database is then recovered from its whole log, and
/// nothing is lost. One that the log does not agree with either is left as it was.
///
/// # Errors
/// [`StoreError::Damaged`], or what the file system said.
pub(super) fn open(dir: &Path) -> Result<sled::Db, StoreError> {
    for moved in aside::set_snapshots(dir, true)? {
        tracing::warn!(to = %moved.to().display(), "set a torn snapshot of the database aside");
    }
    let path = dir.join("db");
    let was_closed = closed::take_mark(dir);
    if was_closed || !path.join("db").exists() {
        return open_here(dir);
    }
    let first = match probe::try_out(&path) {
        Tried::Opens(_) | Tried::No => match open_here(dir) {
            Err(StoreError::Damaged { detail, .. }) => detail,
            other => return other,
        },
        Tried::Damaged(detail) => detail,
    };
    let moved = aside::set_snapshots(dir, false)?;
    if !moved.is_empty() && !matches!(probe::try_out(&path), Tried::Damaged(_)) {
        match open_here(dir) {
            Err(StoreError::Damaged { .. }) => {}
            other => {
                tracing::warn!(%first, "the database was recovered from its whole log");
                return other;
            }
        }
    }
    moved.into_iter().try_for_each(aside::Moved::put_back)?;
    Err(StoreError::Damaged { dir: dir.to_owned(), what: "the database".to_owned(), detail: first })
}

/// How often the file of a database that was just dropped is asked for.
const AGAIN_TRIES: u32 = 50;

/// Opens a database that this process has just dropped: its last threads may still hold the file.
pub(super) fn open_again(dir: &Path) -> Result<sled::Db, StoreError> {
    let mut tried = 0;
    loop {
        match open_here(dir) {
            Err(StoreError::Database { source: sled::Error::Io(error), .. })
                if error.kind() == std::io::ErrorKind::Other && tried < AGAIN_TRIES =>
            {
                tried += 1;
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Opens it in this process.
pub(super) fn open_here(dir: &Path) -> Result<sled::Db, StoreError> {
    sled::Config::new()
        .path(dir.join("db"))
        .cache_capacity(CACHE_BYTES)
        .flush_every_ms(None)
        .open()
        .map_err(|source| database(dir, source))
}
