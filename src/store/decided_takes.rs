//! What was decided about the takes of a batch, and of which takes its children were made: for manifests whose rows take
//! the chosen one of several takes.

use std::collections::HashMap;

use crate::domain::ids::JobId;
use crate::domain::job_reference::DecidedTake;
use crate::domain::row_versions::RowVersions;
use crate::store::spool::Lines;
use crate::store::{BatchRecord, JobRecord, OpenJobStatus, Store, StoreError};

/// From outcomes, of which the last of each job counts. Another process may be writing the last one of a file that is looked
/// at from outside. A version that is not wanted any more was made of what it was sent with, however it ended: another one
/// took its place for that.
pub(super) fn read(
    mut outcomes: Lines,
    versions: &RowVersions,
    is_outside: bool,
) -> Result<HashMap<JobId, DecidedTake>, StoreError> {
    let mut takes = HashMap::new();
    loop {
        let record = match outcomes.next_line::<JobRecord>() {
            Ok(Some((_, record))) => record,
            Ok(None) => return Ok(takes),
            Err(StoreError::Damaged { .. }) if is_outside => return Ok(takes),
            Err(error) => return Err(error),
        };
        let job = &record.job;
        let verdict = job.decision().map(|decision| decision.verdict);
        let made_of = match versions.is_superseded(record.key.seq) {
            true => job.last_sent_with().to_vec(),
            false => job.made_of(),
        };
        if verdict.is_none() && made_of.is_empty() {
            takes.remove(&record.id);
        } else {
            takes.insert(record.id, DecidedTake { verdict, made_of });
        }
    }
}

/// Adds the takes that children which have not ended are made of.
pub(super) fn add_open<'a>(
    takes: &mut HashMap<JobId, DecidedTake>,
    open: impl IntoIterator<Item = &'a OpenJobStatus>,
) {
    for child in open.into_iter().filter(|child| !child.made_of.is_empty()) {
        let take =
            takes.entry(child.job).or_insert_with(|| DecidedTake { verdict: None, made_of: Vec::new() });
        take.made_of.clone_from(&child.made_of);
    }
}

impl Store {
    /// What was decided about the takes of a batch, and of which takes its children were made.
    ///
    /// # Errors
    /// [`StoreError`] when the outcomes cannot be read.
    pub fn decided_takes(&self, batch: &BatchRecord) -> Result<HashMap<JobId, DecidedTake>, StoreError> {
        // Open jobs first: one that ends meanwhile is then seen twice, and not nowhere.
        let open = self.open_of(batch.no)?;
        let outcomes = self.spool(batch.no).outcomes(0, self.outcomes_bytes(batch)?)?;
        let mut takes = read(outcomes, &self.row_versions(batch)?, false)?;
        add_open(&mut takes, open.values());
        Ok(takes)
    }
}
