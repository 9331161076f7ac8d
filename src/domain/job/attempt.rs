//! An attempt at a job: one idempotency key, at most one task, and what was charged for it.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use thin_vec::ThinVec;

use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::{AttemptNo, TaskId};
use crate::domain::job::OutputFile;
use crate::domain::job::rare_fields::{Rare, RareFields};
use crate::domain::job_reference::FoundInput;
use crate::domain::job_state::JobState;
use crate::domain::json_object::JsonObject;
use crate::domain::row_versions::REPLACED;
use crate::domain::task::{Fault, TaskRecord};
use crate::domain::time::{Millis, Timestamp};
use crate::domain::utc_day::UtcDay;

/// The code of a job that is paid for, and whose outputs could not be downloaded.
pub const DOWNLOAD_FAILED: &str = "download_failed";
/// The code of a job in doubt, once a person found out what it was charged.
pub const RESOLVED: &str = "resolved";
/// The code of a job that was made and paid for under a state that is gone, as a file beside its outputs tells.
pub const MADE_BEFORE: &str = "made_before";

/// Where an attempt stands. The present attempt's state is its job's. See [`crate::domain::lifecycle`] for every way in
/// and out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Wanted, and nothing is sent under its present key that could have made a task, unless
    /// [`Attempt::may_have_been_sent`] says otherwise.
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
    ///
    /// Beside the present attempt nothing is downloaded: it is paid for, and kept if the present one comes to nothing.
    Fetching {
        /// The task.
        task: TaskId,
        /// Its results; empty until the task shows some.
        urls: ThinVec<String>,
        /// The outputs that it has succeeded with before, where they are downloaded again. If that is given up, it has
        /// succeeded with them.
        #[serde(default, skip_serializing_if = "ThinVec::is_empty")]
        files: ThinVec<OutputFile>,
    },
    /// Every output is on disk, checked and synced. Final.
    Succeeded {
        /// The task.
        task: TaskId,
        /// Its outputs.
        files: ThinVec<OutputFile>,
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

    /// Whether it was never sent, since a newer version of its row came first.
    pub fn is_replaced(&self) -> bool {
        matches!(self, State::Canceled { task: None, fault: Some(fault) } if fault.code == REPLACED)
    }

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

    /// Whether a person recorded what it was charged, and that ended it.
    pub fn is_resolved(&self) -> bool {
        matches!(self, State::Failed { fault, .. } if fault.code == RESOLVED)
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

    /// Whether its task is known to have succeeded. It is paid for then, also where nothing was charged: `costCredits` is 0
    /// where an allowance of a plan covers a task (Check status).
    pub fn is_of_success(&self) -> bool {
        match self {
            State::Succeeded { .. } => true,
            State::Failed { task: Some(_), fault } => fault.code == DOWNLOAD_FAILED,
            _ => false,
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

/// What is set aside and charged for an attempt, or for all attempts of a job, at this moment; in credits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Books {
    /// Set aside for a POST whose charge is not known yet.
    pub held: Credits,
    /// Charged by its task.
    pub charged: Credits,
    /// Covered by a plan allowance.
    pub waived: Credits,
}

impl Books {
    pub(super) fn and(self, other: Books) -> Books {
        Books {
            held: self.held + other.held,
            charged: self.charged + other.charged,
            waived: self.waived + other.waived,
        }
    }
}

/// One try at a job, under one key. Moved by the lifecycle alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "StoredAttempt")]
pub struct Attempt {
    /// Its number: the key is derived from it.
    pub(super) no: AttemptNo,
    /// Where it stands.
    pub(super) state: State,
    /// What is set aside and charged for it.
    pub(super) books: Books,
    /// The UTC day that this counts for: the day of its hold.
    pub(super) day: Option<UtcDay>,
    /// A request under its key may have been sent by a state that is gone.
    pub(super) may_have_been_sent: bool,
    /// What its task ran with, as the task's record says. Attempts in memory share it.
    pub(super) ran_with: Option<Arc<RanWith>>,
    /// See [`RareAttemptFields`].
    pub(super) rare: Rare<RareAttemptFields>,
}

/// What few attempts have that are in flight.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct RareAttemptFields {
    /// The error that named its task. The task's record decides whether the attempt is over, and may say less of why. Of
    /// outputs that are asked for again after it had failed, that failure.
    pub(super) rejected: Option<Fault>,
    /// Since when its task is, or was, watched beside the job's present attempt.
    pub(super) watched_since: Option<Timestamp>,
    /// What else the record of its task says, once the task has ended.
    pub(super) record: Option<Box<TaskRecord>>,
    /// The addresses of its inputs that are outputs of other jobs, in the order of `Order::inputs`, and then those of its
    /// files in the object store, without a signature: what its POST says, however often it is sent. Empty before they
    /// were found.
    pub(super) inputs: Vec<String>,
    /// Which takes of their rows these are, 0 where there was no choice; empty where there was none at all.
    pub(super) input_takes: Vec<u32>,
    /// How long those outputs are of which the length is taken, in milliseconds, 0 for the others; empty where none was
    /// measured.
    pub(super) input_lengths: Vec<Millis>,
}

impl RareFields for RareAttemptFields {
    const NONE: &'static RareAttemptFields = &RareAttemptFields {
        rejected: None,
        watched_since: None,
        record: None,
        inputs: Vec::new(),
        input_takes: Vec::new(),
        input_lengths: Vec::new(),
    };
}

/// What a task ran with: of many tasks it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RanWith {
    /// The model that ran it.
    pub model: Option<String>,
    /// The options it was priced with, defaults filled.
    pub options: Option<JsonObject>,
}

