//! Every job of a batch, in manifest order: its row, and what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::thread;

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

/// Bytes of outcomes from which on another thread looks for them meanwhile.
const PARALLEL_MIN_BYTES: u64 = 256 * 1024;

/// The jobs of a batch, one after the other.
///
/// Memory: 16 bytes a job, and the records of those that are open as they are stored, some 600 bytes each.
#[derive(Debug)]
pub struct JobIter {
    rows: Lines,
    outcomes: Lines,
    /// Where the row of each job begins, by its number.
    row_offsets: Vec<u64>,
    /// Where its outcome does.
    outcome_offsets: Vec<u64>,
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
        let outcomes_bytes = store.outcomes_bytes(batch)?;
        let rows = || row_offsets(store, batch);
        let outcomes = || outcome_offsets(spool.outcomes(0, outcomes_bytes)?, batch.rows as usize);
        let (rows, outcomes) = if outcomes_bytes < PARALLEL_MIN_BYTES {
            (rows(), outcomes())
        } else {
            thread::scope(|scope| {
                let outcomes = scope.spawn(outcomes);
                (rows(), outcomes.join().unwrap_or_else(|panic| resume_unwind(panic)))
            })
        };
        let ((row_offsets, meta_columns), outcome_offsets) = (rows?, outcomes?);
        let rows = spool.rows_scattered(0, batch.spool_bytes)?;
        // Jobs that were under way together ended in any order.
        let outcomes = spool.outcomes_scattered(0, outcomes_bytes)?;
        let versions = store.row_versions(batch)?;
        Ok(JobIter {
            rows,
            outcomes,
            row_offsets,
            outcome_offsets,
            next: 0,
            open,
            batch: batch.clone(),
            versions,
            meta_columns,
        })
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
        while let Some(row) = self.row_offsets.get(self.next).copied() {
            self.next += 1;
            if row != NO_OFFSET {
                return self.job_at(row).map(Some);
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
        let outcome = self.outcome_offsets.get(spec.seq.0 as usize).copied().unwrap_or(NO_OFFSET);
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
fn row_offsets(store: &Store, batch: &BatchRecord) -> Result<(Vec<u64>, BTreeSet<String>), StoreError> {
    let mut offsets = vec![NO_OFFSET; batch.rows as usize];
    let mut meta_columns = BTreeSet::new();
    let mut rows = store.spool(batch.no).rows(0, batch.spool_bytes)?;
    while let Some((at, row)) = rows.next_line::<RowOutline>()? {
        if let Some(offset) = offsets.get_mut(row.seq.0 as usize) {
            *offset = at;
        }
        meta_columns.extend(row.order.meta.into_keys());
    }
    Ok((offsets, meta_columns))
}

/// Finds the outcome of every job that ended: the last one counts, since it may have been retried.
fn outcome_offsets(mut outcomes: Lines, rows: usize) -> Result<Vec<u64>, StoreError> {
    let mut offsets = vec![NO_OFFSET; rows];
    while let Some((at, OutcomeOutline { seq })) = outcomes.next_line()? {
        if let Some(offset) = offsets.get_mut(seq.0 as usize) {
            *offset = at;
        }
    }
    Ok(offsets)
}
