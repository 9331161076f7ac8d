//! The engine: wake -> admit -> commit intent -> effect -> commit outcome.
//!
//! [`scheduler`] decides; this file is the loop that commits what was decided and only then begins
//! it. There is one loop and one writer; effects run beside it and report back.

mod batch_results;
mod blocking;
mod catalog_source;
mod download;
mod effects;
pub mod engine_client;
mod handle;
pub mod job_iter;
mod name_lookup;
mod rate;
mod row_reader;
pub mod scheduler;
mod suspended_downloads;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tracing::Instrument;

pub use self::batch_results::write_results;
pub use self::blocking::{blocking, to_the_end};
pub use self::catalog_source::{CatalogRefresh, CatalogSource};
pub use self::handle::{BatchSnapshot, EngineGone, Handle};
use self::handle::{Message, Question};
pub use self::name_lookup::target as find_target;
pub use self::rate::RateLimit;
use crate::api::{Downloads, Service};
use crate::clock::Clock;
use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::slow_download::MinRate;
use crate::domain::time::{Millis, Now, Tick, UtcDay};
use crate::engine::effects::{effect_span, run_effect};
use crate::engine::scheduler::{
    Command, CommandOutcome, Effect, Input, Scheduler, SchedulerError, Settings, Standstill, Step,
};
use crate::engine::suspended_downloads::SuspendedDownloads;
use crate::failpoint;
use crate::metrics::Metrics;
use crate::output::layout::Layout;
use crate::output::publish::{OutputDir, PROBE_BYTES, is_disk_error, is_disk_full};
use crate::store::{Change, Store, StoreError};

/// Exchanges that are open at once, at least. More were slower and larger (measured)...
const EXCHANGES: usize = 64;
/// ...unless so many tasks are in flight that each would be read too late: at an answer time of 50 ms, 64
/// exchanges read 1,280 tasks a second (`benches/in_flight.rs`).
const TASKS_PER_EXCHANGE: usize = 100;
/// Exchanges that are open at once, at most.
const EXCHANGES_MAX: usize = 1_024;
/// How long a stop waits for requests in flight.
const STOP_GRACE: Millis = Millis::from_secs(30);
/// Between two looks at the output disk.
const DISK_INTERVAL: Duration = Duration::from_secs(5);
/// Messages that share one commit at most.
const MESSAGES_MAX: usize = 64;
/// Between two looks at the whole for the metrics.
const OVERVIEW_INTERVAL: Millis = Millis::from_secs(1);
/// Events that may wait for the loop.
const INBOX_EVENTS: usize = 4096;

/// The engine cannot go on. State is safe; a restart resumes.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The books do not balance.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// It has ended already.
    #[error(transparent)]
    Gone(#[from] EngineGone),
    /// The output folder refuses.
    #[error("failed to write to {}: {source}", .path.display())]
    Output {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// How the owner asks the engine to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Go on.
    No,
    /// End when nothing moves any more.
    AtStandstill,
    /// Begin nothing new, finish requests in flight.
    Soon,
}

/// How long the engine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until nothing moves any more.
    Standstill,
    /// Until it is told to stop, whether there is work or not.
    Stopped,
}

/// Everything that happens outside.
#[derive(Debug, Clone)]
pub struct EngineDeps {
    /// The service.
    pub service: Service,
    /// Its results.
    pub downloads: Downloads,
    /// The output folder.
    pub output_dir: OutputDir,
    /// Largest output that is downloaded, in bytes.
    pub max_file_bytes: u64,
    /// A download that stays below makes room for one that waits.
    pub min_rate: MinRate,
    /// Room that must stay free on the output disk, in bytes.
    pub min_free_bytes: u64,
    /// How fast creating POSTs may leave.
    pub submits: RateLimit,
    /// How fast tasks may be read.
    pub polls: RateLimit,
    /// The catalogs in force; nothing where jobs go out at the prices that they were accepted at.
    pub catalogs: Option<Arc<dyn CatalogSource>>,
    /// Layout of batches that have none of their own.
    pub layout: Layout,
    /// Who is told what is done, how long it took and how everything stands.
    pub metrics: Metrics,
}

/// How changes are made durable.
type Commit = fn(&Store, &[Change]) -> Result<(), StoreError>;

