//! One field of an expression: lists of numbers, names, ranges and steps.

use std::collections::BTreeSet;

use crate::domain::schedule::ScheduleError;

/// The values that a field accepts.
#[derive(Debug)]
pub(super) struct FieldSpec {
    /// As messages name it.
    pub name: &'static str,
    pub low: u32,
    pub high: u32,
    /// Names of its values from `low` on, in lower case.
    pub names: &'static [&'static str],
}

pub(super) const SECOND: FieldSpec = FieldSpec { name: "second", low: 0, high: 59, names: &[] };
pub(super) const MINUTE: FieldSpec = FieldSpec { name: "minute", low: 0, high: 59, names: &[] };
pub(super) const HOUR: FieldSpec = FieldSpec { name: "hour", low: 0, high: 23, names: &[] };
pub(super) const DAY: FieldSpec = FieldSpec { name: "day-of-month", low: 1, high: 31, names: &[] };
pub(super) const MONTH: FieldSpec = FieldSpec { name: "month", low: 1, high: 12, names: &MONTHS };
/// Sunday is both 0 and 7.
pub(super) const WEEKDAY: FieldSpec = FieldSpec { name: "day-of-week", low: 0, high: 7, names: &WEEKDAYS };
/// As far as the calendar of the `cron` crate goes.
pub(super) const YEAR: FieldSpec = FieldSpec { name: "year", low: 1970, high: 2100, names: &[] };

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A parsed field.
#[derive(Debug)]
pub(super) struct Field {
    pub values: BTreeSet<u32>,
    /// It begins with `*`, with a step or not: it does not restrict in the sense of crontab(5).
    pub is_star: bool,
}

impl Field {
    /// The values in the language of the `cron` crate: `1,2,5`, or `*` for `count` of them.
    pub(super) fn list(&self, count: usize) -> String {
        if self.values.len() == count {
            return "*".to_owned();
        }
        self.values.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    /// The same for days of the week, by name: the crate counts them from another day.
    pub(super) fn weekday_list(&self) -> String {
        if self.values.len() == WEEKDAYS.len() {
            return "*".to_owned();
        }
        let named = self.values.iter().filter_map(|&day| WEEKDAYS.get(day as usize).copied());
        named.collect::<Vec<_>>().join(",")
    }
}

impl FieldSpec {
    pub(super) fn parse(&self, text: &str) -> Result<Field, ScheduleError> {
        let mut values = BTreeSet::new();
        for part in text.split(',') {
            values.append(&mut self.range(part, text)?);
        }
        if self.high == WEEKDAY.high && values.remove(&7) {
            values.insert(0);
        }
        Ok(Field { values, is_star: text.starts_with('*') })
    }

    /// `*`, `5`, `1-5`, `*/10` or `1-5/2`.
    fn range(&self, part: &str, whole: &str) -> Result<BTreeSet<u32>, ScheduleError> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step, part)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.low, self.high),
            Some((from, to)) => (self.value(from, part, whole)?, self.value(to, part, whole)?),
            None if step.is_some() => {
                let from = self.value(range, part, whole)?;
                let step = step.unwrap_or_default();
                return self.refuse(part, &format!("a step needs a range: {from}-{}/{step}", self.high));
            }
            None => {
                let value = self.value(range, part, whole)?;
                (value, value)
            }
        };
        if from > to {
            return self.refuse(part, &self.unwrapped(from, to));
        }
        let step = step.unwrap_or(1);
        Ok((from..=to).step_by(usize::try_from(step).unwrap_or(1)).collect())
    }

    /// What to write for a range that ends before it begins.
    fn unwrapped(&self, from: u32, to: u32) -> String {
        let said = "a range goes upwards";
        match (self.high, to) {
            (7, 0) => format!("{said}, and Sunday at its end is 7: write {from}-7"),
            (2100, _) => format!("{said}: write {to}-{from}"),
            (high, _) => {
                format!("{said}: write {from}-{},{}-{to}", if high == 7 { 6 } else { high }, self.low)
            }
        }
    }

    fn step(&self, text: &str, part: &str) -> Result<u32, ScheduleError> {
        // Past it a step means nothing that anybody wants: `*/90` minutes is not every hour and a half.
        let widest = if self.high == WEEKDAY.high { 7 } else { self.high - self.low + 1 };
        match number(text) {
            Some(step) if (1..=widest).contains(&step) => Ok(step),
            _ => self.refuse(part, &format!("a step is a number from 1 to {widest}")),
        }
    }

    fn value(&self, text: &str, part: &str, whole: &str) -> Result<u32, ScheduleError> {
        let named = self.names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| at + self.low);
        match named.or_else(|| number(text)) {
            Some(value) if (self.low..=self.high).contains(&value) => Ok(value),
            _ if text.is_empty() && part.is_empty() => {
                self.refuse(whole, "a comma stands between two values")
            }
            _ => self.refuse(part, &self.accepted(text)),
        }
    }

    /// What would be accepted, with a word for what only other programs know.
    fn accepted(&self, text: &str) -> String {
        let names = match self.names {
            [first, .., last] => format!(", {first} to {last}"),
            _ => String::new(),
        };
        let values = format!("{} to {}{names}, *, ranges, lists and steps are accepted", self.low, self.high);
        match text {
            "?" => format!("write * for any; {values}"),
            _ if text.contains(['L', 'W', '#']) && !self.names.iter().any(|name| text.contains(name)) => {
                format!("crontab does not support L, W or #; {values}")
            }
            _ => values,
        }
    }

    fn refuse<T>(&self, found: &str, accepted: &str) -> Result<T, ScheduleError> {
        Err(ScheduleError::cron(format!("{}: found {found:?}; {accepted}", self.name)))
    }
}

/// Digits alone: no sign, no blank.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}
