//! Batches that are done: their results are written and whoever waits for them is told, at least once,
//! across restarts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::domain::ids::BatchNo;
use crate::engine::conductor::Wish;
use crate::engine::{self, EngineError, Glance, Handle};
use crate::output::landing::Landing;
use crate::store::{BatchRecord, Store};

/// Between two tries to write what cannot be written.
const PATIENCE: Duration = Duration::from_secs(30);

/// Watches for batches that are done.
#[derive(Debug)]
pub(super) struct Announcer {
    done: mpsc::UnboundedSender<BatchNo>,
}

impl Announcer {
    /// Begins with nothing to announce.
    pub(super) fn begin(store: Arc<Store>, handle: Handle, landing: Landing) -> Announcer {
        let (done, queue) = mpsc::unbounded_channel();
        tokio::spawn(announce_all(queue, store, handle, landing));
        Announcer { done }
    }

    /// Sees a turn of the engine.
    pub(super) fn observe(&self, glance: &Glance<'_>) {
        let mut seen: Vec<BatchNo> = glance.turn.ended.iter().map(|(_, record)| record.key.batch).collect();
        seen.dedup();
        for no in seen {
            if glance.conductor.batch(no).is_some_and(|batch| batch.is_done() && !batch.announced) {
                self.announce(no);
            }
        }
    }

    /// A batch is done.
    pub(super) fn announce(&self, no: BatchNo) {
        // The task lives as long as the process.
        let _ = self.done.send(no);
    }
}

async fn announce_all(
    mut queue: mpsc::UnboundedReceiver<BatchNo>,
    store: Arc<Store>,
    handle: Handle,
    landing: Landing,
) {
    while let Some(no) = queue.recv().await {
        while let Err(error) = announce(no, &store, &handle, &landing).await {
            if matches!(error, EngineError::Gone(_)) {
                return;
            }
            tracing::warn!(%error, "a batch is done and its results cannot be written; it is tried again");
            tokio::time::sleep(PATIENCE).await;
        }
    }
}

async fn announce(
    no: BatchNo,
    store: &Arc<Store>,
    handle: &Handle,
    landing: &Landing,
) -> Result<(), EngineError> {
    let Some(batch) = find(store, no)? else { return Ok(()) };
    // It may have been announced meanwhile, or taken up again.
    if batch.announced || !batch.is_done() {
        return Ok(());
    }
    let (inner, landing, record) = (store.clone(), landing.clone(), batch.clone());
    let write = move || engine::write_results(&inner, &landing, &record);
    let written = tokio::task::spawn_blocking(write).await;
    written.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    tracing::info!(batch = %batch.name, succeeded = batch.ended.succeeded, failed = batch.ended.failed, "done");
    handle.grant(Wish::Announced(no)).await?;
    Ok(())
}

fn find(store: &Store, no: BatchNo) -> Result<Option<BatchRecord>, EngineError> {
    Ok(store.batches()?.into_iter().find(|batch| batch.no == no))
}
