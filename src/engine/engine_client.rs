//! An owner's questions and commands: what is named is found in the state, and the engine decides.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError};

use tokio::sync::{OwnedMutexGuard, mpsc};

use crate::domain::budget::BudgetShortage;
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchName, BatchNo, JobKey};
use crate::domain::job::{JobSpec, State};
use crate::domain::parked_reason::Parked;
use crate::engine::engine_handle::{BatchSnapshot, Handle};
use crate::engine::gallery::Standing;
use crate::engine::name_lookup::{self, FindError, NamedJob, Target};
use crate::engine::scheduler::{
    AccountOverview, BatchOverview, Command, CommandOutcome, FoundJob, PlannedStep, Withheld,
};
use crate::engine::target_jobs::TargetJobs;
use crate::engine::{EngineError, blocking};
use crate::output::file_names::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::OutputDir;
use crate::pages::gallery_index::OPEN_MAX;
use crate::store::{BatchRecord, FinishedBatch, JobRecord, Store, StoreError};

/// Jobs that are taken up again in one commit.
const REOPEN_CHUNK: usize = 100;
/// Outputs that are named, of those that a person edited.
const EDITED_LISTED_MAX: usize = 1000;

/// Finds what is named, and has commands executed. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EngineClient {
    store: Arc<Store>,
    engine: Handle,
    /// One walk that takes jobs up again at a time: a second could take up what the first has just done.
    reopening: Arc<tokio::sync::Mutex<()>>,
    /// One sync of the outputs of a batch at a time.
    syncing: Arc<std::sync::Mutex<BTreeMap<BatchNo, Arc<tokio::sync::Mutex<()>>>>>,
}

/// Held by the one command that may change jobs that have ended. A command that spends waits for it before it begins: it is
/// dropped if its client goes away meanwhile.
#[derive(Debug)]
pub struct Reopening {
    _guard: OwnedMutexGuard<()>,
}

impl EngineClient {
    /// A client of the engine that works on a state.
    pub fn new(store: Arc<Store>, engine: Handle) -> EngineClient {
        EngineClient { store, engine, reopening: Arc::default(), syncing: Arc::default() }
    }

    /// Whether the engine works on the jobs, or only answers and notes commands.
    pub fn works(&self) -> bool {
        self.engine.works()
    }

    /// Whether the engine works on every batch of the state that is not done, and not on some alone.
    pub fn works_on_all(&self) -> bool {
        self.engine.works_on_all()
    }

    /// The state.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Has a command executed: on return it is durable.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended.
    pub async fn execute(&self, command: Command) -> Result<CommandOutcome, EngineError> {
        Ok(self.engine.execute(command).await?)
    }

    /// The same of a command on jobs that were found when the outcomes of their batch were `as_of` bytes long.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended.
    pub(super) async fn execute_on_found(
        &self,
        command: Command,
        as_of: u64,
    ) -> Result<CommandOutcome, EngineError> {
        Ok(self.engine.execute_on_found(command, as_of).await?)
    }

    /// Waits until no other command changes jobs that have ended.
    pub async fn reopening(&self) -> Reopening {
        Reopening { _guard: self.reopening.clone().lock_owned().await }
    }

