//! Where the rows of a manifest are written: the folder of its batch, or, while the batch has no number yet, one within
//! the draft. So a batch that is large takes its number, and its place among the others, when it is there.

use std::fs;
use std::sync::PoisonError;

use crate::store::job_index;
pub use crate::store::job_index::JobIndexWriter;
use crate::store::spool::{Appender, Spool};
use crate::store::staging::StagedManifest;
use crate::store::state_folders::sync_dir_and_parent;
use crate::store::{BatchRecord, Store, StoreError, batch_backup};

/// Folder within a draft.
const NEW_BATCH: &str = "batch";

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct RowsFolder(Spool);

impl RowsFolder {
    /// Indexes rows that are added after byte `from` by the names of their jobs; nothing where those before them are not
    /// indexed: [`RowsFolder::index`] does both then.
    ///
    /// # Errors
    /// When the index cannot be written.
    pub fn begin_index(&self, from: u64) -> Result<Option<JobIndexWriter>, StoreError> {
        JobIndexWriter::begin(self.0.dir(), from)
    }

    /// Indexes the rows up to byte `end` by the names of their jobs, on the device on return.
    ///
    /// # Errors
    /// When the rows cannot be read, or the index not be written.
    pub fn index(&self, end: u64) -> Result<(), StoreError> {
        job_index::extend(self.0.dir(), end)
    }
}

impl StagedManifest {
    /// Begins the rows of a batch that is new.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn begin_rows(&self) -> Result<(RowsFolder, Appender), StoreError> {
        let spool = Spool::new(self.dir().join(NEW_BATCH));
        let rows = Appender::open(&spool.rows_path(), 0)?;
        Ok((RowsFolder(spool), rows))
    }
}

impl Store {
    /// Opens the rows of a batch to add some after those that were accepted.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when there are fewer than were accepted.
    pub fn append_rows(&self, batch: &BatchRecord) -> Result<(RowsFolder, Appender), StoreError> {
        let spool = self.reconciled(batch)?;
        job_index::cut(spool.dir(), batch.spool_bytes)?;
        let rows = Appender::open(&spool.rows_path(), batch.spool_bytes)?;
        Ok((RowsFolder(spool), rows))
    }

    /// Puts the rows of a new batch where those of its number belong; on the device on return. Nothing of them counts
    /// before the batch is committed, and what lay there of one that never was gives way. A new batch
    /// has no row that replaces another.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn place_rows(&self, from: &RowsFolder, batch: &BatchRecord) -> Result<(), StoreError> {
        let before = BatchRecord::new(batch.no, batch.name.clone(), batch.created);
        let spool = self.reconciled(&before)?;
        fs::create_dir_all(spool.dir()).map_err(StoreError::io(spool.dir()))?;
        let index = |spool: &Spool| job_index::path(spool.dir());
        for (from, to) in [(from.0.rows_path(), spool.rows_path()), (index(&from.0), index(&spool))] {
            fs::rename(&from, &to).map_err(StoreError::io(&to))?;
        }
        sync_dir_and_parent(spool.dir()).map_err(StoreError::io(spool.dir()))
    }

    /// The folder of a batch, without what was written for a commit that never was.
    fn reconciled(&self, batch: &BatchRecord) -> Result<Spool, StoreError> {
        let commits = self.writer.lock().unwrap_or_else(PoisonError::into_inner).commits;
        let spool = self.spool(batch.no);
        batch_backup::reconcile_one(spool.dir(), batch, commits)?;
        Ok(spool)
    }
}
