//! The database: the only code that speaks to sled.
//!
//! Its handle is private to this file, and what changes it ([`Database::apply`]) is open to the module of commits alone.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::park_timeout;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failpoint;
use crate::store::commit::COMMIT_MAX_JOBS;
use crate::store::commit::flush_watch::FlushWatch;
use crate::store::error::database as refused;
use crate::store::parallel_map::parallel_map;
use crate::store::sled_files::SledFiles;
use crate::store::{StoreError, codec, db_keys, state_folders};

/// Memory that the database may use as its cache, in bytes.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;

/// How often it is tried to open a database that the threads of its last user may still be busy with.
const AGAIN_TRIES: u32 = 50;
const AGAIN_WAIT: Duration = Duration::from_millis(20);

/// An open database.
#[derive(Debug, Clone)]
pub(in crate::store) struct Database {
    /// The state directory, for errors.
    dir: Arc<Path>,
    handle: Arc<Handle>,
}

/// What every user of an open database shares.
#[derive(Debug)]
struct Handle {
    db: sled::Db,
    /// Its file, for the `fdatasync` that sled does not do.
    file: File,
    watch: FlushWatch,
    /// The device refused to sync the file.
    is_refused: AtomicBool,
}

impl Handle {
    /// Waits until all that was written is on the device. `flush` alone is not durable: on Linux it ends in
    /// `sync_file_range` (measured).
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.is_refused.store(true, Ordering::Relaxed))
    }

    /// Waits until all that it was given is written, as sled understands it.
    fn flush(&self) -> sled::Result<()> {
        let again = self.db.clone();
        let again = move || {
            let _ = again.flush();
        };
        self.watch.flush(again, || self.db.flush()).map(drop)
    }

    /// Whether sled closes it without a panic: it syncs a database that had no error, and the device must not refuse that.
    fn is_closable(&self) -> bool {
        match self.flush() {
            // sled knows that there was an error, and writes nothing.
            Err(_) => true,
            Ok(()) => !self.is_refused.load(Ordering::Relaxed) && self.file.sync_all().is_ok(),
        }
    }
}

impl Drop for Handle {
    /// What cannot be closed stays as it is, as after a kill, until the process ends.
    fn drop(&mut self) {
        if !self.is_closable() {
            tracing::warn!("the database is left unclosed: the device refuses to sync it");
            mem::forget(self.db.clone());
        }
    }
}

/// Records to be written and removed, all of them or none.
#[derive(Debug, Default)]
pub(in crate::store) struct Writes(sled::Batch);

impl Writes {
    pub(in crate::store) fn insert<T: Serialize>(&mut self, key: &[u8], record: &T) {
        self.insert_encoded(key, codec::encode(record));
    }

    pub(in crate::store) fn insert_encoded(&mut self, key: &[u8], bytes: Vec<u8>) {
        self.0.insert(key, bytes);
    }

    pub(in crate::store) fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
    }
}

impl Database {
    /// Opens that of the state in `dir`, or makes it. The last threads of one that was just dropped may still hold the
    /// file; no other process can, since the state is locked.
    pub(in crate::store) fn open(dir: &Path) -> Result<Database, StoreError> {
        Database::open_at(dir, &dir.join("db"))
    }

