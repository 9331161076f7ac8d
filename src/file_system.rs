//! What outputs on disk and a folder as a store both need of file systems: a name that replaces nothing, and a folder that is
//! told from the empty mount point that its disk leaves behind; and which file is which.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

/// Renames a file. With [`RenameFlags::NOREPLACE`] a name that is taken is an error, also on file systems that do not know the
/// flag: there the name is looked up right before.
///
/// # Errors
/// What the disk refuses.
pub fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, flags) {
        Err(Errno::INVAL | Errno::NOSYS) if flags.contains(RenameFlags::NOREPLACE) => {
            match to.symlink_metadata() {
                Ok(_) => Err(Errno::EXIST.into()),
                Err(_) => fs::rename(from, to),
            }
        }
        other => Ok(other?),
    }
}

/// Which file or folder it is, whatever it is called: its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    pub fn of(found: &Metadata) -> FileId {
        FileId { device: found.dev(), inode: found.ino() }
    }
}

/// A folder as this process first found it. Clones share what is known.
#[derive(Debug, Clone, Default)]
pub struct KnownFolder(Arc<Mutex<Option<Found>>>);

#[derive(Debug, Clone, Copy)]
struct Found {
    id: FileId,
    is_mount_point: bool,
}

/// Why a folder is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It was there, and is not any more.
    Missing,
    /// A disk was mounted there, and is not any more. What is written there would go to the disk below.
    Unmounted,
}

impl KnownFolder {
    /// Whether the folder was there before and is gone. The first time that it is there it is remembered as it is.
    pub fn gone(&self, path: &Path) -> Option<Gone> {
        let found = path.metadata().ok().filter(Metadata::is_dir);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (found, *known) {
            (None, before) => before.map(|_| Gone::Missing),
            (Some(found), None) => {
                *known = Some(Found { id: FileId::of(&found), is_mount_point: is_mount_point(path, &found) });
                None
            }
            // The number of a device may be another one once the disk is back.
            (Some(found), Some(before)) => {
                let is_same = before.id == FileId::of(&found);
                let is_unmounted = !is_same && before.is_mount_point && !is_mount_point(path, &found);
                is_unmounted.then_some(Gone::Unmounted)
            }
        }
    }
}

fn is_mount_point(path: &Path, found: &Metadata) -> bool {
    path.join("..").metadata().is_ok_and(|above| above.dev() != found.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        let taken = rename(&from, &to, RenameFlags::NOREPLACE).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&to).unwrap(), "old");
    }

    #[test]
    fn a_folder_that_was_there_is_missed_and_one_that_takes_its_place_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (path, known) = (dir.path().join("out"), KnownFolder::default());
        assert_eq!(known.gone(&path), None, "it was never there");
        fs::create_dir(&path).unwrap();
        assert_eq!(known.gone(&path), None);
        fs::remove_dir(&path).unwrap();
        assert_eq!(known.gone(&path), Some(Gone::Missing));
        fs::create_dir(&path).unwrap();
        assert_eq!(known.gone(&path), None);
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert_eq!(known.gone(&path), Some(Gone::Missing));
    }

    #[test]
    fn a_mount_point_is_told_from_its_disk() {
        let is_one = |path: &str| is_mount_point(Path::new(path), &fs::metadata(path).unwrap());
        assert!(is_one("/proc") && !is_one("/proc/self") && !is_one("/"));
        // As left of a disk that was mounted there.
        let dir = tempfile::tempdir().unwrap();
        let was_mounted = Found { id: FileId { device: 0, inode: 1 }, is_mount_point: true };
        let known = KnownFolder(Arc::new(Mutex::new(Some(was_mounted))));
        assert_eq!(known.gone(dir.path()), Some(Gone::Unmounted));
        // Another number of the disk is no matter.
        assert_eq!(known.gone(Path::new("/proc")), None);
    }
}
