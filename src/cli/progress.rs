//! Progress on stderr: live bars on a terminal, a line now and then elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use anstream::eprintln;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::cli::log;
use crate::cli::printable;
use crate::clock::Clock;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchNo;
use crate::domain::job_state::JobState;
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::engine::StepView;
use crate::engine::scheduler::{BatchOverview, Outage};

/// Between two lines where there is no terminal.
const LINE_INTERVAL: Millis = Millis::from_secs(10);
/// How long nothing may end before the time that is left is no longer guessed.
const GUESS_MAX_SILENCE: Millis = Millis::from_secs(30);
/// Between two refreshes of the bars.
const BAR_INTERVAL: Millis = Millis(100);

/// Shows how far a run is.
pub(super) struct Progress {
    clock: Clock,
    bar: Option<ProgressBar>,
    began: Tick,
    shown: Tick,
    /// Jobs that had ended before this run.
    ended_before: Option<u32>,
    /// How many had ended when one last did, and when that was.
    last_end: (u32, Tick),
    /// Start of the outage that was reported.
    outage_since: Option<Timestamp>,
    /// Batches of this run that are done.
    finished: BTreeMap<BatchNo, BatchOverview>,
}

impl Progress {
    pub(super) fn begin(clock: Clock) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30.cyan/blue} {pos}/{len} jobs  {msg}");
            let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(std::time::Duration::from_millis(250));
            bar
        });
        log::beside(bar.clone());
        let now = clock.now().tick;
        Progress {
            clock,
            bar,
            began: now,
            shown: now,
            ended_before: None,
            last_end: (0, now),
            outage_since: None,
            finished: BTreeMap::new(),
        }
    }

    /// Sees a step of the engine.
    pub(super) fn observe(&mut self, view: &StepView<'_>) {
        let Now { wall, tick: now } = self.clock.now();
        self.note_finished(view);
        self.tell_of_outage(view.scheduler.outage(), Now { wall, tick: now });
        let interval = if self.bar.is_some() { BAR_INTERVAL } else { LINE_INTERVAL };
        if self.ended_before.is_some() && now.since(self.shown) < interval {
            return;
        }
        let unfinished = view.scheduler.overview();
        let is_finished = |batch: &&BatchOverview| unfinished.iter().all(|other| other.name != batch.name);
        let sum = Sum::of(unfinished.iter().chain(self.finished.values().filter(is_finished)));
        let before = *self.ended_before.get_or_insert(sum.ended);
        if sum.ended != self.last_end.0 {
            self.last_end = (sum.ended, now);
        }
        if now.since(self.shown) < interval && self.bar.is_none() {
            return;
        }
        self.shown = now;
        let mut text = sum.text(before, now.since(self.began), now.since(self.last_end.1));
        let (present, configured) = (view.scheduler.present_limit(), view.scheduler.configured_limit());
        text.extend(fewer(present, configured).map(|fewer| format!(" · {fewer}")));
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(sum.rows));
                bar.set_position(u64::from(sum.ended));
                bar.set_message(text);
            }
            None => eprintln!("{}/{} jobs  {text}", sum.ended, sum.rows),
        }
    }

    /// Batches that are done leave the scheduler after the step.
    fn note_finished(&mut self, view: &StepView<'_>) {
        for (_, job) in &view.step.ended {
            if let Some(batch) = view.scheduler.batch(job.key.batch).filter(|batch| batch.is_done()) {
                self.finished.insert(batch.no, BatchOverview::of_finished(batch));
            }
        }
    }

    /// Says once when the service stops answering, and once when it answers again.
    fn tell_of_outage(&mut self, outage: Option<Outage>, now: Now) {
        match (self.outage_since, outage) {
            (None, Some(outage)) => {
                self.say(&silent(&outage, now));
                self.outage_since = Some(outage.since);
            }
            (Some(since), None) => {
                self.say(&format!("the service answers again, after {}", span(now.wall.since(since))));
                self.outage_since = None;
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Says something without breaking the bars.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Clears the bars.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            log::beside(None);
        }
    }
}

/// All batches together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    rows: u32,
    ended: u32,
    in_flight: u32,
    fetching: u32,
    queued: u32,
    failed: u32,
    held: Credits,
    spent: Credits,
}

