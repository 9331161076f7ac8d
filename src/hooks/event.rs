//! The event that hooks get: one JSON object, the same on a command's standard input and in a webhook's body.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::domain::credits::Credits;
use crate::domain::hex::hex;
use crate::domain::ids::BatchName;
use crate::domain::pilot::Pilot;
use crate::domain::review::Verdict;
use crate::domain::time::Timestamp;
use crate::store::{BatchRecord, Ended};

/// A batch is done, its pilot is, all of its jobs have ended and outputs of it wait for a person's decision, or all that
/// is left of it waits for rows that a person has to see to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchDone {
    pub batch: BatchName,
    /// Identity of the event: derived from the batch and its counts, so that it is sent once, and a receiver recognises a
    /// repetition.
    pub id: String,
    body: String,
}

/// Scripts rely on the names: fields may be added, not renamed.
#[derive(Serialize)]
struct Message<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    id: &'a str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    batch: &'a BatchName,
    jobs: u32,
    states: Ended,
    /// The same with the names that plans and receipts use.
    verdicts: Verdicts,
    /// Jobs whose outputs wait for a person's decision.
    waiting_for_review: u32,
    /// How many jobs were decided about, and how; nothing where none was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    decisions: &'a BTreeMap<Verdict, u32>,
    /// What waits for a person to continue, and what was done before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pilot: Option<Pilot>,
    /// Rows of the last manifest that were refused.
    refused_rows: u32,
    planned_credits: Credits,
    charged_credits: Credits,
    waived_credits: Credits,
    refunded_credits: Credits,
    output: &'a Path,
    results: PathBuf,
}

#[derive(Serialize)]
struct Verdicts {
    done: u32,
    failed: u32,
    in_doubt: u32,
}

impl Verdicts {
    fn of(ended: Ended) -> Verdicts {
        let failed = ended.failed + ended.canceled + ended.expired;
        Verdicts { done: ended.succeeded, failed, in_doubt: ended.in_doubt }
    }
}

impl BatchDone {
    /// The end of a batch, as its record shows it. `output` is the batch's output folder, which is told as a path from
    /// the root: a hook runs elsewhere. `decisions` are how many of its jobs were decided about, and how.
    pub fn of(
        batch: &BatchRecord,
        decisions: &BTreeMap<Verdict, u32>,
        output: &Path,
        now: Timestamp,
    ) -> BatchDone {
        BatchDone::new(batch, false, decisions, output, now)
    }

    /// All that is left of a batch waits for rows that a person has to see to. `output` as for [`BatchDone::of`].
    pub fn waiting(
        batch: &BatchRecord,
        decisions: &BTreeMap<Verdict, u32>,
        output: &Path,
        now: Timestamp,
    ) -> BatchDone {
        BatchDone::new(batch, true, decisions, output, now)
    }

    fn new(
        batch: &BatchRecord,
        waits_for_inputs: bool,
        decisions: &BTreeMap<Verdict, u32>,
        output: &Path,
        now: Timestamp,
    ) -> BatchDone {
        let id = id(batch, waits_for_inputs);
        let output = &std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
        let message = Message {
            kind: match () {
                () if batch.waits_for_review() => "batch.review",
                () if waits_for_inputs => "batch.waiting",
                () if batch.waits_after_pilot() => "batch.pilot",
                () => "batch.done",
            },
            timestamp: now.to_string(),
            id: &id,
            data: Data {
                batch: &batch.name,
                jobs: batch.rows,
                states: batch.ended,
                verdicts: Verdicts::of(batch.ended),
                waiting_for_review: batch.unreviewed,
                decisions,
                pilot: batch.open_pilot(),
                refused_rows: batch.refused_rows,
                planned_credits: batch.planned_credits(),
                charged_credits: batch.totals.spent,
                waived_credits: batch.totals.waived,
                refunded_credits: batch.totals.refunded,
                output,
                results: output.join("results.jsonl"),
            },
        };
        // Plain structs with string keys always print, unless a path is no text: then without paths.
        let body = serde_json::to_string(&message).unwrap_or_else(|_| {
            let data = Data { output: Path::new(""), results: PathBuf::new(), ..message.data };
            serde_json::to_string(&Message { data, ..message }).unwrap_or_default()
        });
        BatchDone { batch: batch.name.clone(), id, body }
    }

    /// The JSON.
    pub fn body(&self) -> &str {
        &self.body
    }
}

/// A later end of the batch (jobs were added, or ended ones were taken up again) differs in counts, in credits or in how many
/// were taken up; a batch of the same name in another state differs in its time of creation.
fn id(batch: &BatchRecord, waits_for_inputs: bool) -> String {
    let BatchRecord { no, name, created, rows, ended, totals, .. } = batch;
    let Ended { succeeded, failed, expired, in_doubt, .. } = ended;
    let canceled = ended.canceled + ended.replaced;
    let review = match (batch.unreviewed, batch.decided) {
        (0, 0) => String::new(),
        (unreviewed, decided) => format!(" review {unreviewed} {decided}"),
    };
    let waiting = if waits_for_inputs { " waiting" } else { "" };
    let pilot = batch.open_pilot().map(|pilot| format!(" pilot {}", pilot.jobs)).unwrap_or_default();
    let again = if batch.reopened > 0 { format!(" again {}", batch.reopened) } else { String::new() };
    let text = format!(
        "{} {name} {} {rows} {succeeded} {failed} {canceled} {expired} {in_doubt} {} {} {}{review}{pilot}{waiting}{again}",
        no.0, created.0, totals.spent.0, totals.waived.0, totals.refunded.0
    );
    format!("msg_{}", short_hash(&text))
}

/// Half of a text's SHA-256, in hexadecimal.
pub(super) fn short_hash(text: &str) -> String {
    hex(&Sha256::digest(text)[..16])
}
