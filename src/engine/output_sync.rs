//! Outputs on disk and in the object store: what is published is put there, and `outputs sync` brings what lies on one
//! side to the other.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::domain::ids::JobId;
use crate::domain::job::{JobSpec, OutputFile, State};
use crate::domain::task::Fault;
use crate::engine::engine_client::EngineClient;
use crate::engine::name_lookup::Target;
use crate::engine::output_store::{KeepFault, Kept, OutputStore, StoredJob};
use crate::engine::scheduler::{AppliedVersions, Command, FetchFault, FetchOrder, FoundJob};
use crate::engine::scratch_files::remove_copies;
use crate::engine::target_jobs::TargetJobs;
use crate::engine::{EngineDeps, EngineError, blocking, edited_rows};
use crate::output::file_names::Layout;
use crate::output::publish::OutputDir;
use crate::store::{BatchRecord, JobRecord, Store};

/// Jobs that are compared with the store at once.
const AT_ONCE: usize = 8;
/// Jobs of one commit, at most.
const NOTED_MAX: usize = 100;
/// Jobs of each sort that are named because they were not brought over.
const NAMED_MAX: usize = 20;

/// What became of the outputs of a batch or a job.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SyncOutcome {
    /// Jobs whose outputs are on disk and in the store now.
    pub jobs: u32,
    /// Jobs of which something was put into the store.
    pub uploaded: u32,
    /// Jobs whose outputs were brought back to disk.
    pub restored: u32,
    /// Jobs whose outputs are neither on disk nor in the store.
    pub missing: u32,
    /// Some of these by their labels.
    pub missing_jobs: Vec<String>,
    /// Jobs of which the store or the disk refuses an output, while it takes others.
    pub refused: Option<RefusedOutputs>,
    /// Why it stopped: the store cannot be used, or the disk is full.
    pub fault: Option<Fault>,
}

/// Jobs of which the store or the disk refuses an output.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedOutputs {
    /// How many they are.
    pub jobs: u32,
    /// Some of them by their labels.
    pub named: Vec<String>,
    /// Why the first of them was refused.
    pub why: String,
}

/// What became of one job.
enum Synced {
    Stored { is_new: bool, is_restored: bool, files: Vec<OutputFile> },
    Missing,
}

impl From<KeepFault> for FetchFault {
    fn from(fault: KeepFault) -> FetchFault {
        match fault {
            KeepFault::Store(fault) => FetchFault::StoreRefuses(fault),
            KeepFault::Object(fault) => FetchFault::ObjectRefused(fault),
            KeepFault::File(fault) => FetchFault::Passing(fault),
            KeepFault::Disk { fault, wanted_bytes } => FetchFault::DiskRefuses { fault, wanted_bytes },
        }
    }
}

/// Puts the outputs of a job that were just published into the store, where there is one. `versions` are the other versions
/// of its row.
///
/// # Errors
/// [`KeepFault`].
pub(super) async fn keep_fetched(
    deps: &EngineDeps,
    order: &FetchOrder,
    versions: &[JobId],
    files: Vec<OutputFile>,
) -> Result<Vec<OutputFile>, KeepFault> {
    let Some(store) = &deps.outputs else { return Ok(files) };
    let layout = Layout::of_batch(order.layout.as_deref(), &deps.layout);
    let (spec, job) = (&*order.spec, &order.job);
    let stored = StoredJob { batch: &order.batch, layout: &layout, spec, job, versions };
    Ok(store.keep(&deps.output_dir, stored, files).await?.files)
}