impl Sum {
    fn of<'a>(batches: impl IntoIterator<Item = &'a BatchOverview>) -> Sum {
        let mut sum = Sum::default();
        for batch in batches {
            sum.rows += batch.rows;
            sum.held = sum.held + batch.totals.held;
            sum.spent = sum.spent + batch.totals.spent;
            for (state, n) in batch.states {
                match state {
                    JobState::Queued => sum.queued += n,
                    JobState::Submitting | JobState::Running => sum.in_flight += n,
                    JobState::Fetching => sum.fetching += n,
                    JobState::Failed | JobState::InDoubt => {
                        sum.failed += n;
                        sum.ended += n;
                    }
                    JobState::Succeeded | JobState::Canceled | JobState::Expired => sum.ended += n,
                }
            }
        }
        sum
    }

    /// `silence` is how long ago the last job ended.
    fn text(&self, ended_before: u32, elapsed: Millis, silence: Millis) -> String {
        let mut parts = Vec::new();
        let counts = [
            (self.queued, "queued"),
            (self.in_flight, "in flight"),
            (self.fetching, "downloading"),
            (self.failed, "failed"),
        ];
        parts.extend(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
        parts.push(format!("{} held, {} spent", self.held.0, self.spent));
        let here = u64::from(self.ended.saturating_sub(ended_before));
        if here > 0 && elapsed.0 > 0 {
            let left = u64::from(self.rows.saturating_sub(self.ended));
            parts.push(rate(here, elapsed));
            if left > 0 {
                parts.push(outlook(left, here, elapsed.0.saturating_sub(silence.0), silence));
            }
        }
        parts.join(" · ")
    }
}

/// `3 minutes left`, from how long the jobs took that ended. A guess that only grows while nothing ends is none: then
/// that is said.
fn outlook(left: u64, ended: u64, took_ms: u64, silence: Millis) -> String {
    let each = took_ms / ended.max(1);
    if silence > GUESS_MAX_SILENCE && silence.0 > each.saturating_mul(4) {
        return format!("no job has ended for {}", span(silence));
    }
    let seconds = each.saturating_mul(left).saturating_sub(silence.0) / 1000;
    format!("{} left", HumanDuration(std::time::Duration::from_secs(seconds)))
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

/// `850 ms`, `12 s` or `3 minutes`.
fn span(span: Millis) -> String {
    match span.0 {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..120_000 => format!("{} s", ms / 1_000),
        ms => HumanDuration(std::time::Duration::from_millis(ms)).to_string(),
    }
}

/// `4.2 jobs/s` or, for slow ones, `7.5 jobs/min`.
fn rate(jobs: u64, elapsed: Millis) -> String {
    let per_minute_tenths = jobs.saturating_mul(600_000) / elapsed.0.max(1);
    let tenths = |n: u64| format!("{}.{}", n / 10, n % 10);
    if per_minute_tenths >= 600 {
        format!("{} jobs/s", tenths(per_minute_tenths / 60))
    } else {
        format!("{} jobs/min", tenths(per_minute_tenths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::task::Fault;

    #[test]
    fn a_line_says_what_moves_and_what_it_costs() {
        let sum = Sum {
            rows: 100,
            ended: 20,
            in_flight: 8,
            queued: 72,
            held: Credits(80),
            spent: Credits(200),
            ..Sum::default()
        };
        let text = sum.text(10, Millis(20_000), Millis(0));
        assert_eq!(
            text,
            "72 queued · 8 in flight · 80 held, 200 credits spent · 30.0 jobs/min · 3 minutes left"
        );
    }

    #[test]
    fn what_is_left_does_not_grow_while_nothing_ends() {
        let outlook = |silence| outlook(1, 10, 20_000, Millis(silence));
        assert_eq!(outlook(0), "2 seconds left");
        assert_eq!(outlook(20_000), "0 seconds left");
        assert_eq!(outlook(600_000), "no job has ended for 10 minutes");
    }

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
        assert_eq!(
            [0, 850, 119_999, 240_000].map(|ms| span(Millis(ms))),
            ["0 ms", "850 ms", "119 s", "4 minutes"]
        );
    }

    #[test]
    fn a_limit_that_was_learned_is_shown() {
        assert_eq!(fewer(4, 16).as_deref(), Some("16 -> 4 at once: limited by the service"));
        assert_eq!(fewer(16, 16), None);
    }

    #[test]
    fn rates_choose_their_unit() {
        assert_eq!(rate(84, Millis(20_000)), "4.2 jobs/s");
        assert_eq!(rate(5, Millis(40_000)), "7.5 jobs/min");
    }
}
