//! The one transition function of a job: state + event -> state + ledger movements.
//!
//! No clock, no randomness, no I/O. A restart is not a special path: the open jobs are loaded and
//! each is asked what it [`wants`].
//!
//! ```text
//! queued -> submitting -> running -> fetching -> succeeded
//!   ^  \         |  \         |  \       |  \
//!   |   \        |   in_doubt |   \      |   failed (paid, but could not be downloaded)
//!   |    \       +------------+----+-----+
//!   |     canceled, expired        | failed or canceled at the service: refunded
//!   +------------------------------+-> failed, when no attempt is left; canceled
//! ```
//!
//! Keys: an attempt keeps its key until its task's own record says that it failed or was canceled. Only then the next
//! attempt has another one ([`State::is_ended_by_record`]).
//!
//! A resubmitted job has attempts beside its present one, whose tasks go the same ways: see `resubmission`.

mod charges_and_refunds;
mod event;
mod fetch_again;
mod history;
mod restart;
mod resubmission;
#[cfg(test)]
mod tests;

use thin_vec::ThinVec;

use crate::domain::credit_hold::{Basis, Hold};
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, TaskId};
pub use crate::domain::job::lifecycle::event::Event;
pub(in crate::domain) use crate::domain::job::lifecycle::restart::taken_for_unsent;
pub use crate::domain::job::lifecycle::restart::{requeued, resumed};
use crate::domain::job::{
    ATTEMPTS_MAX, Attempt, Books, DOWNLOAD_FAILED, HistoryLine, Job, OutputFile, RESOLVED, State,
};
use crate::domain::json_object::JsonObject;
use crate::domain::ledger::Movement;
use crate::domain::plural::counted;
use crate::domain::retry_delay::{self, Prospect};
use crate::domain::row_versions::REPLACED;
use crate::domain::task::{Fault, PostAnswer, TaskReading, TaskStatus};
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;

/// What the lifecycle needs to know about the job's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRules {
    /// How many attempts (keys) it may use.
    pub attempts: u32,
    /// Whether its endpoint honours idempotency keys: see [`Kind::is_keyed`](crate::domain::request::Kind::is_keyed).
    pub keyed: bool,
}

/// The job after an event, and what moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The job as it is now.
    pub job: Job,
    /// What moved, in order, for the day in [`Transition::day`].
    pub movements: Vec<Movement>,
    /// The day the movements count for.
    pub day: Option<UtcDay>,
}

/// An event that does not belong where it arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalEvent {
    /// The answer is for an attempt that is over.
    #[error("\"{event}\" is for attempt {}, the job is at attempt {}", .addressed.0, .present.0)]
    Stale {
        /// The event.
        event: &'static str,
        /// The attempt it is for.
        addressed: AttemptNo,
        /// The attempt the job is at.
        present: AttemptNo,
    },
    /// The state has no use for it.
    #[error("\"{event}\" cannot happen to a job that is {state}")]
    Misplaced {
        /// The event.
        event: &'static str,
        /// The state.
        state: &'static str,
    },
}

/// What a job wants done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// To be admitted.
    Admission,
    /// Its POST sent, under the present attempt's key.
    Post,
    /// Its task read.
    Read,
    /// Its outputs downloaded.
    Fetch,
    /// Nothing.
    Nothing,
}

/// What the job wants next: all that is needed to go on after a restart.
pub fn wants(state: &State) -> Want {
    match state {
        State::Queued => Want::Admission,
        State::Submitting { .. } => Want::Post,
        State::Running { .. } => Want::Read,
        State::Fetching { urls, .. } if urls.is_empty() => Want::Read,
        State::Fetching { .. } => Want::Fetch,
        State::Succeeded { .. }
        | State::Failed { .. }
        | State::Canceled { .. }
        | State::Expired
        | State::InDoubt { .. } => Want::Nothing,
    }
}

