//! A batch's backup: what a rebuilt database must know of a batch and can learn nowhere else.
//!
//! It lies beside the batch's rows as `batch.json`, for people to read, and is written before the commit
//! that it belongs to. So what was acknowledged is always on the backup; what is on the backup beyond that
//! was about to be.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::batch_origin::Origin;
use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::manifest::row::Policy;
use crate::domain::pilot::Pilot;
use crate::domain::time::Timestamp;
use crate::store::snapshot::Snapshot;
use crate::store::state_folders::{BatchDirs, batch_dirs};
use crate::store::{BatchRecord, Pause, Segment, StoreError, write_atomic};

/// What a backup says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchBackup {
    /// The batch's number.
    pub(super) no: BatchNo,
    /// Its name.
    pub(super) name: BatchName,
    /// When its first manifest was accepted.
    pub(super) created: Timestamp,
    /// Jobs accepted so far.
    pub(super) rows: u32,
    /// Length of its rows, in bytes.
    pub(super) spool_bytes: u64,
    /// Sum of the prices.
    pub(super) planned: Credits,
    /// Its terms.
    pub(super) policy: Policy,
    /// Its budget is that of the configuration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) has_default_budget: bool,
    /// What was said about them the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) said: Option<Policy>,
    /// What its inbox or schedule says of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) said_by_defaults: Option<Policy>,
    /// Where it was begun from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<Origin>,
    /// The layout that it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first_layout: Option<String>,
    /// Its owner canceled it, and that was not finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) canceled: bool,
    /// Rows before this byte that have not begun were canceled with it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) canceled_below: u64,
    /// Its owner paused it. Backups of versions that did not note it do not say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) paused_by_owner: bool,
    /// Jobs with a lower number may have been sent by a state that is gone, if they had not begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) rebuilt_rows: u32,
    /// The most jobs of it that had been sent and had not ended at one time; nothing where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sent_at_once: Option<u32>,
    /// How many bytes its rows had then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) rebuilt_bytes: u64,
    /// Only the rows of its pilot are sent, until a person continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pilot: Option<Pilot>,
    /// Rows before this byte were accepted before its pilot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) pilot_from: u64,
    /// Where the rows of its pilot lie: the byte of the first one and the byte after the last one of each part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) pilot_rows: Vec<(u64, u64)>,
    /// Other batches that manifests of it name rows of; nothing in backups of versions that did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refers_to: Option<BTreeSet<BatchName>>,
    /// Length of what says which versions of edited rows are wanted, in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) versions_bytes: u64,
    /// Whether a job of it that had ended was ever taken up again; nothing in backups of versions that did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) has_reopened: Option<bool>,
}

/// A backup as it lies on the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredBackup {
    /// The commit that it was written for.
    pub(super) commit: u64,
    #[serde(flatten)]
    pub(super) backup: BatchBackup,
}

impl BatchBackup {
    pub(super) fn of(batch: &BatchRecord) -> BatchBackup {
        BatchBackup {
            no: batch.no,
            name: batch.name.clone(),
            created: batch.created,
            rows: batch.rows,
            spool_bytes: batch.spool_bytes,
            planned: batch.planned,
            policy: batch.policy.clone(),
            has_default_budget: batch.has_default_budget,
            said: batch.said.clone(),
            said_by_defaults: batch.said_by_defaults.clone(),
            origin: batch.origin.clone(),
            first_layout: batch.first_layout.clone(),
            canceled: batch.canceled,
            canceled_below: batch.canceled_below,
            paused_by_owner: batch.paused == Some(Pause::Owner),
            rebuilt_rows: batch.rebuilt_rows,
            sent_at_once: batch.sent_at_once,
            rebuilt_bytes: batch.rebuilt_bytes,
            pilot: batch.pilot,
            pilot_from: batch.pilot_from,
            pilot_rows: batch.pilot_rows(),
            refers_to: batch.refers_to.clone(),
            versions_bytes: batch.versions_bytes,
            has_reopened: Some(batch.reopened > 0),
        }
    }

    /// The segments as far as it tells them: those of the rows of its pilot, and what lies between them.
    fn segments(&self) -> Vec<Segment> {
        let (mut segments, mut at) = (Vec::new(), 0);
        for (from, end) in &self.pilot_rows {
            if *from > at {
                segments.push(Segment::mixed(0, at, *from));
            }
            segments.push(Segment { pilot: true, ..Segment::mixed(0, *from, *end) });
            at = *end;
        }
        segments
    }

    /// The batch without anything begun.
    pub(super) fn batch(&self) -> BatchRecord {
        self.laid_over(BatchRecord::new(self.no, self.name.clone(), self.created))
    }

