//! Inputs of a job that are outputs of other jobs: how those ended, where their outputs lie now, and how long they are
//! where that is what is taken. Inputs that are files: they are uploaded.
//!
//! The service is given its own result links, as the task's record tells them at that moment: nobody says how long a link
//! lasts. Each is tried before it is sent, so that nothing is charged for a job whose input is gone. Where one is, our own
//! copy goes to the object store, if there is one.

mod measured_length;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::NamedTempFile;
use tokio::sync::Semaphore;

use crate::api::{DownloadError, Version};
use crate::domain::gone_input::{INPUT_GONE, UnusedCopy, gone_message};
use crate::domain::ids::{BatchNo, JobId, JobKey};
use crate::domain::input_file::{InputContent, InputFile, InputMedia};
use crate::domain::job::{JobSpec, OutputFile};
use crate::domain::job_reference::{EndedTake, FoundInput, JobInput};
use crate::domain::task::{DISK_FAULT, Fault, ReadAnswer, TaskStatus};
use crate::engine::row_reader::RowReader;
use crate::engine::scheduler::{InputFault, ended_take, take_of_open};
use crate::engine::{EngineDeps, blocking, input_store};
use crate::output::open_output::open_output;
use crate::store::staged_inputs::StagedInputs;
use crate::store::{JobRecord, Store, StoreError};

/// How the jobs of a batch ended: the last outcome of each.
///
/// # Errors
/// [`StoreError::BatchMoved`] where its files were moved away, and what keeps the state from being read.
pub(super) fn ended_jobs(store: &Store, no: BatchNo) -> Result<Vec<(JobId, EndedTake)>, StoreError> {
    let Some(batch) = store.batch(no)? else { return Ok(Vec::new()) };
    let mut ended = BTreeMap::new();
    let mut outcomes = store.spool(no).outcomes(0, store.outcomes_bytes(&batch)?)?;
    while let Some((_, record)) = outcomes.next_line::<JobRecord>()? {
        ended.insert(record.id, ended_take(&record));
    }
    // Those of a batch that this process leaves alone may have succeeded while another of their tasks is watched.
    for record in store.open_records_of(no)?.iter() {
        let record = record?;
        if record.job.has_succeeded() {
            let spec = RowReader::new(store).spec_at(no, record.row_at)?;
            ended.insert(record.id, take_of_open(&record, &spec.order));
        }
    }
    Ok(ended.into_iter().collect())
}

/// Where the inputs of a job lie now, in the order of its references, and then its files. `parents` are the jobs that give
/// them. Our own copies take the place of outputs that the service has no more; with `uses_own_copies` also of those that
/// cannot be had from it just now.
pub(super) async fn find(
    deps: &EngineDeps,
    store: &Arc<Store>,
    exchanges: &Semaphore,
    (own, spec): (BatchNo, &JobSpec),
    parents: &[JobKey],
    uses_own_copies: bool,
) -> Result<Vec<FoundInput>, InputFault> {
    let mut inputs = Vec::with_capacity(parents.len());
    // Of a task that is named several times the record is read once.
    let mut read: BTreeMap<JobKey, Result<Vec<String>, InputFault>> = BTreeMap::new();
    for (input, key) in spec.order.inputs.iter().zip(parents) {
        if input.field.is_length() {
            inputs.push(measured_length::find(deps, store, exchanges, (own, spec), input, *key).await?);
            continue;
        }
        let parent = parent(store, input, *key).await?;
        if !read.contains_key(key) {
            // Closed only when the program ends.
            let _permit = exchanges.acquire().await;
            read.insert(*key, results(deps, spec, input, &parent).await);
        }
        let address = match read.get(key) {
            Some(Ok(addresses)) => usable(deps, input, addresses).await,
            Some(Err(fault)) => Err(fault.clone()),
            None => continue,
        };
        let address = match address {
            Err(fault) if uses_own_copies || matches!(fault, InputFault::Lasting(_)) => {
                match (own_copy(deps, store, (spec, input), *key, &parent).await?, fault) {
                    (Ok(address), _) => address,
                    (Err(unused), InputFault::Lasting(fault)) => {
                        return Err(unhelped(store, (own, spec), input, fault, &unused).await);
                    }
                    (Err(_), fault) => return Err(fault),
                }
            }
            found => found?,
        };
        inputs.push(FoundInput { address, take: input.choice(parent.id), length: None });
    }
    let staged = StagedInputs::of(store.dir());
    let files = input_store::upload_all(deps.inputs.as_ref(), &staged, &spec.order).await?;
    inputs.extend(files.into_iter().map(|address| FoundInput { address, take: None, length: None }));
    Ok(inputs)
}

