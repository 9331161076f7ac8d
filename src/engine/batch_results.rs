//! The results and the report of a batch.

use std::path::Path;

use crate::engine::EngineError;
use crate::engine::job_iter::JobIter;
use crate::failpoint;
use crate::output::CsvDialect;
use crate::output::publish::OutputDir;
use crate::output::report::Report;
use crate::output::results::{self, ResultLine, ResultsWriter};
use crate::store::{BatchRecord, Store};

/// Writes `results.jsonl`, `results.csv` and `report.json` of a batch. Jobs that have not ended are
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
    let written = write_into(&dir, output_dir.options().results_csv, store, batch);
    if written.is_err() {
        results::sweep(&dir);
    }
    written
}

fn write_into(
    dir: &Path,
    results_csv: CsvDialect,
    store: &Store,
    batch: &BatchRecord,
) -> Result<Report, EngineError> {
    let output = |source| EngineError::Output { path: dir.to_owned(), source };
    let mut jobs = JobIter::open(store, batch)?;
    std::fs::create_dir_all(dir).map_err(output)?;
    let meta_columns = std::mem::take(&mut jobs.meta_columns);
    let mut writer = ResultsWriter::begin(dir, results_csv, meta_columns).map_err(output)?;
    let mut report = Report::new(&batch.name, batch.refused_rows);
    while let Some((spec, record)) = jobs.next_job()? {
        let is_superseded = jobs.versions().is_superseded(spec.seq);
        writer.push(&ResultLine::new(&batch.name, &spec, &record.job, is_superseded)).map_err(output)?;
        report.add(dir, &spec, &record.job, is_superseded);
    }
    failpoint::hit("reporting");
    writer.finish().map_err(output)?;
    report.write(dir).map_err(output)?;
    Ok(report)
}
