//! What one group has held and spent: in total, and of the last days on which something was sent.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::domain::default_fields::is_default;
use crate::domain::ledger::{Movement, OutOfBalance, Totals};
use crate::domain::utc_day::UtcDay;

/// So many days before the oldest kept one, a day may be one that was dropped when the clock was set back since.
const DROPPED_DAYS_MAX: u32 = 31;

/// What one group has held and spent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTotal {
    #[serde(flatten)]
    pub total: Totals,
    /// The last UTC day on which something was sent, and what was held and spent of that day's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<(UtcDay, Totals)>,
    /// The same of other days, should the clock be set back to one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub earlier_days: [Option<(UtcDay, Totals)>; 3],
}

impl GroupTotal {
    /// What counts against the limit of a day. Of a day that may have been dropped, since others of the days after it are
    /// kept, that of the oldest one counts; days that are far ahead are a fault of the clock, and hold nothing up.
    pub fn of_day(&self, day: UtcDay) -> Totals {
        let kept = || self.day.iter().chain(self.earlier_days.iter().flatten());
        if let Some((_, totals)) = kept().find(|(kept, _)| *kept == day) {
            return *totals;
        }
        let may_be_dropped = |oldest: UtcDay| day < oldest && oldest.0.abs_diff(day.0) <= DROPPED_DAYS_MAX;
        let is_full = self.earlier_days.iter().all(Option::is_some);
        let oldest = kept().min_by_key(|(kept, _)| *kept).filter(|_| is_full);
        oldest.filter(|(oldest, _)| may_be_dropped(*oldest)).map(|(_, totals)| *totals).unwrap_or_default()
    }

    fn of_day_mut(&mut self, day: UtcDay) -> Option<&mut Totals> {
        let mut kept = self.day.iter_mut().chain(self.earlier_days.iter_mut().flatten());
        kept.find(|(kept, _)| *kept == day).map(|(_, totals)| totals)
    }

    /// Of a day before the last one only a hold begins the totals. What follows it may come when its day was dropped, and even
    /// begun anew: it is left out where it does not fit.
    pub(super) fn apply(&mut self, movement: Movement, day: Option<UtcDay>) -> Result<(), OutOfBalance> {
        self.total.apply(movement)?;
        let Some(day) = day else { return Ok(()) };
        let is_later = self.day.is_none_or(|(last, _)| day > last);
        let kept = self.of_day_mut(day);
        let mut totals = kept.as_deref().copied().unwrap_or_default();
        if totals.apply(movement).is_err() {
            return Ok(());
        }
        match kept {
            Some(kept) => *kept = totals,
            None if matches!(movement, Movement::Hold(_)) || is_later => {
                self.keep(day, totals, |other| i64::from(other.0.abs_diff(day.0)));
            }
            None => {}
        }
        Ok(())
    }

    /// Adds what a job holds and was charged. Jobs come in any order, so the days that are kept are the latest ones: those
    /// were kept all along.
    pub(super) fn add(&mut self, totals: Totals, day: Option<UtcDay>) {
        self.total = self.total + totals;
        let Some(day) = day else { return };
        match self.of_day_mut(day) {
            Some(of_day) => *of_day = *of_day + totals,
            None => self.keep(day, totals, |other| -i64::from(other.0)),
        }
    }

    /// Keeps the totals of a day that is not kept yet. Where there is no room, the day goes of which `distance` is largest.
    fn keep(&mut self, day: UtcDay, totals: Totals, distance: impl Fn(UtcDay) -> i64) {
        let kept = self.day.into_iter().chain(self.earlier_days.into_iter().flatten());
        let mut days: Vec<(UtcDay, Totals)> = kept.chain([(day, totals)]).collect();
        days.sort_by_key(|(day, _)| distance(*day));
        days.truncate(1 + self.earlier_days.len());
        days.sort_by_key(|(day, _)| Reverse(*day));
        let mut days = days.into_iter();
        self.day = days.next();
        self.earlier_days = std::array::from_fn(|_| days.next());
    }
}
