//! Which batches `status` and lists of jobs are about: all that are not done, and how many of those that have finished.

use crate::domain::ids::BatchName;
use crate::engine::engine_client::EngineClient;
use crate::engine::scheduler::BatchOverview;
use crate::server::handlers::HandlerError;
use crate::server::protocol::{BatchStatus, Status, StatusRequest};
use crate::store::BatchRecord;

/// Finished batches that a status shows unless it is asked for all: those that finished last.
const FINISHED_SHOWN: usize = 20;

/// Every batch in numbers, or the one called so.
///
/// # Errors
/// [`HandlerError`].
pub(super) async fn status(engine: &EngineClient, request: &StatusRequest) -> Result<Status, HandlerError> {
    let batch = request.batch.as_ref();
    let finished_max = if request.all { usize::MAX } else { FINISHED_SHOWN };
    let found = engine.batch_snapshots(batch, finished_max).await?;
    let of = |(record, overview): &(BatchRecord, BatchOverview)| {
        BatchStatus::new(record, overview).with_process(engine.works())
    };
    let batches = found.iter().map(of).collect();
    let not_listed = not_listed(engine, batch, found.iter().map(|(record, _)| record));
    Ok(Status { batches, not_listed, transfers: None })
}

/// The batches that a list is about, and how many finished ones it leaves out.
///
/// # Errors
/// [`HandlerError`].
pub(super) async fn listed(
    engine: &EngineClient,
    batch: Option<&BatchName>,
) -> Result<(Vec<BatchRecord>, u64), HandlerError> {
    let batches = engine.batches(batch).await?;
    let not_listed = not_listed(engine, batch, batches.iter());
    Ok((batches, not_listed))
}

/// How many finished batches a list leaves out. One that is named is there.
fn not_listed<'a>(
    engine: &EngineClient,
    batch: Option<&BatchName>,
    listed: impl Iterator<Item = &'a BatchRecord>,
) -> u64 {
    if batch.is_some() {
        return 0;
    }
    let listed = listed.filter(|record| record.is_done()).count() as u64;
    engine.store().finished_count().saturating_sub(listed)
}
