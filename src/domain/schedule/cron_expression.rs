//! A crontab expression, and the local times that it names.
//!
//! Fields are parsed here, because the `cron` crate reads days of the week, steps and its own additions (`L`, `?`)
//! otherwise than crontab(5), and its errors name no field. The calendar is the crate's alone: which times an expression
//! names, which one is next, and which days fit. It is handed six or seven fields as plain lists, days of the week by
//! name, and one day field at a time where one of the two is enough, since the crate always wants both.

use std::ops::Bound::{Excluded, Unbounded};
use std::str::FromStr;

use chrono::{DateTime, Utc};
use cron::TimeUnitSpec;

use crate::domain::schedule::ScheduleError;
use crate::domain::schedule::cron_field::{DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, YEAR};

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

/// A parsed expression.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    /// As it was written, with one blank between two fields.
    pub source: String,
    /// None of its times of day begins with `*`: a change of the clocks neither drops nor repeats it.
    pub is_fixed: bool,
    /// By day-of-month and day-of-week at once, or by each of them where one is enough. Never empty.
    calendars: Vec<cron::Schedule>,
}

impl Expression {
    /// # Errors
    /// When the text is no expression, or there is no day on which it fires.
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
        let seconds = SECOND.parse(seconds.unwrap_or("0"))?;
        let (minutes, hours) = (MINUTE.parse(minute)?, HOUR.parse(hour)?);
        let (days, months, weekdays) = (DAY.parse(day)?, MONTH.parse(month)?, WEEKDAY.parse(weekday)?);
        let years = years.map(|years| YEAR.parse(years)).transpose()?;
        let is_fixed = ![&seconds, &minutes, &hours].iter().any(|field| field.is_star);

        let times = [seconds.list(60), minutes.list(60), hours.list(24)].join(" ");
        let months = months.list(12);
        let years = years.map_or_else(|| "*".to_owned(), |years| years.list(usize::MAX));
        let text = |days: &str, weekdays: &str| format!("{times} {days} {months} {weekdays} {years}");
        // Both days have to fit where one begins with `*`, else one of them (crontab(5)).
        let texts = if days.is_star || weekdays.is_star {
            vec![text(&days.list(31), &weekdays.weekday_list())]
        } else {
            vec![text(&days.list(31), "*"), text("*", &weekdays.weekday_list())]
        };
        let mut calendars = Vec::new();
        for text in texts {
            let calendar = cron::Schedule::from_str(&text)
                .map_err(|error| ScheduleError::cron(format!("{source:?}: {error}")))?;
            // 30 February is in the calendar's language and in no year.
            if calendar.after(&DateTime::<Utc>::UNIX_EPOCH).next().is_some() {
                calendars.push(calendar);
            }
        }
        if calendars.is_empty() {
            return Err(ScheduleError::cron(format!(
                "{source:?} never fires: no year from 1970 to 2100 has such a day; write a day that exists in one of \
                 the months"
            )));
        }
        Ok(Expression { source, is_fixed, calendars })
    }

    /// The first local time after `local`, both in seconds since 1970 as if local time were UTC.
    pub(super) fn next(&self, local: i64) -> Option<i64> {
        let after = DateTime::<Utc>::from_timestamp(local, 0)?;
        let next = self.calendars.iter().filter_map(|calendar| calendar.after(&after).next());
        next.map(|next| next.timestamp()).min()
    }

    /// How many of its times of day come before a second of the day; all of them before 86,400.
    pub(super) fn times_before(&self, second: i64) -> usize {
        // The times of day are the same in each.
        let Some(calendar) = self.calendars.first() else { return 0 };
        let (seconds, minutes, hours) = (calendar.seconds(), calendar.minutes(), calendar.hours());
        let part = |value: i64| u32::try_from(value).unwrap_or(0);
        let (hour, minute, second) = (part(second / 3600), part(second / 60 % 60), part(second % 60));
        let in_minute = if minutes.includes(minute) { below(seconds, second) } else { 0 };
        let in_hour = below(minutes, minute) * seconds.iter().count() + in_minute;
        let in_hour = if hours.includes(hour) { in_hour } else { 0 };
        below(hours, hour) * minutes.iter().count() * seconds.iter().count() + in_hour
    }
}

/// How many of a field's values are less than `value`.
fn below(field: &impl TimeUnitSpec, value: u32) -> usize {
    field.range((Unbounded, Excluded(value))).count()
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
