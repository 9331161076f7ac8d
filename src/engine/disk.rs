//! Disks: the state's and that of outputs, when they are full or refuse a file.

use std::time::Duration;

use tokio::sync::watch;

use crate::domain::ids::{BatchName, BatchNo};
use crate::engine::blocking::result_of;
use crate::engine::engine_handle::Message;
use crate::engine::scheduler::{Input, Step};
use crate::engine::{Engine, EngineDeps, EngineError, MESSAGES_MAX, StepView, Stop, blocking};
use crate::output::publish::{PROBE_BYTES, is_disk_error, is_disk_full};
use crate::store::{Store, StoreError};

/// Between two looks at the disks.
pub(super) const DISK_INTERVAL: Duration = Duration::from_secs(5);

/// A batch that came in and is not durable yet.
#[derive(Debug)]
pub(super) struct TakenBatch {
    pub(super) no: BatchNo,
    pub(super) name: BatchName,
    /// It had been finished.
    pub(super) was_finished: bool,
}

impl Engine {
    /// Waits until the state's disk takes a step that it refused, although the reserve was given up for it: others
    /// filled that, too. Answers that arrive meanwhile wait; nothing that was decided begins but downloads, which write nothing yet. Returns
    /// the commands that came in.
    pub(super) async fn wait_for_room(
        &mut self,
        mut refused: StoreError,
        step: &Step,
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
                _ = looks.tick() => match self.commit(step, Store::commit_again) {
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

    /// Makes the folders of all unfinished batches, and begins to sweep what a killed process left in them. Returns what
    /// the scheduler has to know of those that cannot be made now: they are made when they can be.
    pub(super) async fn prepare_outputs(&mut self, deps: &EngineDeps) -> Vec<Input> {
        let refused = self.make_output_folders(deps).await;
        let names: Vec<BatchName> = self.unfinished().into_iter().map(|(_, name)| name).collect();
        self.sweep_parts(deps, &names);
        refused
    }

    fn unfinished(&self) -> Vec<(BatchNo, BatchName)> {
        let unfinished = self.scheduler.batches().filter(|batch| !batch.is_done());
        unfinished.map(|batch| (batch.no, batch.name.clone())).collect()
    }

    /// The same without a sweep.
    pub(super) async fn make_output_folders(&self, deps: &EngineDeps) -> Vec<Input> {
        let (batches, output_dir) = (self.unfinished(), deps.output_dir.clone());
        let prepare = move || {
            let mut refused = Vec::new();
            for (no, name) in batches {
                match output_dir.prepare(&name) {
                    Ok(()) => {}
                    Err(source) if is_disk_full(&source) => {
                        let path = output_dir.batch_dir(&name);
                        tracing::warn!(path = %path.display(), error = %source, "the output disk is full");
                        refused.push(Input::DiskIsLow(true));
                        break;
                    }
                    Err(source) => refused.push(Input::FolderRefused(no, source.to_string())),
                }
            }
            refused
        };
        blocking(prepare).await
    }

    /// Begins to remove the parts that a killed process left in the folders of batches, beside the work: a folder may hold
    /// a million files.
    fn sweep_parts(&mut self, deps: &EngineDeps, batches: &[BatchName]) {
        // Nothing lies in a folder that this process made.
        let found: Vec<&BatchName> = batches.iter().filter(|batch| !deps.output_dir.is_new(batch)).collect();
        if !found.is_empty() {
            let sweep = deps.output_dir.begin_part_sweep(found);
            self.part_sweeps.retain(|sweep| !sweep.is_finished());
            self.part_sweeps.push(tokio::task::spawn_blocking(move || sweep.run()));
        }
    }

    /// Waits for the sweeps that are under way: a process that ends leaves nothing of another.
    pub(super) async fn finish_part_sweeps(&mut self) {
        for sweep in self.part_sweeps.drain(..) {
            result_of(sweep).await;
        }
    }

    /// Makes the folder of a batch that came in, once that is durable: nothing lies on the output disk of which nobody
    /// knows. Returns what the scheduler has to know where it cannot be made.
    pub(super) async fn prepare_output(&mut self, batch: TakenBatch) -> Option<Input> {
        let deps = self.deps.clone()?;
        let TakenBatch { no, name, was_finished } = batch;
        let (output_dir, prepared) = (deps.output_dir.clone(), name.clone());
        match blocking(move || output_dir.prepare(&prepared)).await {
            Ok(()) => {
                // One that was finished has no unfinished downloads.
                if !was_finished {
                    self.sweep_parts(&deps, &[name]);
                }
                None
            }
            Err(source) if is_disk_full(&source) => Some(Input::DiskIsLow(true)),
            Err(source) => Some(Input::FolderRefused(no, source.to_string())),
        }
    }

    /// Which of the folders that could not be written to can be by now.
    pub(super) async fn folders_that_take(&self, deps: &EngineDeps) -> Vec<Input> {
        let refused = self.scheduler.refused_folders();
        if refused.is_empty() {
            return Vec::new();
        }
        let output_dir = deps.output_dir.clone();
        let check = move || {
            let takes = refused.into_iter().filter(|(_, name)| output_dir.check_folder(name).is_ok());
            takes.map(|(no, _)| Input::FolderTakes(no)).collect()
        };
        blocking(check).await
    }
}
