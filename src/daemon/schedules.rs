//! Schedules: batches that begin by themselves.
//!
//! What is due is decided in [`crate::domain::schedule::catch_up`]; here the clock is looked at, runs are handed
//! to the one way in, and what was handled is kept. A run is noted as waiting, taken in, and noted as handled: if the
//! process dies between any two of these, the next one takes the same run in under the same name, and finds all of it there.
//! A run that cannot be taken in (the manifest is being written, the disk is full) stays noted as waiting, and is tried again until
//! it can, or until the next is due; its manifest is read anew.
//!
//! The clock is looked at every few seconds at least, however far the next run is: it may be set.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::config::{INBOX_SETTLE, ScheduleConfig};
use crate::domain::batch_origin::SourcePlace;
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::manifest::row::Policy;
use crate::domain::schedule::catch_up::{
    self, Due, Handled, Missed, ON_TIME, Overlap, Reason, SchedulePolicy,
};
use crate::domain::schedule::{Schedule, ScheduleError, name};
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::engine::{Handle, Stop};
use crate::ingest::ingest_handle::{IngestError, IngestHandle, in_full};
use crate::ingest::receipt::Receipt;
use crate::ingest::{IngestOptions, ManifestError};
use crate::server::app_state::{FireError, FireMode, FireRequest};
use crate::server::protocol::{ActiveSchedule, Refusal, Schedules};
use crate::store::schedule_progress::{
    self, LastRun, LeftOutRun, RunByHand, ScheduleRecord, ScheduleRecords,
};
use crate::store::{BatchRecord, Store, StoreError};

mod by_hand;
#[cfg(test)]
mod tests;

/// Longest time between two looks at the clock.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Between two questions which batches wait for people, while the engine is looking that up; it is asked so often at most.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(50);
const LOOKUP_QUESTIONS_MAX: u32 = 100;

/// Between two tries to take a run in that could not be...
const RETRY_INTERVAL: Millis = Millis::from_secs(10);
/// ...and, twice as long after every one that failed in the same way, at most.
const RETRY_INTERVAL_MAX: Millis = Millis::from_secs(300);
/// A run that another process saw in time, and could not take in, is tried again for so long after it was due.
const WAITS_MAX: Millis = Millis::from_secs(24 * 3600);
/// The same failure is logged again after this time.
const WARN_AGAIN_AFTER: Millis = Millis::from_secs(3600);

/// A schedule as the daemon carries it out.
#[derive(Debug, Clone)]
pub struct ConfiguredSchedule {
    name: String,
    schedule: Schedule,
    run_policy: SchedulePolicy,
    manifest: PathBuf,
    policy: Policy,
    default_policy: Policy,
}

impl ConfiguredSchedule {
    /// From its section of the configuration. Its budget is the most that a run may spend, though the manifest
    /// may ask for less; its other terms hold where the manifest says nothing.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn of(config: &ScheduleConfig) -> Result<ConfiguredSchedule, ScheduleError> {
        Ok(ConfiguredSchedule {
            name: config.name.clone(),
            schedule: config.schedule()?,
            run_policy: SchedulePolicy {
                missed: config.missed,
                missed_max: config.missed_max,
                overlap: config.overlap,
            },
            manifest: config.manifest.clone(),
            policy: Policy { budget: config.budget, ..Policy::default() },
            default_policy: config.policy.clone(),
        })
    }

    fn in_force(&self) -> ActiveSchedule {
        let (cron, timezone) = (self.schedule.cron().to_owned(), self.schedule.timezone().to_owned());
        ActiveSchedule { name: self.name.clone(), cron, timezone }
    }

    /// How its run at an instant comes in.
    fn options(&self, at: Timestamp) -> Result<IngestOptions, ManifestError> {
        Ok(IngestOptions {
            batch: Some(name::of_run(&self.name, at)?),
            default_policy: self.policy.over(&self.default_policy),
            ceiling: self.policy.budget.or(self.default_policy.budget),
            place: SourcePlace::Schedule(self.name.clone()),
            occasion: Some(self.schedule.occasion(at)),
            ..IngestOptions::default()
        })
    }
}

