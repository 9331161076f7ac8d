//! The engine without its I/O: what came in, and the time, decide what is to be made durable and
//! then done.
//!
//! [`Scheduler::step`] is the whole of it. It takes everything that happened since the last step and
//! returns the changes to commit and the effects to begin once they are durable. It never waits,
//! reads no clock and touches no file, so the same code runs against a simulated world.
//!
//! Memory: the jobs that have begun and not ended, and a short window of rows for each batch. What
//! has not begun stays in the spool.

mod account_block;
mod active_batches;
mod admit;
mod commands;
mod gauges;
mod inputs;
mod job_counts;
mod job_log;
mod messages;
mod outage;
mod overdue;
mod overview;
mod prices;
mod queued_jobs;
mod row_windows;
mod task_owners;
#[cfg(test)]
mod tests;
mod timers;
mod transitions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use self::commands::{Command, CommandOutcome, FoundJob};
pub use self::messages::{
    BatchOverview, Effect, FetchFault, FetchOrder, Input, SchedulerError, Settings, SpooledRow, Standstill,
    Step,
};
pub use self::outage::Outage;
use self::outage::OutageDetector;
use crate::domain::adaptive_limit::AdaptiveLimit;
use crate::domain::admission::Parked;
use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::job::JobSpec;
use crate::domain::ledger::Totals;
use crate::domain::lifecycle::{self, Want};
use crate::domain::poll_interval::PollInterval;
use crate::domain::time::{Millis, Now, Tick, Timestamp, UtcDay};
use crate::engine::scheduler::account_block::AccountState;
use crate::engine::scheduler::active_batches::ActiveBatches;
use crate::engine::scheduler::job_counts::{CountedAs, OpenJobs};
use crate::engine::scheduler::overdue::TaskWatch;
use crate::engine::scheduler::prices::Prices;
use crate::engine::scheduler::queued_jobs::QueuedJobs;
use crate::engine::scheduler::row_windows::{RowWindow, windows_of};
use crate::engine::scheduler::task_owners::TaskOwners;
use crate::store::{BatchRecord, COMMIT_MAX_JOBS, Change, JobRecord};

/// Most jobs let out of the queue in one step.
const ADMIT_MAX: usize = 64;

/// A batch in memory, with the rows of it that wait next.
#[derive(Debug)]
struct ActiveBatch {
    record: BatchRecord,
    /// The next rows of each class.
    windows: Vec<RowWindow>,
    parked: Option<Parked>,
    /// What the log last said keeps it from sending.
    logged_parked: Option<Parked>,
}

impl ActiveBatch {
    /// When what is not sent yet expires.
    fn expires(&self) -> Option<Timestamp> {
        self.record.expires()
    }

    /// Whether what was never sent of it is not to be sent any more.
    fn has_expired(&self, now: Now) -> bool {
        self.expires().is_some_and(|at| at <= now.wall)
    }

    /// Whether some rows have not begun.
    fn has_rows(&self) -> bool {
        self.record.segments.iter().any(|segment| !segment.is_through())
    }

