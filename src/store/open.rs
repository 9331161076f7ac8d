//! The one way in which a state is opened. Each step stands on those before it:
//!
//! 1. whose folder it is (`state_format`), that nobody else uses it (`lock`), and that the disk has room for it (`disk_reserve`)
//!    without the copies that killed processes left (`open_check`);
//! 2. what else they left half done is removed (`staging`, `write_atomic`);
//! 3. a database that is not byte for byte as it was closed (`clean_shutdown`) is opened and read by a child process first,
//!    on a copy (`open_check`); snapshots that are in its way are set aside (`set_aside`);
//! 4. it is opened, what is read is made durable, and the copy is removed meanwhile and after;
//! 5. it is the latest one (`commit_count`), and does not contradict the spool (`verify`);
//! 6. what an earlier version wrote is carried over (`finished`), and backups of commits that never were are put right
//!    (`batch_backup`).
//!
//! What a damaged database still tells, and what is put in its place, is `locked_state`'s.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Mutex, RwLock};

use crate::store::batch_index::BatchIndex;
use crate::store::commit::{Database, Writer, carry_over, open_database, set_torn_aside};
use crate::store::open_check::{self, CheckResult, CopyFolder, NotCopied};
use crate::store::process_lock::{Holding, Lock};
use crate::store::snapshot::{self, FinishedRecords, Snapshot};
use crate::store::state_folders::{BatchDirs, batch_dirs, spool_entries};
use crate::store::{
    Store, StoreError, batch_backup, clean_shutdown, commit_count, db_keys, disk_reserve, set_aside, staging,
    state_folders, state_format, verify, write_atomic,
};

impl Store {
    /// Opens the state in `dir`, making it when the folder is empty or missing. `service` is the
    /// service it belongs to; with `adopts` another one's is opened, too, and stays so until [`Store::adopt`].
    ///
    /// # Errors
    /// [`StoreError`]: in use, another version's, another service's, damaged, or not writable.
    pub fn open(dir: &Path, service: &str, adopts: bool) -> Result<Store, StoreError> {
        Store::open_for(dir, service, adopts, Holding::ForLong)
    }

    /// Whether the state belongs to another service.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be read.
    pub fn is_of_another(&self, service: &str) -> Result<bool, StoreError> {
        Ok(state_format::service(&self.dir)?.is_some_and(|ours| ours != service))
    }

    /// Hands the state over to another service, once that is known to answer.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be written.
    pub fn adopt(&self, service: &str) -> Result<(), StoreError> {
        state_format::adopt(&self.dir, service)
    }

    fn open_for(dir: &Path, service: &str, adopts: bool, holding: Holding) -> Result<Store, StoreError> {
        state_format::check_folder(dir)?;
        fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
        let lock = Lock::take(dir, holding)?;
        state_format::claim(dir, service, adopts)?;
        // First, since they may be large: what they take up is room for this process.
        open_check::sweep(dir)?;
        disk_reserve::take(dir)?;
        let dirs = sweep(dir)?;
        let (checked, copy) = check(dir, &dirs)?;
        let copy = copy.and_then(|copy| copy.kept_meanwhile(dir));
        let database = open_database(dir)?;
        state_folders::sync_found(dir)?;
        let mut records = load(dir, &database, checked, &dirs)?;
        let jobs_at_open = Mutex::new(Some(std::mem::take(&mut records.open)));
        let commits = (records.commits, commit_count::open(dir, records.commits)?);
        let batch_index = BatchIndex::of(&records);
        let backups = batch_backup::reconcile(&dirs, &records)?;
        Ok(Store {
            dir: dir.to_owned(),
            writer: Mutex::new(Writer::new(dir, commits, records.stored_total(), backups)?),
            database: RwLock::new(Some(database)),
            batch_index,
            outcome_indexes: Mutex::default(),
            jobs_at_open,
            listed_since: AtomicI64::new(i64::MIN),
            is_short: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            _copy_removal: copy.map(CopyFolder::remove),
            _lock: lock,
        })
    }

    /// Opens the state in `dir` whichever service it belongs to, to look at it or to change what is
    /// wanted. Nothing is made when there is none.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Missing`] when there is no state.
    pub fn open_existing(dir: &Path) -> Result<Store, StoreError> {
        Store::open_existing_for(dir, Holding::ForLong)
    }

    /// The same for a command that answers and ends: another process that wants the state waits for that.
    ///
    /// # Errors
    /// As [`Store::open_existing`].
    pub fn open_briefly(dir: &Path) -> Result<Store, StoreError> {
        Store::open_existing_for(dir, Holding::Briefly)
    }

    fn open_existing_for(dir: &Path, holding: Holding) -> Result<Store, StoreError> {
        match state_format::service(dir)? {
            Some(service) => Store::open_for(dir, &service, false, holding),
            None => Err(StoreError::Missing { dir: dir.to_owned() }),
        }
    }
}

