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

/// The running engine.
#[derive(Debug)]
pub struct Engine {
    store: Arc<Store>,
    /// Shared with every effect under way.
    deps: Arc<EngineDeps>,
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
    /// Takes up the open jobs of the state. With `only`, no other batch is worked on; what others hold and have spent counts all the same.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read.
    pub fn new(
        store: Arc<Store>,
        deps: EngineDeps,
        settings: Settings,
        clock: Clock,
        only: Option<&BTreeSet<BatchNo>>,
    ) -> Result<Engine, StoreError> {
        let settings_in_flight = settings.limits.in_flight as usize;
        let is_ours = |no: BatchNo| only.is_none_or(|only| only.contains(&no));
        let scheduler = resume_scheduler(&store, settings, is_ours, clock.now())?;
        let (sender, events) = mpsc::channel(INBOX_EVENTS);
        let (handle, messages, questions) = Handle::new();
        let in_flight = settings_in_flight / TASKS_PER_EXCHANGE;
        let exchanges = Arc::new(Semaphore::new(in_flight.clamp(EXCHANGES, EXCHANGES_MAX)));
        let overview_due = Tick(0);
        Ok(Engine {
            store,
            deps: Arc::new(deps),
            clock,
            scheduler,
            events,
            sender,
            messages,
            questions,
            handle,
            exchanges,
            suspended_downloads: Arc::default(),
            overview_due,
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

    /// Sends no creating POST, whatever is wanted.
    pub fn disable_sending(&mut self) {
        self.scheduler.disable_sending();
    }

    /// Works `until` then, or until told to stop and no request is in flight. `observe` sees every step.
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
        if !self.prepare_outputs().await? || self.disk_is_low().await {
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
                if until == Until::Standstill || !error.is_full() {
                    return Err(error.into());
                }
                waiting.extend(self.wait_for_room(error, &mut step, &mut stop, &mut observe).await?);
            }
            self.is_committed(&step);
            for batch in taken.drain(..) {
                self.prepare_output(batch).await;
            }
            // The command is durable: its sender is told, unless it has gone away.
            outcome.drain(..).for_each(|(reply, outcome): (handle::Reply, CommandOutcome)| {
                let _ = reply.send(outcome);
            });
            observe(&StepView { scheduler: &self.scheduler, step: &step });
            let wake = step.wake;
            self.begin(step.effects).await;
            if !self.scheduler.disk_is_low() && !self.store.has_room() {
                // The state lives on its reserve: requests in flight end, nothing new begins.
                inputs.push(Input::DiskIsLow(true));
                continue;
            }
            if let Some(standstill) = self.scheduler.standstill()
                && (until == Until::Standstill || standstill == Standstill::Stopped || grace.is_some())
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
                    question.answer(&self.scheduler);
                    // Nothing changed by it.
                    while let Ok(question) = self.questions.try_recv() {
                        question.answer(&self.scheduler);
                    }
                }
                () = timer => {}
                _ = disk_checks.tick() => {
                    let is_low = self.disk_is_low().await;
                    if is_low != self.scheduler.disk_is_low() {
                        inputs.push(Input::DiskIsLow(is_low));
                    }
                }
                // Keys are durable: the next start continues what is still in flight.
                () = grace_over => return Ok(Standstill::Stopped),
                changed = stop.changed(), if grace.is_none() => {
                    if changed.is_err() || *stop.borrow() == Stop::Soon {
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
            Message::Command(command, reply) => {
                let is_taken = matches!(&command, Command::AddBatch(_));
                if let Command::AddBatch(batch) = &command
                    && self.scheduler.batch(batch.no).is_none()
                {
                    taken.push(batch.name.clone());
                }
                let now = self.clock.now();
                load_days(&mut self.scheduler, &self.store, &[now.wall.utc_day()])?;
                load_days(&mut self.scheduler, &self.store, &command.days())?;
                let outcome = self.scheduler.execute(command, now)?;
                if is_taken {
                    failpoint::hit("taken");
                }
                Ok(Some((reply, outcome)))
            }
            Message::EngineDeps(deps) => {
                // Counters go on.
                let metrics = self.deps.metrics.clone();
                self.deps = Arc::new(EngineDeps { metrics, ..*deps });
                Ok(None)
            }
        }
    }

    /// Makes the folder of a batch that came in, once that is durable: nothing lies on the output disk of which nobody
    /// knows. Where it fails the batch's downloads say so and are tried again: nothing that is under way has to end
    /// for it.
    async fn prepare_output(&self, batch: BatchName) {
        let (output_dir, name) = (self.deps.output_dir.clone(), batch.clone());
        if let Err(error) = blocking(move || output_dir.prepare(&name)).await {
            tracing::warn!(%batch, %error, "failed to create the output directory");
        }
    }

    /// Decides; the changes are the caller's to commit, and the effects to begin afterwards.
    fn decide(&mut self, inputs: Vec<Input>) -> Result<Step, EngineError> {
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
        let (store, metrics, clock) = (self.store.clone(), self.deps.metrics.clone(), self.clock);
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
            self.deps.metrics.set_gauges(&self.scheduler.gauges(now));
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

    async fn begin(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let (sender, deps, store) = (self.sender.clone(), self.deps.clone(), self.store.clone());
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

    /// Whether the output disk has less room than it must keep, or the state's disk none. One that cannot
    /// be asked is left to the write that fails; one that refused a file is asked to set its room aside, since
    /// free bytes are not all that a file needs: there are quotas, and file systems run out of inodes.
    async fn disk_is_low(&self) -> bool {
        // With no room at all nothing is begun, whatever may be used up.
        let min_free_bytes = self.deps.min_free_bytes.max(PROBE_BYTES);
        let refused_bytes = self.scheduler.refused_bytes();
        if !self.store.has_room()
            || self.deps.output_dir.free_bytes().is_some_and(|free| free < min_free_bytes)
        {
            return true;
        }
        let Some(bytes) = refused_bytes else { return false };
        let output_dir = self.deps.output_dir.clone();
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
    async fn prepare_outputs(&self) -> Result<bool, EngineError> {
        let unfinished = self.scheduler.batches().filter(|batch| !batch.is_done());
        let names: Vec<BatchName> = unfinished.map(|batch| batch.name.clone()).collect();
        let output_dir = self.deps.output_dir.clone();
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
    Ok(scheduler)
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

/// Sleeps so long; for ever without a span.
async fn sleep(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}
