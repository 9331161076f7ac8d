//! Where a job stands for the budget: what is still to be spent for it, and what is not.

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::job::{Job, State};
use crate::domain::job_state::JobState;
use crate::domain::remedy::remedy_for;
use crate::domain::row_versions::REPLACED;

/// Where a job that its batch has already stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStanding {
    /// Accepted, and nothing that was sent for it counts: its price is still to be spent.
    Waiting,
    /// The same of one that may have been sent by a state that is gone.
    PerhapsSent,
    /// A request for it is on its way, or its task is running or being downloaded: its hold is set aside or charged.
    Running,
    /// It may have been charged, and a person has to tell.
    InDoubt,
    /// Failed; `retry` would buy it again.
    Failed,
    /// Canceled, so that it is not wanted any more; `retry` would buy it again.
    Canceled,
    /// Expired before it was sent; `retry` would buy it unless its time is over.
    Expired,
    /// Failed in a way that `retry` does not take up: unchanged it would be refused again, or it is paid for and
    /// only was not downloaded.
    FailedForGood,
    /// Its outputs are there.
    Done,
}

impl JobStanding {
    /// Whether it waits in the queue.
    pub fn waits(self) -> bool {
        matches!(self, JobStanding::Waiting | JobStanding::PerhapsSent)
    }

    /// By the name of a job's state, what is charged for it, the code of what made it fail, and whether links to inputs
    /// were found for it.
    pub fn of(state: JobState, charged: Credits, fault_code: Option<&str>, has_inputs: bool) -> JobStanding {
        // It is queued again once its version of the row is wanted again.
        if state == JobState::Canceled && fault_code == Some(REPLACED) {
            return JobStanding::Waiting;
        }
        let is_retried =
            || remedy_for(fault_code.unwrap_or_default(), !charged.is_zero(), has_inputs).is_retry();
        match state {
            JobState::Queued => JobStanding::Waiting,
            JobState::Submitting | JobState::Running | JobState::Fetching => JobStanding::Running,
            JobState::Succeeded => JobStanding::Done,
            JobState::InDoubt => JobStanding::InDoubt,
            JobState::Failed if is_retried() => JobStanding::Failed,
            JobState::Failed => JobStanding::FailedForGood,
            JobState::Canceled => JobStanding::Canceled,
            JobState::Expired => JobStanding::Expired,
        }
    }

    /// Where a job stands.
    pub fn of_job(job: &Job) -> JobStanding {
        if matches!(job.state(), State::Queued) && job.may_have_been_sent() {
            return JobStanding::PerhapsSent;
        }
        let code = match job.state() {
            State::Failed { fault, .. } | State::Canceled { fault: Some(fault), .. } => {
                Some(fault.code.as_str())
            }
            _ => None,
        };
        let has_inputs = !job.present().inputs().is_empty();
        JobStanding::of(job.state().job_state(), job.books().charged, code, has_inputs)
    }
}

/// What becomes of a row's job: the same words in plans, receipts and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowVerdict {
    /// The batch does not have it: it would be bought.
    New,
    /// The batch has its `id`, and another request under it: it would be bought.
    Changed,
    /// The batch has it, and it was not sent yet.
    Waiting,
    /// It is at the service, or on its way.
    Running,
    /// Whether it was charged, a person has to tell.
    InDoubt,
    /// Failed, canceled or expired.
    Failed,
    /// Its outputs are there.
    Done,
    /// It wants nothing that can be sent.
    Invalid,
}

impl RowVerdict {
    /// All of them, in the order in which they are shown.
    pub const ALL: [RowVerdict; 8] = [
        RowVerdict::New,
        RowVerdict::Changed,
        RowVerdict::Waiting,
        RowVerdict::Running,
        RowVerdict::InDoubt,
        RowVerdict::Failed,
        RowVerdict::Done,
        RowVerdict::Invalid,
    ];

    /// The name in everything shown.
    pub fn name(self) -> &'static str {
        match self {
            RowVerdict::New => "new",
            RowVerdict::Changed => "changed",
            RowVerdict::Waiting => "waiting",
            RowVerdict::Running => "running",
            RowVerdict::InDoubt => "in_doubt",
            RowVerdict::Failed => "failed",
            RowVerdict::Done => "done",
            RowVerdict::Invalid => "invalid",
        }
    }

    /// Whether its price is still to be spent.
    pub fn is_to_be_spent(self) -> bool {
        matches!(self, RowVerdict::New | RowVerdict::Changed | RowVerdict::Waiting)
    }
}

impl From<JobStanding> for RowVerdict {
    fn from(standing: JobStanding) -> RowVerdict {
        match standing {
            JobStanding::Waiting | JobStanding::PerhapsSent => RowVerdict::Waiting,
            JobStanding::Running => RowVerdict::Running,
            JobStanding::InDoubt => RowVerdict::InDoubt,
            JobStanding::Failed
            | JobStanding::Canceled
            | JobStanding::Expired
            | JobStanding::FailedForGood => RowVerdict::Failed,
            JobStanding::Done => RowVerdict::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_verdict() {
        let verdict = |state| RowVerdict::from(JobStanding::of(state, Credits::ZERO, None, false)).name();
        let found = JobState::ALL.map(verdict);
        let expected =
            ["waiting", "running", "running", "running", "done", "failed", "failed", "failed", "in_doubt"];
        assert_eq!(found, expected);
        let spent: Vec<&str> =
            RowVerdict::ALL.into_iter().filter(|v| v.is_to_be_spent()).map(RowVerdict::name).collect();
        assert_eq!(spent, ["new", "changed", "waiting"]);
    }

    #[test]
    fn a_retry_costs_only_where_it_would_buy() {
        let failed = |charged, code| JobStanding::of(JobState::Failed, Credits(charged), Some(code), false);
        assert_eq!(failed(0, "provider_unavailable"), JobStanding::Failed);
        assert_eq!(failed(0, "content_rejected"), JobStanding::FailedForGood);
        assert_eq!(failed(0, "invalid_input"), JobStanding::FailedForGood);
        let with_links = |code| JobStanding::of(JobState::Failed, Credits::ZERO, Some(code), true);
        assert_eq!(with_links("invalid_input"), JobStanding::Failed, "a retry sends other links");
        assert_eq!(with_links("content_rejected"), JobStanding::FailedForGood);
        assert_eq!(failed(8, "too_large"), JobStanding::FailedForGood);
        assert_eq!(JobStanding::of(JobState::Canceled, Credits::ZERO, None, false), JobStanding::Canceled);
    }
}
