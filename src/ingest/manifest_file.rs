//! A manifest's file: opened once, and the same from the first row to the last.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::domain::batch_origin::SourcePlace;
use crate::ingest::ManifestError;

/// What shows that a file is still the one that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Identity {
    pub(super) fn of(meta: &fs::Metadata) -> Identity {
        let modified = (meta.mtime(), meta.mtime_nsec());
        Identity { device: meta.dev(), inode: meta.ino(), bytes: meta.len(), modified }
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When it was last written to: seconds since 1970 and nanoseconds.
    pub fn modified(&self) -> (i64, i64) {
        self.modified
    }

    /// Refuses what somebody wrote to meanwhile.
    ///
    /// # Errors
    /// [`ManifestError::Changed`].
    pub fn check(&self, path: &Path) -> Result<(), ManifestError> {
        if *self == Identity::of(&fs::metadata(path).map_err(unreadable(path))?) {
            Ok(())
        } else {
            Err(ManifestError::Changed { path: path.to_owned() })
        }
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ManifestError + '_ {
    move |source| ManifestError::Unreadable { path: path.to_owned(), source }
}

/// Opens a manifest, which must be a file.
///
/// # Errors
/// When it is none, or cannot be read.
pub(super) fn open(path: &Path) -> Result<(File, Identity), ManifestError> {
    // Without waiting: to open a pipe that nobody writes to would take for ever otherwise. What was opened is
    // what is looked at, so that nothing can take its place in between.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file: File = match opened {
        Ok(file) => file.into(),
        // A socket.
        Err(Errno::NXIO) => return Err(ManifestError::NotAFile { path: path.to_owned() }),
        Err(error) => return Err(unreadable(path)(error.into())),
    };
    let meta = file.metadata().map_err(unreadable(path))?;
    if !meta.is_file() {
        return Err(ManifestError::NotAFile { path: path.to_owned() });
    }
    Ok((file, Identity::of(&meta)))
}

/// Opens a manifest to send it to another process: a file, or a pipe, which is waited for. What shows that a file is
/// still the one that was opened comes with it; a pipe is read once, and nothing can.
///
/// # Errors
/// When it is neither, or cannot be read.
pub fn open_to_send(path: &Path) -> Result<(File, Option<Identity>), ManifestError> {
    if fs::metadata(path).map_err(unreadable(path))?.file_type().is_fifo() {
        return Ok((File::open(path).map_err(unreadable(path))?, None));
    }
    open(path).map(|(file, opened)| (file, Some(opened)))
}

/// The folder that a manifest lies in.
///
/// # Errors
/// When the folder cannot be found.
pub fn place_of(manifest: &Path) -> Result<SourcePlace, ManifestError> {
    let folder = manifest.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(unreadable(manifest))?;
    Ok(SourcePlace::Folder(match folder.to_str() {
        Some(folder) => folder.to_owned(),
        // Names that differ stay different.
        None => folder.as_os_str().as_encoded_bytes().escape_ascii().to_string(),
    }))
}

/// Whether a file has any of these texts, none of which is longer than 16 bytes.
///
/// # Errors
/// When it cannot be read.
pub(super) fn has_any(mut file: impl Read, marks: &[&[u8]]) -> io::Result<bool> {
    const KEPT: usize = 16;
    let (mut buffer, mut filled) = (vec![0; 256 * 1024], 0);
    loop {
        let read = file.read(&mut buffer[filled..])?;
        if read == 0 {
            return Ok(false);
        }
        filled += read;
        if marks.iter().any(|mark| memchr::memmem::find(&buffer[..filled], mark).is_some()) {
            return Ok(true);
        }
        // A mark may lie across two pieces.
        let kept = filled.min(KEPT);
        buffer.copy_within(filled - kept..filled, 0);
        filled = kept;
    }
}
