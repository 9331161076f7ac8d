//! The results of a batch, written from its spool: every job, in manifest order.

use std::collections::{BTreeSet, HashMap};

use crate::domain::ids::Seq;
use crate::domain::job::{Job, JobSpec};
use crate::engine::EngineError;
use crate::failpoint;
use crate::output::landing::Landing;
use crate::output::results::{ResultLine, ResultsWriter};
use crate::store::spool::Lines;
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// A job without an outcome or a row without a place.
const NOWHERE: u64 = u64::MAX;

/// Where a job's row and outcome begin in their files.
#[derive(Clone, Copy)]
struct Places {
    row: u64,
    outcome: u64,
}

/// Writes `results.jsonl` and `results.csv` of a batch. Jobs that have not ended are listed as they
/// stand.
///
/// Memory: 16 bytes a job, and the jobs that are open.
///
/// # Errors
/// [`EngineError`] when the state cannot be read or the folder not written to.
pub fn write_results(store: &Store, landing: &Landing, batch: &BatchRecord) -> Result<(), EngineError> {
    let dir = landing.batch_dir(&batch.name);
    let output = |source| EngineError::Output { path: dir.clone(), source };
    let spool = store.spool(batch.no);
    let outcomes_bytes = store.outcomes_bytes(batch.no)?;
    let (mut places, meta_columns) = places_of_rows(store, batch)?;
    let mut outcomes = Lines::open(&spool.outcomes_path(), 0, outcomes_bytes)?;
    while let Some((at, record)) = outcomes.next_line::<JobRecord>()? {
        // The last outcome of a job counts: it may have been retried.
        if let Some(places) = places.get_mut(record.key.seq.0 as usize) {
            places.outcome = at;
        }
    }
    let open: HashMap<Seq, Job> = store
        .open_jobs()?
        .into_iter()
        .filter(|record| record.key.batch == batch.no)
        .map(|record| (record.key.seq, record.job))
        .collect();
    std::fs::create_dir_all(&dir).map_err(output)?;
    let mut rows = Lines::open(&spool.rows_path(), 0, batch.spool_bytes)?;
    let mut writer = ResultsWriter::begin(&dir, meta_columns).map_err(output)?;
    for Places { row, outcome } in places.into_iter().filter(|places| places.row != NOWHERE) {
        let spec: JobSpec = rows.line_at(row)?;
        let job = match open.get(&spec.seq) {
            Some(job) => job.clone(),
            None if outcome == NOWHERE => Job::queued(),
            None => outcomes.line_at::<JobRecord>(outcome)?.job,
        };
        writer.push(&ResultLine::new(&batch.name, &spec, &job)).map_err(output)?;
    }
    failpoint::hit("reporting");
    writer.finish().map_err(output)
}

/// Finds every row, and the names of all meta columns.
fn places_of_rows(store: &Store, batch: &BatchRecord) -> Result<(Vec<Places>, BTreeSet<String>), StoreError> {
    let mut places = vec![Places { row: NOWHERE, outcome: NOWHERE }; batch.rows as usize];
    let mut meta_columns = BTreeSet::new();
    let mut rows = Lines::open(&store.spool(batch.no).rows_path(), 0, batch.spool_bytes)?;
    while let Some((at, spec)) = rows.next_line::<JobSpec>()? {
        if let Some(places) = places.get_mut(spec.seq.0 as usize) {
            places.row = at;
        }
        for name in spec.order.meta.keys() {
            if !meta_columns.contains(name) {
                meta_columns.insert(name.clone());
            }
        }
    }
    Ok((places, meta_columns))
}
