//! Batches that were done long ago: out of the database and out of memory, and back when they are named.
//!
//! ```text
//! state/archive/000012/  rows, outcomes and batch.json as they were, and
//!     record.json        the batch's record as it left the database
//! ```
//!
//! Of an archived batch the database keeps a line: its number, so that no other gets it, its totals, so that the
//! books of the whole state still add up, and its name, so that the same manifest still buys nothing. Naming it
//! brings it back; a folder that somebody moved away refuses its name rather than begin it anew.
//!
//! A kill between the commit and the move of the folder is completed at the next opening: the database says where a
//! batch belongs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::ledger::Totals;
use crate::domain::time::Timestamp;
use crate::failpoint;
use crate::store::snapshot::Snapshot;
use crate::store::{
    BatchRecord, Store, StoreError, Writer, batch_dir, batch_dirs, codec, db_keys, write_atomic,
};

/// What the database keeps of an archived batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ArchiveEntry {
    /// Its number.
    pub(super) no: BatchNo,
    /// Its name.
    pub(super) name: BatchName,
    /// When it was archived.
    pub(super) at: Timestamp,
    /// Jobs that were accepted into it.
    pub(super) rows: u32,
    /// Its credits.
    pub(super) totals: Totals,
}

impl ArchiveEntry {
    pub(super) fn of(batch: &BatchRecord, at: Timestamp) -> ArchiveEntry {
        ArchiveEntry { no: batch.no, name: batch.name.clone(), at, rows: batch.rows, totals: batch.totals }
    }
}

/// A batch as it left the database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ArchivedBatch {
    /// Length of its outcomes, in bytes.
    pub(super) outcomes_bytes: u64,
    /// Its record.
    pub(super) record: BatchRecord,
}

/// A batch that was asked for by its name.
#[derive(Debug, Clone, PartialEq)]
pub enum Restored {
    /// It was in the database.
    Present(BatchRecord),
    /// It is back from the archive: the engine does not know it yet.
    FromArchive(BatchRecord),
}

/// Where archived batches lie.
pub(super) fn folder(dir: &Path) -> PathBuf {
    dir.join("archive")
}

/// The folder of an archived batch.
pub(super) fn archived_dir(dir: &Path, no: BatchNo) -> PathBuf {
    folder(dir).join(super::folder_name(no))
}

/// Where an archived batch lies: a kill may have left it among the others. Nothing when it was moved away.
pub(super) fn place(dir: &Path, no: BatchNo) -> Option<PathBuf> {
    [archived_dir(dir, no), batch_dir(dir, no)].into_iter().find(|place| place.exists())
}

fn record_path(batch: &Path) -> PathBuf {
    batch.join("record.json")
}

/// The record in a batch's folder.
pub(super) fn read(batch: &Path) -> Result<ArchivedBatch, StoreError> {
    let path = record_path(batch);
    let bytes = fs::read(&path).map_err(StoreError::io(&path))?;
    serde_json::from_slice(&bytes).map_err(|error| StoreError::Damaged {
        dir: batch.to_owned(),
        what: path.display().to_string(),
        detail: error.to_string(),
    })
}

