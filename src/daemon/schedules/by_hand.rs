//! Runs that somebody starts: now, and beside whatever runs.
//!
//! Rows of such a run that cannot be validated now, since a catalog is not available, are tried again by the loop: a
//! repeated command would be another run, with its own charges.

use super::is_hopeless;
use super::{
    ConfiguredSchedule, EngineEnded, Progress, RETRY_INTERVAL, RETRY_INTERVAL_MAX, RunIngest, ScheduleRunner,
};
use crate::domain::credits::Credits;
use crate::domain::time::{Millis, Tick, Timestamp};
use crate::ingest::ingest_handle::IngestError;
use crate::ingest::receipt::Receipt;
use crate::store::schedule_progress::RunByHand;

impl<D: RunIngest> ScheduleRunner<D> {
    /// A run that may spend `most`, where that was agreed on: its manifest may be another by now.
    pub(super) async fn start_by_hand(
        &mut self,
        configured: &ConfiguredSchedule,
        at: Timestamp,
        most: Option<Credits>,
    ) -> Result<Receipt, IngestError> {
        let run = RunByHand { at, most };
        let receipt = self.take_in_by_hand(configured, &run).await?;
        if receipt.not_validated > 0 && receipt.is_taken_in() {
            self.progress.entry(configured.name.clone()).or_default().by_hand.push_back(run);
            self.note_progress(&configured.name);
        }
        Ok(receipt)
    }

    async fn take_in_by_hand(
        &mut self,
        configured: &ConfiguredSchedule,
        run: &RunByHand,
    ) -> Result<Receipt, IngestError> {
        let mut options = configured.options(run.at)?;
        if let Some(most) = run.most {
            options.ceiling = Some(options.ceiling.map_or(most, |ceiling| ceiling.min(most)));
        }
        self.start_with(configured, run.at, options).await
    }

    /// Tries the rows again that could not be validated.
    pub(super) async fn finish_runs_by_hand(
        &mut self,
        configured: &ConfiguredSchedule,
        now: Tick,
    ) -> Result<(), EngineEnded> {
        let name = &configured.name;
        while let Some(Progress { by_hand, by_hand_retry_at, .. }) = self.progress.get(name)
            && now >= *by_hand_retry_at
            && let Some(run) = by_hand.front().cloned()
        {
            let tried = self.take_in_by_hand(configured, &run).await;
            let waits = match &tried {
                Err(IngestError::Gone(_)) => return Err(EngineEnded),
                Err(error) => !is_hopeless(error),
                Ok(receipt) => receipt.not_validated > 0,
            };
            if let Err(error) = &tried
                && !waits
            {
                tracing::error!(schedule = name, at = %run.at, %error, "failed to add the rest of a run");
            }
            let Some(progress) = self.progress.get_mut(name) else { return Ok(()) };
            if waits {
                let wait = Millis(progress.by_hand_wait.0 * 2).max(RETRY_INTERVAL).min(RETRY_INTERVAL_MAX);
                (progress.by_hand_wait, progress.by_hand_retry_at) = (wait, now.after(wait));
            } else {
                progress.by_hand.pop_front();
                progress.by_hand_wait = Millis(0);
            }
        }
        Ok(())
    }
}
