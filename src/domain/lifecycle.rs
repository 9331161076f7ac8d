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
//! A resubmitted job has tasks of other attempts beside its present one: see `superseded`.

mod history;
mod superseded;
#[cfg(test)]
mod tests;

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, TaskId};
use crate::domain::job::{Books, HistoryLine, Job, OutputFile, RESOLVED, State};
use crate::domain::ledger::Movement;
use crate::domain::release_price::{Basis, Release};
use crate::domain::retry::{self, Prospect};
use crate::domain::task::{Fault, PostAnswer, TaskReading, TaskStatus};
use crate::domain::time::{Timestamp, UtcDay};

/// Everything that can happen to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It is about to be let out at this price.
    Price {
        /// What will be held for it, and why so much.
        release: Release,
        /// What was planned or held for it before, where that is another amount.
        was: Option<Credits>,
    },
    /// It must not be sent as things are: it costs more than it may. Nothing was charged.
    Refuse(Fault),
    /// Admission chose it: `hold` credits are set aside on `day`, and its POST may leave.
    Admit {
        /// Credits to set aside.
        hold: Credits,
        /// The day they count for.
        day: UtcDay,
    },
    /// Its creating POST was answered, or was not.
    Posted(PostAnswer),
    /// Its task was read.
    Read(TaskReading),
    /// The service does not know its task, and was asked often enough.
    TaskMissing(Fault),
    /// Its deadline passed while it was in flight.
    Overdue,
    /// Its deadline passed, and its policy asks for another attempt then. Where none can be made it is merely
    /// overdue.
    Resubmit,
    /// Its task was watched for as long as the policy asks, and never ended.
    WatchExpired(Fault),
    /// All outputs are on disk.
    Fetched(Vec<OutputFile>),
    /// Downloading its outputs was given up.
    FetchAbandoned(Fault),
    /// Its owner dropped it.
    Cancel,
    /// Its batch's time ran out.
    Expire,
    /// Its owner wants another attempt.
    Retry,
    /// Its owner wants its outputs downloaded again.
    FetchAgain,
    /// A person found out what a job in doubt was charged: so much, or nothing.
    Resolve(Credits),
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Price { .. } => "price",
            Event::Refuse(_) => "refuse",
            Event::Admit { .. } => "admit",
            Event::Posted(_) => "posted",
            Event::Read(_) => "read",
            Event::TaskMissing(_) => "task missing",
            Event::Overdue => "overdue",
            Event::Resubmit => "resubmit",
            Event::WatchExpired(_) => "watch over",
            Event::Fetched(_) => "fetched",
            Event::FetchAbandoned(_) => "fetch abandoned",
            Event::Cancel => "cancel",
            Event::Expire => "expire",
            Event::Retry => "retry",
            Event::FetchAgain => "fetch again",
            Event::Resolve(_) => "resolve",
        }
    }
}

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

/// A job as a new process finds it: a POST that was on its way when the last one ended may have made a task.
pub fn resumed(mut job: Job) -> Job {
    if let State::Submitting { may_have_run, .. } = &mut job.state {
        *may_have_run = true;
    }
    job
}

/// A job whose state was lost or carried elsewhere: a request that was on its way under a key goes back to the queue,
/// with its key and its hold, and what is queued may have been sent since. Without a key it stays as it is.
pub fn requeued(mut job: Job, keyed: bool, at: Timestamp) -> Job {
    match job.state {
        State::Queued => job.may_have_been_sent = true,
        State::Submitting { .. } if keyed => {
            let what = "the state was rebuilt; queued again under the same key, which may have been sent";
            let line = HistoryLine { at, attempt: job.attempt, what: what.to_owned(), movement: None };
            history::push(&mut job.history, line);
            job.may_have_been_sent = true;
            job.state = State::Queued;
        }
        _ => {}
    }
    job
}

/// A job without its history and its counts of sends: all that decides what can happen to it next. Two jobs that agree
/// in it have the same future, which is what a model checker has to know.
pub fn without_history(mut job: Job) -> Job {
    job.history.clear();
    if let State::Submitting { sends, fault, .. } = &mut job.state {
        (*sends, *fault) = ((*sends).min(1), None);
    }
    job
}

