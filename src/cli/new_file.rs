//! A file that a command writes where none lies yet. Nothing that lies there is ever replaced, whatever it is; an export
//! may go to a pipe or a character device, too, which stays what it is.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::cli::failure::Failure;
use crate::cli::written;
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

/// Where an export goes that may be written to a pipe as well.
pub(super) enum ExportTarget {
    Stdout,
    /// A pipe or a character device: it stays what it is.
    InPlace(PathBuf),
    New(NewFile),
}

impl ExportTarget {
    /// Finds out what a path names. To be called before what is exported is read.
    ///
    /// # Errors
    /// When something lies there that would be replaced, or the folder cannot be written to.
    pub(super) fn begin(path: &Path) -> Result<ExportTarget, Failure> {
        if path == Path::new("-") || path == Path::new("/dev/stdout") {
            return Ok(ExportTarget::Stdout);
        }
        let path = match path.metadata().map(|found| found.file_type()) {
            Ok(kind) if kind.is_fifo() || kind.is_char_device() => {
                return Ok(ExportTarget::InPlace(path.to_owned()));
            }
            Ok(_) => path.to_owned(),
            Err(_) => followed(path),
        };
        NewFile::begin(&path).map(ExportTarget::New)
    }

    /// Writes the whole export. Returns whether there is a new file now.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(self, content: &[u8]) -> Result<bool, Failure> {
        match self {
            ExportTarget::Stdout => written(anstream::stdout().write_all(content)).map(|()| false),
            ExportTarget::InPlace(path) => {
                write_in_place(&path, content).map_err(|error| refused(&path, &error)).map(|()| false)
            }
            ExportTarget::New(file) => {
                file.as_file().write_all(content).map_err(|error| file.refused(&error))?;
                file.finish().map(|()| true)
            }
        }
    }
}

/// Where a link leads to that leads to nothing yet; a path that is no link stays as it is.
fn followed(path: &Path) -> PathBuf {
    match (path.read_link(), path.parent()) {
        (Ok(target), Some(folder)) => folder.join(target),
        _ => path.to_owned(),
    }
}

fn write_in_place(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut out = File::options().write(true).open(path)?;
    // Somebody may have put a file there meanwhile.
    if out.metadata()?.is_file() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    out.write_all(content)
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let is_there = error.kind() == io::ErrorKind::AlreadyExists;
    let exit = if is_there { Exit::Usage } else { Exit::Disk };
    let why = if is_there { "a file of this name exists".to_owned() } else { error.to_string() };
    Failure::new(exit, format!("failed to write {}: {why}", path.display()))
        .hint("choose a new file in a writable directory")
}
