//! One process at a time.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use crate::store::StoreError;
use crate::store::state_folders::open_or_create;

/// Holds the state directory until dropped, or until the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(dir: &Path) -> Result<Lock, StoreError> {
        let path = dir.join("lock");
        let mut file = open_or_create(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { dir: dir.to_owned(), pid: written_in(file) });
            }
            Err(TryLockError::Error(source)) => return Err(StoreError::Io { path, source }),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(StoreError::io(&path))?;
        Ok(Lock { _file: file })
    }
}

/// Who holds it at this moment. Takes nothing for longer than the look lasts, and makes nothing.
pub(super) fn holder(dir: &Path) -> Result<Option<String>, StoreError> {
    let path = dir.join("lock");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io { path, source }),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(written_in(file))),
        Err(TryLockError::Error(source)) => Err(StoreError::Io { path, source }),
    }
}

/// Whatever the holder wrote is good enough for a message.
fn written_in(file: File) -> String {
    let mut holder = String::new();
    let _ = file.take(32).read_to_string(&mut holder);
    let holder = holder.trim();
    if holder.is_empty() { "unknown" } else { holder }.to_owned()
}
