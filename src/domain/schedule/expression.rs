//! The text of an expression, and what it says.

use std::collections::BTreeSet;

use crate::domain::schedule::ScheduleError;
use crate::domain::schedule::field::{DAY, Field, HOUR, Kind, MINUTE, MONTH, SECOND, WEEKDAY, YEAR};

/// Longest expression, in characters.
const CHARS_MAX: usize = 1000;

/// Below this likeness (Jaro-Winkler) a nickname is not what was meant.
const LIKENESS: f64 = 0.8;

/// What the names that begin with `@` stand for.
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// An expression that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expression {
    /// As it was written, with one blank between two fields.
    pub source: String,
    pub seconds: BTreeSet<u32>,
    pub minutes: BTreeSet<u32>,
    pub hours: BTreeSet<u32>,
    pub days: Field,
    pub months: BTreeSet<u32>,
    pub weekdays: Field,
    /// Every year where it says nothing.
    pub years: Option<BTreeSet<u32>>,
    /// None of its times of day begins with `*`: a change of the clocks neither drops nor repeats it.
    pub is_fixed: bool,
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Expression, ScheduleError> {
        if text.chars().count() > CHARS_MAX {
            return Err(ScheduleError::cron(format!("is longer than {CHARS_MAX} characters")));
        }
        let source = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let written = if source.starts_with('@') { nickname(&source)? } else { &source };
        let fields: Vec<&str> = written.split(' ').filter(|field| !field.is_empty()).collect();
        let (seconds, [minute, hour, day, month, weekday], years) = match *fields {
            [m, h, d, mo, w] if !m.contains('=') => (None, [m, h, d, mo, w], None),
            [zone, ..] if zone.contains('=') => return Err(a_zone(zone)),
            [s, m, h, d, mo, w] => (Some(s), [m, h, d, mo, w], None),
            [s, m, h, d, mo, w, y] => (Some(s), [m, h, d, mo, w], Some(y)),
            _ => return Err(wrong_number(&source, fields.len())),
        };
        let read = |kind: &Kind, text: &str| kind.parse(text);
        let seconds = read(&SECOND, seconds.unwrap_or("0"))?;
        let minutes = read(&MINUTE, minute)?;
        let hours = read(&HOUR, hour)?;
        let is_fixed = ![&seconds, &minutes, &hours].iter().any(|field| field.is_star);
        Ok(Expression {
            source: source.clone(),
            seconds: seconds.values,
            minutes: minutes.values,
            hours: hours.values,
            days: read(&DAY, day)?,
            months: read(&MONTH, month)?.values,
            weekdays: read(&WEEKDAY, weekday)?,
            years: years.map(|years| read(&YEAR, years)).transpose()?.map(|field| field.values),
            is_fixed,
        })
    }

    /// How many of its times of day come before a second of the day; all of them before 86,400.
    pub(super) fn times_before(&self, second: i64) -> usize {
        let part = |value: i64| u32::try_from(value).unwrap_or(0);
        let (hour, minute, second) = (part(second / 3600), part(second / 60 % 60), part(second % 60));
        let below = |values: &BTreeSet<u32>, value: u32| values.range(..value).count();
        let in_minute = if self.minutes.contains(&minute) { below(&self.seconds, second) } else { 0 };
        let in_hour = below(&self.minutes, minute) * self.seconds.len() + in_minute;
        let in_hour = if self.hours.contains(&hour) { in_hour } else { 0 };
        below(&self.hours, hour) * self.minutes.len() * self.seconds.len() + in_hour
    }

    /// Whether both days have to fit, or one of them (crontab(5)).
    pub(super) fn needs_both_days(&self) -> bool {
        self.days.is_star || self.weekdays.is_star
    }
}

fn nickname(text: &str) -> Result<&'static str, ScheduleError> {
    if let Some((_, fields)) = NICKNAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)) {
        return Ok(fields);
    }
    let names = NICKNAMES.map(|(name, _)| name).join(", ");
    let message = if text.eq_ignore_ascii_case("@reboot") {
        format!("found \"@reboot\", which is not a time; {names} or five fields are accepted")
    } else {
        let scored = NICKNAMES.iter().map(|(name, _)| (strsim::jaro_winkler(text, name), name));
        let near = scored.filter(|(likeness, _)| *likeness > LIKENESS).max_by(|a, b| a.0.total_cmp(&b.0));
        let near = near.map_or_else(String::new, |(_, name)| format!("did you mean {name}? "));
        format!("found {text:?}; {near}{names} or five fields are accepted")
    };
    Err(ScheduleError::cron(message))
}

fn wrong_number(source: &str, count: usize) -> ScheduleError {
    let accepted = "five are accepted, minute hour day-of-month month day-of-week; six put seconds first; \
                    seven end in a year";
    ScheduleError::cron(format!("found {count} fields in {source:?}; {accepted}"))
}

/// `CRON_TZ=Europe/Berlin`, as some crontabs begin.
fn a_zone(found: &str) -> ScheduleError {
    ScheduleError::cron(format!("found {found:?}; the zone of the clock is given in timezone, beside cron"))
}
