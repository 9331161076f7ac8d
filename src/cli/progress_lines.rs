//! What progress looks like: a few lines on a terminal, one line in a log. Pure: from the batches' numbers to text.

use std::collections::BTreeMap;

use crate::cli::terminal::{self, Tone};
use crate::domain::credits::Credits;
use crate::domain::job_state::JobState;
use crate::domain::time::Millis;
use crate::server::protocol::BatchStatus;

/// How long nothing may end before the time that is left is no longer guessed.
const GUESS_MAX_SILENCE: Millis = Millis::from_secs(30);
/// Columns of the bar of all jobs.
const BAR_COLUMNS: std::ops::RangeInclusive<usize> = 10..=30;
/// Columns of the bar of a kind.
const KIND_BAR_COLUMNS: usize = 20;
/// Between two parts of a line.
const SEPARATOR: &str = " · ";

/// All batches together, at a moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Figures {
    rows: u32,
    ended: u32,
    in_flight: u32,
    fetching: u32,
    queued: u32,
    failed: u32,
    in_doubt: u32,
    held: Credits,
    spent: Credits,
    budget: Credits,
    /// How many have ended, of how many.
    kinds: BTreeMap<String, (u32, u32)>,
    /// `gull (content_rejected)`, the last one first.
    failures: Vec<String>,
}

/// How quickly jobs end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// Jobs that have ended since the command began.
    pub(super) ended: u32,
    /// How long it has waited.
    pub(super) elapsed: Millis,
    /// How long ago the last job ended.
    pub(super) silence: Millis,
}

/// Something that a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// Where the room is short the greatest goes first.
    rank: u8,
    text: String,
    tone: Tone,
}

impl Figures {
    pub(super) fn of(batches: &[BatchStatus]) -> Figures {
        let mut all = Figures::default();
        for batch in batches {
            all.rows += batch.jobs;
            all.held = all.held + Credits(batch.held_credits);
            all.spent = all.spent + Credits(batch.charged_credits);
            all.budget = Credits(all.budget.0.saturating_add(batch.budget_credits));
            for of_kind in &batch.kinds {
                let (ended, jobs) = all.kinds.entry(of_kind.kind.clone()).or_default();
                (*ended, *jobs) = (*ended + of_kind.ended, *jobs + of_kind.jobs);
            }
            let failures = batch.last_failures.iter();
            all.failures.extend(failures.map(|failure| format!("{} ({})", failure.job, failure.code)));
            JobState::ALL.into_iter().for_each(|state| all.add(state, batch.in_state(state)));
        }
        all
    }

