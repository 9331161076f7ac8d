//! The one entry point of jobs: manifest in, batch and receipt out.
//!
//! [`validate()`] reads and validates a manifest row by row, for planning and for accepting alike; [`accept`]
//! spools what is new of it. Nothing counts until the batch it returns is
//! committed, and a crash before that leaves nothing but a file that the next accept cuts off.
//! Accepting the same manifest again finds every job there and adds nothing.

pub mod accepted_row;
pub mod another_take;
pub mod batch_locks;
pub mod catalog_refresh;
mod context;
mod count_jobs;
pub mod inbox;
pub mod ingest_handle;
pub mod input_files;
pub mod manifest_file;
mod named_rows;
pub mod newer_catalog;
mod pilot_choice;
mod read_references;
pub mod receipt;
pub mod retry_edited;
pub mod retry_manifest;
mod row_chooser;
mod row_outcome;
mod row_pipeline;
mod row_references;
mod row_result;
mod row_validator;
pub mod table_files;
mod take_check;
pub mod take_manifest;
#[cfg(test)]
mod tests;
mod validate;
mod validated_rows;
mod validation_cache;
mod write_rows;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::domain::ids::{BadBatchName, BatchName, Fingerprint, JobId};
use crate::domain::job_reference::{DecidedTake, ReferredRow};
use crate::domain::reference_graph::ReferenceGraph;
use crate::domain::time::Timestamp;
use crate::engine::EditedRows;
use crate::ingest::batch_locks::{BatchLock, BatchLocks};
use crate::ingest::context::BatchVersion;
pub use crate::ingest::context::{IngestContext, IngestOptions};
use crate::ingest::input_files::{FoundFile, Links};
use crate::ingest::newer_catalog::NewerCatalog;
use crate::ingest::receipt::Receipt;
pub use crate::ingest::row_outcome::{Jobs, Outcome, PlannedJob, kept};
pub use crate::ingest::row_references::ReferredBatch;
pub use crate::ingest::validate::{Batches, Present, Validated, validate};
pub use crate::ingest::validated_rows::{Rows, ValidatedRow};
use crate::ingest::write_rows::write_rows;
use crate::output::file_names::Layout;
use crate::store::rows_folder::RowsFolder;
use crate::store::staged_inputs::{StageError, StagedInputs};
use crate::store::staging::{StagedManifest, StagedRow, Staging};
use crate::store::{BatchRecord, Store, StoreError};