    /// An earlier record of the batch, with all that the backup says in its place.
    pub(super) fn laid_over(&self, earlier: BatchRecord) -> BatchRecord {
        let has_grown = self.spool_bytes != earlier.spool_bytes;
        let rebuilt = (self.rebuilt_rows, self.rebuilt_bytes);
        let (rebuilt_rows, rebuilt_bytes) = rebuilt.max((earlier.rebuilt_rows, earlier.rebuilt_bytes));
        BatchRecord {
            rows: self.rows,
            spool_bytes: self.spool_bytes,
            planned: self.planned,
            policy: self.policy.clone(),
            has_default_budget: self.has_default_budget,
            said: self.said.clone(),
            said_by_defaults: self.said_by_defaults.clone(),
            origin: self.origin.clone(),
            // A backup of an earlier version does not tell.
            first_layout: self.first_layout.clone().or_else(|| earlier.first_layout.clone()),
            canceled: self.canceled,
            paused: self.paused_by_owner.then_some(Pause::Owner).or(earlier.paused),
            // A backup of an earlier version tells neither.
            canceled_below: self.canceled_below.max(earlier.canceled_below),
            rebuilt_rows,
            rebuilt_bytes,
            sent_at_once: self.sent_at_once,
            pilot: self.pilot,
            pilot_from: self.pilot_from,
            segments: self.segments(),
            refers_to: self.refers_to.clone(),
            versions_bytes: self.versions_bytes,
            reopened: earlier.reopened.max(u32::from(self.has_reopened == Some(true))),
            // Its end was told of, and was none.
            announced: earlier.announced && !has_grown,
            finished: earlier.finished.filter(|_| !has_grown),
            pilot_announced: earlier.pilot_announced && self.pilot == earlier.pilot,
            ..earlier
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("batch.json")
}

/// Whether a folder has a backup, whatever it says.
pub(super) fn is_in(dir: &Path) -> bool {
    path(dir).exists()
}

/// The field with the checksum of the others. Backups of earlier versions have none.
const CHECKSUM: &str = "checksum";

/// The checksum of all fields, in the order of their names whatever their order in the file.
fn checksum(fields: &Map<String, Value>) -> Value {
    let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
    // Names and values of JSON always print.
    Value::from(crc32fast::hash(&serde_json::to_vec(&sorted).unwrap_or_default()))
}

/// The backup in a batch's folder; nothing when there is none, or none that can be read as it was written: a flipped bit
/// could be another budget, or another length of its rows.
pub(super) fn read(dir: &Path) -> Option<StoredBackup> {
    let mut fields: Map<String, Value> = serde_json::from_slice(&fs::read(path(dir)).ok()?).ok()?;
    let stored = fields.remove(CHECKSUM);
    let is_as_written = stored.is_none_or(|stored| stored == checksum(&fields));
    serde_json::from_value(Value::Object(fields)).ok().filter(|_| is_as_written)
}

/// Writes a backup; it is on the device on return.
pub(super) fn write(dir: &Path, backup: &BatchBackup, commit: u64) -> Result<(), StoreError> {
    fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
    let stored = serde_json::to_value(StoredBackup { commit, backup: backup.clone() });
    let fields = stored.and_then(serde_json::from_value::<Map<String, Value>>);
    let mut fields = fields.map_err(|error| StoreError::io(dir)(error.into()))?;
    fields.insert(CHECKSUM.to_owned(), checksum(&fields));
    write_atomic::put(&path(dir), write_atomic::CARD, &fields)?;
    let Some(parent) = dir.parent() else { return Ok(()) };
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(StoreError::io(parent))
}

/// The backups of all batches in a state, in order.
pub(super) fn all(dir: &Path) -> Vec<StoredBackup> {
    batch_dirs(dir).unwrap_or_default().iter().filter_map(|(_, dir)| read(dir)).collect()
}

/// The backups of all batches that the database does not say are done: those are not read whenever a state is opened.
pub(super) fn unfinished(dirs: &BatchDirs, records: &Snapshot) -> Vec<StoredBackup> {
    let dirs = dirs.iter().filter(|(no, _)| !records.is_finished(*no));
    dirs.filter_map(|(_, dir)| read(dir)).collect()
}

/// Before rows are added to a batch: a backup that was written for a commit that never was is written anew. While its
/// batch was done nobody did that.
pub(super) fn reconcile_one(dir: &Path, batch: &BatchRecord, commit: u64) -> Result<(), StoreError> {
    match read(dir) {
        Some(written) if written.backup.spool_bytes > batch.spool_bytes => {
            write(dir, &BatchBackup::of(batch), commit)
        }
        _ => Ok(()),
    }
}

/// Brings backups in line that were written for a commit that never was, and returns all that hold.
pub(super) fn reconcile(
    dirs: &BatchDirs,
    records: &Snapshot,
) -> Result<HashMap<BatchNo, BatchBackup>, StoreError> {
    let mut backups = HashMap::new();
    for (no, dir) in dirs.iter().filter(|(no, _)| !records.is_finished(*no)) {
        write_atomic::sweep_batch(dir)?;
        let Some(written) = read(dir) else { continue };
        match records.batch(*no) {
            _ if written.commit <= records.commits => {
                backups.insert(*no, written.backup);
            }
            Some(record) => {
                let backup = BatchBackup::of(record);
                write(dir, &backup, records.commits)?;
                backups.insert(*no, backup);
            }
            None => fs::remove_file(path(dir)).map_err(StoreError::io(dir))?,
        }
    }
    Ok(backups)
}
