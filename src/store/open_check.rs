//! Trying a copy of a database out, before the database itself is opened.
//!
//! Opening writes: what is refused stays as it was found. A database that was not closed in order, or is not as it was
//! left, is copied, and the copy is opened and read to the end by another process (`child_reader`). Who only looks at a state
//! makes the copy in the temporary folder, if there is room.

use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle, park_timeout};
use std::time::Duration;

use rustix::fs::Advice;
use tempfile::TempDir;

use crate::store::child_reader::{self, CopyResult, Damage};
use crate::store::snapshot::{FinishedRecords, Salvaged, Snapshot};
use crate::store::state_folders::BatchDirs;
use crate::store::{StoreError, commit_count, disk_reserve, set_aside, verify};

/// What trying a database out came to.
#[derive(Debug)]
pub(super) enum CheckResult<T> {
    /// It opens, and this was found.
    Opens(T),
    /// It opens, and this was found, once its log is read without the snapshots of it; and what is wrong with them.
    OpensWithoutSnapshots(T, StoreError),
    /// There is none, or it could not be tried: opening it tells.
    Untried,
}

/// How copies are called, and the work of a rebuild; leftovers of a killed process are swept by it.
const COPY: &str = ".callsheet-try-";
pub(super) const REBUILD: &str = ".rebuild-";

/// How often it is tried to remove a copy that the child of a killed process may still be writing to.
const AGAIN_TRIES: u32 = 50;
const AGAIN_WAIT: Duration = Duration::from_millis(20);

/// Why a database was not looked at from outside.
#[derive(Debug, thiserror::Error)]
#[error("no copy of it could be made in {}: {why}", .folder.display())]
pub struct NotCopied {
    folder: PathBuf,
    why: String,
}

impl NotCopied {
    /// What kept a copy of the database of the state in `dir` from being made in `folder`, if this is that.
    fn of(error: &StoreError, dir: &Path, folder: &Path) -> Option<NotCopied> {
        let why = match error {
            StoreError::NoRoom { dir, free_bytes, wanted_bytes } if dir == folder => {
                format!(
                    "{} KiB are free, and it takes {} KiB",
                    free_bytes / 1024,
                    wanted_bytes.div_ceil(1024)
                )
            }
            StoreError::Io { path, source } if path.starts_with(folder) && !path.starts_with(dir) => {
                source.to_string()
            }
            _ => return None,
        };
        Some(NotCopied { folder: folder.to_owned(), why })
    }
}

/// Looks at the database of the state in `dir` from outside: `look` is given a folder for copies, which has room for one.
///
/// # Errors
/// What `look` says of the state, and not of that folder.
pub(super) fn from_outside<T>(
    dir: &Path,
    look: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<Result<T, NotCopied>, StoreError> {
    let folder = std::env::temp_dir();
    if !has_database(dir) {
        return look(&folder).map(Ok);
    }
    sweep_abandoned(&folder);
    let looked = disk_reserve::must_have_room_for_copy(dir, &folder).and_then(|()| look(&folder));
    looked.map(Ok).or_else(|error| NotCopied::of(&error, dir, &folder).map(Err).ok_or(error))
}

/// A folder for a copy, locked while it is used: others tell it by that from what a killed process left. It is removed when
/// this is dropped.
pub(super) struct CopyFolder {
    folder: TempDir,
    /// Nothing where the file system has no locks.
    _lock: Option<File>,
}

impl CopyFolder {
    fn make(work: &Path) -> io::Result<CopyFolder> {
        for _ in 0..AGAIN_TRIES {
            let folder = tempfile::Builder::new().prefix(COPY).tempdir_in(work)?;
            match lock_folder(folder.path()) {
                // Another process has swept it, before it was locked.
                Ok(None) => {}
                Ok(lock) => return Ok(CopyFolder { folder, _lock: lock }),
                Err(_) => return Ok(CopyFolder { folder, _lock: None }),
            }
        }
        Err(ErrorKind::ResourceBusy.into())
    }

    /// Keeps it until the state in `dir`, which it lies in, is open; it is removed at once where the disk has no room for
    /// that. To free a hundred megabytes may take the device a tenth of a second, in which no `fsync` ends.
    pub(super) fn kept_meanwhile(self, dir: &Path) -> Option<CopyFolder> {
        disk_reserve::must_have_room_for_copy(dir, dir).is_ok().then_some(self)
    }

    /// Removes it by a thread of its own.
    pub(super) fn remove(self) -> CopyRemoval {
        // Where no thread can be started, it is removed here.
        CopyRemoval(thread::Builder::new().name("copy-removal".to_owned()).spawn(move || drop(self)).ok())
    }
}

/// A copy that is being removed. Dropping this waits until it is gone.
#[derive(Debug)]
pub(super) struct CopyRemoval(Option<JoinHandle<()>>);

impl Drop for CopyRemoval {
    fn drop(&mut self) {
        // A panic would have ended the process.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

/// Locks a folder; nothing where another process has, or has removed it.
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    let folder = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match folder.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let locked = folder.metadata()?.ino();
    Ok(fs::symlink_metadata(path).is_ok_and(|found| found.ino() == locked).then_some(folder))
}

/// Removes the copies that killed processes of this user left in a folder that everybody uses. What cannot be told, or
/// removed, stays.
fn sweep_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let user = rustix::process::geteuid().as_raw();
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(COPY)) {
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if is_own && let Ok(Some(_lock)) = lock_folder(&entry.path()) {
            let _ = remove_folder(&entry.path());
        }
    }
}

