//! When a job goes on by itself, and why it waits until then: what `explain` is told.

use crate::domain::ids::JobKey;
use crate::domain::time::{Now, Timestamp};
use crate::engine::scheduler::Scheduler;
use crate::engine::scheduler::parts::open_job::WaitReason;

/// When the present attempt of a job goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedStep {
    /// By the wall clock: it is timed by one that never steps.
    pub at: Timestamp,
    /// Why not before.
    pub reason: WaitReason,
}

impl Scheduler {
    /// When the present attempt of a job goes on; nothing where it waits for no instant, or where something is done for it
    /// now.
    pub fn planned_step(&self, key: JobKey, now: Now) -> Option<PlannedStep> {
        let open = self.jobs.get(&key).filter(|open| !open.is_busy())?;
        let due = self.timers.effect_at(key, open.job().attempt()).filter(|due| *due > now.tick)?;
        let at = now.wall.after(due.since(now.tick));
        Some(PlannedStep { at, reason: open.wait_reason() })
    }
}
