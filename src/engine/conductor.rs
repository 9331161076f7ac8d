//! The engine without its I/O: what came in, and the time, decide what is to be made durable and
//! then done.
//!
//! [`Conductor::turn`] is the whole of it. It takes everything that happened since the last turn and
//! returns the changes to commit and the effects to begin once they are durable. It never waits,
//! reads no clock and touches no file, so the same code runs against a simulated world.
//!
//! Memory: the jobs that have begun and not ended, and a short window of rows for each batch. What
//! has not begun stays in the spool.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::domain::admission::{self, Board, Candidate, Limits, Parked, Waiting};
use crate::domain::credits::Credits;
use crate::domain::ids::{Attempt, BatchName, BatchNo, JobKey, TaskId};
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::ledger::{OutOfBalance, Totals};
use crate::domain::lifecycle::{self, Event, Terms, Want};
use crate::domain::manifest::row::Deadline;
use crate::domain::request::Kind;
use crate::domain::retry::{self, Backoff};
use crate::domain::task::{Fault, PostAnswer, ReadAnswer};
use crate::domain::time::{Millis, Now, Tick, Timestamp, UtcDay};
use crate::store::{BatchRecord, COMMIT_MAX_JOBS, Change, JobRecord, Segment};

/// Rows of a batch that wait in memory for their turn.
const WINDOW_ROWS: usize = 64;
/// Jobs of a batch that were passed over because they fit no budget, or wait for another attempt.
const PASSED_OVER_MAX: usize = 256;
/// Most jobs let out of the queue in one turn.
const ADMIT_MAX: usize = 64;
/// How often in a row the service may say that it does not know a task before that is believed.
const MISSING_MAX: u32 = 5;
/// How long something waits at the shut gate before it looks again.
const GATE_RECHECK: Millis = Millis(1_000);
/// Downloads of a job that may fail in a row before it is given up until somebody asks again.
const FETCH_TRIES_MAX: u32 = 8;

/// Everything that can be tuned.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Slots and budgets.
    pub limits: Limits,
    /// Outputs being downloaded at once.
    pub downloads: usize,
    /// Least time between two readings of a task.
    pub poll_min: Millis,
    /// Most time between two readings of a task.
    pub poll_max: Millis,
    /// How long a job of a kind may be in flight before it is overdue.
    pub deadlines: BTreeMap<Kind, Millis>,
    /// Between two readings of an overdue task.
    pub late_poll: Millis,
    /// How long an overdue task is watched.
    pub late_window: Millis,
    /// Attempts of a job whose policy gives no number.
    pub attempts: u32,
    /// Waits after faults.
    pub backoff: Backoff,
    /// Between two questions for the balance while the queue is parked.
    pub balance_interval: Millis,
    /// Seed of all jitter.
    pub seed: u64,
}

/// What happened since the last turn.
#[derive(Debug)]
pub enum Input {
    /// A creating POST came to this.
    Posted(JobKey, Attempt, PostAnswer),
    /// Reading a task came to this.
    Read(JobKey, Attempt, ReadAnswer),
    /// Downloading a job's outputs came to this.
    Fetched(JobKey, Attempt, Result<Vec<OutputFile>, FetchFault>),
    /// Rows of a batch, read from its spool from byte `from` on.
    Rows {
        /// The batch.
        batch: BatchNo,
        /// Where reading began.
        from: u64,
        /// The rows.
        rows: Vec<SpooledRow>,
    },
    /// Rows could not be read: they are damaged, and going on could lose jobs silently.
    Unreadable(String),
    /// The balance was asked for.
    Balance(Result<Credits, Fault>),
    /// Send nothing new from now on.
    Stop,
}

/// Why outputs could not be downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchFault {
    /// The links may have expired: the task has fresh ones.
    Stale(Fault),
    /// It may work later.
    Passing(Fault),
    /// It will not work: an output over the size limit, for one.
    Lasting(Fault),
}

/// A row as it lies in the spool.
#[derive(Debug, Clone)]
pub struct SpooledRow {
    /// Its first byte.
    pub at: u64,
    /// The byte after it.
    pub end: u64,
    /// The row.
    pub spec: Arc<JobSpec>,
}

/// What is to be done once the turn's changes are durable.
#[derive(Debug)]
pub enum Effect {
    /// Send the creating POST of a job's present attempt.
    Post {
        /// Which job.
        key: JobKey,
        /// Which attempt.
        attempt: Attempt,
        /// What is wanted.
        spec: Arc<JobSpec>,
    },
    /// Read a task.
    Read {
        /// Which job.
        key: JobKey,
        /// Which attempt.
        attempt: Attempt,
        /// Which task.
        task: TaskId,
    },
    /// Download a job's outputs.
    Fetch(Box<FetchOrder>),
    /// Read rows of a batch's spool.
    LoadRows {
        /// The batch.
        batch: BatchNo,
        /// First byte.
        from: u64,
        /// Byte after the last row.
        end: u64,
        /// How many rows at most.
        most: usize,
    },
    /// Ask for the balance.
    AskBalance,
}

