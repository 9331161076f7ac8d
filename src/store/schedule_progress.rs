//! How far each schedule was handled, across restarts.
//!
//! The file lies beside the database and not in it: `schedule list` reads it while a daemon holds the state.
//! Losing it fires nothing, since a schedule that is not in it begins when it is first seen; and a run that
//! was taken in but is not noted here is taken in under the same name again, where all of its jobs are.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::ids::BatchName;
use crate::domain::schedule::Schedule;
use crate::domain::schedule::catch_up::Handled;
use crate::domain::time::Timestamp;
use crate::store::{StoreError, write_atomic};

const FILE_NAME: &str = "schedules.json";

/// What is known of schedules, by their names.
pub type ScheduleRecords = BTreeMap<String, ScheduleRecord>;

/// What is known of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// How far it was handled, with what is waiting.
    pub handled: Handled,
    /// Runs that were due and could not be taken in yet, the oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub waiting: VecDeque<Timestamp>,
    /// Runs that somebody started, and of which rows could not be validated yet.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub by_hand: VecDeque<RunByHand>,
    /// Its last run, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// The latest run that was left out since then because another one had not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOutRun>,
}

impl ScheduleRecord {
    /// A schedule that has had no run.
    pub fn new(handled: Handled) -> ScheduleRecord {
        ScheduleRecord {
            handled,
            waiting: VecDeque::new(),
            by_hand: VecDeque::new(),
            last_run: None,
            left_out: None,
        }
    }
}

/// A run that somebody started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunByHand {
    /// When.
    pub at: Timestamp,
    /// The most that it may spend, where that was agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Credits>,
}

/// The last run of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// When it was due, or was started by hand.
    pub at: Timestamp,
    /// Its batch.
    pub batch: BatchName,
}

/// A run of a schedule that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutRun {
    /// When it was due.
    pub at: Timestamp,
    /// The batch that had not ended.
    pub in_the_way: BatchName,
}

/// How far a schedule is handled: nothing where it is new, or has another expression or zone by now.
pub fn handled_up_to(records: &ScheduleRecords, name: &str, schedule: &Schedule) -> Option<Timestamp> {
    let handled = &records.get(name)?.handled;
    Some(handled.up_to).filter(|_| handled.by == schedule.source())
}

/// The instant after which a schedule fires next. What was handled does not fire again when the clock is set back.
pub fn fires_after(records: &ScheduleRecords, name: &str, schedule: &Schedule, now: Timestamp) -> Timestamp {
    handled_up_to(records, name, schedule).map_or(now, |up_to| up_to.max(now))
}

/// The records of a state folder; empty where there are none yet.
///
/// # Errors
/// [`StoreError::Io`] when the file cannot be opened, [`StoreError::Damaged`] when it is not what was
/// written.
pub fn read(dir: &Path) -> Result<ScheduleRecords, StoreError> {
    let path = dir.join(FILE_NAME);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| StoreError::Damaged {
            dir: dir.to_owned(),
            what: FILE_NAME.to_owned(),
            detail: error.to_string(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ScheduleRecords::new()),
        Err(error) => Err(StoreError::io(&path)(error)),
    }
}

/// Keeps the records; on return they are on the device, whole.
///
/// # Errors
/// When the folder cannot be written to; the records before are there then.
pub fn keep(dir: &Path, records: &ScheduleRecords) -> Result<(), StoreError> {
    write_atomic::put(&dir.join(FILE_NAME), write_atomic::SCHEDULES, records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), ScheduleRecords::new());
        let handled = Handled { up_to: Timestamp(5), by: "@daily UTC".to_owned() };
        let run = LastRun { at: Timestamp(5), batch: "nightly-1970-01-01T0000Z".parse().unwrap() };
        let mut records = ScheduleRecords::new();
        let left_out = LeftOutRun { at: Timestamp(6), in_the_way: run.batch.clone() };
        let nightly = ScheduleRecord {
            handled: handled.clone(),
            waiting: VecDeque::from([Timestamp(5)]),
            by_hand: VecDeque::from([RunByHand { at: Timestamp(4), most: Some(Credits(3)) }]),
            last_run: Some(run),
            left_out: Some(left_out),
        };
        records.insert("nightly".to_owned(), nightly);
        records.insert("new".to_owned(), ScheduleRecord::new(handled));
        keep(dir.path(), &records).unwrap();
        keep(dir.path(), &records).unwrap();
        assert_eq!(read(dir.path()).unwrap(), records);
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["schedules.json"]);
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), "{\"nightly\": {\"handled\"").unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("schedules.json in") && error.contains("is damaged"), "{error}");
    }
}
