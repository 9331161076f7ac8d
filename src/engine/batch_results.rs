//! The results and the report of a batch.

use std::path::Path;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use crate::domain::job::JobSpec;
use crate::engine::EngineError;
use crate::engine::job_iter::JobIter;
use crate::failpoint;
use crate::output::CsvDialect;
use crate::output::decisions_csv::{DecisionsFile, ReviewLine};
use crate::output::publish::OutputDir;
use crate::output::report::Report;
use crate::output::results::{self, ResultLine, ResultsWriter};
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// Jobs that are handed from one thread to the next at once.
const CHUNK_JOBS: usize = 128;
/// Most chunks between them.
const CHUNKS_MAX: usize = 4;

/// Writes `results.jsonl`, `results.csv`, `report.json` and, with something to tell, `decisions.csv` of a batch. Jobs that have not ended are
/// listed as they stand. Returns the report.
///
/// # Errors
/// [`EngineError`] when the state cannot be read or the folder not written to.
pub fn write_results(
    store: &Store,
    output_dir: &OutputDir,
    batch: &BatchRecord,
) -> Result<Report, EngineError> {
    let dir = output_dir.batch_dir(&batch.name);
    let made = output_dir.make_batch_dir(&batch.name);
    made.map_err(|source| EngineError::Output { path: dir.clone(), source })?;
    let written = write_into(&dir, output_dir.options().results_csv, store, batch);
    if written.is_err() {
        results::sweep(&dir);
    }
    written
}

/// A job, and whether another version of its row is wanted.
type FoundJob = (JobSpec, JobRecord, bool);

/// Hands every job to `push`, in order. Those of a large batch are read by a thread beside it, which is only so far ahead.
fn for_each(
    mut jobs: JobIter,
    most: usize,
    mut push: impl FnMut(&FoundJob) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut next_chunk = move || -> Result<Vec<FoundJob>, StoreError> {
        let mut chunk = Vec::with_capacity(CHUNK_JOBS.min(most));
        while chunk.len() < CHUNK_JOBS
            && let Some((spec, record)) = jobs.next_job()?
        {
            let is_superseded = jobs.versions().is_superseded(spec.seq);
            chunk.push((spec, record, is_superseded));
        }
        Ok(chunk)
    };
    let first = next_chunk()?;
    if first.len() < CHUNK_JOBS {
        return first.iter().try_for_each(push);
    }
    let (sender, chunks) = sync_channel(CHUNKS_MAX);
    // Freed by the thread that allocates them: two threads would wait for each other's memory.
    let (done, pushed) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut chunk = Ok(first);
            while chunk.as_ref().is_ok_and(|jobs| !jobs.is_empty()) {
                // After an error of the writer nobody receives.
                if sender.send(chunk).is_err() {
                    return;
                }
                pushed.try_iter().for_each(drop);
                chunk = next_chunk();
            }
            let _ = sender.send(chunk);
        });
        chunks.into_iter().try_for_each(|chunk| {
            let jobs = chunk?;
            jobs.iter().try_for_each(&mut push)?;
            // The last chunks are left when the other thread has ended.
            let _ = done.send(jobs);
            Ok(())
        })
    })
}

fn write_into(
    dir: &Path,
    results_csv: CsvDialect,
    store: &Store,
    batch: &BatchRecord,
) -> Result<Report, EngineError> {
    let output = |source| EngineError::Output { path: dir.to_owned(), source };
    let mut jobs = JobIter::open(store, batch)?;
    let meta_columns = std::mem::take(&mut jobs.meta_columns);
    let mut writer = ResultsWriter::begin(dir, results_csv, meta_columns).map_err(output)?;
    let mut report = Report::new(&batch.name, batch.refused_rows);
    let mut decisions = DecisionsFile::new(dir, results_csv);
    let push = |(spec, record, is_superseded): &FoundJob| {
        let line = ResultLine::new(&batch.name, spec, &record.job, *is_superseded);
        writer.push(&line).map_err(output)?;
        report.add(dir, spec, &record.job, *is_superseded);
        if line.is_reviewed()
            && let Some(line) = ReviewLine::of(&batch.name, spec, &record.job, *is_superseded)
        {
            decisions.push(&line).map_err(output)?;
        }
        Ok(())
    };
    for_each(jobs, batch.rows as usize, push)?;
    failpoint::hit("reporting");
    writer.finish().map_err(output)?;
    report.write(dir).map_err(output)?;
    decisions.finish().map_err(output)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Fingerprint, JobId, Seq};
    use crate::domain::time::Timestamp;
    use crate::output::OutputOptions;
    use crate::store::{Change, Segment};

    #[test]
    fn every_job_of_a_large_batch_has_a_line_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state"), "http://service.example", false).unwrap();
        for (no, count) in [(1, 0), (2, 1), (3, CHUNK_JOBS), (4, CHUNK_JOBS * (CHUNKS_MAX + 3) + 1)] {
            let mut batch =
                BatchRecord::new(BatchNo(no), format!("batch-{no}").parse().unwrap(), Timestamp(0));
            let (_, mut rows) = store.append_rows(&batch).unwrap();
            for seq in 0..u32::try_from(count).unwrap() {
                let order = serde_json::json!({
                    "line": seq + 2, "kind": "image", "body": { "prompt": "a fox" }, "priority": 0, "meta": {},
                });
                let spec = JobSpec {
                    seq: Seq(seq),
                    id: JobId(u128::from(seq).to_be_bytes()),
                    fingerprint: Fingerprint([1; 16]),
                    variation: 1,
                    label: format!("fox-{seq}"),
                    apart: false,
                    order: serde_json::from_value(order).unwrap(),
                };
                rows.push(&spec).unwrap();
            }
            batch.rows = u32::try_from(count).unwrap();
            batch.spool_bytes = rows.sync().unwrap();
            batch.segments.push(Segment::mixed(0, 0, batch.spool_bytes));
            store.commit(&[Change::Batch(Box::new(batch.clone()))]).unwrap();
            let outputs = OutputDir::new(&dir.path().join("output"), OutputOptions::default());
            write_results(&store, &outputs, &batch).unwrap();
            let text = std::fs::read_to_string(outputs.batch_dir(&batch.name).join("results.jsonl")).unwrap();
            let lines: Vec<u64> = (text.lines())
                .map(|line| {
                    serde_json::from_str::<serde_json::Value>(line).unwrap()["line"].as_u64().unwrap()
                })
                .collect();
            let expected: Vec<u64> = (0..count as u64).map(|seq| seq + 2).collect();
            assert_eq!(lines, expected);
        }
    }
}
