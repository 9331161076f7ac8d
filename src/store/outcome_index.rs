//! Where the last outcome of each job of a batch lies, so that a job is found without reading all outcomes again.
//!
//! Made of the outcomes when a job of the batch is first asked for, and from then on of those alone that came since. Of the
//! batches that were asked about last, in memory: 8 bytes a job.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::PoisonError;

use crate::domain::ids::{BatchNo, Seq};
use crate::domain::row_verdict::JobStanding;
use crate::store::job_statuses::EndedOutcome;
use crate::store::spool::Lines;
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// Batches that are known.
const BATCHES_MAX: usize = 4;
/// Beside the byte of an outcome: its job has no outputs, and is not in doubt.
const IS_UNDONE: u64 = 1 << 63;

/// The outcomes of one batch up to a byte.
#[derive(Debug)]
struct OutcomeIndex {
    batch: BatchNo,
    up_to: u64,
    /// By the number of the job.
    outcomes: Vec<Option<std::num::NonZero<u64>>>,
}

impl OutcomeIndex {
    /// Takes in what came since. Returns how many outcomes that were.
    fn extend(&mut self, path: &Path, bytes: u64) -> Result<u64, StoreError> {
        let mut lines = Lines::open(path, self.up_to, bytes)?;
        let mut read = 0;
        while let Some((at, outcome)) = lines.next_line::<EndedOutcome>()? {
            let (seq, standing) = outcome.standing(path)?;
            let index = seq.0 as usize;
            if self.outcomes.len() <= index {
                self.outcomes.resize(index + 1, None);
            }
            let is_undone = !matches!(standing, JobStanding::Done | JobStanding::InDoubt);
            // One more, so that the first byte is told from nothing.
            self.outcomes[index] = std::num::NonZero::new((at + 1) | if is_undone { IS_UNDONE } else { 0 });
            self.up_to = lines.at();
            read += 1;
        }
        Ok(read)
    }
}

/// Of the batches that were asked about last, the last one first.
#[derive(Debug, Default)]
pub(super) struct OutcomeIndexes {
    recent: VecDeque<OutcomeIndex>,
    /// Outcomes that were read to make them.
    read: u64,
}

impl Store {
    /// The last outcome of a job, if it has one; `only_undone` passes over jobs that succeeded or are in doubt, of which
    /// nothing is read.
    pub(super) fn outcome_of(
        &self,
        batch: &BatchRecord,
        seq: Seq,
        only_undone: bool,
    ) -> Result<Option<JobRecord>, StoreError> {
        let (path, bytes) = (self.spool(batch.no).outcomes_path(), self.outcomes_bytes(batch)?);
        let mut indexes = self.outcome_indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = indexes.recent.iter().position(|index| index.batch == batch.no);
        let mut index = match known.and_then(|place| indexes.recent.remove(place)) {
            Some(index) if index.up_to <= bytes => index,
            _ => OutcomeIndex { batch: batch.no, up_to: 0, outcomes: Vec::new() },
        };
        let extended = index.extend(&path, bytes);
        let found = index.outcomes.get(seq.0 as usize).copied().flatten();
        indexes.recent.truncate(BATCHES_MAX - 1);
        indexes.recent.push_front(index);
        indexes.read += extended?;
        drop(indexes);
        let wanted = found.filter(|place| !only_undone || place.get() & IS_UNDONE != 0);
        let Some(place) = wanted else { return Ok(None) };
        let at = (place.get() & !IS_UNDONE) - 1;
        Lines::open_scattered(&path, 0, bytes)?.line_at(at).map(Some)
    }

    /// How a job ended; nothing of one that has not.
    ///
    /// # Errors
    /// When the outcomes cannot be read.
    pub fn outcome(&self, batch: &BatchRecord, seq: Seq) -> Result<Option<JobRecord>, StoreError> {
        self.outcome_of(batch, seq, false)
    }

    /// How a job ended that has no outputs and is not in doubt; nothing of any other.
    ///
    /// # Errors
    /// When the outcomes cannot be read.
    pub fn undone_outcome(&self, batch: &BatchRecord, seq: Seq) -> Result<Option<JobRecord>, StoreError> {
        self.outcome_of(batch, seq, true)
    }

    /// Outcomes that were read so far to know where they lie.
    #[cfg(test)]
    pub(crate) fn outcomes_indexed(&self) -> u64 {
        self.outcome_indexes.lock().unwrap_or_else(PoisonError::into_inner).read
    }
}
