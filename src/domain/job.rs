//! A job: what was asked for (`Order`, fixed) and what became of it so far (`Job`, moved by the
//! lifecycle alone).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::allowances::AllowanceUse;
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, Fingerprint, JobId, Seq, TaskId};
use crate::domain::job_state::JobState;
use crate::domain::ledger::Movement;
use crate::domain::manifest::row::Deadline;
use crate::domain::release_price::Release;
use crate::domain::request::Kind;
use crate::domain::task::{Fault, TaskRecord};
use crate::domain::time::{Timestamp, UtcDay};

/// What is wanted and at what price: validated, defaulted and priced. Never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Line of the manifest.
    pub line: u64,
    /// What is generated.
    pub kind: Kind,
    /// Requested model, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The body of the POST.
    pub body: Map<String, Value>,
    /// Computed price; absent where the catalog does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Credits>,
    /// Without a price: the dearest that the catalog can reach; absent where nothing bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Credits>,
    /// How the price was computed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub formula: String,
    /// The part of the price that a plan allowance could cover.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waivable: Credits,
    /// What it would draw from that allowance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowance: Option<AllowanceUse>,
    /// The most it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_credits: Option<Credits>,
    /// Higher goes first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i8,
    /// When it is overdue, where row or policy say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// The pipeline's own columns.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Value>,
}

/// One wanted generation: an order, and who it is among the jobs of its batch. Never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its place in the batch.
    pub seq: Seq,
    /// Who it is.
    pub id: JobId,
    /// The row it is a variation of.
    pub fingerprint: Fingerprint,
    /// Which variation of the row, from 1.
    pub variation: u32,
    /// What people and file names call it.
    pub label: String,
    /// Another job's label differs from its own only by case or by Unicode normal form: its files carry its identity,
    /// so that they stay apart on every disk.
    #[serde(default, skip_serializing_if = "is_default")]
    pub apart: bool,
    /// What is wanted.
    pub order: Order,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Order {
    /// What was to be held for it when it was planned: its price, or for a job without one the most that it may cost.
    pub fn hold(&self) -> Option<Credits> {
        self.price.or(self.bound).or(self.max_credits)
    }

    /// What it would draw from a plan allowance. Rows from before pools were kept have one of their kind.
    pub fn allowance(&self) -> Option<AllowanceUse> {
        let of_its_kind = || AllowanceUse { pool: self.kind.name().to_owned(), units: 1 };
        self.allowance.clone().or_else(|| (!self.waivable.is_zero()).then(of_its_kind))
    }

    /// The text that describes it: its prompt, or what is to be said.
    pub fn text(&self) -> &str {
        let field = |name: &str| self.body.get(name).and_then(Value::as_str);
        field("prompt").or_else(|| field("text")).unwrap_or_default()
    }
}

/// The code of a job that is paid for, and whose outputs could not be downloaded.
pub const DOWNLOAD_FAILED: &str = "download_failed";
/// The code of a job in doubt, once a person found out what it was charged.
pub const RESOLVED: &str = "resolved";

