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
//!   +------------------------------+-> failed, when no attempt is left
//! ```

use crate::domain::credits::Credits;
use crate::domain::ids::{Attempt, TaskId};
use crate::domain::job::{Books, HISTORY_MAX_LINES, HistoryLine, Job, OutputFile, State};
use crate::domain::ledger::Movement;
use crate::domain::retry::{self, Prospect};
use crate::domain::task::{Fault, PostAnswer, TaskReading, TaskStatus};
use crate::domain::time::{Timestamp, UtcDay};

/// Everything that can happen to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
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
    /// Its task was watched for as long as the policy asks, and never ended.
    WatchOver(Fault),
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
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Admit { .. } => "admit",
            Event::Posted(_) => "posted",
            Event::Read(_) => "read",
            Event::TaskMissing(_) => "task missing",
            Event::Overdue => "overdue",
            Event::WatchOver(_) => "watch over",
            Event::Fetched(_) => "fetched",
            Event::FetchAbandoned(_) => "fetch abandoned",
            Event::Cancel => "cancel",
            Event::Expire => "expire",
            Event::Retry => "retry",
        }
    }
}

/// What the lifecycle needs to know about the job's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How many attempts (keys) it may use.
    pub attempts: u32,
    /// Whether its endpoint honours idempotency keys: see [`Kind::is_keyed`].
    pub keyed: bool,
}

/// The job after an event, and what moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The job as it is now.
    pub job: Job,
    /// What moved, in order, for the day in [`Step::day`].
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
        addressed: Attempt,
        /// The attempt the job is at.
        present: Attempt,
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
        | State::Canceled
        | State::Expired
        | State::InDoubt { .. } => Want::Nothing,
    }
}