/// What an attempt of a job wants next. Beside the present attempt tasks are watched to their end, and that is all.
pub fn wants_of(job: &Job, no: AttemptNo) -> Want {
    match job.attempt_of(no) {
        Some(attempt) if no == job.attempt() => wants(attempt.state()),
        Some(attempt) if attempt.is_running() => Want::Read,
        _ => Want::Nothing,
    }
}

/// A job without its history and its counts of sends: all that decides what can happen to it next. Two jobs that agree
/// in it have the same future, which is what a model checker has to know.
pub fn without_history(mut job: Job) -> Job {
    job.history.clear();
    if let State::Submitting { sends, fault, .. } = &mut job.present_mut().state {
        (*sends, *fault) = ((*sends).min(1), None);
    }
    job
}

/// Applies `event`, addressed to attempt `no`, at time `at`.
///
/// # Errors
/// [`IllegalEvent`] when the attempt or its state has no use for the event; the job is then as it was.
pub fn apply(
    job: &Job,
    no: AttemptNo,
    event: Event,
    rules: AttemptRules,
    at: Timestamp,
) -> Result<Transition, IllegalEvent> {
    let present = job.attempt();
    let found = job.index_of(no).map(|index| (index, &job.attempts[index]));
    let has_place = |attempt: &Attempt| no == present || resubmission::has_place_beside(attempt, &event);
    let Some((index, attempt)) = found.filter(|(_, attempt)| has_place(attempt)) else {
        return Err(IllegalEvent::Stale { event: event.name(), addressed: no, present });
    };
    let (job, day) = (job.clone(), attempt.day);
    let mut change = Change { job, index, is_present: no == present, movements: Vec::new(), day, at };
    change.event(event, rules)?;
    change.keep_first_success();
    Ok(Transition { job: change.job, movements: change.movements, day: change.day })
}

/// A transition being put together.
struct Change {
    job: Job,
    /// The attempt that it is of.
    index: usize,
    /// Whether that attempt decides where the job stands.
    is_present: bool,
    movements: Vec<Movement>,
    day: Option<UtcDay>,
    at: Timestamp,
}

impl Change {
    fn attempt(&self) -> &Attempt {
        &self.job.attempts[self.index]
    }

    fn attempt_mut(&mut self) -> &mut Attempt {
        &mut self.job.attempts[self.index]
    }