/// The manifest could not be taken in; nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("failed to read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a folder or a device.
    #[error("{} is not a file", .path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// Somebody was still writing.
    #[error("{} changed while it was read; nothing of it was accepted", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Another manifest was taken in for the batch meanwhile.
    #[error("the batch {batch} changed meanwhile; nothing was accepted")]
    BatchChanged {
        /// The batch.
        batch: BatchName,
    },
    /// A file that rows name as an input could not be copied into the state.
    #[error("failed to copy {} into the state: {source}; nothing was accepted", .path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// Why.
        source: StageError,
    },
    /// The batch cannot be called that.
    #[error(transparent)]
    BatchName(#[from] BadBatchName),
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A manifest that was taken in.
#[derive(Debug)]
pub struct Accepted {
    /// What to tell its owner.
    pub receipt: Receipt,
    /// The batch as it is with it: to be committed. Nothing when neither jobs nor terms are new.
    pub batch: Option<BatchRecord>,
    /// The rows of the batch that it edits, if any.
    pub edited: Option<Box<EditedRows>>,
    /// Keeps other manifests of its batch waiting: to be dropped once it is committed.
    pub lock: Option<BatchLock>,
}

/// Takes a manifest in.
///
/// # Errors
/// [`ManifestError`]. Diagnostics of rows are no error: they stand in the receipt, and good rows go on.
pub fn accept(
    store: &Store,
    path: &Path,
    context: &IngestContext<'_>,
    now: Timestamp,
) -> Result<Accepted, ManifestError> {
    prepare(store, path, context, now, (&BatchLocks::default(), || ()))?.publish(store)
}

/// A manifest that was validated, and whose rows are on the device; nothing of it counts yet. While it is there, no other
/// manifest is read for its batch.
#[derive(Debug)]
pub struct Prepared {
    receipt: Receipt,
    batch: Option<BatchRecord>,
    edited: Option<Box<EditedRows>>,
    /// The rows of a batch that is new, and the draft in which they lie.
    new_rows: Option<(RowsFolder, StagedManifest)>,
    lock: Option<BatchLock>,
    /// The files that were read for it.
    files: Vec<FoundFile>,
}

impl Prepared {
    /// Nothing is taken in.
    fn nothing(receipt: Receipt) -> Prepared {
        Prepared { receipt, batch: None, edited: None, new_rows: None, lock: None, files: Vec::new() }
    }

    /// The contents of the files that were read for it, by their hashes.
    pub fn file_contents(&self) -> Vec<String> {
        self.files.iter().map(|file| file.content.sha256.clone()).collect()
    }

    /// Copies those of its files into the state that are not known there any more.
    ///
    /// # Errors
    /// [`ManifestError::Input`].
    pub fn stage_files(&self, store: &Store) -> Result<(), ManifestError> {
        stage(store, &self.files)
    }

    /// Gives a batch that is new its number. Until it is committed, nobody else may do this.
    ///
    /// # Errors
    /// When its rows cannot be put in their place.
    pub fn publish(mut self, store: &Store) -> Result<Accepted, ManifestError> {
        if let (Some(batch), Some((rows, _))) = (&mut self.batch, &self.new_rows) {
            batch.no = store.next_batch_no();
            store.place_rows(rows, batch)?;
        }
        let Prepared { receipt, batch, edited, lock, .. } = self;
        Ok(Accepted { receipt, batch, edited, lock })
    }
}

/// Reads and validates a manifest as [`accept`] does, and takes nothing in.
///
/// # Errors
/// [`ManifestError`]. Diagnostics of rows are no error: they stand in the receipt.
pub fn plan(
    store: &Store,
    path: &Path,
    context: &IngestContext<'_>,
    now: Timestamp,
    locks: &BatchLocks,
) -> Result<Receipt, ManifestError> {
    let mut batches = Stored::new(store, now, locks, context.options.amends);
    let mut validated = validate_stored(path, context, now, &mut batches)?;
    validated.receipt.refused = validated.is_refused();
    Ok(validated.receipt)
}

/// Copies files that rows name into the state, before any of these rows counts.
fn stage(store: &Store, files: &[FoundFile]) -> Result<(), ManifestError> {
    let staged = StagedInputs::of(store.dir());
    for FoundFile { path, content } in files {
        let copied = input_files::open(path, Links::Refused).map_err(StageError::Io);
        copied
            .and_then(|mut file| staged.copy(&mut file, &content.sha256))
            .map_err(|source| ManifestError::Input { path: path.clone(), source })?;
    }
    Ok(())
}

/// Reads and validates a manifest, and writes its rows; other batches can be begun and continued meanwhile. `tell_held` is
/// called once its batch is held by `locks`.
///
/// # Errors
/// As [`accept`].
pub fn prepare(
    store: &Store,
    path: &Path,
    context: &IngestContext<'_>,
    now: Timestamp,
    (locks, tell_held): (&BatchLocks, impl FnOnce()),
) -> Result<Prepared, ManifestError> {
    let batches = Stored::new(store, now, locks, context.options.amends);
    let mut batches = Stored { tell_held: Some(Box::new(tell_held)), ..batches };
    let mut validated = validate_stored(path, context, now, &mut batches)?;
    let is_refused = validated.is_refused();
    let Stored { found, lock, is_new, .. } = batches;
    validated.receipt.refused = is_refused;
    let Validated { mut receipt, terms, origin, staged, pilot, files, refers_to, .. } = validated;
    let Some(mut batch) = found else { return Ok(Prepared::nothing(receipt)) };
    let is_wanted = !is_refused && (receipt.added() > 0 || receipt.have > 0);
    if !is_wanted {
        return Ok(Prepared::nothing(receipt));
    }
    stage(store, &files)?;
    let before = batch.clone();
    if is_new {
        batch.first_layout = context.layout.map(Layout::to_string);
    }
    batch.policy = terms.policy;
    batch.has_default_budget = terms.has_default_budget;
    (batch.said, batch.said_by_defaults) = (terms.said, terms.said_by_defaults);
    if context.options.amends.is_some() {
        batch.policy.strict = before.policy.strict;
    } else {
        batch.origin = batch.origin.or(origin);
        // Its last manifest's, whatever came before.
        batch.refused_rows = u32::try_from(receipt.invalid).unwrap_or(u32::MAX);
    }
    if batch.pilot.is_none() && pilot.is_some() {
        batch.pilot_from = batch.spool_bytes;
    }
    batch.pilot = pilot.as_ref().map(|plan| plan.pilot).or(batch.pilot);
    let mut new_rows = None;
    if receipt.added() > 0 || staged.goes_back() {
        let (folder, rows) = if is_new { staged.begin_rows()? } else { store.append_rows(&batch)? };
        let is_first =
            |row: &StagedRow| pilot.as_ref().is_some_and(|plan| plan.rows.contains(&row.fingerprint));
        batch.refers_to.iter_mut().for_each(|known| known.extend(refers_to.iter().cloned()));
        batch = write_rows(store, batch, &staged, is_first, now, (&folder, rows))?;
        new_rows = is_new.then_some((folder, staged));
    }
    receipt.budget = Some(batch.budget());
    // The same jobs on other terms: a higher budget lets go on what the lower one parked.
    let is_changed = batch != before;
    let edited = EditedRows::read(store, &batch, before.versions_bytes)?.map(Box::new);
    Ok(Prepared { receipt, batch: Some(batch).filter(|_| is_changed), edited, new_rows, lock, files })
}

/// Reads and validates a manifest for a state that is open; twice where newer catalogs may accept more of it.
fn validate_stored(
    path: &Path,
    context: &IngestContext<'_>,
    now: Timestamp,
    batches: &mut Stored<'_>,
) -> Result<Validated, ManifestError> {
    let validated = validate(batches.store.begin_staging()?, path, context, now, batches)?;
    let Some(newer) = context.newer_catalog.and_then(NewerCatalog::read_if_wanted) else {
        return Ok(validated);
    };
    drop(validated);
    let context = IngestContext { catalog: &newer, newer_catalog: None, ..context.clone() };
    validate(batches.store.begin_staging()?, path, &context, now, batches)
}

/// The batches of a state that is open.
struct Stored<'a> {
    store: &'a Store,
    now: Timestamp,
    locks: &'a BatchLocks,
    /// The batch that was taken up, or a new one, whose number may be another's when it is committed.
    found: Option<BatchRecord>,
    lock: Option<BatchLock>,
    /// The batch that it is of.
    held: Option<BatchName>,
    /// Called once that is there.
    tell_held: Option<Box<dyn FnOnce() + 'a>>,
    is_new: bool,
    /// How the batch must be.
    expected: Option<BatchVersion>,
}