impl RanWith {
    /// Nothing where nothing of it is known.
    pub(super) fn of(model: Option<String>, options: Option<JsonObject>) -> Option<Arc<RanWith>> {
        let is_known = model.is_some() || options.is_some();
        is_known.then(|| Arc::new(RanWith { model, options }))
    }
}

/// An attempt as it is written: its fields in the order in which they are stored, however they lie in memory.
#[derive(Serialize)]
struct WrittenAttempt<'a> {
    no: AttemptNo,
    #[serde(flatten)]
    state: &'a State,
    books: Books,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<UtcDay>,
    #[serde(skip_serializing_if = "is_default")]
    may_have_been_sent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<&'a Fault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    watched_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_options: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a TaskRecord>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    inputs: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    input_takes: &'a [u32],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    input_lengths: &'a [Millis],
}

impl Serialize for Attempt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Attempt { no, state, books, day, may_have_been_sent, ran_with, rare } = self;
        let RareAttemptFields { rejected, watched_since, record, inputs, input_takes, input_lengths } =
            &**rare;
        let written = WrittenAttempt {
            no: *no,
            state,
            books: *books,
            day: *day,
            may_have_been_sent: *may_have_been_sent,
            rejected: rejected.as_ref(),
            watched_since: *watched_since,
            ran_model: ran_with.as_ref().and_then(|ran| ran.model.as_deref()),
            ran_options: ran_with.as_ref().and_then(|ran| ran.options.as_ref()),
            record: record.as_deref(),
            inputs,
            input_takes,
            input_lengths,
        };
        written.serialize(serializer)
    }
}

/// An attempt as it is stored. Its state lies among its other fields, and is put together once all are read: reading it
/// from them at once (`#[serde(flatten)]`, `#[serde(tag)]`) would hold every value of the record twice on the way.
#[derive(Debug, Deserialize)]
struct StoredAttempt {
    no: AttemptNo,
    books: Books,
    #[serde(default)]
    day: Option<UtcDay>,
    #[serde(default)]
    may_have_been_sent: bool,
    #[serde(default)]
    rejected: Option<Fault>,
    #[serde(default)]
    watched_since: Option<Timestamp>,
    #[serde(default)]
    ran_model: Option<String>,
    #[serde(default)]
    ran_options: Option<JsonObject>,
    #[serde(default)]
    record: Option<Box<TaskRecord>>,
    #[serde(default)]
    inputs: Vec<String>,
    #[serde(default)]
    input_takes: Vec<u32>,
    #[serde(default)]
    input_lengths: Vec<Millis>,
    state: JobState,
    // What belongs to it.
    #[serde(default)]
    may_have_run: Option<bool>,
    #[serde(default)]
    sends: Option<u32>,
    #[serde(default)]
    fault: Option<Fault>,
    #[serde(default)]
    task: Option<TaskId>,
    #[serde(default)]
    urls: Option<ThinVec<String>>,
    #[serde(default)]
    files: Option<ThinVec<OutputFile>>,
}

