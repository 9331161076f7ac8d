//! A state that is made of an export.
//!
//! The export may be older than what was sent since. So what was on its way comes back as queued under the same key,
//! what is not finished is paused, and what is not sent may have been. What had been dropped by then ends. What had
//! ended unpaid may have been asked for again and sent: a retry takes it up as such.

use std::io::Read;
use std::path::Path;

use serde::Serialize;

use crate::domain::ids::BatchName;
use crate::domain::recovered_job_state;
use crate::domain::time::Timestamp;
use crate::recovery::{dropped_rows, unpaid_outcomes};
use crate::store::Pause;
use crate::store::dump::DumpError;
use crate::store::unopened_state::NewState;

/// What came in with an export.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The service that the state belongs to.
    pub service: String,
    /// Batches.
    pub batches: usize,
    /// Of these, paused.
    pub paused: usize,
    /// Names of those that their owners had paused before the export, and that stay so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paused_by_owner: Vec<String>,
    /// Accepted jobs.
    pub rows: u64,
    /// Jobs that have begun and not ended.
    pub open: usize,
    /// Unfinished batches of which rows take files of the machine that the export was made on: it does not carry these.
    pub without_files: Vec<BatchName>,
}

/// Makes a state in the empty folder `dir` from an export.
///
/// # Errors
/// [`DumpError`]; the folder is then as it was.
pub fn import(dump: impl Read, dir: &Path, now: Timestamp) -> Result<Imported, DumpError> {
    let (state, mut records) = NewState::read(dump, dir)?;
    dropped_rows::end_all(&state, &mut records, now)?;
    unpaid_outcomes::mark_all(&state, &mut records, now)?;
    let mut imported = Imported {
        service: state.service().to_owned(),
        batches: records.batches.len(),
        open: records.open.len(),
        rows: records.batches.iter().map(|batch| u64::from(batch.rows)).sum(),
        ..Imported::default()
    };
    for open in &mut records.open {
        let spec = state.spec_of(open)?;
        open.job = recovered_job_state::requeued(open.job.clone(), &spec, now);
    }
    for batch in records.batches.iter_mut().filter(|batch| !batch.has_ended()) {
        match batch.paused {
            Some(Pause::Owner) => imported.paused_by_owner.push(batch.name.to_string()),
            _ => batch.paused = Some(Pause::Rebuilt),
        }
        batch.mark_rebuilt();
        imported.paused += 1;
        if state.takes_files(batch)? {
            imported.without_files.push(batch.name.clone());
        }
    }
    state.install(records)?;
    Ok(imported)
}
