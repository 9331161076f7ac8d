//! What the database keeps beside its log: pages too large for it, each in a file of its own, which sled does
//! not sync (measured). Jobs with many results or a long history make such pages.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The files beside the log, and which of them are on the device.
#[derive(Debug)]
pub(super) struct SledFiles {
    folder: PathBuf,
    synced: BTreeSet<OsString>,
}

impl SledFiles {
    /// Those of the state in `dir`, none of which counts as synced.
    pub(super) fn of(dir: &Path) -> SledFiles {
        SledFiles::at(&dir.join("db"))
    }

    /// Those of the database at `path`, none of which counts as synced.
    pub(super) fn at(path: &Path) -> SledFiles {
        SledFiles { folder: path.join("blobs"), synced: BTreeSet::new() }
    }

    /// Waits until all of them are on the device. They are written once and never changed.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        let refused = StoreError::io(&self.folder);
        let found = names(&self.folder);
        let sync = |found: &BTreeSet<OsString>| -> io::Result<()> {
            let mut new = found.difference(&self.synced).peekable();
            if new.peek().is_none() {
                return Ok(());
            }
            for name in new {
                match File::open(self.folder.join(name)) {
                    Ok(file) => file.sync_all()?,
                    // The database has no use for it any more.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            File::open(&self.folder)?.sync_all()
        };
        self.synced = found.and_then(|found| sync(&found).map(|()| found)).map_err(refused)?;
        Ok(())
    }
}

fn names(folder: &Path) -> io::Result<BTreeSet<OsString>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}
