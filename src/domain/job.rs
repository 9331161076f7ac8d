//! A job: what was asked for (`Order`, fixed) and what became of it so far (`Job`, a list of attempts, moved by the
//! lifecycle alone: its fields are closed to everything else).

mod attempt;
pub mod lifecycle;
mod order;
mod rare_fields;
mod record_format;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
#[cfg(test)]
use serde_json::Value;
use thin_vec::{ThinVec, thin_vec};

use crate::domain::credit_hold::Hold;
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, TaskId};
pub use crate::domain::job::attempt::{
    Attempt, Books, DOWNLOAD_FAILED, MADE_BEFORE, RESOLVED, RanWith, State,
};
pub use crate::domain::job::order::{JobSpec, Order, OrderTerms};
use crate::domain::job::rare_fields::{Rare, RareFields};
pub use crate::domain::job::record_format::RecordView;
use crate::domain::json_object::JsonObject;
use crate::domain::ledger::Movement;
use crate::domain::review::{Decision, Review};
use crate::domain::task::TaskRecord;
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;

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
    /// The address of its object in `output.store`, where it was found with this size and checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

impl OutputFile {
    /// The same without its object: as it lies on disk.
    pub fn on_disk(&self) -> OutputFile {
        OutputFile { object: None, ..self.clone() }
    }
}

/// A job's outputs as they lie in the output folder, with the task and the charge that their sidecar names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedOutputs {
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

/// One line of a job's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// When.
    pub at: Timestamp,
    /// Which attempt.
    pub attempt: AttemptNo,
    /// What happened, in plain words.
    pub what: Box<str>,
    /// The movement it caused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movement: Option<Movement>,
}

/// Most lines of history a job keeps; the oldest go first.
pub const HISTORY_MAX_LINES: usize = 64;

/// Most attempts a job keeps; the oldest that came to nothing go first.
const ATTEMPTS_MAX: usize = 16;

/// What became of a job so far: the attempts at it, one of which is the present one and decides where the job stands.
/// `record_format` says how it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "record_format::StoredJob")]
pub struct Job {
    /// By number; never empty. Of the oldest that came to nothing some may be forgotten.
    attempts: ThinVec<Attempt>,
    /// The first POST of the first attempt: deadlines count from here.
    first_sent: Option<Timestamp>,
    /// The first POST that its deadline counts from. It is not the first of all where it was resubmitted, or retried by a
    /// person.
    deadline_from: Option<Timestamp>,
    /// The price at which it was last admitted: the one in force then, and not the one that was planned.
    admission_hold: Option<Hold>,
    /// Its deadline passed while it was in flight; its slot is free again.
    overdue: bool,
    /// Its owner canceled it after it was submitted: it gets no further attempt until its owner retries it.
    no_more_attempts: bool,
    /// A state that is gone may have gone on with it after what is known here: each further attempt may have been sent.
    may_have_gone_on: bool,
    /// See [`RareJobFields`].
    rare: Rare<RareJobFields>,
    /// What happened, oldest first.
    history: ThinVec<HistoryLine>,
}

/// What few jobs have.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct RareJobFields {
    /// The present attempt, where that is not the newest: its task succeeded first.
    kept: Option<AttemptNo>,
    /// What a person allowed it to cost since, in place of what its row said.
    max_credits: Option<Credits>,
    /// Why each further attempt was begun that nobody asked for: the code of the failure before it.
    begun_for: Vec<String>,
    /// What was decided about its outputs, and whether its row asks for that.
    review: Option<Review>,
}

impl RareFields for RareJobFields {
    const NONE: &'static RareJobFields =
        &RareJobFields { kept: None, max_credits: None, begun_for: Vec::new(), review: None };
}

impl Job {
    /// A job that nothing was done for.
    pub fn queued() -> Job {
        Job::of(Attempt::queued(AttemptNo::FIRST))
    }

    /// A job of which nothing tells whether it was sent. See [`Attempt::may_have_been_sent`].
    pub fn queued_perhaps_sent() -> Job {
        let mut job = Job::queued();
        job.mark_may_have_been_sent();
        job
    }

    /// A job that nothing was done for, whose next key is that of attempt `no`.
    pub(in crate::domain) fn queued_at(no: AttemptNo) -> Job {
        Job::of(Attempt::queued(no))
    }

    fn of(attempt: Attempt) -> Job {
        Job {
            attempts: thin_vec![attempt],
            first_sent: None,
            deadline_from: None,
            admission_hold: None,
            overdue: false,
            no_more_attempts: false,
            may_have_gone_on: false,
            rare: Rare::default(),
            history: ThinVec::new(),
        }
    }

