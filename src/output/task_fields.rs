//! What results and sidecars say of a task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::job::Job;
use crate::domain::json_object::JsonObject;
use crate::domain::task::TaskRecord;

/// What a task's record says, for reconciling an invoice: in `results.jsonl` and in the sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskFields {
    #[serde(flatten)]
    record: TaskRecord,
    /// The options that it ran with, defaults filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    options: Option<Map<String, Value>>,
}

impl TaskFields {
    /// What the record of a job's present task says, once it has ended; nothing where it was not kept.
    pub(super) fn of(job: &Job) -> Option<TaskFields> {
        let record = job.task_record()?.clone();
        Some(TaskFields { record, options: job.ran_options().map(JsonObject::fields) })
    }
}
