//! Batches that are done, or wait for a person: their results are written and the hooks are called, at least once,
//! across restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::domain::ids::BatchNo;
use crate::engine::blocking;
use crate::engine::scheduler::Command;
use crate::engine::{self, EngineError, Handle, StepView};
use crate::hooks::{BatchDone, Hooks, HooksError};
use crate::server::handlers::OutputPlaces;
use crate::store::{AwaitedByHooks, BatchRecord, Change, Store, StoreError};

/// Between two tries to write what cannot be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Watches for batches that are done.
#[derive(Debug)]
pub(super) struct CompletionNotifier {
    done: mpsc::UnboundedSender<Notice>,
    /// Batches that wait for rows that a person has to see to, and are being announced.
    waiting: Mutex<BTreeSet<BatchNo>>,
}

/// A batch that is to be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Notice {
    batch: BatchNo,
    kind: NoticeKind,
}

/// What is to be announced of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NoticeKind {
    /// It is done, or waits for a decision or after its pilot.
    Done,
    /// All that is left of it waits for rows that a person has to see to.
    WaitsForInputs,
    /// A job that had ended has changed, by a decision for one: its results are written anew, and nobody is told.
    Changed,
}

impl CompletionNotifier {
    /// Begins with nothing to announce.
    pub(super) fn begin(
        store: Arc<Store>,
        handle: Handle,
        output_places: watch::Receiver<OutputPlaces>,
        hooks: Hooks,
        clock: Clock,
    ) -> CompletionNotifier {
        let (done, queue) = mpsc::unbounded_channel();
        let worker = CompletionWorker { store, handle, output_places, hooks, clock };
        tokio::spawn(worker.run(queue));
        CompletionNotifier { done, waiting: Mutex::default() }
    }

    /// Sees a step of the engine.
    pub(super) fn observe(&self, view: &StepView<'_>) {
        let outcomes = view.step.changes.iter().filter_map(|change| match change {
            Change::End(record) => Some(record.key.batch),
            _ => None,
        });
        let seen: BTreeSet<BatchNo> = outcomes.collect();
        // Nothing panics while it is held.
        let mut announced = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for no in seen {
            let Some(batch) = view.scheduler.batch(no) else { continue };
            if batch.has_ended() || view.scheduler.waits_after_pilot(no) {
                self.announce(no);
            } else if batch.inputs_announced || announced.contains(&no) {
                // No more of it has ended since: a job that had ended was decided about. It need not wait at this moment: it may
                // be paused, or its prices are being asked for.
                self.tell(no, NoticeKind::Changed);
            }
        }
        let waiting: BTreeSet<BatchNo> = view.scheduler.waiting_untold().collect();
        for no in waiting.difference(&announced) {
            self.tell(*no, NoticeKind::WaitsForInputs);
        }
        *announced = waiting;
    }

    /// A batch is done, or waits for a person.
    pub(super) fn announce(&self, no: BatchNo) {
        self.tell(no, NoticeKind::Done);
    }

    fn tell(&self, batch: BatchNo, kind: NoticeKind) {
        // The task lives as long as the process.
        let _ = self.done.send(Notice { batch, kind });
    }
}

/// Who tells.
struct CompletionWorker {
    store: Arc<Store>,
    handle: Handle,
    output_places: watch::Receiver<OutputPlaces>,
    hooks: Hooks,
    clock: Clock,
}

/// A batch could not be announced.
#[derive(Debug, thiserror::Error)]
enum NotifyError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Hooks(#[from] HooksError),
}

impl CompletionWorker {
    async fn run(self, mut queue: mpsc::UnboundedReceiver<Notice>) {
        // Those that could not be announced, and why, as it was told. They keep no other waiting.
        let mut failed: BTreeMap<Notice, String> = BTreeMap::new();
        let mut tries = tokio::time::interval(RETRY_INTERVAL);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut batches = BTreeSet::new();
            tokio::select! {
                notice = queue.recv() => match notice {
                    Some(notice) => drop(batches.insert(notice)),
                    None => return,
                },
                _ = tries.tick(), if !failed.is_empty() => batches.extend(failed.keys().copied()),
            }
            // What came of a batch several times is written once.
            while let Ok(notice) = queue.try_recv() {
                batches.insert(notice);
            }
            let is_first = failed.is_empty();
            for notice in batches {
                if self.try_announce(notice, &mut failed).await.is_break() {
                    return;
                }
            }
            if is_first {
                tries.reset();
            }
        }
    }

    /// Tries once; a break says that the engine has ended.
    async fn try_announce(&self, notice: Notice, failed: &mut BTreeMap<Notice, String>) -> ControlFlow<()> {
        match self.announce(notice).await {
            Ok(()) => drop(failed.remove(&notice)),
            Err(NotifyError::Engine(EngineError::Gone(_))) => return ControlFlow::Break(()),
            Err(error) => {
                // Not at every try: a disk may be full for days.
                let trouble = error.to_string();
                if failed.get(&notice) != Some(&trouble) {
                    tracing::warn!(%error, "a batch is done, but the notification failed; retrying");
                }
                failed.insert(notice, trouble);
            }
        }
        ControlFlow::Continue(())
    }

    fn waits_after_pilot(&self, batch: &BatchRecord) -> Result<bool, EngineError> {
        if !batch.waits_after_pilot() {
            return Ok(false);
        }
        let open = self.store.open_jobs_of(batch.no)?;
        Ok(open.iter().all(|record| batch.waits_for_pilot(record.row_at, &record.job)))
    }

    async fn announce(&self, notice: Notice) -> Result<(), NotifyError> {
        let Notice { batch: no, kind } = notice;
        let batch = match self.store.batch(no) {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(()),
            Err(moved @ StoreError::BatchMoved { .. }) => {
                tracing::warn!("not announced: {moved}");
                return Ok(());
            }
            Err(error) => return Err(EngineError::from(error).into()),
        };
        // It may have been taken up again.
        let (awaited, is_told) = match () {
            () if kind == NoticeKind::Changed => (None, true),
            () if batch.is_done() => (None, batch.announced),
            () if batch.waits_for_review() => (Some(AwaitedByHooks::Review), batch.review_announced),
            () if kind == NoticeKind::WaitsForInputs && !batch.has_ended() => {
                (Some(AwaitedByHooks::Inputs), batch.inputs_announced)
            }
            () if self.waits_after_pilot(&batch)? => (Some(AwaitedByHooks::Pilot), batch.pilot_announced),
            () => return Ok(()),
        };
        let output_dir = self.output_places.borrow().dir.clone();
        let (store, hooks) = (self.store.clone(), self.hooks.clone());
        let (record, now) = (batch.clone(), self.clock.now().wall);
        let tell = move || {
            let report = engine::write_results(&store, &output_dir, &record)?;
            if is_told {
                return Ok(());
            }
            let (output, decisions) = (output_dir.batch_dir(&record.name), report.decisions());
            let event = match awaited == Some(AwaitedByHooks::Inputs) {
                true => BatchDone::waiting(&record, decisions, &output, now),
                false => BatchDone::of(&record, decisions, &output, now),
            };
            Ok::<(), NotifyError>(hooks.batch_done(&event)?)
        };
        blocking(tell).await?;
        tracing::info!(batch = %batch.name, "results written");
        let told = match (is_told, awaited) {
            (true, _) => return Ok(()),
            (false, None) => Command::MarkAnnounced(Box::new(batch)),
            (false, Some(awaited)) => Command::MarkWaitAnnounced(no, awaited),
        };
        self.handle.execute(told).await.map_err(EngineError::from)?;
        Ok(())
    }
}