/// The job that gives an input, as it ended.
async fn parent(store: &Arc<Store>, input: &JobInput, key: JobKey) -> Result<JobRecord, InputFault> {
    let store = store.clone();
    let found = blocking(move || -> Result<Option<JobRecord>, StoreError> {
        let Some(batch) = store.batch(key.batch)? else { return Ok(None) };
        store.job_with_outputs(&batch, key.seq)
    });
    match found.await {
        Ok(found) => found.ok_or_else(|| gone(input, "has no outcome")),
        Err(error) => Err(parent_unreadable(input, &error)),
    }
}

/// The job that gives an input cannot be read. Files that were moved away do not come back by waiting.
fn parent_unreadable(input: &JobInput, error: &StoreError) -> InputFault {
    match error {
        StoreError::BatchMoved { .. } => gone(input, &format!("cannot be read: {error}")),
        _ => input_store::state_fault(error),
    }
}

/// The link that is wanted among those of a task, tried.
async fn usable(deps: &EngineDeps, input: &JobInput, addresses: &[String]) -> Result<String, InputFault> {
    let place = usize::try_from(input.output).unwrap_or(usize::MAX).saturating_sub(1);
    let Some(address) = addresses.get(place) else {
        let (wanted, there) = (input.output, addresses.len());
        return Err(gone(input, &format!("has {there} outputs, and output {wanted} is wanted")));
    };
    answers(deps, input, address).await.map(|()| address.clone())
}

/// Our own copy of an output that the service has no more: put into the object store like a file that a row names.
///
/// Why it cannot be used, where there is no store, no such copy, or one that somebody edited.
async fn own_copy(
    deps: &EngineDeps,
    store: &Arc<Store>,
    (spec, input): (&JobSpec, &JobInput),
    key: JobKey,
    parent: &JobRecord,
) -> Result<Result<String, UnusedCopy>, InputFault> {
    let place = usize::try_from(input.output).unwrap_or(usize::MAX).saturating_sub(1);
    let Some(output) = parent.job.outputs().get(place).cloned() else {
        return Ok(Err(UnusedCopy::NoSuchOutput));
    };
    let Some(media) = InputMedia::of_content_type(&output.content_type) else {
        return Ok(Err(UnusedCopy::NoCopy));
    };
    let Some(inputs) = &deps.inputs else { return Ok(Err(UnusedCopy::NoStore)) };
    let content = InputContent { sha256: output.sha256.clone(), bytes: output.bytes, media, seconds: None };
    let staged = StagedInputs::of(store.dir());
    let file = InputFile { field: input.field, place: input.place, name: input.shown(), content };
    loop {
        let knew_object = staged.is_uploaded(&output.sha256);
        let (copy, copied, output_dir) = (store.clone(), staged.clone(), deps.output_dir.clone());
        let local = output.clone();
        let is_copied = blocking(move || -> Result<bool, StoreError> {
            let Some(batch) = copy.batch(key.batch)? else { return Ok(false) };
            let Ok(mut file) = open_output(&output_dir, &batch.name, &local) else { return Ok(false) };
            Ok(copied.copy(&mut file, &local.sha256).is_ok())
        });
        let is_copied = is_copied.await;
        let is_copied = is_copied.map_err(|error| parent_unreadable(input, &error))?;
        if !is_copied && !copy_from_store(deps, &staged, &output).await? {
            return Ok(Err(not_on_disk(&output)));
        }
        match inputs.upload_for(&spec.order, &staged, &file).await {
            // What was uploaded once is gone from there, and that is known now: our copy goes there again.
            Err(InputFault::Lasting(fault)) if knew_object && fault.code == INPUT_GONE => {}
            found => return found.map(Ok),
        }
    }
}

