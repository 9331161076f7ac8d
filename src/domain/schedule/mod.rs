//! Schedules: when recurring batches fire, what is due, what a run is called.
//!
//! Expressions mean what they mean to Debian's cron (vixie's), whatever else reads them otherwise:
//!
//! - Five fields `minute hour day-of-month month day-of-week`; six put seconds first; seven put years last,
//!   too (1970 to 2100). `@hourly`, `@daily` and the like are their five fields.
//! - Sunday is 0 or 7.
//! - A day fits when day-of-month and day-of-week fit, if one of the two fields begins with `*`; else
//!   when one of them fits.
//! - A job whose seconds, minute and hour fields do not begin with `*` has a *fixed* time. When clocks are put
//!   forward over it, it fires once, right after the gap; when they are put back, it fires the first time
//!   alone. Other jobs (`*/15 * * * *`, `30 * * * *`) follow the clock on the wall: what it leaves out does not
//!   fire, what it shows twice fires twice.
//! - Where a clock is moved by three hours or more (a country that changes sides of the date line), fixed
//!   times are not made up for: that is no daylight saving, but another calendar.
//!
//! What is ambiguous is refused, not guessed: a run costs credits. `.ci/schedule-oracle` compares fire times
//! with two other implementations, `tests/daemon/schedule_table.rs` holds a table of them.

pub mod catch_up;
mod cron_expression;
mod cron_field;
mod fires;
pub mod name;
pub mod placeholders;
#[cfg(test)]
mod tests;
mod zone;

use crate::domain::schedule::cron_expression::Expression;
use crate::domain::schedule::zone::Zone;
use crate::domain::time::Timestamp;

pub use self::fires::Fires;

/// What cannot be a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScheduleError {
    /// The key of the configuration that is wrong: `name`, `cron`, `timezone` or `missed_max`.
    pub key: &'static str,
    /// What was found, and what would be accepted.
    pub message: String,
}

impl ScheduleError {
    fn cron(message: impl Into<String>) -> ScheduleError {
        ScheduleError { key: "cron", message: message.into() }
    }
}

/// When something fires: an expression and the zone whose clocks it is read by.
#[derive(Debug, Clone)]
pub struct Schedule {
    expression: Expression,
    zone: Zone,
}

impl Schedule {
    /// Reads an expression and the IANA name of a zone; UTC where none is given.
    ///
    /// # Errors
    /// [`ScheduleError`]: it does not parse, the zone is not known, or it would never fire.
    pub fn parse(cron: &str, timezone: Option<&str>) -> Result<Schedule, ScheduleError> {
        let zone = Zone::parse(timezone.unwrap_or("UTC"))?;
        let expression = Expression::parse(cron)?;
        Ok(Schedule { expression, zone })
    }

    /// Expression and zone as one text: two schedules with the same are the same.
    pub fn source(&self) -> String {
        format!("{} {}", self.expression.source, self.zone.name())
    }

    /// The expression, as it was written.
    pub fn cron(&self) -> &str {
        &self.expression.source
    }

    /// The IANA name of the zone.
    pub fn timezone(&self) -> &str {
        self.zone.name()
    }

    /// The first instant after `after` at which it fires; nothing when it never does again.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.fires_after(after).next()
    }

    /// Every instant after `after` at which it fires, in order.
    pub fn fires_after(&self, after: Timestamp) -> Fires<'_> {
        Fires::new(self, after)
    }

    /// `2026-11-21T03:00:00+01:00`: what a clock of the zone shows at an instant.
    pub fn local(&self, at: Timestamp) -> String {
        self.zone.local(at).map_or_else(|| at.to_string(), |local| local.format("%FT%T%:z").to_string())
    }

    /// How the zone's clocks stand at an instant: `CET, UTC+01:00`.
    pub fn offset(&self, at: Timestamp) -> String {
        self.zone.describe(at)
    }
}
