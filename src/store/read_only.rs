//! A state seen from outside: what a plan may know without opening it.
//!
//! Accepted rows and outcomes lie in append-only files of checksummed lines. So what a state has, and what became
//! of it, can be read beside the process that holds it, and nothing is locked, recovered or changed by looking. Which
//! jobs are at the service just now only the database tells: a copy of it where no process has it open, and a daemon
//! that is asked. Beside a `run` it is not known.
//!
//! What the database acknowledged is not known from outside. A last line that is cut off is being
//! written at this moment, or was left by a process that was killed, and does not count; whole rows
//! that such a process left unacknowledged do count until the next run takes them up again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::domain::batch_origin::Origin;
use crate::domain::batch_terms::BatchTerms;
use crate::domain::budget::StateTotals;
use crate::domain::budget_group::GroupTotals;
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, BatchNo, Fingerprint, JobId};
use crate::domain::job_reference::{DecidedTake, ReferredRow};
use crate::domain::pilot::Pilot;
use crate::domain::reference_graph::ReferenceGraph;
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;
use crate::store::batch_backup::{self, BatchBackup};
use crate::store::job_statuses::{AcceptedRows, JobStatuses, note};
use crate::store::open_check::CheckResult;
pub use crate::store::open_check::NotCopied;
use crate::store::snapshot::Snapshot;
use crate::store::spool::{Lines, Spool};
use crate::store::staging::Staging;
use crate::store::state_folders::batch_dirs;
use crate::store::{
    JobRecord, OpenJobStatus, StoreError, decided_takes, open, open_check, process_lock, rows_by_id,
    state_format, version_file,
};

/// A state that is looked at and not opened.
#[derive(Debug, Clone)]
pub struct ReadOnlyState {
    dir: PathBuf,
    service: Option<String>,
    /// What its database held when it was first looked at, from a copy; nothing where it cannot be told.
    records: OnceLock<Option<Box<Snapshot>>>,
    folders: OnceLock<Vec<BatchFolder>>,
}

/// The folder of a batch, done or not.
#[derive(Debug, Clone)]
struct BatchFolder {
    path: PathBuf,
    /// The batch, where a backup tells of it.
    name: Option<BatchName>,
}

/// A batch that is looked at from outside, as its backup tells.
#[derive(Debug, Clone)]
pub struct ReadOnlyBatch {
    /// Where it was begun from, where that is known.
    pub origin: Option<Origin>,
    /// Its terms.
    pub terms: BatchTerms,
    /// When its first manifest was accepted.
    pub created: Timestamp,
    /// Its pilot, after which a person has not continued.
    pub pilot: Option<Pilot>,
    /// Where the rows of that lie: the byte of the first one and the byte after the last one of each part.
    pub pilot_rows: Vec<(u64, u64)>,
    /// Its number.
    pub no: BatchNo,
    /// Other batches that manifests of it name rows of, where its backup tells.
    refers_to: Option<BTreeSet<BatchName>>,
    /// Length of its accepted rows.
    bytes: u64,
    dir: PathBuf,
}

impl ReadOnlyBatch {
    fn of(backup: BatchBackup, dir: PathBuf) -> ReadOnlyBatch {
        let BatchBackup { origin, created, pilot, pilot_rows, no, spool_bytes: bytes, refers_to, .. } =
            backup;
        let BatchBackup { policy, has_default_budget, said, said_by_defaults, .. } = backup;
        let terms = BatchTerms { policy, has_default_budget, said, said_by_defaults };
        ReadOnlyBatch { origin, terms, created, pilot, pilot_rows, no, refers_to, bytes, dir }
    }
}

/// The part of an accepted row that tells which job it is.
#[derive(Deserialize)]
struct AcceptedRow {
    fingerprint: Fingerprint,
    variation: u32,
}

/// What was seen of the jobs of a batch from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenJobs {
    /// How much of it.
    pub visibility: Visibility,
    /// What is set aside and charged for all of them, as far as it was seen.
    pub committed: Credits,
}

/// How much could be seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Where every job stands.
    All,
    /// Another process works on the state, or its database cannot be looked at: some of the jobs that are told of as
    /// waiting may have been sent.
    SentUnknown,
}

impl ReadOnlyState {
    /// Looks at the state in `dir`. A folder that is missing or empty is a state without jobs.
    ///
    /// # Errors
    /// [`StoreError`] when the folder holds something else, or another version's state.
    pub fn at(dir: &Path) -> Result<ReadOnlyState, StoreError> {
        state_format::check_folder(dir)?;
        Ok(ReadOnlyState {
            dir: dir.to_owned(),
            service: state_format::service(dir)?,
            records: OnceLock::new(),
            folders: OnceLock::new(),
        })
    }

    /// The service that the state was begun with; nothing where nothing was begun.
    pub fn service(&self) -> Option<&str> {
        self.service.as_deref()
    }