/// Where a job stands. See [`crate::domain::lifecycle`] for every way in and out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Wanted, and nothing is sent under its present key that could have made a task, unless
    /// [`Job::may_have_been_sent`] says otherwise.
    ///
    /// In: accepted; a failed attempt that may be repeated; a POST that was answered 401 or 402, or,
    /// where there is no key, one that surely made no task.
    /// Out: admission sends it; it is canceled; it expires.
    /// Stuck: it is *parked*, and the reason (budget, credits, key, pause, disk) says what lifts it.
    Queued,
    /// A hold is set aside and a POST is on its way, or about to be.
    ///
    /// In: admission. Out: an answer that shows a task or rules one out.
    /// Stuck: the service does not answer. The same key is sent again, ever more slowly.
    Submitting {
        /// Whether an earlier send under this key may have made a task.
        may_have_run: bool,
        /// How often it was sent without a usable answer.
        sends: u32,
        /// The last unusable answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
    /// The service has a task for it.
    ///
    /// In: an answer with a task. Out: the task's final status.
    /// Stuck: overdue; it is watched slowly, and nothing is sent again.
    Running {
        /// The task.
        task: TaskId,
    },
    /// The task succeeded; its outputs are being downloaded.
    ///
    /// In: status `success`. Out: every output is on disk, or downloading was given up.
    /// Stuck: result links fail. The task is read again for fresh ones.
    Fetching {
        /// The task.
        task: TaskId,
        /// Its results; empty until the task shows some.
        urls: Vec<String>,
    },
    /// Every output is on disk, checked and synced. Final.
    Succeeded {
        /// The task.
        task: TaskId,
        /// Its outputs.
        files: Vec<OutputFile>,
    },
    /// No attempt is left, or none would help. Final, until somebody asks for a retry.
    Failed {
        /// The last attempt's reason.
        fault: Fault,
        /// The last attempt's task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
    },
    /// Dropped by its owner before it was sent, or canceled at the service by somebody else. Final, until somebody
    /// asks for a retry.
    Canceled {
        /// The task that was canceled at the service; nothing where it was dropped before it was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
        /// What the task's record says about that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
    /// Its batch's time ran out before it was sent. Final.
    Expired,
    /// It may have been charged, and nothing the service offers can tell. Its hold or charge stays
    /// until a person decides. Final for the program.
    InDoubt {
        /// What made it so.
        fault: Fault,
        /// The task, where one is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
    },
}

impl State {
    /// Dropped by its owner before it was sent.
    pub const DROPPED: State = State::Canceled { task: None, fault: None };

    /// The state without what belongs to it.
    pub fn job_state(&self) -> JobState {
        match self {
            State::Queued => JobState::Queued,
            State::Submitting { .. } => JobState::Submitting,
            State::Running { .. } => JobState::Running,
            State::Fetching { .. } => JobState::Fetching,
            State::Succeeded { .. } => JobState::Succeeded,
            State::Failed { .. } => JobState::Failed,
            State::Canceled { .. } => JobState::Canceled,
            State::Expired => JobState::Expired,
            State::InDoubt { .. } => JobState::InDoubt,
        }
    }

    /// The state's name in everything shown.
    pub fn name(&self) -> &'static str {
        self.job_state().name()
    }

    /// Whether the program has nothing more to do for it.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            State::Succeeded { .. }
                | State::Failed { .. }
                | State::Canceled { .. }
                | State::Expired
                | State::InDoubt { .. }
        )
    }

    /// The task of the present attempt, where one is known.
    pub fn task(&self) -> Option<&TaskId> {
        match self {
            State::Running { task } | State::Fetching { task, .. } | State::Succeeded { task, .. } => {
                Some(task)
            }
            State::Failed { task, .. } | State::Canceled { task, .. } | State::InDoubt { task, .. } => {
                task.as_ref()
            }
            State::Queued | State::Submitting { .. } | State::Expired => None,
        }
    }

    /// Whether the record of the present attempt's task said that it failed or was canceled. Only then another attempt
    /// gets another key: the service answers this one with that task for ever (Idempotency, 4).
    pub fn is_ended_by_record(&self) -> bool {
        match self {
            State::Failed { task: Some(_), fault } => {
                !matches!(fault.code.as_str(), DOWNLOAD_FAILED | RESOLVED)
            }
            State::Canceled { task, .. } => task.is_some(),
            _ => false,
        }
    }
}

/// One downloaded output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Path, relative to the batch's folder.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, in hexadecimal.
    pub sha256: String,
    /// Media type, by content.
    pub content_type: String,
    /// The file that has this one's usual name: somebody edited it, and it stays. Its path, relative to the batch's
    /// folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<String>,
}