/// Applies `event`, addressed to `attempt`, at time `at`.
///
/// # Errors
/// [`IllegalEvent`] when the event is for another attempt or the state has no use for it; the job is
/// then as it was.
pub fn apply(
    job: &Job,
    attempt: AttemptNo,
    event: Event,
    terms: AttemptRules,
    at: Timestamp,
) -> Result<Transition, IllegalEvent> {
    let name = event.name();
    let stale = IllegalEvent::Stale { event: name, addressed: attempt, present: job.attempt };
    let mut change = Change { job: job.clone(), movements: Vec::new(), day: job.day, at };
    if attempt == job.attempt {
        change.event(job, event, terms)?;
    } else {
        let index = superseded::watched(job, attempt).ok_or_else(|| stale.clone())?;
        if !change.superseded_event(index, event) {
            return Err(stale);
        }
    }
    change.collect_superseded();
    Ok(Transition { job: change.job, movements: change.movements, day: change.day })
}

/// A transition being put together.
struct Change {
    job: Job,
    movements: Vec<Movement>,
    day: Option<UtcDay>,
    at: Timestamp,
}

impl Change {
    /// An event of the present attempt; `job` is as it was.
    fn event(&mut self, job: &Job, event: Event, terms: AttemptRules) -> Result<(), IllegalEvent> {
        let change = self;
        let misplaced = IllegalEvent::Misplaced { event: event.name(), state: job.state.name() };
        match (&job.state, event) {
            (State::Queued, Event::Price { release, was }) => change.price(release, was),
            (State::Queued, Event::Refuse(fault)) if !job.may_have_been_sent => {
                let what = format!("not sent: {fault}");
                change.end(State::Failed { fault, task: None }, &what);
            }
            (State::Queued, Event::Admit { hold, day }) => change.admit(hold, day, terms),
            (State::Queued, Event::Cancel) if !job.may_have_been_sent => {
                change.end(State::DROPPED, "canceled before it was sent");
            }
            (State::Queued, Event::Expire) if !job.may_have_been_sent => {
                change.end(State::Expired, "expired before it was sent");
            }

            (State::Submitting { may_have_run, sends, .. }, Event::Posted(answer)) => {
                let (may_have_run, sends) = (*may_have_run, *sends);
                change.posted(answer, may_have_run, sends, terms);
            }

            (State::Running { .. } | State::Fetching { .. }, Event::Read(reading)) => {
                change.read(reading, terms);
            }
            (State::Running { task } | State::Fetching { task, .. }, Event::TaskMissing(fault)) => {
                change.doubt(fault, Some(task.clone()));
            }
            (State::Running { task }, Event::WatchExpired(fault)) => change.doubt(fault, Some(task.clone())),

            (State::Running { task }, Event::Resubmit) if superseded::may_resubmit(job, terms) => {
                change.supersede(task.clone());
            }
            (State::Submitting { .. } | State::Running { .. }, Event::Overdue | Event::Resubmit) => {
                change.job.overdue = true;
                change.note("overdue: its slot is free again, its task is still watched", None);
            }

            (State::Fetching { task, .. }, Event::Fetched(files)) => {
                let what = format!("{} on disk", plural(files.len(), "output"));
                change.end(State::Succeeded { task: task.clone(), files }, &what);
            }
            (State::Fetching { task, .. }, Event::FetchAbandoned(fault)) => {
                let what = format!("download given up: {fault}");
                change.end(State::Failed { fault, task: Some(task.clone()) }, &what);
            }

            (State::Failed { .. } | State::Canceled { .. } | State::Expired, Event::Retry) => {
                // What was paid for and only could not be fetched must not be bought again.
                if job.books != Books::default() || !job.is_over() {
                    return Err(misplaced);
                }
                if job.state.is_ended_by_record() || !terms.keyed {
                    change.next_attempt("retry requested");
                } else {
                    change.end(State::Queued, "queued again under the same key");
                }
                // It was asked for now: what it is late for is over.
                (change.job.overdue, change.job.deadline_from) = (false, None);
            }

            (State::Succeeded { task, .. } | State::Failed { task: Some(task), .. }, Event::FetchAgain) => {
                // A task that failed gave its charge back and has no outputs.
                let is_paid = job.books != Books::default() || matches!(job.state, State::Succeeded { .. });
                if !is_paid || !job.is_over() {
                    return Err(misplaced);
                }
                let fetching = State::Fetching { task: task.clone(), urls: Vec::new() };
                change.end(fetching, "its outputs are downloaded again");
            }

            (State::Queued, Event::Resolve(charged)) if job.may_have_been_sent => {
                change.day = Some(*change.job.day.get_or_insert(change.at.utc_day()));
                change.job.may_have_been_sent = false;
                change.resolve(charged);
                let fault = Fault::new(RESOLVED, format!("resolved: {charged} were charged"));
                let what = format!("resolved: {charged} were charged before the state was rebuilt");
                change.end(State::Failed { fault, task: None }, &what);
            }

            (State::InDoubt { task, .. }, Event::Resolve(charged)) if job.is_over() => {
                change.resolve(charged);
                let fault = Fault::new(RESOLVED, format!("resolved: {charged} were charged"));
                let what = format!("no longer in doubt: {charged} were charged");
                change.end(State::Failed { fault, task: task.clone() }, &what);
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

    fn price(&mut self, release: Release, was: Option<Credits>) {
        self.job.released = Some(release);
        if let Some(was) = was {
            let what = match release.basis {
                Basis::Price => {
                    format!("the price is {} now, was {} when it was accepted", release.hold, was.0)
                }
                Basis::Bound | Basis::MaxCredits => {
                    format!("without an exact price {} are held now, {} were planned", release.hold, was.0)
                }
            };
            self.note(&what, None);
        }
    }

    /// What was set aside for it before the state was rebuilt stays so, on its own day.
    fn admit(&mut self, hold: Credits, day: UtcDay, terms: AttemptRules) {
        let held = self.job.books.held;
        self.job.first_sent.get_or_insert(self.at);
        self.job.deadline_from.get_or_insert(self.at);
        if held.is_zero() {
            self.job.day = Some(day);
        }
        self.day = self.job.day;
        self.job.books = Books { held: hold, ..Books::default() };
        let may_have_run = std::mem::take(&mut self.job.may_have_been_sent);
        self.job.state = State::Submitting { may_have_run, sends: 0, fault: None };
        let movement = if hold < held {
            Some(Movement::Release(held.saturating_sub(hold)))
        } else {
            Some(Movement::Hold(hold.saturating_sub(held))).filter(|_| held != hold || held.is_zero())
        };
        self.note("admitted", movement);
        if may_have_run && !terms.keyed {
            // No key would find the task again that an earlier request may have made.
            let text = "it may have been sent before the state was rebuilt, and has no key to ask under";
            self.doubt(Fault::new("interrupted", text), None);
        }
    }

    fn posted(&mut self, answer: PostAnswer, may_have_run: bool, sends: u32, terms: AttemptRules) {
        match if may_have_run { answer.after_a_lost_one() } else { answer } {
            PostAnswer::Task(reading) => self.read(reading, terms),
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
                    self.job.state = State::Submitting { may_have_run, sends, fault: Some(fault) };
                } else {
                    self.not_taken(&fault);
                }
            }
            PostAnswer::Again { fault, may_have_run: this_one, .. } if this_one && !terms.keyed => {
                self.doubt(fault, None);
            }
            // Without a key, a POST is on its way exactly as long as the job is submitting: a restart
            // that finds it so cannot tell what became of it, and must not send it again.
            PostAnswer::Again { fault, .. } if !terms.keyed => self.not_taken(&fault),
            PostAnswer::Again { fault, may_have_run: this_one, .. } => {
                if sends == 0 {
                    self.note(&format!("no usable answer, resending under the same key: {fault}"), None);
                }
                self.job.state = State::Submitting {
                    may_have_run: may_have_run || this_one,
                    sends: sends.saturating_add(1),
                    fault: Some(fault),
                };
            }
        }
    }

    /// Back to the queue under the same key: the service surely has nothing of it.
    fn not_taken(&mut self, fault: &Fault) {
        self.release();
        self.end(State::Queued, &format!("not accepted: {fault}"));
        // Its deadline counts from the POST that is taken, which may be days from now.
        self.job.deadline_from = None;
        if self.job.attempt == AttemptNo::FIRST {
            self.job.first_sent = None;
        }
    }

    /// An error named a task: its own record decides (money rule 3).
    fn adopt(&mut self, task: TaskId, fault: Fault) {
        self.note(&format!("answered with an error that names task {task}, reading it: {fault}"), None);
        self.job.state = State::Running { task };
        self.job.rejected = Some(fault);
    }

    /// The task's record is the only source of charges and refunds (money rule 10).
    fn read(&mut self, reading: TaskReading, terms: AttemptRules) {
        if reading.model.is_some() {
            self.job.ran_model.clone_from(&reading.model);
        }
        if reading.options.is_some() {
            self.job.ran_options.clone_from(&reading.options);
        }
        // Not while it runs: many jobs run, and it changes until then.
        if reading.status.is_final() {
            self.job.record.clone_from(&reading.record);
        }
        match reading.status {
            TaskStatus::Pending | TaskStatus::Processing | TaskStatus::Other(_) => {
                self.settle(&reading);
                self.job.state = State::Running { task: reading.id };
            }
            TaskStatus::Success => {
                self.settle(&reading);
                self.job.rejected = None;
                if !matches!(self.job.state, State::Fetching { .. }) {
                    self.note(if self.job.overdue { "finished late" } else { "finished" }, None);
                }
                self.job.state = State::Fetching { task: reading.id, urls: reading.urls };
            }
            TaskStatus::Failed | TaskStatus::Canceled => self.attempt_over(reading, terms),
        }
    }

    fn attempt_over(&mut self, reading: TaskReading, terms: AttemptRules) {
        if !self.job.books.held.is_zero() {
            // Charged and given back before anybody looked.
            self.settle(&reading);
        }
        self.refund();
        let is_canceled = reading.status == TaskStatus::Canceled;
        let mut fault = reading.fault.unwrap_or_else(|| {
            let (code, word) = if is_canceled { ("canceled", "canceled") } else { ("generic", "failed") };
            Fault::new(code, format!("the service ended the task as {word} and gave no reason"))
        });
        if is_canceled {
            // Somebody has decided: only a person buys it again.
            let what = format!("task {} was canceled at the service by another client: {fault}", reading.id);
            self.job.rejected = None;
            self.end(State::Canceled { task: Some(reading.id), fault: Some(fault) }, &what);
            return;
        }
        let prospect_of = |fault: &Fault| retry::prospect(&fault.code);
        let mut cause = fault.code.clone();
        // The record may say why in more words, or not at all: the stricter of the two decides.
        if let Some(named) = self.job.rejected.take().filter(|named| prospect_of(named) > prospect_of(&fault))
        {
            cause.clone_from(&named.code);
            if prospect_of(&named) == Prospect::Hopeless {
                fault = named;
            }
        }
        let may_help = match retry::prospect(&cause) {
            Prospect::MayHelp => true,
            Prospect::Once => !self.job.begun_for.contains(&cause),
            Prospect::OnlyAsked | Prospect::Hopeless => false,
        };
        let is_left = self.job.newest_attempt().0 < terms.attempts && !self.job.overdue;
        if is_left && may_help {
            self.job.begun_for.push(cause);
            self.next_attempt(&format!("task {} failed, retrying with a new key: {fault}", reading.id));
        } else {
            let what = format!("task {} failed: {fault}", reading.id);
            self.end(State::Failed { fault, task: Some(reading.id) }, &what);
        }
    }

    fn settle(&mut self, reading: &TaskReading) {
        let Books { held, charged, .. } = self.job.books;
        // An adopted task is read while the hold still stands.
        let unsettled = matches!(self.job.state, State::Submitting { .. }) || !held.is_zero();
        if unsettled {
            self.job.books = Books { held: Credits::ZERO, charged: reading.charged, waived: reading.waived };
            let movement = Movement::Settle { held, spent: reading.charged, waived: reading.waived };
            self.note(&format!("task {} created", reading.id), Some(movement));
        } else if charged != reading.charged {
            self.job.books.charged = reading.charged;
            let movement = Movement::Correct { from: charged, to: reading.charged };
            self.note("the task's record shows another charge than before", Some(movement));
        }
        self.correct_waived(reading.waived);
    }

    fn correct_waived(&mut self, to: Credits) {
        let from = std::mem::replace(&mut self.job.books.waived, to);
        self.note_waived(self.job.attempt, from, to);
    }

    /// What an allowance covered may turn out otherwise than it was first told.
    fn note_waived(&mut self, attempt: AttemptNo, from: Credits, to: Credits) {
        if from == to {
            return;
        }
        let nothing = Credits::ZERO;
        if !from.is_zero() {
            let movement = Movement::Refund { spent: nothing, waived: from };
            let what = "the task's record shows that an allowance covered another part";
            self.note_for(attempt, what, Some(movement));
        }
        if !to.is_zero() {
            let movement = Movement::Settle { held: nothing, spent: nothing, waived: to };
            self.note_for(attempt, "an allowance covered this part, by the task's record", Some(movement));
        }
    }

    /// Books what a person found instead of what was feared.
    fn resolve(&mut self, charged: Credits) {
        let Books { held, charged: before, waived } = self.job.books;
        self.job.books = Books { charged, ..Books::default() };
        let nothing = Credits::ZERO;
        let movements = [
            (!held.is_zero() && charged.is_zero()).then_some(Movement::Release(held)),
            (!held.is_zero() && !charged.is_zero()).then_some(Movement::Settle {
                held,
                spent: charged,
                waived: nothing,
            }),
            (held.is_zero() && charged.is_zero() && !(before.is_zero() && waived.is_zero()))
                .then_some(Movement::Refund { spent: before, waived }),
            (held.is_zero() && !charged.is_zero() && charged != before)
                .then_some(Movement::Correct { from: before, to: charged }),
        ];
        for movement in movements.into_iter().flatten() {
            self.note("as a person found", Some(movement));
        }
        if held.is_zero() && !charged.is_zero() {
            self.job.books.waived = waived;
        }
    }

    fn release(&mut self) {
        let held = std::mem::take(&mut self.job.books.held);
        if !held.is_zero() {
            self.note("nothing was charged", Some(Movement::Release(held)));
        }
    }

    fn refund(&mut self) {
        let Books { charged, waived, .. } = std::mem::take(&mut self.job.books);
        if !charged.is_zero() || !waived.is_zero() {
            self.note("refunded by the service", Some(Movement::Refund { spent: charged, waived }));
        }
    }

    fn next_attempt(&mut self, why: &str) {
        self.end(State::Queued, why);
        self.job.attempt = self.job.newest_attempt().next();
        self.job.ran_model = None;
        self.job.ran_options = None;
        self.job.record = None;
    }

    fn doubt(&mut self, fault: Fault, task: Option<TaskId>) {
        let what = format!("in doubt, record the charge with callsheet resolve: {fault}");
        self.end(State::InDoubt { fault, task }, &what);
    }

    fn end(&mut self, state: State, what: &str) {
        self.note(what, None);
        self.job.state = state;
    }

    fn note(&mut self, what: &str, movement: Option<Movement>) {
        self.note_for(self.job.attempt, what, movement);
    }

    fn note_for(&mut self, attempt: AttemptNo, what: &str, movement: Option<Movement>) {
        self.movements.extend(movement);
        let line = HistoryLine { at: self.at, attempt, what: what.to_owned(), movement };
        history::push(&mut self.job.history, line);
    }
}

/// `1 output`, `3 outputs`.
fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
