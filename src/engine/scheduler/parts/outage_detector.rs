//! Whether the service answers at all, so that an outage can be reported.
//!
//! Nothing is decided by it: each request has its own backoff.

use crate::domain::task::Fault;
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::engine::scheduler::job_log;

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
pub struct OutageDetector {
    faults: u32,
    since: Now,
    last: Option<Fault>,
    /// It lasts: what went wrong for a moment is nobody's concern.
    is_outage: bool,
}

impl OutageDetector {
    /// A request came back with this fault, or with an answer that says something. Faults that pass within `moment` are
    /// no outage.
    pub fn note_answer(&mut self, fault: Option<&Fault>, moment: Millis, now: Now) {
        let Some(fault) = fault else {
            let before = std::mem::take(self);
            if before.is_outage {
                job_log::outage_over(before.faults, now.tick.since(before.since.tick));
            }
            return;
        };
        if self.faults == 0 {
            self.since = now;
        }
        self.faults = self.faults.saturating_add(1);
        self.last = Some(fault.clone());
        let lasts = now.tick.since(self.since.tick) >= moment;
        if !self.is_outage && self.faults >= FAULTS_MIN && lasts {
            self.is_outage = true;
            job_log::outage(self.faults, fault);
        }
    }

    /// The outage that is being waited out; nothing while the service answers.
    pub fn is_outage(&self) -> bool {
        self.is_outage
    }

    /// The outage, with when the service is tried next; nothing while it answers.
    pub fn outage(&self, next_try: Option<Tick>) -> Option<Outage> {
        let fault = self.last.clone().filter(|_| self.is_outage)?;
        Some(Outage { fault, since: self.since.wall, next_try })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Millis = Millis(2_000);

    fn at(ms: u64) -> Now {
        Now { wall: Timestamp(1_000).after(Millis(ms)), tick: Tick(ms) }
    }

    #[test]
    fn several_faults_in_a_row_that_last_are_an_outage_and_one_answer_ends_it() {
        let mut detector = OutageDetector::default();
        let fault = Fault::new("timeout", "no answer");
        (0..5).for_each(|_| detector.note_answer(Some(&fault), MOMENT, at(0)));
        assert_eq!(detector.outage(None), None, "many at once may be a moment's trouble");
        detector.note_answer(Some(&fault), MOMENT, at(2_000));
        let next_try = Some(Tick(9));
        assert_eq!(
            detector.outage(next_try),
            Some(Outage { fault: fault.clone(), since: Timestamp(1_000), next_try })
        );
        detector.note_answer(None, MOMENT, at(3_000));
        assert_eq!(detector.outage(None), None);
        detector.note_answer(Some(&fault), MOMENT, at(4_000));
        detector.note_answer(Some(&fault), MOMENT, at(9_000));
        assert_eq!(detector.outage(None), None, "two are too few");
    }
}
