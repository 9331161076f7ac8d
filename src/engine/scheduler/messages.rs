//! What goes into the scheduler and what comes out.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::admission::Limits;
use crate::domain::budget::BudgetShortage;
use crate::domain::budget_group::GroupLimits;
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchName, BatchNo, JobId, JobKey, Seq, TaskId};
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::job_reference::{EndedTake, FoundInput};
use crate::domain::job_state::JobStateCounts;
use crate::domain::ledger::{OutOfBalance, Totals};
use crate::domain::parked_reason::Parked;
use crate::domain::quote::{Catalog, Rules, Surcharges};
use crate::domain::request::Kind;
use crate::domain::retry_delay::Backoff;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer};
use crate::domain::time::{Millis, Tick};
use crate::engine::scheduler::parts::output_store_state::StoreCheckNo;
use crate::store::{Change, JobRecord};

/// Everything that can be tuned.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Slots and budgets.
    pub limits: Limits,
    /// Budgets of groups of rows.
    pub group_limits: GroupLimits,
    /// Creating requests a second; nothing for no limit.
    pub submits_per_second: Option<NonZeroU32>,
    /// Requests, downloads among them, that may be under way at once: open files limit them.
    pub requests_at_once: usize,
    /// Whether the number of jobs in flight follows what the service takes.
    pub adaptive: bool,
    /// Rejected prompts in a row that pause a batch.
    pub rejections: u32,
    /// Outputs being downloaded at once.
    pub downloads: usize,
    /// Room that outputs may take on disk until they are in the object store, in bytes; nothing where they stay there.
    pub scratch_max: Option<u64>,
    /// Least time between two readings of a task.
    pub poll_min: Millis,
    /// Most time between two readings of a task.
    pub poll_max: Millis,
    /// How long a job of a kind may be in flight before it is overdue.
    pub deadlines: BTreeMap<Kind, Millis>,
    /// Between two readings of an overdue task.
    pub overdue_poll: Millis,
    /// How long an overdue task is watched.
    pub watch_overdue_for: Millis,
    /// Attempts of a job whose policy gives no number.
    pub attempts: u32,
    /// Waits after faults.
    pub backoff: Backoff,
    /// Between two questions for the balance while a key is refused, or while nothing waits for an answer.
    pub balance_interval: Millis,
    /// Whether the account's plan may have allowances. Without, nothing is sent that the balance does not cover.
    pub has_allowances: bool,
    /// What the catalogs do not carry. With it jobs are let out at the price in force then; without it at the price
    /// that they were accepted at.
    pub rules: Option<Arc<Rules>>,
    /// Seed of all jitter.
    pub seed: u64,
}

/// Why the balance is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoBalance {
    /// The service refused the key (401).
    Unauthorised,
    /// There was no answer that tells it.
    Unanswered,
}

/// What happened since the last step.
#[derive(Debug)]
pub enum Input {
    /// A creating POST came to this.
    Posted(JobKey, AttemptNo, PostAnswer),
    /// Looking for the addresses of a job's inputs came to this.
    InputsFound(JobKey, AttemptNo, Result<Vec<FoundInput>, InputFault>),
    /// How the jobs of a batch ended was looked up.
    Ended {
        /// The batch.
        batch: BatchNo,
        /// Each job that has ended.
        jobs: Vec<(JobId, EndedTake)>,
    },
    /// That cannot be looked up: somebody moved the files of the batch away.
    Moved {
        /// The batch.
        batch: BatchNo,
        /// Which files are missing, and where they belong.
        why: String,
    },
    /// Reading a task came to this.
    Read(JobKey, AttemptNo, ReadAnswer),
    /// All outputs of a job have come, and wait to be published: others can be downloaded meanwhile.
    Received(JobKey, AttemptNo),
    /// Downloading and publishing a job's outputs came to this.
    Fetched(JobKey, AttemptNo, Result<Vec<OutputFile>, FetchFault>),
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
    Balance(Result<Credits, NoBalance>),
    /// The catalogs were asked for.
    Catalog(Result<Arc<Catalog>, Fault>),
    /// What was charged above the catalog's prices is kept, or could not be.
    SurchargesKept,
    /// What a manifest went back to was taken up, or outputs were renamed since another version of their row was published.
    Versions(AppliedVersions),
    /// The outputs of a job that has ended are not on disk any more, or stay there for good.
    Freed(JobKey),
    /// Whether the object store of outputs answers, which was asked in this check.
    OutputStoreAnswers(StoreCheckNo, bool),
    /// Whether the output disk has less room than it must keep, or takes nothing more.
    DiskIsLow(bool),
    /// The output folder of a batch cannot be written to, for this reason.
    FolderRefused(BatchNo, String),
    /// The output folder of a batch can be written to again.
    FolderTakes(BatchNo),
    /// Send nothing new from now on.
    Stop,
}

