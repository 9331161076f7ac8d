//! The answers to requests, from an engine and its state.

use std::io;

use crate::domain::budget::BudgetSetting;
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::ids::{AttemptNo, BatchName, BatchNo};
use crate::domain::job::State;
use crate::domain::job_state::JobState;
use crate::domain::path_text::ExactPath;
use crate::domain::shell_word::shell_word;
use crate::domain::task::{DISK_FAULT, Fault};
use crate::engine::engine_client::{EngineClient, Reopening};
use crate::engine::gallery::Gallery;
use crate::engine::job_iter::JobIter;
use crate::engine::output_store::OutputStore;
use crate::engine::output_sync::SyncOutcome;
use crate::engine::scheduler::{Command, CommandOutcome};
use crate::engine::{self, EngineError, FindError, Target, blocking};
use crate::ingest::ingest_handle::IngestHandle;
use crate::output::file_names::Layout;
use crate::output::publish::OutputDir;
use crate::output::results::ResultLine;
use crate::server::protocol::{
    BatchOutcome, BatchOutcomes, BudgetSet, GalleryPage, LedgerEntry, Refusal, ResolveRequest, RetryRequest,
    SyncedOutputs,
};
use crate::store::dump::DumpError;
use crate::store::{BatchRecord, Pause, Store, StoreError};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// What was asked for is not there.
    #[error(transparent)]
    Find(FindError),
    /// The state refuses.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A manifest is being read for the batch, and what it adds would not be sent, or be sent unseen.
    #[error("a manifest is being read for batch {batch}; nothing was continued")]
    ManifestRead {
        /// The batch.
        batch: BatchName,
    },
    /// A job was asked for, and only a batch is called so.
    #[error("{batch} is a batch; no job has this name")]
    IsBatch {
        /// The batch.
        batch: BatchName,
    },
    /// The engine does not carry a command out.
    #[error("{batch}: {why}")]
    Refused {
        /// The batch.
        batch: BatchName,
        /// Why.
        why: String,
    },
    /// Outputs stay on disk alone.
    #[error("there is no object store for outputs")]
    NoOutputStore,
    /// Outputs could not be compared with the object store.
    #[error("nothing was downloaded: outputs could not be compared with the object store: {fault}")]
    NotCompared {
        /// What was to be downloaded.
        name: String,
        /// Why: the store cannot be used, or the disk is full.
        fault: Fault,
    },
    /// The client has disconnected.
    #[error("failed to write the response: {0}")]
    Reader(#[from] io::Error),
}

impl From<FindError> for HandlerError {
    fn from(error: FindError) -> HandlerError {
        match error {
            // It may well be there.
            FindError::Engine(error) => HandlerError::Engine(error),
            error => HandlerError::Find(error),
        }
    }
}

impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> HandlerError {
        HandlerError::Engine(error.into())
    }
}

impl HandlerError {
    /// What the client is told.
    pub fn refusal(&self) -> Refusal {
        match self {
            HandlerError::Find(FindError::Nothing { .. }) => Refusal::new(Exit::Usage, self.to_string())
                .hint("list jobs with callsheet jobs; name a job as BATCH/JOB"),
            HandlerError::Find(FindError::Several { batch: Some(batch), .. }) => {
                Refusal::new(Exit::Usage, self.to_string()).hint(format!(
                    "name one by its identity, or the beginning of it; each job's is job in: callsheet jobs {batch} --json"
                ))
            }
            HandlerError::Find(FindError::Several { .. }) => {
                Refusal::new(Exit::Usage, self.to_string()).hint("name one as BATCH/JOB or by its identity")
            }
            HandlerError::Find(FindError::NoBatch { .. }) | HandlerError::Refused { .. } => Refusal::new(Exit::Usage, self.to_string()),
            HandlerError::Find(FindError::Engine(error)) | HandlerError::Engine(error) => error.into(),
            HandlerError::ManifestRead { .. } => Refusal::new(Exit::Usage, self.to_string())
                .hint("wait until the manifest is accepted, check the waiting rows (callsheet status), then repeat the command"),
            HandlerError::IsBatch { batch } => Refusal::new(Exit::Usage, self.to_string())
                .hint(format!("list its jobs with callsheet jobs {batch}; name a job as {batch}/JOB")),
            HandlerError::NoOutputStore => Refusal::new(Exit::Usage, self.to_string())
                .hint("set output.store in the configuration; see docs/outputs.md"),
            HandlerError::NotCompared { name, fault } => {
                let exit = if fault.code == DISK_FAULT { Exit::Disk } else { Exit::Unreachable };
                Refusal::new(exit, self.to_string()).hint(format!(
                    "see callsheet doctor; when the store and the disk can be used again, repeat: callsheet download {}",
                    shell_word(name)
                ))
            }
            HandlerError::Reader(_) => Refusal::new(Exit::Disk, self.to_string()),
        }
    }
}

