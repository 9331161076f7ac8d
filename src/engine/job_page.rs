//! Some jobs of a batch, from any place in it: what a page lists at once, whatever the size of the batch.

use crate::domain::job::JobSpec;
use crate::domain::job_state::JobState;
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// Rows that are looked at for one page: a state that few jobs are in is searched for on several.
const LOOKED_AT_MAX: usize = 4_000;

/// A part of a batch's jobs, in the order in which they lie.
#[derive(Debug, Default)]
pub struct JobPage {
    pub jobs: Vec<ListedJob>,
    /// The byte from which the next page begins; nothing at the end.
    pub next: Option<u64>,
}

/// A job with what became of it.
#[derive(Debug)]
pub struct ListedJob {
    pub spec: JobSpec,
    pub record: JobRecord,
    /// Another version of its row is wanted.
    pub superseded: bool,
}

/// At most `most` jobs of a batch whose rows begin at byte `from`, or later; with `state` those in that state alone.
///
/// # Errors
/// [`StoreError`] when the state cannot be read, or no row begins at `from`.
pub fn job_page(
    store: &Store,
    batch: &BatchRecord,
    from: u64,
    state: Option<JobState>,
    most: usize,
) -> Result<JobPage, StoreError> {
    let mut page = JobPage::default();
    if from >= batch.spool_bytes {
        return Ok(page);
    }
    let versions = store.row_versions(batch)?;
    let mut rows = store.spool(batch.no).rows(from, batch.spool_bytes)?;
    for _ in 0..LOOKED_AT_MAX {
        let Some((at, spec)) = rows.next_line::<JobSpec>()? else { return Ok(page) };
        let record = store.job_at(batch, at, &spec)?;
        if state.is_none_or(|state| record.job.state().job_state() == state) {
            let superseded = versions.is_superseded(spec.seq);
            page.jobs.push(ListedJob { spec, record, superseded });
        }
        if page.jobs.len() >= most {
            break;
        }
    }
    page.next = Some(rows.at()).filter(|at| *at < batch.spool_bytes);
    Ok(page)
}
