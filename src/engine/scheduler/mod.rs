//! The engine without its I/O: what came in, and the time, decide what is to be made durable and
//! then done.
//!
//! [`Scheduler::step`] is the whole of it. It takes everything that happened since the last step and
//! returns the changes to commit and the effects to begin once they are durable. It never waits,
//! reads no clock and touches no file, so the same code runs against a simulated world.
//!
//! Memory: the jobs that have begun and not ended, and a short window of rows for each batch. What
//! has not begun stays in the spool.

mod account_overview;
mod admit;
mod budget_shortage;
mod cancel;
mod commands;
mod drop_expired_and_canceled;
mod due_effects;
mod gauges;
mod inputs;
mod job_log;
mod messages;
mod missed_deadlines;
mod overdue_watchdog;
mod overview;
mod parts;
mod planned_step;
mod price_renewal;
mod resends;
mod resolve;
mod retry;
mod row_versions;
#[cfg(test)]
pub(super) mod tests;
mod transitions;
mod waiting_inputs;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::account_overview::AccountOverview;
pub use self::commands::{CHANGED_MEANWHILE, Command, CommandOutcome, FoundJob, still_watched};
pub use self::messages::{
    AppliedVersions, BatchOverview, Effect, EndedVersion, FetchFault, FetchOrder, Input, InputFault,
    LastFailure, NoBalance, RenamedJob, SchedulerError, Settings, SpooledRow, Standstill, Step,
};
pub use self::parts::open_job::WaitReason;
pub use self::parts::outage_detector::Outage;
pub use self::parts::output_store_state::StoreCheckNo;
pub use self::planned_step::PlannedStep;
pub use self::retry::{is_paid_for, is_retried};
pub use self::waiting_inputs::{ended_take, take_of_open};
pub use self::withheld::Withheld;
use crate::domain::adaptive_limit::AdaptiveLimit;
use crate::domain::budget_group::{GroupLimits, GroupTotals};
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::job::{JobSpec, OrderTerms, RanWith};
use crate::domain::ledger::Totals;
use crate::domain::lifecycle::{self, Want};
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::request::Kind;
use crate::domain::time::{Now, Tick};
use crate::domain::utc_day::UtcDay;
use crate::engine::engine_mode::Scope;
use crate::engine::scheduler::parts::account_state::AccountState;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::active_batches::ActiveBatches;
use crate::engine::scheduler::parts::attention::Attention;
use crate::engine::scheduler::parts::budget_totals::BudgetTotals;
use crate::engine::scheduler::parts::disk_state::DiskState;
use crate::engine::scheduler::parts::download_queue::DownloadQueue;
use crate::engine::scheduler::parts::finished_jobs::FinishedJobs;
use crate::engine::scheduler::parts::input_store_state::InputStoreState;
use crate::engine::scheduler::parts::input_waits::InputWaits;
use crate::engine::scheduler::parts::job_inputs::JobInputs;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::parts::open_jobs::OpenJobs;
use crate::engine::scheduler::parts::outage_detector::OutageDetector;
use crate::engine::scheduler::parts::output_store_state::StoreState;
use crate::engine::scheduler::parts::pending_step::PendingStep;
use crate::engine::scheduler::parts::prices::Prices;
use crate::engine::scheduler::parts::reading_slots::ReadingSlots;
use crate::engine::scheduler::parts::refused_folders::RefusedFolders;
use crate::engine::scheduler::parts::scratch::Scratch;
use crate::engine::scheduler::parts::submit_rate::SubmitRate;
use crate::engine::scheduler::parts::timers::Timers;
use crate::engine::scheduler::parts::wait_times::WaitTimes;
use crate::engine::shared_values::SharedValues;
use crate::store::{BatchRecord, COMMIT_MAX_JOBS, Ended, JobRecord};

/// Most jobs let out of the queue in one step.
const ADMIT_MAX: usize = 64;

/// Jobs that a step changes at least because of what is timed, however many others change in it.
const TIMED_MIN: usize = 16;

