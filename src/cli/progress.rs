//! Progress on stderr: live lines at the bottom of a terminal, a line now and then elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::cli::live_line::LiveLine;
use crate::cli::log;
use crate::cli::printable;
use crate::cli::progress_lines::{Figures, Pace, span};
use crate::cli::terminal::{self, Tone};
use crate::clock::Clock;
use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::engine::StepView;
use crate::engine::scheduler::{BatchOverview, Outage};
use crate::server::protocol::BatchStatus;
use crate::store::BatchRecord;

/// Between two lines where there is no terminal.
pub(super) const LINE_INTERVAL: Millis = Millis::from_secs(10);
/// Between two refreshes of the live line.
const LIVE_INTERVAL: Millis = Millis(100);

/// Shows how far the jobs are that a command waits for.
pub(super) struct Progress {
    clock: Clock,
    line: Option<LiveLine>,
    meter: PaceMeter,
    shown: Tick,
    /// Start of the outage that was reported.
    outage_since: Option<Timestamp>,
    /// The batches of this run; nothing where another process works on them.
    own: BTreeSet<BatchNo>,
    /// Those of them that are done.
    finished: BTreeMap<BatchName, BatchStatus>,
}

/// Measures how quickly jobs end while a command waits.
#[derive(Debug)]
pub(super) struct PaceMeter {
    began: Tick,
    /// Jobs that had ended before.
    ended_before: Option<u32>,
    /// How many had ended when one last did, and when that was.
    last_end: (u32, Tick),
}

impl PaceMeter {
    pub(super) fn begin(now: Tick) -> PaceMeter {
        PaceMeter { began: now, ended_before: None, last_end: (0, now) }
    }

    /// Takes in how many jobs have ended by now.
    pub(super) fn measure(&mut self, ended: u32, now: Tick) -> Pace {
        let before = *self.ended_before.get_or_insert(ended);
        if ended != self.last_end.0 {
            self.last_end = (ended, now);
        }
        Pace {
            ended: ended.saturating_sub(before),
            elapsed: now.since(self.began),
            silence: now.since(self.last_end.1),
        }
    }
}

impl Progress {
    /// Of a run, of which these are the batches, or of a command that waits for another process.
    pub(super) fn begin(clock: Clock, own: BTreeSet<BatchNo>) -> Progress {
        let line = LiveLine::begin();
        log::above(line.clone());
        let now = clock.now().tick;
        let (meter, finished) = (PaceMeter::begin(now), BTreeMap::new());
        Progress { clock, line, meter, shown: now, outage_since: None, own, finished }
    }

    /// Sees a step of the engine.
    pub(super) fn observe(&mut self, view: &StepView<'_>) {
        let now = self.clock.now();
        self.note_finished(view);
        self.tell_of_outage(view.scheduler.outage(), now);
        if !self.is_due(now.tick) {
            return;
        }
        let mut batches = view.scheduler.batch_snapshots(None);
        // A command may have had others taken up.
        batches.retain(|(record, _)| self.own.contains(&record.no));
        let mut batches = statuses(&batches);
        let is_finished = |batch: &&BatchStatus| batches.iter().all(|other| other.name != batch.name);
        let finished: Vec<BatchStatus> = self.finished.values().filter(is_finished).cloned().collect();
        batches.extend(finished);
        let (present, configured) = (view.scheduler.present_limit(), view.scheduler.configured_limit());
        self.show(Figures::of(&batches), fewer(present, configured), now.tick);
    }

    /// Sees batches as another process tells of them.
    pub(super) fn observe_statuses(&mut self, batches: &[BatchStatus]) {
        let now = self.clock.now().tick;
        if self.is_due(now) {
            self.show(Figures::of(batches), None, now);
        }
    }

    fn interval(&self) -> Millis {
        if self.line.is_some() { LIVE_INTERVAL } else { LINE_INTERVAL }
    }

    /// Whether there is something to find out: how many had ended at the beginning, or what to show now.
    fn is_due(&self, now: Tick) -> bool {
        self.meter.ended_before.is_none() || now.since(self.shown) >= self.interval()
    }