/// Where runs go in.
pub(super) trait RunIngest: Send + Sync {
    /// Takes a manifest in; durable on return. Its receipt tells of rows that could not be validated now.
    fn take_in(
        &self,
        manifest: &Path,
        options: IngestOptions,
    ) -> impl Future<Output = Result<Receipt, IngestError>> + Send;
    /// What that would answer; nothing is taken in.
    fn plan(
        &self,
        manifest: &Path,
        options: IngestOptions,
    ) -> impl Future<Output = Result<Receipt, IngestError>> + Send;
    /// The batches that have not ended, without those that only people can move.
    fn unfinished(&self) -> impl Future<Output = Result<Vec<BatchName>, StoreError>> + Send;
    /// Whether a manifest has been unchanged for [`INBOX_SETTLE`]: nobody is writing it just now.
    fn is_settled(&self, manifest: &Path, now: Timestamp) -> bool;
}

/// How the daemon takes runs in.
#[derive(Debug)]
pub(super) struct DaemonIngest {
    pub(super) ingest: IngestHandle,
    pub(super) store: Arc<Store>,
    pub(super) engine: Handle,
}

impl RunIngest for DaemonIngest {
    async fn take_in(&self, manifest: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        self.ingest.accept(manifest, options).await
    }

    async fn plan(&self, manifest: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        self.ingest.plan(manifest, options).await
    }

    async fn unfinished(&self) -> Result<Vec<BatchName>, StoreError> {
        let mut waiting = self.engine.waiting_for_people().await;
        for _ in 1..LOOKUP_QUESTIONS_MAX {
            if !matches!(waiting, Ok(None)) {
                break;
            }
            tokio::time::sleep(LOOKUP_INTERVAL).await;
            waiting = self.engine.waiting_for_people().await;
        }
        // Where the engine has ended, no run starts either.
        let waiting = waiting.unwrap_or_default().unwrap_or_default();
        let moves = |batch: &BatchRecord| !batch.has_ended() && !waiting.contains(&batch.no);
        let batches = self.store.batches()?;
        Ok(batches.into_iter().filter(moves).map(|batch| batch.name).collect())
    }

    fn is_settled(&self, manifest: &Path, now: Timestamp) -> bool {
        // What cannot be looked at is said by the one who reads it.
        let Ok(meta) = std::fs::metadata(manifest) else { return true };
        let changed = meta.ctime().saturating_mul(1000).saturating_add(meta.ctime_nsec() / 1_000_000);
        // A time to come is of another clock.
        u64::try_from(now.0.saturating_sub(changed)).map_or(true, |age| age >= INBOX_SETTLE.0.0)
    }
}

/// What the outside tells the loop.
#[derive(Debug)]
pub(super) struct Inputs {
    /// The schedules of a new configuration.
    pub(super) reloads: watch::Receiver<Vec<ConfiguredSchedule>>,
    /// Runs that somebody starts by hand.
    pub(super) fires: mpsc::Receiver<FireRequest>,
    /// The end.
    pub(super) stop: watch::Receiver<Stop>,
}

/// The engine has ended, and so does everything that feeds it.
struct EngineEnded;

/// What is known of a schedule while the daemon runs.
#[derive(Debug, Default)]
struct Progress {
    /// How far it is handled, with what is waiting.
    handled: Option<Handled>,
    /// When this process decided the last time what is due.
    decided: Option<Tick>,
    /// Runs that are due and not taken in yet, the oldest first.
    waiting: VecDeque<Timestamp>,
    /// When the first of these is tried.
    tries: Tries,
    /// Runs that somebody started, and of which rows could not be validated yet.
    by_hand: VecDeque<RunByHand>,
    /// When the first of these is tried.
    tries_by_hand: Tries,
    /// It was said that the clock is behind.
    is_behind: bool,
    /// The batch that was said to be in the way, and when.
    said_in_the_way: Option<(BatchName, Tick)>,
}

/// The tries to take a run in.
#[derive(Debug, Default)]
struct Tries {
    /// Not tried before.
    retry_at: Tick,
    /// Why the last try failed.
    failed: Option<FailedTry>,
}

impl Tries {
    /// One failed. Whether that is logged: the same failure is not logged at every try.
    fn fail(&mut self, error: &IngestError, now: Tick) -> bool {
        let (failed, is_logged) = FailedTry::after(self.failed.take(), error.to_string(), now);
        self.retry_at = now.after(failed.wait);
        self.failed = Some(failed);
        is_logged
    }
}