/// Everything a download needs to know.
#[derive(Debug, Clone)]
pub struct FetchOrder {
    /// Which job.
    pub key: JobKey,
    /// Which attempt.
    pub attempt: Attempt,
    /// Name of its batch.
    pub batch: BatchName,
    /// Layout of the batch's outputs, where its policy gives one.
    pub layout: Option<String>,
    /// What was wanted.
    pub spec: Arc<JobSpec>,
    /// What became of it so far.
    pub job: Job,
    /// The results.
    pub urls: Vec<String>,
}

/// What a turn comes to.
#[derive(Debug, Default)]
pub struct Turn {
    /// To be made durable first.
    pub changes: Vec<Change>,
    /// To be begun afterwards.
    pub effects: Vec<Effect>,
    /// When the next turn is due, if nothing comes in before.
    pub wake: Option<Tick>,
    /// Jobs that ended in this turn.
    pub ended: Vec<(Arc<JobSpec>, JobRecord)>,
}

/// Why nothing moves any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// Every job has ended.
    Done,
    /// What is left is parked, and nothing of ours can lift it.
    Parked(Parked),
    /// What is left is overdue and only watched.
    Overdue,
    /// Told to stop, and nothing is on its way any more.
    Stopped,
}

/// A batch in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOverview {
    /// Its name.
    pub name: BatchName,
    /// Accepted jobs.
    pub rows: u32,
    /// Jobs by state, in the order of a job's life; states without jobs are left out.
    pub states: Vec<(&'static str, u32)>,
    /// Sum of the prices.
    pub planned: Credits,
    /// Credits.
    pub totals: Totals,
    /// What keeps its queued jobs from being sent.
    pub parked: Option<Parked>,
}

/// The books do not balance, or a row is missing: going on could cost money.
#[derive(Debug, thiserror::Error)]
pub enum ConductorError {
    /// A movement does not fit an account.
    #[error(transparent)]
    Books(#[from] OutOfBalance),
    /// Accepted rows cannot be read back.
    #[error("accepted rows cannot be read back: {0}")]
    Rows(String),
}

/// A batch that is being worked on.
#[derive(Debug)]
struct Desk {
    record: BatchRecord,
    /// The next rows of the present segment.
    window: VecDeque<SpooledRow>,
    /// Rows are being read.
    loading: bool,
    parked: Option<Parked>,
}

impl Desk {
    /// The segment whose rows go next.
    fn segment(&self) -> Option<usize> {
        let segments = self.record.segments.iter().enumerate().filter(|(_, s)| s.cursor < s.end);
        // The first of the highest priority: `max_by_key` would take the last.
        segments.min_by_key(|(_, s)| std::cmp::Reverse(s.priority)).map(|(index, _)| index)
    }
}

/// A job that has begun.
#[derive(Debug)]
struct OpenJob {
    record: JobRecord,
    spec: Arc<JobSpec>,
    /// An effect of it is under way.
    busy: bool,
    /// When it wants something next.
    due: Option<Tick>,
    /// Faults in a row, of whatever is being tried.
    faults: u32,
    /// When it is overdue.
    deadline: Option<Timestamp>,
}

/// The gate that a 401 or 402 shuts for the whole queue.
#[derive(Debug, Clone, Copy)]
struct Gate {
    parked: Parked,
    /// What the balance must cover.
    need: Credits,
    /// When the balance is asked for next; nothing while a question is under way.
    ask_at: Option<Tick>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Conductor {
    settings: Settings,
    desks: BTreeMap<BatchNo, Desk>,
    jobs: HashMap<JobKey, OpenJob>,
    timers: BTreeSet<(Tick, JobKey)>,
    deadlines: BTreeSet<(Timestamp, JobKey)>,
    /// Jobs whose outputs wait for a free download.
    fetch_queue: VecDeque<JobKey>,
    fetching: usize,
    total: Totals,
    days: BTreeMap<UtcDay, Totals>,
    gate: Option<Gate>,
    stopping: bool,
    /// Which batch was served last, so that equals take turns across turns.
    last_served: BatchNo,
    random: fastrand::Rng,
    draft: Draft,
}

/// The turn being put together.
#[derive(Debug, Default)]
struct Draft {
    turn: Turn,
    changed_jobs: BTreeSet<JobKey>,
    changed_batches: BTreeSet<BatchNo>,
    changed_days: BTreeSet<UtcDay>,
    ended_jobs: Vec<JobRecord>,
}

impl Conductor {
    /// A conductor with nothing to do.
    pub fn new(settings: Settings, total: Totals) -> Conductor {
        let random = fastrand::Rng::with_seed(settings.seed);
        Conductor {
            settings,
            desks: BTreeMap::new(),
            jobs: HashMap::new(),
            timers: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            fetch_queue: VecDeque::new(),
            fetching: 0,
            total,
            days: BTreeMap::new(),
            gate: None,
            stopping: false,
            last_served: BatchNo(0),
            random,
            draft: Draft::default(),
        }
    }