/// Hands an output over that is in the object store of outputs, and not on disk any more. False where it is not there.
async fn copy_from_store(
    deps: &EngineDeps,
    staged: &StagedInputs,
    output: &OutputFile,
) -> Result<bool, InputFault> {
    let Some((file, _)) = from_store(deps, output).await? else { return Ok(false) };
    let (copied, sha256) = (staged.clone(), output.sha256.clone());
    let copy = move || {
        let mut file = file.reopen()?;
        copied.copy(&mut file, &sha256).map_err(std::io::Error::other)
    };
    let copied = blocking(copy).await;
    copied.map(|()| true).map_err(|error| input_store::state_fault(&error))
}

/// A copy of an output that is in the object store of outputs, with its path; nothing where it is not there.
async fn from_store(
    deps: &EngineDeps,
    output: &OutputFile,
) -> Result<Option<(NamedTempFile, PathBuf)>, InputFault> {
    let (Some(outputs), Some(address)) = (&deps.outputs, &output.object) else { return Ok(None) };
    let file = blocking(NamedTempFile::new).await;
    let file = file.map_err(|error| InputFault::Passing(Fault::new(DISK_FAULT, error.to_string())))?;
    let path = file.path().to_owned();
    match outputs.copy_to(address, &path, output).await {
        Ok(true) => Ok(Some((file, path))),
        Ok(false) => Ok(None),
        Err(fault) => Err(InputFault::Passing(fault.fault().clone())),
    }
}

fn not_on_disk(output: &OutputFile) -> UnusedCopy {
    UnusedCopy::NotOnDisk { path: output.path.clone(), has_object: output.object.is_some() }
}

/// An output that is gone, and why our own copy was not used: with what helps.
async fn unhelped(
    store: &Arc<Store>,
    (own, spec): (BatchNo, &JobSpec),
    input: &JobInput,
    mut fault: Fault,
    unused: &UnusedCopy,
) -> InputFault {
    let store = store.clone();
    let batch = match blocking(move || store.batch(own)).await {
        Ok(Some(batch)) => batch.name,
        Ok(None) => return InputFault::Lasting(fault),
        Err(error) => return input_store::state_fault(&error),
    };
    let parent_batch = input.batch.as_ref().map_or(&batch, |other| &other.name);
    let helps = unused.what_helps((&batch, &spec.label), (parent_batch, &input.row));
    fault.message.push_str(&format!("; {helps}"));
    InputFault::Lasting(fault)
}

fn gone(input: &JobInput, why: &str) -> InputFault {
    InputFault::Lasting(Fault::new(INPUT_GONE, gone_message(&input.shown(), why)))
}

/// The result links of a job, as its task's record tells them now.
async fn results(
    deps: &EngineDeps,
    spec: &JobSpec,
    input: &JobInput,
    parent: &JobRecord,
) -> Result<Vec<String>, InputFault> {
    let Some(task) = parent.job.task() else { return Err(gone(input, "has no task")) };
    deps.polls.wait().await;
    match deps.service.read_task(&spec.order, task).await {
        ReadAnswer::Task(reading) if reading.status == TaskStatus::Success => Ok(reading.urls),
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
        error @ (DownloadError::Unavailable { .. } | DownloadError::Broken(_)) => {
            InputFault::Passing(error.into())
        }
        error => gone(input, &format!("has a result link that cannot be used: {error}")),
    }
}
