//! What a process knows of an attempt in flight beyond its record: what is under way, what went wrong, and since when.

use crate::domain::ids::AttemptNo;
use crate::domain::time::{Millis, Tick};

/// How often in a row the task of an overdue job may not be read before a command ends without waiting for it any longer.
const READINGS_WAITED_FOR: u32 = 8;

/// What this process knows of an attempt beyond its record.
#[derive(Debug)]
pub(super) struct AttemptProgress {
    pub(super) no: AttemptNo,
    /// An effect of it is under way.
    pub(super) is_busy: bool,
    /// A timer is set for what it wants next.
    pub(super) is_timed: bool,
    /// Why that is not due yet.
    pub(super) wait_reason: WaitReason,
    /// Its task was read by this process: the answer to its POST is no reading.
    pub(super) was_read: bool,
    /// The watch of its task is over.
    pub(super) watch_is_over: bool,
    /// A reading has shown since then that its task runs, or its request was answered without one.
    pub(super) runs_after_watch: bool,
    /// How much of the time until its deadline had passed before this process had it in flight, by the calendar; in seconds.
    pub(super) used_before_s: u32,
    /// Faults in a row, of whatever is being tried.
    pub(super) faults: u32,
    /// Readings in a row that did not find its task.
    pub(super) missing: u8,
    /// When the first of them was, in seconds.
    pub(super) missing_since_s: u32,
    /// What is known of its download, once it has one: most jobs are in flight for longer than that takes.
    pub(super) download: Option<Box<DownloadProgress>>,
    /// Since when this process has had it in flight.
    pub(super) in_flight_since: TickOrNone,
    /// When its task was first seen by this process.
    pub(super) task_since: TickOrNone,
    /// When the first answer to its POST showed the task running: only then it is known how long it has run.
    pub(super) task_created: TickOrNone,
    /// When its task was last seen running, or its request was last answered without one.
    pub(super) last_running: TickOrNone,
}

/// An instant that may not be known, in one word: `Option<Tick>` takes two.
#[derive(Debug, Clone, Copy)]
pub(super) struct TickOrNone(u64);

impl TickOrNone {
    /// No clock runs for so many milliseconds.
    pub(super) const NONE: TickOrNone = TickOrNone(u64::MAX);

    /// The instant, where it is known; from then on it is not.
    pub(super) fn take(&mut self) -> Option<Tick> {
        std::mem::replace(self, TickOrNone::NONE).get()
    }

    /// The instant, where it is known.
    pub(super) fn get(self) -> Option<Tick> {
        (self.0 != TickOrNone::NONE.0).then_some(Tick(self.0))
    }
}

impl From<Option<Tick>> for TickOrNone {
    fn from(tick: Option<Tick>) -> TickOrNone {
        tick.map_or(TickOrNone::NONE, TickOrNone::from)
    }
}

impl From<Tick> for TickOrNone {
    fn from(tick: Tick) -> TickOrNone {
        TickOrNone(tick.0)
    }
}

/// Why what an attempt wants next is not done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// Nothing went wrong: a task is not polled without a pause, for one.
    Usual,
    /// What was tried last did not work.
    Fault,
    /// The service asked to wait (`Retry-After`).
    ServiceAsked,
    /// The host of the results did.
    ResultHostAsked,
}

/// What this process knows of the download of an attempt.
#[derive(Debug, Default)]
pub(super) struct DownloadProgress {
    /// Downloads in a row that failed; fresh links alone are no progress.
    pub(super) faults: u32,
    /// Downloads in a row whose result host was not available, and since when it is not.
    pub(super) unavailable: u32,
    pub(super) unavailable_since: Option<Tick>,
    /// When its task was last read with its links.
    pub(super) links_since: Option<Tick>,
    /// Its links were not fresh when its download began.
    pub(super) had_old_links: bool,
    /// Since when its links are refused after they waited.
    pub(super) expiring_since: Option<Tick>,
    /// Its links were refused, and are renewed before the next download.
    pub(super) renews_links: bool,
    /// How often its download gave its slot up to another.
    pub(super) slow_rounds: u32,
    /// How often the object store refused its outputs while it took others.
    pub(super) refused: u32,
    /// How much was known of the versions of edited rows when its download began, in bytes.
    pub(super) versions_bytes: u64,
}

impl AttemptProgress {
    /// Nothing is known of it yet.
    pub(super) fn of_new(no: AttemptNo) -> AttemptProgress {
        AttemptProgress {
            no,
            is_busy: false,
            is_timed: false,
            wait_reason: WaitReason::Usual,
            was_read: false,
            watch_is_over: false,
            runs_after_watch: false,
            used_before_s: 0,
            faults: 0,
            missing: 0,
            missing_since_s: 0,
            download: None,
            in_flight_since: TickOrNone::NONE,
            task_since: TickOrNone::NONE,
            task_created: TickOrNone::NONE,
            last_running: TickOrNone::NONE,
        }
    }

    /// Whether its task was not read since the start, and reading it has not failed so often that nobody waits for it.
    pub(super) fn is_to_be_read(&self) -> bool {
        self.task_since.get().is_none() && !self.is_unreadable()
    }

    /// Whether reading its task has failed so often in a row that nobody waits for it.
    pub(super) fn is_unreadable(&self) -> bool {
        self.faults >= READINGS_WAITED_FOR
    }

    /// Whether its task was read within this span and ran, and no reading has failed since.
    pub(super) fn was_read_within(&self, now: Tick, within: Millis) -> bool {
        let is_recent = self.last_running.get().is_some_and(|seen| now.since(seen) <= within);
        self.was_read && self.faults == 0 && is_recent
    }
}