    /// Takes up a day's totals as they were stored. Days that are not told are empty.
    pub fn know_day(&mut self, day: UtcDay, totals: Totals) {
        self.days.insert(day, totals);
    }

    /// Whether a day's totals are known.
    pub fn knows_day(&self, day: UtcDay) -> bool {
        self.days.contains_key(&day)
    }

    /// Takes up a batch, or what changed of it by another manifest.
    pub fn take_batch(&mut self, record: BatchRecord) {
        match self.desks.entry(record.no) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(Desk { record, window: VecDeque::new(), loading: false, parked: None });
            }
            std::collections::btree_map::Entry::Occupied(mut desk) => {
                let desk = desk.get_mut();
                let present = std::mem::replace(&mut desk.record, record);
                desk.record.totals = present.totals;
                desk.record.ended = present.ended;
                for (segment, before) in desk.record.segments.iter_mut().zip(present.segments) {
                    segment.cursor = before.cursor;
                }
                // A more urgent segment may have come in: the window is read anew.
                desk.window.clear();
            }
        }
    }

    /// Takes up a job that had begun before: a restart is not a special path.
    pub fn take_job(&mut self, record: JobRecord, spec: Arc<JobSpec>, now: Now) {
        let key = record.key;
        let mut open = OpenJob { deadline: None, record, spec, busy: false, due: None, faults: 0 };
        let wait = match lifecycle::wants(&open.record.job.state) {
            // It may have been read just before the restart.
            Want::Read => self.poll_wait(open.record.job.overdue),
            Want::Admission | Want::Post | Want::Fetch | Want::Nothing => Millis(0),
        };
        self.schedule(&mut open, now.tick.after(wait));
        self.watch_deadline(&mut open);
        self.jobs.insert(key, open);
    }

    /// One turn: see the module's documentation.
    ///
    /// # Errors
    /// [`ConductorError`] when the books do not balance; nothing of the turn may then be used.
    pub fn turn(&mut self, inputs: Vec<Input>, now: Now) -> Result<Turn, ConductorError> {
        for input in inputs {
            self.take_in(input, now)?;
        }
        self.pass_deadlines(now)?;
        self.begin_what_is_due(now);
        self.ask_balance_when_due(now);
        self.admit(now)?;
        self.load_rows();
        Ok(self.close_turn())
    }

    /// Most inputs a turn should take, so that its commit stays small.
    pub const INPUTS_MAX: usize = COMMIT_MAX_JOBS - ADMIT_MAX;

    // ---- what came in ----

    fn take_in(&mut self, input: Input, now: Now) -> Result<(), ConductorError> {
        match input {
            Input::Posted(key, attempt, answer) => self.posted(key, attempt, answer, now),
            Input::Read(key, attempt, answer) => self.read(key, attempt, answer, now),
            Input::Fetched(key, attempt, outcome) => self.fetched(key, attempt, outcome, now),
            Input::Rows { batch, from, rows } => {
                self.rows(batch, from, rows);
                Ok(())
            }
            Input::Unreadable(damage) => Err(ConductorError::Rows(damage)),
            Input::Balance(answer) => {
                self.balance(&answer, now);
                Ok(())
            }
            Input::Stop => {
                self.stopping = true;
                Ok(())
            }
        }
    }

    fn posted(
        &mut self,
        key: JobKey,
        attempt: Attempt,
        answer: PostAnswer,
        now: Now,
    ) -> Result<(), ConductorError> {
        let Some(faults) = self.effect_ended(key) else { return Ok(()) };
        let need = self.jobs.get(&key).and_then(|open| open.spec.order.hold()).unwrap_or_default();
        let wait = match &answer {
            PostAnswer::Again { wait, .. } => {
                let wait = self.settings.backoff.wait(faults, self.random.f64(), *wait);
                self.count_fault(key);
                wait
            }
            PostAnswer::OutOfCredits(_) => {
                self.shut(Parked::Credits, need, now);
                Millis(0)
            }
            PostAnswer::Unauthorised(_) => {
                self.shut(Parked::Key, Credits::ZERO, now);
                Millis(0)
            }
            PostAnswer::Task(_) | PostAnswer::TaskNamed(..) | PostAnswer::Refused(_) => {
                self.reset_faults(key);
                Millis(0)
            }
        };
        let named = matches!(answer, PostAnswer::TaskNamed(..));
        self.apply(key, attempt, Event::Posted(answer), now)?;
        let again_after = if named { Some(Millis(0)) } else { Some(wait).filter(|wait| wait.0 > 0) };
        self.follow_up(key, again_after, now);
        Ok(())
    }

