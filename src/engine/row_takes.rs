//! Which jobs of a batch are takes of the same row.

use std::collections::HashMap;

use serde::Deserialize;

use crate::domain::ids::Fingerprint;
use crate::store::{BatchRecord, Store, StoreError};

/// Where jobs begin in the rows of their batch, in manifest order, by the row that they are takes of.
pub(super) type RowTakes = HashMap<Fingerprint, Vec<u64>>;

/// The part of a job's line that tells of which row it is.
#[derive(Deserialize)]
struct RowIdentity {
    fingerprint: Fingerprint,
}

/// The takes of the rows of a batch that are `wanted`: all lines are read, and nothing else of them is decoded.
pub(super) fn row_takes(
    store: &Store,
    batch: &BatchRecord,
    wanted: impl Fn(&Fingerprint) -> bool,
) -> Result<RowTakes, StoreError> {
    let mut takes = RowTakes::new();
    let mut rows = store.spool(batch.no).rows(0, batch.spool_bytes)?;
    while let Some((at, RowIdentity { fingerprint })) = rows.next_line()? {
        if wanted(&fingerprint) {
            takes.entry(fingerprint).or_default().push(at);
        }
    }
    Ok(takes)
}
