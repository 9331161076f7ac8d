//! What was decided about the takes of a batch, and of which takes its children were made: for manifests whose rows take
//! the chosen one of several takes.

use std::collections::HashMap;

use crate::domain::ids::JobId;
use crate::domain::job::State;
use crate::domain::job_reference::DecidedTake;
use crate::store::spool::Lines;
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// From outcomes, of which the last of each job counts. Another process may be writing the last one of a file that is looked
/// at from outside.
pub(super) fn read(mut outcomes: Lines, is_outside: bool) -> Result<HashMap<JobId, DecidedTake>, StoreError> {
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
        let made_of = match job.state() {
            State::Succeeded { .. } => job.present().input_takes().to_vec(),
            _ => Vec::new(),
        };
        if verdict.is_none() && made_of.is_empty() {
            takes.remove(&record.id);
        } else {
            takes.insert(record.id, DecidedTake { verdict, made_of });
        }
    }
}

impl Store {
    /// What was decided about the takes of a batch, and of which takes its children were made.
    ///
    /// # Errors
    /// [`StoreError`] when the outcomes cannot be read.
    pub fn decided_takes(&self, batch: &BatchRecord) -> Result<HashMap<JobId, DecidedTake>, StoreError> {
        read(self.spool(batch.no).outcomes(0, self.outcomes_bytes(batch)?)?, false)
    }
}