    fn read(
        &mut self,
        key: JobKey,
        attempt: Attempt,
        answer: ReadAnswer,
        now: Now,
    ) -> Result<(), ConductorError> {
        let Some(faults) = self.effect_ended(key) else { return Ok(()) };
        let wait = match answer {
            ReadAnswer::Task(reading) => {
                self.reset_faults(key);
                self.apply(key, attempt, Event::Read(reading), now)?;
                None
            }
            ReadAnswer::Missing(fault) => {
                self.count_fault(key);
                if faults + 1 >= MISSING_MAX {
                    self.apply(key, attempt, Event::TaskMissing(fault), now)?;
                }
                None
            }
            ReadAnswer::Unauthorised(_) => {
                self.shut(Parked::Key, Credits::ZERO, now);
                Some(self.settings.balance_interval)
            }
            ReadAnswer::Again { wait, .. } => {
                self.count_fault(key);
                let backoff = self.settings.backoff.wait(faults, self.random.f64(), wait);
                Some(backoff.max(self.settings.poll_min))
            }
        };
        self.follow_up(key, wait, now);
        Ok(())
    }

    fn fetched(
        &mut self,
        key: JobKey,
        attempt: Attempt,
        outcome: Result<Vec<OutputFile>, FetchFault>,
        now: Now,
    ) -> Result<(), ConductorError> {
        self.fetching = self.fetching.saturating_sub(1);
        let Some(faults) = self.effect_ended(key) else { return Ok(()) };
        let fault = match outcome {
            Ok(files) => {
                self.apply(key, attempt, Event::Fetched(files), now)?;
                return Ok(());
            }
            Err(fault) => fault,
        };
        self.count_fault(key);
        let (fault, lasting, stale) = match fault {
            FetchFault::Stale(fault) => (fault, false, true),
            FetchFault::Passing(fault) => (fault, false, false),
            FetchFault::Lasting(fault) => (fault, true, false),
        };
        tracing::warn!(batch = key.batch.0, job = key.seq.0, %fault, "download failed");
        if lasting || faults + 1 >= FETCH_TRIES_MAX {
            let fault = Fault::new("download_failed", fault.to_string());
            self.apply(key, attempt, Event::FetchAbandoned(fault), now)?;
            return Ok(());
        }
        let wait = self.settings.backoff.wait(faults, self.random.f64(), None);
        if stale {
            self.read_before_fetching(key);
        }
        self.follow_up(key, Some(wait), now);
        Ok(())
    }

    /// Forgets a job's links, so that its task is read again for fresh ones.
    fn read_before_fetching(&mut self, key: JobKey) {
        if let Some(open) = self.jobs.get_mut(&key)
            && let State::Fetching { urls, .. } = &mut open.record.job.state
        {
            urls.clear();
        }
    }

    fn rows(&mut self, batch: BatchNo, from: u64, rows: Vec<SpooledRow>) {
        let Some(desk) = self.desks.get_mut(&batch) else { return };
        desk.loading = false;
        let Some(index) = desk.segment() else { return };
        let next = desk.window.back().map_or(desk.record.segments[index].cursor, |row| row.end);
        // Rows of another segment, or of a place that was passed meanwhile, are read again.
        if next == from {
            desk.window.extend(rows);
        }
    }

    // ---- the gate ----

    fn shut(&mut self, parked: Parked, need: Credits, now: Now) {
        // A key that does not work is found first and lifted first: nothing can be asked without it.
        let keep = self.gate.filter(|gate| gate.parked == Parked::Key && parked == Parked::Credits);
        if keep.is_none() {
            let ask_at = Some(now.tick.after(self.settings.balance_interval));
            self.gate = Some(Gate { parked, need, ask_at });
        }
    }

    fn balance(&mut self, answer: &Result<Credits, Fault>, now: Now) {
        let Some(gate) = &mut self.gate else { return };
        let covered = match (answer, gate.parked) {
            (Ok(balance), Parked::Credits) => *balance >= gate.need,
            (Ok(_), _) => true,
            (Err(_), _) => false,
        };
        if covered {
            self.gate = None;
        } else {
            gate.ask_at = Some(now.tick.after(self.settings.balance_interval));
        }
    }

    fn ask_balance_when_due(&mut self, now: Now) {
        if let Some(gate) = &mut self.gate
            && gate.ask_at.is_some_and(|at| at <= now.tick)
            && !self.stopping
        {
            gate.ask_at = None;
            self.draft.turn.effects.push(Effect::AskBalance);
        }
    }

    // ---- time ----

