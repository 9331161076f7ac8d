//! What moved credits: a line of the ledger.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::default_fields::is_default;
use crate::domain::ids::BatchName;
use crate::domain::ledger::Movement;

/// A line of the response to `LedgerRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// When.
    pub time: String,
    /// Whose batch.
    pub batch: BatchName,
    /// Which job, by its label.
    pub job: String,
    /// The job's identity: two versions of a row have the same label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job_id: String,
    /// Which attempt.
    pub attempt: u32,
    /// What moved.
    pub movement: Movement,
    /// The attempt's task; empty where it has none, and for attempts that are over: `explain` tells theirs.
    pub task_id: String,
    /// What the job generates.
    #[serde(default)]
    pub kind: String,
    /// The model that it ran on, else the one that its row names: as in the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The pipeline's own columns of its row.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Value>,
    /// Another version of its row is wanted: as in the results.
    #[serde(default, skip_serializing_if = "is_default")]
    pub superseded: bool,
}
