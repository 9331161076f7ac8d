//! What the run of a schedule is called.

use chrono::{DateTime, NaiveDateTime, Timelike, Utc};

use crate::domain::ids::{BadBatchName, BatchName};
use crate::domain::schedule::ScheduleError;
use crate::domain::time::Timestamp;

/// Any instant whose name is as long as they get.
const LONGEST: Timestamp = Timestamp(1_000);

/// The batch of a run: `nightly-2026-11-21T0200Z`, from the schedule's name and the instant in UTC, with
/// seconds where they are not 0.
///
/// Name and instant alone decide it. A restart, a clock that steps, another spelling of the expression
/// lead to the same batch, and in the same batch the same manifest is the same jobs: nothing is bought twice.
///
/// # Errors
/// When the schedule's name cannot begin a batch's name.
pub fn of_run(schedule: &str, fire: Timestamp) -> Result<BatchName, BadBatchName> {
    let Some(at) = DateTime::<Utc>::from_timestamp_millis(fire.0) else {
        return format!("{schedule}-{}", fire.0).parse();
    };
    let format = if at.second() == 0 { "%Y-%m-%dT%H%MZ" } else { "%Y-%m-%dT%H%M%SZ" };
    format!("{schedule}-{}", at.format(format)).parse()
}

/// The instant of the run that a batch is called as; nothing where it is not called as a run of the schedule is.
pub fn instant_of(schedule: &str, batch: &BatchName) -> Option<Timestamp> {
    let instant = batch.as_str().strip_prefix(schedule)?.strip_prefix('-')?;
    let formats = ["%Y-%m-%dT%H%MZ", "%Y-%m-%dT%H%M%SZ"];
    let at = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(instant, format).ok())?;
    Some(Timestamp(at.and_utc().timestamp_millis()))
}

/// Refuses a name under which a schedule's batches could not be named.
///
/// # Errors
/// [`ScheduleError`] with the key `name`.
pub fn check(schedule: &str) -> Result<(), ScheduleError> {
    let is_empty = schedule.is_empty();
    match of_run(schedule, LONGEST) {
        Ok(_) if !is_empty => Ok(()),
        _ => Err(ScheduleError {
            key: "name",
            message: format!(
                "{schedule:?} cannot name a schedule; 1 to 81 letters, digits, dots, dashes and underscores are \
                 accepted, beginning with a letter or a digit"
            ),
        }),
    }
}
