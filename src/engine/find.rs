//! What a name means: a batch, or a job by its label, its identity, or `BATCH/JOB`. Reading writes nothing.

use crate::domain::ids::BatchName;
use crate::domain::job::JobSpec;
use crate::engine::EngineError;
use crate::engine::engine_client::{FindError, Target};
use crate::engine::job_iter::JobIter;
use crate::store::{BatchRecord, JobRecord, Store};

/// Fewest characters of an identity that name a job.
const IDENTITY_MIN: usize = 8;

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

/// `named` is the batch before the slash, where there is one.
fn job(store: &Store, text: &str, named: Option<BatchRecord>) -> Result<Target, FindError> {
    let mut batches = store.listed_batches().map_err(EngineError::from)?;
    if let Some(named) = named
        && batches.iter().all(|batch| batch.no != named.no)
    {
        batches.push(named);
    }
    let mut found = find_jobs(store, &batches, text)?;
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

/// Every job called so, with its batch.
fn find_jobs(
    store: &Store,
    batches: &[BatchRecord],
    text: &str,
) -> Result<Vec<(BatchRecord, JobSpec, JobRecord)>, EngineError> {
    let mut found = Vec::new();
    for batch in batches {
        // `BATCH/JOB` names the batch, where two batches have a job of one name.
        let within = text.strip_prefix(batch.name.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let names: Vec<&str> = [Some(text), within].into_iter().flatten().collect();
        let mut jobs = JobIter::open(store, batch)?;
        while let Some((spec, record)) = jobs.next_job()? {
            if names.iter().any(|name| is_called(&spec, name)) {
                found.push((batch.clone(), spec, record));
            }
        }
    }
    Ok(found)
}

/// Whether `text` names the job: its label, its identity, or the beginning of that.
fn is_called(spec: &JobSpec, text: &str) -> bool {
    spec.label == text || text.len() >= IDENTITY_MIN && spec.id.to_string().starts_with(text)
}