    /// Waits until no other command syncs the outputs of a batch.
    pub(super) async fn syncing(&self, batch: BatchNo) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody holds or waits for.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(batch).or_default().clone()
        };
        lock.lock_owned().await
    }

    /// Every batch in numbers, oldest first, with what keeps it from going on. A key, credits, a disk and `min_balance`
    /// are for an engine that works to find out; budgets and pauses are told without one, too.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended.
    pub async fn overview(&self) -> Result<Vec<BatchOverview>, EngineError> {
        Ok(self.engine.overview().await?)
    }

    /// The batch called so as it stands and in numbers, done or not; without a name those that are not done and the
    /// `finished_max` that finished last, of those that are listed, oldest first. A running engine answers from memory, whatever its state's disk says.
    ///
    /// # Errors
    /// [`FindError::NoBatch`], or the state refuses.
    pub async fn batch_snapshots(
        &self,
        name: Option<&BatchName>,
        finished_max: usize,
    ) -> Result<Vec<BatchSnapshot>, FindError> {
        // Finished ones last: one that ends meanwhile is in both.
        let mut found = self.engine.batches(name).await.map_err(EngineError::from)?;
        if found.is_empty() || name.is_none() {
            let attended = found.iter().map(|(record, _)| record.no).collect();
            match self.unattended(name, attended).await {
                Err(EngineError::Store(error)) if error.is_full() && name.is_none() => {}
                unattended => found.extend(unattended?),
            }
        }
        let finished = match name {
            Some(_) if !found.is_empty() => Vec::new(),
            Some(name) => self.batches(Some(name)).await?,
            None => {
                let store = self.store.clone();
                match blocking(move || store.newest_finished(finished_max)).await {
                    Err(error) if error.is_full() => Vec::new(),
                    listed => listed.map_err(EngineError::from)?.iter().map(FinishedBatch::summary).collect(),
                }
            }
        };
        found.extend(finished.into_iter().map(|record| {
            let overview = BatchOverview::of_finished(&record);
            (record, overview)
        }));
        // The sort is stable: what is in memory is the newer one.
        found.sort_by_key(|(record, _)| record.no);
        found.dedup_by_key(|(record, _)| record.no);
        Ok(found)
    }

    /// The batches that are not done and that the engine leaves alone, or the one called so: a `run` works on those of its
    /// manifests. `attended` are those that it has.
    async fn unattended(
        &self,
        name: Option<&BatchName>,
        attended: HashSet<BatchNo>,
    ) -> Result<Vec<BatchSnapshot>, EngineError> {
        if self.engine.works_on_all() {
            return Ok(Vec::new());
        }
        let (store, name) = (self.store.clone(), name.cloned());
        let is_asked_for = move |batch: &BatchRecord| {
            name.as_ref().is_none_or(|name| *name == batch.name) && !attended.contains(&batch.no)
        };
        let read = move || {
            let snapshot = |batch: BatchRecord| {
                let overview = BatchOverview::of_unattended(&batch, &store.open_jobs_of(batch.no)?);
                Ok((batch, overview))
            };
            store.batches()?.into_iter().filter(is_asked_for).map(snapshot).collect::<Result<_, StoreError>>()
        };
        Ok(blocking(read).await?)
    }

    /// Budgets, the balance and the queue.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended.
    pub async fn account(&self) -> Result<AccountOverview, EngineError> {
        Ok(self.engine.account().await?)
    }

    /// What is missing of the budgets of its own groups for a job that waits; nothing where it fits into them.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended.
    pub async fn group_shortage(
        &self,
        key: JobKey,
        spec: &JobSpec,
    ) -> Result<Option<(Parked, BudgetShortage)>, EngineError> {
        Ok(self.engine.group_shortage(key, Arc::new(spec.clone())).await?)
    }

    /// Why a queued job that may have been sent by a state that is gone is not sent now; nothing where it may be.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended.
    pub async fn withheld(&self, key: JobKey, spec: &JobSpec) -> Result<Option<Withheld>, EngineError> {
        Ok(self.engine.withheld(key, Arc::new(spec.clone())).await?)
    }

    /// When a job goes on by itself; nothing where it waits for no instant, or no process works on it.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended.
    pub async fn planned_step(&self, key: JobKey) -> Result<Option<PlannedStep>, EngineError> {
        if !self.works() {
            return Ok(None);
        }
        Ok(self.engine.planned_step(key).await?)
    }

    /// A batch as its gallery shows it.
    ///
    /// # Errors
    /// [`FindError::NoBatch`], or the state refuses.
    pub async fn standing(&self, name: &BatchName) -> Result<Standing, FindError> {
        let Some((record, mut overview)) = self.batch_snapshots(Some(name), 0).await?.pop() else {
            return Err(FindError::NoBatch { name: name.to_string(), newest: Vec::new(), count: 0 });
        };
        if !self.works() {
            overview.parked = overview.parked.or(Some(Parked::NoProcess));
        }
        let active = self.engine.standing(record.no, OPEN_MAX).await.map_err(EngineError::from)?;
        let open = active.map(|(.., open)| open).unwrap_or_default();
        Ok(Standing::new(record, &overview, open))
    }

    /// The batch called so, done or not; without a name those that are not done and the finished ones that are listed,
    /// oldest first.
    ///
    /// # Errors
    /// [`FindError::NoBatch`], or the state refuses.
    pub async fn batches(&self, name: Option<&BatchName>) -> Result<Vec<BatchRecord>, FindError> {
        let (store, name) = (self.store.clone(), name.cloned());
        blocking(move || name_lookup::batches(&store, name.as_ref())).await
    }

    /// All batches that are not done, whatever is finished.
    ///
    /// # Errors
    /// The state refuses.
    pub async fn unfinished_batches(&self) -> Result<Vec<BatchRecord>, EngineError> {
        let store = self.store.clone();
        Ok(blocking(move || store.batches()).await?)
    }

    /// Finds what is called so: a batch first, then a job by its label, its identity, or `BATCH/JOB`.
    ///
    /// # Errors
    /// [`FindError`].
    pub async fn find(&self, text: &str) -> Result<Target, FindError> {
        let (store, text) = (self.store.clone(), text.to_owned());
        blocking(move || name_lookup::target(&store, &text)).await
    }

    /// Finds the job that is called so, also where a batch has the same name. The batch only if no job is called so.
    ///
    /// # Errors
    /// [`FindError`].
    pub async fn find_job(&self, text: &str) -> Result<Target, FindError> {
        let (store, text) = (self.store.clone(), text.to_owned());
        blocking(move || name_lookup::job_target(&store, &text)).await
    }

    /// Cancels what is not sent yet of a batch, or one job. What is at the service cannot be recalled.
    ///
    /// # Errors
    /// [`EngineError`] when the state refuses.
    pub async fn cancel(&self, target: Target) -> Result<CommandOutcome, EngineError> {
        match target {
            Target::Batch(batch) => self.execute(Command::Cancel(batch.no)).await,
            Target::Job(named) => {
                let NamedJob { spec, record, as_of, .. } = *named;
                let command = Command::CancelJob(Box::new((Arc::new(spec), record)));
                Ok(self.engine.execute_on_found(command, as_of).await?)
            }
        }
    }

    /// Ends the doubt about a job: a person found out what it was charged.
    ///
    /// # Errors
    /// [`EngineError`] when the state refuses.
    pub async fn resolve(
        &self,
        target: Target,
        attempt: Option<AttemptNo>,
        charged: Credits,
    ) -> Result<CommandOutcome, EngineError> {
        match target {
            Target::Batch(_) => {
                let refused = Some("only a job can be in doubt: name a job".to_owned());
                Ok(CommandOutcome { refused, ..CommandOutcome::default() })
            }
            Target::Job(named) => {
                let NamedJob { spec, record, as_of, .. } = *named;
                let command = Command::Resolve(Box::new((Arc::new(spec), record)), attempt, charged);
                Ok(self.engine.execute_on_found(command, as_of).await?)
            }
        }
    }

    /// Queues the failed, canceled and expired jobs of what is named again, or only the failed ones. With `max_credits`
    /// each may cost that much, whatever its row says, and so may those that wait.
    ///
    /// # Errors
    /// [`EngineError`] when the state refuses.
    pub async fn retry(
        &self,
        alone: &Reopening,
        target: &Target,
        max_credits: Option<Credits>,
        only_failed: bool,
    ) -> Result<CommandOutcome, EngineError> {
        let wanted = move |_: &BatchRecord, _: &JobSpec, record: &JobRecord| match record.job.state() {
            State::Failed { .. } => true,
            State::Canceled { .. } | State::Expired => !only_failed,
            // One that waits for a price may be allowed to cost what it might.
            State::Queued => max_credits.is_some() && !only_failed,
            _ => false,
        };
        let allowed = move |found: Vec<FoundJob>| {
            let allow = |(spec, mut record): FoundJob| {
                record.job.set_max_credits(max_credits.or(record.job.max_credits()));
                (spec, record)
            };
            Command::Retry(found.into_iter().map(allow).collect())
        };
        self.reopen(alone, target, wanted, allowed).await
    }

    /// Takes up every job of what is named that is paid for and whose outputs are not all on disk as they
    /// were; a running engine then downloads them.
    ///
    /// # Errors
    /// [`EngineError`] when the state refuses.
    pub async fn fetch_again(
        &self,
        alone: &Reopening,
        target: &Target,
        output_dir: OutputDir,
        default_layout: Layout,
    ) -> Result<CommandOutcome, EngineError> {
        let edited = Arc::new(std::sync::Mutex::new(Vec::new()));
        let found = edited.clone();
        let is_named = target.job().is_some();
        let missing = move |batch: &BatchRecord, spec: &JobSpec, record: &JobRecord| {
            let layout = Layout::of_batch(batch.layout(), &default_layout);
            let output_spec = OutputSpec { batch: &batch.name, layout: &layout, spec, job: &record.job };
            // What a person recorded stays, unless its outputs are asked for by name.
            let is_asked_for = is_named || !record.job.state().is_resolved();
            let is_missing =
                is_asked_for && record.job.state().is_final() && output_dir.published(output_spec).is_none();
            if is_missing {
                let mut edited = found.lock().unwrap_or_else(PoisonError::into_inner);
                let room = EDITED_LISTED_MAX.saturating_sub(edited.len());
                edited.extend(output_dir.edited(output_spec).into_iter().take(room));
            }
            is_missing
        };
        let mut outcome = self.reopen(alone, target, missing, Command::FetchAgain).await?;
        outcome.edited.append(&mut edited.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(outcome)
    }

    async fn reopen(
        &self,
        _alone: &Reopening,
        target: &Target,
        wanted: impl Fn(&BatchRecord, &JobSpec, &JobRecord) -> bool + Send + 'static,
        command: impl Fn(Vec<FoundJob>) -> Command,
    ) -> Result<CommandOutcome, EngineError> {
        let (store, target) = (self.store.clone(), target.clone());
        let (sender, mut chunks) = mpsc::channel(1);
        let walking = tokio::task::spawn_blocking(move || send_in_chunks(&store, &target, wanted, &sender));
        let mut outcome = CommandOutcome::default();
        while let Some(chunk) = chunks.recv().await {
            let (found, as_of) = chunk;
            outcome.add(self.engine.execute_on_found(command(found), as_of).await?);
        }
        super::blocking::result_of(walking).await?;
        Ok(outcome)
    }
}

