//! Progress on stderr: a live line on a terminal, a line now and then elsewhere.

use std::collections::BTreeMap;

use anstream::eprintln;

use crate::cli::live_line::LiveLine;
use crate::cli::log;
use crate::cli::printable;
use crate::cli::terminal::{self, Tone};
use crate::clock::Clock;
use crate::control::protocol::BatchStatus;
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
/// Between two refreshes of the live line.
const LIVE_INTERVAL: Millis = Millis(100);
/// Columns of the bar.
const BAR_COLUMNS: std::ops::RangeInclusive<usize> = 10..=30;

/// Shows how far the jobs are that a command waits for.
pub(super) struct Progress {
    clock: Clock,
    line: Option<LiveLine>,
    began: Tick,
    shown: Tick,
    /// Jobs that had ended before.
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
        let line = LiveLine::begin();
        log::above(line.clone());
        let now = clock.now().tick;
        Progress {
            clock,
            line,
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
        let now = self.clock.now();
        self.note_finished(view);
        self.tell_of_outage(view.scheduler.outage(), now);
        if !self.is_due(now.tick) {
            return;
        }
        let unfinished = view.scheduler.overview();
        let is_finished = |batch: &&BatchOverview| unfinished.iter().all(|other| other.name != batch.name);
        let sum = Sum::of(unfinished.iter().chain(self.finished.values().filter(is_finished)));
        let (present, configured) = (view.scheduler.present_limit(), view.scheduler.configured_limit());
        self.show(sum, fewer(present, configured), now.tick);
    }

    /// Sees batches as another process tells of them.
    pub(super) fn observe_statuses(&mut self, batches: &[BatchStatus]) {
        let now = self.clock.now().tick;
        if self.is_due(now) {
            self.show(Sum::of_statuses(batches), None, now);
        }
    }

    fn interval(&self) -> Millis {
        if self.line.is_some() { LIVE_INTERVAL } else { LINE_INTERVAL }
    }

    /// Whether there is something to find out: how many had ended at the beginning, or what to show now.
    fn is_due(&self, now: Tick) -> bool {
        self.ended_before.is_none() || now.since(self.shown) >= self.interval()
    }

    fn show(&mut self, sum: Sum, limit: Option<String>, now: Tick) {
        let is_first = self.ended_before.is_none();
        let before = *self.ended_before.get_or_insert(sum.ended);
        if sum.ended != self.last_end.0 {
            self.last_end = (sum.ended, now);
        }
        let mut parts = sum.parts(before, now.since(self.began), now.since(self.last_end.1));
        parts.extend(limit.map(|limit| Part { rank: 8, text: limit, tone: Tone::Waiting }));
        match &self.line {
            Some(line) => {
                line.show(Box::new(move |columns| sum.line(&parts, columns)));
                self.shown = now;
            }
            None if is_first && now.since(self.shown) < LINE_INTERVAL => {}
            None => {
                let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
                eprintln!("{}/{} jobs  {}", sum.ended, sum.rows, texts.join(" · "));
                self.shown = now;
            }
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
            Some(line) => line.above(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Removes the live line. Returns how long the command has waited.
    pub(super) fn end(&self) -> Millis {
        if let Some(line) = &self.line {
            line.end();
            log::above(None);
        }
        self.clock.now().tick.since(self.began)
    }
}

/// Something that the line says of the jobs.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    /// Where the room is short the greatest goes first.
    rank: u8,
    text: String,
    tone: Tone,
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
    in_doubt: u32,
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
            batch.states.into_iter().for_each(|(state, n)| sum.add(state, n));
        }
        sum
    }

    fn of_statuses(batches: &[BatchStatus]) -> Sum {
        let mut sum = Sum::default();
        for batch in batches {
            sum.rows += batch.jobs;
            sum.held = sum.held + Credits(batch.held_credits);
            sum.spent = sum.spent + Credits(batch.charged_credits);
            JobState::ALL.into_iter().for_each(|state| sum.add(state, batch.in_state(state)));
        }
        sum
    }

