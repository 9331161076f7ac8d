//! Rows of a batch that a later manifest of it does not have. They stay wanted: the manifest may contain corrected rows only.
//! So do those that it has in a form that is not valid.

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::row_verdict::RowVerdict;

/// Rows that are listed; the rest are counted.
pub const LISTED_MAX: usize = 5;

/// A job whose row the manifest does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentRow {
    /// What it is called.
    pub id: String,
    /// Where it stands.
    pub verdict: RowVerdict,
    /// What it may still cost: the price of one that waits, the hold of one that is under way, 0 for one that is finished.
    pub unspent_credits: Credits,
    /// The manifest has its `id`, in a row that is not valid.
    #[serde(default, skip_serializing_if = "is_default")]
    pub not_valid: bool,
    /// What drops one that is not submitted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentRows {
    /// How many they are.
    pub jobs: u64,
    /// How many of them the manifest has in rows that are not valid.
    #[serde(default, skip_serializing_if = "is_default")]
    pub not_valid: u64,
    /// What they may still cost together.
    pub unspent_credits: Credits,
    /// The first of them, those that wait before the others.
    pub rows: Vec<AbsentRow>,
}
