//! Every job of a batch, in manifest order: its row, and what became of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::domain::ids::{JobKey, Seq};
use crate::domain::job::{Job, JobSpec};
use crate::domain::row_versions::RowVersions;
use crate::store::open_records::OpenRecords;
use crate::store::spool::Lines;
use crate::store::{BatchRecord, JobRecord, OutcomeOutline, Store, StoreError};

/// A job without an outcome, or a place without a row.
const NO_OFFSET: u64 = u64::MAX;

/// Where a job's row and outcome begin in their files.
#[derive(Debug, Clone, Copy)]
struct RowOffsets {
    row: u64,
    outcome: u64,
}

/// The jobs of a batch, one after the other.
///
/// Memory: 16 bytes a job, and the records of those that are open as they are stored, some 600 bytes each.
#[derive(Debug)]
pub struct JobIter {
    rows: Lines,
    outcomes: Lines,
    /// By the number of the job.
    offsets: Vec<RowOffsets>,
    /// The number of the next one.
    next: usize,
    open: OpenRecords,
    batch: BatchRecord,
    versions: RowVersions,
    /// The names of all meta columns.
    pub meta_columns: BTreeSet<String>,
}

impl JobIter {
    /// Begins at the first job of `batch`.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read.
    pub fn open(store: &Store, batch: &BatchRecord) -> Result<JobIter, StoreError> {
        // Open jobs first: one that ends meanwhile is then seen as it was, and not as one that never began.
        let open = store.open_records_of(batch.no)?;
        let spool = store.spool(batch.no);
        let (mut offsets, meta_columns) = row_offsets(store, batch)?;
        let outcomes_bytes = store.outcomes_bytes(batch)?;
        let mut outlines = spool.outcomes(0, outcomes_bytes)?;
        while let Some((at, OutcomeOutline { seq })) = outlines.next_line()? {
            // The last outcome of a job counts: it may have been retried.
            if let Some(offsets) = offsets.get_mut(seq.0 as usize) {
                offsets.outcome = at;
            }
        }
        let rows = spool.rows_scattered(0, batch.spool_bytes)?;
        // Jobs that were under way together ended in any order.
        let outcomes = spool.outcomes_scattered(0, outcomes_bytes)?;
        let versions = store.row_versions(batch)?;
        Ok(JobIter { rows, outcomes, offsets, next: 0, open, batch: batch.clone(), versions, meta_columns })
    }

    /// Which versions of edited rows are wanted.
    pub fn versions(&self) -> &RowVersions {
        &self.versions
    }

    /// The next job; nothing at the end. One that has not begun is queued.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read.
    pub fn next_job(&mut self) -> Result<Option<(JobSpec, JobRecord)>, StoreError> {
        while let Some(offsets) = self.offsets.get(self.next).copied() {
            self.next += 1;
            if offsets.row != NO_OFFSET {
                return self.job_at(offsets.row).map(Some);
            }
        }
        Ok(None)
    }

    /// The job whose row begins at byte `row`, wherever the next one is.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read, or no row begins there.
    pub fn job_at(&mut self, row: u64) -> Result<(JobSpec, JobRecord), StoreError> {
        let spec: JobSpec = self.rows.line_at(row)?;
        let outcome = self.offsets.get(spec.seq.0 as usize).map_or(NO_OFFSET, |offsets| offsets.outcome);
        let record = match self.open.get(spec.seq)? {
            Some(open) => open,
            None if outcome == NO_OFFSET => {
                let key = JobKey { batch: self.batch.no, seq: spec.seq };
                JobRecord { key, id: spec.id, row_at: row, job: Job::queued() }
            }
            None => self.outcomes.line_at(outcome)?,
        };
        Ok((spec, record))
    }
}

/// The parts of a row that are needed of all rows before the first job is told.
#[derive(Deserialize)]
struct RowOutline {
    seq: Seq,
    order: OrderOutline,
}

#[derive(Deserialize)]
struct OrderOutline {
    #[serde(default)]
    meta: BTreeMap<String, IgnoredAny>,
}

/// Finds every row, and the names of all meta columns.
fn row_offsets(
    store: &Store,
    batch: &BatchRecord,
) -> Result<(Vec<RowOffsets>, BTreeSet<String>), StoreError> {
    let mut offsets = vec![RowOffsets { row: NO_OFFSET, outcome: NO_OFFSET }; batch.rows as usize];
    let mut meta_columns = BTreeSet::new();
    let mut rows = store.spool(batch.no).rows(0, batch.spool_bytes)?;
    while let Some((at, row)) = rows.next_line::<RowOutline>()? {
        if let Some(offsets) = offsets.get_mut(row.seq.0 as usize) {
            offsets.row = at;
        }
        meta_columns.extend(row.order.meta.into_keys());
    }
    Ok((offsets, meta_columns))
}
