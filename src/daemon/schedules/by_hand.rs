//! Runs that somebody starts: now, and beside whatever runs.
//!
//! Rows of such a run that cannot be validated now, since a catalog is not available, are tried again by the loop: a
//! repeated command would be another run, with its own charges.

use super::{ConfiguredSchedule, EngineEnded, Progress, RunIngest, ScheduleRunner, is_hopeless};
use crate::domain::credits::Credits;
use crate::domain::time::{Tick, Timestamp};
use crate::ingest::ingest_handle::{IngestError, in_full};
use crate::ingest::receipt::Receipt;
use crate::store::schedule_progress::RunByHand;

impl<D: RunIngest> ScheduleRunner<D> {
    /// A run of now, as [`ScheduleRunner::start`] takes it in.
    pub(super) async fn start_by_hand(
        &mut self,
        configured: &ConfiguredSchedule,
        at: Timestamp,
        most: Option<Credits>,
    ) -> Result<Receipt, IngestError> {
        let receipt = self.start(configured, at, most).await?;
        if receipt.not_validated > 0 && receipt.is_taken_in() {
            let run = RunByHand { at, most };
            self.progress.entry(configured.name.clone()).or_default().by_hand.push_back(run);
            self.note_progress(&configured.name);
        }
        Ok(receipt)
    }

    /// Tries the rows again that could not be validated.
    pub(super) async fn finish_runs_by_hand(
        &mut self,
        configured: &ConfiguredSchedule,
        now: Tick,
    ) -> Result<(), EngineEnded> {
        let name = &configured.name;
        while let Some(Progress { by_hand, tries_by_hand, .. }) = self.progress.get(name)
            && now >= tries_by_hand.retry_at
            && let Some(&RunByHand { at, most }) = by_hand.front()
        {
            let tried = self.start(configured, at, most).await.and_then(in_full);
            let Some(progress) = self.progress.get_mut(name) else { return Ok(()) };
            match tried {
                Err(IngestError::Gone(_)) => return Err(EngineEnded),
                Err(error) if !is_hopeless(&error) => {
                    progress.tries_by_hand.fail(&error, now);
                    return Ok(());
                }
                Err(error) => {
                    tracing::error!(schedule = name, %at, %error, "failed to add the rest of a run");
                }
                Ok(_) => {}
            }
            progress.by_hand.pop_front();
            progress.tries_by_hand.failed = None;
        }
        Ok(())
    }
}
