//! The command that helps a job which ended without outputs: a retry, where that does something.

use crate::domain::credit_hold::ABOVE_MAX;
use crate::domain::gone_input::INPUT_GONE;
use crate::domain::job::{Job, MADE_BEFORE, Order, RESOLVED, State};
use crate::domain::job_reference::{INPUT_LENGTH, INPUT_TOO_LONG};
use crate::domain::row_verdict::JobStanding;
use crate::domain::time::Timestamp;

/// What helps a job that failed, was canceled or expired, by its name as `BATCH/LABEL`, as it is typed. A retry queues no job again whose
/// request would be rejected again, or that is paid for.
pub fn retry_command(name: &str, job: &Job) -> String {
    if job.state().is_replaced() {
        return "another version of its row was wanted before it was sent; to want this one again, submit a manifest \
                with its text"
            .to_owned();
    }
    let code = match job.state() {
        State::Failed { fault, .. } => fault.code.as_str(),
        _ => "",
    };
    if let Some(nothing) = nothing_to_download(job) {
        return nothing.to_owned();
    }
    let is_for_good = JobStanding::of_job(job) == JobStanding::FailedForGood;
    if is_for_good && !job.books().charged.is_zero() {
        return format!("callsheet download {name}");
    }
    match code {
        ABOVE_MAX => format!("callsheet retry {name} --max-credits N"),
        INPUT_GONE => format!("do what its error says, then: callsheet retry {name}"),
        MADE_BEFORE => format!("move the file away that its error names, then: callsheet retry {name}"),
        _ if is_for_good || [INPUT_LENGTH, INPUT_TOO_LONG].contains(&code) => with_other_fields(name),
        _ => format!("callsheet retry {name}"),
    }
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

/// Why nothing can be downloaded of a job that was charged; nothing where something can.
pub fn nothing_to_download(job: &Job) -> Option<&'static str> {
    let is_resolved = matches!(job.state(), State::Failed { fault, task: None } if fault.code == RESOLVED);
    (is_resolved && !job.books().charged.is_zero())
        .then_some("it was resolved as charged, and no task of it is known: nothing can be downloaded")
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
    use crate::domain::job::{Books, DOWNLOAD_FAILED};
    use crate::domain::task::Fault;

    #[test]
    fn a_retry_is_named_where_it_queues_the_job_again() {
        let failed = |code: &str, charged| {
            let state = State::Failed { fault: Fault::new(code, "said so"), task: None };
            let books = Books { charged: Credits(charged), ..Books::default() };
            retry_command("b/gull", &Job::at(AttemptNo(1), state).with_books(books))
        };
        assert_eq!(failed("provider_unavailable", 0), "callsheet retry b/gull");
        assert_eq!(failed(ABOVE_MAX, 0), "callsheet retry b/gull --max-credits N");
        assert_eq!(failed(INPUT_GONE, 0), "do what its error says, then: callsheet retry b/gull");
        assert_eq!(failed(DOWNLOAD_FAILED, 8), "callsheet download b/gull");
        assert!(failed(RESOLVED, 8).ends_with("nothing can be downloaded"));
        for code in ["content_rejected", "invalid_input", INPUT_TOO_LONG] {
            assert_eq!(
                failed(code, 0),
                "change its row and submit the manifest again, or: callsheet retry b/gull --set FIELD=VALUE"
            );
        }
        let fault = Fault::new(crate::domain::row_versions::REPLACED, "said so");
        let replaced = State::Canceled { task: None, fault: Some(fault) };
        let told = retry_command("b/gull", &Job::at(AttemptNo(1), replaced));
        assert!(told.ends_with("submit a manifest with its text"), "{told}");
        assert_eq!(retry_command("b/gull", &Job::at(AttemptNo(1), State::Expired)), "callsheet retry b/gull");
    }
}