/// Applies `event`, addressed to `attempt`, at time `at`.
///
/// # Errors
/// [`IllegalEvent`] when the event is for another attempt or the state has no use for it; the job is
/// then as it was.
pub fn apply(
    job: &Job,
    attempt: Attempt,
    event: Event,
    terms: Terms,
    at: Timestamp,
) -> Result<Step, IllegalEvent> {
    let name = event.name();
    if attempt != job.attempt {
        return Err(IllegalEvent::Stale { event: name, addressed: attempt, present: job.attempt });
    }
    let misplaced = IllegalEvent::Misplaced { event: name, state: job.state.name() };
    let mut change = Change { job: job.clone(), movements: Vec::new(), day: job.day, at };
    match (&job.state, event) {
        (State::Queued, Event::Admit { hold, day }) => change.admit(hold, day),
        (State::Queued, Event::Cancel) => change.end(State::Canceled, "canceled before it was sent"),
        (State::Queued, Event::Expire) => change.end(State::Expired, "expired before it was sent"),

        (State::Submitting { may_have_run, sends, .. }, Event::Posted(answer)) => {
            let (may_have_run, sends) = (*may_have_run, *sends);
            change.posted(answer, may_have_run, sends, terms);
        }

        (State::Running { .. } | State::Fetching { .. }, Event::Read(reading)) => change.read(reading, terms),
        (State::Running { task } | State::Fetching { task, .. }, Event::TaskMissing(fault)) => {
            change.doubt(fault, Some(task.clone()));
        }
        (State::Running { task }, Event::WatchOver(fault)) => change.doubt(fault, Some(task.clone())),

        (State::Submitting { .. } | State::Running { .. }, Event::Overdue) => {
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

        (State::Failed { .. } | State::Canceled | State::Expired, Event::Retry) => {
            // What was paid for and only could not be fetched must not be bought again.
            if job.books != Books::default() {
                return Err(misplaced);
            }
            change.next_attempt("another attempt was asked for");
        }

        (
            State::Queued
            | State::Submitting { .. }
            | State::Running { .. }
            | State::Fetching { .. }
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Canceled
            | State::Expired
            | State::InDoubt { .. },
            _,
        ) => return Err(misplaced),
    }
    Ok(Step { job: change.job, movements: change.movements, day: change.day })
}

/// A step being put together.
struct Change {
    job: Job,
    movements: Vec<Movement>,
    day: Option<UtcDay>,
    at: Timestamp,
}

impl Change {
    fn admit(&mut self, hold: Credits, day: UtcDay) {
        self.job.first_sent.get_or_insert(self.at);
        self.job.day = Some(day);
        self.day = Some(day);
        self.job.books = Books { held: hold, ..Books::default() };
        self.job.state = State::Submitting { may_have_run: false, sends: 0, fault: None };
        self.note("admitted", Some(Movement::Hold(hold)));
    }

    fn posted(&mut self, answer: PostAnswer, may_have_run: bool, sends: u32, terms: Terms) {
        match answer {
            PostAnswer::Task(reading) => self.read(reading, terms),
            PostAnswer::TaskNamed(task, fault) => self.adopt(task, &fault),
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
                    let what = format!("not taken: {fault}");
                    self.release();
                    self.end(State::Queued, &what);
                }
            }
            PostAnswer::Again { fault, may_have_run: this_one, .. } if this_one && !terms.keyed => {
                self.doubt(fault, None);
            }
            // Without a key, a POST is on its way exactly as long as the job is submitting: a restart
            // that finds it so cannot tell what became of it, and must not send it again.
            PostAnswer::Again { fault, .. } if !terms.keyed => {
                let what = format!("not taken: {fault}");
                self.release();
                self.end(State::Queued, &what);
            }
            PostAnswer::Again { fault, may_have_run: this_one, .. } => {
                if sends == 0 {
                    self.note(&format!("no usable answer, the same key is sent again: {fault}"), None);
                }
                self.job.state = State::Submitting {
                    may_have_run: may_have_run || this_one,
                    sends: sends.saturating_add(1),
                    fault: Some(fault),
                };
            }
        }
    }

    /// An error named a task: its own record decides (money rule 3).
    fn adopt(&mut self, task: TaskId, fault: &Fault) {
        self.note(&format!("answered with an error that names task {task}, reading it: {fault}"), None);
        self.job.state = State::Running { task };
    }

    /// The task's record is the only source of charges and refunds (money rule 10).
    fn read(&mut self, reading: TaskReading, terms: Terms) {
        if reading.model.is_some() {
            self.job.ran_model.clone_from(&reading.model);
        }
        match reading.status {
            TaskStatus::Pending | TaskStatus::Processing | TaskStatus::Other(_) => {
                self.settle(&reading);
                self.job.state = State::Running { task: reading.id };
            }
            TaskStatus::Success => {
                self.settle(&reading);
                if !matches!(self.job.state, State::Fetching { .. }) {
                    self.note(if self.job.overdue { "finished late" } else { "finished" }, None);
                }
                self.job.state = State::Fetching { task: reading.id, urls: reading.urls };
            }
            TaskStatus::Failed | TaskStatus::Canceled => self.attempt_over(reading, terms),
        }
    }

    fn attempt_over(&mut self, reading: TaskReading, terms: Terms) {
        let canceled = reading.status == TaskStatus::Canceled;
        let fault = reading.fault.unwrap_or_else(|| {
            let (code, word) = if canceled { ("canceled", "canceled") } else { ("generic", "failed") };
            Fault::new(code, format!("the service ended the task as {word} and gave no reason"))
        });
        self.release();
        self.refund();
        let left = self.job.attempt.0 < terms.attempts && !self.job.overdue;
        if left && retry::prospect(&fault.code) == Prospect::MayHelp {
            self.next_attempt(&format!("task {} failed, another attempt follows: {fault}", reading.id));
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
        self.job.attempt = self.job.attempt.next();
        self.job.ran_model = None;
    }

    fn doubt(&mut self, fault: Fault, task: Option<TaskId>) {
        let what = format!("in doubt, a person must decide: {fault}");
        self.end(State::InDoubt { fault, task }, &what);
    }

    fn end(&mut self, state: State, what: &str) {
        self.note(what, None);
        self.job.state = state;
    }

    fn note(&mut self, what: &str, movement: Option<Movement>) {
        self.movements.extend(movement);
        let history = &mut self.job.history;
        if history.len() >= HISTORY_MAX_LINES {
            history.remove(0);
        }
        history.push(HistoryLine { at: self.at, attempt: self.job.attempt, what: what.to_owned(), movement });
    }
}

