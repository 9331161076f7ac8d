//! The engine: wake -> admit -> commit intent -> effect -> commit outcome.
//!
//! [`scheduler`] decides; this file is the loop that commits what was decided and only then begins it. Downloads, which cost
//! nothing, begin before, and wait for the commit before they write anything. There is one loop and one writer; effects run beside
//! it and report back.

mod batch_results;
mod blocking;
mod catalog_source;
mod committed_steps;
mod disk;
mod download;
mod edited_rows;
mod effect_context;
mod effects;
pub mod engine_client;
mod engine_handle;
mod engine_mode;
pub mod gallery;
mod group_history;
pub mod input_retention;
pub mod input_store;
mod job_inputs;
pub mod job_iter;
pub mod job_page;
mod message_handler;
mod name_lookup;
pub mod output_store;
mod output_store_check;
pub mod output_sync;
pub mod publish_queue;
mod request_rate;
mod restart;
pub mod review;
pub mod review_page;
mod row_reader;
mod row_takes;
pub mod scheduler;
mod scratch_files;
mod shared_values;
mod signed_link_lifetime;
mod suspended_downloads;
mod target_jobs;
pub mod upload_limit;

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Interval;
use tracing::Instrument;

pub use self::batch_results::write_results;
pub use self::blocking::{blocking, in_place, to_the_end};
pub use self::catalog_source::{CatalogRefresh, CatalogSource};
pub use self::edited_rows::EditedRows;
pub use self::engine_handle::{BatchSnapshot, EngineGone, Handle};
use self::engine_handle::{Message, Question};
pub use self::engine_mode::{EngineDeps, Mode, Scope, Stop};
pub use self::name_lookup::{FindError, NamedJob, Target, target as find_target};
pub use self::request_rate::RateLimit;
use self::restart::{load_days, resume_scheduler};
use crate::clock::Clock;
use crate::domain::ids::{BatchNo, JobId, JobKey};
use crate::domain::job_reference::EndedTake;
use crate::domain::time::{Millis, Tick};
use crate::engine::committed_steps::{CommittedSteps, StepCommit};
use crate::engine::disk::{DISK_INTERVAL, TakenBatch};
use crate::engine::effect_context::EffectContext;
use crate::engine::effects::{effect_span, run_effect};
use crate::engine::gallery::Gallery;
use crate::engine::output_store_check::OutputStoreCheck;
use crate::engine::publish_queue::PublishQueue;
use crate::engine::scheduler::{
    CommandOutcome, Effect, Input, Scheduler, SchedulerError, Settings, Standstill, Step,
};
use crate::engine::scratch_files::CopyRemover;
use crate::engine::suspended_downloads::SuspendedDownloads;
use crate::failpoint;
use crate::metrics::Metrics;
use crate::store::{Change, JobRecord, Store, StoreError};

/// Tasks and links that are read at once for the inputs of jobs.
const EXCHANGES: usize = 64;
/// How long a stop waits for requests in flight.
const STOP_GRACE: Millis = Millis::from_secs(30);
/// Between two looks, afterwards, whether creating requests are still unanswered.
const ANSWERED_INTERVAL: Millis = Millis::from_secs(1);
/// Messages that share one commit at most.
const MESSAGES_MAX: usize = 64;
/// Between two looks at the whole for the metrics.
const OVERVIEW_INTERVAL: Millis = Millis::from_secs(1);
/// Events that may wait for the loop.
const INBOX_EVENTS: usize = 4096;
/// Outcomes of a batch, in bytes, that a command without a process reads to know of which outputs its next rows have: some ten
/// thousand jobs, in a tenth of a second.
const ENDED_READ_MAX_BYTES: u64 = 16 * 1024 * 1024;

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

/// How changes are made durable.
type Commit = fn(&Store, &[Change]) -> Result<(), StoreError>;

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
    /// Shared with every effect under way.
    context: Arc<EffectContext>,
    committed_steps: CommittedSteps,
    gallery: Gallery,
    /// When the metrics are shown the whole next.
    overview_due: Tick,
    /// What a killed process left is being removed.
    part_sweeps: Vec<JoinHandle<()>>,
    output_store_check: Option<OutputStoreCheck>,
}