    /// What the event makes of its attempt, and of the job.
    fn event(&mut self, event: Event, rules: AttemptRules) -> Result<(), IllegalEvent> {
        let Attempt { state, books, may_have_been_sent, .. } = self.attempt();
        let (state, books, may_have_been_sent) = (state.clone(), *books, *may_have_been_sent);
        let misplaced = IllegalEvent::Misplaced { event: event.name(), state: state.name() };
        let change = self;
        match (state, event) {
            (State::Queued, Event::Price { hold, was }) => change.price(hold, was),
            (State::Queued, Event::Refuse(fault)) if !may_have_been_sent => {
                let what = format!("not sent: {fault}");
                change.end(State::Failed { fault, task: None }, &what);
            }
            (State::Queued, Event::ReleaseHold) if !books.held.is_zero() => change.release_hold(books.held),
            (State::Queued, Event::Admit { hold, day }) => change.admit(hold, day, rules),
            (State::Queued, Event::Cancel) if !may_have_been_sent => {
                change.end(State::DROPPED, "canceled before it was sent");
            }
            (State::Queued, Event::Replace) if !may_have_been_sent => {
                let fault = Fault::new(REPLACED, "a newer version of its row is wanted");
                let what = format!("not sent: {}", fault.message);
                change.end(State::Canceled { task: None, fault: Some(fault) }, &what);
            }
            // Nobody wants it any more, so it is not sent to find out: only the account tells.
            (State::Queued, Event::Replace) if books.held.is_zero() => {
                let text = "it may have been sent before the state was rebuilt or imported, and a newer version of its row is \
                            wanted";
                change.doubt(Fault::new("interrupted", text), None);
            }
            (State::Queued, Event::Expire) if !may_have_been_sent => {
                change.end(State::Expired, "expired before it was sent");
            }

            // It cannot be recalled; what it has begun is read, and downloaded.
            (State::Submitting { .. } | State::Running { .. } | State::Fetching { .. }, Event::Cancel)
                if !change.job.no_more_attempts =>
            {
                change.job.no_more_attempts = true;
                change.note("canceled after it was submitted: it gets no further attempt", None);
            }

            (State::Submitting { .. }, Event::InputsFound(found)) => change.attempt_mut().set_inputs(found),
            (State::Submitting { .. }, Event::PriceKnown(price))
                if change
                    .job
                    .admission_hold
                    .is_some_and(|known| known.basis == Basis::Bound && price <= known.hold) =>
            {
                change.job.admission_hold = Some(Hold::priced(price));
                change.note(&format!("its length is known: it costs {price}"), None);
            }
            (State::Submitting { may_have_run: false, .. }, Event::InputsLost(fault)) => {
                change.not_taken(&fault);
            }
            (State::Submitting { may_have_run: true, .. }, Event::InputsUnfit(fault)) => {
                change.doubt(fault, None);
            }
            (State::Submitting { fault: Some(fault), .. }, Event::NotNeeded)
                if change.job.waits_unneeded() =>
            {
                change.doubt_unneeded(&fault);
            }
            (State::Submitting { may_have_run, sends, .. }, Event::Posted(answer)) => {
                change.posted(answer, may_have_run, sends, rules);
            }
            (State::Submitting { may_have_run: false, fault, .. }, Event::Requeue) if rules.keyed => {
                let unsent = || Fault::new("not_sent", "it was not sent yet");
                change.not_taken(&fault.unwrap_or_else(unsent));
            }

            (State::Running { .. } | State::Fetching { .. }, Event::Read(reading)) => {
                change.read(reading, rules);
            }
            // It succeeded, and what it cost is known: only its outputs are gone.
            (State::Fetching { task, files, .. }, Event::TaskMissing(fault)) if books.held.is_zero() => {
                let message = format!("the service has its results no more: {fault}");
                change.give_up_download(task, files, Fault::new(DOWNLOAD_FAILED, message.clone()), &message);
            }
            (State::Running { task } | State::Fetching { task, .. }, Event::TaskMissing(fault)) => {
                change.doubt(fault, Some(task));
            }
            (State::Running { task }, Event::WatchExpired(fault)) => change.doubt(fault, Some(task)),
            (State::Submitting { may_have_run: true, .. }, Event::WatchExpired(fault))
                if change.job.overdue =>
            {
                change.doubt(fault, None);
            }

            (State::Running { .. }, Event::Resubmit) if resubmission::may_resubmit(&change.job, rules) => {
                change.resubmit();
            }
            (State::Submitting { .. }, Event::Overdue | Event::Resubmit) => {
                change.job.overdue = true;
                change.note("overdue: its slot is free again, its request is still repeated", None);
            }
            (State::Running { .. }, Event::Overdue | Event::Resubmit) => {
                change.job.overdue = true;
                change.note("overdue: its slot is free again, its task is still watched", None);
            }

            (State::Fetching { task, .. }, Event::Fetched(files)) => {
                let is_stored = files.iter().any(|file| file.object.is_some());
                let place = if is_stored { "on disk and in the object store" } else { "on disk" };
                let what = format!("{} {place}", counted(files.len() as u64, "output"));
                change.end(State::Succeeded { task, files: files.into() }, &what);
            }
            (State::Succeeded { task, .. }, Event::Renamed(files)) => {
                let names = files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>().join(", ");
                change
                    .end(State::Succeeded { task, files: files.into() }, &format!("on disk as {names} now"));
            }
            (State::Succeeded { task, .. }, Event::Stored(files)) => {
                let what = format!("{} in the object store", counted(files.len() as u64, "output"));
                change.end(State::Succeeded { task, files: files.into() }, &what);
            }
            (State::Fetching { task, files, .. }, Event::FetchAbandoned(fault)) => {
                let why = fault.to_string();
                change.give_up_download(task, files, fault, &why);
            }

            (state @ (State::Failed { .. } | State::Canceled { .. } | State::Expired), Event::Retry) => {
                // What was paid for and only could not be fetched must not be bought again.
                if change.attempt().is_paid() || !change.job.is_over() {
                    return Err(misplaced);
                }
                if state.is_ended_by_record() || !rules.keyed {
                    change.note("retry requested", None);
                    change.begin_attempt();
                } else {
                    // Surely nothing was made of them, and they may lie elsewhere by now, or be chosen otherwise.
                    if matches!(&state, State::Failed { task: None, fault } if fault.code != RESOLVED) {
                        change.attempt_mut().set_inputs(Vec::new());
                    }
                    change.end(State::Queued, "queued again under the same key");
                    // A state that is gone may have been told the same, and have sent it.
                    change.attempt_mut().may_have_been_sent |=
                        state.is_resolved() && change.job.may_have_gone_on;
                }
                change.job.no_more_attempts = false;
                // It was asked for now: what it is late for is over.
                (change.job.overdue, change.job.deadline_from) = (false, None);
            }

            (state @ (State::Succeeded { .. } | State::Failed { task: Some(_), .. }), Event::FetchAgain) => {
                // A task that failed gave its charge back and has no outputs.
                if !change.attempt().is_paid() || !change.job.is_over() {
                    return Err(misplaced);
                }
                change.fetch_again(state);
            }

            (State::Queued, Event::Resolve(charged)) if may_have_been_sent => {
                change.note_found_out();
                change.resolve(charged);
                let fault = Fault::new(RESOLVED, format!("{charged} were charged"));
                let what = format!("resolved: {charged} were charged before the state was rebuilt");
                change.end(State::Failed { fault, task: None }, &what);
            }

            (state, Event::Resolve(charged))
                if matches!(state, State::InDoubt { .. })
                    || change.job.is_resolvable_while_watched(change.attempt())
                    || change.is_present && change.job.is_resolvable_while_overdue() =>
            {
                let task = state.task().cloned();
                if may_have_been_sent {
                    change.note_found_out();
                }
                change.resolve(charged);
                let fault = Fault::new(RESOLVED, format!("{charged} were charged"));
                let is_watched = matches!(state, State::Running { .. }) && !change.is_present;
                let was = if is_watched { "watched" } else { "in doubt" };
                let what = format!("no longer {was}: {charged} were charged");
                change.end(State::Failed { fault, task }, &what);
            }
            // What a person found was true when it was found: the service may give the charge back later.
            (State::Failed { fault, task }, Event::Resolve(charged))
                if fault.code == RESOLVED && books.charged != charged =>
            {
                change.resolve(charged);
                let fault = Fault::new(RESOLVED, format!("{charged} were charged"));
                let what = format!("corrected: {charged} were charged, not {}", books.charged);
                change.end(State::Failed { fault, task }, &what);
            }

            (
                State::Queued
                | State::Submitting { .. }
                | State::Running { .. }
                | State::Fetching { .. }
                | State::Succeeded { .. }
                | State::Failed { .. }
                | State::Canceled { .. }
                | State::Expired
                | State::InDoubt { .. },
                _,
            ) => return Err(misplaced),
        }
        Ok(())
    }

