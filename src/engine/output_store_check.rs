//! Asks the object store of outputs whether it answers, before anything is bought whose outputs go there.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::engine::output_store::OutputStore;
use crate::engine::scheduler::{Input, StoreCheckNo};

/// The first and the longest wait before a store that did not answer is asked again.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A check that takes longer is told.
const SLOW: Duration = Duration::from_secs(5);

/// A store that is being asked until it answers; no longer once this is gone.
#[derive(Debug)]
pub(super) struct OutputStoreCheck(JoinHandle<()>);

impl Drop for OutputStoreCheck {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// Begins to ask the store of the present dependencies. Nothing is sent until it answers.
    pub(super) fn check_output_store(&mut self) {
        let store = self.deps.as_ref().and_then(|deps| deps.outputs.clone());
        let no = self.scheduler.await_output_store(store.is_some());
        let sender = self.sender.clone();
        self.output_store_check = store.map(|store| OutputStoreCheck(tokio::spawn(ask(store, no, sender))));
    }
}

/// What a check comes to. One that takes long is told, once.
async fn answer_of<E>(check: impl Future<Output = Result<(), E>>, is_told: &mut bool) -> Result<(), E> {
    let mut check = std::pin::pin!(check);
    if let Ok(answer) = tokio::time::timeout(SLOW, &mut check).await {
        return answer;
    }
    if !std::mem::replace(is_told, true) {
        tracing::warn!("the object store of outputs has not answered yet, and nothing is sent until it does");
    }
    check.await
}

async fn ask(store: OutputStore, no: StoreCheckNo, sender: mpsc::Sender<Input>) {
    let (mut wait, longest) = WAITS;
    let mut is_told = false;
    while let Err(error) = answer_of(store.check(), &mut is_told).await {
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(%error, "outputs wait on disk for the object store, and nothing is sent until it answers");
        }
        if sender.send(Input::OutputStoreAnswers(no, false)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
    // The engine may have ended.
    let _ = sender.send(Input::OutputStoreAnswers(no, true)).await;
}