    /// Gives back the memory that its lists were given beyond what they hold: jobs in flight are many.
    pub fn shrink_to_fit(&mut self) {
        self.attempts.shrink_to_fit();
        self.history.shrink_to_fit();
    }

    /// Puts what other jobs' tasks ran with, where it is equal, in the place of what its own ran with: `share` does that.
    pub fn share_ran_with(&mut self, mut share: impl FnMut(&mut Arc<RanWith>)) {
        self.attempts.iter_mut().filter_map(|attempt| attempt.ran_with.as_mut()).for_each(&mut share);
    }

    /// The attempt that decides where the job stands.
    pub fn present(&self) -> &Attempt {
        &self.attempts[self.present_index()]
    }

    fn present_mut(&mut self) -> &mut Attempt {
        let present = self.present_index();
        &mut self.attempts[present]
    }

    /// The newest one, unless another succeeded first.
    fn present_index(&self) -> usize {
        let newest = self.attempts.len().saturating_sub(1);
        self.rare.kept.and_then(|kept| self.index_of(kept)).unwrap_or(newest)
    }

    fn index_of(&self, no: AttemptNo) -> Option<usize> {
        self.attempts.iter().position(|attempt| attempt.no == no)
    }

    /// All attempts that are known of, by number.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Where it stands: the state of its present attempt.
    pub fn state(&self) -> &State {
        &self.present().state
    }

    /// Number of the present attempt, whose key is in use.
    pub fn attempt(&self) -> AttemptNo {
        self.present().no
    }

    /// What is set aside and charged for the present attempt. [`Job::all_books`] counts the others, too.
    pub fn books(&self) -> Books {
        self.present().books
    }

    /// The UTC day that the present attempt's hold and charge count for: the day of its hold.
    pub fn day(&self) -> Option<UtcDay> {
        self.present().day
    }

    /// The task of the present attempt, where one is known.
    pub fn task(&self) -> Option<&TaskId> {
        self.present().task()
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

    /// The price at which it was last admitted: the one in force then, and not the one that was planned.
    pub fn admission_hold(&self) -> Option<Hold> {
        self.admission_hold
    }

    /// What a person allowed it to cost, in place of what its row says.
    pub fn max_credits(&self) -> Option<Credits> {
        self.rare.max_credits
    }

    /// Its deadline passed while it was in flight; its slot is free again.
    pub fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// A request under its present key may have been sent by a state that is gone: this one was rebuilt or imported.
    /// It is neither dropped as unsent nor given another key.
    pub fn may_have_been_sent(&self) -> bool {
        self.present().may_have_been_sent
    }

    /// The model that ran its task.
    pub fn ran_model(&self) -> Option<&str> {
        self.present().ran_with.as_ref()?.model.as_deref()
    }

    /// The options its task was priced with, defaults filled.
    pub fn ran_options(&self) -> Option<&JsonObject> {
        self.present().ran_with.as_ref()?.options.as_ref()
    }

    /// What else the record of its task says, once the task has ended.
    pub fn task_record(&self) -> Option<&TaskRecord> {
        self.present().rare.record.as_deref()
    }

    /// Why each further attempt was begun that nobody asked for: the code of the failure before it.
    pub fn begun_for(&self) -> &[String] {
        &self.rare.begun_for
    }

    /// What happened, oldest first.
    pub fn history(&self) -> &[HistoryLine] {
        &self.history
    }

    /// Other attempts than the present one whose tasks were watched beside it: their job was resubmitted.
    pub fn resubmitted_attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.other_attempts().filter(|other| other.rare.watched_since.is_some())
    }

