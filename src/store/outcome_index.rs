//! Where the last outcome of each job of a batch lies, so that a job is found without reading all outcomes again.
//!
//! Made of the outcomes when a job of the batch is first asked for, and from then on of those alone that came since. Of the
//! batches that were asked about last, in memory: 8 bytes a job, of four batches at least, and of more as long as they have
//! four million jobs together.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::PoisonError;

use serde::Deserialize;

use crate::domain::ids::{BatchNo, Seq};
use crate::store::spool::Lines;
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// Batches that are known however large they are, and at most.
const BATCHES_MIN: usize = 4;
const BATCHES_MAX: usize = 1024;
/// Jobs of all of them together, where there are more than a few.
const JOBS_MAX: usize = 4 * 1024 * 1024;

/// The part of an outcome that tells whose it is.
#[derive(Deserialize)]
struct OutcomeOf {
    seq: Seq,
}

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
        while let Some((at, OutcomeOf { seq })) = lines.next_line()? {
            let index = seq.0 as usize;
            if self.outcomes.len() <= index {
                self.outcomes.resize(index + 1, None);
            }
            // One more, so that the first byte is told from nothing.
            self.outcomes[index] = std::num::NonZero::new(at + 1);
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

impl OutcomeIndexes {
    /// Keeps the index of the batch that was asked about last, and of those before as many as there is room for.
    fn keep(&mut self, index: OutcomeIndex) {
        self.recent.push_front(index);
        self.recent.truncate(BATCHES_MAX);
        let mut jobs: usize = self.recent.iter().map(|index| index.outcomes.len()).sum();
        while jobs > JOBS_MAX
            && self.recent.len() > BATCHES_MIN
            && let Some(oldest) = self.recent.pop_back()
        {
            jobs -= oldest.outcomes.len();
        }
    }
}

impl Store {
    /// How a job ended; nothing of one that has not.
    ///
    /// # Errors
    /// When the outcomes cannot be read.
    pub fn outcome(&self, batch: &BatchRecord, seq: Seq) -> Result<Option<JobRecord>, StoreError> {
        let (path, bytes) = (self.spool(batch.no).outcomes_path(), self.outcomes_bytes(batch)?);
        let mut indexes = self.outcome_indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = indexes.recent.iter().position(|index| index.batch == batch.no);
        let mut index = match known.and_then(|place| indexes.recent.remove(place)) {
            Some(index) if index.up_to <= bytes => index,
            _ => OutcomeIndex { batch: batch.no, up_to: 0, outcomes: Vec::new() },
        };
        let extended = index.extend(&path, bytes);
        let found = index.outcomes.get(seq.0 as usize).copied().flatten();
        indexes.keep(index);
        indexes.read += extended?;
        drop(indexes);
        let Some(place) = found else { return Ok(None) };
        Lines::open_scattered(&path, 0, bytes)?.line_at(place.get() - 1).map(Some)
    }

    /// Outcomes that were read so far to know where they lie.
    #[cfg(test)]
    pub(crate) fn outcomes_indexed(&self) -> u64 {
        self.outcome_indexes.lock().unwrap_or_else(PoisonError::into_inner).read
    }
}