/// Hands over the result of every job of the batches as one line of JSON, in manifest order, or of those
/// in one state.
///
/// # Errors
/// [`HandlerError`]; what `sink` refuses ends it.
pub fn jobs(
    store: &Store,
    batches: &[BatchRecord],
    state: Option<JobState>,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), HandlerError> {
    let mut line = Vec::new();
    for batch in batches {
        let mut jobs = JobIter::open(store, batch)?;
        while let Some((spec, record)) = jobs.next_job()? {
            if state.is_some_and(|state| state != record.job.state().job_state()) {
                continue;
            }
            line.clear();
            let is_superseded = jobs.versions().is_superseded(spec.seq);
            let result = ResultLine::new(&batch.name, &spec, &record.job, is_superseded);
            serde_json::to_writer(&mut line, &result).map_err(io::Error::from)?;
            line.push(b'\n');
            sink(&line)?;
        }
    }
    Ok(())
}

/// Hands over every job that has begun and not ended as one line of JSON.
///
/// # Errors
/// [`HandlerError`]; what `sink` refuses ends it.
pub fn open(store: &Store, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), HandlerError> {
    for job in store.open_now()? {
        let mut line = serde_json::to_vec(&job).map_err(io::Error::from)?;
        line.push(b'\n');
        sink(&line)?;
    }
    Ok(())
}

/// Hands over every movement of the batches as one line of JSON, job by job.
///
/// # Errors
/// [`HandlerError`]; what `sink` refuses ends it.
pub fn ledger(
    store: &Store,
    batches: &[BatchRecord],
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), HandlerError> {
    let mut text = Vec::new();
    for batch in batches {
        let mut jobs = JobIter::open(store, batch)?;
        while let Some((spec, record)) = jobs.next_job()? {
            let superseded = jobs.versions().is_superseded(spec.seq);
            for line in record.job.history() {
                let Some(movement) = line.movement else { continue };
                let task = record.job.task_of(line.attempt);
                let entry = LedgerEntry {
                    time: line.at.to_string(),
                    batch: batch.name.clone(),
                    job: spec.label.clone(),
                    job_id: spec.id.to_string(),
                    attempt: line.attempt.0,
                    movement,
                    task_id: task.map(ToString::to_string).unwrap_or_default(),
                    kind: spec.order.kind.name().to_owned(),
                    model: record.job.ran_model().or(spec.order.model.as_deref()).map(str::to_owned),
                    meta: spec.order.meta.fields(),
                    superseded,
                };
                text.clear();
                serde_json::to_writer(&mut text, &entry).map_err(io::Error::from)?;
                text.push(b'\n');
                sink(&text)?;
            }
        }
    }
    Ok(())
}

/// Hands over the whole state as a dump, as it is at this moment.
///
/// # Errors
/// [`HandlerError`]; what `sink` refuses ends it.
pub fn export(store: &Store, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), HandlerError> {
    store.export(SinkWriter(sink)).map_err(|error| match error {
        DumpError::Store(error) => error.into(),
        DumpError::Io(error) => HandlerError::Reader(error),
        error => HandlerError::Reader(io::Error::other(error)),
    })
}

/// Where lines go, as something that is written to.
struct SinkWriter<'a>(&'a mut dyn FnMut(&[u8]) -> io::Result<()>);