/// What may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Everything.
    Paying,
    /// Everything but creating POSTs.
    Free,
    /// Nothing: requests in flight finish.
    Stopping,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    batches: ActiveBatches,
    jobs: OpenJobs,
    /// The terms of the rows that were read.
    order_terms: SharedValues<OrderTerms>,
    /// What the tasks of jobs ran with.
    ran_with: SharedValues<RanWith>,
    timers: Timers,
    reading_slots: ReadingSlots,
    wait_times: WaitTimes,
    downloads: DownloadQueue,
    /// Outputs that wait for result hosts that are not available keep more from being bought.
    is_kept_by_result_hosts: bool,
    budgets: BudgetTotals,
    account: AccountState,
    adaptive_limit: AdaptiveLimit,
    submit_rate: SubmitRate,
    outage_detector: OutageDetector,
    disk: DiskState,
    refused_folders: RefusedFolders,
    /// When it was last told as a warning that the service asks to wait for long.
    long_wait_told_at: Option<Tick>,
    output_store: StoreState,
    scratch: Scratch,
    input_store: InputStoreState,
    input_waits: InputWaits,
    mode: Mode,
    prices: Prices,
    finished_jobs: FinishedJobs,
    /// What jobs may have been charged of batches that are none of its own.
    may_be_charged_elsewhere: BTreeMap<BatchNo, Credits>,
    inputs: JobInputs,
    /// Attempts whose inputs are being looked for, though their jobs were canceled meanwhile: what is found is dropped.
    abandoned_lookups: BTreeSet<(JobKey, AttemptNo)>,
    pending: PendingStep,
    /// The batches that it works for.
    scope: Scope,
}

/// A job that had begun before, as this process takes it up.
#[derive(Debug)]
pub struct BegunJob(Box<OpenJob>);

impl BegunJob {
    /// The job of a record and its row.
    pub fn new(record: JobRecord, spec: Arc<JobSpec>) -> BegunJob {
        let needs_inputs = spec.order.inputs_to_find() > 0;
        let record = JobRecord { job: lifecycle::resumed(record.job, needs_inputs), ..record };
        BegunJob(Box::new(OpenJob::new(record, spec)))
    }

    /// The UTC days that its attempts count for.
    pub fn days(&self) -> impl Iterator<Item = UtcDay> {
        self.0.job().days()
    }
}

impl Scheduler {
    /// A scheduler with nothing to do.
    pub fn new(settings: Settings, total: Totals) -> Scheduler {
        Scheduler {
            order_terms: SharedValues::default(),
            ran_with: SharedValues::default(),
            reading_slots: ReadingSlots::default(),
            adaptive_limit: AdaptiveLimit::new(settings.limits.in_flight, settings.adaptive),
            submit_rate: SubmitRate::new(settings.submits_per_second),
            outage_detector: OutageDetector::default(),
            disk: DiskState::default(),
            refused_folders: RefusedFolders::default(),
            long_wait_told_at: None,
            output_store: StoreState::default(),
            scratch: Scratch::new(settings.scratch_max),
            input_store: InputStoreState::default(),
            input_waits: InputWaits::default(),
            prices: Prices::new(settings.rules.clone()),
            wait_times: WaitTimes::new(&settings),
            batches: ActiveBatches::default(),
            jobs: OpenJobs::by_groups(settings.group_limits.keys().cloned().collect()),
            timers: Timers::default(),
            downloads: DownloadQueue::default(),
            is_kept_by_result_hosts: false,
            budgets: BudgetTotals::new(total, &settings.group_limits),
            account: AccountState::new(&settings),
            mode: Mode::Paying,
            finished_jobs: FinishedJobs::default(),
            may_be_charged_elsewhere: BTreeMap::new(),
            inputs: JobInputs::default(),
            abandoned_lookups: BTreeSet::new(),
            pending: PendingStep::default(),
            scope: Scope::All,
            settings,
        }
    }

