//! Named time zones: what their clocks show, and when these are changed (DST). What fires then: `fires.rs`.

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone, Utc};
use chrono_tz::{OffsetName, TZ_VARIANTS, Tz};

use crate::domain::schedule::ScheduleError;
use crate::domain::time::Timestamp;

/// No zone changes its clocks and changes them back within so many seconds.
const SCAN_STEP: i64 = 12 * 3600;

/// Below this likeness (Jaro-Winkler) a zone is not what was meant.
const LIKENESS: f64 = 0.8;

/// A named time zone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Zone(Tz);

/// Clocks are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// The first second of the new offset, since 1970 in UTC.
    pub at: i64,
    /// Seconds east of UTC until then.
    pub old: i64,
    /// Seconds east of UTC from then on.
    pub new: i64,
}

impl Zone {
    pub(super) fn parse(name: &str) -> Result<Zone, ScheduleError> {
        name.parse().map(Zone).map_err(|_| {
            let hint = nearest(name).map_or_else(
                || "an IANA name such as Europe/Berlin or UTC is accepted".to_owned(),
                |near| format!("did you mean {near:?}?"),
            );
            ScheduleError { key: "timezone", message: format!("{name:?} is not a time zone; {hint}") }
        })
    }

    pub(super) fn name(self) -> &'static str {
        self.0.name()
    }

    /// What a clock shows; nothing outside the calendar.
    pub(super) fn local(self, at: Timestamp) -> Option<DateTime<Tz>> {
        DateTime::<Utc>::from_timestamp_millis(at.0).map(|utc| utc.with_timezone(&self.0))
    }

    /// Seconds east of UTC at a second since 1970.
    pub(super) fn offset(self, at: i64) -> i64 {
        let utc = DateTime::<Utc>::from_timestamp(at, 0).unwrap_or_default().naive_utc();
        i64::from(self.0.offset_from_utc_datetime(&utc).fix().local_minus_utc())
    }

    /// The first change after `from`, up to and with `until`, in seconds since 1970.
    pub(super) fn first_change(self, from: i64, until: i64) -> Option<Change> {
        let old = self.offset(from);
        let mut low = from;
        while low < until {
            let mut high = (low + SCAN_STEP).min(until);
            let mut new = self.offset(high);
            if new == old {
                low = high;
                continue;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match self.offset(middle) {
                    offset if offset == old => low = middle,
                    offset => (high, new) = (middle, offset),
                }
            }
            return Some(Change { at: high, old, new });
        }
        None
    }

    /// The first and the last second since 1970 at which clocks show `local`; nothing when they leave it
    /// out.
    pub(super) fn instants(self, local: NaiveDateTime) -> Option<(i64, i64)> {
        match self.0.from_local_datetime(&local) {
            MappedLocalTime::None => None,
            MappedLocalTime::Single(at) => Some((at.timestamp(), at.timestamp())),
            MappedLocalTime::Ambiguous(one, other) => {
                let (one, other) = (one.timestamp(), other.timestamp());
                Some((one.min(other), one.max(other)))
            }
        }
    }

    /// `CET, UTC+01:00`; where the zone's times have no name, the offset alone.
    pub(super) fn describe(self, at: Timestamp) -> String {
        let Some(local) = self.local(at) else { return self.name().to_owned() };
        let offset = format!("UTC{}", local.format("%:z"));
        match local.offset().abbreviation() {
            Some("UTC") => "UTC".to_owned(),
            Some(name) => format!("{name}, {offset}"),
            None => offset,
        }
    }
}

/// The zone that was probably meant: by its whole name, or by its last part (`berlin`).
fn nearest(found: &str) -> Option<&'static str> {
    let found: String = found.chars().take(64).flat_map(char::to_lowercase).collect();
    let found = found.replace(' ', "_");
    let scored = TZ_VARIANTS.iter().map(|zone| {
        let name = zone.name().to_lowercase();
        let city = name.rsplit('/').next().unwrap_or(&name);
        let likeness = strsim::jaro_winkler(&found, &name).max(strsim::jaro_winkler(&found, city));
        (likeness, zone.name())
    });
    // Of two that are as near, the first in the alphabet.
    let best = scored.fold((LIKENESS, None), |best, (likeness, name)| match likeness > best.0 {
        true => (likeness, Some(name)),
        false => best,
    });
    best.1
}