/// Whether the state in `dir` has a database.
pub(super) fn has_database(dir: &Path) -> bool {
    is_database(&dir.join("db"))
}

/// Whether a database lies at `path`.
pub(super) fn is_database(path: &Path) -> bool {
    path.join("db").exists()
}

/// Reads what the database at `path` holds, which is one of the state in `dir`, from a copy of it in `work`, which is gone on
/// return.
///
/// # Errors
/// [`StoreError::Damaged`], or what the file system said.
pub(super) fn read(dir: &Path, path: &Path, work: &Path) -> Result<CheckResult<Box<Salvaged>>, StoreError> {
    try_copies(dir, path, work, FinishedRecords::Kept, &Ok).map(|(found, _)| found)
}

/// Reads the database of the state in `dir` as [`read`] does, if all of it can be read, and it is the latest one and fits
/// the spool, in which `dirs` are the folders of its batches. Returns the copy, too.
///
/// # Errors
/// As [`read`].
pub(super) fn verify(
    dir: &Path,
    work: &Path,
    dirs: &BatchDirs,
    of_finished: FinishedRecords,
) -> Result<(CheckResult<Box<Snapshot>>, Option<CopyFolder>), StoreError> {
    let is_unfit = Cell::new(false);
    let tried = try_copies(dir, &dir.join("db"), work, of_finished, &|salvaged| {
        let Salvaged { records, unfit, unreadable } = *salvaged;
        if let Some(first) = unreadable.into_iter().next() {
            return Err(damaged(dir, first));
        }
        commit_count::must_be_latest(dir, records.commits, commit_count::read(dir)?)?;
        is_unfit.set(unfit.is_some());
        if unfit.is_none() {
            verify::quick(dir, &records, dirs)?;
        }
        Ok(Box::new(records))
    });
    if !is_unfit.get() {
        return tried;
    }
    // What does not fit is told by looking at each. There may be no room for two copies.
    drop(tried);
    verify(dir, work, dirs, FinishedRecords::Kept)
}

