//! What comes next for a job, in the words of `explain`: when it goes on by itself, and what helps once it has ended.

use crate::domain::job::{Attempt, Job, JobSpec, State};
use crate::domain::remedy::{Remedy, missed_its_deadline, nothing_to_download, remedy, with_other_fields};
use crate::domain::time::Timestamp;
use crate::engine::scheduler::{PlannedStep, WaitReason};

/// When a job goes on that waits after something did not work, or was asked to wait; nothing where it waits for another
/// reason. `overdue` is added where its task may run.
pub(super) fn next_of_waiting(
    spec: &JobSpec,
    job: &Job,
    planned: &PlannedStep,
    overdue: &str,
) -> Option<String> {
    let PlannedStep { at, reason } = planned;
    let why = |fault: &'static str| match reason {
        WaitReason::Usual => None,
        WaitReason::Fault => Some(fault),
        WaitReason::ServiceAsked => Some("the service asked to wait"),
        WaitReason::ResultHostAsked => Some("the result host asked to wait"),
    };
    match job.state() {
        State::Submitting { .. } if !spec.order.kind.is_keyed() => {
            let why = why("its request was turned away")?;
            Some(format!("{why}; its request is sent again at {at}"))
        }
        State::Submitting { may_have_run, .. } => {
            let why = why("its request had no usable answer")?;
            let again = format!("{why}; its request is repeated under the same key at {at}");
            Some(if *may_have_run { format!("{again}; it cannot be charged twice.{overdue}") } else { again })
        }
        State::Running { .. } => {
            let why = why("its task could not be read")?;
            Some(format!("{why}; its task is polled again at {at}.{overdue}"))
        }
        State::Fetching { .. } => {
            let why = why("its outputs could not be downloaded")?;
            Some(format!("{why}; its download is tried again at {at}"))
        }
        _ => None,
    }
}

/// When a queued job is sent that nothing holds back.
pub(super) fn sent_when(planned: Option<&PlannedStep>) -> String {
    let sent = "it will be sent when a slot is free and the budgets allow";
    match planned {
        None => sent.to_owned(),
        Some(PlannedStep { at, reason: WaitReason::ServiceAsked }) => {
            format!("the service asked to wait; {sent}, not before {at}")
        }
        Some(PlannedStep { at, .. }) => format!("{sent}, not before {at}"),
    }
}

/// What comes next for a job that has ended while the task of another attempt has not.
pub(super) fn next_of_watched(job: &Job, watched: &Attempt, name: &str) -> String {
    let no = watched.no().0;
    let until = if job.has_succeeded() {
        "its charge is known"
    } else {
        "it ends; its outputs are kept if it succeeds"
    };
    format!(
        "the task of attempt {no} has not ended, and is polled by a daemon or a run until {until}. To end that: callsheet \
         resolve {name} --attempt {no} --charged N or --not-charged, as the account shows"
    )
}

/// The same of one of which another attempt is in doubt.
pub(super) fn next_of_doubt_beside(doubt: &Attempt, name: &str) -> String {
    let no = doubt.no().0;
    format!(
        "attempt {no} is in doubt: check the account and record the charge: callsheet resolve {name} --attempt {no} --charged \
         N, or --not-charged; until then its credits count as spent"
    )
}

/// The same of a job that has ended without outputs; `name` is what commands call it, and its batch expires at `expires`.
pub(super) fn next_of_failed(spec: &JobSpec, job: &Job, name: &str, expires: Option<Timestamp>) -> String {
    if let State::Failed { fault, .. } = job.state() {
        match remedy(job) {
            None | Some(Remedy::Retry) => {}
            Some(Remedy::Nothing) => return nothing_to_download(name, spec.order.kind),
            Some(Remedy::Download) => {
                return format!(
                    "it is paid for; callsheet download {name} tries to fetch its outputs again, free of charge"
                );
            }
            Some(Remedy::ChangeRow) => {
                return format!("nothing: it would be rejected again; {}", with_other_fields(name));
            }
            // Their errors say what helps.
            Some(_) => return format!("nothing: {}", fault.message),
        }
    }
    let is_keyed = spec.order.kind.is_keyed();
    // What was sent once does not expire.
    let expiry = expires.filter(|_| job.first_sent().is_none()).map_or_else(String::new, |at| {
        format!(
            "; its batch expires at {at}: after that, submit its manifest with a later policy.expires first"
        )
    });
    match job.state() {
        state if state.is_ended_by_record() => {
            format!("nothing; callsheet retry {name} makes another attempt, under a new key")
        }
        State::Expired if missed_its_deadline(&spec.order, job) => {
            "nothing: the deadline of its row passed before it was sent, and would end it again after a retry; to have it made, \
             add its row with another id"
                .to_owned()
        }
        State::Expired => format!(
            "nothing; submit its manifest with a later policy.expires, then callsheet retry {name} queues it again"
        ),
        State::Failed { task: Some(task), .. } if is_keyed => format!(
            "nothing; callsheet retry {name} queues it again, under the same key: as long as the service has task \
             {task}, that is its answer. To have it made anew, submit its row with another id"
        ),
        _ if is_keyed => format!("nothing; callsheet retry {name} queues it again, under the same key{expiry}"),
        _ if job.first_sent().is_some() => format!(
            "nothing; callsheet retry {name} sends it again. Its endpoint supports no key: if the request before was \
             received after all, both are charged"
        ),
        _ => format!("nothing; callsheet retry {name} queues it again{expiry}"),
    }
}