    /// Opens a database of the state in `dir` that lies at `path`: its own, or a copy.
    pub(in crate::store) fn open_at(dir: &Path, path: &Path) -> Result<Database, StoreError> {
        let config = sled::Config::new().path(path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let mut tried = 0;
        let db = loop {
            match config.open() {
                Err(sled::Error::Io(error)) if error.kind() == ErrorKind::Other && tried < AGAIN_TRIES => {
                    tried += 1;
                    park_timeout(AGAIN_WAIT);
                }
                other => break other.map_err(|source| refused(dir, source))?,
            }
        };
        let log = path.join("db");
        let file = File::open(&log).map_err(StoreError::io(&log))?;
        let handle = Handle { db, file, watch: FlushWatch::default(), is_refused: AtomicBool::new(false) };
        Ok(Database { dir: dir.into(), handle: Arc::new(handle) })
    }

    /// Makes a new database of the state in `dir`, at `path`; it is on the device on return.
    pub(in crate::store) fn create(
        dir: &Path,
        path: &Path,
        entries: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), StoreError> {
        let made = Database::open_at(dir, path)?;
        for part in entries.chunks(COMMIT_MAX_JOBS) {
            let mut writes = Writes::default();
            part.iter().for_each(|(key, bytes)| writes.insert_encoded(key, bytes.clone()));
            made.apply_batch(writes)?;
        }
        made.flush()?;
        drop(made);
        SledFiles::at(path).sync()?;
        state_folders::sync_files(path).map_err(StoreError::io(path))
    }

    /// Makes the changes and waits for the device.
    pub(super) fn apply(&self, writes: Writes, sled_files: &mut SledFiles) -> Result<(), StoreError> {
        self.apply_batch(writes)?;
        // Before the log tells of them, and those that came with the flush.
        sled_files.sync()?;
        self.flush()?;
        failpoint::hit("flushed");
        sled_files.sync()?;
        self.handle.sync().map_err(StoreError::io(&self.dir))
    }

    /// Whether the device refused to make durable what was written. Such a database is not closed while the process lives,
    /// so that it cannot be opened anew.
    pub(super) fn is_refused(&self) -> bool {
        self.handle.is_refused.load(Ordering::Relaxed)
    }

    fn apply_batch(&self, writes: Writes) -> Result<(), StoreError> {
        self.handle.db.apply_batch(writes.0).map_err(|source| refused(&self.dir, source))
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.handle.flush().map_err(|source| refused(&self.dir, source))
    }

    /// The record of that key.
    pub(in crate::store) fn get<T: for<'de> Deserialize<'de>>(
        &self,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        count();
        let found = self.handle.db.get(key).map_err(|source| refused(&self.dir, source))?;
        found.map(|bytes| self.decode(key, &bytes)).transpose()
    }

    /// Every record whose key begins with these bytes, in order.
    pub(in crate::store) fn scan<T: for<'de> Deserialize<'de> + Send>(
        &self,
        prefix: impl AsRef<[u8]>,
    ) -> Result<Vec<T>, StoreError> {
        self.scan_as(prefix, |record| record)
    }

    /// What `of` makes of each of these; no more than some of the records are in memory at once.
    pub(in crate::store) fn scan_as<T: for<'de> Deserialize<'de>, U: Send>(
        &self,
        prefix: impl AsRef<[u8]>,
        of: impl Fn(T) -> U + Sync,
    ) -> Result<Vec<U>, StoreError> {
        self.records(self.handle.db.scan_prefix(prefix), of)
    }

    /// The last records of those keys, `most` at most, in order. What lies before them is not read.
    pub(in crate::store) fn last_of<T: for<'de> Deserialize<'de> + Send>(
        &self,
        keys: Range<Vec<u8>>,
        most: usize,
    ) -> Result<Vec<T>, StoreError> {
        let mut last = self.records(self.handle.db.range(keys).rev().take(most), |record| record)?;
        last.reverse();
        Ok(last)
    }

    /// The last key that begins with that byte.
    pub(in crate::store) fn last_key(&self, prefix: u8) -> Result<Option<Vec<u8>>, StoreError> {
        count();
        let last = self.handle.db.scan_prefix([prefix]).next_back();
        let key = last.map(|entry| entry.map(|(key, _)| key.to_vec()));
        key.transpose().map_err(|source| refused(&self.dir, source))
    }

    /// Every key with its bytes, in order.
    pub(in crate::store) fn entries(
        &self,
    ) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), StoreError>> + '_ {
        self.entries_as(&[], |key, bytes| (key.to_vec(), bytes.to_vec()))
    }

    /// What `of` makes of every key that begins with this, and its bytes, in order.
    pub(in crate::store) fn entries_as<T>(
        &self,
        prefix: &[u8],
        mut of: impl FnMut(&[u8], &[u8]) -> T,
    ) -> impl Iterator<Item = Result<T, StoreError>> {
        self.handle.db.scan_prefix(prefix).map(move |entry| {
            count();
            let (key, bytes) = entry.map_err(|source| refused(&self.dir, source))?;
            Ok(of(&key, &bytes))
        })
    }

    fn records<T: for<'de> Deserialize<'de>, U: Send>(
        &self,
        entries: impl Iterator<Item = sled::Result<(sled::IVec, sled::IVec)>>,
        of: impl Fn(T) -> U + Sync,
    ) -> Result<Vec<U>, StoreError> {
        // Nothing is read after a fault.
        let mut fault = None;
        let read = entries.map_while(|entry| {
            count();
            entry.map_err(|source| fault = Some(refused(&self.dir, source))).ok()
        });
        let decoded = parallel_map(read, |(key, bytes)| self.decode(key, bytes).map(&of));
        match fault {
            Some(fault) => Err(fault),
            None => decoded.collect(),
        }
    }

    fn decode<T: for<'de> Deserialize<'de>>(&self, key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
        codec::decode(bytes).map_err(|damage| StoreError::Damaged {
            dir: self.dir.to_path_buf(),
            what: format!("the record {}", db_keys::describe(key)),
            detail: damage.to_string(),
        })
    }

    /// Changes it behind the back of the commits: damage.
    #[cfg(test)]
    pub(in crate::store) fn damage(&self, writes: Writes) {
        assert!(self.apply_batch(writes).is_ok());
    }
}

/// Counts a record that is read, for tests.
fn count() {
    #[cfg(test)]
    READ.set(READ.get() + 1);
}

#[cfg(test)]
std::thread_local! {
    /// Records that this thread read, of whichever database.
    pub(in crate::store) static READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
