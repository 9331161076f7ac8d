//! The requests about reviews and their responses. Fields may be added, not renamed.

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::ids::BatchName;
use crate::domain::review::{BY_MAX_CHARS, NOTE_MAX_CHARS, ReviewAction};
use crate::ingest::another_take::TakeOrder;

/// Decisions that one request makes, at most.
pub const DECISIONS_MAX: usize = 100;

/// Asks for outputs that wait for a decision.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewRequest {
    /// The batch; none means all that are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
    /// Those that are decided, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Only those behind the job of the batch with this `seq`: a further page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// So many at most, of each batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Decides about outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecideRequest {
    /// At most [`DECISIONS_MAX`], recorded in their order.
    pub decisions: Vec<DecisionRequest>,
    /// Who decides; `api` where nobody is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What is decided about one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// The job's label, `BATCH/LABEL`, or the beginning of its identity.
    pub job: String,
    /// `approve`, `reject`, `pick` or `withdraw`.
    pub decision: ReviewAction,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// SHA-256 of each output that was looked at: if they are others by now, nothing is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Vec<String>>,
}

impl DecideRequest {
    /// Whether it can be carried out.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.decisions.len() > DECISIONS_MAX {
            let found = self.decisions.len();
            return Err(format!("{found} decisions in one request; at most {DECISIONS_MAX} are accepted"));
        }
        let is_bad = |by: &String| {
            by.trim().is_empty() || by.chars().count() > BY_MAX_CHARS || by.contains(char::is_control)
        };
        if self.by.as_ref().is_some_and(is_bad) {
            return Err(format!("by: must be a name of at most {BY_MAX_CHARS} characters on one line"));
        }
        let is_long = |decision: &DecisionRequest| {
            decision.note.as_ref().is_some_and(|note| note.chars().count() > NOTE_MAX_CHARS)
        };
        match self.decisions.iter().find(|decision| is_long(decision)) {
            Some(DecisionRequest { job, .. }) => {
                Err(format!("{job}: note: at most {NOTE_MAX_CHARS} characters are accepted"))
            }
            None => Ok(()),
        }
    }
}

/// Asks for another take of a job's row. Without `take` and `price_credits` it only says which take that would be, and what
/// it costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnotherTakeRequest {
    /// The job's label, `BATCH/LABEL`, or the beginning of its identity: any take of the row that succeeded.
    pub job: String,
    /// Which take is bought, from 1: one that the batch has is not bought again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<u32>,
    /// The price that was shown: where it is higher by now, nothing is bought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_credits: Option<u64>,
}

impl AnotherTakeRequest {
    /// What is bought; nothing where that is only asked.
    ///
    /// # Errors
    /// What is missing.
    pub fn order(&self) -> Result<Option<TakeOrder>, String> {
        match (self.take, self.price_credits) {
            (None, None) => Ok(None),
            (Some(take), Some(price)) if take > 0 => Ok(Some(TakeOrder { take, price: Credits(price) })),
            (Some(_), Some(_)) => Err("take: found 0, expected the number of a take, from 1".to_owned()),
            (Some(_), None) => Err("price_credits: missing; give the price that was shown".to_owned()),
            (None, Some(_)) => Err("take: missing; give the number of the take that was shown".to_owned()),
        }
    }
}

/// What came of decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// One by one, in their order.
    pub decisions: Vec<DecisionOutcome>,
    /// The batches that they were about.
    pub batches: Vec<BatchReview>,
}

/// What came of one decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionOutcome {
    /// The job as it was named.
    pub job: String,
    /// `BATCH/LABEL` of the job, where one was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether anything changed: what holds already is no change.
    pub changed: bool,
    /// Other takes of its row that were decided with it.
    #[serde(default)]
    pub others: u32,
    /// Why nothing was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// How a batch stands after decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchReview {
    /// The batch.
    pub batch: BatchName,
    /// Outputs of it that wait for a decision.
    pub waiting_for_review: u32,
    /// Nothing of it is left to be done or decided.
    pub done: bool,
}