    fn price(&mut self, hold: Hold, was: Option<Credits>) {
        self.job.admission_hold = Some(hold);
        if let Some(was) = was {
            let what = match hold.basis {
                Basis::Price => {
                    format!("the price is {} now, was {} when it was accepted", hold.hold, was.0)
                }
                Basis::Bound | Basis::MaxCredits => {
                    format!("without an exact price {} are held now, {} were planned", hold.hold, was.0)
                }
            };
            self.note(&what, None);
        }
    }

    /// Gives back what was set aside for it before the state was rebuilt, on its own day.
    fn release_hold(&mut self, held: Credits) {
        let attempt = self.attempt_mut();
        attempt.books.held = Credits::ZERO;
        attempt.day = None;
        self.note("held anew, for another day", Some(Movement::Release(held)));
    }

    /// What was set aside for it before the state was rebuilt stays so, on its own day: see [`Event::ReleaseHold`]. Of a limit
    /// beyond what any task is charged no more than that is set aside: a sum that saturates could not be taken apart again.
    fn admit(&mut self, hold: Credits, day: UtcDay, rules: AttemptRules) {
        let hold = hold.min(Credits::TASK_MAX);
        self.job.first_sent.get_or_insert(self.at);
        self.job.deadline_from.get_or_insert(self.at);
        let attempt = self.attempt_mut();
        let held = attempt.books.held;
        if held.is_zero() {
            attempt.day = Some(day);
        }
        attempt.books = Books { held: hold, ..Books::default() };
        let may_have_run = std::mem::take(&mut attempt.may_have_been_sent);
        attempt.state = State::Submitting { may_have_run, sends: 0, fault: None };
        self.day = attempt.day;
        let movement = if hold < held {
            Some(Movement::Release(held.saturating_sub(hold)))
        } else {
            Some(Movement::Hold(hold.saturating_sub(held))).filter(|_| held != hold || held.is_zero())
        };
        self.note("admitted", movement);
        if may_have_run && !rules.keyed {
            // No key would find the task again that an earlier request may have made.
            let text = "it may have been sent before the state was rebuilt, and has no key to ask under";
            // A person looks at all that the account was charged.
            self.job.may_have_gone_on = false;
            self.doubt(Fault::new("interrupted", text), None);
        }
    }