/// Hands over the wanted jobs of what was named, a chunk at a time, each with the length that the outcomes had when the chunk
/// was as the state says. Jobs that have ended since the walk began are left out.
fn send_in_chunks(
    store: &Store,
    target: &Target,
    wanted: impl Fn(&BatchRecord, &JobSpec, &JobRecord) -> bool,
    chunks: &mpsc::Sender<(Vec<FoundJob>, u64)>,
) -> Result<(), EngineError> {
    let (batch, mut chunk) = (target.batch(), Vec::<FoundJob>::new());
    let mut as_of = store.outcomes_bytes(batch)?;
    let mut ended = HashSet::new();
    // Each outcome is read once, however many chunks there are.
    let mut send = |mut chunk: Vec<FoundJob>| -> Result<bool, StoreError> {
        as_of = store.add_ended_since(batch, as_of, &mut ended)?;
        chunk.retain(|(_, record)| !ended.contains(&record.key.seq));
        Ok(chunk.is_empty() || chunks.blocking_send((chunk, as_of)).is_ok())
    };
    let mut jobs = TargetJobs::open(store, target)?;
    while let Some((spec, record)) = jobs.next_job()? {
        if wanted(batch, &spec, &record) {
            chunk.push((Arc::new(spec), record));
        }
        // The client may have disconnected.
        if chunk.len() >= REOPEN_CHUNK && !send(std::mem::take(&mut chunk))? {
            return Ok(());
        }
    }
    send(chunk)?;
    Ok(())
}