/// A job's outputs as they lie in the output folder, and how they came to be, as their sidecar tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landed {
    /// The task that made them.
    pub task: TaskId,
    /// The attempt that it was of.
    pub attempt: AttemptNo,
    /// What it was charged.
    pub charged: Credits,
    /// What an allowance covered.
    pub waived: Credits,
    /// The model that ran it, or was asked for.
    pub model: Option<String>,
    /// The outputs.
    pub files: Vec<OutputFile>,
}

/// What is set aside and charged for a job at this moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Books {
    /// Set aside for a POST whose charge is not known yet.
    pub held: Credits,
    /// Charged by the present attempt's task.
    pub charged: Credits,
    /// Covered by a plan allowance.
    pub waived: Credits,
}

impl Books {
    fn and(self, other: Books) -> Books {
        Books {
            held: self.held + other.held,
            charged: self.charged + other.charged,
            waived: self.waived + other.waived,
        }
    }
}

/// A task of another attempt than the present one, which is paid for or may yet be: made before its job was
/// resubmitted, or after, where the earlier one succeeded first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superseded {
    /// Its attempt.
    pub(in crate::domain) attempt: AttemptNo,
    /// The task.
    pub(in crate::domain) task: TaskId,
    /// What is charged for it.
    pub(in crate::domain) books: Books,
    /// The UTC day that this counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) day: Option<UtcDay>,
    /// Since when it is watched beside the present attempt.
    pub(in crate::domain) since: Timestamp,
    /// What became of it.
    pub(in crate::domain) watch: WatchState,
}

impl Superseded {
    /// Its number.
    pub fn no(&self) -> AttemptNo {
        self.attempt
    }

    /// Its task.
    pub fn task(&self) -> Option<&TaskId> {
        Some(&self.task)
    }

    /// What is charged for it.
    pub fn books(&self) -> Books {
        self.books
    }

    /// Whether nothing that the service offers tells what became of it.
    pub fn is_in_doubt(&self) -> bool {
        self.watch == WatchState::InDoubt
    }

    /// Since when it is watched beside the present attempt.
    pub fn watched_since(&self) -> Option<Timestamp> {
        Some(self.since)
    }
}

/// What became of a superseded task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchState {
    /// It has not ended, and is read slowly.
    Open,
    /// It succeeded, and stays paid for.
    Succeeded,
    /// It failed, or could not be downloaded; nothing more comes of it.
    Over,
    /// Nothing the service offers tells what became of it. Its charge stays until a person decides.
    InDoubt,
}

/// One line of a job's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// When.
    pub at: Timestamp,
    /// Which attempt.
    pub attempt: AttemptNo,
    /// What happened, in plain words.
    pub what: String,
    /// The movement it caused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movement: Option<Movement>,
}

/// Most lines of history a job keeps; the oldest go first.
pub const HISTORY_MAX_LINES: usize = 64;

/// What became of a job so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Where it stands.
    #[serde(flatten)]
    pub(in crate::domain) state: State,
    /// The present attempt.
    pub(in crate::domain) attempt: AttemptNo,
    /// What is set aside and charged.
    pub(in crate::domain) books: Books,
    /// The first POST of the first attempt: deadlines count from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) first_sent: Option<Timestamp>,
    /// The first POST that its deadline counts from, where that is not the first of all: it was
    /// resubmitted, or retried by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) deadline_from: Option<Timestamp>,
    /// What it was let out at last: the price in force then, and not the one that was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) released: Option<Release>,
    /// What a person allowed it to cost since, in place of what its row said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) max_credits: Option<Credits>,
    /// The UTC day that the present attempt's hold and charge count for: the day of its hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) day: Option<UtcDay>,
    /// Its deadline passed while it was in flight; its slot is free again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(in crate::domain) overdue: bool,
    /// A request under its present key may have been sent by a state that is gone: this one was rebuilt or imported.
    /// It is neither dropped as unsent nor given another key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(in crate::domain) may_have_been_sent: bool,
    /// The model that ran its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) ran_model: Option<String>,
    /// The options its task was priced with, defaults filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) ran_options: Option<Map<String, Value>>,
    /// What else the record of its task says, once the task has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) record: Option<Box<TaskRecord>>,
    /// Tasks of other attempts that are paid for as well, or may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::domain) superseded: Vec<Superseded>,
    /// The error that named the present task. The task's record decides whether the attempt is over, and may say less
    /// of why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::domain) rejected: Option<Fault>,
    /// Why each further attempt was begun that nobody asked for: the code of the failure before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::domain) begun_for: Vec<String>,
    /// What happened, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::domain) history: Vec<HistoryLine>,
}

