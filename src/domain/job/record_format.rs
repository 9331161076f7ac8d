//! A job as it is stored and shown.
//!
//! Format 2 ([`WrittenJob`]) is a list of `attempts`, each with its own state. Format 1 had the present attempt's fields
//! beside the job's own, and the tasks that a resubmission had left in a list `superseded`. It is read, and no longer
//! written. People and scripts see both at once ([`RecordView`]): the names of format 1, and the attempts.

use serde::{Deserialize, Serialize, Serializer};
use thin_vec::ThinVec;

use crate::domain::credit_hold::Hold;
use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::{AttemptNo, TaskId};
use crate::domain::job::attempt::{MissingField, RareAttemptFields, StateFields};
use crate::domain::job::{Attempt, Books, HistoryLine, Job, OutputFile, RanWith, Rare, RareJobFields, State};
use crate::domain::job_state::JobState;
use crate::domain::json_object::JsonObject;
use crate::domain::review::Review;
use crate::domain::short_list::short_list;
use crate::domain::task::{Fault, TaskRecord};
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;

/// A job's record in either format. Which one it is, `attempts` tells.
#[derive(Debug, Deserialize)]
pub(super) struct StoredJob {
    #[serde(default, deserialize_with = "short_list")]
    attempts: ThinVec<Attempt>,
    #[serde(default)]
    kept: Option<AttemptNo>,
    #[serde(default)]
    first_sent: Option<Timestamp>,
    #[serde(default)]
    deadline_from: Option<Timestamp>,
    #[serde(default, rename = "released")]
    admission_hold: Option<Hold>,
    #[serde(default)]
    max_credits: Option<Credits>,
    #[serde(default)]
    overdue: bool,
    #[serde(default)]
    no_more_attempts: bool,
    #[serde(default)]
    may_have_gone_on: bool,
    #[serde(default)]
    begun_for: Vec<String>,
    #[serde(default)]
    review: Option<Review>,
    #[serde(default, deserialize_with = "short_list")]
    history: ThinVec<HistoryLine>,

    // Format 1: the present attempt.
    #[serde(default)]
    attempt: Option<AttemptNo>,
    #[serde(default)]
    books: Books,
    #[serde(default)]
    day: Option<UtcDay>,
    #[serde(default)]
    may_have_been_sent: bool,
    #[serde(default)]
    rejected: Option<Fault>,
    #[serde(default)]
    ran_model: Option<String>,
    #[serde(default)]
    ran_options: Option<JsonObject>,
    #[serde(default)]
    record: Option<Box<TaskRecord>>,
    #[serde(default)]
    superseded: Vec<SupersededTask>,
    // Its state, and what belonged to that.
    #[serde(default)]
    state: Option<JobState>,
    #[serde(default)]
    may_have_run: Option<bool>,
    #[serde(default)]
    sends: u32,
    #[serde(default)]
    fault: Option<Fault>,
    #[serde(default)]
    task: Option<TaskId>,
    #[serde(default)]
    urls: Option<ThinVec<String>>,
    #[serde(default)]
    files: Option<ThinVec<OutputFile>>,
}

/// A job as it is written: its fields in the order in which they are stored, however they lie in memory.
#[derive(Serialize)]
struct WrittenJob<'a> {
    attempts: &'a [Attempt],
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<AttemptNo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_sent: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_from: Option<Timestamp>,
    #[serde(rename = "released", skip_serializing_if = "Option::is_none")]
    admission_hold: Option<Hold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_credits: Option<Credits>,
    #[serde(skip_serializing_if = "is_default")]
    overdue: bool,
    #[serde(skip_serializing_if = "is_default")]
    no_more_attempts: bool,
    #[serde(skip_serializing_if = "is_default")]
    may_have_gone_on: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    begun_for: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<&'a Review>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    history: &'a [HistoryLine],
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Job {
            attempts,
            first_sent,
            deadline_from,
            admission_hold,
            overdue,
            no_more_attempts,
            may_have_gone_on,
            rare,
            history,
        } = self;
        let RareJobFields { kept, max_credits, begun_for, review } = &**rare;
        let written = WrittenJob {
            attempts,
            kept: *kept,
            first_sent: *first_sent,
            deadline_from: *deadline_from,
            admission_hold: *admission_hold,
            max_credits: *max_credits,
            overdue: *overdue,
            no_more_attempts: *no_more_attempts,
            may_have_gone_on: *may_have_gone_on,
            begun_for,
            review: review.as_ref(),
            history,
        };
        written.serialize(serializer)
    }
}

/// A task of another attempt than the present one, as format 1 had it.
#[derive(Debug, Serialize, Deserialize)]
struct SupersededTask {
    attempt: AttemptNo,
    task: TaskId,
    books: Books,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    day: Option<UtcDay>,
    since: Timestamp,
    watch: WatchState,
}

