//! From an expression to instants.
//!
//! The `cron` crate walks the calendar; it is handed naive local time dressed up as UTC, six or seven
//! fields, weekdays by name and one day field at a time, because what it makes of zones, of numbered
//! weekdays and of two restricted day fields is not what crontab(5) says. Between two changes of the clocks
//! local time is UTC moved by a constant, so each stretch is walked by itself and no order is lost.

use std::collections::BTreeSet;
use std::str::FromStr;

use chrono::{DateTime, Datelike, NaiveDate, Utc};

use crate::domain::schedule::expression::Expression;
use crate::domain::schedule::field::WEEKDAYS;
use crate::domain::schedule::zone::Change;
use crate::domain::schedule::{Schedule, ScheduleError};
use crate::domain::time::Timestamp;

/// From so many seconds on a change of the clocks is another calendar: fixed times are not made up for.
const CALENDAR_CHANGE: i64 = 3 * 3600;

/// An expression as the `cron` crate walks it: by day-of-month, by day-of-week, or by both at once.
#[derive(Debug, Clone)]
pub(super) struct FireIter {
    by: Vec<cron::Schedule>,
}

impl FireIter {
    /// # Errors
    /// When there is no day at all on which it fires.
    pub(super) fn of(expression: &Expression) -> Result<FireIter, ScheduleError> {
        let Expression { days, weekdays, .. } = expression;
        let day_list = list(&days.values, 31);
        let named: Vec<&str> =
            weekdays.values.iter().filter_map(|&day| WEEKDAYS.get(day as usize).copied()).collect();
        let weekday_list = if named.len() == 7 { "*".to_owned() } else { named.join(",") };
        let texts = if expression.needs_both_days() {
            vec![line(expression, &day_list, &weekday_list)]
        } else {
            vec![line(expression, &day_list, "*"), line(expression, "*", &weekday_list)]
        };
        let refused = |error| ScheduleError::cron(format!("{:?}: {error}", expression.source));
        let mut by = Vec::new();
        for text in texts {
            let schedule = cron::Schedule::from_str(&text).map_err(refused)?;
            // 30 February is in the calendar's language and in no year.
            if schedule.after(&DateTime::<Utc>::UNIX_EPOCH).next().is_some() {
                by.push(schedule);
            }
        }
        match by.is_empty() {
            false => Ok(FireIter { by }),
            true => Err(ScheduleError::cron(format!(
                "{:?} never fires: no year from 1970 to 2100 has such a day; days that the months have are \
                 accepted",
                expression.source
            ))),
        }
    }

    /// The first second after `local`, both as if local time were UTC.
    fn next(&self, local: i64) -> Option<i64> {
        let after = DateTime::<Utc>::from_timestamp(local, 0)?;
        self.by.iter().filter_map(|schedule| schedule.after(&after).next()).map(|next| next.timestamp()).min()
    }
}

/// One line in the crate's language.
fn line(expression: &Expression, days: &str, weekdays: &str) -> String {
    let Expression { seconds, minutes, hours, months, years, .. } = expression;
    let (seconds, minutes, hours) = (list(seconds, 60), list(minutes, 60), list(hours, 24));
    let years = years.as_ref().map_or_else(|| "*".to_owned(), |years| list(years, usize::MAX));
    format!("{seconds} {minutes} {hours} {days} {} {weekdays} {years}", list(months, 12))
}

/// `1,2,5`, or `*` for all of them.
fn list(values: &BTreeSet<u32>, all: usize) -> String {
    if values.len() == all {
        return "*".to_owned();
    }
    values.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The instants at which a schedule fires, from [`Schedule::fires_after`].
#[derive(Debug, Clone)]
pub struct Fires<'a> {
    schedule: &'a Schedule,
    /// Seconds since 1970; everything up to and with it was told. Nothing once there is no more.
    told: Option<i64>,
}

/// Where a stretch of unchanged clocks leads.
enum Step {
    Fire(i64),
    /// Nothing up to and with this second.
    Nothing(i64),
}