/// Why a run could not be taken in.
#[derive(Debug)]
struct FailedTry {
    said: String,
    /// When it was logged.
    logged: Tick,
    /// Before the next try.
    wait: Millis,
}

impl FailedTry {
    /// A try that failed after `last`; whether it is logged.
    fn after(last: Option<FailedTry>, said: String, now: Tick) -> (FailedTry, bool) {
        match last.filter(|last| last.said == said) {
            None => (FailedTry { said, logged: now, wait: RETRY_INTERVAL }, true),
            Some(last) => {
                let is_logged = now.since(last.logged) >= WARN_AGAIN_AFTER;
                let wait = Millis(last.wait.0 * 2).min(RETRY_INTERVAL_MAX);
                (FailedTry { said, logged: if is_logged { now } else { last.logged }, wait }, is_logged)
            }
        }
    }
}

/// Drops what waits since another process saw it where it is not wanted any more: an edited expression catches up with nothing,
/// and with `missed = "skip"` what is older than a day was missed.
fn drop_outdated(progress: &mut Progress, configured: &ConfiguredSchedule, now: Timestamp) {
    let is_of_another =
        progress.handled.as_ref().is_some_and(|handled| handled.by != configured.schedule.source());
    let skips_older = configured.run_policy.missed == Missed::Skip && progress.decided.is_none();
    progress.waiting.retain(|at| {
        let is_dropped = is_of_another || skips_older && now.since(*at) > WAITS_MAX;
        if is_dropped {
            tracing::warn!(schedule = configured.name, %at, "a run that could not be accepted is not tried again");
        }
        !is_dropped
    });
}

/// The schedules and how far they are.
pub(super) struct ScheduleRunner<D> {
    ingest: D,
    dir: PathBuf,
    configured: Vec<ConfiguredSchedule>,
    in_force: watch::Sender<Schedules>,
    progress: BTreeMap<String, Progress>,
    records: ScheduleRecords,
    /// The records differ from what is on disk.
    is_unsaved: bool,
}