/// What became of such a task, as format 1 had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WatchState {
    Open,
    Succeeded,
    Over,
    InDoubt,
}

/// The record is of neither format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    #[error("missing field `{0}`")]
    Missing(&'static str),
    #[error("its attempts are not in the order of their numbers")]
    Order,
    #[error("it keeps attempt {}, and has none of that number", .0.0)]
    Kept(AttemptNo),
}

impl TryFrom<StoredJob> for Job {
    type Error = FormatError;

    fn try_from(stored: StoredJob) -> Result<Job, FormatError> {
        let (attempts, kept) =
            if stored.attempts.is_empty() { carried_over(&stored)? } else { (stored.attempts, stored.kept) };
        if !attempts.is_sorted_by(|one, next| one.no < next.no) {
            return Err(FormatError::Order);
        }
        if let Some(kept) = kept.filter(|kept| attempts.iter().all(|attempt| attempt.no != *kept)) {
            return Err(FormatError::Kept(kept));
        }
        Ok(Job {
            attempts,
            first_sent: stored.first_sent,
            deadline_from: stored.deadline_from,
            admission_hold: stored.admission_hold,
            overdue: stored.overdue,
            no_more_attempts: stored.no_more_attempts,
            may_have_gone_on: stored.may_have_gone_on,
            rare: Rare::new(RareJobFields {
                kept,
                max_credits: stored.max_credits,
                begun_for: stored.begun_for,
                review: stored.review,
            }),
            history: stored.history,
        })
    }
}

/// The attempts of a record of format 1, and the one that is kept.
fn carried_over(stored: &StoredJob) -> Result<(ThinVec<Attempt>, Option<AttemptNo>), FormatError> {
    let present = Attempt {
        no: stored.attempt.ok_or(FormatError::Missing("attempt"))?,
        state: state(stored)?,
        books: stored.books,
        day: stored.day,
        may_have_been_sent: stored.may_have_been_sent,
        ran_with: RanWith::of(stored.ran_model.clone(), stored.ran_options.clone()),
        rare: Rare::new(RareAttemptFields {
            rejected: stored.rejected.clone(),
            record: stored.record.clone(),
            ..RareAttemptFields::default()
        }),
    };
    let no = present.no;
    let mut attempts = ThinVec::with_capacity(stored.superseded.len() + 1);
    attempts.extend(stored.superseded.iter().map(SupersededTask::attempt));
    attempts.push(present);
    attempts.sort_by_key(|attempt| attempt.no);
    let kept = Some(no).filter(|no| attempts.iter().any(|attempt| attempt.no > *no));
    Ok((attempts, kept))
}

/// The state of a record of format 1.
fn state(stored: &StoredJob) -> Result<State, FormatError> {
    let fields = StateFields {
        may_have_run: stored.may_have_run,
        sends: Some(stored.sends),
        fault: stored.fault.clone(),
        task: stored.task.clone(),
        urls: stored.urls.clone(),
        files: stored.files.clone(),
    };
    let state = stored.state.ok_or(FormatError::Missing("state"))?;
    fields.state(state).map_err(|MissingField(name)| FormatError::Missing(name))
}

impl SupersededTask {
    fn attempt(&self) -> Attempt {
        let (task, fault) =
            (self.task.clone(), |code| Fault::new(code, "its record of format 1 says no more"));
        let state = match self.watch {
            WatchState::Open => State::Running { task },
            WatchState::Succeeded => State::Fetching { task, urls: ThinVec::new(), files: ThinVec::new() },
            WatchState::Over => State::Failed { fault: fault("ended"), task: Some(task) },
            WatchState::InDoubt => State::InDoubt { fault: fault("in_doubt"), task: Some(task) },
        };
        Attempt {
            books: self.books,
            day: self.day,
            rare: Rare::new(RareAttemptFields {
                watched_since: Some(self.since),
                ..RareAttemptFields::default()
            }),
            ..Attempt::at(self.attempt, state)
        }
    }

    fn of(attempt: &Attempt) -> Option<SupersededTask> {
        let watch = match attempt.state {
            State::Running { .. } => WatchState::Open,
            State::Fetching { .. } | State::Succeeded { .. } => WatchState::Succeeded,
            State::InDoubt { .. } => WatchState::InDoubt,
            _ => WatchState::Over,
        };
        let (task, since) = (attempt.task()?.clone(), attempt.rare.watched_since?);
        let Attempt { no, books, day, .. } = *attempt;
        Some(SupersededTask { attempt: no, task, books, day, since, watch })
    }
}

