//! What the service tells about a task, and what an answer to a request comes to.
//!
//! Wire shapes are `crate::api`'s; these are their meaning.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::credits::Credits;
use crate::domain::ids::TaskId;
use crate::domain::time::Millis;

/// A task's `status` (States and transitions).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStatus {
    /// Accepted, not begun.
    Pending,
    /// Being made.
    Processing,
    /// Final: the results can be downloaded.
    Success,
    /// Final: the credits were given back.
    Failed,
    /// Final: the credits were given back.
    Canceled,
    /// A word this version does not know. Treated as still running, since only the three final
    /// states are final.
    Other(String),
}

impl TaskStatus {
    /// Whether it does not change any more.
    pub fn is_final(&self) -> bool {
        matches!(self, TaskStatus::Success | TaskStatus::Failed | TaskStatus::Canceled)
    }

    /// Reads the wire's word.
    pub fn from_wire(text: &str) -> TaskStatus {
        match text {
            "pending" => TaskStatus::Pending,
            "processing" => TaskStatus::Processing,
            "success" => TaskStatus::Success,
            "failed" => TaskStatus::Failed,
            "canceled" => TaskStatus::Canceled,
            other => TaskStatus::Other(other.to_owned()),
        }
    }
}

/// A task as one answer showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReading {
    pub id: TaskId,
    /// Where it stands.
    pub status: TaskStatus,
    /// The model that ran it, which may be another than the one asked for.
    pub model: Option<String>,
    /// `options`: those it was priced with, defaults filled.
    pub options: Option<Map<String, Value>>,
    /// `costCredits`: charged; nothing where the answer does not say, as those of Shorts Studio may.
    pub charged: Option<Credits>,
    /// `waivedCredits`: covered by a plan allowance; nothing where the answer does not say.
    pub waived: Option<Credits>,
    /// `taskUrls`: empty until `success`.
    pub urls: Vec<String>,
    /// Why it failed, from `taskInfo` or `taskResult`.
    pub fault: Option<Fault>,
    /// What else its record says, where it says something.
    pub record: Option<Box<TaskRecord>>,
}

/// What a task's record says that decides nothing: kept for reconciling an invoice. Texts as the service wrote
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskRecord {
    /// `creditId`: the credit record of the charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit_id: Option<String>,
    /// `fairUseKey`: the slot of an allowance that it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_use_key: Option<String>,
    /// `createdAt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// `updatedAt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
    /// `taskId`: its name at the provider behind the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<String>,
    /// `visibility`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
}

/// Code of a fault of the object store: what it keeps from going on is waited for.
pub const STORE_FAULT: &str = "store";
/// Code of a fault of a disk here.
pub const DISK_FAULT: &str = "disk";

/// Something that went wrong, in the service's words or in ours. A pointer, since every state of a job has room for one and
/// few have one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fault(Box<FaultFields>);

/// What is said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Fault")]
pub struct FaultFields {
    /// The service's `error.type` or task `errorCode`, or one of our own: `timeout`, `connection`,
    /// `broken_answer`, `http_502`.
    pub code: String,
    /// What it said.
    pub message: String,
    /// `error.docs`: where the service explains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs: Option<String>,
}

impl Fault {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault(Box::new(FaultFields { code: code.into(), message: message.into(), docs: None }))
    }

    /// What was said.
    pub fn into_message(self) -> String {
        self.0.message
    }

    /// The same under another code.
    pub fn with_code(mut self, code: &str) -> Fault {
        code.clone_into(&mut self.code);
        self
    }

    /// Whether the service refused for want of credits (402).
    pub fn is_want_of_credits(&self) -> bool {
        matches!(self.code.as_str(), "insufficient_credits" | "http_402")
    }
}

impl Deref for Fault {
    type Target = FaultFields;

    fn deref(&self) -> &FaultFields {
        &self.0
    }
}

impl DerefMut for Fault {
    fn deref_mut(&mut self) -> &mut FaultFields {
        &mut self.0
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            f.write_str(&self.code)
        } else {
            write!(f, "{}: {}", self.code, self.message)
        }
    }
}

/// What a creating POST came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostAnswer {
    /// A task, new or the one this key made before.
    Task(TaskReading),
    /// An error that names a task: that task's own record decides (money rule 3).
    TaskNamed(TaskId, Fault),
    /// No task, and the same request would be refused again.
    Refused(Fault),
    /// 401: no task; nothing works until the key does.
    Unauthorised(Fault),
    /// 402: no task; nothing that costs works until the balance does.
    OutOfCredits(Fault),
    /// Try again under the same key.
    Again {
        /// What happened.
        fault: Fault,
        /// How long to wait at least, where the answer says so.
        wait: Option<Millis>,
        /// Whether a task may exist all the same: a time-out, a lost connection, a broken answer.
        may_have_run: bool,
    },
}

impl PostAnswer {
    /// This answer, where an earlier send under the same key may have made a task. Of the refusals only the service's
    /// own word on the request rules that out: a repeated key returns its task, whatever stands in the body
    /// (Idempotency, 2 and 3). A page on the way, or an endpoint that is away, says nothing about the send before.
    #[must_use]
    pub fn after_a_lost_one(self) -> PostAnswer {
        match self {
            PostAnswer::Refused(fault) if !is_word_on_the_request(&fault.code) => {
                PostAnswer::Again { fault, wait: None, may_have_run: false }
            }
            other => other,
        }
    }
}

/// Whether an error's type is one of the service's 400 (Errors): it speaks of the request itself.
pub fn is_word_on_the_request(code: &str) -> bool {
    matches!(code, "invalid_request" | "content_rejected")
}

impl ReadAnswer {
    /// This answer to a question for the task `asked`: the record of another task is not taken as its
    /// answer.
    #[must_use]
    pub fn about(self, asked: &TaskId) -> ReadAnswer {
        match self {
            ReadAnswer::Task(reading) if !reading.id.0.eq_ignore_ascii_case(&asked.0) => {
                let text = format!("asked for task {asked}, the service answered with task {}", reading.id);
                ReadAnswer::Again { fault: Fault::new("broken_answer", text), wait: None }
            }
            // As it was given first, so that one task has one name.
            ReadAnswer::Task(reading) => ReadAnswer::Task(TaskReading { id: asked.clone(), ..reading }),
            other => other,
        }
    }
}

/// What reading a task came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadAnswer {
    /// Its record.
    Task(TaskReading),
    /// 404: the service does not know it.
    Missing(Fault),
    /// 401: nothing works until the key does.
    Unauthorised(Fault),
    /// No answer that says anything about the task.
    Again {
        /// What happened.
        fault: Fault,
        /// How long to wait at least, where the answer says so.
        wait: Option<Millis>,
    },
}
