//! A file that a command writes where none lies yet. Nothing that lies there is ever replaced, whatever it is.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::cli::failure::Failure;
use crate::domain::exit_code::Exit;

/// A file on its way: it has its name once it is whole.
pub(super) struct NewFile {
    path: PathBuf,
    draft: NamedTempFile,
}

impl NewFile {
    /// Begins a file. To be called before what it is to hold is read.
    ///
    /// # Errors
    /// When something lies there, or the folder cannot be written to.
    pub(super) fn begin(path: &Path) -> Result<NewFile, Failure> {
        let refused = |error| refused(path, &error);
        if path.symlink_metadata().is_ok() {
            return Err(refused(io::ErrorKind::AlreadyExists.into()));
        }
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let draft = tempfile::Builder::new().prefix(".export-").tempfile_in(folder).map_err(refused)?;
        Ok(NewFile { path: path.to_owned(), draft })
    }

    /// Where its content is written to.
    pub(super) fn as_file(&self) -> &File {
        self.draft.as_file()
    }

    /// What a failed write means.
    pub(super) fn refused(&self, error: &io::Error) -> Failure {
        refused(&self.path, error)
    }

    /// Gives it its name, once its content is on the device.
    ///
    /// # Errors
    /// When something came to lie there meanwhile, or the disk refuses.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let NewFile { path, draft } = self;
        draft.as_file().sync_all().map_err(|error| refused(&path, &error))?;
        draft.persist_noclobber(&path).map(drop).map_err(|error| refused(&path, &error.error))
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let is_there = error.kind() == io::ErrorKind::AlreadyExists;
    let exit = if is_there { Exit::Usage } else { Exit::Disk };
    Failure::new(exit, format!("failed to write {}: {error}", path.display()))
        .hint("choose a new file in a writable directory")
}