    /// Takes up a day's totals as they were stored. Days that are not told are empty.
    pub fn set_day(&mut self, day: UtcDay, totals: Totals) {
        self.budgets.set_day(day, totals);
    }

    /// Whether a day's totals are known.
    pub fn has_day(&self, day: UtcDay) -> bool {
        self.budgets.has_day(day)
    }

    /// Takes up what the groups that have budgets have held and spent: as it was stored, or, with `is_new`, as it was
    /// counted, which is then to be stored.
    pub fn set_groups(&mut self, groups: GroupTotals, is_new: bool) {
        self.budgets.set_groups(groups, &self.settings.group_limits);
        if is_new {
            self.pending.groups_are_new();
        }
    }

    /// Whether these limits need totals of a key that is not counted.
    pub fn lacks_groups(&self, limits: &GroupLimits) -> bool {
        self.budgets.groups().clone().only(limits.keys()).is_none()
    }

    /// Sends no creating POST from now on, whatever is wanted.
    pub fn disable_sending(&mut self) {
        self.mode = Mode::Free;
    }

    /// The object store of outputs is asked whether it answers, or there is none: before it does, nothing is sent.
    /// Returns which check its answers belong to.
    pub fn await_output_store(&mut self, is_asked: bool) -> StoreCheckNo {
        let was_down = self.output_store.is_down();
        let no = self.output_store.is_asked(is_asked);
        if was_down && !self.output_store.is_down() {
            self.store_takes_again();
        }
        no
    }

    /// Takes up a batch, or what changed of it by another manifest.
    pub fn add_batch(&mut self, record: BatchRecord) {
        self.may_be_charged_elsewhere.remove(&record.no);
        match self.batches.get_mut(&record.no) {
            None => self.batches.insert(ActiveBatch::new(record)),
            Some(active) => active.extend(record),
        }
    }

    /// Lets go of the batches that are done, once that is durable: it was a change of the step before.
    fn forget_finished(&mut self) {
        let pending = &self.pending;
        let finished = self.batches.take_finished(|no| pending.has_changed_batch(no));
        if finished.is_empty() {
            return;
        }
        for record in finished {
            self.jobs.forget_batch(record.no);
            self.inputs.forget_batch(record.no);
            self.refused_folders.take(record.no);
            self.finished_jobs.add(&record);
            if !record.may_be_charged.is_zero() {
                self.may_be_charged_elsewhere.insert(record.no, record.may_be_charged);
            }
        }
        // What they named may have been done before them.
        let with_references = self.batches.sorted(Attention::HasReferences);
        let named: BTreeSet<BatchNo> = with_references.flat_map(ActiveBatch::named_batches).collect();
        let batches = &self.batches;
        self.inputs.keep_needed(|no| batches.contains_key(&no) || named.contains(&no));
    }

    /// Takes up a batch that is done, for a command about it. The next step forgets it again, unless something of it
    /// goes on.
    pub fn add_finished_batch(&mut self, record: BatchRecord) {
        if !self.batches.contains_key(&record.no) {
            self.finished_jobs.remove(&record);
            self.add_batch(record);
        }
    }

    /// Takes up how the jobs of finished batches ended, by kind, as it was stored.
    pub fn set_finished_jobs(&mut self, jobs: BTreeMap<Option<Kind>, Ended>) {
        self.finished_jobs = FinishedJobs::new(jobs);
    }

    /// Takes up what jobs may have been charged of batches that are none of its own: see [`BatchRecord::may_be_charged`].
    pub fn set_may_be_charged(&mut self, elsewhere: BTreeMap<BatchNo, Credits>) {
        self.may_be_charged_elsewhere = elsewhere;
    }

    /// Takes up what the account refused before: a restart is not a special path.
    pub fn set_account_block(&mut self, block: AccountBlock) {
        self.account.set_block(block);
    }

    /// So many jobs will be taken up.
    pub fn expect_jobs(&mut self, more: usize) {
        self.jobs.reserve(more);
    }