    /// The process that has the state open, as the lock file says; nothing where none has.
    ///
    /// # Errors
    /// When the lock cannot be looked at.
    pub fn holder(&self) -> Result<Option<String>, StoreError> {
        process_lock::holder(&self.dir)
    }

    /// Tries out whether the state could be opened: its database on a copy, and what it holds against the spool. Returns why
    /// that was not tried, where no copy could be made.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; while another process has the state open, that may be of no account.
    pub fn could_be_opened(&self) -> Result<Option<NotCopied>, StoreError> {
        let (records, not_copied) = match open::foresee(&self.dir)? {
            Ok(None) => return Ok(None),
            Ok(records) => (records, None),
            Err(not_copied) => (None, Some(not_copied)),
        };
        // What was found before stays.
        let _ = self.records.set(records);
        Ok(not_copied)
    }

    /// What the database holds, if no process has it open and all of it can be read: it is copied once.
    fn records(&self) -> Option<&Snapshot> {
        let read = || match open_check::from_outside(&self.dir, |work| {
            open_check::read(&self.dir, &self.dir.join("db"), work)
        }) {
            Ok(Ok(CheckResult::Opens(salvaged))) if salvaged.unreadable.is_empty() => {
                Some(Box::new(salvaged.records))
            }
            _ => None,
        };
        self.records.get_or_init(read).as_deref()
    }

    /// The open jobs of the state, which no process has open. Nothing where they cannot be told.
    fn open_jobs(&self) -> Option<&[JobRecord]> {
        if !open_check::has_database(&self.dir) {
            return Some(&[]);
        }
        self.records().map(|records| records.open.as_slice())
    }

