//! What helps a job which ended without outputs: the same for the commands, the live page and the gallery.

use crate::domain::credit_hold::ABOVE_MAX;
use crate::domain::gone_input::INPUT_GONE;
use crate::domain::job::{DOWNLOAD_FAILED, Job, MADE_BEFORE, Order, RESOLVED, State};
use crate::domain::job_reference::{INPUT_LENGTH, INPUT_TOO_LONG};
use crate::domain::request::Kind;
use crate::domain::retry_delay;
use crate::domain::time::Timestamp;

/// What helps a job that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// None of its own: it was resolved as charged, and no task of it is known. See [`nothing_to_download`].
    Nothing,
    /// It is paid for, and its outputs can be downloaded again.
    Download,
    /// It costs more than its limit: a retry with another limit.
    RaiseLimit,
    /// It was made under a state that is gone: a retry, once the file is moved away that its error names.
    MoveFileAway,
    /// An input is gone: a retry, once what its error says is done.
    RestoreInput,
    /// The length of an input does not suit: a length of its own.
    SetLength,
    /// The same request would be rejected again: other fields.
    ChangeRow,
    /// Another attempt.
    Retry,
}

impl Remedy {
    /// Whether a retry takes the job up: it leaves out what is paid for and what would be rejected again.
    pub fn is_retry(self) -> bool {
        !matches!(self, Remedy::Nothing | Remedy::Download | Remedy::ChangeRow)
    }
}

/// What helps a job that failed; nothing of any other.
pub fn remedy(job: &Job) -> Option<Remedy> {
    let State::Failed { fault, task } = job.state() else { return None };
    let is_charged = !job.books().charged.is_zero();
    if fault.code == RESOLVED && is_charged && task.is_none() {
        return Some(Remedy::Nothing);
    }
    Some(remedy_for(&fault.code, is_charged, !job.present().inputs().is_empty()))
}

/// What helps a job that failed with this code, as far as that tells: `has_inputs` where links to inputs were found for it.
pub fn remedy_for(code: &str, is_charged: bool, has_inputs: bool) -> Remedy {
    match code {
        DOWNLOAD_FAILED => Remedy::Download,
        _ if is_charged => Remedy::Download,
        ABOVE_MAX => Remedy::RaiseLimit,
        MADE_BEFORE => Remedy::MoveFileAway,
        INPUT_GONE => Remedy::RestoreInput,
        INPUT_LENGTH | INPUT_TOO_LONG => Remedy::SetLength,
        code if retry_delay::is_hopeless(code, has_inputs) => Remedy::ChangeRow,
        _ => Remedy::Retry,
    }
}

/// What helps a job that failed, was canceled or expired, as a command; `name` is what commands call it, as it is typed. A retry
/// queues no job again whose request would be rejected again, or that is paid for.
pub fn remedy_command(name: &str, kind: Kind, job: &Job) -> String {
    if job.state().is_replaced() {
        return "another version of its row was wanted before it was sent; to want this one again, submit a manifest \
                with its text"
            .to_owned();
    }
    match remedy(job) {
        Some(Remedy::Nothing) => nothing_to_download(name, kind),
        Some(Remedy::Download) => format!("callsheet download {name}"),
        Some(Remedy::RaiseLimit) => format!("callsheet retry {name} --max-credits N"),
        Some(Remedy::MoveFileAway) => {
            format!("move the file away that its error names, then: callsheet retry {name}")
        }
        Some(Remedy::RestoreInput) => format!("do what its error says, then: callsheet retry {name}"),
        Some(Remedy::SetLength | Remedy::ChangeRow) => with_other_fields(name),
        Some(Remedy::Retry) | None => format!("callsheet retry {name}"),
    }
}

/// Said of [`Remedy::Nothing`]; `name` is what commands call it.
pub fn nothing_to_download(name: &str, kind: Kind) -> String {
    let told = "it was resolved as charged, and no task of it is known";
    match kind.is_keyed() {
        true => format!("{told}: its outputs cannot be downloaded. {}", ask_under_its_key(name)),
        false => format!("{told}: nothing can be downloaded"),
    }
}

/// How a person has the outputs of a request after all whose answer was lost. What it was charged is then known by its task's
/// record, in place of what a person recorded.
pub fn ask_under_its_key(name: &str) -> String {
    format!(
        "To have them: callsheet resolve {name} --not-charged, then callsheet retry {name} sends the same request under the \
         same key, once the budgets and the balance cover its price: if a task was made under it, that is returned without a \
         second charge; if none was, it is bought"
    )
}

/// Whether a job could only expire: it was never sent, and the deadline of its row, an instant, has passed. One that may have
/// been sent by a state that is gone was perhaps sent in time.
pub fn could_only_expire(order: &Order, job: &Job, now: Timestamp) -> bool {
    let was_never_sent = job.first_sent().is_none() && !job.may_have_been_sent();
    was_never_sent && order.deadline.is_some_and(|deadline| deadline.has_passed(now))
}

