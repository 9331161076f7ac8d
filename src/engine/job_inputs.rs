//! Inputs of a job that are outputs of other jobs: how those ended, where their outputs lie now, and how long they are
//! where that is what is taken.
//!
//! The service is given its own result links, as the task's record tells them at that moment: nobody says how long a link
//! lasts. Each is tried before it is sent, so that nothing is charged for a job whose input is gone.

mod length;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::api::{DownloadError, Version};
use crate::domain::ids::{BatchNo, JobId, JobKey, TaskId};
use crate::domain::job::JobSpec;
use crate::domain::job_reference::{EndedTake, FoundInput, JobInput};
use crate::domain::task::{Fault, ReadAnswer, TaskStatus};
use crate::engine::scheduler::{InputFault, ended_take};
use crate::engine::{EngineDeps, blocking};
use crate::store::{JobRecord, Store, StoreError};

/// Code of a job whose input the service has no more.
const INPUT_GONE: &str = "input_gone";

/// How the jobs of a batch ended: the last outcome of each.
pub(super) fn ended_jobs(store: &Store, no: BatchNo) -> Result<Vec<(JobId, EndedTake)>, StoreError> {
    let Some(batch) = store.batch(no)? else { return Ok(Vec::new()) };
    let mut ended = BTreeMap::new();
    let mut outcomes = store.spool(no).outcomes(0, store.outcomes_bytes(&batch)?)?;
    while let Some((_, record)) = outcomes.next_line::<JobRecord>()? {
        ended.insert(record.id, ended_take(&record));
    }
    Ok(ended.into_iter().collect())
}

/// Where the inputs of a job lie now, in the order of its references. `givers` are the jobs that give them.
pub(super) async fn find(
    deps: &EngineDeps,
    store: &Arc<Store>,
    exchanges: &Semaphore,
    (own, spec): (BatchNo, &JobSpec),
    givers: &[JobKey],
) -> Result<Vec<FoundInput>, InputFault> {
    let mut inputs = Vec::with_capacity(givers.len());
    let mut known: BTreeMap<JobKey, (JobId, Vec<String>)> = BTreeMap::new();
    for (input, giver) in spec.order.inputs.iter().zip(givers) {
        if input.field.is_length() {
            inputs.push(length::find(deps, store, exchanges, (own, spec), input, *giver).await?);
            continue;
        }
        if !known.contains_key(giver) {
            // Closed only when the program ends.
            let _permit = exchanges.acquire().await;
            known.insert(*giver, results(deps, store, spec, input, *giver).await?);
        }
        let Some((job, results)) = known.get(giver) else { continue };
        let place = usize::try_from(input.output).unwrap_or(usize::MAX).saturating_sub(1);
        let Some(address) = results.get(place) else {
            let (wanted, there) = (input.output, results.len());
            return Err(gone(input, &format!("has {there} outputs, and output {wanted} is wanted")));
        };
        answers(deps, input, address).await?;
        inputs.push(FoundInput { address: address.clone(), take: input.choice(*job), length: None });
    }
    Ok(inputs)
}

fn gone(input: &JobInput, why: &str) -> InputFault {
    InputFault::Lasting(Fault::new(
        INPUT_GONE,
        format!("the row {} {why}; nothing was charged", input.shown()),
    ))
}

/// A job and its result links, as its task's record tells them now.
async fn results(
    deps: &EngineDeps,
    store: &Arc<Store>,
    spec: &JobSpec,
    input: &JobInput,
    giver: JobKey,
) -> Result<(JobId, Vec<String>), InputFault> {
    let store = store.clone();
    let task = blocking(move || -> Result<Option<(JobId, TaskId)>, StoreError> {
        let Some(batch) = store.batch(giver.batch)? else { return Ok(None) };
        Ok(store.outcome(&batch, giver.seq)?.and_then(|record| Some((record.id, record.job.task()?.clone()))))
    });
    let task = task.await.map_err(|error| InputFault::Passing(Fault::new("state", error.to_string())))?;
    let Some((job, task)) = task else { return Err(gone(input, "has no task")) };
    deps.polls.wait().await;
    match deps.service.read_task(&spec.order, &task).await {
        ReadAnswer::Task(reading) if reading.status == TaskStatus::Success => Ok((job, reading.urls)),
        ReadAnswer::Task(reading) => Err(gone(
            input,
            &format!("has the task {task}, which is {:?} at the service now", reading.status),
        )),
        ReadAnswer::Missing(_) => {
            Err(gone(input, &format!("has the task {task}, which the service does not know any more")))
        }
        ReadAnswer::Unauthorised(fault) | ReadAnswer::Again { fault, .. } => Err(InputFault::Passing(fault)),
    }
}

/// Whether a link still leads to something.
async fn answers(deps: &EngineDeps, input: &JobInput, address: &str) -> Result<(), InputFault> {
    let opened = deps.downloads.open(address, 0, &Version::default()).await;
    opened.map(drop).map_err(|error| link_fault(input, error))
}

/// What a link means that cannot be fetched.
fn link_fault(input: &JobInput, error: DownloadError) -> InputFault {
    match error {
        error @ DownloadError::Status(status) if status >= 500 || status == 429 => {
            InputFault::Passing(error.into())
        }
        error @ DownloadError::Broken(_) => InputFault::Passing(error.into()),
        error => gone(input, &format!("has a result link that cannot be used: {error}")),
    }
}