/// Puts outputs that have other names now into the store under these, where there is one. A job whose files cannot be read
/// is left out with a warning: it fails no other job. Returns the jobs whose objects keep their names for that reason, and must
/// not be replaced.
///
/// # Errors
/// [`KeepFault`]; some of them may be there.
pub(super) async fn keep_renamed(
    deps: &EngineDeps,
    state: &Arc<Store>,
    applied: &mut AppliedVersions,
) -> Result<Vec<JobId>, KeepFault> {
    let mut left = Vec::new();
    let Some(store) = &deps.outputs else { return Ok(left) };
    if applied.renamed.is_empty() {
        return Ok(left);
    }
    let unread = |text: String| KeepFault::File(Fault::new("state", text));
    let (present, no) = (state.clone(), applied.batch);
    let batch = blocking(move || present.batch(no)).await.map_err(|error| unread(error.to_string()))?;
    let Some(batch) = batch else { return Ok(left) };
    let layout = Layout::of_batch(batch.layout(), &deps.layout);
    for renamed in &mut applied.renamed {
        let versions = versions_of(state, &batch, &renamed.spec).await.map_err(unread)?;
        let (spec, job) = (&*renamed.spec, &renamed.record.job);
        let stored = StoredJob { batch: &batch.name, layout: &layout, spec, job, versions: &versions };
        // What is not on disk, be it that outputs do not stay there, comes from the store before.
        for (file, known) in renamed.files.iter().zip(job.outputs()) {
            if let Some(address) = &known.object {
                store.bring_back(&deps.output_dir, (&batch.name, spec.id), address, file).await?;
            }
        }
        match store.keep(&deps.output_dir, stored, renamed.files.clone()).await {
            Ok(kept) => renamed.files = kept.files,
            Err(KeepFault::File(fault)) => {
                tracing::warn!(
                    batch = %batch.name, job = %spec.id, %fault,
                    "outputs of an older version of a row are missing or changed: they are not in the object store under \
                     their new name"
                );
                let mut has_objects = false;
                for (file, known) in renamed.files.iter_mut().zip(job.outputs()) {
                    if let Some(address) = &known.object
                        && store.may_have(address).await
                    {
                        (file.object, has_objects) = (Some(address.clone()), true);
                    }
                }
                left.extend(has_objects.then_some(spec.id));
                continue;
            }
            Err(fault) => return Err(fault),
        }
        if !deps.keeps_local {
            let (output_dir, batch, files) =
                (deps.output_dir.clone(), batch.name.clone(), renamed.files.clone());
            let removed = blocking(move || remove_copies(&output_dir, &batch, &files)).await;
            if let Err(error) = removed {
                tracing::warn!(%error, "a copy of an output that is in the object store stays on disk");
            }
        }
    }
    Ok(left)
}

impl EngineClient {
    /// Brings the outputs of a batch or a job to where they are not: from disk into the object store, or back, each
    /// compared by its hash. Nothing is bought, and the service is not asked.
    ///
    /// # Errors
    /// [`EngineError`] when the state refuses.
    pub async fn sync_outputs(
        &self,
        target: &Target,
        outputs: &OutputStore,
        output_dir: &OutputDir,
        default_layout: &Layout,
    ) -> Result<SyncOutcome, EngineError> {
        let (batch, target) = (target.batch().clone(), target.clone());
        let _one_at_a_time = self.syncing(batch.no).await;
        let state = self.store().clone();
        let (mut as_of, mut ended) = (state.outcomes_bytes(&batch)?, HashSet::new());
        let walk = blocking(move || {
            let jobs = TargetJobs::open(&state, &target)?;
            Ok::<_, EngineError>((state, jobs))
        });
        let (state, mut jobs) = walk.await?;
        let layout = Layout::of_batch(batch.layout(), default_layout);
        let clock = Clock::start();
        let mut outcome = SyncOutcome::default();
        let mut is_over = false;
        while !is_over && outcome.fault.is_none() {
            let reading = move || {
                let mut chunk: Vec<FoundJob> = Vec::new();
                while chunk.len() < NOTED_MAX {
                    let Some((spec, record)) = jobs.next_job()? else { return Ok((chunk, jobs, true)) };
                    if record.job.has_succeeded() {
                        chunk.push((Arc::new(spec), record));
                    }
                }
                Ok::<_, EngineError>((chunk, jobs, false))
            };
            let (chunk, rest, is_last) = blocking(reading).await?;
            (jobs, is_over) = (rest, is_last);
            let sync = |found: FoundJob| {
                let (state, batch, layout) = (&state, &batch, &layout);
                async move {
                    let synced = sync_job(outputs, output_dir, state, batch, layout, &found, clock).await;
                    (found, synced)
                }
            };
            let mut synced = stream::iter(chunk.into_iter().map(sync)).buffer_unordered(AT_ONCE);
            let mut noted = Vec::new();
            while let Some((found, synced)) = synced.next().await {
                outcome.add(&found.0, &synced);
                if let Ok(Synced::Stored { files, .. }) = synced
                    && !matches!(found.1.job.state(), State::Succeeded { files: known, .. } if *known == files)
                {
                    noted.push((found, files));
                }
            }
            drop(synced);
            if !noted.is_empty() {
                // No other command changes them between the look at what has changed and the commit.
                let _alone = self.reopening().await;
                // Those that stand otherwise since they were read are looked at again by the next sync.
                as_of = state.add_ended_since(&batch, as_of, &mut ended)?;
                noted.retain(|((_, record), _)| !ended.contains(&record.key.seq));
                self.execute_on_found(Command::NoteStored(noted), as_of).await?;
            }
        }
        Ok(outcome)
    }
}