    fn add(&mut self, state: JobState, n: u32) {
        match state {
            JobState::Queued => self.queued += n,
            JobState::Submitting | JobState::Running => self.in_flight += n,
            JobState::Fetching => self.fetching += n,
            JobState::Failed => self.failed += n,
            JobState::InDoubt => self.in_doubt += n,
            JobState::Succeeded | JobState::Canceled | JobState::Expired => {}
        }
        if matches!(
            state,
            JobState::Failed
                | JobState::InDoubt
                | JobState::Succeeded
                | JobState::Canceled
                | JobState::Expired
        ) {
            self.ended += n;
        }
    }

    /// What there is to say beside how many have ended. `silence` is how long ago the last job ended.
    fn parts(&self, ended_before: u32, elapsed: Millis, silence: Millis) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut part = |rank, text: String, tone| parts.push(Part { rank, text, tone });
        let counts = [
            (4, self.queued, "queued", Tone::Plain),
            (3, self.in_flight, "in flight", Tone::Plain),
            (5, self.fetching, "downloading", Tone::Plain),
            (1, self.failed, "failed", Tone::Failed),
            (1, self.in_doubt, "in doubt", Tone::Failed),
        ];
        for (rank, n, what, tone) in counts {
            if n > 0 {
                part(rank, format!("{n} {what}"), tone);
            }
        }
        part(6, format!("{} held, {} spent", self.held.0, self.spent), Tone::Plain);
        let here = u64::from(self.ended.saturating_sub(ended_before));
        if here > 0 && elapsed.0 > 0 {
            let left = u64::from(self.rows.saturating_sub(self.ended));
            part(7, rate(here, elapsed), Tone::Plain);
            if left > 0 {
                let (text, tone) = outlook(left, here, elapsed.0.saturating_sub(silence.0), silence);
                part(2, text, tone);
            }
        }
        parts
    }

    /// A line of at most so many columns: a bar, how many jobs have ended, and as much of the rest as there is room
    /// for.
    fn line(&self, parts: &[Part], columns: usize) -> String {
        let count = format!("{}/{} jobs", self.ended, self.rows);
        let mut room = columns.saturating_sub(terminal::width(&count));
        let mut ranked: Vec<usize> = (0..parts.len()).collect();
        ranked.sort_by_key(|at| parts[*at].rank);
        let mut shown = vec![false; parts.len()];
        // The bar, and a blank behind it.
        let least = BAR_COLUMNS.start() + 1;
        for at in ranked {
            let needed = terminal::width(&parts[at].text) + SEPARATOR.chars().count();
            if needed + least > room {
                break;
            }
            room -= needed;
            shown[at] = true;
        }
        let bar = match room {
            room if room < least => String::new(),
            room => bar(self.ended, self.rows, (room - 1).min(*BAR_COLUMNS.end())),
        };
        let shown = parts.iter().zip(shown).filter(|(_, is_shown)| *is_shown);
        let shown = shown.map(|(part, _)| format!("{SEPARATOR}{}", part.tone.paint(&part.text)));
        format!("{bar}{count}{}", shown.collect::<String>())
    }
}

/// Between two parts of the line.
const SEPARATOR: &str = " · ";

/// A bar of so many columns, and a blank.
fn bar(ended: u32, rows: u32, columns: usize) -> String {
    let inner = columns - 2;
    let full = (inner as u64 * u64::from(ended)).checked_div(u64::from(rows)).unwrap_or_default();
    let full = usize::try_from(full).unwrap_or(inner).min(inner);
    format!("[{}{}] ", "#".repeat(full), "-".repeat(inner - full))
}