impl Job {
    /// A job that nothing was done for.
    pub fn queued() -> Job {
        Job {
            state: State::Queued,
            attempt: AttemptNo::FIRST,
            books: Books::default(),
            first_sent: None,
            deadline_from: None,
            released: None,
            max_credits: None,
            day: None,
            overdue: false,
            may_have_been_sent: false,
            ran_model: None,
            ran_options: None,
            record: None,
            superseded: Vec::new(),
            rejected: None,
            begun_for: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Where it stands: the state of its present attempt.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Number of the present attempt, whose key is in use.
    pub fn attempt(&self) -> AttemptNo {
        self.attempt
    }

    /// What is set aside and charged for the present attempt. [`Job::all_books`] counts the others, too.
    pub fn books(&self) -> Books {
        self.books
    }

    /// The UTC day that the present attempt's hold and charge count for: the day of its hold.
    pub fn day(&self) -> Option<UtcDay> {
        self.day
    }

    /// The task of the present attempt, where one is known.
    pub fn task(&self) -> Option<&TaskId> {
        self.state.task()
    }

    /// The first POST of the first attempt; nothing before anything of it was taken.
    pub fn first_sent(&self) -> Option<Timestamp> {
        self.first_sent
    }

    /// The POST that its deadline counts from: the first of all, or the first since it was resubmitted or retried by a
    /// person.
    pub fn deadline_from(&self) -> Option<Timestamp> {
        self.deadline_from.or(self.first_sent)
    }

    /// What it was let out at last: the price in force then, and not the one that was planned.
    pub fn released(&self) -> Option<Release> {
        self.released
    }

    /// What a person allowed it to cost, in place of what its row says.
    pub fn max_credits(&self) -> Option<Credits> {
        self.max_credits
    }

    /// Its deadline passed while it was in flight; its slot is free again.
    pub fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// A request under its present key may have been sent by a state that is gone: this one was rebuilt or imported.
    /// It is neither dropped as unsent nor given another key.
    pub fn may_have_been_sent(&self) -> bool {
        self.may_have_been_sent
    }

    /// The model that ran its task.
    pub fn ran_model(&self) -> Option<&str> {
        self.ran_model.as_deref()
    }

    /// The options its task was priced with, defaults filled.
    pub fn ran_options(&self) -> Option<&Map<String, Value>> {
        self.ran_options.as_ref()
    }

    /// What else the record of its task says, once the task has ended.
    pub fn task_record(&self) -> Option<&TaskRecord> {
        self.record.as_deref()
    }

    /// Why each further attempt was begun that nobody asked for: the code of the failure before it.
    pub fn begun_for(&self) -> &[String] {
        &self.begun_for
    }

    /// What happened, oldest first.
    pub fn history(&self) -> &[HistoryLine] {
        &self.history
    }

    /// Attempts beside the present one whose tasks are paid for, or were or may be: their job was resubmitted.
    pub fn resubmitted_attempts(&self) -> impl Iterator<Item = &Superseded> {
        self.superseded.iter()
    }

    /// Of these, the ones whose task has not ended.
    pub fn watched_attempts(&self) -> impl Iterator<Item = &Superseded> {
        self.superseded.iter().filter(|other| other.watch == WatchState::Open)
    }

    /// Every task that may yet be charged or is: of the present attempt, and of those beside it.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskId> {
        self.state.task().into_iter().chain(self.superseded.iter().map(|other| &other.task))
    }

    /// Whether a person must decide about one of its attempts.
    pub fn is_in_doubt(&self) -> bool {
        matches!(self.state, State::InDoubt { .. })
            || self.superseded.iter().any(|other| other.watch == WatchState::InDoubt)
    }

    /// Marks that a state that is gone may have sent it. See [`Job::may_have_been_sent`].
    pub fn mark_may_have_been_sent(&mut self) {
        self.may_have_been_sent = true;
    }

    /// Lets it cost more, or less, than its row says; in credits.
    pub fn set_max_credits(&mut self, max_credits: Option<Credits>) {
        self.max_credits = max_credits;
    }

    /// Forgets its result links, so that its task is read again for fresh ones.
    pub fn forget_links(&mut self) {
        if let State::Fetching { urls, .. } = &mut self.state {
            urls.clear();
        }
    }

    /// A job in a state of its `no`-th attempt, however it came there.
    #[cfg(test)]
    pub(crate) fn at(no: AttemptNo, state: State) -> Job {
        Job { attempt: no, state, ..Job::queued() }
    }

    /// A job of which nothing tells whether it was sent. See [`Job::may_have_been_sent`].
    pub fn queued_perhaps_sent() -> Job {
        Job { may_have_been_sent: true, ..Job::queued() }
    }

    /// Its exact price: the one that it was let out at, or else the planned one.
    pub fn price(&self, order: &Order) -> Option<Credits> {
        self.released.map_or(order.price, Release::price)
    }

    /// What was held for it when it was let out, or else what was planned to be.
    pub fn hold(&self, order: &Order) -> Option<Credits> {
        self.released.map(|release| release.hold).or_else(|| order.hold())
    }

    /// What is set aside and charged for it by all its attempts together.
    pub fn all_books(&self) -> Books {
        self.superseded.iter().fold(self.books, |sum, other| sum.and(other.books))
    }

    /// What each of its attempts holds and was charged, with the day that it counts for.
    pub fn books_by_day(&self) -> impl Iterator<Item = (Option<UtcDay>, Books)> + '_ {
        let others = self.superseded.iter().map(|other| (other.day, other.books));
        std::iter::once((self.day, self.books)).chain(others)
    }

