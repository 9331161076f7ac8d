//! A job as it is taken up: by a new process, or from a state that was rebuilt or imported.

use crate::domain::job::lifecycle::history;
use crate::domain::job::{HistoryLine, Job, State};
use crate::domain::time::Timestamp;

/// A job as a new process finds it: a POST that was on its way when the last one ended may have made a task. One that
/// `needs_inputs` and had none was not sent.
pub fn resumed(mut job: Job, needs_inputs: bool) -> Job {
    if needs_inputs && job.present().inputs().is_empty() {
        return job;
    }
    if let State::Submitting { may_have_run, .. } = &mut job.present_mut().state {
        *may_have_run = true;
    }
    job
}

/// A job whose state was lost or carried elsewhere: a request that was on its way under a key goes back to the queue,
/// with its key and its hold, and what is queued may have been sent since. Without a key it stays as it is.
pub fn requeued(mut job: Job, keyed: bool, at: Timestamp) -> Job {
    let present = job.present_mut();
    match present.state {
        State::Queued => present.may_have_been_sent = true,
        State::Submitting { .. } if keyed => {
            (present.state, present.may_have_been_sent) = (State::Queued, true);
            let what = "the state was rebuilt; queued again under the same key, which may have been sent";
            let line = HistoryLine { at, attempt: present.no, what: what.into(), movement: None };
            history::push(&mut job.history, line);
        }
        _ => {}
    }
    job
}

/// The job as if nothing were known of an earlier request under its present key.
pub(in crate::domain) fn taken_for_unsent(mut job: Job) -> Job {
    job.present_mut().may_have_been_sent = false;
    job.may_have_gone_on = false;
    job
}
