//! Rows out of a batch's spool.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::ids::BatchNo;
use crate::domain::job::JobSpec;
use crate::engine::scheduler::SpooledRow;
use crate::store::spool::Lines;
use crate::store::{Store, StoreError};

/// So few rows are mostly less than a large buffer.
const FEW_ROWS: usize = 16;

/// Reads up to `most` rows from byte `from`, none beyond `end`.
pub(super) fn load_rows(
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

/// Looks up single rows, keeping one file open for each batch.
#[derive(Debug)]
pub(super) struct RowReader<'a> {
    store: &'a Store,
    files: HashMap<BatchNo, Lines>,
}

impl<'a> RowReader<'a> {
    pub(super) fn new(store: &'a Store) -> RowReader<'a> {
        RowReader { store, files: HashMap::new() }
    }

    /// The row that begins at byte `at` of a batch's spool.
    pub(super) fn spec_at(&mut self, batch: BatchNo, at: u64) -> Result<Arc<JobSpec>, StoreError> {
        let lines = match self.files.entry(batch) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(self.store.spool(batch).rows(at, u64::MAX)?)
            }
        };
        Ok(Arc::new(lines.line_at(at)?))
    }
}