/// Moves a batch's folder; both names are on the device on return.
fn relocate(from: &Path, to: &Path) -> Result<(), StoreError> {
    let go = || -> io::Result<()> {
        let folders = [from.parent(), to.parent()];
        for folder in folders.into_iter().flatten() {
            fs::create_dir_all(folder)?;
        }
        fs::rename(from, to)?;
        for folder in folders.into_iter().flatten() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    go().map_err(StoreError::io(to))
}

/// Puts the folders of a state where its database says that they belong: a process may have been killed between
/// a commit and the move.
pub(super) fn settle(dir: &Path, records: &Snapshot) -> Result<(), StoreError> {
    if records.archived.is_empty() {
        return Ok(());
    }
    for (no, path) in batch_dirs(&dir.join("spool"))? {
        if records.archived.contains_key(&no) {
            relocate(&path, &archived_dir(dir, no))?;
        }
    }
    Ok(())
}

/// Moves every archived folder back among the others, where a rebuild reads them all.
pub(super) fn empty_out(dir: &Path) -> Result<(), StoreError> {
    for (no, path) in batch_dirs(&folder(dir))? {
        let place = batch_dir(dir, no);
        if !place.exists() {
            relocate(&path, &place)?;
        }
    }
    Ok(())
}

/// What a commit says about a batch that leaves the database.
pub(super) fn leave(batch: &mut sled::Batch, archived: &ArchiveEntry) {
    batch.remove(&db_keys::batch(archived.no)[..]);
    batch.remove(&db_keys::outcomes_bytes(archived.no)[..]);
    batch.insert(&db_keys::archived(&archived.name)[..], codec::encode(archived));
}

impl Store {
    /// Before a commit by which a batch leaves: its record lies in its folder.
    pub(super) fn keep_record(&self, batch: &BatchRecord) -> Result<(), StoreError> {
        let kept = ArchivedBatch { outcomes_bytes: self.outcomes_bytes(batch.no)?, record: batch.clone() };
        write_atomic::put(&record_path(&batch_dir(&self.dir, batch.no)), write_atomic::RECORD, &kept)
    }

    /// After it: the folder leaves, too. What cannot be moved now is at the next opening.
    pub(super) fn move_out(&self, writer: &mut Writer, batch: &BatchRecord) {
        failpoint::hit("archived");
        writer.forget(batch.no);
        self.batch_index.archived(&batch.name);
        if let Err(error) = relocate(&batch_dir(&self.dir, batch.no), &archived_dir(&self.dir, batch.no)) {
            tracing::warn!(batch = %batch.name, %error, "its folder stays where it is until the next start");
        }
    }

    /// How many batches are archived.
    pub fn archived_count(&self) -> u64 {
        self.batch_index.archived_count()
    }

    /// The batch of that name, brought back where it is archived; nothing where none is called so. On return it is
    /// durable, and as it was.
    ///
    /// # Errors
    /// [`StoreError::ArchiveGone`] when its folder was moved away, or what the state says.
    pub fn restore(&self, name: &BatchName) -> Result<Option<Restored>, StoreError> {
        if let Some(there) = self.batch_named(name)? {
            return Ok(Some(Restored::Present(there)));
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(archived) = self.get::<ArchiveEntry>(&db_keys::archived(name))? else {
            // Somebody else may have brought it back by now: a second batch of one name would buy everything twice.
            return Ok(self.batch_named(name)?.map(Restored::Present));
        };
        let (lies, belongs) = (archived_dir(&self.dir, archived.no), batch_dir(&self.dir, archived.no));
        if !belongs.exists() {
            if !lies.exists() {
                return Err(StoreError::ArchiveGone { name: name.to_string(), place: lies });
            }
            relocate(&lies, &belongs)?;
        }
        failpoint::hit("taken-back");
        let kept = read(&belongs)?;
        let mut batch = sled::Batch::default();
        batch.remove(&db_keys::archived(name)[..]);
        batch.insert(&db_keys::batch(archived.no)[..], codec::encode(&kept.record));
        if kept.outcomes_bytes > 0 {
            batch.insert(&db_keys::outcomes_bytes(archived.no)[..], codec::encode(&kept.outcomes_bytes));
        }
        if let Err(error) = self.commit_batch(&mut writer, batch) {
            // The next opening puts the folder back where the database says that it belongs.
            self.is_broken.store(true, Ordering::Relaxed);
            return Err(error);
        }
        self.batch_index.taken_back(name, archived.no);
        // The database has it now; what is left of it says the same.
        let _ = fs::remove_file(record_path(&belongs));
        tracing::info!(batch = %name, archived = %archived.at, "restored from the archive");
        Ok(Some(Restored::FromArchive(kept.record)))
    }
}