/// Whether [`Store::open`] would open the database of the state in `dir`, and whether the files of batches that are done are
/// whole. Nothing of the state is locked or changed, so nothing is certain while another process has it open. Returns what
/// the database holds, where it opens as it is; or why it was not looked at.
pub(super) fn foresee(dir: &Path) -> Result<Result<Option<Box<Snapshot>>, NotCopied>, StoreError> {
    let (records, is_whole) = match open_check::from_outside(dir, |work| {
        Ok(try_out(dir, work, &batch_dirs(dir)?, FinishedRecords::Kept)?.0)
    })? {
        Ok(CheckResult::Opens(records)) => (records, true),
        Ok(CheckResult::OpensWithoutSnapshots(records, _)) => (records, false),
        Ok(CheckResult::Untried) => return Ok(Ok(None)),
        Err(not_copied) => return Ok(Err(not_copied)),
    };
    records.finished.values().try_for_each(|line| line.check_lengths(dir))?;
    Ok(Ok(Some(records).filter(|_| is_whole)))
}

/// Removes what else killed processes left: drafts of manifests that were being taken in, of which nothing was acknowledged,
/// and successors of files. A database that was replaced goes where it belongs. Returns the folders of the batches.
fn sweep(dir: &Path) -> Result<BatchDirs, StoreError> {
    set_aside::set_replaced(dir)?;
    let spool = spool_entries(dir)?;
    staging::sweep(&spool)?;
    write_atomic::sweep(dir)?;
    Ok(spool.batches)
}

/// What is known of a database before it is opened.
enum Checked {
    Nothing,
    /// It is as it was left, and was checked before that.
    AsItWasLeft,
    /// What it holds, which was checked: all of it, or what is not finished.
    Read(Box<Snapshot>),
}

/// Refuses a database that would not open, or contradicts itself or the spool, before anything of it is touched. Returns the
/// copy that was tried, too.
fn check(dir: &Path, dirs: &BatchDirs) -> Result<(Checked, Option<CopyFolder>), StoreError> {
    if !open_check::has_database(dir) {
        // Nothing, or a contradiction.
        try_out(dir, dir, dirs, FinishedRecords::Compared)?;
        set_aside::remove_settings_without_log(dir)?;
        return Ok((Checked::Nothing, None));
    }
    set_torn_aside(dir)?;
    if clean_shutdown::take_mark(dir) {
        return Ok((Checked::AsItWasLeft, None));
    }
    let (found, copy) = try_out(dir, dir, dirs, FinishedRecords::Compared)?;
    let checked = match found {
        CheckResult::Untried => Checked::Nothing,
        CheckResult::Opens(records) => Checked::Read(records),
        CheckResult::OpensWithoutSnapshots(records, why) => {
            if set_aside::set_dispensable(dir)?.is_empty() {
                return Err(why);
            }
            tracing::warn!(%why, "the database is recovered from its whole log");
            Checked::Read(records)
        }
    };
    Ok((checked, copy))
}

/// Tries a copy of the database out, made in `work`, and checks what it holds. Returns the copy, too.
fn try_out(
    dir: &Path,
    work: &Path,
    dirs: &BatchDirs,
    of_finished: FinishedRecords,
) -> Result<(CheckResult<Box<Snapshot>>, Option<CopyFolder>), StoreError> {
    if !open_check::has_database(dir) {
        // A backup is written when there is a database already.
        return match batch_backup::all(dir).first() {
            Some(_) => Err(open_check::damaged(dir, "it is missing, but there are batches".to_owned())),
            None => Ok((CheckResult::Untried, None)),
        };
    }
    open_check::verify(dir, work, dirs, of_finished)
}

/// Reads what is not finished, and all the rest only where something stands against that: it is not checked yet, an
/// earlier version wrote it, or the sums do not fit.
fn load(dir: &Path, database: &Database, checked: Checked, dirs: &BatchDirs) -> Result<Snapshot, StoreError> {
    let (is_checked, copy) = match checked {
        Checked::Nothing => (false, None),
        Checked::AsItWasLeft => (true, None),
        // What the copy held is what the database holds.
        Checked::Read(records) => {
            let commits: Option<u64> = database.get(&db_keys::commits())?;
            (true, Some(*records).filter(|records| commits == Some(records.commits)))
        }
    };
    let (copy, mut open) = copy.map(Snapshot::without_open_jobs).unzip();
    if is_checked
        && let Some(records) = Snapshot::read_unfinished(database, &mut open)?
        && verify::quick(dir, &records, dirs).is_ok()
    {
        return Ok(records);
    }
    let mut records = match copy.zip(open) {
        // Otherwise it lacks what is finished.
        Some((copy, open)) if copy.highest_finished.is_none() => {
            Snapshot { open, finished_numbers: None, ..copy }
        }
        _ => Snapshot::read(dir, database)?,
    };
    commit_count::must_be_latest(dir, records.commits, commit_count::read(dir)?)?;
    verify::quick(dir, &records, dirs)?;
    let lines = snapshot::take_over(dir, &mut records)?;
    let total = records.stored_total();
    if !lines.is_empty() || total.finished != records.sums {
        carry_over(dir, database, &lines, &total)?;
    }
    Ok(records)
}