    /// Takes up a job that had begun before: a restart is not a special path.
    pub fn resume_job(&mut self, BegunJob(mut open): BegunJob, now: Now) {
        let key = open.key();
        if !open.job().has_succeeded() {
            self.note_goes_on(key.batch, open.record().id);
        }
        open.set_in_flight(now);
        self.prices.note_resumed(key, open.job());
        self.account.job_moved(&open, &[]);
        // What needs only the job itself is done before it goes into the table: a restart takes up all jobs at once.
        let attempts: Vec<_> = open.open_attempts().collect();
        for &attempt in &attempts {
            let at = match open.wants(attempt) {
                // It may have been read just before the restart.
                Want::Read => Some(now.tick.after(self.wait_times.until_poll_of(&open, attempt, now.tick))),
                Want::Post | Want::Fetch => Some(now.tick),
                Want::Admission | Want::Nothing => None,
            };
            if let Some(at) = at {
                open.set_timed(attempt, true);
                self.timers.set_effect(key, attempt, at);
            }
            self.timers.set_deadline(key, attempt, self.deadline_of(open.spec(), open.job(), attempt));
        }
        let is_queued = attempts.into_iter().any(|attempt| open.wants(attempt) == Want::Admission);
        self.jobs.resume(open);
        if is_queued {
            self.queue(key);
        }
    }

    /// One step: see the module's documentation.
    ///
    /// # Errors
    /// [`SchedulerError`] when the books do not balance; nothing of the step may then be used.
    pub fn step(&mut self, inputs: Vec<Input>, now: Now) -> Result<Step, SchedulerError> {
        self.forget_finished();
        self.reading_slots.pass_time(now.tick);
        for input in inputs {
            self.handle_input(input, now)?;
        }
        self.apply_deadlines(now)?;
        self.pass_over_skipped();
        self.start_due_effects(now)?;
        // Last before admission: a wait that is over now queues a job whose batch may be canceled.
        self.drop_unsent(now)?;
        self.drop_replaced(now)?;
        self.go_back();
        self.renew_prices_when_due(now);
        self.open_waiting_rows(now);
        let decision = self.admit(now)?;
        self.account.note_need(decision.as_ref());
        self.ask_balance_when_due(now);
        self.load_rows();
        self.look_up_ended();
        Ok(self.finish_step(now))
    }

    /// Most inputs a step should take, so that its commit stays small.
    pub const INPUTS_MAX: usize = COMMIT_MAX_JOBS - ADMIT_MAX;

    /// How many jobs may have changed in this step after what is timed is looked at: some at least, however many have by
    /// now. After a downtime everything may be due at once.
    fn most_changed_jobs(&self) -> usize {
        Self::INPUTS_MAX.max(self.pending.changed_jobs() + TIMED_MIN)
    }

    fn finish_step(&mut self, now: Now) -> Step {
        let account = self.account.take_changed_block();
        self.input_store.pass_time(now.tick);
        self.batches.sort_in();
        let next_due = self.next_due();
        let step =
            self.pending.finish(&self.jobs, &mut self.batches, &self.budgets, account, (next_due, now.wall));
        self.batches.sort_in();
        step
    }

    /// When the next step is due, if nothing comes in before.
    fn next_due(&self) -> Option<Tick> {
        // Nothing begins after a stop: requests in flight finish by themselves.
        if self.mode == Mode::Stopping {
            return None;
        }
        let crowded_until = self.adaptive_limit.wait_until();
        let due = [
            self.timers.next_effect(),
            crowded_until,
            self.submit_rate.wait_until(),
            self.account.balance_due(),
            self.prices_due(),
            self.input_store.retry_at(),
        ];
        due.into_iter().flatten().min()
    }

    /// Whether something waits for an instant of the calendar: a deadline, an expiry, or midnight. The
    /// wall clock may step, so it is looked at now and then rather than slept towards.
    pub fn watches_the_calendar(&self) -> bool {
        self.timers.has_calendar()
            || self.batches.expire()
            || self.batches.sorted(Attention::WaitsForTomorrow).next().is_some()
            || self.account.waits_for_allowance()
    }
}