impl<'a> Fires<'a> {
    pub(super) fn new(schedule: &'a Schedule, after: Timestamp) -> Fires<'a> {
        Fires { schedule, told: Some(after.0.div_euclid(1000)) }
    }

    /// The next fire after the second `told`, or how far there is none.
    fn step(&self, told: i64) -> Option<Step> {
        let Schedule { zone, fire_iter, expression } = self.schedule;
        let offset = zone.offset(told);
        let local = fire_iter.next(told + offset)?;
        let candidate = local - offset;
        match zone.first_change(told, candidate) {
            Some(change) => Some(self.at_change(change)),
            None if expression.is_fixed && self.is_repeated(local, candidate) => {
                Some(Step::Nothing(candidate))
            }
            None => Some(Step::Fire(candidate)),
        }
    }

    /// What happens at the second at which clocks are changed. Nothing fires before it.
    fn at_change(&self, change: Change) -> Step {
        let Schedule { fire_iter, expression, .. } = self.schedule;
        let shows = change.at + change.new;
        let skipped = change.new - change.old;
        let makes_up = expression.is_fixed && (1..CALENDAR_CHANGE).contains(&skipped);
        // What the clock left out is due as soon as it goes on.
        let from = if makes_up { change.at + change.old } else { shows };
        match fire_iter.next(from - 1) {
            Some(local) if local <= shows && !(expression.is_fixed && self.is_repeated(local, change.at)) => {
                Step::Fire(change.at)
            }
            _ => Step::Nothing(change.at),
        }
    }

    /// Whether the clock shows `local` for the second time at `at`, and not because the calendar changed.
    fn is_repeated(&self, local: i64, at: i64) -> bool {
        let Some(local) = DateTime::<Utc>::from_timestamp(local, 0) else { return false };
        let shown = self.schedule.zone.instants(local.naive_utc());
        shown.is_some_and(|(first, last)| first < last && last == at && last - first < CALENDAR_CHANGE)
    }
}

impl Iterator for Fires<'_> {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        loop {
            // The calendar ends in 2100, so this does, too.
            match self.step(self.told?) {
                Some(Step::Nothing(until)) => self.told = Some(until),
                Some(Step::Fire(at)) => {
                    self.told = Some(at);
                    return Some(Timestamp(at * 1000));
                }
                None => {
                    self.told = None;
                    return None;
                }
            }
        }
    }
}

impl Schedule {
    /// The how-manieth fire of its year, by the zone's calendar, an instant is or would be: 1 for the first.
    /// It follows from expression, zone and instant alone.
    pub(super) fn number_in_year(&self, at: Timestamp) -> u32 {
        let second = at.0.div_euclid(1000);
        let Some(local) = self.zone.local(at) else { return 1 };
        let mut day = NaiveDate::from_ymd_opt(local.year(), 1, 1);
        let mut number = 1;
        while let Some((today, tomorrow)) = day.and_then(|day| Some((day, day.succ_opt()?))) {
            let (begins, ends) = (self.day_begins(today), self.day_begins(tomorrow).min(second));
            if begins >= second {
                break;
            }
            number += self.count_day(today, begins, ends);
            day = Some(tomorrow);
        }
        number
    }

    /// Fires from `begins`, where the day begins, to before `ends`, in the same day or where it ends.
    fn count_day(&self, day: NaiveDate, begins: i64, ends: i64) -> u32 {
        // A day on which clocks are left alone is counted without going through it.
        let count = if self.zone.first_change(begins - 1, begins + 86_400).is_none() {
            if self.fits_day(day) { self.expression.times_before(ends - begins) } else { 0 }
        } else {
            let fires = self.fires_after(Timestamp((begins - 1) * 1000));
            fires.take_while(|fire| fire.0 < ends * 1000).count()
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The second at which the zone's calendar turns to a day: midnight, or what comes in its place.
    pub(super) fn day_begins(&self, day: NaiveDate) -> i64 {
        let Some(midnight) = day.and_hms_opt(0, 0, 0) else { return i64::MAX };
        if let Some((first, _)) = self.zone.instants(midnight) {
            return first;
        }
        let about = midnight.and_utc().timestamp();
        // Midnight itself is left out: the day begins with the change that does so.
        self.zone.first_change(about - 86_400, about + 86_400).map_or(about, |change| change.at)
    }

    /// Whether it fires on a day of the calendar.
    pub(super) fn fits_day(&self, day: NaiveDate) -> bool {
        let Expression { days, weekdays, months, years, .. } = &self.expression;
        let fits_year = years
            .as_ref()
            .is_none_or(|years| u32::try_from(day.year()).is_ok_and(|year| years.contains(&year)));
        let by_day = days.values.contains(&day.day());
        let by_weekday = weekdays.values.contains(&day.weekday().num_days_from_sunday());
        let fits_day =
            if self.expression.needs_both_days() { by_day && by_weekday } else { by_day || by_weekday };
        fits_year && months.contains(&day.month()) && fits_day
    }
}
