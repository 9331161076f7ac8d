//! How long an output of another job is, for a job that is to be as long.
//!
//! What that job's request said of its length holds. Otherwise its file is measured, by a process of its own, since
//! outputs come from elsewhere: the one on this disk, or, where that is gone or was edited, its object in the store, or the
//! one at the service.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Number, Value};
use tempfile::NamedTempFile;
use tokio::sync::Semaphore;

use crate::api::{DownloadError, Version};
use crate::domain::gone_input::UnusedCopy;
use crate::domain::ids::{BatchName, BatchNo, JobKey};
use crate::domain::job::{JobSpec, OutputFile};
use crate::domain::job_reference::{self, FoundInput, JobInput};
use crate::domain::quote::{LengthError, milliseconds_of, unfit_length};
use crate::domain::request::Kind;
use crate::domain::task::{DISK_FAULT, Fault};
use crate::domain::time::Millis;
use crate::engine::input_store::state_fault;
use crate::engine::job_inputs::{
    from_store, gone, link_fault, not_on_disk, parent_unreadable, results, unhelped,
};
use crate::engine::row_reader::RowReader;
use crate::engine::scheduler::InputFault;
use crate::engine::{EngineDeps, blocking};
use crate::output::detect_media_type;
use crate::output::open_output::open_output;
use crate::output::publish::hash;
use crate::pages::decoder_process::DecoderProcess;
use crate::store::{JobRecord, Store, StoreError};
use callsheet_media_facts::MediaQuestion;

/// Bytes that tell what a file is.
const HEAD_BYTES: usize = 4096;

/// The job whose output it is.
struct ParentJob {
    batch: BatchName,
    record: JobRecord,
    spec: Arc<JobSpec>,
}

/// What is found for an input of which the length is taken, of a job of the batch `own`.
pub(super) async fn find(
    deps: &EngineDeps,
    store: &Arc<Store>,
    exchanges: &Semaphore,
    (own, spec): (BatchNo, &JobSpec),
    input: &JobInput,
    key: JobKey,
) -> Result<FoundInput, InputFault> {
    let parent = parent_of(store, input, key).await?.ok_or_else(|| gone(input, "has no task"))?;
    let take = input.choice(parent.record.id);
    // The plan knew it.
    if !spec.order.is_open(input.field) {
        let options = spec.order.body.get("options");
        let planned = options.as_ref().and_then(|options| options.get(input.field.name()));
        let address = planned.map(|length| length.as_str().map_or_else(|| length.to_string(), str::to_owned));
        return Ok(FoundInput { address: address.unwrap_or_default(), take, length: None });
    }
    let found = |length| FoundInput { address: String::new(), take, length: Some(length) };
    let body = parent.spec.order.body_with_length(parent.record.job.present().inputs());
    let asked = job_reference::seconds_of(parent.spec.order.kind, &body);
    if let Some(asked) = asked.as_ref().and_then(milliseconds_of) {
        return Ok(found(asked));
    }
    let place = usize::try_from(input.output).unwrap_or(usize::MAX).saturating_sub(1);
    let output = parent.record.job.outputs().get(place).cloned();
    let unused = output.as_ref().map_or(UnusedCopy::NoSuchOutput, not_on_disk);
    let local = local(deps, &parent.batch, output.clone()).await;
    let stored = match &output {
        Some(output) if local.is_none() => from_store(deps, output).await?,
        _ => None,
    };
    let measured = match (local, stored, output) {
        (Some((path, output)), ..) => measure(path, output.bytes, output.content_type).await?,
        (None, Some((file, path)), Some(output)) => {
            let length = measure(path, output.bytes, output.content_type).await;
            // It is removed off the runtime's threads.
            blocking(move || drop(file)).await;
            length?
        }
        _ => match at_service(deps, exchanges, spec, input, place, &parent).await {
            Err(InputFault::Lasting(fault)) => {
                return Err(unhelped(store, (own, spec), input, fault, &unused).await);
            }
            measured => measured?,
        },
    };
    if let Some(measured) = measured {
        return Ok(found(measured));
    }
    let batch = blocking({
        let store = store.clone();
        move || store.batch(own)
    });
    let batch =
        batch.await.map_err(|error| state_fault(&error))?.map(|batch| batch.name).unwrap_or(parent.batch);
    let why = LengthError::NotTaken("has an output that does not tell how long it is".to_owned());
    Err(InputFault::Lasting(unfit_length(&why, input, &batch, &spec.label)))
}