/// What an engine may do in its process.
#[derive(Debug, Clone)]
pub enum Mode {
    /// Answers questions from a snapshot: no step, no commit.
    Read,
    /// Executes commands and commits them. Nothing leaves the process.
    Offline,
    /// Reads tasks, catalogs and the balance, and downloads. Sends no creating POST.
    Free(Box<EngineDeps>),
    /// Sends what the budgets allow, too.
    Paying(Box<EngineDeps>),
}

/// Which batches of the state an engine works on. What all others hold and have spent counts all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Those with these numbers.
    Only(BTreeSet<BatchNo>),
}

/// The engine of a process.
#[derive(Debug)]
pub struct Engine {
    store: Arc<Store>,
    /// No step is taken: see [`Mode::Read`].
    is_read_only: bool,
    /// Shared with every effect under way; nothing where no effect may begin: see [`Mode::Offline`].
    deps: Option<Arc<EngineDeps>>,
    /// What is done, how long it took and how everything stands is counted here.
    metrics: Metrics,
    clock: Clock,
    scheduler: Scheduler,
    events: mpsc::Receiver<Input>,
    sender: mpsc::Sender<Input>,
    messages: mpsc::Receiver<Message>,
    questions: mpsc::Receiver<Question>,
    handle: Handle,
    exchanges: Arc<Semaphore>,
    suspended_downloads: Arc<SuspendedDownloads>,
    /// When the metrics are shown the whole next.
    overview_due: Tick,
}

/// What an observer is shown after a step.
#[derive(Debug)]
pub struct StepView<'a> {
    /// Every batch and job as it stands.
    pub scheduler: &'a Scheduler,
    /// The step that just ended.
    pub step: &'a Step,
}

impl Engine {
    /// Takes up the open jobs of the state, of the batches in its scope.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read.
    pub fn new(
        store: Arc<Store>,
        mode: Mode,
        settings: Settings,
        clock: Clock,
        scope: &Scope,
    ) -> Result<Engine, StoreError> {
        let (is_read_only, sends) = (matches!(mode, Mode::Read), matches!(mode, Mode::Paying(_)));
        let deps = match mode {
            Mode::Read | Mode::Offline => None,
            Mode::Free(deps) | Mode::Paying(deps) => Some(Arc::from(deps)),
        };
        let metrics = deps.as_ref().map_or_else(Metrics::new, |deps: &Arc<EngineDeps>| deps.metrics.clone());
        let in_flight = settings.limits.in_flight as usize / TASKS_PER_EXCHANGE;
        let is_ours = |no: BatchNo| match scope {
            Scope::All => true,
            Scope::Only(batches) => batches.contains(&no),
        };
        let mut scheduler = resume_scheduler(&store, settings, is_ours, clock.now())?;
        if !sends {
            scheduler.disable_sending();
        }
        let (sender, events) = mpsc::channel(INBOX_EVENTS);
        let (handle, messages, questions) = Handle::new(deps.is_some());
        Ok(Engine {
            store,
            is_read_only,
            deps,
            metrics,
            clock,
            scheduler,
            events,
            sender,
            messages,
            questions,
            handle,
            exchanges: Arc::new(Semaphore::new(in_flight.clamp(EXCHANGES, EXCHANGES_MAX))),
            suspended_downloads: Arc::default(),
            overview_due: Tick(0),
        })
    }

