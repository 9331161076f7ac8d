//! Rows out of a batch's spool.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::domain::ids::BatchNo;
use crate::domain::job::{JobSpec, OrderTerms};
use crate::engine::blocking::blocking;
use crate::engine::scheduler::SpooledRow;
use crate::engine::shared_values::SharedValues;
use crate::store::spool::Lines;
use crate::store::{Store, StoreError};

/// So few rows are mostly less than a large buffer.
const FEW_ROWS: usize = 16;

/// Batches whose rows are read at once: each takes a thread and a file.
static READS: Semaphore = Semaphore::const_new(4);

/// Reads up to `most` rows from byte `from`, none beyond `end`. Thousands of batches may want theirs at once: a few are read
/// at a time.
pub(super) async fn load_rows(
    store: &Arc<Store>,
    batch: BatchNo,
    from: u64,
    end: u64,
    most: usize,
) -> Result<Vec<SpooledRow>, StoreError> {
    // Never closed.
    let _permit = READS.acquire().await;
    let store = store.clone();
    blocking(move || read_rows(&store, batch, from, end, most)).await
}

fn read_rows(
    store: &Store,
    batch: BatchNo,
    from: u64,
    end: u64,
    most: usize,
) -> Result<Vec<SpooledRow>, StoreError> {
    let spool = store.spool(batch);
    let mut lines = if most < FEW_ROWS { spool.rows_scattered(from, end)? } else { spool.rows(from, end)? };
    let mut rows = Vec::with_capacity(most);
    while rows.len() < most
        && let Some((at, spec)) = lines.next_line::<JobSpec>()?
    {
        rows.push(SpooledRow { at, end: lines.at(), spec: Arc::new(spec) });
    }
    Ok(rows)
}

/// Looks up single rows, keeping the file of one batch open: rows are asked for batch by batch.
#[derive(Debug)]
pub(super) struct RowReader<'a> {
    store: &'a Store,
    file: Option<(BatchNo, Lines)>,
    terms: SharedValues<OrderTerms>,
}

impl<'a> RowReader<'a> {
    pub(super) fn new(store: &'a Store) -> RowReader<'a> {
        RowReader { store, file: None, terms: SharedValues::default() }
    }

    /// The row that begins at byte `at` of a batch's spool.
    pub(super) fn spec_at(&mut self, batch: BatchNo, at: u64) -> Result<Arc<JobSpec>, StoreError> {
        let file = self.file.take().filter(|(open, _)| *open == batch);
        let (_, lines) = match file {
            Some(file) => self.file.insert(file),
            None => self.file.insert((batch, self.store.spool(batch).rows(at, u64::MAX)?)),
        };
        let mut spec: JobSpec = lines.line_at(at)?;
        self.terms.share(&mut spec.order.terms);
        Ok(Arc::new(spec))
    }
}