/// Why the addresses of a job's inputs could not be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputFault {
    /// The object store takes nothing: it is waited for.
    Store(Fault),
    /// It may work later, and the job alone waits.
    Passing(Fault),
    /// It will not work: the service knows the task no more, for one.
    Lasting(Fault),
}

/// Why outputs could not be downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchFault {
    /// The links do not lead to what is wanted: another reading of the task may bring other ones.
    Stale(Fault),
    /// The result host refuses a link: it may have expired, and the task has fresh ones.
    LinkRefused(Fault),
    /// It may work later.
    Passing(Fault),
    /// The result host cannot be reached, or cannot answer now. It is waited for: the job is paid for.
    Unavailable {
        /// What there was in place of an answer.
        fault: Fault,
        /// How long the host asks to wait.
        wait: Option<Millis>,
    },
    /// Its slot was given up to one that waits. Bytes came, and it goes on where it stopped.
    Slow(Fault),
    /// It will not work: an output over the size limit, for one.
    Lasting(Fault),
    /// Its outputs are on disk, and the object store refuses them or cannot be reached. It is waited for, however long
    /// that takes.
    StoreRefuses(Fault),
    /// The folder of its batch cannot be written to, and the disk can. It is waited for, however long that takes.
    FolderRefuses(Fault),
    /// Its outputs are on disk, and the object store refuses one of them while it takes other objects. The job alone waits,
    /// however long that takes.
    ObjectRefused(Fault),
    /// The output disk takes nothing more. It is the disk that is waited for, however long that takes: the job is
    /// paid for, and no other would fare better.
    DiskRefuses {
        /// What the disk said.
        fault: Fault,
        /// How large the file is, in bytes, or how much of it had come where that is not known.
        wanted_bytes: u64,
    },
}