impl io::Write for SinkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Pauses the batch called so, or all that are not done.
///
/// # Errors
/// [`HandlerError`].
pub async fn pause(engine: &EngineClient, batch: Option<&BatchName>) -> Result<BatchOutcomes, HandlerError> {
    let done = |record: &BatchRecord| record.is_done().then_some("done, nothing to pause");
    for_each(engine, batch, Command::Pause, done).await
}

/// The batch called so.
///
/// # Errors
/// [`HandlerError`].
pub async fn find_batch(engine: &EngineClient, name: &BatchName) -> Result<BatchRecord, HandlerError> {
    match engine.batches(Some(name)).await?.pop() {
        Some(batch) => Ok(batch),
        None => Err(FindError::NoBatch { name: name.to_string(), newest: Vec::new(), count: 0 }.into()),
    }
}

/// Sets the budget of a batch, and says what it was.
///
/// # Errors
/// [`HandlerError`].
pub async fn set_budget(
    engine: &EngineClient,
    ingest: &IngestHandle,
    batch: &BatchName,
    budget: BudgetSetting,
) -> Result<BudgetSet, HandlerError> {
    let before = find_batch(engine, batch).await?;
    let outcome = ingest.set_budget(before.no, budget).await.map_err(EngineError::from)?;
    if let Some(why) = outcome.refused {
        return Err(HandlerError::Refused { batch: before.name, why });
    }
    let now = find_batch(engine, &before.name).await?;
    Ok(BudgetSet {
        batch: now.name.clone(),
        before_credits: before.budget().0,
        budget_credits: now.budget().0,
        is_default: now.policy.budget.is_none(),
        committed_credits: now.totals.committed().0,
    })
}

/// Makes the gallery of a batch current, or the list of batches.
///
/// # Errors
/// [`HandlerError`].
pub async fn gallery(
    engine: &EngineClient,
    gallery: &Gallery,
    batch: Option<&BatchName>,
) -> Result<GalleryPage, HandlerError> {
    let standing = match batch {
        Some(name) => Some(engine.standing(name).await?),
        None => None,
    };
    let page = gallery.open(standing).await?;
    Ok(GalleryPage { page: page.map(|page| ExactPath(std::path::absolute(&page).unwrap_or(page))) })
}

/// Lifts the pause of the batch called so, or of all.
///
/// # Errors
/// [`HandlerError`].
pub async fn resume(engine: &EngineClient, batch: Option<&BatchName>) -> Result<BatchOutcomes, HandlerError> {
    match batch {
        Some(_) => for_each(engine, batch, Command::Resume, nothing_to_resume).await,
        None => {
            // After a rebuild from a database that was whole, only the pauses tell that there was one.
            let is_after_loss = |batch: &BatchRecord| batch.paused == Some(Pause::Rebuilt);
            let is_after_loss = engine.unfinished_batches().await?.iter().any(is_after_loss);
            for_each(engine, batch, Command::Resume, |batch| not_meant_by_all(batch, is_after_loss)).await
        }
    }
}

fn nothing_to_resume(batch: &BatchRecord) -> Option<&'static str> {
    // A pause outlasts the end of its batch, for what a retry or a longer manifest brings.
    (batch.is_done() && batch.paused.is_none()).then_some("done, nothing to resume")
}

/// Why a batch stays as it is where all are resumed: after a loss nobody means what its owner has canceled or paused.
fn not_meant_by_all(batch: &BatchRecord, is_after_loss: bool) -> Option<&'static str> {
    match batch.paused {
        Some(Pause::Rebuilt) if batch.canceled => Some(
            "it was canceled and stays paused, since what is left of it may have been sent before the state was rebuilt or \
             imported; to end that: callsheet resolve JOB; to send it under its keys, which buys what was never sent: \
             callsheet resume BATCH",
        ),
        Some(Pause::Owner) if (is_after_loss || batch.rebuilt_rows > 0) && !batch.is_done() => Some(
            "it stays paused, as its owner said, since the state was rebuilt or imported; to continue it: callsheet resume BATCH",
        ),
        _ => nothing_to_resume(batch),
    }
}

