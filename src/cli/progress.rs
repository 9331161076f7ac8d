//! Progress on stderr: live bars on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;

use anstream::eprintln;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::cli::log;
use crate::clock::Clock;
use crate::domain::credits::Credits;
use crate::domain::time::{Millis, Tick};
use crate::engine::Glance;
use crate::engine::conductor::BatchOverview;

/// Between two lines where there is no terminal.
const LINE_INTERVAL: Millis = Millis::from_secs(10);
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
        Progress { clock, bar, began: now, shown: now, ended_before: None }
    }

    /// Sees a turn of the engine.
    pub(super) fn observe(&mut self, glance: &Glance<'_>) {
        let now = self.clock.now().tick;
        let interval = if self.bar.is_some() { BAR_INTERVAL } else { LINE_INTERVAL };
        if self.ended_before.is_some() && now.since(self.shown) < interval {
            return;
        }
        let sum = Sum::of(&glance.conductor.overview());
        let before = *self.ended_before.get_or_insert(sum.ended);
        if now.since(self.shown) < interval && self.bar.is_none() {
            return;
        }
        self.shown = now;
        let text = sum.text(before, now.since(self.began));
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(sum.rows));
                bar.set_position(u64::from(sum.ended));
                bar.set_message(text);
            }
            None => eprintln!("{}/{} jobs  {text}", sum.ended, sum.rows),
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
    fn of(batches: &[BatchOverview]) -> Sum {
        let mut sum = Sum::default();
        for batch in batches {
            sum.rows += batch.rows;
            sum.held = sum.held + batch.totals.held;
            sum.spent = sum.spent + batch.totals.spent;
            for (state, n) in &batch.states {
                match *state {
                    "queued" => sum.queued += n,
                    "submitting" | "running" => sum.in_flight += n,
                    "fetching" => sum.fetching += n,
                    "failed" | "in_doubt" => {
                        sum.failed += n;
                        sum.ended += n;
                    }
                    _ => sum.ended += n,
                }
            }
        }
        sum
    }

    fn text(&self, ended_before: u32, elapsed: Millis) -> String {
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
            let left = u64::from(self.rows - self.ended);
            let seconds = elapsed.0.saturating_mul(left) / here / 1000;
            parts.push(rate(here, elapsed));
            if left > 0 {
                parts.push(format!("{} left", HumanDuration(std::time::Duration::from_secs(seconds))));
            }
        }
        parts.join(" · ")
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
        let text = sum.text(10, Millis(20_000));
        assert_eq!(
            text,
            "72 queued · 8 in flight · 80 held, 200 credits spent · 30.0 jobs/min · 3 minutes left"
        );
    }

    #[test]
    fn rates_choose_their_unit() {
        assert_eq!(rate(84, Millis(20_000)), "4.2 jobs/s");
        assert_eq!(rate(5, Millis(40_000)), "7.5 jobs/min");
    }
}