    fn posted(&mut self, answer: PostAnswer, may_have_run: bool, sends: u32, rules: AttemptRules) {
        match if may_have_run { answer.after_a_lost_one() } else { answer } {
            PostAnswer::Task(reading) => self.read(reading, rules),
            PostAnswer::TaskNamed(task, fault) => self.adopt(task, fault),
            PostAnswer::Refused(fault) => {
                self.release();
                let what = format!("refused: {fault}");
                self.end(State::Failed { fault, task: None }, &what);
            }
            // No task was made by this send; an earlier one under the same key may still make one,
            // so only a job that was never in doubt gives its hold back.
            PostAnswer::Unauthorised(fault) | PostAnswer::OutOfCredits(fault) => {
                if may_have_run {
                    self.attempt_mut().state = State::Submitting { may_have_run, sends, fault: Some(fault) };
                } else {
                    self.not_taken(&fault);
                }
            }
            PostAnswer::Again { fault, may_have_run: this_one, .. } if this_one && !rules.keyed => {
                self.doubt(fault, None);
            }
            // Without a key, a POST is on its way exactly as long as the job is submitting: a restart
            // that finds it so cannot tell what became of it, and must not send it again.
            PostAnswer::Again { fault, .. } if !rules.keyed => self.not_taken(&fault),
            PostAnswer::Again { fault, may_have_run: false, .. }
                if self.job.no_more_attempts && !may_have_run =>
            {
                self.not_taken(&fault);
            }
            PostAnswer::Again { fault, may_have_run: this_one, .. } => {
                if sends == 0 {
                    self.note(&format!("no usable answer, resending under the same key: {fault}"), None);
                }
                self.attempt_mut().state = State::Submitting {
                    may_have_run: may_have_run || this_one,
                    sends: sends.saturating_add(1),
                    fault: Some(fault),
                };
            }
        }
    }

    /// Back to the queue under the same key: the service surely has nothing of it. One that was canceled meanwhile ends.
    fn not_taken(&mut self, fault: &Fault) {
        self.release();
        // By the time of the next POST they may lie elsewhere.
        self.attempt_mut().set_inputs(Vec::new());
        self.end(State::Queued, &format!("not accepted: {fault}"));
        // Its deadline counts from the POST that is taken, which may be days from now.
        (self.job.deadline_from, self.job.overdue) = (None, false);
        if self.attempt().no == AttemptNo::FIRST {
            self.job.first_sent = None;
        }
        self.drop_if_canceled();
    }