/// Sends what waits after the pilot of a batch. While a manifest is read for it that is refused: what it adds is not known
/// yet.
///
/// # Errors
/// [`HandlerError`].
pub async fn continue_batch(
    engine: &EngineClient,
    ingest: &IngestHandle,
    batch: &BatchName,
) -> Result<BatchOutcomes, HandlerError> {
    let Some(_held) = ingest.try_hold(batch) else {
        return Err(HandlerError::ManifestRead { batch: batch.clone() });
    };
    let pointless = |record: &BatchRecord| match record.pilot {
        _ if record.is_done() => Some("done, nothing waits for a pilot"),
        Some(_) => None,
        None => Some("none of its rows waits for a pilot"),
    };
    for_each(engine, Some(batch), Command::Continue, pointless).await
}

async fn for_each(
    engine: &EngineClient,
    batch: Option<&BatchName>,
    command: fn(BatchNo) -> Command,
    why_pointless: impl Fn(&BatchRecord) -> Option<&'static str>,
) -> Result<BatchOutcomes, HandlerError> {
    let records = match batch {
        Some(_) => engine.batches(batch).await?,
        None => engine.unfinished_batches().await?,
    };
    let mut batches = Vec::new();
    for record in records {
        let result = match why_pointless(&record) {
            Some(why) => CommandOutcome::refused(why.replace("BATCH", record.name.as_str())),
            None => engine.execute(command(record.no)).await?,
        };
        batches.push(BatchOutcome { batch: record.name, result });
    }
    Ok(BatchOutcomes { batches })
}

/// Writes the results of batches anew of which a command changed something, where no process works on the state that would do
/// it.
///
/// # Errors
/// [`HandlerError`].
pub(super) async fn update_results(
    engine: &EngineClient,
    output_dir: &OutputDir,
    changed: impl IntoIterator<Item = BatchNo> + Send + 'static,
) -> Result<(), HandlerError> {
    if engine.works() {
        return Ok(());
    }
    let (store, output_dir) = (engine.store().clone(), output_dir.clone());
    let write = move || {
        for no in changed {
            if let Some(batch) = store.batch(no)?.filter(|batch| batch.ended.all() > 0) {
                engine::write_results(&store, &output_dir, &batch)?;
            }
        }
        Ok::<_, EngineError>(())
    };
    Ok(blocking(write).await?)
}

/// The same after a command that has taken effect, whatever becomes of the results.
async fn update_results_if_possible(engine: &EngineClient, output_dir: &OutputDir, changed: BatchNo) {
    if let Err(error) = update_results(engine, output_dir, [changed]).await {
        tracing::warn!(%error, "the results could not be written; the next run writes them");
    }
}

/// Drops what is not sent yet of a batch, or one job.
///
/// # Errors
/// [`HandlerError`].
pub async fn cancel(
    engine: &EngineClient,
    output_dir: &OutputDir,
    name: &str,
) -> Result<BatchOutcomes, HandlerError> {
    let named = engine.find(name).await?;
    let (no, batch, was_done) = (named.batch().no, named.batch().name.clone(), named.batch().is_done());
    let result = engine.cancel(named).await?;
    if result.refused.is_none() && (result.jobs > 0 || !was_done) {
        update_results_if_possible(engine, output_dir, no).await;
    }
    Ok(BatchOutcomes { batches: vec![BatchOutcome { batch, result }] })
}

/// Ends the doubt about a job.
///
/// # Errors
/// [`HandlerError`].
pub async fn resolve(
    engine: &EngineClient,
    output_dir: &OutputDir,
    request: &ResolveRequest,
) -> Result<BatchOutcomes, HandlerError> {
    let named = engine.find(&request.name).await?;
    let (no, batch) = (named.batch().no, named.batch().name.clone());
    let result = match exceeds_hold(&named, request) {
        Some(refused) => CommandOutcome::refused(refused),
        None => engine.resolve(named, request.attempt.map(AttemptNo), Credits(request.charged)).await?,
    };
    if result.refused.is_none() {
        update_results_if_possible(engine, output_dir, no).await;
    }
    Ok(BatchOutcomes { batches: vec![BatchOutcome { batch, result }] })
}