    /// An overdue job gives its slot back; one that was watched long enough is left to a person.
    fn pass_deadlines(&mut self, now: Now) -> Result<(), ConductorError> {
        while let Some(&(at, key)) = self.deadlines.first().filter(|(at, _)| *at <= now.wall) {
            self.deadlines.remove(&(at, key));
            let Some(open) = self.jobs.get_mut(&key) else { continue };
            open.deadline = None;
            let (attempt, overdue) = (open.record.job.attempt, open.record.job.overdue);
            let event = if overdue {
                let fault = Fault::new("deadline", "its task never ended within the late window");
                Event::WatchOver(fault)
            } else {
                Event::Overdue
            };
            self.apply(key, attempt, event, now)?;
            if let Some(mut open) = self.jobs.remove(&key) {
                self.watch_deadline(&mut open);
                self.jobs.insert(key, open);
            }
        }
        Ok(())
    }

    /// Sets the alarm for a job's deadline, or for the end of its watch.
    fn watch_deadline(&mut self, open: &mut OpenJob) {
        let job = &open.record.job;
        let in_flight = matches!(job.state, State::Submitting { .. } | State::Running { .. });
        let wanted = if in_flight { self.deadline_of(&open.spec, job) } else { None };
        if wanted != open.deadline {
            if let Some(at) = open.deadline {
                self.deadlines.remove(&(at, open.record.key));
            }
            if let Some(at) = wanted {
                self.deadlines.insert((at, open.record.key));
            }
            open.deadline = wanted;
        }
    }

    fn deadline_of(&self, spec: &JobSpec, job: &Job) -> Option<Timestamp> {
        let first_sent = job.first_sent?;
        let deadline = match spec.order.deadline {
            Some(Deadline::At(at)) => at,
            Some(Deadline::After(span)) => first_sent.after(span),
            None => first_sent.after(*self.settings.deadlines.get(&spec.order.kind)?),
        };
        match (job.overdue, &job.state) {
            (false, _) => Some(deadline),
            // Only a task can be watched to the end of the window.
            (true, State::Running { .. }) => Some(deadline.after(self.settings.late_window)),
            (true, _) => None,
        }
    }

    fn begin_what_is_due(&mut self, now: Now) {
        // What is in the air finishes after a stop; nothing new begins.
        if self.stopping {
            self.timers.clear();
            return;
        }
        while let Some(&(at, key)) = self.timers.first().filter(|(at, _)| *at <= now.tick) {
            self.timers.remove(&(at, key));
            let Some(open) = self.jobs.get_mut(&key) else { continue };
            open.due = None;
            if open.busy {
                continue;
            }
            match lifecycle::wants(&open.record.job.state) {
                // A candidate from now on.
                Want::Admission | Want::Nothing => {}
                Want::Fetch => self.fetch_queue.push_back(key),
                Want::Post if self.gate.is_some() => self.postpone(key, now),
                Want::Read if self.key_is_refused() => self.postpone(key, now),
                want @ (Want::Post | Want::Read) => self.begin(key, want),
            }
        }
        while self.fetching < self.settings.downloads
            && let Some(key) = self.fetch_queue.pop_front()
        {
            self.begin(key, Want::Fetch);
        }
    }

    /// Nothing that may charge leaves while the gate is shut, and nothing at all under a refused key.
    fn postpone(&mut self, key: JobKey, now: Now) {
        if let Some(mut open) = self.jobs.remove(&key) {
            self.schedule(&mut open, now.tick.after(GATE_RECHECK));
            self.jobs.insert(key, open);
        }
    }

    fn key_is_refused(&self) -> bool {
        self.gate.is_some_and(|gate| gate.parked == Parked::Key)
    }

    fn begin(&mut self, key: JobKey, want: Want) {
        let Some(open) = self.jobs.get_mut(&key) else { return };
        let attempt = open.record.job.attempt;
        let effect = match (want, &open.record.job.state) {
            (Want::Post, State::Submitting { .. }) => Effect::Post { key, attempt, spec: open.spec.clone() },
            (Want::Read, State::Running { task } | State::Fetching { task, .. }) => {
                Effect::Read { key, attempt, task: task.clone() }
            }
            (Want::Fetch, State::Fetching { urls, .. }) => {
                let Some(desk) = self.desks.get(&key.batch) else { return };
                self.fetching += 1;
                Effect::Fetch(Box::new(FetchOrder {
                    key,
                    attempt,
                    batch: desk.record.name.clone(),
                    layout: desk.record.policy.layout.clone(),
                    spec: open.spec.clone(),
                    job: open.record.job.clone(),
                    urls: urls.clone(),
                }))
            }
            _ => return,
        };
        open.busy = true;
        self.draft.turn.effects.push(effect);
    }

    fn schedule(&mut self, open: &mut OpenJob, at: Tick) {
        if let Some(due) = open.due {
            self.timers.remove(&(due, open.record.key));
        }
        open.due = Some(at);
        self.timers.insert((at, open.record.key));
    }

    fn poll_wait(&mut self, overdue: bool) -> Millis {
        if overdue {
            return self.settings.late_poll;
        }
        let (min, max) = (self.settings.poll_min.0, self.settings.poll_max.0);
        Millis(min + retry::scale(max.saturating_sub(min), self.random.f64()))
    }