    /// The task of one of its attempts: of the present one, or of one that is watched on beside it. Of those that
    /// are over, only the history's words tell.
    pub fn task_of(&self, attempt: AttemptNo) -> Option<&TaskId> {
        if attempt == self.attempt {
            return self.state.task();
        }
        self.superseded.iter().find(|other| other.attempt == attempt).map(|other| &other.task)
    }

    /// The latest attempt that was begun, whose key is used up.
    pub fn newest_attempt(&self) -> AttemptNo {
        self.superseded.iter().map(|other| other.attempt).fold(self.attempt, AttemptNo::max)
    }

    /// The days that its books count for.
    pub fn days(&self) -> impl Iterator<Item = UtcDay> + '_ {
        self.day.into_iter().chain(self.superseded.iter().filter_map(|other| other.day))
    }

    /// Whether the program has nothing more to do for it: it has ended, and so have the tasks that it was
    /// resubmitted over.
    pub fn is_over(&self) -> bool {
        self.state.is_final() && self.superseded.iter().all(|other| other.watch != WatchState::Open)
    }

    /// Whether its outputs came after its deadline.
    pub fn is_late(&self) -> bool {
        matches!(self.state, State::Succeeded { .. }) && (self.overdue || !self.superseded.is_empty())
    }

    /// Whether it takes up one of the service's slots.
    pub fn holds_slot(&self) -> bool {
        !self.overdue && matches!(self.state, State::Submitting { .. } | State::Running { .. })
    }
}