impl FetchFault {
    /// What went wrong, to be worded.
    pub fn fault_mut(&mut self) -> &mut Fault {
        match self {
            FetchFault::Stale(fault)
            | FetchFault::LinkRefused(fault)
            | FetchFault::Passing(fault)
            | FetchFault::Unavailable { fault, .. }
            | FetchFault::Slow(fault)
            | FetchFault::Lasting(fault)
            | FetchFault::StoreRefuses(fault)
            | FetchFault::FolderRefuses(fault)
            | FetchFault::ObjectRefused(fault)
            | FetchFault::DiskRefuses { fault, .. } => fault,
        }
    }
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

/// What is to be done once the step's changes are durable.
#[derive(Debug)]
pub enum Effect {
    /// Send the creating POST of a job's present attempt.
    Post {
        /// Which job.
        key: JobKey,
        /// Which attempt.
        attempt: AttemptNo,
        /// What is wanted.
        spec: Arc<JobSpec>,
        /// The addresses of its inputs that are outputs of other jobs, in the order of the references.
        inputs: Vec<String>,
    },
    /// Find the addresses of a job's inputs.
    FindInputs {
        /// Which job.
        key: JobKey,
        /// Which attempt.
        attempt: AttemptNo,
        /// What is wanted.
        spec: Arc<JobSpec>,
        /// The jobs that give them, one for each.
        parents: Vec<JobKey>,
        /// Our own copies of outputs are used where those at the service cannot be had.
        uses_own_copies: bool,
    },
    /// Look up how the jobs of a batch ended.
    LoadEnded {
        /// The batch.
        batch: BatchNo,
    },
    /// Read a task.
    Read {
        /// Which job.
        key: JobKey,
        /// Which attempt.
        attempt: AttemptNo,
        /// Which task.
        task: TaskId,
        /// What was wanted: Shorts Studio's tasks are read elsewhere than all others.
        spec: Arc<JobSpec>,
        /// When it was to be read.
        due: Tick,
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
    /// Ask for the catalogs.
    RenewCatalog,
    /// Take up what a manifest went back to.
    GoBack {
        /// The batch.
        batch: BatchNo,
        /// The byte of what says so from which on.
        from: u64,
    },
    /// Keep what was charged above the catalog's prices for later plans.
    KeepSurcharges(Surcharges),
}

/// Everything a download needs to know.
#[derive(Debug, Clone)]
pub struct FetchOrder {
    /// Which job.
    pub key: JobKey,
    /// Which attempt.
    pub attempt: AttemptNo,
    /// Name of its batch.
    pub batch: BatchName,
    /// Layout of the batch's outputs, where it has one of its own.
    pub layout: Option<String>,
    /// What was wanted.
    pub spec: Arc<JobSpec>,
    /// What became of it so far.
    pub job: Job,
    /// The results.
    pub urls: Vec<String>,
    /// It is the wanted one of several versions of its row: outputs of others give the plain name up.
    pub takes_name: bool,
    /// Another version of its row is wanted: its outputs do not have the plain name.
    pub is_superseded: bool,
}

/// What became of versions of edited rows of a batch.
#[derive(Debug)]
pub struct AppliedVersions {
    /// The batch.
    pub batch: BatchNo,
    /// The byte up to which what a manifest went back to is taken up; nothing where that was not looked at.
    pub up_to: Option<u64>,
    /// Jobs that were dropped unsent, and are wanted again.
    pub queued: Vec<(Arc<JobSpec>, JobRecord)>,
    /// Jobs whose outputs have other names now.
    pub renamed: Vec<RenamedJob>,
    /// Length of the outcomes of the batch before the jobs were read, in bytes.
    pub as_of: u64,
}

impl AppliedVersions {
    /// Nothing became of them yet.
    pub fn none(batch: BatchNo) -> AppliedVersions {
        AppliedVersions { batch, up_to: None, queued: Vec::new(), renamed: Vec::new(), as_of: 0 }
    }
}

/// A job that has ended, and whose outputs have other names now.
#[derive(Debug)]
pub struct RenamedJob {
    /// What was wanted.
    pub spec: Arc<JobSpec>,
    /// The job as it ended.
    pub record: JobRecord,
    /// Its outputs.
    pub files: Vec<OutputFile>,
}

/// A job of an edited row that has ended without outputs, or whose outputs wait for a decision.
#[derive(Debug)]
pub struct EndedVersion {
    pub seq: Seq,
    /// What is generated.
    pub kind: Kind,
    /// How it ended.
    pub state: State,
    /// It has outputs that wait for a decision.
    pub awaits_review: bool,
}

/// What a step comes to.
#[derive(Debug, Default)]
pub struct Step {
    /// To be made durable first.
    pub changes: Vec<Change>,
    /// To be begun afterwards.
    pub effects: Vec<Effect>,
    /// When the next step is due, if nothing comes in before.
    pub wake: Option<Tick>,
    /// Jobs that ended in this step.
    pub ended: Vec<(Arc<JobSpec>, JobRecord)>,
    /// Jobs that had ended before, and of which a person has decided, or it was found where their outputs are.
    pub changed_outcomes: Vec<JobRecord>,
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
    /// What is left are decisions of a person.
    Review,
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
    /// Jobs by state.
    pub states: JobStateCounts,
    /// Jobs that are submitting or running, and overdue.
    pub overdue: u32,
    /// Jobs in the queue of which a task of an earlier attempt is still running; of many open jobs only some are looked at.
    pub watched: u32,
    /// Sum of the prices.
    pub planned: Credits,
    /// Credits.
    pub totals: Totals,
    /// What keeps its queued jobs from being sent.
    pub parked: Option<Parked>,
    /// What the cheapest of the jobs that wait next needs, where a budget of the batch or the balance parks them.
    pub needs: Option<Credits>,
    /// What counts against its budget beside what is held and charged, for the job that waits next.
    pub beside: Credits,
    /// What is left of the account's balance, as far as it is known, where it parks them.
    pub balance: Option<Credits>,
    /// The service refuses them for want of credits, although the balance covers the next one.
    pub is_refused: bool,
    /// What is missing, where a budget parks them that is not the batch's own.
    pub shortage: Option<BudgetShortage>,
    /// Jobs of all batches whose outputs wait for a result host that is not available, where that parks them.
    pub unfetched: u32,
    /// Jobs that failed last since the process began, the last one first.
    pub last_failures: Vec<LastFailure>,
}

/// A job that failed, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// Its label.
    pub job: String,
    /// The code of the fault.
    pub code: String,
}

/// The books do not balance, or a row is missing: going on could cost money.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// A movement does not fit an account.
    #[error(transparent)]
    Books(#[from] OutOfBalance),
    /// Accepted rows cannot be read back.
    #[error("accepted rows cannot be read back: {0}")]
    Rows(String),
}
