//! Sending decisions to be recorded, from each command that takes some.

use crate::cli::client::StateClient;
use crate::cli::failure::Failure;
use crate::cli::terminal::say;
use crate::server::protocol::{DecideRequest, DecisionRequest, Decisions};
use crate::server::review_protocol::DECISIONS_MAX;

/// Has decisions recorded, some at a time.
pub(super) async fn decide(
    client: &StateClient,
    asked: &[DecisionRequest],
    by: &str,
) -> Result<Decisions, Failure> {
    let mut all = Decisions { decisions: Vec::new(), batches: Vec::new() };
    for part in parts(asked) {
        let request = DecideRequest { decisions: part.to_vec(), by: Some(by.to_owned()) };
        let Decisions { decisions, batches } = client.call(&request).await?;
        all.decisions.extend(decisions);
        for batch in batches {
            all.batches.retain(|known| known.batch != batch.batch);
            all.batches.push(batch);
        }
    }
    Ok(all)
}

/// Bytes of notes and names that one request carries, at most: its body is limited.
const PART_MAX_BYTES: usize = 16 * 1024;

/// Decisions that fit into one request, one such part after the other.
fn parts(mut asked: &[DecisionRequest]) -> Vec<&[DecisionRequest]> {
    let mut parts = Vec::new();
    while !asked.is_empty() {
        let mut bytes = 0;
        let fits = asked.iter().take(DECISIONS_MAX).take_while(|decision| {
            let sums = decision.sha256.iter().flatten().map(String::len).sum::<usize>();
            bytes += decision.job.len() + decision.note.as_ref().map_or(0, String::len) + sums;
            bytes <= PART_MAX_BYTES
        });
        let (part, rest) = asked.split_at(fits.count().max(1));
        parts.push(part);
        asked = rest;
    }
    parts
}

/// Says how the batches stand now.
pub(super) fn say_left(decided: &Decisions) {
    for batch in &decided.batches {
        let name = &batch.batch;
        match batch.waiting_for_review {
            0 if batch.done => say!("{name}: done, nothing is left to decide"),
            0 => say!("{name}: nothing waits for a decision now"),
            left => say!("{name}: {left} waiting for review: callsheet review {name}"),
        }
    }
}