    // ---- the lifecycle ----

    /// Applies an event, books its movements and notes what changed. An event that has no place is
    /// said and dropped: a late answer for an older attempt, for one.
    fn apply(&mut self, key: JobKey, attempt: Attempt, event: Event, now: Now) -> Result<(), ConductorError> {
        let Some(open) = self.jobs.get_mut(&key) else { return Ok(()) };
        let Some(desk) = self.desks.get_mut(&key.batch) else { return Ok(()) };
        let attempts = desk.record.policy.attempts.unwrap_or(self.settings.attempts);
        let terms = Terms { attempts, keyed: open.spec.order.kind != Kind::ShortsStudio };
        let step = match lifecycle::apply(&open.record.job, attempt, event, terms, now.wall) {
            Ok(step) => step,
            Err(illegal) => {
                tracing::debug!(batch = key.batch.0, job = key.seq.0, %illegal, "event dropped");
                return Ok(());
            }
        };
        open.record.job = step.job;
        for movement in step.movements {
            desk.record.totals.apply(movement)?;
            self.total.apply(movement)?;
            self.draft.changed_batches.insert(key.batch);
            if let Some(day) = step.day {
                self.days.entry(day).or_default().apply(movement)?;
                self.draft.changed_days.insert(day);
            }
        }
        self.draft.changed_jobs.insert(key);
        if open.record.job.state.is_final() {
            self.end(key);
        }
        Ok(())
    }

    fn end(&mut self, key: JobKey) {
        let Some(open) = self.jobs.remove(&key) else { return };
        if let Some(due) = open.due {
            self.timers.remove(&(due, key));
        }
        if let Some(at) = open.deadline {
            self.deadlines.remove(&(at, key));
        }
        if let Some(desk) = self.desks.get_mut(&key.batch) {
            desk.record.ended.count(&open.record.job.state);
            self.draft.changed_batches.insert(key.batch);
        }
        self.draft.changed_jobs.remove(&key);
        self.draft.ended_jobs.push(open.record.clone());
        self.draft.turn.ended.push((open.spec, open.record));
    }

    /// After an answer: when the job wants something next.
    fn follow_up(&mut self, key: JobKey, wait: Option<Millis>, now: Now) {
        let Some(mut open) = self.jobs.remove(&key) else { return };
        let usual = match lifecycle::wants(&open.record.job.state) {
            Want::Read => self.poll_wait(open.record.job.overdue),
            Want::Admission => self.settings.backoff.wait(
                open.record.job.attempt.0.saturating_sub(2),
                self.random.f64(),
                None,
            ),
            Want::Post | Want::Fetch | Want::Nothing => Millis(0),
        };
        self.schedule(&mut open, now.tick.after(wait.unwrap_or(usual)));
        self.watch_deadline(&mut open);
        self.jobs.insert(key, open);
    }

    /// Marks a job's effect as over and returns its faults in a row so far; nothing for a job that
    /// is not open any more.
    fn effect_ended(&mut self, key: JobKey) -> Option<u32> {
        let open = self.jobs.get_mut(&key)?;
        open.busy = false;
        Some(open.faults)
    }

    fn count_fault(&mut self, key: JobKey) {
        if let Some(open) = self.jobs.get_mut(&key) {
            open.faults = open.faults.saturating_add(1);
        }
    }

    fn reset_faults(&mut self, key: JobKey) {
        if let Some(open) = self.jobs.get_mut(&key) {
            open.faults = 0;
        }
    }

    // ---- admission ----

    fn admit(&mut self, now: Now) -> Result<(), ConductorError> {
        if self.stopping || self.gate.is_some() {
            return Ok(());
        }
        // Outputs that pile up because the disk or the result host is slow hold back new work.
        let open = self.jobs.len() - self.queued_jobs().count();
        let backlog = self.settings.limits.in_flight as usize * 2 + self.settings.downloads;
        if open >= backlog {
            return Ok(());
        }
        let board = self.board(now);
        if board.waiting.is_empty() {
            return Ok(());
        }
        let decision = admission::admit(board, ADMIT_MAX.min(backlog - open));
        if decision.admitted.len() >= ADMIT_MAX {
            self.draft.turn.wake = Some(now.tick);
        }
        for desk in self.desks.values_mut() {
            desk.parked = None;
        }
        for (batch, parked) in decision.parked {
            if let Some(desk) = self.desks.get_mut(&batch) {
                desk.parked = Some(parked);
            }
        }
        for candidate in decision.admitted {
            self.last_served = candidate.key.batch;
            self.send(candidate, now)?;
        }
        Ok(())
    }

    fn queued_jobs(&self) -> impl Iterator<Item = &OpenJob> {
        self.jobs.values().filter(|open| matches!(open.record.job.state, State::Queued))
    }