impl<D: RunIngest> ScheduleRunner<D> {
    /// Takes up what is kept in the state folder `dir`.
    pub(super) fn begin(ingest: D, dir: &Path, configured: Vec<ConfiguredSchedule>) -> ScheduleRunner<D> {
        let records = schedule_progress::read(dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "all schedules start anew; missed runs are not caught up");
            ScheduleRecords::new()
        });
        let known = |(name, record): (&String, &ScheduleRecord)| {
            let ScheduleRecord { handled, waiting, by_hand, .. } = record.clone();
            (name.clone(), Progress { handled: Some(handled), waiting, by_hand, ..Progress::default() })
        };
        let progress = records.iter().map(known).collect();
        let (in_force, _) = watch::channel(Schedules::default());
        let dir = dir.to_owned();
        let mut runner = ScheduleRunner {
            ingest,
            dir,
            configured: Vec::new(),
            in_force,
            progress,
            records,
            is_unsaved: false,
        };
        runner.replace(configured);
        runner
    }

    /// The runs that are carried out, for questions about them.
    pub(super) fn in_force(&self) -> watch::Receiver<Schedules> {
        self.in_force.subscribe()
    }

    /// Serves until the daemon stops.
    pub(super) async fn run(mut self, clock: Clock, mut inputs: Inputs) {
        while let Ok(()) = self.look(clock.now()).await {
            let wait = self.wait(clock.now().wall);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                Ok(()) = inputs.reloads.changed() => {
                    // What the old ones owe up to now is not lost with them.
                    if self.look(clock.now()).await.is_err() {
                        return;
                    }
                    let configured = inputs.reloads.borrow_and_update().clone();
                    self.replace(configured);
                }
                Some(request) = inputs.fires.recv() => self.fire(request, clock.now().wall).await,
                _ = inputs.stop.changed() => return,
            }
        }
    }

    /// Other schedules from now on. One that went away is forgotten: if it comes back, it begins anew.
    fn replace(&mut self, configured: Vec<ConfiguredSchedule>) {
        self.configured = configured;
        let configured = &self.configured;
        let schedules = configured.iter().map(ConfiguredSchedule::in_force).collect();
        self.in_force.send_replace(Schedules { schedules });
        let is_there = |name: &String| configured.iter().any(|configured| configured.name == *name);
        let before = self.records.len();
        self.records.retain(|name, _| is_there(name));
        self.progress.retain(|name, _| is_there(name));
        self.is_unsaved |= self.records.len() != before;
    }

    /// Starts what is due. All that is due is kept before the first manifest is read, which may take long: if the process ends
    /// meanwhile, the next one takes it in.
    async fn look(&mut self, now: Now) -> Result<(), EngineEnded> {
        let all = self.configured.clone();
        for configured in &all {
            self.decide(configured, now).await;
            self.note_progress(&configured.name);
        }
        self.save();
        for configured in &all {
            let taken_in = self.take_in(configured, now).await;
            self.note_progress(&configured.name);
            self.save();
            taken_in?;
        }
        Ok(())
    }

    /// Moves what is due to what is waiting.
    async fn decide(&mut self, configured: &ConfiguredSchedule, Now { wall: now, tick }: Now) {
        let ConfiguredSchedule { name, schedule, run_policy, .. } = configured;
        let progress = self.progress.entry(name.clone()).or_default();
        drop_outdated(progress, configured, now);
        let handled = progress.handled.as_ref();
        let awake_for = progress.decided.map_or(Millis(0), |decided| tick.since(decided));
        let mut in_the_way = None;
        let mut due = catch_up::decide(schedule, *run_policy, handled, now, awake_for, false);
        if !due.start.is_empty() && run_policy.overlap == Overlap::Skip {
            match self.ingest.unfinished().await {
                Ok(batches) => {
                    let mut batches = batches.into_iter();
                    in_the_way = batches.find(|batch| is_in_the_way(configured, &due, handled, batch));
                    if in_the_way.is_some() {
                        due = catch_up::decide(schedule, *run_policy, handled, now, awake_for, true);
                    }
                }
                Err(error) => {
                    tracing::error!(schedule = name, %error, "cannot check whether the previous run has ended; no \
                                                              run starts");
                    return;
                }
            }
        }
        let is_known = |said: &(BatchName, Tick)| {
            in_the_way.as_ref() == Some(&said.0) && tick.since(said.1) < WARN_AGAIN_AFTER
        };
        let is_said = progress.said_in_the_way.as_ref().is_some_and(is_known);
        note(name, &due, in_the_way.as_ref(), is_said);
        if !is_said && !due.left_out.is_empty() {
            progress.said_in_the_way = in_the_way.clone().map(|batch| (batch, tick));
        }
        let behind = due.handled.up_to.since(now);
        if behind > ON_TIME && !progress.is_behind {
            let up_to = due.handled.up_to;
            tracing::warn!(schedule = name, %up_to, "the clock was set back; schedules wait until it has caught up");
        }
        progress.is_behind = behind > ON_TIME;
        let most = if run_policy.missed == Missed::All { run_policy.missed_max.max(1) } else { 1 };
        // What is due together goes together.
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(due.start.len());
        progress.waiting.extend(&due.start);
        if !due.start.is_empty() {
            // One that is due now waits for no long wait of those before it.
            progress.tries.retry_at = progress.tries.retry_at.min(tick.after(RETRY_INTERVAL));
        }
        // With `skip` those that were missed are later than what waits since another process saw it.
        let is_missed = run_policy.missed == Missed::Skip
            && due.left_out.iter().any(|left| left.reason == Reason::Missed);
        let most = if is_missed { due.start.len() } else { most };
        while progress.waiting.len() > most {
            if let Some(at) = progress.waiting.pop_front() {
                tracing::warn!(schedule = name, %at, "the run could not be accepted in full before the next was due");
            }
        }
        progress.handled = Some(due.handled);
        progress.decided = Some(tick);
        let overlap = due.left_out.iter().find(|left| left.reason == Reason::Overlap);
        if let (Some(left), Some(in_the_way)) = (overlap, in_the_way)
            && let Some(record) = self.records.get_mut(name)
        {
            record.left_out = Some(LeftOutRun { at: left.last, in_the_way });
            self.is_unsaved = true;
        }
    }

    /// Takes in what is waiting.
    async fn take_in(&mut self, configured: &ConfiguredSchedule, at_look: Now) -> Result<(), EngineEnded> {
        self.take_in_due(configured, at_look).await?;
        self.finish_runs_by_hand(configured, at_look.tick).await
    }

    async fn take_in_due(
        &mut self,
        configured: &ConfiguredSchedule,
        at_look: Now,
    ) -> Result<(), EngineEnded> {
        let (name, now) = (&configured.name, at_look.tick);
        loop {
            let Some(progress) = self.progress.get_mut(name) else { return Ok(()) };
            let Some(&at) = progress.waiting.front() else { break };
            if now < progress.tries.retry_at {
                return Ok(());
            }
            if !self.ingest.is_settled(&configured.manifest, at_look.wall) {
                tracing::info!(schedule = name, %at, "its manifest has just changed; waiting until nobody writes it");
                progress.tries.retry_at = now.after(INBOX_SETTLE.0);
                return Ok(());
            }
            match self.start(configured, at, None).await.and_then(in_full) {
                Err(IngestError::Gone(_)) => return Err(EngineEnded),
                Err(error) if !is_hopeless(&error) => {
                    let Some(progress) = self.progress.get_mut(name) else { return Ok(()) };
                    if progress.tries.fail(&error, now) {
                        tracing::warn!(schedule = name, %at, %error, "failed to start a run; retrying with increasing delays");
                    }
                    return Ok(());
                }
                Err(error) => tracing::error!(schedule = name, %at, %error, "failed to start a run"),
                Ok(_) => {}
            }
            if let Some(progress) = self.progress.get_mut(name) {
                progress.waiting.pop_front();
                progress.tries.failed = None;
            }
        }
        Ok(())
    }

    /// One run, taken in and noted. It may spend `most`, where that was agreed on: its manifest may be another by now.
    async fn start(
        &mut self,
        configured: &ConfiguredSchedule,
        at: Timestamp,
        most: Option<Credits>,
    ) -> Result<Receipt, IngestError> {
        let mut options = configured.options(at)?;
        options.ceiling = options.ceiling.into_iter().chain(most).min();
        let batch = options.batch.clone();
        let receipt = self.ingest.take_in(&configured.manifest, options).await?;
        let schedule = &configured.name;
        let (new, have, invalid) = (receipt.added(), receipt.have, receipt.invalid);
        let is_taken_in = receipt.is_taken_in();
        // What is only tried once more has fired before.
        let is_news = new > 0 || receipt.not_validated == 0;
        if let Some(problem) = receipt.problems.first().filter(|_| is_news) {
            let problem = problem.to_string();
            tracing::warn!(schedule, %at, new, have, invalid, problem, "its manifest has problems");
        }
        if is_news {
            let said = if is_taken_in { "fired" } else { "schedule fired, no job accepted" };
            tracing::info!(schedule, %at, new, have, invalid, "{said}");
        }
        if let (true, Some(batch)) = (is_taken_in && is_news, batch) {
            let by = configured.schedule.source();
            let record = self
                .records
                .entry(schedule.clone())
                .or_insert_with(|| ScheduleRecord::new(Handled { up_to: at, by }));
            record.last_run = Some(LastRun { at, batch });
            record.left_out = None;
            self.is_unsaved = true;
        }
        Ok(receipt)
    }

    /// Somebody starts a run by hand: now, and beside whatever runs.
    async fn fire(&mut self, request: FireRequest, now: Timestamp) {
        let FireRequest { name, how, reply } = request;
        let configured = self.configured.iter().find(|configured| configured.name == name).cloned();
        let answer = match configured {
            Some(configured) => {
                // Names show seconds.
                let at = Timestamp(now.0.div_euclid(1000) * 1000);
                let answer = match how {
                    FireMode::Now => self.start_by_hand(&configured, at, None).await,
                    FireMode::Plan(at) => self.plan(&configured, at).await,
                    FireMode::Planned(at, most) => self.start_by_hand(&configured, at, Some(most)).await,
                };
                let answer = answer.map_err(|error| {
                    let refusal = Refusal::from(&error);
                    let message = format!("schedule {name}: {}", refusal.message);
                    FireError::Refused(Refusal { message, ..refusal })
                });
                self.save();
                answer
            }
            None => Err(FireError::Unknown(self.no_schedule(&name))),
        };
        // The client may have disconnected.
        let _ = reply.send(answer);
    }

    /// What a run of an instant would do and cost.
    async fn plan(&self, configured: &ConfiguredSchedule, at: Timestamp) -> Result<Receipt, IngestError> {
        self.ingest.plan(&configured.manifest, configured.options(at)?).await
    }

    fn no_schedule(&self, name: &str) -> Refusal {
        let known: Vec<&str> = self.configured.iter().map(|configured| configured.name.as_str()).collect();
        let known = if known.is_empty() {
            "there is none".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        Refusal::new(Exit::Usage, format!("no schedule is called {name}; {known}"))
    }

    /// Notes how far a schedule is, and which of its runs are still to be taken in: the next process takes them in.
    fn note_progress(&mut self, name: &str) {
        let Some(Progress { handled: Some(handled), waiting, by_hand, .. }) = self.progress.get(name) else {
            return;
        };
        let (handled, waiting, by_hand) = (handled.clone(), waiting.clone(), by_hand.clone());
        match self.records.get_mut(name) {
            Some(record)
                if record.handled == handled && record.waiting == waiting && record.by_hand == by_hand => {}
            Some(record) => {
                (record.handled, record.waiting, record.by_hand) = (handled, waiting, by_hand);
                self.is_unsaved = true;
            }
            None => {
                let record = ScheduleRecord { waiting, by_hand, ..ScheduleRecord::new(handled) };
                self.records.insert(name.to_owned(), record);
                self.is_unsaved = true;
            }
        }
    }

    /// Keeps the records, where they are other than on disk; what cannot be kept now is kept later.
    fn save(&mut self) {
        if !self.is_unsaved {
            return;
        }
        match schedule_progress::keep(&self.dir, &self.records) {
            Ok(()) => self.is_unsaved = false,
            Err(error) => tracing::warn!(%error, "failed to store the schedule records"),
        }
    }

    /// How long nothing needs to be looked at.
    fn wait(&self, now: Timestamp) -> Duration {
        let next = |configured: &ConfiguredSchedule| {
            let handled = self.progress.get(&configured.name)?.handled.as_ref()?;
            configured.schedule.next_after(handled.up_to.max(now))
        };
        let until = self.configured.iter().filter_map(next).min().map(|next| next.since(now).0);
        until.map_or(CHECK_INTERVAL, |until| Duration::from_millis(until).min(CHECK_INTERVAL))
    }
}