/// How long the output is that the service has; nothing where it does not tell.
async fn at_service(
    deps: &EngineDeps,
    exchanges: &Semaphore,
    spec: &JobSpec,
    input: &JobInput,
    place: usize,
    parent: &ParentJob,
) -> Result<Option<Millis>, InputFault> {
    let links = {
        // Closed only when the program ends. A download may take long: it keeps no reading of a task waiting.
        let _permit = exchanges.acquire().await;
        results(deps, spec, input, &parent.record).await?
    };
    let link = links.get(place).ok_or_else(|| gone(input, "has no such output"))?;
    remote(deps, parent.spec.order.kind, input, link).await
}

async fn parent_of(
    store: &Arc<Store>,
    input: &JobInput,
    key: JobKey,
) -> Result<Option<ParentJob>, InputFault> {
    let store = store.clone();
    let look = move || -> Result<Option<ParentJob>, StoreError> {
        let Some(batch) = store.batch(key.batch)? else { return Ok(None) };
        let Some(record) = store.job_with_outputs(&batch, key.seq)? else { return Ok(None) };
        let spec = RowReader::new(&store).spec_at(key.batch, record.row_at)?;
        Ok(Some(ParentJob { batch: batch.name, record, spec }))
    };
    blocking(look).await.map_err(|error| parent_unreadable(input, &error))
}

/// An output on this disk, as it was downloaded; nothing where it is gone or was edited.
async fn local(
    deps: &EngineDeps,
    batch: &BatchName,
    output: Option<OutputFile>,
) -> Option<(PathBuf, OutputFile)> {
    let (output, output_dir, batch) = (output?, deps.output_dir.clone(), batch.clone());
    let look = move || {
        let mut file = open_output(&output_dir, &batch, &output).ok()?;
        hash(&mut file).ok().filter(|sha256| *sha256 == output.sha256)?;
        let path = std::path::absolute(output_dir.batch_dir(&batch).join(&output.path)).ok()?;
        Some((path, output))
    };
    blocking(look).await
}

/// How long a file is; nothing where it does not tell.
async fn measure(path: PathBuf, bytes: u64, content_type: String) -> Result<Option<Millis>, InputFault> {
    let question = MediaQuestion { path, bytes, content_type, thumbnail: PathBuf::new(), length_only: true };
    let ask = move || {
        let mut process = DecoderProcess::start()?;
        Some(process.ask(&question).and_then(|facts| facts.seconds))
    };
    let Some(seconds) = blocking(ask).await else {
        let fault = Fault::new("measure", "the process that measures outputs cannot be started");
        return Err(InputFault::Passing(fault));
    };
    let seconds = seconds.and_then(Number::from_f64).map(Value::Number);
    Ok(seconds.as_ref().and_then(milliseconds_of).filter(|length| length.0 > 0))
}

/// How long the file at a result link is.
async fn remote(
    deps: &EngineDeps,
    kind: Kind,
    input: &JobInput,
    link: &str,
) -> Result<Option<Millis>, InputFault> {
    let here = |error: std::io::Error| InputFault::Passing(Fault::new(DISK_FAULT, error.to_string()));
    let broken = |error: DownloadError| link_fault(input, error);
    let mut opened = deps.downloads.open(link, 0, &Version::default()).await.map_err(broken)?;
    let declared = opened.content_type.clone();
    let mut file = blocking(NamedTempFile::new).await.map_err(here)?;
    let (mut bytes, mut head) = (0_u64, Vec::new());
    while let Some(chunk) = opened.chunk().await.map_err(broken)? {
        let chunk = chunk.as_ref().to_vec();
        bytes = bytes.saturating_add(chunk.len() as u64);
        if bytes > deps.max_file_bytes {
            return Ok(None);
        }
        head.extend(chunk.iter().take(HEAD_BYTES.saturating_sub(head.len())));
        let write = move || file.write_all(&chunk).map(|()| file);
        file = blocking(write).await.map_err(here)?;
    }
    if opened.total.is_some_and(|total| total != bytes) {
        let text = format!("{bytes} bytes came of a result, and more were announced");
        return Err(InputFault::Passing(Fault::new("download", text)));
    }
    let Ok(media) = detect_media_type(kind, &head, declared.as_deref(), link) else { return Ok(None) };
    let length = measure(file.path().to_owned(), bytes, media.content_type).await;
    // It is removed off the runtime's threads.
    blocking(move || drop(file)).await;
    length
}