    fn board(&self, now: Now) -> Board {
        let mut in_flight: BTreeMap<Kind, u32> = BTreeMap::new();
        let mut passed_over: BTreeMap<BatchNo, Vec<&OpenJob>> = BTreeMap::new();
        for open in self.jobs.values() {
            if open.record.job.holds_slot() {
                *in_flight.entry(open.spec.order.kind).or_default() += 1;
            }
            let is_due = open.due.is_none_or(|due| due <= now.tick);
            if matches!(open.record.job.state, State::Queued) && is_due {
                passed_over.entry(open.record.key.batch).or_default().push(open);
            }
        }
        // Batches after the one served last come first, then the others.
        let later =
            self.desks.range((std::ops::Bound::Excluded(self.last_served), std::ops::Bound::Unbounded));
        let waiting = later
            .chain(self.desks.range(..=self.last_served))
            .filter_map(|(no, desk)| waiting(desk, passed_over.remove(no).unwrap_or_default()));
        let waiting = waiting.collect();
        let day = self.days.get(&now.wall.utc_day()).copied().unwrap_or_default();
        Board { limits: self.settings.limits.clone(), in_flight, total: self.total, day, waiting }
    }

    /// Takes a candidate out of the queue and sets its hold aside; its POST leaves once that is
    /// durable.
    fn send(&mut self, candidate: Candidate, now: Now) -> Result<(), ConductorError> {
        let key = candidate.key;
        if !self.jobs.contains_key(&key) {
            self.begin_rows_up_to(key);
        }
        let Some(attempt) = self.jobs.get(&key).map(|open| open.record.job.attempt) else { return Ok(()) };
        let event = Event::Admit { hold: candidate.hold, day: now.wall.utc_day() };
        self.apply(key, attempt, event, now)?;
        if let Some(mut open) = self.jobs.remove(&key) {
            self.watch_deadline(&mut open);
            self.jobs.insert(key, open);
        }
        self.begin(key, Want::Post);
        Ok(())
    }

    /// Rows leave the window in order. One that is passed over, because it fits no budget, begins as
    /// a queued job, so that the cursor can move on.
    fn begin_rows_up_to(&mut self, key: JobKey) {
        let Some(desk) = self.desks.get_mut(&key.batch) else { return };
        let Some(index) = desk.segment() else { return };
        while let Some(row) = desk.window.pop_front() {
            let row_key = JobKey { batch: key.batch, seq: row.spec.seq };
            desk.record.segments[index].cursor = row.end;
            let record = JobRecord { key: row_key, id: row.spec.id, row_at: row.at, job: Job::queued() };
            let open = OpenJob { record, spec: row.spec, busy: false, due: None, faults: 0, deadline: None };
            self.jobs.insert(row_key, open);
            self.draft.changed_jobs.insert(row_key);
            if row_key == key {
                break;
            }
        }
        self.draft.changed_batches.insert(key.batch);
    }

    fn load_rows(&mut self) {
        if self.stopping {
            return;
        }
        for (no, desk) in &mut self.desks {
            if desk.loading || desk.window.len() > WINDOW_ROWS / 2 {
                continue;
            }
            let Some(index) = desk.segment() else { continue };
            let Segment { cursor, end, .. } = desk.record.segments[index];
            let from = desk.window.back().map_or(cursor, |row| row.end);
            if from < end {
                desk.loading = true;
                self.draft.turn.effects.push(Effect::LoadRows { batch: *no, from, end, most: WINDOW_ROWS });
            }
        }
    }

    // ---- the end of a turn ----

    fn close_turn(&mut self) -> Turn {
        let Draft { mut turn, changed_jobs, changed_batches, changed_days, ended_jobs } =
            std::mem::take(&mut self.draft);
        let open = changed_jobs.iter().filter_map(|key| self.jobs.get(key));
        turn.changes.extend(open.map(|open| Change::Open(open.record.clone())));
        turn.changes.extend(ended_jobs.into_iter().map(Change::End));
        let batches = changed_batches.iter().filter_map(|no| self.desks.get(no));
        turn.changes.extend(batches.map(|desk| Change::Batch(Box::new(desk.record.clone()))));
        if !changed_days.is_empty() {
            turn.changes.push(Change::Total(self.total));
        }
        let days = changed_days.iter().filter_map(|day| Some((*day, *self.days.get(day)?)));
        turn.changes.extend(days.map(|(day, totals)| Change::Day(day, totals)));
        turn.wake = turn.wake.or_else(|| self.wake());
        turn
    }