    /// Whether rows are being read.
    fn is_loading(&self) -> bool {
        self.windows.iter().any(|window| window.loading)
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
    /// Downloads in a row that failed; fresh links alone are no progress.
    fetch_faults: u32,
    /// How often its download gave its slot up to another.
    slow_rounds: u32,
    /// When it is overdue.
    deadline: Option<Timestamp>,
    /// Since when this process has had its present attempt in flight.
    in_flight_since: Option<Tick>,
    /// When its present task was first seen by this process.
    task_since: Option<Tick>,
    /// When the first answer to its POST showed the task running: only then it is known how long it has run.
    task_created: Option<Tick>,
    /// When its task was last seen running.
    last_running: Option<Tick>,
    /// Tasks of other attempts that are watched beside it.
    watches: BTreeMap<AttemptNo, TaskWatch>,
    /// What it was last counted as.
    counted: Option<CountedAs>,
}

impl OpenJob {
    fn new(record: JobRecord, spec: Arc<JobSpec>) -> OpenJob {
        OpenJob {
            record,
            spec,
            busy: false,
            due: None,
            faults: 0,
            fetch_faults: 0,
            slow_rounds: 0,
            deadline: None,
            in_flight_since: None,
            task_since: None,
            task_created: None,
            last_running: None,
            watches: BTreeMap::new(),
            counted: None,
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    batches: ActiveBatches,
    jobs: OpenJobs,
    task_owners: TaskOwners,
    /// Queued jobs whose wait is over, if they had one.
    candidates: QueuedJobs,
    timers: BTreeSet<(Tick, JobKey)>,
    deadlines: BTreeSet<(Timestamp, JobKey)>,
    watch_timers: BTreeSet<(Tick, JobKey, AttemptNo)>,
    watch_ends: BTreeSet<(Timestamp, JobKey, AttemptNo)>,
    /// Jobs whose outputs wait for a free download.
    fetch_queue: VecDeque<JobKey>,
    /// Those that came too slowly before: they wait until nobody else does.
    slow_queue: VecDeque<JobKey>,
    fetching: usize,
    total: Totals,
    days: BTreeMap<UtcDay, Totals>,
    account: AccountState,
    adaptive_limit: AdaptiveLimit,
    /// When a wait that the service asked for is over.
    crowded_until: Option<Tick>,
    poll_interval: PollInterval,
    outage_detector: OutageDetector,
    disk_is_low: bool,
    /// The largest file that the output disk refused since it was last found to have room, in bytes.
    refused_bytes: Option<u64>,
    stopping: bool,
    /// No creating POST is sent, whatever is wanted.
    sending_disabled: bool,
    prices: Prices,
    /// Which batch was served last, so that equals take turns across steps.
    last_served: BatchNo,
    random: fastrand::Rng,
    pending: Pending,
}

/// The step being put together.
#[derive(Debug, Default)]
struct Pending {
    step: Step,
    changed_jobs: BTreeSet<JobKey>,
    changed_batches: BTreeSet<BatchNo>,
    changed_days: BTreeSet<UtcDay>,
    ended_jobs: Vec<JobRecord>,
    /// Batches that leave.
    archived: Vec<BatchRecord>,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    pub fn new(settings: Settings, total: Totals) -> Scheduler {
        let random = fastrand::Rng::with_seed(settings.seed);
        Scheduler {
            adaptive_limit: AdaptiveLimit::new(settings.limits.in_flight, settings.adaptive),
            crowded_until: None,
            poll_interval: PollInterval::default(),
            outage_detector: OutageDetector::default(),
            disk_is_low: false,
            refused_bytes: None,
            prices: Prices::new(settings.rules.clone()),
            settings,
            batches: ActiveBatches::default(),
            jobs: OpenJobs::default(),
            task_owners: TaskOwners::default(),
            candidates: QueuedJobs::default(),
            timers: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            watch_timers: BTreeSet::new(),
            watch_ends: BTreeSet::new(),
            fetch_queue: VecDeque::new(),
            slow_queue: VecDeque::new(),
            fetching: 0,
            total,
            days: BTreeMap::new(),
            account: AccountState::default(),
            stopping: false,
            sending_disabled: false,
            last_served: BatchNo(0),
            random,
            pending: Pending::default(),
        }
    }

    /// Takes up a day's totals as they were stored. Days that are not told are empty.
    pub fn set_day(&mut self, day: UtcDay, totals: Totals) {
        self.days.insert(day, totals);
    }

    /// Whether a day's totals are known.
    pub fn has_day(&self, day: UtcDay) -> bool {
        self.days.contains_key(&day)
    }

    /// Sends no creating POST from now on, whatever is wanted.
    pub fn disable_sending(&mut self) {
        self.sending_disabled = true;
    }

    /// Takes up a batch, or what changed of it by another manifest.
    pub fn add_batch(&mut self, record: BatchRecord) {
        match self.batches.get_mut(&record.no) {
            None => {
                let windows = windows_of(&record.segments);
                self.batches.insert(ActiveBatch { record, windows, parked: None, logged_parked: None });
            }
            Some(active) => {
                let has_more = record.rows > active.record.rows;
                let present = std::mem::replace(&mut active.record, record);
                active.record.totals = present.totals;
                active.record.ended = present.ended;
                active.record.paused = present.paused;
                active.record.rejections = present.rejections;
                active.record.skipped = present.skipped.clone();
                active.record.canceled_below = present.canceled_below;
                // More of it is wanted anew.
                active.record.canceled = present.canceled && !has_more;
                active.record.announced = present.announced && !has_more;
                active.record.take_cursors(&present);
                for (kind, before) in present.kinds {
                    active.record.kinds.entry(kind).or_default().ended = before.ended;
                }
                // What came in is sorted in among the rest: the windows are read anew.
                active.windows = windows_of(&active.record.segments);
            }
        }
    }

    /// Takes up a job that had begun before: a restart is not a special path.
    pub fn resume_job(&mut self, record: JobRecord, spec: Arc<JobSpec>, now: Now) {
        let key = record.key;
        let record = JobRecord { job: lifecycle::resumed(record.job), ..record };
        let attempt = record.job.attempt();
        let want = lifecycle::wants(record.job.state());
        self.task_owners.add_job(key, &record.job);
        if want == Want::Admission {
            self.candidates.insert(key, &spec.order);
        }
        let in_flight_since = Some(now.tick);
        self.jobs.insert(key, OpenJob { in_flight_since, ..OpenJob::new(record, spec) });
        self.watch_allowance(key, &[]);
        let wait = match want {
            // It may have been read just before the restart.
            Want::Read => self.poll_wait(key, now),
            Want::Admission | Want::Post | Want::Fetch | Want::Nothing => Millis(0),
        };
        if want != Want::Admission {
            self.schedule(key, now.tick.after(wait));
        }
        self.watch_deadline(key);
        self.note_release(key);
        // Each is looked at once, soon.
        self.watch_superseded(key, attempt, self.settings.poll_max, now);
    }

    /// One step: see the module's documentation.
    ///
    /// # Errors
    /// [`SchedulerError`] when the books do not balance; nothing of the step may then be used.
    pub fn step(&mut self, inputs: Vec<Input>, now: Now) -> Result<Step, SchedulerError> {
        for input in inputs {
            self.handle_input(input, now)?;
        }
        self.apply_deadlines(now)?;
        self.pass_over_skipped();
        self.check_watched_tasks(now)?;
        self.start_due_effects(now)?;
        // Last before admission: a wait that is over now queues a job whose batch may be canceled.
        self.drop_unsent(now)?;
        self.renew_when_due(now);
        let decision = self.admit(now)?;
        self.note_balance_need(decision.as_ref());
        self.ask_balance_when_due(now);
        self.load_rows();
        self.batches.forget_finished();
        Ok(self.finish_step(now))
    }

    /// Most inputs a step should take, so that its commit stays small.
    pub const INPUTS_MAX: usize = COMMIT_MAX_JOBS - ADMIT_MAX;

    fn finish_step(&mut self, now: Now) -> Step {
        let Pending { mut step, changed_jobs, changed_batches, changed_days, ended_jobs, archived } =
            std::mem::take(&mut self.pending);
        let open = changed_jobs.iter().filter_map(|key| self.jobs.get(key));
        step.changes.extend(open.map(|open| Change::Open(open.record.clone())));
        step.changes.extend(ended_jobs.into_iter().map(Change::End));
        let batches = changed_batches.iter().filter_map(|no| self.batches.get(no));
        step.changes.extend(batches.map(|active| Change::Batch(Box::new(active.record.clone()))));
        step.changes.extend(archived.into_iter().map(|batch| Change::Archive(Box::new(batch), now.wall)));
        if !changed_days.is_empty() {
            step.changes.push(Change::Total(self.total));
        }
        let days = changed_days.iter().filter_map(|day| Some((*day, *self.days.get(day)?)));
        step.changes.extend(days.map(|(day, totals)| Change::Day(day, totals)));
        if std::mem::take(&mut self.account.has_changed) {
            step.changes.push(Change::Account(self.account.block.clone()));
        }
        step.wake = step.wake.or_else(|| self.wake());
        step
    }

    fn wake(&self) -> Option<Tick> {
        // Nothing begins after a stop: requests in flight finish by themselves.
        if self.stopping {
            return None;
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let watch = self.watch_timers.first().map(|(at, ..)| *at);
        [timer, watch, self.crowded_until, self.balance_due(), self.renewal()].into_iter().flatten().min()
    }

    /// Whether something waits for an instant of the calendar: a deadline, an expiry, or midnight. The
    /// wall clock may step, so it is looked at now and then rather than slept towards.
    pub fn watches_the_calendar(&self) -> bool {
        let waits = |active: &ActiveBatch| {
            active.parked == Some(Parked::DayBudget)
                || active.record.policy.expires.is_some() && !active.record.is_done()
        };
        !self.deadlines.is_empty()
            || !self.watch_ends.is_empty()
            || self.batches.unfinished().any(waits)
            || self.waits_for_allowance()
    }
}