/// Whether a batch that has not ended keeps out what is due: it is another run of the schedule. One of those that are due
/// is not: it was taken in, and the process ended before that was noted. Nor is one that was caught up with together with
/// these, and is too old for that by now.
fn is_in_the_way(
    configured: &ConfiguredSchedule,
    due: &Due,
    handled: Option<&Handled>,
    batch: &BatchName,
) -> bool {
    let ConfiguredSchedule { name, schedule, run_policy, .. } = configured;
    let Some(at) = name::instant_of(name, batch) else { return false };
    let before = Timestamp(at.0.saturating_sub(1));
    let is_caught_up_with = || {
        run_policy.missed == Missed::All
            && handled.is_some_and(|handled| at > handled.up_to)
            && schedule.next_after(before) == Some(at)
    };
    !due.start.contains(&at) && !is_caught_up_with()
}

/// Whether trying again cannot help.
fn is_hopeless(error: &IngestError) -> bool {
    matches!(error, IngestError::Manifest(ManifestError::BatchName(_) | ManifestError::NotAFile { .. }))
}

/// Says which runs are left out. That the same batch is in the way `is_said` already.
fn note(schedule: &str, due: &Due, in_the_way: Option<&BatchName>, is_said: bool) {
    for left in &due.left_out {
        let (count, reason, last) = (left.count, left.reason.words(), left.last);
        let or_more = left.or_more;
        match in_the_way.filter(|_| left.reason == Reason::Overlap) {
            Some(batch) if is_said => {
                tracing::debug!(schedule, count, or_more, %last, reason, %batch, "left out");
            }
            Some(batch) => {
                let see = format!("callsheet status {batch}");
                tracing::warn!(schedule, count, or_more, %last, reason, %batch, see, "left out");
            }
            None => tracing::warn!(schedule, count, or_more, %last, reason, "left out"),
        }
    }
}
