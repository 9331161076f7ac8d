//! The labels of metrics, and the few values that each may have.

use prometheus_client::encoding::EncodeLabelSet;

use crate::domain::request::Kind;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer};

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// A creating POST.
    Create(Kind),
    /// A poll.
    Task,
    /// The balance.
    Credits,
    /// A download of a result.
    Result,
    /// A file that is put into an object store.
    Store,
}

impl Endpoint {
    /// Every endpoint.
    pub fn all() -> impl Iterator<Item = Endpoint> {
        let others = [Endpoint::Task, Endpoint::Credits, Endpoint::Result, Endpoint::Store];
        Kind::ALL.into_iter().map(Endpoint::Create).chain(others)
    }

    /// The label's value: for the service's endpoints the last part of their path.
    pub fn name(self) -> &'static str {
        match self {
            Endpoint::Create(kind) => kind.endpoint().rsplit('/').next().unwrap_or_default(),
            Endpoint::Task => "tasks",
            Endpoint::Credits => "credits",
            Endpoint::Result => "results",
            Endpoint::Store => "store",
        }
    }
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The response that was asked for.
    Ok,
    /// An error that names a task.
    ErrorWithTask,
    /// Refused for good.
    Refused,
    /// 401.
    Unauthorised,
    /// 402.
    OutOfCredits,
    /// 429.
    RateLimited,
    /// The service does not know the task.
    Missing,
    /// No answer in time.
    Timeout,
    /// No connection, or one that broke.
    Connection,
    /// An answer that cannot be read.
    Broken,
    /// Any other error.
    Error,
}

impl Answer {
    /// Every class of answers.
    pub const ALL: [Answer; 11] = [
        Answer::Ok,
        Answer::ErrorWithTask,
        Answer::Refused,
        Answer::Unauthorised,
        Answer::OutOfCredits,
        Answer::RateLimited,
        Answer::Missing,
        Answer::Timeout,
        Answer::Connection,
        Answer::Broken,
        Answer::Error,
    ];

    /// The label's value.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Ok => "ok",
            Answer::ErrorWithTask => "error_with_task",
            Answer::Refused => "refused",
            Answer::Unauthorised => "unauthorised",
            Answer::OutOfCredits => "out_of_credits",
            Answer::RateLimited => "rate_limited",
            Answer::Missing => "missing",
            Answer::Timeout => "timeout",
            Answer::Connection => "connection",
            Answer::Broken => "broken_answer",
            Answer::Error => "error",
        }
    }

    /// Outcome of a creating POST.
    pub fn of_post(answer: &PostAnswer) -> Answer {
        match answer {
            PostAnswer::Task(_) => Answer::Ok,
            PostAnswer::TaskNamed(..) => Answer::ErrorWithTask,
            PostAnswer::Refused(_) => Answer::Refused,
            PostAnswer::Unauthorised(_) => Answer::Unauthorised,
            PostAnswer::OutOfCredits(_) => Answer::OutOfCredits,
            PostAnswer::Again { fault, .. } => Answer::of_fault(fault),
        }
    }

    /// Outcome of a poll.
    pub fn of_read(answer: &ReadAnswer) -> Answer {
        match answer {
            ReadAnswer::Task(_) => Answer::Ok,
            ReadAnswer::Missing(_) => Answer::Missing,
            ReadAnswer::Unauthorised(_) => Answer::Unauthorised,
            ReadAnswer::Again { fault, .. } => Answer::of_fault(fault),
        }
    }

    fn of_fault(fault: &Fault) -> Answer {
        match fault.code.as_str() {
            "timeout" => Answer::Timeout,
            "connection" => Answer::Connection,
            "broken_answer" => Answer::Broken,
            "http_429" | "rate_limited" => Answer::RateLimited,
            _ => Answer::Error,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BuildLabels {
    pub(super) version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct JobLabels {
    pub(super) state: &'static str,
    pub(super) kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BudgetLabel {
    pub(super) budget: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReasonLabel {
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndpointLabel {
    pub(super) endpoint: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    endpoint: &'static str,
    answer: &'static str,
}

impl RequestLabels {
    pub(super) fn new(endpoint: Endpoint, answer: Answer) -> RequestLabels {
        RequestLabels { endpoint: endpoint.name(), answer: answer.name() }
    }
}