/// What belongs to a state, whichever it is.
pub(super) struct StateFields {
    pub(super) may_have_run: Option<bool>,
    pub(super) sends: Option<u32>,
    pub(super) fault: Option<Fault>,
    pub(super) task: Option<TaskId>,
    pub(super) urls: Option<ThinVec<String>>,
    pub(super) files: Option<ThinVec<OutputFile>>,
}

/// Its record lacks a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("missing field `{0}`")]
pub(super) struct MissingField(pub(super) &'static str);

impl TryFrom<StoredAttempt> for Attempt {
    type Error = MissingField;

    fn try_from(stored: StoredAttempt) -> Result<Attempt, MissingField> {
        let StoredAttempt { may_have_run, sends, fault, task, urls, files, .. } = stored;
        let fields = StateFields { may_have_run, sends, fault, task, urls, files };
        Ok(Attempt {
            no: stored.no,
            state: fields.state(stored.state)?,
            books: stored.books,
            day: stored.day,
            may_have_been_sent: stored.may_have_been_sent,
            ran_with: RanWith::of(stored.ran_model, stored.ran_options),
            rare: Rare::new(RareAttemptFields {
                rejected: stored.rejected,
                watched_since: stored.watched_since,
                record: stored.record,
                inputs: stored.inputs,
                input_takes: stored.input_takes,
                input_lengths: stored.input_lengths,
            }),
        })
    }
}

impl StateFields {
    /// A state with what belongs to it.
    pub(super) fn state(self, state: JobState) -> Result<State, MissingField> {
        let StateFields { may_have_run, sends, fault, task, urls, files } = self;
        let missing = MissingField;
        Ok(match state {
            JobState::Queued => State::Queued,
            JobState::Submitting => State::Submitting {
                may_have_run: may_have_run.ok_or(missing("may_have_run"))?,
                sends: sends.ok_or(missing("sends"))?,
                fault,
            },
            JobState::Running => State::Running { task: task.ok_or(missing("task"))? },
            JobState::Fetching => State::Fetching {
                task: task.ok_or(missing("task"))?,
                urls: urls.ok_or(missing("urls"))?,
                files: files.unwrap_or_default(),
            },
            JobState::Succeeded => {
                State::Succeeded { task: task.ok_or(missing("task"))?, files: files.ok_or(missing("files"))? }
            }
            JobState::Failed => State::Failed { fault: fault.ok_or(missing("fault"))?, task },
            JobState::Canceled => State::Canceled { task, fault },
            JobState::Expired => State::Expired,
            JobState::InDoubt => State::InDoubt { fault: fault.ok_or(missing("fault"))?, task },
        })
    }
}

impl Attempt {
    /// Whether something is set aside or charged for it, or its task succeeded.
    pub fn is_paid(&self) -> bool {
        self.books != Books::default() || self.state.is_of_success()
    }

    /// An attempt that nothing was done for.
    pub(super) fn queued(no: AttemptNo) -> Attempt {
        Attempt::at(no, State::Queued)
    }

    pub(super) fn at(no: AttemptNo, state: State) -> Attempt {
        Attempt {
            no,
            state,
            books: Books::default(),
            day: None,
            may_have_been_sent: false,
            ran_with: None,
            rare: Rare::default(),
        }
    }

    pub(super) fn set_inputs(&mut self, found: Vec<FoundInput>) {
        let has_choices = found.iter().any(|input| input.take.is_some());
        let takes = found.iter().map(|input| input.take.unwrap_or(0)).filter(|_| has_choices);
        let input_takes = takes.collect();
        let has_lengths = found.iter().any(|input| input.length.is_some());
        let lengths = found.iter().map(|input| input.length.unwrap_or_default()).filter(|_| has_lengths);
        let input_lengths = lengths.collect();
        let inputs = found.into_iter().map(|input| input.address).collect();
        self.rare.change(|rare| {
            (rare.inputs, rare.input_takes, rare.input_lengths) = (inputs, input_takes, input_lengths);
        });
    }

    /// Takes over what a reading of its task says of the model and the options. What it says nothing of stays as it is known.
    pub(super) fn note_run(&mut self, model: Option<&str>, options: Option<&JsonObject>) {
        let known = self.ran_with.as_deref();
        let (known_model, known_options) =
            known.map_or((None, None), |known| (known.model.as_deref(), known.options.as_ref()));
        let (model, options) = (model.or(known_model), options.or(known_options));
        if (model, options) != (known_model, known_options) {
            self.ran_with = RanWith::of(model.map(str::to_owned), options.cloned());
        }
    }

    /// The error that had named its task, which is forgotten.
    pub(super) fn take_rejected(&mut self) -> Option<Fault> {
        self.rare.change(|rare| rare.rejected.take())
    }

    /// Its number, from 1. Numbers of attempts that were never sent are used again.
    pub fn no(&self) -> AttemptNo {
        self.no
    }

    /// Where it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its task, where one is known.
    pub fn task(&self) -> Option<&TaskId> {
        self.state.task()
    }

    /// What is set aside and charged for it.
    pub fn books(&self) -> Books {
        self.books
    }

    /// The UTC day that its books count for: the day of its hold.
    pub fn day(&self) -> Option<UtcDay> {
        self.day
    }

    /// A request under its key may have been sent by a state that is gone: this one was rebuilt or imported. It is
    /// neither dropped as unsent nor given another key.
    pub fn may_have_been_sent(&self) -> bool {
        self.may_have_been_sent
    }

    /// Which takes of their rows its inputs are, in their order, 0 where only one could be meant; empty where none was chosen
    /// among several.
    pub fn input_takes(&self) -> &[u32] {
        &self.rare.input_takes
    }

    /// How long those of its inputs are of which the length is taken, 0 for the others; empty where none was measured.
    pub fn input_lengths(&self) -> &[Millis] {
        &self.rare.input_lengths
    }

    /// What was found for its inputs that are outputs of other jobs, addresses and lengths, and then the addresses of its
    /// files; empty before that.
    pub fn inputs(&self) -> &[String] {
        &self.rare.inputs
    }

    /// Since when its task is, or was, watched beside the job's present attempt; nothing where it never was.
    pub fn watched_since(&self) -> Option<Timestamp> {
        self.rare.watched_since
    }

    /// Whether nothing that the service offers tells what became of it. Its charge stays until a person decides.
    pub fn is_in_doubt(&self) -> bool {
        matches!(self.state, State::InDoubt { .. })
    }

    /// Whether a person may record that it was charged so much: nothing tells what it was, or something else was
    /// recorded before.
    pub fn is_resolvable(&self, charged: Credits) -> bool {
        match &self.state {
            State::InDoubt { .. } => true,
            State::Failed { fault, .. } => fault.code == RESOLVED && self.books.charged != charged,
            _ => false,
        }
    }

    /// Whether it tells of no request that `known` does not tell of, the same attempt as it stood before: it has no other
    /// task, and nothing else is held or charged for it, unless a person recorded that.
    pub(super) fn adds_no_request_to(&self, known: Option<&Attempt>) -> bool {
        let (task, books) = known.map_or((None, Books::default()), |known| (known.task(), known.books));
        let is_recorded = matches!(&self.state, State::Failed { fault, .. } if fault.code == RESOLVED);
        self.task() == task && (self.books == books || is_recorded)
    }

    /// Whether its task is known not to have ended.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }
}
