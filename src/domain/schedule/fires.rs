//! From an expression's local times to instants, also where clocks are changed (daylight saving time, DST).
//!
//! Local times are handed to the expression as if they were UTC. Between two changes of the clocks they are UTC moved by a
//! constant, so each stretch is searched by itself and no order is lost.

use chrono::{DateTime, Datelike, NaiveDate, Utc};

use crate::domain::schedule::Schedule;
use crate::domain::schedule::zone::Change;
use crate::domain::time::Timestamp;

/// A change of the clocks by so many seconds or more is one of the calendar: fixed times are not made up for.
const CALENDAR_CHANGE: i64 = 3 * 3600;

/// The instants at which a schedule fires, from [`Schedule::fires_after`].
#[derive(Debug, Clone)]
pub struct Fires<'a> {
    schedule: &'a Schedule,
    /// Seconds since 1970: fires up to and with it were returned. None once there are no more.
    searched: Option<i64>,
}

/// What the search of a stretch of unchanged clocks finds, in seconds since 1970.
enum NextFire {
    At(i64),
    /// There is none up to and with this second.
    NoneUntil(i64),
}

impl<'a> Fires<'a> {
    pub(super) fn new(schedule: &'a Schedule, after: Timestamp) -> Fires<'a> {
        Fires { schedule, searched: Some(after.0.div_euclid(1000)) }
    }

    /// The next fire after the second `searched`, or how far there is none.
    fn search(&self, searched: i64) -> Option<NextFire> {
        let Schedule { zone, expression } = self.schedule;
        let offset = zone.offset(searched);
        let local = expression.next(searched + offset)?;
        let candidate = local - offset;
        match zone.first_change(searched, candidate) {
            Some(change) => Some(self.at_change(change)),
            None if expression.is_fixed && self.is_repeated(local, candidate) => {
                Some(NextFire::NoneUntil(candidate))
            }
            None => Some(NextFire::At(candidate)),
        }
    }

    /// What happens at the second at which clocks are changed. Nothing fires before it.
    fn at_change(&self, change: Change) -> NextFire {
        let Schedule { expression, .. } = self.schedule;
        let shows = change.at + change.new;
        let skipped = change.new - change.old;
        let makes_up = expression.is_fixed && (1..CALENDAR_CHANGE).contains(&skipped);
        // What the clock left out is due as soon as it goes on.
        let from = if makes_up { change.at + change.old } else { shows };
        match expression.next(from - 1) {
            Some(local) if local <= shows && !(expression.is_fixed && self.is_repeated(local, change.at)) => {
                NextFire::At(change.at)
            }
            _ => NextFire::NoneUntil(change.at),
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
            match self.search(self.searched?) {
                Some(NextFire::NoneUntil(until)) => self.searched = Some(until),
                Some(NextFire::At(at)) => {
                    self.searched = Some(at);
                    return Some(Timestamp(at * 1000));
                }
                None => {
                    self.searched = None;
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

    /// Whether the expression names a time of a day of the calendar.
    fn fits_day(&self, day: NaiveDate) -> bool {
        let midnight = day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp();
        self.expression.next(midnight - 1).is_some_and(|next| next < midnight + 86_400)
    }
}
