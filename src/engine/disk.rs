//! Disks: the state's and that of outputs, when they are full or refuse a file.

use std::time::Duration;

use tokio::sync::watch;

use crate::domain::ids::BatchName;
use crate::engine::engine_handle::Message;
use crate::engine::scheduler::Step;
use crate::engine::{Engine, EngineDeps, EngineError, MESSAGES_MAX, StepView, Stop, blocking};
use crate::output::publish::{PROBE_BYTES, is_disk_error, is_disk_full};
use crate::store::{Store, StoreError};

/// Between two looks at the disks.
pub(super) const DISK_INTERVAL: Duration = Duration::from_secs(5);

impl Engine {
    /// Waits until the state's disk takes a step that it refused, although the reserve was given up for it: others
    /// filled that, too. Answers that arrive meanwhile wait; nothing that was decided begins. Returns
    /// the commands that came in.
    pub(super) async fn wait_for_room(
        &mut self,
        mut refused: StoreError,
        step: &mut Step,
        stop: &mut watch::Receiver<Stop>,
        observe: &mut impl FnMut(&StepView<'_>),
    ) -> Result<Vec<Message>, EngineError> {
        tracing::warn!(error = %refused, "the state cannot be written; waiting for disk space");
        self.scheduler.set_disk_low(true);
        let nothing = Step::default();
        let mut looks = tokio::time::interval(DISK_INTERVAL);
        looks.tick().await;
        let mut waiting = Vec::new();
        loop {
            // It is alive.
            observe(&StepView { scheduler: &self.scheduler, step: &nothing });
            if *stop.borrow() != Stop::No {
                return Err(refused.into());
            }
            tokio::select! {
                _ = looks.tick() => match self.commit(step, Store::commit_again).await {
                    Ok(()) => {
                        tracing::info!("the state can be written again");
                        return Ok(waiting);
                    }
                    Err(error) if error.is_full() => refused = error,
                    Err(error) => return Err(error.into()),
                },
                Some(message) = self.messages.recv(), if waiting.len() < MESSAGES_MAX => waiting.push(message),
                Some(question) = self.questions.recv() => question.answer(&self.scheduler, self.clock.now()),
                changed = stop.changed() => if changed.is_err() {
                    return Err(refused.into());
                },
            }
        }
    }

    /// Whether the output folder may not be written to, its disk has less room than it must keep, or the state's disk none. One that cannot
    /// be asked is left to the write that fails; one that refused a file is asked to set its room aside, since
    /// free bytes are not all that a file needs: there are quotas, and file systems run out of inodes.
    pub(super) async fn disk_is_low(&self, deps: &EngineDeps) -> bool {
        // With no room at all nothing is begun, whatever may be used up.
        let min_free_bytes = deps.min_free_bytes.max(PROBE_BYTES);
        let refused_bytes = self.scheduler.refused_bytes();
        if !self.store.has_room() || deps.output_dir.free_bytes().is_some_and(|free| free < min_free_bytes) {
            return true;
        }
        if let Err(error) = deps.output_dir.check_rights() {
            if !self.scheduler.disk_is_low() {
                let path = deps.output_dir.root().display();
                tracing::warn!(%path, %error, "the output directory is not writable");
            }
            return true;
        }
        let Some(bytes) = refused_bytes else { return false };
        let output_dir = deps.output_dir.clone();
        blocking(move || output_dir.check_space(bytes)).await.is_err_and(|error| is_disk_error(&error))
    }

    /// Makes the folders of all unfinished batches and sweeps what a killed process left in them. False: the disk
    /// has no room for them, and they are made when there is some.
    pub(super) async fn prepare_outputs(&self, deps: &EngineDeps) -> Result<bool, EngineError> {
        let unfinished = self.scheduler.batches().filter(|batch| !batch.is_done());
        let names: Vec<BatchName> = unfinished.map(|batch| batch.name.clone()).collect();
        let output_dir = deps.output_dir.clone();
        let prepare = move || {
            names.into_iter().try_for_each(|name| {
                let path = output_dir.batch_dir(&name);
                output_dir.prepare(&name).map_err(|source| EngineError::Output { path, source })
            })
        };
        match blocking(prepare).await {
            Ok(()) => Ok(true),
            Err(EngineError::Output { path, source }) if is_disk_full(&source) => {
                tracing::warn!(path = %path.display(), error = %source, "the output disk is full");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the folder of a batch that came in, once that is durable: nothing lies on the output disk of which nobody
    /// knows. Where it fails the batch's downloads say so and are tried again: nothing that is under way has to end
    /// for it.
    pub(super) async fn prepare_output(&self, batch: BatchName) {
        let Some(deps) = &self.deps else { return };
        let (output_dir, name) = (deps.output_dir.clone(), batch.clone());
        if let Err(error) = blocking(move || output_dir.prepare(&name)).await {
            tracing::warn!(%batch, %error, "failed to create the output directory");
        }
    }
}