    /// A canceled job that would wait in the queue ends there: nothing of its present attempt was sent. Where a state that is
    /// gone may have sent it, it is not sent to find out: only the account tells.
    fn drop_if_canceled(&mut self) {
        if !self.job.no_more_attempts {
            return;
        }
        self.index = self.job.present_index();
        if self.attempt().may_have_been_sent {
            let text = "it was canceled, and may have been sent before the state was rebuilt or imported";
            self.doubt(Fault::new("interrupted", text), None);
        } else {
            self.end(State::DROPPED, "canceled before it was sent");
        }
    }

    /// An error named a task: its own record decides (money rule 3).
    fn adopt(&mut self, task: TaskId, fault: Fault) {
        self.note(&format!("answered with an error that names task {task}, reading it: {fault}"), None);
        let attempt = self.attempt_mut();
        attempt.state = State::Running { task };
        attempt.rare.change(|rare| rare.rejected = Some(fault));
    }

    /// The task's record is the only source of charges and refunds (money rule 10).
    fn read(&mut self, mut reading: TaskReading, rules: AttemptRules) {
        let attempt = self.attempt_mut();
        let options = reading.options.take().map(JsonObject::from);
        attempt.note_run(reading.model.as_deref(), options.as_ref());
        // Not while it runs: many jobs run, and it changes until then.
        if reading.status.is_final() {
            attempt.rare.change(|rare| rare.record = reading.record.take());
        }
        match reading.status {
            // A person has said what it was charged: it does not go on.
            TaskStatus::Pending | TaskStatus::Processing | TaskStatus::Other(_)
                if self.attempt().was_resolved() =>
            {
                let fault = Fault::new("unfinished", format!("task {} has not ended", reading.id));
                self.give_up_download(reading.id, ThinVec::new(), fault, "its task has not ended");
            }
            TaskStatus::Pending | TaskStatus::Processing | TaskStatus::Other(_) => {
                self.settle(&reading);
                let was_over = self.attempt().was_over();
                let files = self.take_earlier_files();
                self.attempt_mut().state = match was_over {
                    false => State::Running { task: reading.id },
                    // It has succeeded before, and is read until it shows results.
                    true => State::Fetching { task: reading.id, urls: ThinVec::new(), files },
                };
            }
            TaskStatus::Success => {
                self.settle(&reading);
                if !matches!(self.attempt().state, State::Fetching { .. }) {
                    self.note_finished(&reading.id);
                }
                let files = self.take_earlier_files();
                let attempt = self.attempt_mut();
                attempt.take_rejected();
                attempt.state = State::Fetching { task: reading.id, urls: reading.urls.into(), files };
            }
            TaskStatus::Failed | TaskStatus::Canceled => self.attempt_over(reading, rules),
        }
    }

    /// The outputs that the attempt had before they were wanted again.
    fn take_earlier_files(&mut self) -> ThinVec<OutputFile> {
        match &mut self.attempt_mut().state {
            State::Fetching { files, .. } => std::mem::take(files),
            _ => ThinVec::new(),
        }
    }

    fn note_finished(&mut self, task: &TaskId) {
        match (self.is_present, self.job.overdue) {
            (true, false) => self.note("finished", None),
            (true, true) => self.note("finished late", None),
            (false, _) => self.note(&format!("task {task} finished late; it is paid for"), None),
        }
    }