    /// Reaches the engine while it runs.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The state the engine works on.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Works `until` then, or until told to stop and no request is in flight. `observe` sees every step. An engine
    /// that begins no effects serves until it is told to stop.
    ///
    /// # Errors
    /// [`EngineError`]; everything acknowledged is safe, and a restart resumes.
    pub async fn run(
        &mut self,
        until: Until,
        mut stop: watch::Receiver<Stop>,
        mut observe: impl FnMut(&StepView<'_>),
    ) -> Result<Standstill, EngineError> {
        let mut inputs = Vec::new();
        let mut disk_checks = tokio::time::interval(DISK_INTERVAL);
        // The first tick comes at once, and so does the first look: before anything is sent.
        disk_checks.tick().await;
        if let Some(deps) = self.deps.clone()
            && (!self.prepare_outputs(&deps).await? || self.disk_is_low(&deps).await)
        {
            inputs.push(Input::DiskIsLow(true));
        }
        let mut outcome = Vec::new();
        // Batches that came in and are not durable yet.
        let mut taken = Vec::new();
        // Commands that came in while the state's disk was full.
        let mut waiting = VecDeque::new();
        let mut grace: Option<Tick> = None;
        loop {
            let mut step = self.decide(std::mem::take(&mut inputs))?;
            if let Err(error) = self.commit(&mut step, Store::commit).await {
                if until == Until::Standstill || self.deps.is_none() || !error.is_full() {
                    return Err(error.into());
                }
                waiting.extend(self.wait_for_room(error, &mut step, &mut stop, &mut observe).await?);
            }
            self.is_committed(&step);
            for batch in taken.drain(..) {
                self.prepare_output(batch).await;
            }
            observe(&StepView { scheduler: &self.scheduler, step: &step });
            let Step { wake, effects, .. } = step;
            match self.deps.clone() {
                Some(deps) => self.begin(effects, &deps),
                None => {
                    inputs.extend(self.load_rows(effects).await?);
                    // Its process ends when the command is answered: what follows from it comes first.
                    if !inputs.is_empty() || wake.is_some_and(|at| at <= self.clock.now().tick) {
                        continue;
                    }
                }
            }
            // The command is durable: its sender is told, unless it has gone away.
            outcome.drain(..).for_each(|(reply, outcome): (handle::Reply, CommandOutcome)| {
                let _ = reply.send(outcome);
            });
            if !self.scheduler.disk_is_low() && !self.store.has_room() {
                // The state lives on its reserve: requests in flight end, nothing new begins.
                inputs.push(Input::DiskIsLow(true));
                continue;
            }
            if self.deps.is_some()
                && let Some(standstill) = self.scheduler.standstill()
                && (until == Until::Standstill
                    || *stop.borrow() == Stop::AtStandstill
                    || standstill == Standstill::Stopped
                    || grace.is_some())
            {
                return Ok(standstill);
            }
            let timer = self.sleep_until(wake);
            let grace_over = sleep(grace.map(|end| self.clock.until(end)));
            tokio::select! {
                _ = self.events.recv_many(&mut inputs, Scheduler::INPUTS_MAX) => {}
                Some(message) = next(&mut waiting, &mut self.messages) => {
                    outcome.extend(self.handle_message(message, &mut taken)?);
                    // What else came in meanwhile shares the commit.
                    while outcome.len() < MESSAGES_MAX && let Ok(message) = self.messages.try_recv() {
                        outcome.extend(self.handle_message(message, &mut taken)?);
                    }
                }
                Some(question) = self.questions.recv() => {
                    self.find_what_parks().await?;
                    question.answer(&self.scheduler);
                    // Nothing changed by it.
                    while let Ok(question) = self.questions.try_recv() {
                        question.answer(&self.scheduler);
                    }
                }
                () = timer => {}
                _ = disk_checks.tick(), if self.deps.is_some() => {
                    let Some(deps) = self.deps.clone() else { continue };
                    let is_low = self.disk_is_low(&deps).await;
                    if is_low != self.scheduler.disk_is_low() {
                        inputs.push(Input::DiskIsLow(is_low));
                    }
                }
                // Keys are durable: the next start continues what is still in flight.
                () = grace_over => return Ok(Standstill::Stopped),
                changed = stop.changed(), if grace.is_none() => {
                    if changed.is_err() || *stop.borrow() == Stop::Soon {
                        if self.deps.is_none() {
                            return Ok(Standstill::Stopped);
                        }
                        grace = Some(self.clock.now().tick.after(STOP_GRACE));
                        inputs.push(Input::Stop);
                    }
                }
            }
        }
    }

    /// Takes in what somebody asks of the running engine.
    fn handle_message(
        &mut self,
        message: Message,
        taken: &mut Vec<BatchName>,
    ) -> Result<Option<(handle::Reply, CommandOutcome)>, EngineError> {
        match message {
            Message::Command(_, reply) if self.is_read_only => {
                let refused = Some("this process only reads the state".to_owned());
                Ok(Some((reply, CommandOutcome { refused, ..CommandOutcome::default() })))
            }
            Message::Command(command, reply) => {
                let is_taken = matches!(&command, Command::AddBatch(_));
                let now = self.clock.now();
                if let Command::AddBatch(batch) = &command
                    && self.scheduler.batch(batch.no).is_none()
                {
                    taken.push(batch.name.clone());
                    // It may be one that was not in the scope.
                    take_up(&mut self.scheduler, &self.store, |no| no == batch.no, now)?;
                }
                load_days(&mut self.scheduler, &self.store, &[now.wall.utc_day()])?;
                load_days(&mut self.scheduler, &self.store, &command.days())?;
                if let Some(refused) = take_up_finished(&mut self.scheduler, &self.store, &command)? {
                    return Ok(Some((reply, refused)));
                }
                let outcome = self.scheduler.execute(command, now)?;
                if is_taken {
                    failpoint::hit("taken");
                }
                Ok(Some((reply, outcome)))
            }
            Message::EngineDeps(deps) => {
                // Counters go on.
                let metrics = self.metrics.clone();
                self.deps = self.deps.is_some().then(|| Arc::new(EngineDeps { metrics, ..*deps }));
                Ok(None)
            }
        }
    }

    /// Makes the folder of a batch that came in, once that is durable: nothing lies on the output disk of which nobody
    /// knows. Where it fails the batch's downloads say so and are tried again: nothing that is under way has to end
    /// for it.
    async fn prepare_output(&self, batch: BatchName) {
        let Some(deps) = &self.deps else { return };
        let (output_dir, name) = (deps.output_dir.clone(), batch.clone());
        if let Err(error) = blocking(move || output_dir.prepare(&name)).await {
            tracing::warn!(%batch, %error, "failed to create the output directory");
        }
    }

    /// Decides; the changes are the caller's to commit, and the effects to begin afterwards.
    fn decide(&mut self, inputs: Vec<Input>) -> Result<Step, EngineError> {
        if self.is_read_only {
            return Ok(Step::default());
        }
        let now = self.clock.now();
        let today = now.wall.utc_day();
        load_days(&mut self.scheduler, &self.store, &[today])?;
        for input in &inputs {
            match input {
                Input::Posted(..) => failpoint::hit("posted"),
                Input::Read(..) => failpoint::hit("read"),
                _ => {}
            }
        }
        Ok(self.scheduler.step(inputs, now)?)
    }

    /// Makes a step durable. It keeps its changes, whatever comes of it.
    async fn commit(&self, step: &mut Step, how: Commit) -> Result<(), StoreError> {
        if step.changes.is_empty() {
            return Ok(());
        }
        let changes = std::mem::take(&mut step.changes);
        let (store, metrics, clock) = (self.store.clone(), self.metrics.clone(), self.clock);
        let commit = move || {
            let begun = clock.elapsed();
            let committed = how(&store, &changes);
            metrics.flushed(clock.elapsed().saturating_sub(begun));
            (committed, changes)
        };
        let (committed, changes) = blocking(commit).await;
        step.changes = changes;
        committed
    }

    /// Waits until the state's disk takes a step that it refused, although the reserve was given up for it: others
    /// filled that, too. Answers that arrive meanwhile wait; nothing that was decided begins. Returns
    /// the commands that came in.
    async fn wait_for_room(
        &mut self,
        mut refused: StoreError,
        step: &mut Step,
        stop: &mut watch::Receiver<Stop>,
        observe: &mut impl FnMut(&StepView<'_>),
    ) -> Result<Vec<Message>, EngineError> {
        tracing::warn!(error = %refused, "the state cannot be written; waiting for disk space");
        self.scheduler.set_disk_low(true);
        let nothing = Step::default();
        let mut looks = tokio::time::interval(DISK_INTERVAL);
        looks.tick().await;
        let mut waiting = Vec::new();
        loop {
            // It is alive.
            observe(&StepView { scheduler: &self.scheduler, step: &nothing });
            if *stop.borrow() == Stop::Soon {
                return Err(refused.into());
            }
            tokio::select! {
                _ = looks.tick() => match self.commit(step, Store::commit_again).await {
                    Ok(()) => {
                        tracing::info!("the state can be written again");
                        return Ok(waiting);
                    }
                    Err(error) if error.is_full() => refused = error,
                    Err(error) => return Err(error.into()),
                },
                Some(message) = self.messages.recv(), if waiting.len() < MESSAGES_MAX => waiting.push(message),
                Some(question) = self.questions.recv() => question.answer(&self.scheduler),
                changed = stop.changed() => if changed.is_err() {
                    return Err(refused.into());
                },
            }
        }
    }

    /// What follows a step that is durable.
    fn is_committed(&mut self, step: &Step) {
        self.suspended_downloads.set_waiting(self.scheduler.download_waits());
        let now = self.clock.now();
        if now.tick >= self.overview_due {
            self.overview_due = now.tick.after(OVERVIEW_INTERVAL);
            self.metrics.set_gauges(&self.scheduler.gauges(now));
        }
        if !step.ended.is_empty() {
            failpoint::hit("ended");
        }
        for effect in &step.effects {
            match effect {
                Effect::Post { .. } => failpoint::hit("admitted"),
                Effect::Read { .. } => failpoint::hit("task-known"),
                Effect::Fetch(_) => failpoint::hit("fetching"),
                Effect::LoadRows { .. }
                | Effect::AskBalance
                | Effect::RenewCatalog
                | Effect::KeepSurcharges(_) => {}
            }
        }
    }

    /// Begins what was decided and is durable.
    fn begin(&mut self, effects: Vec<Effect>, deps: &Arc<EngineDeps>) {
        for effect in effects {
            let (sender, deps, store) = (self.sender.clone(), deps.clone(), self.store.clone());
            let (exchanges, suspended_downloads, clock) =
                (self.exchanges.clone(), self.suspended_downloads.clone(), self.clock);
            let span = effect_span(&effect, &self.scheduler);
            let done = async move {
                let input = run_effect(effect, &deps, &store, &exchanges, &suspended_downloads, clock).await;
                // The loop may have ended meanwhile; what came back is asked for again by the next.
                let _ = sender.send(input).await;
            };
            tokio::spawn(done.instrument(span));
        }
    }

    /// Reads the rows that were asked for; no other effect begins.
    async fn load_rows(&self, effects: Vec<Effect>) -> Result<Vec<Input>, EngineError> {
        let mut inputs = Vec::new();
        for effect in effects {
            let Effect::LoadRows { batch, from, end, most } = effect else { continue };
            let store = self.store.clone();
            let rows = blocking(move || row_reader::load_rows(&store, batch, from, end, most)).await?;
            inputs.push(Input::Rows { batch, from, rows });
        }
        Ok(inputs)
    }

    /// Finds out which budgets park batches, where no admission does: nothing is sent.
    async fn find_what_parks(&mut self) -> Result<(), EngineError> {
        if self.deps.is_some() {
            return Ok(());
        }
        let now = self.clock.now();
        load_days(&mut self.scheduler, &self.store, &[now.wall.utc_day()])?;
        let wanted = self.scheduler.rows_wanted();
        for input in self.load_rows(wanted).await? {
            if let Input::Rows { batch, from, rows } = input {
                self.scheduler.add_rows(batch, from, rows);
            }
        }
        self.scheduler.foresee(now);
        Ok(())
    }

    /// Whether the output disk has less room than it must keep, or the state's disk none. One that cannot
    /// be asked is left to the write that fails; one that refused a file is asked to set its room aside, since
    /// free bytes are not all that a file needs: there are quotas, and file systems run out of inodes.
    async fn disk_is_low(&self, deps: &EngineDeps) -> bool {
        // With no room at all nothing is begun, whatever may be used up.
        let min_free_bytes = deps.min_free_bytes.max(PROBE_BYTES);
        let refused_bytes = self.scheduler.refused_bytes();
        if !self.store.has_room() || deps.output_dir.free_bytes().is_some_and(|free| free < min_free_bytes) {
            return true;
        }
        let Some(bytes) = refused_bytes else { return false };
        let output_dir = deps.output_dir.clone();
        blocking(move || output_dir.check_space(bytes)).await.is_err_and(|error| is_disk_error(&error))
    }

    fn sleep_until(&self, wake: Option<Tick>) -> impl Future<Output = ()> + use<> {
        // A deadline is in wall-clock time, which may step: it is looked at now and then.
        let deadline_check = self.scheduler.watches_the_calendar().then_some(Duration::from_secs(1));
        let until = wake.map(|tick| self.clock.until(tick));
        let wait = [until, deadline_check].into_iter().flatten().min();
        sleep(wait)
    }

    /// Makes the folders of all unfinished batches and sweeps what a killed process left in them. False: the disk
    /// has no room for them, and they are made when there is some.
    async fn prepare_outputs(&self, deps: &EngineDeps) -> Result<bool, EngineError> {
        let unfinished = self.scheduler.batches().filter(|batch| !batch.is_done());
        let names: Vec<BatchName> = unfinished.map(|batch| batch.name.clone()).collect();
        let output_dir = deps.output_dir.clone();
        let prepare = move || {
            names.into_iter().try_for_each(|name| {
                let path = output_dir.batch_dir(&name);
                output_dir.prepare(&name).map_err(|source| EngineError::Output { path, source })
            })
        };
        match blocking(prepare).await {
            Ok(()) => Ok(true),
            Err(EngineError::Output { path, source }) if is_disk_full(&source) => {
                tracing::warn!(path = %path.display(), error = %source, "the output disk is full");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Everything in numbers.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}

/// The first message that waits, or the next that comes.
async fn next(waiting: &mut VecDeque<Message>, messages: &mut mpsc::Receiver<Message>) -> Option<Message> {
    match waiting.pop_front() {
        Some(message) => Some(message),
        None => messages.recv().await,
    }
}

/// A scheduler that knows what the state knows of the batches that are `ours`: a restart is not a
/// special path.
fn resume_scheduler(
    store: &Store,
    settings: Settings,
    ours: impl Fn(BatchNo) -> bool,
    now: Now,
) -> Result<Scheduler, StoreError> {
    let mut scheduler = Scheduler::new(settings, store.total()?);
    scheduler.set_account_block(store.account()?);
    scheduler.set_finished_jobs(store.finished_jobs()?);
    take_up(&mut scheduler, store, ours, now)?;
    Ok(scheduler)
}

/// Tells the scheduler of batches and of their open jobs, as the state knows them.
fn take_up(
    scheduler: &mut Scheduler,
    store: &Store,
    ours: impl Fn(BatchNo) -> bool,
    now: Now,
) -> Result<(), StoreError> {
    for batch in store.batches()?.into_iter().filter(|batch| ours(batch.no)) {
        scheduler.add_batch(batch);
    }
    let mut specs = row_reader::RowReader::new(store);
    for record in store.open_jobs()?.into_iter().filter(|record| ours(record.key.batch)) {
        for day in record.job.days() {
            if !scheduler.has_day(day) {
                scheduler.set_day(day, store.day(day)?);
            }
        }
        let spec = specs.spec_at(record.key.batch, record.row_at)?;
        scheduler.resume_job(record, spec, now);
    }
    Ok(())
}

/// Tells the scheduler the totals of days that it does not know yet.
fn load_days(scheduler: &mut Scheduler, store: &Store, days: &[UtcDay]) -> Result<(), StoreError> {
    for day in days {
        if !scheduler.has_day(*day) {
            scheduler.set_day(*day, store.day(*day)?);
        }
    }
    Ok(())
}

/// Takes up the batch of a command, where it is done. Returns why not, where somebody moved its folder away.
fn take_up_finished(
    scheduler: &mut Scheduler,
    store: &Store,
    command: &Command,
) -> Result<Option<CommandOutcome>, StoreError> {
    let Some(no) = command.batch().filter(|no| scheduler.batch(*no).is_none()) else { return Ok(None) };
    match store.finished_batch(no) {
        Ok(found) => {
            found.into_iter().for_each(|record| scheduler.add_finished_batch(record));
            Ok(None)
        }
        Err(moved @ StoreError::BatchMoved { .. }) => {
            Ok(Some(CommandOutcome { refused: Some(moved.to_string()), ..CommandOutcome::default() }))
        }
        Err(error) => Err(error),
    }
}

/// Sleeps so long; for ever without a span.
async fn sleep(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}