    /// Jobs that have ended.
    pub(super) fn ended(&self) -> u32 {
        self.ended
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

    /// Lines for a terminal of so many columns and at most so many lines: all jobs, each kind where there are several,
    /// the money, and what failed last. `limit` says how many may be in flight where that is less than configured.
    pub(super) fn lines(&self, pace: Pace, limit: Option<&str>, columns: usize, most: usize) -> Vec<String> {
        let mut lines = vec![self.line(&self.job_parts(pace), columns)];
        let kinds = self.kind_lines(columns);
        let mut money = vec![Part { rank: 1, text: self.money(), tone: Tone::Plain }];
        money.extend(rate_part(pace));
        money.extend(limit.map(|limit| Part { rank: 3, text: limit.to_owned(), tone: Tone::Waiting }));
        let money = fitting("", &money, columns);
        let failures =
            self.failures_text().map(|text| Tone::Failed.paint(&terminal::shorten(&text, columns)));
        // What is least missed goes first where the terminal is low.
        let few = 2 + usize::from(failures.is_some());
        lines.extend(if kinds.len() + few <= most { kinds } else { Vec::new() });
        lines.extend(Some(money).filter(|_| most > 1));
        lines.extend(failures.filter(|_| most > 2));
        lines
    }

    /// The same in one line, for a log.
    pub(super) fn log_line(&self, pace: Pace, limit: Option<&str>) -> String {
        let mut parts = self.job_parts(pace);
        let plain = |text| Part { rank: 0, text, tone: Tone::Plain };
        parts.push(plain(self.money()));
        parts.extend(rate_part(pace));
        parts.extend(limit.map(|limit| plain(limit.to_owned())));
        if self.kinds.len() > 1 {
            let kind = |(kind, (ended, jobs)): (&String, &(u32, u32))| format!("{kind} {ended}/{jobs}");
            parts.push(plain(self.kinds.iter().map(kind).collect::<Vec<_>>().join(", ")));
        }
        parts.extend(self.failures_text().map(plain));
        let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
        format!("{}/{} jobs  {}", self.ended, self.rows, texts.join(SEPARATOR))
    }

    /// What there is to say of the jobs beside how many have ended.
    fn job_parts(&self, pace: Pace) -> Vec<Part> {
        let mut parts = Vec::new();
        let counts = [
            (4, self.queued, "queued", Tone::Plain),
            (3, self.in_flight, "in flight", Tone::Plain),
            (5, self.fetching, "downloading", Tone::Plain),
            (1, self.failed, "failed", Tone::Failed),
            (1, self.in_doubt, "in doubt", Tone::Failed),
        ];
        for (rank, n, what, tone) in counts {
            if n > 0 {
                parts.push(Part { rank, text: format!("{n} {what}"), tone });
            }
        }
        let left = u64::from(self.rows.saturating_sub(self.ended));
        if pace.ended > 0 && pace.elapsed.0 > 0 && left > 0 {
            let took_ms = pace.elapsed.0.saturating_sub(pace.silence.0);
            let (text, tone) = outlook(left, u64::from(pace.ended), took_ms, pace.silence);
            parts.push(Part { rank: 2, text, tone });
        }
        parts
    }

    /// `80 held, 200 of 1500 credits spent`
    fn money(&self) -> String {
        let held = if self.held.is_zero() { String::new() } else { format!("{} held, ", self.held.0) };
        match self.budget {
            Credits(0) => format!("{held}{} spent", self.spent),
            budget => format!("{held}{} of {budget} spent", self.spent.0),
        }
    }

    fn failures_text(&self) -> Option<String> {
        Some(format!("last failed: {}", self.failures.join(", "))).filter(|_| !self.failures.is_empty())
    }

    /// A bar of each kind, where there are several.
    fn kind_lines(&self, columns: usize) -> Vec<String> {
        let name_columns = self.kinds.keys().map(|kind| terminal::width(kind)).max().unwrap_or_default();
        let number_columns =
            self.kinds.values().map(|(_, jobs)| jobs.to_string().len()).max().unwrap_or_default();
        let needed = name_columns + 2 + KIND_BAR_COLUMNS + 1 + 2 * number_columns + 1;
        if self.kinds.len() < 2 || needed > columns {
            return Vec::new();
        }
        let line = |(kind, (ended, jobs)): (&String, &(u32, u32))| {
            let bar = bar(*ended, *jobs, KIND_BAR_COLUMNS);
            format!("{kind:<name_columns$}  {bar}{ended:>number_columns$}/{jobs}")
        };
        self.kinds.iter().map(line).collect()
    }

    /// A bar, how many jobs have ended, and as much of the rest as there is room for. The bar keeps its width whatever
    /// else there is to say.
    fn line(&self, parts: &[Part], columns: usize) -> String {
        let count = format!("{}/{} jobs", self.ended, self.rows);
        let bar_columns = (columns / 4).clamp(*BAR_COLUMNS.start(), *BAR_COLUMNS.end());
        let needed = bar_columns + 1 + terminal::width(&count);
        let bar = if needed > columns { String::new() } else { bar(self.ended, self.rows, bar_columns) };
        fitting(&format!("{bar}{count}"), parts, columns)
    }
}

/// A line that begins so, with as many of the parts as there is room for, in their order.
fn fitting(begin: &str, parts: &[Part], columns: usize) -> String {
    let mut room = columns.saturating_sub(terminal::width(begin));
    let mut ranked: Vec<usize> = (0..parts.len()).collect();
    ranked.sort_by_key(|at| parts[*at].rank);
    let mut shown = vec![false; parts.len()];
    let mut is_first = begin.is_empty();
    for at in ranked {
        let separator = if is_first { 0 } else { SEPARATOR.chars().count() };
        let needed = terminal::width(&parts[at].text) + separator;
        if needed > room {
            break;
        }
        room -= needed;
        shown[at] = true;
        is_first = false;
    }
    let shown = parts.iter().zip(shown).filter(|(_, is_shown)| *is_shown);
    let texts = shown.map(|(part, _)| part.tone.paint(&part.text));
    let begin = Some(begin.to_owned()).filter(|begin| !begin.is_empty());
    begin.into_iter().chain(texts).collect::<Vec<_>>().join(SEPARATOR)
}

/// A bar of so many columns, and a blank.
fn bar(ended: u32, rows: u32, columns: usize) -> String {
    let inner = columns - 2;
    let full = (inner as u64 * u64::from(ended)).checked_div(u64::from(rows)).unwrap_or_default();
    let full = usize::try_from(full).unwrap_or(inner).min(inner);
    format!("[{}{}] ", "#".repeat(full), "-".repeat(inner - full))
}

fn rate_part(pace: Pace) -> Option<Part> {
    let is_known = pace.ended > 0 && pace.elapsed.0 > 0;
    is_known.then(|| Part { rank: 2, text: rate(u64::from(pace.ended), pace.elapsed), tone: Tone::Plain })
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

    fn figures() -> Figures {
        Figures {
            rows: 100,
            ended: 20,
            in_flight: 8,
            queued: 70,
            failed: 2,
            held: Credits(80),
            spent: Credits(200),
            budget: Credits(1500),
            kinds: [("sound-effect".to_owned(), (15, 60)), ("video".to_owned(), (5, 40))].into(),
            failures: vec!["storm (content_rejected)".to_owned(), "wind (internal_error)".to_owned()],
            ..Figures::default()
        }
    }

    const PACE: Pace = Pace { ended: 10, elapsed: Millis(20_000), silence: Millis(0) };

    /// The lines at a width, without colours.
    fn lines(columns: usize, most: usize) -> Vec<String> {
        let lines = figures().lines(PACE, None, columns, most);
        lines.iter().map(|line| terminal::without_tones(line)).collect()
    }

    #[test]
    fn bars_money_rate_and_failures_fit_the_terminal() {
        assert_eq!(
            lines(79, 20),
            [
                "[###--------------] 20/100 jobs · 8 in flight · 2 failed · 2 min left",
                "sound-effect  [####--------------] 15/60",
                "video         [##----------------]  5/40",
                "80 held, 200 of 1500 credits spent · 30 jobs/min",
                "last failed: storm (content_rejected), wind (internal_error)",
            ]
        );
        assert_eq!(
            lines(59, 20)[..2],
            [
                "[##----------] 20/100 jobs · 2 failed · 2 min left",
                "sound-effect  [####--------------] 15/60",
            ]
        );
        assert_eq!(lines(30, 3).last().unwrap(), "last failed: storm…");
        assert_eq!(lines(20, 1), ["20/100 jobs"]);
        for columns in 11..150 {
            for most in 1..8 {
                let lines = lines(columns, most);
                assert!(lines.len() <= most && !lines.is_empty());
                assert!(lines.iter().all(|line| terminal::width(line) <= columns), "{columns}: {lines:?}");
            }
        }
    }

    #[test]
    fn the_bar_keeps_its_width_whatever_else_is_said() {
        let mut busier = figures();
        busier.fetching = 3;
        let bar =
            |figures: &Figures| figures.lines(PACE, None, 70, 1)[0].split(' ').next().unwrap().to_owned();
        assert_eq!(bar(&figures()), bar(&busier));
    }

    #[test]
    fn a_log_has_it_in_one_line() {
        assert_eq!(
            figures().log_line(PACE, Some("16 -> 4 at once: limited by the service")),
            "20/100 jobs  70 queued · 8 in flight · 2 failed · 2 min left · 80 held, 200 of 1500 credits spent · 30 \
             jobs/min · 16 -> 4 at once: limited by the service · sound-effect 15/60, video 5/40 · last failed: storm \
             (content_rejected), wind (internal_error)"
        );
    }

    #[test]
    fn failures_are_red_and_waits_are_yellow() {
        let parts =
            figures().job_parts(Pace { ended: 10, elapsed: Millis(600_000), silence: Millis(500_000) });
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
    fn spans_and_rates_have_units_that_fit() {
        assert_eq!(
            [0, 850, 119_999, 240_000, 19_200_000, 183_600_000].map(|ms| span(Millis(ms))),
            ["0 s", "850 ms", "119 s", "4 min", "5 h 20 min", "2 d 3 h"]
        );
        assert_eq!(rate(84, Millis(20_000)), "252 jobs/min");
        assert_eq!(rate(5, Millis(40_000)), "7.5 jobs/min");
    }
}