/// Tries the database at `path` of the state in `dir` out, with its snapshots, and from its log alone where that is refused:
/// snapshots spare reading all of the log, and nothing is lost with them. `accept` refuses what it does not take.
fn try_copies<T>(
    dir: &Path,
    path: &Path,
    work: &Path,
    of_finished: FinishedRecords,
    accept: &dyn Fn(Box<Salvaged>) -> Result<T, StoreError>,
) -> Result<(CheckResult<T>, Option<CopyFolder>), StoreError> {
    let try_copy = |with_snapshots| -> Result<Result<(T, CopyFolder), CopyFault>, StoreError> {
        let copy = CopyFolder::make(work).map_err(StoreError::io(work))?;
        let copied = copy.folder.path();
        copy_database(path, copied, with_snapshots)?;
        let read = thread::scope(|scope| {
            // It is synced when it is opened after a kill. On Linux this begins to write it, while the child starts.
            if work == dir {
                let write_out = || {
                    let log = File::open(copied.join("db"));
                    log.map(|log| rustix::fs::fadvise(&log, 0, None, Advice::DontNeed))
                };
                // Without it the child waits longer.
                let _ = thread::Builder::new().spawn_scoped(scope, write_out);
            }
            child_reader::read(copied, of_finished)
        });
        let found = match read {
            CopyResult::Opens(salvaged) => accept(salvaged),
            CopyResult::Damaged(Damage { what, detail }) => {
                Err(StoreError::Damaged { dir: dir.to_owned(), what, detail })
            }
            CopyResult::Untried => return Ok(Err(CopyFault::Untried)),
        };
        let found = found.map_err(|error| match error {
            StoreError::Damaged { .. } => CopyFault::Damaged(error),
            _ => CopyFault::Untried,
        });
        Ok(found.map(|found| (found, copy)))
    };
    let first = match try_copy(true)? {
        Ok((found, copy)) => return Ok((CheckResult::Opens(found), Some(copy))),
        Err(CopyFault::Untried) => return Ok((CheckResult::Untried, None)),
        Err(CopyFault::Damaged(first)) => first,
    };
    match try_copy(false)? {
        Ok((found, copy)) => Ok((CheckResult::OpensWithoutSnapshots(found, first), Some(copy))),
        Err(_) => Err(first),
    }
}

/// Why nothing came of a copy.
enum CopyFault {
    Damaged(StoreError),
    Untried,
}

pub(super) fn damaged(dir: &Path, detail: String) -> StoreError {
    StoreError::Damaged { dir: dir.to_owned(), what: "the database".to_owned(), detail }
}

/// Removes the copies, and the work of rebuilds, that killed processes left.
pub(super) fn sweep(dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::io(dir))? {
        let entry = entry.map_err(StoreError::io(dir))?;
        let name = entry.file_name();
        if [COPY, REBUILD].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            remove_folder(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a folder that a child of a killed process may still be writing to.
fn remove_folder(path: &Path) -> Result<(), StoreError> {
    for _ in 0..AGAIN_TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => park_timeout(AGAIN_WAIT),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return other.map_err(StoreError::io(path)),
        }
    }
    tracing::warn!(path = %path.display(), "another process writes to the copy of a database; it is left in place");
    Ok(())
}

/// Copies a database, with what its log can do without or not.
fn copy_database(from: &Path, to: &Path, with_snapshots: bool) -> Result<(), StoreError> {
    fs::create_dir_all(to).map_err(StoreError::io(to))?;
    for entry in fs::read_dir(from).map_err(StoreError::io(from))? {
        let path = entry.map_err(StoreError::io(from))?.path();
        let name = path.file_name().unwrap_or_default().to_os_string();
        if path.is_dir() {
            copy_database(&path, &to.join(name), true)?;
        } else if with_snapshots || !set_aside::is_dispensable(&name.to_string_lossy()) {
            let copy = to.join(name);
            fs::copy(&path, &copy).map_err(|error| {
                let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
                StoreError::io(if is_full { &copy } else { &path })(error)
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn the_copy_that_was_tried_is_gone_when_the_state_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), "https://api.example/v1", false).unwrap();
        drop(open());
        // As a kill leaves it: it is tried on a copy.
        fs::remove_file(dir.path().join("closed")).unwrap();
        drop(open());
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let copies = names.filter(|name| name.to_string_lossy().starts_with(COPY));
        assert_eq!(copies.count(), 0);
    }

    #[test]
    fn copies_that_killed_processes_left_are_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["draft-1", ".tmpabc", ".try-1"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join(format!("{COPY}file")), "").unwrap();
        let used = CopyFolder::make(dir.path()).unwrap();
        let CopyFolder { folder, _lock: lock } = CopyFolder::make(dir.path()).unwrap();
        // As a kill leaves it.
        let left = folder.keep();
        fs::write(left.join("db"), "half").unwrap();
        lock.unwrap().unlock().unwrap();
        sweep_abandoned(dir.path());
        assert!(!left.exists() && used.folder.path().exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
    }
}