impl<'a> Stored<'a> {
    fn new(
        store: &'a Store,
        now: Timestamp,
        locks: &'a BatchLocks,
        expected: Option<BatchVersion>,
    ) -> Stored<'a> {
        let (found, lock, held, tell_held) = (None, None, None, None);
        Stored { store, now, locks, found, lock, held, tell_held, is_new: false, expected }
    }
}

/// Another batch than the one that the manifest is for.
fn batch_named(store: &Store, name: &BatchName) -> Result<Option<BatchRecord>, StoreError> {
    match store.batch_named(name) {
        Err(StoreError::BatchMoved { .. }) => Ok(None),
        found => found,
    }
}

/// A batch as validation has to know it.
fn present(batch: &BatchRecord) -> Present {
    let BatchRecord { origin, created, pilot, .. } = batch;
    let (pilot_rows, origin) = (batch.pilot_rows(), origin.clone());
    Present { origin, terms: batch.standing(), created: *created, pilot: *pilot, pilot_rows }
}

impl Batches for Stored<'_> {
    fn take_up(&mut self, name: &BatchName, draft: &mut Staging) -> Result<Option<Present>, ManifestError> {
        // Of a manifest that is validated again it is held already.
        if self.held.as_ref() != Some(name) {
            self.lock = None;
            self.lock = Some(self.locks.hold(name));
            self.held = Some(name.clone());
        }
        self.is_new = false;
        if let Some(tell) = self.tell_held.take() {
            tell();
        }
        let found = self.store.batch_named(name)?;
        if self.expected.is_some_and(|expected| found.as_ref().map(BatchVersion::of) != Some(expected)) {
            return Err(ManifestError::BatchChanged { batch: name.clone() });
        }
        let Some(batch) = found else {
            self.is_new = true;
            let no = self.store.next_batch_no();
            let refers_to = Some(BTreeSet::new());
            self.found = Some(BatchRecord { refers_to, ..BatchRecord::new(no, name.clone(), self.now) });
            return Ok(None);
        };
        self.store.note_jobs_of(&batch, draft)?;
        let present = present(&batch);
        self.found = Some(batch);
        Ok(Some(present))
    }

    fn rows_by_id(
        &mut self,
        name: &BatchName,
        ids: &HashSet<String>,
        graph: Option<&mut ReferenceGraph>,
    ) -> Result<Option<ReferredBatch>, ManifestError> {
        // What is committed stays: nobody has to wait for a manifest that is read for it now.
        let Some(batch) = batch_named(self.store, name)? else { return Ok(None) };
        let rows = self.store.rows_by_id(&batch, ids, graph)?;
        let takes = if ids.is_empty() { HashMap::new() } else { self.store.decided_takes(&batch)? };
        Ok(Some(ReferredBatch { no: batch.no, origin: batch.origin, rows, takes }))
    }

    fn referred_batches(&mut self, name: &BatchName) -> Result<BTreeSet<BatchName>, ManifestError> {
        let Some(batch) = batch_named(self.store, name)? else { return Ok(BTreeSet::new()) };
        Ok(self.store.referred_batches(&batch)?)
    }

    fn decided_takes(&mut self, name: &BatchName) -> Result<HashMap<JobId, DecidedTake>, ManifestError> {
        let Some(batch) = batch_named(self.store, name)? else { return Ok(HashMap::new()) };
        Ok(self.store.decided_takes(&batch)?)
    }

    fn look_at(
        &mut self,
        name: &BatchName,
        tell: &mut dyn FnMut(Fingerprint),
    ) -> Result<Option<Present>, ManifestError> {
        // A manifest that is read for it now may be the one that begins it.
        let _held = self.locks.hold(name);
        let Some(batch) = batch_named(self.store, name)? else { return Ok(None) };
        self.store.fingerprints_of(&batch, tell)?;
        Ok(Some(present(&batch)))
    }
}

