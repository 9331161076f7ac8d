//! One process at a time.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::store::{StoreError, open_or_create};

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
                let mut holder = String::new();
                // Whatever the holder wrote is good enough for a message.
                let _ = file.take(32).read_to_string(&mut holder);
                let holder = holder.trim();
                let pid = if holder.is_empty() { "unknown" } else { holder }.to_owned();
                return Err(StoreError::InUse { dir: dir.to_owned(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(StoreError::Io { path, source }),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(StoreError::io(&path))?;
        Ok(Lock { _file: file })
    }
}