    /// Of these, the ones whose task has not ended.
    pub fn watched_attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.other_attempts().filter(|other| other.is_running())
    }

    fn other_attempts(&self) -> impl Iterator<Item = &Attempt> {
        let present = self.attempt();
        self.attempts.iter().filter(move |attempt| attempt.no != present)
    }

    /// The tasks that were made for it, as far as they are known.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskId> {
        self.attempts.iter().filter_map(Attempt::task)
    }

    /// Whether a person must decide about one of its attempts.
    pub fn is_in_doubt(&self) -> bool {
        self.attempts.iter().any(Attempt::is_in_doubt)
    }

    /// The attempt of which a person records that it was charged so much: the one asked for, or the only one in doubt, or
    /// else the present one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn attempt_to_resolve(&self, asked: Option<AttemptNo>, charged: Credits) -> Result<&Attempt, String> {
        if charged > Credits::TASK_MAX {
            return Err(format!("no task is charged {charged}: {} at most", Credits::TASK_MAX));
        }
        let in_doubt: Vec<&Attempt> = self.attempts.iter().filter(|attempt| attempt.is_in_doubt()).collect();
        let attempt = match (asked, in_doubt.as_slice()) {
            (Some(no), _) => self.attempt_of(no).ok_or_else(|| format!("it has no attempt {}", no.0))?,
            (None, [only]) => only,
            (None, []) => self.present(),
            (None, several) => {
                let numbers: Vec<String> = several.iter().map(|attempt| attempt.no.0.to_string()).collect();
                let numbers = numbers.join(" and ");
                return Err(format!(
                    "its attempts {numbers} are in doubt; choose one with --attempt (attempt)"
                ));
            }
        };
        match &attempt.state {
            _ if attempt.is_resolvable(charged) => Ok(attempt),
            _ if attempt.no == self.attempt() && self.is_resolvable_while_overdue() => Ok(attempt),
            _ if self.is_resolvable_while_watched(attempt) => Ok(attempt),
            State::Failed { fault, .. } if fault.code == RESOLVED => {
                let watched = self.watched_attempts().next().map(|other| other.no.0);
                let other =
                    watched.map(|no| format!("; to end its attempt {no}, add --attempt {no} (attempt)"));
                Err(format!("a charge of {charged} is recorded already{}", other.unwrap_or_default()))
            }
            state => Err(format!("it is not in doubt: it is {}", state.name())),
        }
    }

    /// Its outputs, once they are all on disk; none before.
    pub fn outputs(&self) -> &[OutputFile] {
        match self.state() {
            State::Succeeded { files, .. } => files,
            _ => &[],
        }
    }

    /// Its outputs as they were recorded last: also while they are downloaded again. None of a job that never had any.
    pub fn recorded_outputs(&self) -> &[OutputFile] {
        match self.state() {
            State::Succeeded { files, .. } | State::Fetching { files, .. } => files,
            _ => &[],
        }
    }

    /// Whether it has succeeded: only then there is something to decide about.
    pub fn has_succeeded(&self) -> bool {
        matches!(self.state(), State::Succeeded { .. })
    }

    /// What was decided about its outputs so far, oldest first.
    pub fn decisions(&self) -> &[Decision] {
        self.rare.review.as_ref().map_or(&[], |review| &review.decisions)
    }

    /// What holds of its outputs as they are; nothing while they are undecided.
    pub fn decision(&self) -> Option<&Decision> {
        let review = self.rare.review.as_ref();
        review.filter(|_| self.has_succeeded())?.decision(self.outputs().iter().map(|file| &file.sha256))
    }

    /// Whether its outputs wait for a person's decision.
    pub fn awaits_review(&self) -> bool {
        let is_wanted = self.rare.review.as_ref().is_some_and(|review| review.wanted);
        is_wanted && self.has_succeeded() && self.decision().is_none()
    }

    /// Whether its row asks for a decision about its outputs, which it has.
    pub fn wants_review(&self) -> bool {
        self.rare.review.as_ref().is_some_and(|review| review.wanted)
    }

    /// Takes up what its row says about a review, where the job has succeeded.
    pub fn note_review(&mut self, order: &Order) {
        if order.review && self.has_succeeded() {
            self.rare.change(|rare| rare.review.get_or_insert_default().wanted = true);
        }
    }

    /// Adds a decision about its outputs.
    pub fn decide(&mut self, decision: Decision) {
        self.rare.change(|rare| rare.review.get_or_insert_default().decide(decision));
    }

    /// Marks that a state that is gone may have sent it, and gone on with it. See [`Attempt::may_have_been_sent`].
    pub fn mark_may_have_been_sent(&mut self) {
        self.present_mut().may_have_been_sent = true;
        self.mark_may_have_gone_on();
    }

    /// Marks that a state that is gone may have gone on with it: what follows its present attempt may have been sent.
    pub fn mark_may_have_gone_on(&mut self) {
        self.may_have_gone_on = true;
    }

    /// Whether a state that is gone may have gone on with it.
    pub fn may_have_gone_on(&self) -> bool {
        self.may_have_gone_on
    }

    /// Lets it cost more, or less, than its row says; in credits.
    pub fn set_max_credits(&mut self, max_credits: Option<Credits>) {
        self.rare.change(|rare| rare.max_credits = max_credits);
    }

    /// Forgets its result links, so that its task is read again for fresh ones.
    pub fn forget_links(&mut self) {
        if let State::Fetching { urls, .. } = &mut self.present_mut().state {
            urls.clear();
        }
    }

    /// Its exact price: the one that it was let out at, or else the planned one.
    pub fn price(&self, order: &Order) -> Option<Credits> {
        self.admission_hold.map_or(order.price, Hold::price)
    }

    /// What was held for it when it was let out, or else what was planned to be.
    pub fn hold(&self, order: &Order) -> Option<Credits> {
        self.admission_hold.map(|admitted| admitted.hold).or_else(|| order.hold())
    }

    /// Whether its present attempt is paid for ([`Attempt::is_paid`]).
    pub fn is_paid(&self) -> bool {
        self.present().is_paid()
    }

    /// What is set aside and charged for it by all its attempts together.
    pub fn all_books(&self) -> Books {
        self.attempts.iter().fold(Books::default(), |sum, attempt| sum.and(attempt.books))
    }

    /// The takes that its inputs are, in their order, 0 where there was no choice. Empty where none was chosen among several,
    /// and where nothing was sent with them or came of it, unless a version of other takes took its place since.
    pub fn made_of(&self) -> Vec<u32> {
        match self.state() {
            State::Submitting { .. }
            | State::Running { .. }
            | State::Fetching { .. }
            | State::Succeeded { .. } => self.present().input_takes().to_vec(),
            state if state.is_replaced() => self.last_sent_with().to_vec(),
            _ => Vec::new(),
        }
    }

    /// The takes that its inputs were when it was last sent, whatever came of it.
    pub fn last_sent_with(&self) -> &[u32] {
        let mut sent = self.attempts.iter().rev().map(Attempt::input_takes);
        sent.find(|takes| !takes.is_empty()).unwrap_or_default()
    }

    /// What each of its attempts holds and was charged, with the day that it counts for.
    pub fn books_by_day(&self) -> impl Iterator<Item = (Option<UtcDay>, Books)> + '_ {
        self.attempts.iter().map(|attempt| (attempt.day, attempt.books))
    }

    /// The days that its books count for.
    pub fn days(&self) -> impl Iterator<Item = UtcDay> + '_ {
        self.attempts.iter().filter_map(|attempt| attempt.day)
    }

    /// One of its attempts.
    pub fn attempt_of(&self, no: AttemptNo) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.no == no)
    }

    /// The task of one of its attempts, where one is known.
    pub fn task_of(&self, no: AttemptNo) -> Option<&TaskId> {
        self.attempt_of(no).and_then(Attempt::task)
    }

    /// The latest attempt that was begun, whose key is used up.
    pub fn newest_attempt(&self) -> AttemptNo {
        self.attempts.last().map_or(AttemptNo::FIRST, |attempt| attempt.no)
    }

    /// Whether it tells of no request that `known` does not tell of: the job as it stood before, nothing of one that had not
    /// begun.
    pub fn adds_no_request_to(&self, known: Option<&Job>) -> bool {
        let attempt_of = |no| known.and_then(|known| known.attempt_of(no));
        self.first_sent == known.and_then(|known| known.first_sent)
            && self.attempts.iter().all(|attempt| attempt.adds_no_request_to(attempt_of(attempt.no)))
    }

    /// Whether the program has nothing more to do for it: it has ended, and so have the tasks that it was
    /// resubmitted over.
    pub fn is_over(&self) -> bool {
        self.state().is_final() && self.watched_attempts().next().is_none()
    }

    /// Whether its outputs came after its deadline.
    pub fn is_late(&self) -> bool {
        let is_resubmitted = self.resubmitted_attempts().next().is_some();
        matches!(self.state(), State::Succeeded { .. }) && (self.overdue || is_resubmitted)
    }

    /// Whether its request may have made a task that is not known, and was not answered since for want of credits (402): the
    /// answer to it was lost.
    pub fn lacks_answer(&self) -> bool {
        match self.state() {
            State::Submitting { may_have_run: true, fault, .. } => {
                fault.as_ref().is_none_or(|fault| !fault.is_want_of_credits())
            }
            _ => false,
        }
    }

    /// Whether it takes up one of the service's slots.
    pub fn holds_slot(&self) -> bool {
        !self.overdue && matches!(self.state(), State::Submitting { .. } | State::Running { .. })
    }

    /// A job in a state of attempt `no`, however it came there.
    #[cfg(test)]
    pub(crate) fn at(no: AttemptNo, state: State) -> Job {
        Job::of(Attempt::at(no, state))
    }

    /// The same job, with other books of its present attempt.
    #[cfg(test)]
    pub(crate) fn with_books(mut self, books: Books) -> Job {
        self.present_mut().books = books;
        self
    }

    /// The same job, let out at another price.
    #[cfg(test)]
    pub(crate) fn with_admission_hold(mut self, hold: Hold) -> Job {
        self.admission_hold = Some(hold);
        self
    }

    /// The same job, with what its task's record says of the model and the options.
    #[cfg(test)]
    pub(crate) fn with_run(mut self, model: &str, options: &Value) -> Job {
        let options = options.as_object().cloned().map(JsonObject::from);
        self.present_mut().note_run(Some(model), options.as_ref());
        self
    }
}