impl Validated {
    /// Whether jobs of this manifest would be in the batch of that name once it was taken in.
    pub fn would_be_in(&self, name: &BatchName) -> bool {
        !self.is_refused()
            && self.receipt.added() + self.receipt.have > 0
            && self.receipt.batch.as_ref() == Some(name)
    }

    /// Its rows that have these ids. `graph` is told what each of its rows is made from.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub fn rows_by_id(
        &self,
        ids: &HashSet<String>,
        mut graph: Option<&mut ReferenceGraph>,
    ) -> Result<Vec<(String, ReferredRow)>, StoreError> {
        let (mut found, mut rows) = (Vec::new(), self.rows()?);
        while let Some(row) = rows.next_row()? {
            let Outcome::Jobs(jobs) = row.outcome else { continue };
            let Jobs { order, fingerprint, .. } = &*jobs;
            if let Some(graph) = &mut graph {
                graph.add(*fingerprint, &order.inputs);
            }
            if let Some(id) = jobs.id.clone().filter(|id| ids.contains(id)) {
                let last = jobs.first + jobs.count - 1;
                found.push((id, ReferredRow::new(*fingerprint, order.kind, last, &order.body.fields())));
            }
        }
        Ok(found)
    }

    /// Tells a draft which jobs there would be once this manifest was taken in: for the next manifest
    /// of the same plan.
    ///
    /// # Errors
    /// When the rows cannot be read, or the draft not be written.
    pub fn note_in(&self, draft: &mut Staging) -> Result<(), StoreError> {
        if self.is_refused() {
            return Ok(());
        }
        let mut rows = self.rows()?;
        while let Some(row) = rows.next_row()? {
            if let Outcome::Jobs(jobs) = row.outcome {
                jobs.note_in(draft)?;
            }
        }
        Ok(())
    }
}