/// Whether a job expired because the deadline of its row, an instant, had passed: a retry would end it again.
pub fn missed_its_deadline(order: &Order, job: &Job) -> bool {
    let ended = job.history().last().map(|line| line.at);
    let had_passed = order.deadline.zip(ended).is_some_and(|(deadline, ended)| deadline.has_passed(ended));
    had_passed && matches!(job.state(), State::Expired)
}

/// Under which keys a retry sends so many jobs: `each under its old key`.
pub fn keys_of_retry(jobs: u32, same_key: u32, without_key: u32) -> String {
    let new_key = jobs.saturating_sub(same_key + without_key);
    match (same_key, new_key, without_key) {
        (0, 0, _) => "without a key, since the endpoint supports none".to_owned(),
        (0, _, 0) => "each under a new key".to_owned(),
        (_, 0, 0) => "each under its old key".to_owned(),
        (same, _, 0) => format!("{same} of them under their old keys, the others under new keys"),
        (_, _, without) => format!(
            "{without} of them without a key, since their endpoint supports none, {same_key} under their old keys and {new_key} \
             under new keys"
        ),
    }
}

/// What helps a job whose request would be rejected again.
pub fn with_other_fields(name: &str) -> String {
    format!("change its row and submit the manifest again, or: callsheet retry {name} --set FIELD=VALUE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credits::Credits;
    use crate::domain::ids::AttemptNo;
    use crate::domain::job::Books;
    use crate::domain::row_verdict::JobStanding;
    use crate::domain::task::Fault;

    /// A retry leaves out what is paid for and what would be rejected again; so do all that count what it takes up.
    #[test]
    fn what_a_retry_takes_up_has_a_remedy_that_is_a_retry() {
        let codes = [
            "timeout",
            "content_rejected",
            "invalid_input",
            ABOVE_MAX,
            MADE_BEFORE,
            INPUT_GONE,
            INPUT_LENGTH,
            RESOLVED,
            DOWNLOAD_FAILED,
        ];
        for (code, charged) in codes.into_iter().flat_map(|code| [(code, 0), (code, 8)]) {
            let state = State::Failed { fault: Fault::new(code, "said so"), task: None };
            let books = Books { charged: Credits(charged), ..Books::default() };
            let job = Job::at(AttemptNo(1), state).with_books(books);
            let is_left_out = !remedy(&job).unwrap().is_retry();
            assert_eq!(
                JobStanding::of_job(&job) == JobStanding::FailedForGood,
                is_left_out,
                "{code} {charged}"
            );
        }
        // An allowance paid for it.
        let state = State::Failed { fault: Fault::new(DOWNLOAD_FAILED, "said so"), task: None };
        assert_eq!(remedy(&Job::at(AttemptNo(1), state)), Some(Remedy::Download));
    }

    #[test]
    fn a_retry_is_named_where_it_queues_the_job_again() {
        let failed = |code: &str, charged| {
            let state = State::Failed { fault: Fault::new(code, "said so"), task: None };
            let books = Books { charged: Credits(charged), ..Books::default() };
            remedy_command("b/gull", Kind::Video, &Job::at(AttemptNo(1), state).with_books(books))
        };
        assert_eq!(failed("provider_unavailable", 0), "callsheet retry b/gull");
        assert_eq!(failed(ABOVE_MAX, 0), "callsheet retry b/gull --max-credits N");
        assert_eq!(failed(INPUT_GONE, 0), "do what its error says, then: callsheet retry b/gull");
        assert_eq!(failed(DOWNLOAD_FAILED, 8), "callsheet download b/gull");
        assert!(failed(RESOLVED, 8).contains("resolve b/gull --not-charged, then callsheet retry b/gull"));
        let keyless = nothing_to_download("b/gull", Kind::ShortsStudio);
        assert!(keyless.ends_with("no task of it is known: nothing can be downloaded"), "{keyless}");
        for code in ["content_rejected", "invalid_input", INPUT_TOO_LONG] {
            assert_eq!(
                failed(code, 0),
                "change its row and submit the manifest again, or: callsheet retry b/gull --set FIELD=VALUE"
            );
        }
        let fault = Fault::new(crate::domain::row_versions::REPLACED, "said so");
        let replaced = State::Canceled { task: None, fault: Some(fault) };
        let told = remedy_command("b/gull", Kind::Video, &Job::at(AttemptNo(1), replaced));
        assert!(told.ends_with("submit a manifest with its text"), "{told}");
        assert_eq!(
            remedy_command("b/gull", Kind::Video, &Job::at(AttemptNo(1), State::Expired)),
            "callsheet retry b/gull"
        );
    }
}