/// What came in and is not answered yet, and how long the engine goes on.
#[derive(Debug, Default)]
struct Received {
    inputs: Vec<Input>,
    /// Batches that are not durable yet.
    taken: Vec<TakenBatch>,
    /// What commands came to; to be told once it is durable.
    outcomes: Vec<(engine_handle::Reply, CommandOutcome)>,
    /// Commands that came in while the state's disk was full.
    waiting: VecDeque<Message>,
    /// When a stop waits no longer for requests in flight.
    grace: Option<Tick>,
    /// Why nothing more moves of its own batches, while requests of others are still in flight.
    ended: Option<Standstill>,
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
        let mut scheduler = resume_scheduler(&store, settings, |no| scope.contains(no), clock.now())?;
        scheduler.work_for(scope.clone());
        if !sends {
            scheduler.disable_sending();
        }
        let (sender, events) = mpsc::channel(INBOX_EVENTS);
        let (handle, messages, questions) = Handle::new(deps.is_some(), *scope == Scope::All);
        let context = EffectContext {
            store: store.clone(),
            exchanges: Semaphore::new(EXCHANGES),
            publish_queue: Arc::new(PublishQueue::new(sender.clone())),
            suspended_downloads: SuspendedDownloads::default(),
            clock,
        };
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
            context: Arc::new(context),
            committed_steps: CommittedSteps::default(),
            gallery: Gallery::default(),
            overview_due: Tick(0),
            part_sweeps: Vec::new(),
            output_store_check: None,
        })
    }

    /// Has it write the galleries of its batches.
    #[must_use]
    pub fn with_gallery(self, gallery: Gallery) -> Engine {
        Engine { gallery, ..self }
    }

    /// Reaches the engine while it runs.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The state the engine works on.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Works until `stop` says so. `observe` sees every step. An engine that begins no effects serves until it is to
    /// stop soon.
    ///
    /// # Errors
    /// [`EngineError`]; everything acknowledged is safe, and a restart resumes.
    pub async fn run(
        &mut self,
        mut stop: watch::Receiver<Stop>,
        mut observe: impl FnMut(&StepView<'_>),
    ) -> Result<Standstill, EngineError> {
        self.check_output_store();
        let mut disk_checks = tokio::time::interval(DISK_INTERVAL);
        // The first tick comes at once, and so does the first look: before anything is sent.
        disk_checks.tick().await;
        let mut received = Received { inputs: self.first_inputs().await, ..Received::default() };
        self.remove_copies_left_behind().await?;
        let mut following = self.deps.is_some().then(|| self.gallery.follow(self.handle()));
        let standstill = loop {
            let step = self.take_step(&mut received, &mut stop, &mut observe).await?;
            if let Some(following) = &mut following {
                self.gallery.observe(following, &self.scheduler, &step, self.clock.now().tick);
            }
            for batch in received.taken.drain(..) {
                received.inputs.extend(self.prepare_output(batch).await);
            }
            observe(&StepView { scheduler: &self.scheduler, step: &step });
            let wake = step.wake;
            received.inputs.extend(self.begin(step).await?);
            // Its process ends when the command is answered: what follows from it comes first.
            if self.deps.is_none()
                && (!received.inputs.is_empty() || wake.is_some_and(|at| at <= self.clock.now().tick))
            {
                continue;
            }
            // The command is durable: its sender is told, unless it has gone away.
            for (reply, outcome) in received.outcomes.drain(..) {
                let _ = reply.send(outcome);
            }
            if !self.scheduler.disk_is_low() && !self.store.has_room() {
                // The state lives on its reserve: requests in flight end, nothing new begins.
                received.inputs.push(Input::DiskIsLow(true));
                continue;
            }
            // What was found of output folders counts before anything is waited for.
            if !received.inputs.is_empty() {
                continue;
            }
            if self.deps.is_some()
                && let Some(standstill) = self.scheduler.standstill()
                && (*stop.borrow() == Stop::AtStandstill
                    || standstill == Standstill::Stopped
                    || received.grace.is_some())
            {
                if received.ended.is_some() || !self.scheduler.has_requests_in_flight() {
                    break standstill;
                }
                // A command had jobs of other batches taken up: a request without a key that is left would be in doubt.
                received.ended = Some(standstill);
                received.grace = Some(self.clock.now().tick.after(STOP_GRACE));
                received.inputs.push(Input::Stop);
                continue;
            }
            if let Some(standstill) = self.receive(&mut received, wake, &mut disk_checks, &mut stop).await? {
                break standstill;
            }
        };
        self.finish_part_sweeps().await;
        Ok(received.ended.unwrap_or(standstill))
    }

    /// Ends it. Its jobs are freed by a thread of their own: to free 100,000 takes longer than everything else at the end of
    /// a process, which does not wait for that.
    pub fn end(self) {
        let Engine { scheduler, .. } = self;
        // Where no thread can be started, they are freed here.
        drop(std::thread::Builder::new().name("job-removal".to_owned()).spawn(move || drop(scheduler)));
    }

    /// What the first step has to know of the disks: looked at before anything is sent.
    async fn first_inputs(&mut self) -> Vec<Input> {
        let Some(deps) = self.deps.clone() else { return Vec::new() };
        let mut inputs = self.prepare_outputs(&deps).await;
        let is_full = |inputs: &[Input]| inputs.iter().any(|input| matches!(input, Input::DiskIsLow(true)));
        if is_full(&inputs) || self.disk_is_low(&deps).await {
            // It may be what a killed process left that fills the disk.
            self.finish_part_sweeps().await;
            inputs = self.make_output_folders(&deps).await;
            if self.disk_is_low(&deps).await {
                inputs.push(Input::DiskIsLow(true));
            }
        }
        inputs
    }

    /// Decides what follows from what came in, and makes that durable.
    async fn take_step(
        &mut self,
        received: &mut Received,
        stop: &mut watch::Receiver<Stop>,
        observe: &mut impl FnMut(&StepView<'_>),
    ) -> Result<Step, EngineError> {
        let mut step = self.decide(std::mem::take(&mut received.inputs))?;
        // A batch that comes with this step has no folder yet.
        let downloads = if received.taken.is_empty() { self.begin_downloads(&mut step) } else { 0 };
        if let Err(error) = self.commit(&step, Store::commit) {
            if *stop.borrow() != Stop::No || self.deps.is_none() || !error.is_full() {
                return Err(error.into());
            }
            received.waiting.extend(self.wait_for_room(error, &step, stop, observe).await?);
        }
        self.is_committed(&step, downloads);
        Ok(step)
    }

    /// Waits for what comes next. Returns how it stands where the work is over.
    async fn receive(
        &mut self,
        received: &mut Received,
        wake: Option<Tick>,
        disk_checks: &mut Interval,
        stop: &mut watch::Receiver<Stop>,
    ) -> Result<Option<Standstill>, EngineError> {
        let timer = self.sleep_until(wake);
        let grace_over = sleep(received.grace.map(|end| self.clock.until(end)));
        let Received { inputs, waiting, grace, ended, .. } = received;
        tokio::select! {
            _ = self.events.recv_many(inputs, Scheduler::INPUTS_MAX) => self.gather(inputs).await,
            Some(message) = next(waiting, &mut self.messages) => self.handle_messages(message, received).await?,
            Some(question) = self.questions.recv() => {
                self.find_what_parks().await?;
                let now = self.clock.now();
                question.answer(&self.scheduler, now);
                // Nothing changed by it.
                while let Ok(question) = self.questions.try_recv() {
                    question.answer(&self.scheduler, now);
                }
            }
            () = timer => {}
            _ = disk_checks.tick(), if self.deps.is_some() => {
                let Some(deps) = self.deps.clone() else { return Ok(None) };
                let is_low = self.disk_is_low(&deps).await;
                if is_low != self.scheduler.disk_is_low() {
                    inputs.push(Input::DiskIsLow(is_low));
                }
                inputs.extend(self.folders_that_take(&deps).await);
            }
            () = grace_over => {
                // Keys are durable: the next start continues what is still in flight.
                if *stop.borrow() != Stop::Answered && ended.is_none() || self.scheduler.unanswered_posts().0 == 0 {
                    return Ok(Some(Standstill::Stopped));
                }
                *grace = Some(self.clock.now().tick.after(ANSWERED_INTERVAL));
            }
            changed = stop.changed(), if grace.is_none() => {
                if changed.is_err() || stop.borrow().is_stopping() {
                    if self.deps.is_none() {
                        return Ok(Some(Standstill::Stopped));
                    }
                    *grace = Some(self.clock.now().tick.after(STOP_GRACE));
                    inputs.push(Input::Stop);
                }
            }
        }
        Ok(None)
    }

    /// Takes in what else is about to arrive, so that it shares a commit: tasks that are ready to report do so first. A
    /// lone event does not wait.
    async fn gather(&mut self, inputs: &mut Vec<Input>) {
        loop {
            let arrived = inputs.len();
            tokio::task::yield_now().await;
            while inputs.len() < Scheduler::INPUTS_MAX
                && let Ok(input) = self.events.try_recv()
            {
                inputs.push(input);
            }
            if inputs.len() == arrived || inputs.len() >= Scheduler::INPUTS_MAX {
                return;
            }
        }
    }

    /// Decides; the changes are the caller's to commit, and the effects to begin.
    fn decide(&mut self, mut inputs: Vec<Input>) -> Result<Step, EngineError> {
        if self.is_read_only {
            return Ok(Step::default());
        }
        let now = self.clock.now();
        let today = now.wall.utc_day();
        load_days(&mut self.scheduler, &self.store, [today])?;
        for input in &mut inputs {
            match input {
                Input::Posted(..) => failpoint::hit("posted"),
                Input::Read(..) => failpoint::hit("read"),
                Input::Versions(applied) => {
                    failpoint::hit("versions-applied");
                    edited_rows::refresh(&self.store, applied)?;
                }
                _ => {}
            }
        }
        Ok(self.scheduler.step(inputs, now)?)
    }

    /// Makes a step durable. This thread waits for it: effects have others.
    fn commit(&self, step: &Step, how: Commit) -> Result<(), StoreError> {
        if step.changes.is_empty() {
            return Ok(());
        }
        let begun = self.clock.elapsed();
        let committed = in_place(|| how(&self.store, &step.changes));
        self.metrics.flushed(self.clock.elapsed().saturating_sub(begun));
        committed
    }

    /// What follows a step that is durable, and of which so many downloads have begun.
    fn is_committed(&mut self, step: &Step, downloads: usize) {
        self.committed_steps.advance();
        self.context.suspended_downloads.set_waiting(self.scheduler.download_waits());
        let now = self.clock.now();
        if now.tick >= self.overview_due {
            self.overview_due = now.tick.after(OVERVIEW_INTERVAL);
            self.metrics.set_gauges(&self.scheduler.gauges(now));
        }
        if !step.ended.is_empty() {
            failpoint::hit("ended");
        }
        let is_download = |effect: &&Effect| matches!(effect, Effect::Fetch(_));
        for _ in 0..downloads + step.effects.iter().filter(is_download).count() {
            failpoint::hit("fetching");
        }
        for effect in &step.effects {
            match effect {
                Effect::Post { .. } => failpoint::hit("admitted"),
                Effect::Read { .. } => failpoint::hit("task-known"),
                Effect::FindInputs { .. } => failpoint::hit("finding-inputs"),
                Effect::Fetch(_)
                | Effect::LoadRows { .. }
                | Effect::LoadEnded { .. }
                | Effect::GoBack { .. }
                | Effect::AskBalance
                | Effect::RenewCatalog
                | Effect::KeepSurcharges(_) => {}
            }
        }
    }

    /// Removes copies of outputs that are in the object store, which is durable, where they do not stay on disk.
    fn remove_copies(&self, ended: impl IntoIterator<Item = JobRecord>, deps: &Arc<EngineDeps>) {
        if deps.keeps_local {
            return;
        }
        for record in ended {
            tokio::spawn(self.copy_remover(deps).remove(record));
        }
    }

    /// The same of jobs that had ended before, whose copies may have waited for a decision. One that was restored since stays.
    fn remove_marked_copies(&self, changed: Vec<JobRecord>, deps: &Arc<EngineDeps>) {
        if !deps.keeps_local && !changed.is_empty() {
            tokio::spawn(self.copy_remover(deps).remove_marked(changed));
        }
    }

    fn copy_remover(&self, deps: &EngineDeps) -> CopyRemover {
        CopyRemover {
            store: self.store.clone(),
            output_dir: deps.output_dir.clone(),
            gallery: self.gallery.clone(),
            sender: self.sender.clone(),
        }
    }

    /// The same for what an earlier process left.
    async fn remove_copies_left_behind(&self) -> Result<(), EngineError> {
        let Some(deps) = self.deps.as_ref().filter(|deps| !deps.keeps_local) else { return Ok(()) };
        let open: HashSet<JobKey> = self.scheduler.open_jobs().map(|record| record.key).collect();
        let remover = self.copy_remover(deps);
        let left = blocking(move || remover.left_behind(|key| open.contains(&key))).await?;
        self.remove_copies(left, deps);
        Ok(())
    }

    /// Begins what was decided and is durable. Returns what that came to already.
    async fn begin(&mut self, step: Step) -> Result<Vec<Input>, EngineError> {
        let Step { effects, ended, changed_outcomes, .. } = step;
        let Some(deps) = self.deps.clone() else { return self.load_asked(effects).await };
        self.begin_effects(effects, &deps, &self.committed_steps.last());
        self.remove_copies(ended.into_iter().map(|(_, record)| record), &deps);
        self.remove_marked_copies(changed_outcomes, &deps);
        Ok(Vec::new())
    }

    /// Begins the downloads of a step before it is made durable: they cost nothing, and write nothing before it is. Returns how
    /// many these are.
    fn begin_downloads(&self, step: &mut Step) -> usize {
        let Some(deps) = self.deps.clone() else { return 0 };
        let is_download = |effect: &mut Effect| matches!(effect, Effect::Fetch(_));
        let downloads: Vec<Effect> = step.effects.extract_if(.., is_download).collect();
        let count = downloads.len();
        self.begin_effects(downloads, &deps, &self.committed_steps.next());
        count
    }

    fn begin_effects(&self, effects: Vec<Effect>, deps: &Arc<EngineDeps>, commit: &StepCommit) {
        for effect in effects {
            let (sender, deps, context) = (self.sender.clone(), deps.clone(), self.context.clone());
            let (span, commit) = (effect_span(&effect, &self.scheduler), commit.clone());
            let done = async move {
                for input in run_effect(effect, &commit, &deps, &context).await {
                    // The loop may have ended meanwhile; what came back is asked for again by the next.
                    let _ = sender.send(input).await;
                }
            };
            tokio::spawn(done.instrument(span));
        }
    }

    /// Reads the rows that were asked for, and how few jobs ended; no other effect begins.
    async fn load_asked(&self, effects: Vec<Effect>) -> Result<Vec<Input>, EngineError> {
        let mut inputs = Vec::new();
        for effect in effects {
            match effect {
                Effect::LoadRows { batch, from, end, most } => {
                    let rows = row_reader::load_rows(&self.store, batch, from, end, most).await?;
                    inputs.push(Input::Rows { batch, from, rows });
                }
                Effect::LoadEnded { batch } => {
                    let jobs = self.load_few_ended(batch).await;
                    inputs.extend(jobs.map(|jobs| Input::Ended { batch, jobs }));
                }
                _ => {}
            }
        }
        Ok(inputs)
    }

    /// How the jobs of a batch ended, where nothing is sent and they are few. Of many, or where they cannot be read, the rows
    /// that need them are left waiting, and what is shown is what is known without them.
    async fn load_few_ended(&self, batch: BatchNo) -> Option<Vec<(JobId, EndedTake)>> {
        let store = self.store.clone();
        blocking(move || {
            let record = store.batch(batch).ok()??;
            let is_few = store.outcomes_bytes(&record).ok()? <= ENDED_READ_MAX_BYTES;
            is_few.then(|| job_inputs::ended_jobs(&store, batch).ok()).flatten()
        })
        .await
    }

    /// Finds out which budgets park batches, where no admission does: nothing is sent.
    async fn find_what_parks(&mut self) -> Result<(), EngineError> {
        if self.deps.is_some() {
            return Ok(());
        }
        let now = self.clock.now();
        load_days(&mut self.scheduler, &self.store, [now.wall.utc_day()])?;
        let wanted = self.scheduler.rows_wanted();
        self.load_asked(wanted).await?.into_iter().for_each(|read| self.scheduler.add_read(read));
        let wanted = self.scheduler.lookups_wanted();
        self.load_asked(wanted).await?.into_iter().for_each(|read| self.scheduler.add_read(read));
        self.scheduler.foresee(now);
        Ok(())
    }

    fn sleep_until(&self, wake: Option<Tick>) -> impl Future<Output = ()> + use<> {
        // A deadline is in wall-clock time, which may step: it is looked at now and then.
        let deadline_check = self.scheduler.watches_the_calendar().then_some(Duration::from_secs(1));
        let until = wake.map(|tick| self.clock.until(tick));
        let wait = [until, deadline_check].into_iter().flatten().min();
        sleep(wait)
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

/// Sleeps so long; for ever without a span.
async fn sleep(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}
