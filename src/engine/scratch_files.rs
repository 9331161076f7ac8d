//! Outputs that do not stay on disk (`output.keep_local = false`): their copies are removed once it is durable that their
//! objects are in the store.
//!
//! A mark in the state names each job whose outputs are on disk for a while, so that the next process removes what a
//! killed one left. Sidecars stay: they are small, and keep the names.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::domain::ids::{BatchName, BatchNo, JobKey, Seq};
use crate::domain::job::{OutputFile, State};
use crate::engine::blocking;
use crate::engine::gallery::Gallery;
use crate::engine::scheduler::Input;
use crate::failpoint;
use crate::output::open_output::open_output;
use crate::output::publish::{OutputDir, hash};
use crate::store::{JobRecord, Store, StoreError};

/// The marks of a state.
#[derive(Debug, Clone)]
pub(super) struct ScratchMarks {
    dir: PathBuf,
}

impl ScratchMarks {
    pub(super) fn of(state: &Path) -> ScratchMarks {
        ScratchMarks { dir: state.join("scratch") }
    }

    fn path(&self, key: JobKey) -> PathBuf {
        self.dir.join(format!("{}-{}", key.batch.0, key.seq.0))
    }

    /// Outputs of a job are about to be on disk. A mark that a power cut takes leaves a copy there, and nothing else.
    pub(super) fn set(&self, key: JobKey) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        fs::write(self.path(key), "")
    }

    fn is_set(&self, key: JobKey) -> bool {
        self.path(key).exists()
    }

    fn remove(&self, key: JobKey) {
        // It may never have been set.
        let _ = fs::remove_file(self.path(key));
    }

    /// The jobs that an earlier process left marked.
    fn all(&self) -> Vec<JobKey> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let key = |name: &str| {
            let (batch, seq) = name.split_once('-')?;
            Some(JobKey { batch: BatchNo(batch.parse().ok()?), seq: Seq(seq.parse().ok()?) })
        };
        entries.filter_map(|entry| key(entry.file_name().to_str()?)).collect()
    }
}

/// Removes copies on disk. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct CopyRemover {
    pub(super) store: Arc<Store>,
    pub(super) output_dir: OutputDir,
    pub(super) gallery: Gallery,
    pub(super) sender: mpsc::Sender<Input>,
}

impl CopyRemover {
    /// Removes the copies of a job that has ended, which is durable, and tells the engine that its room is free.
    pub(super) async fn remove(self, record: JobRecord) {
        let (key, sender) = (record.key, self.sender.clone());
        blocking(move || self.remove_now(&record)).await;
        // The engine may have ended.
        let _ = sender.send(Input::Freed(key)).await;
    }

    /// Removes the copies of those jobs that are marked: they waited for a decision, which is durable.
    pub(super) async fn remove_marked(self, records: Vec<JobRecord>) {
        let remove = move || {
            let marks = ScratchMarks::of(self.store.dir());
            records
                .iter()
                .filter(|record| marks.is_set(record.key))
                .for_each(|record| self.remove_now(record));
        };
        blocking(remove).await;
    }

    fn remove_now(&self, record: &JobRecord) {
        if let Err(error) = self.try_to_remove(record) {
            tracing::warn!(%error, "a copy of an output that is in the object store stays on disk");
        }
    }

    fn try_to_remove(&self, record: &JobRecord) -> io::Result<()> {
        // A person looks at them first: the mark stays until then.
        if record.job.awaits_review() {
            return Ok(());
        }
        if let State::Succeeded { files, .. } = record.job.state()
            && files.iter().all(|file| file.object.is_some())
            && let Some(batch) = self.store.batch(record.key.batch).map_err(io::Error::other)?
        {
            self.gallery.keep_facts(&batch.name, files);
            failpoint::hit("freeing");
            remove_copies(&self.output_dir, &batch.name, files)?;
        }
        failpoint::hit("freed");
        ScratchMarks::of(self.store.dir()).remove(record.key);
        Ok(())
    }

    /// Jobs that an earlier process ended and whose copies it left. `is_open` says of which the outcome is to come.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(super) fn left_behind(&self, is_open: impl Fn(JobKey) -> bool) -> Result<Vec<JobRecord>, StoreError> {
        let marks = ScratchMarks::of(self.store.dir());
        let mut left = Vec::new();
        for key in marks.all().into_iter().filter(|key| !is_open(*key)) {
            match self.store.batch(key.batch) {
                Ok(Some(batch)) => left.extend(self.store.outcome(&batch, key.seq)?),
                Ok(None) => marks.remove(key),
                // Its copies stay until it is put back.
                Err(StoreError::BatchMoved { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(left)
    }
}

/// Removes files of a job that are on disk as they were published. One that somebody edited stays.
pub(super) fn remove_copies(
    output_dir: &OutputDir,
    batch: &BatchName,
    files: &[OutputFile],
) -> io::Result<()> {
    for file in files {
        let mut found = match open_output(output_dir, batch, file) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found?,
        };
        if hash(&mut found)? == file.sha256 {
            fs::remove_file(output_dir.batch_dir(batch).join(&file.path))?;
        }
    }
    Ok(())
}