    fn show(&mut self, figures: Figures, limit: Option<String>, now: Tick) {
        let is_first = self.meter.ended_before.is_none();
        let pace = self.meter.measure(figures.ended(), now);
        match &self.line {
            Some(line) => {
                line.show(Box::new(move |columns, rows| {
                    figures.lines(pace, limit.as_deref(), columns, rows)
                }));
                self.shown = now;
            }
            None if is_first && now.since(self.shown) < LINE_INTERVAL => {}
            None => {
                terminal::print_line(&figures.log_line(pace, limit.as_deref()));
                self.shown = now;
            }
        }
    }

    /// Batches that are done leave the scheduler after the step.
    fn note_finished(&mut self, view: &StepView<'_>) {
        let ended: BTreeSet<BatchNo> = view.step.ended.iter().map(|(_, job)| job.key.batch).collect();
        let ended = ended.intersection(&self.own).filter_map(|no| view.scheduler.batch(*no));
        for batch in ended.filter(|batch| batch.has_ended()) {
            let done = statuses(&view.scheduler.batch_snapshots(Some(&batch.name)));
            self.finished.extend(done.into_iter().map(|status| (status.name.clone(), status)));
        }
    }

    /// Says once when the service stops answering, and once when it answers again.
    fn tell_of_outage(&mut self, outage: Option<Outage>, now: Now) {
        match (self.outage_since, outage) {
            (None, Some(outage)) => {
                self.say(&Tone::Waiting.paint(&silent(&outage, now)));
                self.outage_since = Some(outage.since);
            }
            (Some(since), None) => {
                self.say(&format!("the service answers again, after {}", span(now.wall.since(since))));
                self.outage_since = None;
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Says something above the live line.
    pub(super) fn say(&self, text: &str) {
        match &self.line {
            Some(line) => line.above(|| terminal::print_line(text)),
            None => terminal::print_line(text),
        }
    }

    /// Removes the live line. Returns how long the command has waited.
    pub(super) fn end(&self) -> Millis {
        if let Some(line) = &self.line {
            line.end();
            log::above(None);
        }
        self.clock.now().tick.since(self.meter.began)
    }
}

/// Batches in numbers, as the engine of this process has them.
fn statuses(snapshots: &[(BatchRecord, BatchOverview)]) -> Vec<BatchStatus> {
    snapshots.iter().map(|(record, overview)| BatchStatus::new(record, overview)).collect()
}

/// What is wrong, since when, and what comes next.
fn silent(outage: &Outage, now: Now) -> String {
    let Outage { fault, since, next_try } = outage;
    let next = next_try.map_or_else(String::new, |at| match at.since(now.tick) {
        Millis(0) => "; retrying now".to_owned(),
        wait => format!("; retrying in {}", span(wait)),
    });
    let fault = printable(&fault.to_string());
    format!("no usable answer from the service since {since}: {fault}{next}; nothing is lost")
}

/// `16 -> 4 at once: the service asked for less`; nothing at the configured limit.
fn fewer(present: u32, configured: u32) -> Option<String> {
    (present < configured).then(|| format!("{configured} -> {present} at once: limited by the service"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::task::Fault;

    #[test]
    fn an_outage_is_told_in_one_line() {
        let now = Now { wall: Timestamp(60_000), tick: Tick(60_000) };
        let fault = Fault::new("connection", "no connection: refused");
        let mut outage = Outage { fault, since: Timestamp(18_000), next_try: Some(Tick(68_400)) };
        assert_eq!(
            silent(&outage, now),
            "no usable answer from the service since 1970-01-01T00:00:18.000Z: connection: no connection: \
             refused; retrying in 8 s; nothing is lost"
        );
        outage.next_try = Some(Tick(59_000));
        assert!(silent(&outage, now).contains("; retrying now;"));
    }

    #[test]
    fn a_limit_that_was_learned_is_shown() {
        assert_eq!(fewer(4, 16).as_deref(), Some("16 -> 4 at once: limited by the service"));
        assert_eq!(fewer(16, 16), None);
    }
}