/// `1 output`, `3 outputs`.
fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::ledger::Totals;
    use crate::domain::time::Millis;

    const TERMS: Terms = Terms { attempts: 3, keyed: true };
    const KEYLESS: Terms = Terms { attempts: 3, keyed: false };
    const DAY: UtcDay = UtcDay(20_000);

    fn admit(hold: u64) -> Event {
        Event::Admit { hold: Credits(hold), day: DAY }
    }

    fn reading(status: &str, charged: u64) -> TaskReading {
        TaskReading {
            id: TaskId("t1".into()),
            status: TaskStatus::from_wire(status),
            model: Some("house-c1/text-to-video".into()),
            charged: Credits(charged),
            waived: Credits::ZERO,
            urls: if status == "success" { vec!["http://x/1.mp4".into()] } else { vec![] },
            fault: None,
        }
    }

    fn failed(code: &str) -> TaskReading {
        TaskReading { fault: Some(Fault::new(code, "said so")), ..reading("failed", 10) }
    }

    fn task(status: &str, charged: u64) -> Event {
        Event::Posted(PostAnswer::Task(reading(status, charged)))
    }

    fn read(status: &str, charged: u64) -> Event {
        Event::Read(reading(status, charged))
    }

    fn again(may_have_run: bool) -> Event {
        let fault = Fault::new("timeout", "no answer within 60s");
        Event::Posted(PostAnswer::Again { fault, wait: None, may_have_run })
    }

    fn fault() -> Fault {
        Fault::new("insufficient_credits", "insufficient credits")
    }

    fn file() -> OutputFile {
        let content_type = "video/mp4".to_owned();
        OutputFile { path: "a.mp4".into(), bytes: 1, sha256: "00".into(), content_type }
    }

    /// Runs the events one after the other, each addressed to the present attempt, and writes a
    /// line for each: `state#attempt held/charged`.
    fn transcript(terms: Terms, events: Vec<Event>) -> String {
        let mut job = Job::queued();
        let mut lines = Vec::new();
        for event in events {
            let name = event.name();
            lines.push(match apply(&job, job.attempt, event, terms, Timestamp(0)) {
                Ok(step) => {
                    job = step.job;
                    let Books { held, charged, .. } = job.books;
                    format!("{name}: {}#{} {}/{}", job.state.name(), job.attempt.0, held.0, charged.0)
                }
                Err(illegal) => format!("{name}: {illegal}"),
            });
        }
        lines.join("\n")
    }

    fn check(terms: Terms, events: Vec<Event>, expected: &str) {
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(transcript(terms, events), expected.join("\n"));
    }

    #[test]
    fn a_video_is_made() {
        check(
            TERMS,
            vec![
                admit(10),
                task("pending", 10),
                read("processing", 10),
                read("success", 10),
                Event::Fetched(vec![file()]),
            ],
            "admit: submitting#1 10/0
             posted: running#1 0/10
             read: running#1 0/10
             read: fetching#1 0/10
             fetched: succeeded#1 0/10",
        );
    }

    #[test]
    fn speech_is_finished_within_the_call() {
        check(
            TERMS,
            vec![admit(1), task("success", 1), Event::Fetched(vec![file()])],
            "admit: submitting#1 1/0
             posted: fetching#1 0/1
             fetched: succeeded#1 0/1",
        );
    }

    #[test]
    fn an_unknown_outcome_keeps_the_hold_and_the_key() {
        check(
            TERMS,
            vec![admit(10), again(true), again(false), task("processing", 10)],
            "admit: submitting#1 10/0
             posted: submitting#1 10/0
             posted: submitting#1 10/0
             posted: running#1 0/10",
        );
    }

    #[test]
    fn a_failed_task_is_refunded_and_tried_under_a_new_key() {
        let busy = || Event::Read(failed("busy"));
        check(
            TERMS,
            vec![
                admit(10),
                task("pending", 10),
                busy(),
                admit(10),
                task("pending", 10),
                busy(),
                admit(10),
                task("pending", 10),
                busy(),
            ],
            "admit: submitting#1 10/0
             posted: running#1 0/10
             read: queued#2 0/0
             admit: submitting#2 10/0
             posted: running#2 0/10
             read: queued#3 0/0
             admit: submitting#3 10/0
             posted: running#3 0/10
             read: failed#3 0/0",
        );
    }

    #[test]
    fn rejected_content_is_never_sent_again() {
        let refused = PostAnswer::Refused(Fault::new("content_rejected", "safety"));
        check(
            TERMS,
            vec![admit(10), Event::Posted(refused), admit(10)],
            "admit: submitting#1 10/0
             posted: failed#1 0/0
             admit: \"admit\" cannot happen to a job that is failed",
        );
        check(
            TERMS,
            vec![admit(10), task("pending", 10), Event::Read(failed("content_rejected"))],
            "admit: submitting#1 10/0
             posted: running#1 0/10
             read: failed#1 0/0",
        );
    }

    #[test]
    fn an_error_that_names_a_task_is_decided_by_that_task() {
        let named = || Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
        check(
            TERMS,
            vec![admit(10), named(), Event::Read(failed("provider_unavailable")), admit(10)],
            "admit: submitting#1 10/0
             posted: running#1 10/0
             read: queued#2 0/0
             admit: submitting#2 10/0",
        );
        check(
            TERMS,
            vec![admit(10), named(), read("processing", 10), read("success", 10)],
            "admit: submitting#1 10/0
             posted: running#1 10/0
             read: running#1 0/10
             read: fetching#1 0/10",
        );
    }

    #[test]
    fn low_funds_and_a_bad_key_fail_no_job() {
        for answer in [PostAnswer::OutOfCredits(fault()), PostAnswer::Unauthorised(fault())] {
            check(
                TERMS,
                vec![admit(10), Event::Posted(answer.clone()), admit(10), again(true), Event::Posted(answer)],
                "admit: submitting#1 10/0
                 posted: queued#1 0/0
                 admit: submitting#1 10/0
                 posted: submitting#1 10/0
                 posted: submitting#1 10/0",
            );
        }
    }

    #[test]
    fn shorts_studio_is_sent_once() {
        check(
            KEYLESS,
            vec![admit(10), again(true), Event::Retry],
            "admit: submitting#1 10/0
             posted: in_doubt#1 10/0
             retry: \"retry\" cannot happen to a job that is in_doubt",
        );
        check(KEYLESS, vec![admit(10), again(false)], "admit: submitting#1 10/0\nposted: queued#1 0/0");
    }

    #[test]
    fn a_late_success_is_collected_and_an_overdue_job_gets_no_new_attempt() {
        check(
            TERMS,
            vec![admit(10), task("pending", 10), Event::Overdue, read("success", 10), Event::Fetched(vec![])],
            "admit: submitting#1 10/0
             posted: running#1 0/10
             overdue: running#1 0/10
             read: fetching#1 0/10
             fetched: succeeded#1 0/10",
        );
        check(
            TERMS,
            vec![admit(10), task("pending", 10), Event::Overdue, Event::Read(failed("busy"))],
            "admit: submitting#1 10/0
             posted: running#1 0/10
             overdue: running#1 0/10
             read: failed#1 0/0",
        );
    }

    #[test]
    fn what_was_paid_for_is_downloaded_again_not_bought_again() {
        check(
            TERMS,
            vec![admit(10), task("success", 10), Event::FetchAbandoned(fault()), Event::Retry],
            "admit: submitting#1 10/0
             posted: fetching#1 0/10
             fetch abandoned: failed#1 0/10
             retry: \"retry\" cannot happen to a job that is failed",
        );
    }

    #[test]
    fn a_late_answer_for_an_older_attempt_is_refused() {
        let mut job = Job::queued();
        for event in [admit(10), task("pending", 10), Event::Read(failed("busy"))] {
            job = apply(&job, job.attempt, event, TERMS, Timestamp(0)).unwrap().job;
        }
        let late = apply(&job, Attempt(1), read("success", 10), TERMS, Timestamp(0)).unwrap_err();
        assert_eq!(late.to_string(), "\"read\" is for attempt 1, the job is at attempt 2");
    }

    #[test]
    fn history_is_bounded() {
        let mut job = Job::queued();
        for charged in 0..200 {
            let event = if charged == 0 {
                admit(10)
            } else if charged == 1 {
                task("pending", 1)
            } else {
                read("pending", charged)
            };
            job = apply(&job, job.attempt, event, TERMS, Timestamp(0)).unwrap().job;
        }
        assert_eq!(job.history.len(), HISTORY_MAX_LINES);
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let status = prop_oneof![
            Just("pending"),
            Just("processing"),
            Just("success"),
            Just("failed"),
            Just("canceled"),
            Just("new-word")
        ];
        let any_reading = (status, 0u64..30).prop_map(|(status, charged)| reading(status, charged));
        prop_oneof![
            4 => (0u64..20).prop_map(admit),
            2 => any_reading.clone().prop_map(|r| Event::Posted(PostAnswer::Task(r))),
            1 => Just(Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()))),
            1 => Just(Event::Posted(PostAnswer::Refused(fault()))),
            1 => Just(Event::Posted(PostAnswer::OutOfCredits(fault()))),
            1 => any::<bool>().prop_map(again),
            6 => any_reading.prop_map(Event::Read),
            1 => Just(Event::TaskMissing(fault())),
            1 => Just(Event::Overdue),
            1 => Just(Event::WatchOver(fault())),
            2 => Just(Event::Fetched(vec![file()])),
            1 => Just(Event::FetchAbandoned(fault())),
            1 => Just(Event::Cancel),
            1 => Just(Event::Expire),
            1 => Just(Event::Retry),
        ]
    }

    proptest! {
        /// Whatever happens, the movements add up to the job's own books, a job that is queued or
        /// ended without a charge holds nothing, and an attempt number never goes back.
        #[test]
        fn books_and_movements_agree(events in prop::collection::vec(any_event(), 0..60), keyed in any::<bool>()) {
            let terms = Terms { attempts: 3, keyed };
            let (mut job, mut totals, mut at) = (Job::queued(), Totals::default(), Timestamp(0));
            for event in events {
                at = at.after(Millis(1));
                let Ok(step) = apply(&job, job.attempt, event, terms, at) else { continue };
                prop_assert!(step.job.attempt >= job.attempt);
                for movement in step.movements {
                    totals.apply(movement).unwrap();
                }
                job = step.job;
                prop_assert_eq!(totals.held, job.books.held);
                prop_assert_eq!(totals.spent, job.books.charged);
                let empty = matches!(job.state, State::Queued | State::Canceled | State::Expired);
                prop_assert!(!empty || job.books == Books::default(), "{:?}", job);
                let may_hold = matches!(job.state, State::Submitting { .. } | State::Running { .. } | State::InDoubt { .. });
                prop_assert!(may_hold || job.books.held.is_zero(), "{:?}", job);
            }
        }
    }
}
