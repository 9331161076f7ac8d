//! Room set aside on the disk, so that the database can write its last words when the disk is full.
//!
//! A database that is opened on a full disk tears its own snapshot (measured), so the room is looked
//! at before it is opened.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use crate::store::StoreError;

/// Room set aside, in bytes.
const RESERVE_BYTES: u64 = 4 * 1024 * 1024;
/// Room that opening the database may take, in bytes, beside a copy of its files: a few of its segments,
/// which are half a mebibyte each.
const OPENING_BYTES: u64 = 2 * 1024 * 1024;

fn path(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

/// Looks whether the database can be opened safely, and sets the reserve aside.
///
/// # Errors
/// [`StoreError::NoRoom`] when there is too little; nothing was touched then.
pub(super) fn take(dir: &Path) -> Result<(), StoreError> {
    let is_held = fs::metadata(path(dir)).is_ok_and(|meta| meta.blocks() * 512 >= RESERVE_BYTES);
    let set_aside = if is_held { 0 } else { RESERVE_BYTES };
    let wanted_bytes = OPENING_BYTES + 2 * database_bytes(dir) + set_aside;
    let free_bytes = free_bytes(dir)?;
    if free_bytes < wanted_bytes {
        return Err(StoreError::NoRoom { dir: dir.to_owned(), free_bytes, wanted_bytes });
    }
    if is_held { Ok(()) } else { allocate(dir) }
}

/// Looks whether the database of this process can be opened anew, with the reserve given up for it.
///
/// # Errors
/// [`StoreError::NoRoom`]; nothing was touched then.
pub(super) fn must_have_room_to_open(dir: &Path) -> Result<(), StoreError> {
    let (free_bytes, wanted_bytes) = (free_bytes(dir)?, OPENING_BYTES);
    if free_bytes < wanted_bytes {
        return Err(StoreError::NoRoom { dir: dir.to_owned(), free_bytes, wanted_bytes });
    }
    Ok(())
}

/// Looks whether a copy of the database of the state in `dir` can be made in `work`, and opened there.
///
/// # Errors
/// [`StoreError::NoRoom`].
pub(super) fn must_have_room_for_copy(dir: &Path, work: &Path) -> Result<(), StoreError> {
    let (free_bytes, wanted_bytes) = (free_bytes(work)?, OPENING_BYTES + database_bytes(dir));
    if free_bytes < wanted_bytes {
        return Err(StoreError::NoRoom { dir: work.to_owned(), free_bytes, wanted_bytes });
    }
    Ok(())
}

/// Gives the reserve up; false when there was none.
pub(super) fn give_up(dir: &Path) -> bool {
    fs::remove_file(path(dir)).is_ok()
}

fn allocate(dir: &Path) -> Result<(), StoreError> {
    let path = path(dir);
    let file =
        File::options().create(true).truncate(true).write(true).open(&path).map_err(StoreError::io(&path))?;
    let allocated = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => fill(file),
        Err(error) => Err(io::Error::from(error)),
    };
    allocated.map_err(|source| {
        // Half a reserve would only keep others from their room.
        let _ = fs::remove_file(&path);
        StoreError::Io { path, source }
    })
}

/// A file system that cannot set room aside by itself.
fn fill(mut file: File) -> io::Result<()> {
    let piece = vec![0xa5; 64 * 1024];
    for _ in 0..RESERVE_BYTES / piece.len() as u64 {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

/// Room for those who are not root, in bytes.
fn free_bytes(dir: &Path) -> Result<u64, StoreError> {
    let stat = rustix::fs::statvfs(dir).map_err(|error| StoreError::io(dir)(error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Length of the database's files: one that was not closed in order is tried out on a copy.
fn database_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir.join("db")) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
}