/// `3 min left`, from how long the jobs took that ended. A guess that only grows while nothing ends is none: then
/// that is said.
fn outlook(left: u64, ended: u64, took_ms: u64, silence: Millis) -> (String, Tone) {
    let each = took_ms / ended.max(1);
    if silence > GUESS_MAX_SILENCE && silence.0 > each.saturating_mul(4) {
        return (format!("no job has ended for {}", span(silence)), Tone::Waiting);
    }
    let seconds = each.saturating_mul(left).saturating_sub(silence.0) / 1000;
    (format!("{} left", span(Millis(seconds * 1000))), Tone::Plain)
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

/// `850 ms`, `12 s`, `3 min`, `5 h 20 min` or `2 d 3 h`.
pub(super) fn span(span: Millis) -> String {
    let (minutes, hours) = (span.0 / 60_000, span.0 / 3_600_000);
    match span.0 {
        0 => "0 s".to_owned(),
        ms @ 1..1_000 => format!("{ms} ms"),
        ms @ 1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{minutes} min"),
        7_200_000..172_800_000 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// `7.5 jobs/min`, `252 jobs/min`.
fn rate(jobs: u64, elapsed: Millis) -> String {
    let tenths = jobs.saturating_mul(600_000) / elapsed.0.max(1);
    match tenths {
        0..100 => format!("{}.{} jobs/min", tenths / 10, tenths % 10),
        tenths => format!("{} jobs/min", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::task::Fault;

    fn sum() -> Sum {
        Sum {
            rows: 100,
            ended: 20,
            in_flight: 8,
            queued: 70,
            failed: 2,
            held: Credits(80),
            spent: Credits(200),
            ..Sum::default()
        }
    }

    /// The line at a width, without colours.
    fn line(columns: usize) -> String {
        let parts = sum().parts(10, Millis(20_000), Millis(0));
        terminal::without_tones(&sum().line(&parts, columns))
    }

    #[test]
    fn a_line_says_what_there_is_room_for_and_never_more() {
        assert_eq!(
            line(140),
            "[#####-----------------------] 20/100 jobs · 70 queued · 8 in flight · 2 failed · 80 held, 200 credits \
             spent · 30 jobs/min · 2 min left"
        );
        assert_eq!(
            line(99),
            "[#####-----------------------] 20/100 jobs · 70 queued · 8 in flight · 2 failed · 2 min left"
        );
        assert_eq!(
            line(79),
            "[###------------] 20/100 jobs · 70 queued · 8 in flight · 2 failed · 2 min left"
        );
        assert_eq!(line(59), "[####-----------------] 20/100 jobs · 2 failed · 2 min left");
        assert_eq!(line(30), "[###-------------] 20/100 jobs");
        assert_eq!(line(20), "20/100 jobs");
        for columns in 11..150 {
            assert!(terminal::width(&line(columns)) <= columns, "{columns}");
        }
    }

    #[test]
    fn failures_are_red_and_waits_are_yellow() {
        let parts = sum().parts(10, Millis(600_000), Millis(500_000));
        let toned = |tone| parts.iter().filter(move |part| part.tone == tone).map(|part| part.text.as_str());
        assert_eq!(toned(Tone::Failed).collect::<Vec<_>>(), ["2 failed"]);
        assert_eq!(toned(Tone::Waiting).collect::<Vec<_>>(), ["no job has ended for 8 min"]);
    }

    #[test]
    fn what_is_left_does_not_grow_while_nothing_ends() {
        let outlook = |silence| outlook(1, 10, 20_000, Millis(silence)).0;
        assert_eq!(outlook(0), "2 s left");
        assert_eq!(outlook(20_000), "0 s left");
        assert_eq!(outlook(600_000), "no job has ended for 10 min");
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
            [0, 850, 119_999, 240_000, 19_200_000, 183_600_000].map(|ms| span(Millis(ms))),
            ["0 s", "850 ms", "119 s", "4 min", "5 h 20 min", "2 d 3 h"]
        );
    }

    #[test]
    fn a_limit_that_was_learned_is_shown() {
        assert_eq!(fewer(4, 16).as_deref(), Some("16 -> 4 at once: limited by the service"));
        assert_eq!(fewer(16, 16), None);
    }

    #[test]
    fn rates_have_one_unit() {
        assert_eq!(rate(84, Millis(20_000)), "252 jobs/min");
        assert_eq!(rate(5, Millis(40_000)), "7.5 jobs/min");
    }
}
