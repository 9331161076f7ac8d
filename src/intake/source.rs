//! A manifest's file: opened once, and the same from the first row to the last.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::intake::IntakeError;

/// What shows that a file is still the one that was opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(meta: &fs::Metadata) -> Identity {
        Identity { inode: meta.ino(), bytes: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }

    /// Refuses what somebody wrote to meanwhile.
    pub(super) fn check(&self, path: &Path) -> Result<(), IntakeError> {
        if *self == Identity::of(&fs::metadata(path).map_err(unreadable(path))?) {
            Ok(())
        } else {
            Err(IntakeError::Changed { path: path.to_owned() })
        }
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> IntakeError + '_ {
    move |source| IntakeError::Unreadable { path: path.to_owned(), source }
}

/// Opens a manifest, which must be a file.
pub(super) fn open(path: &Path) -> Result<(File, Identity), IntakeError> {
    // Looked at first: opening a pipe that nobody writes to would wait for ever.
    let meta = fs::metadata(path).map_err(unreadable(path))?;
    if !meta.is_file() {
        return Err(IntakeError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(unreadable(path))?;
    let meta = file.metadata().map_err(unreadable(path))?;
    Ok((file, Identity::of(&meta)))
}
