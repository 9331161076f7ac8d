//! One process at a time watches a folder: of two, both would buy a manifest, or one of them would move it away from the
//! other.
//!
//! The folder itself is locked, and nothing is made in it. A folder that takes its place is another one, and is locked anew.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Holds a folder until dropped, or until the process ends in whatever way.
#[derive(Debug)]
pub struct FolderLock {
    folder: FolderId,
    dir: File,
}

/// Why a folder is not held.
#[derive(Debug, thiserror::Error)]
pub enum FolderLockError {
    /// Another process holds it.
    #[error("is watched by {0}")]
    Taken(LockHolder),
    /// It cannot be opened.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The process that holds a folder, where the system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHolder(Option<u32>);

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "another daemon (process {pid})"),
            None => f.write_str("another daemon"),
        }
    }
}

impl FolderLock {
    /// Takes what `path` names now. Where the file system has no locks it is held without, which is logged.
    ///
    /// # Errors
    /// [`FolderLockError`].
    pub fn take(path: &Path) -> Result<FolderLock, FolderLockError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
        let folder = FolderId::of(&dir.metadata()?);
        match dir.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderLockError::Taken(holder_of(folder))),
            Err(TryLockError::Error(error)) => tracing::warn!(
                "inbox {} cannot be locked: {error}; make sure that no other daemon watches it",
                path.display()
            ),
        }
        Ok(FolderLock { folder, dir })
    }

    /// Whether `path` still names the folder that is held.
    pub(super) fn is_of(&self, path: &Path) -> io::Result<bool> {
        Ok(FolderId::at(path)? == self.folder)
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A child that another thread is starting has the folder open until it runs its own program. What cannot be unlocked is
        // unlocked by the end of all that have it open.
        let _ = self.dir.unlock();
    }
}

/// Which folder it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FolderId {
    device: u64,
    inode: u64,
}

impl FolderId {
    /// That of what `path` names now.
    pub(super) fn at(path: &Path) -> io::Result<FolderId> {
        fs::metadata(path).map(|found| FolderId::of(&found))
    }

    fn of(found: &fs::Metadata) -> FolderId {
        FolderId { device: found.dev(), inode: found.ino() }
    }
}

fn holder_of(folder: FolderId) -> LockHolder {
    // A sandboxed process does not see this file.
    LockHolder(holder_in(&fs::read_to_string("/proc/locks").unwrap_or_default(), folder))
}

/// The process that holds a folder in the lines of `/proc/locks`: `3: FLOCK  ADVISORY  WRITE 4711 fe:00:10174504 0 EOF`.
fn holder_in(locks: &str, folder: FolderId) -> Option<u32> {
    let FolderId { device, inode } = folder;
    let place = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok().filter(|pid| *pid > 0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_at_a_time_and_its_holder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let held = FolderLock::take(dir.path()).unwrap();
        let error = FolderLock::take(dir.path()).unwrap_err();
        assert!(matches!(error, FolderLockError::Taken(_)), "{error}");
        drop(held);
        FolderLock::take(dir.path()).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for no_folder in [file, dir.path().join("gone")] {
            assert!(matches!(FolderLock::take(&no_folder), Err(FolderLockError::Io(_))));
        }
    }

    #[test]
    fn the_holder_is_read_from_the_systems_list() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4956 fe:00:108 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 4711 fe:01:108 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 6101 fe:01:108 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 fe:02:108 0 EOF\n";
        let holder =
            |minor, inode| holder_in(locks, FolderId { device: rustix::fs::makedev(0xfe, minor), inode });
        assert_eq!([holder(0, 108), holder(1, 108)], [Some(4956), Some(6101)]);
        assert_eq!([holder(2, 108), holder(1, 109)], [None, None]);
        assert_eq!(LockHolder(Some(6101)).to_string(), "another daemon (process 6101)");
    }
}