    /// The task failed or was canceled, and gave its charge back. Another attempt follows the present one alone.
    fn attempt_over(&mut self, reading: TaskReading, rules: AttemptRules) {
        let was_over = self.attempt().was_over();
        if !self.attempt().books.held.is_zero() {
            // Charged and given back before anybody looked.
            self.settle(&reading);
        }
        self.refund();
        let is_canceled = reading.status == TaskStatus::Canceled;
        let is_explained = reading.fault.is_some();
        let mut fault = reading.fault.unwrap_or_else(|| {
            let (code, word) = if is_canceled { ("canceled", "canceled") } else { ("generic", "failed") };
            Fault::new(code, format!("the service ended the task as {word} and gave no reason"))
        });
        let named = self.attempt_mut().take_rejected();
        let files = self.take_earlier_files();
        if !files.is_empty() {
            let word = if is_canceled { "was canceled" } else { "failed" };
            let why = format!("the service says that task {} {word} after all", reading.id);
            self.give_up_download(reading.id, files, fault, &why);
            return;
        }
        if is_canceled {
            // Somebody has decided: only a person buys it again.
            let what = format!("task {} was canceled at the service by another client: {fault}", reading.id);
            self.end(State::Canceled { task: Some(reading.id), fault: Some(fault) }, &what);
            return;
        }
        let prospect_of = |fault: &Fault| retry_delay::prospect(&fault.code);
        let mut cause = fault.code.clone();
        // Where both say that once more may help, neither is a reason for another time.
        let also = named.as_ref().map(|named| named.code.clone());
        // The record may say why in more words, or not at all: the stricter of the two decides.
        if let Some(named) = named.filter(|named| prospect_of(named) > prospect_of(&fault)) {
            cause.clone_from(&named.code);
            if prospect_of(&named) == Prospect::Hopeless {
                // What the record says is the provider's reason.
                let reason = format!("; the task's record says: {}", fault.message);
                fault = named;
                fault.message.push_str(if is_explained { &reason } else { "" });
            }
        }
        let may_help = match retry_delay::prospect(&cause) {
            Prospect::MayHelp => true,
            Prospect::Once => !also.iter().chain([&cause]).any(|code| self.job.rare.begun_for.contains(code)),
            Prospect::OnlyAsked | Prospect::Hopeless => false,
        };
        let is_left = self.job.newest_attempt().0 < rules.attempts && !self.job.overdue;
        // Who asks for outputs again buys nothing.
        let is_followed = self.is_present && is_left && may_help && !was_over;
        let is_retried = is_followed && !self.job.no_more_attempts;
        let next = if is_retried { ", retrying with a new key" } else { "" };
        let what = format!("task {} failed{next}: {fault}", reading.id);
        self.end(State::Failed { fault, task: Some(reading.id) }, &what);
        if is_followed {
            let also = also.filter(|also| *also != cause);
            self.job.rare.change(|rare| rare.begun_for.extend(also.into_iter().chain([cause])));
            self.begin_attempt();
            self.drop_if_canceled();
        }
    }

    /// The job queues under a new key, which is used up by that. Whether an earlier request may be on its way is true
    /// of the job, where no key tells its attempts apart; a state that is gone may have begun this attempt, too.
    fn begin_attempt(&mut self) {
        let mut next = Attempt::queued(self.job.newest_attempt().next());
        next.may_have_been_sent = self.attempt().may_have_been_sent || self.job.may_have_gone_on;
        let came_to_nothing = |attempt: &Attempt| !attempt.is_running() && attempt.books == Books::default();
        if self.job.attempts.len() >= ATTEMPTS_MAX
            && let Some(oldest) = self.job.attempts.iter().position(came_to_nothing)
        {
            self.job.attempts.remove(oldest);
        }
        self.job.attempts.push(next);
        self.job.rare.change(|rare| rare.kept = None);
    }

    /// Nothing that the service offers tells what became of the attempt. Its hold or charge stays counted.
    fn doubt(&mut self, fault: Fault, task: Option<TaskId>) {
        let what = match &task {
            Some(task) if !self.is_present => {
                format!("task {task} is in doubt, its charge stays counted: {fault}")
            }
            _ => format!("in doubt, record the charge with callsheet resolve: {fault}"),
        };
        self.end(State::InDoubt { fault, task }, &what);
    }

    fn end(&mut self, state: State, what: &str) {
        self.note(what, None);
        self.job.may_have_gone_on &= !matches!(state, State::Succeeded { .. });
        self.attempt_mut().state = state;
    }

    fn note(&mut self, what: &str, movement: Option<Movement>) {
        self.movements.extend(movement);
        let line = HistoryLine { at: self.at, attempt: self.attempt().no, what: what.into(), movement };
        history::push(&mut self.job.history, line);
    }
}