    fn wake(&self) -> Option<Tick> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let gate = self.gate.and_then(|gate| gate.ask_at);
        [timer, gate].into_iter().flatten().min()
    }

    /// The next deadline, in wall-clock time.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    // ---- what can be seen ----

    /// Why nothing will move by itself any more; nothing while something will.
    pub fn standstill(&self) -> Option<Standstill> {
        let busy = self.jobs.values().any(|open| open.busy);
        if busy || self.desks.values().any(|desk| desk.loading) {
            return None;
        }
        if self.stopping {
            return Some(Standstill::Stopped);
        }
        if self.desks.values().all(|desk| desk.record.is_done()) {
            return Some(Standstill::Done);
        }
        let moving = |open: &OpenJob| match lifecycle::wants(&open.record.job.state) {
            // One that waits for its next attempt.
            Want::Admission => open.due.is_some() && self.gate.is_none(),
            Want::Nothing => false,
            Want::Post => self.gate.is_none() && !open.record.job.overdue,
            Want::Read => !self.key_is_refused() && !open.record.job.overdue,
            Want::Fetch => true,
        };
        if self.jobs.values().any(moving) {
            return None;
        }
        if let Some(gate) = self.gate {
            return Some(Standstill::Parked(gate.parked));
        }
        let waits = |desk: &Desk| !desk.window.is_empty() || desk.segment().is_some();
        let queued: BTreeSet<BatchNo> = self.queued_jobs().map(|open| open.record.key.batch).collect();
        let with_queue = self.desks.iter().filter(|(no, desk)| waits(desk) || queued.contains(no));
        let parked = with_queue.map(|(_, desk)| desk.parked);
        // A batch whose queue is not parked waits for something that will come.
        let parked: Vec<Parked> = parked.collect::<Option<_>>()?;
        Some(parked.first().map_or(Standstill::Overdue, |first| Standstill::Parked(*first)))
    }

    /// Every batch in numbers, oldest first.
    pub fn overview(&self) -> Vec<BatchOverview> {
        let mut open: BTreeMap<BatchNo, BTreeMap<&'static str, u32>> = BTreeMap::new();
        for job in self.jobs.values() {
            let states = open.entry(job.record.key.batch).or_default();
            *states.entry(job.record.job.state.name()).or_default() += 1;
        }
        let gate = self.gate.map(|gate| gate.parked);
        let overview = |(no, desk): (&BatchNo, &Desk)| {
            let states = open.remove(no).unwrap_or_default();
            let parked = gate.or(desk.parked);
            batch_overview(&desk.record, states, parked)
        };
        self.desks.iter().map(overview).collect()
    }

    /// A batch's record as it stands.
    pub fn batch(&self, no: BatchNo) -> Option<&BatchRecord> {
        self.desks.get(&no).map(|desk| &desk.record)
    }

    /// Every batch's record as it stands.
    pub fn batches(&self) -> impl Iterator<Item = &BatchRecord> {
        self.desks.values().map(|desk| &desk.record)
    }

    /// Every open job as it stands.
    pub fn open_jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values().map(|open| &open.record)
    }

    /// Totals of the whole state.
    pub fn total(&self) -> Totals {
        self.total
    }
}

/// A batch as admission sees it: jobs that were passed over before, then rows that have not begun.
fn waiting(desk: &Desk, mut passed_over: Vec<&OpenJob>) -> Option<Waiting> {
    passed_over.sort_by_key(|open| open.record.key);
    let from_window = passed_over.len() < PASSED_OVER_MAX;
    let begun = passed_over.iter().map(|open| (open.record.key, &open.spec));
    let rows = desk.window.iter().filter(|_| from_window);
    let rows = rows.map(|row| (JobKey { batch: desk.record.no, seq: row.spec.seq }, &row.spec));
    let candidates: Vec<Candidate> = begun
        .chain(rows)
        .filter_map(|(key, spec)| Some(Candidate { key, kind: spec.order.kind, hold: spec.order.hold()? }))
        .collect();
    let first =
        passed_over.first().map(|open| &open.spec).or_else(|| desk.window.front().map(|row| &row.spec));
    let priority = first?.order.priority;
    let (batch, budget, totals) = (desk.record.no, desk.record.budget(), desk.record.totals);
    Some(Waiting { batch, priority, budget, totals, candidates })
}

fn batch_overview(
    record: &BatchRecord,
    mut open: BTreeMap<&'static str, u32>,
    parked: Option<Parked>,
) -> BatchOverview {
    let begun: u32 = open.values().sum();
    let not_begun = record.rows.saturating_sub(begun + record.ended.all());
    *open.entry("queued").or_default() += not_begun;
    let ended = record.ended;
    let states = [
        ("queued", open.get("queued").copied().unwrap_or_default()),
        ("submitting", open.get("submitting").copied().unwrap_or_default()),
        ("running", open.get("running").copied().unwrap_or_default()),
        ("fetching", open.get("fetching").copied().unwrap_or_default()),
        ("succeeded", ended.succeeded),
        ("failed", ended.failed),
        ("canceled", ended.canceled),
        ("expired", ended.expired),
        ("in_doubt", ended.in_doubt),
    ];
    let states = states.into_iter().filter(|(_, n)| *n > 0).collect();
    BatchOverview {
        name: record.name.clone(),
        rows: record.rows,
        states,
        planned: record.planned,
        totals: record.totals,
        parked,
    }
}
