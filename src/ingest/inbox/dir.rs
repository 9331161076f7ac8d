//! A folder that is held open: what is done in it happens in that very folder, whatever becomes of its
//! name meanwhile, and follows no link. A user who may drop manifests may be able to create links, too.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::ingest::manifest_file::Identity;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct InboxDir {
    fd: OwnedFd,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Nobody,
    /// A regular file, and its length in bytes.
    File(u64),
    Other,
}

impl InboxDir {
    /// Opens a folder, and makes it where there is none. `is_linked` allows its own name to be a link.
    pub(super) fn open(path: &Path, is_linked: bool) -> io::Result<InboxDir> {
        if !path.exists() && fs::symlink_metadata(path).is_err() {
            fs::create_dir_all(path)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        let follow = if is_linked { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(InboxDir { fd }),
            Err(Errno::LOOP | Errno::NOTDIR) if path.is_symlink() => {
                Err(io::Error::other("is a symbolic link; a directory is required"))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn file_at(&self, name: &OsStr) -> io::Result<EntryKind> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(EntryKind::File(u64::try_from(stat.st_size).unwrap_or_default()))
            }
            Ok(_) => Ok(EntryKind::Other),
            Err(Errno::NOENT) => Ok(EntryKind::Nobody),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file for reading; nothing where the name stands for something else.
    pub(super) fn read(&self, name: &OsStr) -> io::Result<Option<File>> {
        // A pipe that took its place is not waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Whether a name stands for the file that is known by `identity`.
    pub(super) fn holds(&self, name: &OsStr, identity: &Identity) -> io::Result<bool> {
        let file = self.read(name)?;
        Ok(file.map(|file| file.metadata()).transpose()?.is_some_and(|meta| Identity::of(&meta) == *identity))
    }

    /// A new, empty file under a name that is only ever used for a moment. One that a crash left is
    /// removed; nothing that is laid there is written through.
    pub(super) fn begin(&self, draft: &OsStr) -> io::Result<File> {
        self.remove(draft)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.fd, draft, flags, Mode::from_raw_mode(0o666))?))
    }

    /// Renames `from` of another folder to `to` in this one, and overwrites nothing. Returns false where
    /// the name is taken.
    pub(super) fn take(&self, other: &InboxDir, from: &OsStr, to: &OsStr) -> io::Result<bool> {
        match rustix::fs::renameat_with(&other.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            // A file system without the flag. These folders have one writer.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let is_free = self.file_at(to)? == EntryKind::Nobody;
                if is_free {
                    rustix::fs::renameat(&other.fd, from, &self.fd, to)?;
                }
                Ok(is_free)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file, if there is one.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until its names are on the device.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

/// A name that nothing takes for a manifest or a receipt.
pub(super) fn draft_of(name: &OsStr) -> OsString {
    [OsStr::new("."), name, OsStr::new(".part")].into_iter().collect()
}