/// Why so high a charge is probably a slip.
fn exceeds_hold(named: &Target, request: &ResolveRequest) -> Option<String> {
    let Target::Job(named) = named else { return None };
    let (job, charged) = (&named.record.job, Credits(request.charged));
    let is_queued = matches!(job.state(), State::Queued);
    let attempt = match job.attempt_to_resolve(request.attempt.map(AttemptNo), charged) {
        Ok(attempt) => attempt,
        Err(_) if is_queued => job.present(),
        Err(_) => return None,
    };
    let most = match attempt.state() {
        // What a person recorded says nothing of what was held for it.
        State::Failed { .. } => Credits::ZERO,
        _ => attempt.books().held.max(attempt.books().charged),
    };
    // Where nothing is known to have been set aside for it, its price stands for that.
    let most = if most.is_zero() { job.hold(&named.spec.order).unwrap_or_default() } else { most };
    (charged > most && !request.above_hold).then(|| {
        format!(
            "{charged} are more than the {most} held for it; add --above-hold (above_hold) if the charge is right"
        )
    })
}

/// Queues failed, canceled and expired jobs again: under new keys where their task's record said failed or canceled.
/// With `max_credits` each may cost that much, whatever its row says, and so may those that wait.
///
/// # Errors
/// [`HandlerError`].
pub async fn retry(
    engine: &EngineClient,
    alone: &Reopening,
    request: &RetryRequest,
) -> Result<BatchOutcomes, HandlerError> {
    let named = engine.find(&request.name).await?;
    let result = engine.retry(alone, &named, request.max_credits.map(Credits), request.failed).await?;
    Ok(BatchOutcomes { batches: vec![BatchOutcome { batch: named.batch().name.clone(), result }] })
}

/// Where outputs are.
#[derive(Debug, Clone)]
pub struct OutputPlaces {
    /// On disk.
    pub dir: OutputDir,
    /// Layout of batches that have none of their own.
    pub layout: Layout,
    /// In an object store, where there is one.
    pub store: Option<OutputStore>,
}

/// Brings outputs from disk into the object store, or back.
///
/// # Errors
/// [`HandlerError`].
pub async fn sync_outputs(
    engine: &EngineClient,
    name: &str,
    OutputPlaces { dir, layout, store }: OutputPlaces,
) -> Result<SyncedOutputs, HandlerError> {
    let Some(store) = store else { return Err(HandlerError::NoOutputStore) };
    let named = engine.find(name).await?;
    let synced = engine.sync_outputs(&named, &store, &dir, &layout).await?;
    let SyncOutcome { jobs, uploaded, restored, missing, missing_jobs, refused, fault } = synced;
    let batch = named.batch().name.clone();
    let stopped = fault.map(Fault::into_message);
    Ok(SyncedOutputs { batch, jobs, uploaded, restored, missing, missing_jobs, refused, stopped })
}

/// Takes up what is paid for and is not on disk as it was. What the object store has comes from there.
///
/// # Errors
/// [`HandlerError`].
pub async fn download(
    engine: &EngineClient,
    name: &str,
    OutputPlaces { dir, layout, store }: OutputPlaces,
) -> Result<BatchOutcomes, HandlerError> {
    let named = engine.find(name).await?;
    let mut restored = 0;
    if let Some(store) = store {
        let synced = engine.sync_outputs(&named, &store, &dir, &layout).await?;
        restored = synced.restored;
        // What it has the service may have no more: nothing is taken up that may come from there.
        if let Some(fault) = synced.fault {
            return Err(HandlerError::NotCompared { name: name.to_owned(), fault });
        }
    }
    let alone = engine.reopening().await;
    let result = engine.fetch_again(&alone, &named, dir, layout).await?;
    let result = CommandOutcome { restored, ..result };
    Ok(BatchOutcomes { batches: vec![BatchOutcome { batch: named.batch().name.clone(), result }] })
}
