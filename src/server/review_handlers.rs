//! The answers to requests about reviews.

use std::collections::BTreeMap;
use std::io;

use axum::http::StatusCode;

use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchNo;
use crate::engine::engine_client::{EngineClient, Reopening};
use crate::engine::job_iter::JobIter;
use crate::engine::review::AskedDecision;
use crate::engine::{Target, blocking};
use crate::ingest::another_take::{self, AnotherTake, TakeError};
use crate::ingest::ingest_handle::IngestHandle;
use crate::output::decisions_csv::ReviewLine;
use crate::output::publish::OutputDir;
use crate::server::api_error::{ApiError, ingest_error};
use crate::server::handlers::{HandlerError, update_results};
use crate::server::protocol::{
    AnotherTakeRequest, DecideRequest, DecisionOutcome, DecisionRequest, Decisions, Refusal, ReviewRequest,
};
use crate::server::review_protocol::BatchReview;
use crate::store::{BatchRecord, Store};

/// Who decides where nobody is named.
const NOBODY: &str = "api";

/// Hands over the outputs of batches that wait for a decision, or all of them, as one line of JSON each, in manifest
/// order.
///
/// # Errors
/// [`HandlerError`]; what `sink` refuses ends it.
pub fn outputs(
    store: &Store,
    batches: &[BatchRecord],
    request: &ReviewRequest,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), HandlerError> {
    for batch in batches {
        // Nothing is read of a batch of which nothing waits.
        if !request.all && batch.unreviewed == 0 {
            continue;
        }
        let mut jobs = JobIter::open(store, batch)?;
        let mut left = request.limit.unwrap_or(u32::MAX);
        while left > 0
            && let Some((spec, record)) = jobs.next_job()?
        {
            if request.after.is_some_and(|after| spec.seq.0 <= after) {
                continue;
            }
            let is_superseded = jobs.versions().is_superseded(spec.seq);
            let line = ReviewLine::of(&batch.name, &spec, &record.job, is_superseded);
            let Some(line) = line.filter(|line| request.all || line.is_waiting()) else { continue };
            let mut text = serde_json::to_vec(&line).map_err(io::Error::from)?;
            text.push(b'\n');
            sink(&text)?;
            left -= 1;
        }
    }
    Ok(())
}

/// Plans or accepts another take of a job's row, one after the other: the second of two that ask for the same take finds it
/// there.
///
/// # Errors
/// [`ApiError`]; nothing was accepted then.
pub(super) async fn another_take(
    engine: &EngineClient,
    _alone: &Reopening,
    ingest: &IngestHandle,
    request: &AnotherTakeRequest,
) -> Result<AnotherTake, ApiError> {
    let order = request.order().map_err(ApiError::usage)?;
    let named = match engine.find(&request.job).await.map_err(HandlerError::from)? {
        Target::Job(named) => named,
        Target::Batch(batch) => {
            let message = format!("{} is a batch: name one of its jobs", batch.name);
            return Err(ApiError::usage(message));
        }
    };
    another_take::another_take(ingest, &named, order).await.map_err(|error| match error {
        TakeError::Refused { message, hint } => {
            ApiError(StatusCode::CONFLICT, Refusal { hint, ..Refusal::new(Exit::Usage, message) })
        }
        TakeError::Ingest(error) => ingest_error(&error),
    })
}

/// Takes decisions down.
///
/// # Errors
/// [`HandlerError`].
pub async fn decide(
    engine: &EngineClient,
    alone: &Reopening,
    output_dir: &OutputDir,
    request: DecideRequest,
) -> Result<Decisions, HandlerError> {
    let by = request.by.map(|by| by.trim().to_owned()).unwrap_or_else(|| NOBODY.to_owned());
    let names: Vec<String> = request.decisions.iter().map(|decision| decision.job.clone()).collect();
    let asked = |decision: DecisionRequest| {
        let note = decision.note.map(|note| note.trim().to_owned()).filter(|note| !note.is_empty());
        AskedDecision { job: decision.job, action: decision.decision, note, sha256: decision.sha256 }
    };
    let asked = request.decisions.into_iter().map(asked).collect();
    let decided = engine.review(alone, asked, &by).await?;
    let mut changed: BTreeMap<BatchNo, bool> = BTreeMap::new();
    let mut decisions = Vec::with_capacity(decided.len());
    for (job, decided) in names.into_iter().zip(decided) {
        if let Some((batch, ..)) = &decided.job {
            *changed.entry(batch.no).or_default() |= decided.is_changed;
        }
        let name = decided.job.map(|(batch, _, label)| format!("{}/{label}", batch.name));
        let (changed, others, refused) = (decided.is_changed, decided.others, decided.refused);
        decisions.push(DecisionOutcome { job, name, changed, others, refused });
    }
    let is_changed: Vec<BatchNo> = changed.iter().filter(|(_, is)| **is).map(|(no, _)| *no).collect();
    update_results(engine, output_dir, is_changed).await?;
    let store = engine.store().clone();
    let batches = blocking(move || {
        let mut batches = Vec::with_capacity(changed.len());
        for no in changed.into_keys() {
            let Some(batch) = store.batch(no)? else { continue };
            let (waiting_for_review, done) = (batch.unreviewed, batch.is_done());
            batches.push(BatchReview { batch: batch.name, waiting_for_review, done });
        }
        Ok::<_, HandlerError>(batches)
    })
    .await?;
    Ok(Decisions { decisions, batches })
}
