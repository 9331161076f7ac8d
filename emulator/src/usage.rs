//! What the service counts of its clients: in all, and for each task.

use serde::Serialize;

use super::tasks::Task;

/// Sums over the life of the account. Those of charges, refunds, keys and replays survive a restart; polls,
/// downloads and refusals count from the start of the process.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) tasks: u64,
    /// Tasks whose creation took credits.
    pub(crate) charges: u64,
    pub(crate) charged_credits: u64,
    pub(crate) waived_credits: u64,
    /// Refunds of tasks that had taken credits.
    pub(crate) refunds: u64,
    pub(crate) refunded_credits: u64,
    /// Tasks created without an `Idempotency-Key`.
    pub(crate) without_key: u64,
    pub(crate) replays: u64,
    pub(crate) foreign_body_replays: u64,
    pub(crate) polls: u64,
    /// Polls of a running task sooner after the last one than the advised 5 seconds (scaled by speed).
    pub(crate) hasty_polls: u64,
    pub(crate) downloads: u64,
    /// Creating calls refused before a task was made, by HTTP status.
    pub(crate) refused_400: u64,
    pub(crate) refused_402: u64,
    pub(crate) unauthorized: u64,
    /// Credits that were bought, and those that another client of the account spent.
    pub(crate) topped_up_credits: u64,
    pub(crate) spent_elsewhere_credits: u64,
    /// Requests to the media origin that carried an `Authorization` header.
    pub(crate) media_requests_with_key: u64,
    /// Requests that a fault plan struck.
    pub(crate) faults_struck: u64,
}

impl Totals {
    pub(crate) fn created(&mut self, task: &Task) {
        self.tasks += 1;
        self.charges += u64::from(task.charged_credits > 0);
        self.charged_credits = self.charged_credits.saturating_add(task.charged_credits);
        self.waived_credits = self.waived_credits.saturating_add(task.waived_credits);
        self.without_key += u64::from(task.key.is_none());
    }

    pub(crate) fn refunded(&mut self, credits: u64) {
        self.refunds += u64::from(credits > 0);
        self.refunded_credits = self.refunded_credits.saturating_add(credits);
    }

    pub(crate) fn replayed(&mut self, foreign: bool) {
        self.replays += 1;
        self.foreign_body_replays += u64::from(foreign);
    }

    /// Credits came or went without a task of ours.
    pub(crate) fn moved_elsewhere(&mut self, topped_up: u64, spent: u64) {
        self.topped_up_credits = self.topped_up_credits.saturating_add(topped_up);
        self.spent_elsewhere_credits = self.spent_elsewhere_credits.saturating_add(spent);
    }

    /// A creating call was refused before a task was made.
    pub(crate) fn refused(&mut self, status: u16) {
        match status {
            400 => self.refused_400 += 1,
            402 => self.refused_402 += 1,
            _ => {}
        }
    }
}

/// What was seen of one task.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TaskUsage {
    pub(crate) replays: u32,
    pub(crate) foreign: u32,
    pub(crate) polls: u32,
    pub(crate) polls_after_end: u32,
    pub(crate) last_poll_ms: Option<i64>,
    pub(crate) min_poll_interval_ms: Option<i64>,
    pub(crate) downloads: u32,
}

impl TaskUsage {
    pub(crate) fn replayed(&mut self, foreign: bool) {
        self.replays = self.replays.saturating_add(1);
        self.foreign = self.foreign.saturating_add(u32::from(foreign));
    }

    /// A poll; true when it came sooner than advised.
    pub(crate) fn polled(&mut self, now_ms: i64, running: bool, advised_ms: i64) -> bool {
        let mut hasty = false;
        self.polls = self.polls.saturating_add(1);
        self.polls_after_end = self.polls_after_end.saturating_add(u32::from(!running));
        if let Some(last_ms) = self.last_poll_ms {
            let gap = now_ms.saturating_sub(last_ms);
            hasty = running && gap < advised_ms;
            self.min_poll_interval_ms = Some(self.min_poll_interval_ms.map_or(gap, |least| least.min(gap)));
        }
        self.last_poll_ms = Some(now_ms);
        hasty
    }

    pub(crate) fn downloaded(&mut self) {
        self.downloads = self.downloads.saturating_add(1);
    }
}
