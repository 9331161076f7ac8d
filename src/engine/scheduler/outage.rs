//! Whether the service answers at all, so that an outage can be reported.
//!
//! Nothing is decided by it: each request has its own backoff.

use crate::domain::task::Fault;
use crate::domain::time::{Now, Tick, Timestamp};
use crate::engine::scheduler::{Scheduler, job_log};

/// Requests in a row without a usable answer that make an outage.
const FAULTS_MIN: u32 = 3;

/// No request has had a usable answer for a while: no connection, 5xx, or 429.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The last fault.
    pub fault: Fault,
    /// When the first of them came.
    pub since: Timestamp,
    /// When something is tried next, if anything is.
    pub next_try: Option<Tick>,
}

/// Faults in a row, of whatever request.
#[derive(Debug, Default)]
pub(super) struct OutageDetector {
    faults: u32,
    since: Now,
    last: Option<Fault>,
    /// It lasts: what went wrong for a moment is nobody's concern.
    is_outage: bool,
}

impl Scheduler {
    /// A request came back with this fault, or with an answer that says something.
    pub(super) fn note_answer(&mut self, fault: Option<&Fault>, now: Now) {
        let Some(fault) = fault else {
            let before = std::mem::take(&mut self.outage_detector);
            if before.is_outage {
                job_log::outage_over(before.faults, now.tick.since(before.since.tick));
            }
            return;
        };
        let detector = &mut self.outage_detector;
        if detector.faults == 0 {
            detector.since = now;
        }
        detector.faults = detector.faults.saturating_add(1);
        detector.last = Some(fault.clone());
        let lasts = now.tick.since(detector.since.tick) >= self.settings.backoff.base;
        if !detector.is_outage && detector.faults >= FAULTS_MIN && lasts {
            detector.is_outage = true;
            job_log::outage(detector.faults, fault);
        }
    }

    /// The outage that is being waited out; nothing while the service answers.
    pub fn outage(&self) -> Option<Outage> {
        let fault = self.outage_detector.last.clone().filter(|_| self.outage_detector.is_outage)?;
        let timer = self.timers.first().map(|(at, _)| *at);
        let next_try = [timer, self.crowded_until].into_iter().flatten().min();
        Some(Outage { fault, since: self.outage_detector.since.wall, next_try })
    }
}
