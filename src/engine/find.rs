//! What a name means: a batch, or a job by its label, its identity, or `BATCH/JOB`. Reading writes nothing.

use crate::domain::ids::BatchName;
use crate::domain::job::JobSpec;
use crate::engine::EngineError;
use crate::engine::engine_client::{FindError, Target};
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// The batch called so, done or not; without a name those that are not done and the finished ones that are listed,
/// oldest first.
pub(super) fn batches(store: &Store, name: Option<&BatchName>) -> Result<Vec<BatchRecord>, FindError> {
    let listed = || store.listed_batches().map_err(EngineError::from);
    let Some(name) = name else { return Ok(listed()?) };
    if let Some(found) = store.batch_named(name).map_err(EngineError::from)? {
        return Ok(vec![found]);
    }
    let known = listed()?.iter().map(|batch| batch.name.to_string()).collect();
    Err(FindError::NoBatch { name: name.to_string(), known })
}

/// A batch first, then a job.
pub(super) fn target(store: &Store, text: &str) -> Result<Target, FindError> {
    // `BATCH` or `BATCH/JOB`
    let first = text.split_once('/').map_or(text, |(batch, _)| batch);
    let named = match first.parse() {
        Ok(name) => store.batch_named(&name).map_err(EngineError::from)?,
        Err(_) => None,
    };
    match named {
        Some(batch) if first == text => Ok(Target::Batch(Box::new(batch))),
        named => job(store, text, named),
    }
}

/// A job with its batch and its row.
type Found = (BatchRecord, JobSpec, JobRecord);

/// `named` is the batch before the slash, where there is one. A name without a batch is looked for in the batches that
/// are not done, then in the finished ones that are listed.
fn job(store: &Store, text: &str, named: Option<BatchRecord>) -> Result<Target, FindError> {
    let mut found = jobs(store, text, named).map_err(EngineError::from)?;
    match found.len() {
        0 => Err(FindError::Nothing(text.to_owned())),
        1 => {
            let (batch, spec, record) = found.remove(0);
            Ok(Target::Job(Box::new(batch), Box::new(spec), Box::new(record)))
        }
        count => {
            let (batch, spec, _) = &found[0];
            let same_batch = found.iter().filter(|(other, ..)| other.no == batch.no).count() > 1;
            let example =
                if same_batch { spec.id.to_string() } else { format!("{}/{}", batch.name, spec.label) };
            Err(FindError::Several { text: text.to_owned(), count, example })
        }
    }
}

/// Every job called so.
fn jobs(store: &Store, text: &str, named: Option<BatchRecord>) -> Result<Vec<Found>, StoreError> {
    let mut found = Vec::new();
    if let Some((batch, (_, job))) = named.zip(text.split_once('/')) {
        add_called(store, batch, job, &mut found)?;
    }
    for batch in store.batches()? {
        add_called(store, batch, text, &mut found)?;
    }
    if found.is_empty() {
        for line in store.listed_finished()?.iter().filter(|line| store.may_have_job(line, text)) {
            match store.batch(line.no) {
                Ok(batch) => batch.map_or(Ok(()), |batch| add_called(store, batch, text, &mut found))?,
                Err(StoreError::BatchMoved { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// Adds the jobs of a batch that are called so.
fn add_called(store: &Store, batch: BatchRecord, text: &str, found: &mut Vec<Found>) -> Result<(), StoreError> {
    for (at, spec) in store.rows_called(&batch, text)? {
        let record = store.job_at(&batch, at, &spec)?;
        found.push((batch.clone(), spec, record));
    }
    Ok(())
}