/// A job as `explain --json` shows it: the present attempt's fields beside the job's own, as scripts know them, and all
/// attempts. It reads back as the job.
#[derive(Debug, Serialize)]
pub struct RecordView<'a> {
    #[serde(flatten)]
    state: &'a State,
    attempt: AttemptNo,
    books: Books,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<UtcDay>,
    #[serde(skip_serializing_if = "is_default")]
    may_have_been_sent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_options: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a TaskRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<&'a Fault>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    superseded: Vec<SupersededTask>,
    #[serde(flatten)]
    job: &'a Job,
}

impl<'a> RecordView<'a> {
    /// What is shown of a job.
    pub fn of(job: &'a Job) -> RecordView<'a> {
        let present = job.present();
        RecordView {
            state: &present.state,
            attempt: present.no,
            books: present.books,
            day: present.day,
            may_have_been_sent: present.may_have_been_sent,
            ran_model: job.ran_model(),
            ran_options: job.ran_options(),
            record: job.task_record(),
            rejected: present.rare.rejected.as_ref(),
            superseded: job.resubmitted_attempts().filter_map(SupersededTask::of).collect(),
            job,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(record: &Value) -> Job {
        serde_json::from_value(record.clone()).unwrap()
    }

    /// `no state#task held+charged`, `!` for the attempt that decides.
    fn told(job: &Job) -> String {
        let attempt = |attempt: &Attempt| {
            let mark = if attempt.no == job.attempt() { "!" } else { "" };
            let task = attempt.task().map(|task| format!("#{task}")).unwrap_or_default();
            let Books { held, charged, .. } = attempt.books;
            format!("{}{mark} {}{task} {}+{}", attempt.no.0, attempt.state.name(), held.0, charged.0)
        };
        job.attempts.iter().map(attempt).collect::<Vec<_>>().join(", ")
    }

    /// A record of format 1 of a job in this state, after a resubmission.
    fn resubmitted(present: u32, state: &Value, watch: &str) -> Value {
        let books = |held, charged| json!({"held": held, "charged": charged, "waived": 0});
        let other = json!({"attempt": if present == 1 { 2 } else { 1 }, "task": "other", "books": books(0, 10),
            "day": 20000, "since": 5, "watch": watch});
        let mut record = json!({"attempt": present, "books": books(3, 4), "first_sent": 1, "deadline_from": 6,
            "day": 20001, "overdue": true, "begun_for": ["busy"], "superseded": [other],
            "released": {"hold": 10, "basis": "price"}, "max_credits": 12, "ran_model": "m",
            "history": [{"at": 1, "attempt": 1, "what": "admitted", "movement": {"hold": 10}}]});
        record.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
        record
    }

    #[test]
    fn a_record_with_every_field_is_written_as_it_was_read() {
        let books = r#""books":{"held":0,"charged":10,"waived":2}"#;
        let first = format!(
            r#"{{"no":1,"state":"running","task":"t1",{books},"day":20000,"may_have_been_sent":true,"rejected":{{"code":"busy","message":"later","docs":"https://x"}},"watched_since":5,"ran_model":"m","ran_options":{{"duration":"5s"}},"record":{{"credit_id":"c"}},"inputs":["https://a"],"input_takes":[2],"input_lengths":[5000]}}"#
        );
        let second = format!(r#"{{"no":2,"state":"queued",{books}}}"#);
        let decided = r#"{"verdict":"rejected","by":"ann","at":7,"note":"too dark","sha256":["0a"]}"#;
        let text = format!(
            r#"{{"attempts":[{first},{second}],"kept":1,"first_sent":1,"deadline_from":6,"released":{{"hold":10,"basis":"price"}},"max_credits":12,"overdue":true,"no_more_attempts":true,"may_have_gone_on":true,"begun_for":["busy"],"review":{{"wanted":true,"decisions":[{decided}]}},"history":[{{"at":1,"attempt":1,"what":"admitted","movement":{{"hold":10}}}}]}}"#
        );
        let job: Job = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&job).unwrap(), text);
        let least = r#"{"attempts":[{"no":1,"state":"queued","books":{"held":0,"charged":0,"waived":0}}]}"#;
        assert_eq!(serde_json::to_string(&Job::queued()).unwrap(), least);
    }

    #[test]
    fn every_state_of_format_1_is_carried_over() {
        let fault = json!({"code": "busy", "message": "later"});
        for (state, expected) in [
            (json!({"state": "queued"}), "queued"),
            (json!({"state": "submitting", "may_have_run": true, "sends": 2, "fault": fault}), "submitting"),
            (json!({"state": "running", "task": "t"}), "running#t"),
            (json!({"state": "fetching", "task": "t", "urls": ["u"]}), "fetching#t"),
            (json!({"state": "succeeded", "task": "t", "files": []}), "succeeded#t"),
            (json!({"state": "failed", "fault": fault, "task": "t"}), "failed#t"),
            (json!({"state": "failed", "fault": fault}), "failed"),
            (json!({"state": "canceled", "task": "t", "fault": fault}), "canceled#t"),
            (json!({"state": "canceled"}), "canceled"),
            (json!({"state": "expired"}), "expired"),
            (json!({"state": "in_doubt", "fault": fault}), "in_doubt"),
        ] {
            let job = read(&resubmitted(2, &state, "open"));
            assert_eq!(told(&job), format!("1 running#other 0+10, 2! {expected} 3+4"));
            assert_eq!(serde_json::to_value(job.state()).unwrap(), state);
            // Stored anew it is of format 2, and both that and what is shown read back as the same job.
            let stored = serde_json::to_value(&job).unwrap();
            assert!(stored.get("attempts").is_some() && stored.get("attempt").is_none(), "{stored}");
            assert_eq!(read(&stored), job);
            assert_eq!(read(&serde_json::to_value(RecordView::of(&job)).unwrap()), job);
        }
    }

    #[test]
    fn what_people_see_has_the_names_of_format_1() {
        let record = resubmitted(2, &json!({"state": "running", "task": "t"}), "succeeded");
        let mut shown = serde_json::to_value(RecordView::of(&read(&record))).unwrap();
        let attempts = shown.as_object_mut().unwrap().remove("attempts").unwrap();
        assert_eq!(shown, record);
        assert_eq!(attempts[0]["state"], "fetching");
        assert_eq!(attempts[1]["no"], 2);
    }

    #[test]
    fn tasks_beside_the_present_one_are_attempts() {
        let running = json!({"state": "running", "task": "t"});
        for (watch, expected) in
            [("open", "running"), ("succeeded", "fetching"), ("over", "failed"), ("in_doubt", "in_doubt")]
        {
            let job = read(&resubmitted(2, &running, watch));
            assert_eq!(told(&job), format!("1 {expected}#other 0+10, 2! running#t 3+4"));
            assert_eq!(job.resubmitted_attempts().count(), 1);
            assert!(!job.is_over());
        }
        let earlier = read(&resubmitted(1, &running, "open"));
        assert_eq!(told(&earlier), "1! running#t 3+4, 2 running#other 0+10");
        assert_eq!(earlier.newest_attempt(), AttemptNo(2));
        assert_eq!(read(&serde_json::to_value(&earlier).unwrap()), earlier);
    }

    #[test]
    fn a_job_that_gets_no_further_attempt_stays_so_and_older_records_tell_of_none() {
        let attempts = json!([{"no": 1, "state": "running", "task": "t", "books": {}}]);
        let job = read(&json!({"attempts": attempts}));
        assert!(!job.has_no_more_attempts());
        assert!(serde_json::to_value(&job).unwrap().get("no_more_attempts").is_none());
        let canceled = read(&json!({"attempts": attempts, "no_more_attempts": true}));
        assert!(canceled.has_no_more_attempts());
        assert_eq!(read(&serde_json::to_value(&canceled).unwrap()), canceled);
    }

    #[test]
    fn what_is_of_neither_format_is_refused() {
        let refused = |record: Value| serde_json::from_value::<Job>(record).unwrap_err().to_string();
        assert_eq!(refused(json!({})), "missing field `attempt`");
        assert_eq!(refused(json!({"attempt": 1})), "missing field `state`");
        assert_eq!(refused(json!({"attempt": 1, "state": "running"})), "missing field `task`");
        let attempt = |no: u32| json!({"no": no, "state": "queued", "books": {}});
        let two = json!([attempt(2), attempt(1)]);
        assert_eq!(refused(json!({"attempts": two})), "its attempts are not in the order of their numbers");
        for (state, missing) in [
            (json!({"state": "submitting", "sends": 1}), "may_have_run"),
            (json!({"state": "submitting", "may_have_run": true}), "sends"),
            (json!({"state": "running"}), "task"),
            (json!({"state": "fetching", "task": "t"}), "urls"),
            (json!({"state": "succeeded", "task": "t"}), "files"),
            (json!({"state": "failed", "task": "t"}), "fault"),
            (json!({"state": "in_doubt", "task": "t"}), "fault"),
            (json!({}), "state"),
        ] {
            let mut attempt = json!({"no": 1, "books": {}});
            attempt.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
            assert_eq!(refused(json!({"attempts": [attempt]})), format!("missing field `{missing}`"));
        }
        let kept = json!({"attempts": [attempt(1)], "kept": 2});
        assert_eq!(refused(kept), "it keeps attempt 2, and has none of that number");
    }
}