    /// Refuses a state that belongs to another service, as opening it would.
    ///
    /// # Errors
    /// [`StoreError::OtherService`].
    pub fn belongs_to(&self, wanted: &str) -> Result<(), StoreError> {
        match &self.service {
            Some(found) if found != wanted => Err(StoreError::OtherService {
                dir: self.dir.clone(),
                found: found.clone(),
                wanted: wanted.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Tells a draft which jobs there are, and where they stand. Of other batches than `batch`, none of whose rows a
    /// manifest of that batch can mean, nothing is told. `open` is what the process that holds the state says of jobs
    /// that have begun and not ended; nothing where it was not asked.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a line in the middle of a file is not what was written.
    pub fn note_jobs_of(
        &self,
        batch: &BatchName,
        open: Option<&[OpenJobStatus]>,
        draft: &mut Staging,
    ) -> Result<SeenJobs, StoreError> {
        let mut seen = SeenJobs { visibility: Visibility::All, committed: Credits::ZERO };
        // Asked for once it matters.
        let mut known_open: Option<HashMap<JobId, OpenJobStatus>> =
            open.map(|open| open.iter().map(|job| (job.job, job.clone())).collect());
        for folder in self.folders()? {
            if folder.name.as_ref().is_some_and(|name| name != batch) {
                continue;
            }
            let backup = batch_backup::read(&folder.path).map(|written| written.backup);
            // It may be there only by now.
            if backup.as_ref().is_some_and(|backup| backup.name != *batch) {
                continue;
            }
            let spool = Spool::new(folder.path.clone());
            let (rows, outcomes) = (spool.rows_path(), spool.outcomes_path());
            let bytes = length(&rows)?;
            let standings = JobStatuses::read(&outcomes, length(&outcomes)?, true)?;
            let has_unfinished = backup.as_ref().is_none_or(|backup| standings.has_unfinished(backup.rows));
            let mut is_guess = false;
            if has_unfinished && known_open.is_none() {
                let found = if self.holder()?.is_some() { None } else { self.open_jobs() };
                is_guess = found.is_none();
                known_open =
                    found.map(|open| open.iter().map(|job| (job.id, OpenJobStatus::of(job))).collect());
            }
            let nothing = HashMap::new();
            let open = known_open.as_ref().unwrap_or(&nothing);
            let (versions, _) = version_file::read_whole_lines(&spool)?;
            let rebuilt = backup.as_ref().map_or(0, |backup| backup.rebuilt_rows);
            let rows = AcceptedRows { path: &rows, bytes, rebuilt };
            let noted = note(draft, rows, &versions, &standings, open, backup.is_some(), true)?;
            seen.committed = seen.committed + noted.committed;
            if is_guess && noted.is_unclear {
                seen.visibility = Visibility::SentUnknown;
            }
        }
        Ok(seen)
    }

    /// What the state has held and spent, by the end of that day, and what the groups that have budgets have, where that is
    /// stored; from a copy of the database. Nothing where it cannot be told, or another process works on the state.
    pub fn spent(&self, day: UtcDay) -> Result<Option<(StateTotals, Option<GroupTotals>)>, StoreError> {
        if self.holder()?.is_some() {
            return Ok(None);
        }
        if !open_check::has_database(&self.dir) {
            return Ok(Some((StateTotals::default(), None)));
        }
        let Some(records) = self.records() else { return Ok(None) };
        let day = records.days.get(&day).copied().unwrap_or_default();
        let totals = StateTotals { total: records.total, day, may_be_charged: records.may_be_charged() };
        Ok(Some((totals, records.groups.clone())))
    }

    /// Tells of every variation of every row that was accepted, whichever its batch.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a line in the middle of a file is not what was written.
    pub fn accepted(
        &self,
        mut tell: impl FnMut(Fingerprint, u32) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.folders()?.iter().try_for_each(|folder| rows_in(&folder.path, &mut tell))
    }

    /// The batch of that name, done or not; nothing where no backup tells of one.
    ///
    /// # Errors
    /// When the folder of the batches cannot be read.
    pub fn batch(&self, name: &BatchName) -> Result<Option<ReadOnlyBatch>, StoreError> {
        let mut folders = self.folders()?.iter().filter(|folder| folder.name.as_ref() == Some(name));
        Ok(folders.find_map(|BatchFolder { path, .. }| {
            let backup = batch_backup::read(path)?.backup;
            (backup.name == *name).then(|| ReadOnlyBatch::of(backup, path.clone()))
        }))
    }

    /// The rows of a batch that have these ids. `graph` is told what each of its rows is made from.
    ///
    /// # Errors
    /// As [`ReadOnlyState::accepted`].
    pub fn rows_by_id(
        &self,
        batch: &ReadOnlyBatch,
        ids: &HashSet<String>,
        graph: Option<&mut ReferenceGraph>,
    ) -> Result<HashMap<String, ReferredRow>, StoreError> {
        let spool = Spool::new(batch.dir.clone());
        let (versions, _) = version_file::read_whole_lines(&spool)?;
        rows_by_id::find((&spool.rows_path(), batch.bytes), &versions, ids, graph)
    }

    /// The other batches that rows of a batch may name. Its rows are read where its backup does not tell.
    ///
    /// # Errors
    /// As [`ReadOnlyState::accepted`].
    pub fn referred_batches(&self, batch: &ReadOnlyBatch) -> Result<BTreeSet<BatchName>, StoreError> {
        match &batch.refers_to {
            Some(batches) => Ok(batches.clone()),
            None => {
                let rows = Spool::new(batch.dir.clone()).rows_path();
                rows_by_id::referred_batches((&rows, batch.bytes))
            }
        }
    }

    /// What was decided about the takes of a batch, and of which takes its children were made. `open` is as for
    /// [`ReadOnlyState::note_jobs_of`].
    ///
    /// # Errors
    /// As [`ReadOnlyState::accepted`].
    pub fn decided_takes(
        &self,
        batch: &ReadOnlyBatch,
        open: Option<&[OpenJobStatus]>,
    ) -> Result<HashMap<JobId, DecidedTake>, StoreError> {
        let spool = Spool::new(batch.dir.clone());
        let (versions, _) = version_file::read_whole_lines(&spool)?;
        let read = |outcomes| decided_takes::read(outcomes, &versions, true);
        let mut takes = spool.outcomes_on_disk()?.map_or_else(|| Ok(HashMap::new()), read)?;
        match open {
            Some(open) => decided_takes::add_open(&mut takes, open),
            None if self.holder()?.is_none() => {
                let open = self.open_jobs().unwrap_or_default();
                let open: Vec<OpenJobStatus> = open.iter().map(OpenJobStatus::of).collect();
                decided_takes::add_open(&mut takes, &open);
            }
            None => {}
        }
        Ok(takes)
    }

    /// The folders of all batches: there may be very many, and they are looked at once.
    fn folders(&self) -> Result<&[BatchFolder], StoreError> {
        if let Some(folders) = self.folders.get() {
            return Ok(folders);
        }
        let of = |path: PathBuf| {
            let name = batch_backup::read(&path).map(|written| written.backup.name);
            BatchFolder { path, name }
        };
        let folders = batch_dirs(&self.dir)?.into_iter().map(|(_, path)| of(path)).collect();
        Ok(self.folders.get_or_init(|| folders))
    }
}

fn rows_in(
    dir: &Path,
    tell: &mut impl FnMut(Fingerprint, u32) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let path = Spool::new(dir.to_owned()).rows_path();
    let bytes = match fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::io(&path)(error)),
    };
    let mut rows = Lines::open(&path, 0, bytes)?;
    loop {
        match rows.next_line::<AcceptedRow>() {
            Ok(Some((_, row))) => tell(row.fingerprint, row.variation)?,
            Ok(None) => return Ok(()),
            Err(StoreError::Damaged { .. }) if rows.at() >= bytes => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Length of a file that may not be there, in bytes.
fn length(path: &Path) -> Result<u64, StoreError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(meta.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::io(path)(error)),
    }
}