impl SyncOutcome {
    fn add(&mut self, spec: &JobSpec, synced: &Result<Synced, KeepFault>) {
        match synced {
            Ok(Synced::Stored { is_new, is_restored, .. }) => {
                self.jobs += 1;
                self.uploaded += u32::from(*is_new);
                self.restored += u32::from(*is_restored);
            }
            Ok(Synced::Missing) => {
                self.missing += 1;
                if self.missing_jobs.len() < NAMED_MAX {
                    self.missing_jobs.push(spec.label.clone());
                }
            }
            Err(KeepFault::Store(fault) | KeepFault::Disk { fault, .. }) => {
                self.fault.get_or_insert_with(|| fault.clone());
            }
            Err(KeepFault::Object(fault) | KeepFault::File(fault)) => {
                let first = || RefusedOutputs { why: fault.message.clone(), ..RefusedOutputs::default() };
                let refused = self.refused.get_or_insert_with(first);
                refused.jobs += 1;
                if refused.named.len() < NAMED_MAX {
                    refused.named.push(spec.label.clone());
                }
            }
        }
    }
}

async fn sync_job(
    outputs: &OutputStore,
    output_dir: &OutputDir,
    state: &Arc<Store>,
    batch: &BatchRecord,
    layout: &Layout,
    (spec, record): &FoundJob,
    clock: Clock,
) -> Result<Synced, KeepFault> {
    let JobRecord { job, .. } = record;
    let State::Succeeded { files: known, .. } = job.state() else { return Ok(Synced::Missing) };
    let unread = |text: String| KeepFault::File(Fault::new("state", text));
    let versions = versions_of(state, batch, spec).await.map_err(unread)?;
    let stored = StoredJob { batch: &batch.name, layout, spec, job, versions: &versions };
    // What was never stored is read when it is uploaded, and checked by that.
    if known.iter().all(|file| file.object.is_none())
        && let Some(files) = outputs.on_disk(output_dir, stored, true).await
    {
        match outputs.keep(output_dir, stored, files).await {
            Ok(Kept { files, is_new, is_read: true }) => {
                return Ok(Synced::Stored { is_new, is_restored: false, files });
            }
            Err(fault @ (KeepFault::Store(_) | KeepFault::Object(_))) => return Err(fault),
            Ok(_) | Err(KeepFault::File(_) | KeepFault::Disk { .. }) => {}
        }
    }
    let (files, is_restored) = match outputs.on_disk(output_dir, stored, false).await {
        Some(files) => (files, false),
        None => match outputs.restore(output_dir, stored, known, clock.now().wall).await? {
            Some(files) => (files, true),
            None => return Ok(Synced::Missing),
        },
    };
    let Kept { files, is_new, .. } = outputs.keep(output_dir, stored, files).await?;
    Ok(Synced::Stored { is_new, is_restored, files })
}

/// The other versions of a row.
async fn versions_of(state: &Arc<Store>, batch: &BatchRecord, spec: &JobSpec) -> Result<Vec<JobId>, String> {
    if batch.versions_bytes == 0 {
        return Ok(Vec::new());
    }
    let (state, no, spec) = (state.clone(), batch.no, spec.clone());
    let others = blocking(move || edited_rows::others(&state, no, &spec)).await;
    Ok(others.map_err(|error| error.to_string())?.into_iter().map(|(_, spec)| spec.id).collect())
}
