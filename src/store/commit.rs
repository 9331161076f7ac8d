//! The single write path: decisions that are made durable, all of them or none.
//!
//! Held by types: the handle of the database is private to [`database`], and what changes a database is open to this
//! module alone. Here three functions do: [`Store::commit`], the same again after a full disk ([`Store::commit_again`]),
//! and [`carry_over`], which writes down what a state that was just opened says in another form. A database that is new
//! is made by [`Database::create`], and put in the place of another by `locked_state`.

mod database;
mod flush_watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::domain::budget_group::GroupTotals;
use crate::domain::ids::BatchNo;
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::utc_day::UtcDay;
use crate::failpoint;
use crate::store::batch_backup::{self, BatchBackup};
#[cfg(test)]
pub(super) use crate::store::commit::database::READ;
pub(super) use crate::store::commit::database::{Database, Writes};
use crate::store::finished::{self, FinishedBatch};
use crate::store::finished_sums::StoredTotal;
use crate::store::outcome_files::OutcomeFiles;
use crate::store::sled_files::SledFiles;
use crate::store::state_folders::batch_dir;
use crate::store::{
    BatchRecord, JobRecord, Store, StoreError, commit_count, db_keys, disk_reserve, set_aside,
};

/// Most job changes that one commit should carry: past this nothing is gained (measured), and a
/// power cut inside a larger one was seen to leave a database that does not open cleanly.
pub const COMMIT_MAX_JOBS: usize = 200;

/// One part of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A job that has begun and has not ended.
    Open(JobRecord),
    /// A job that has ended: it leaves the database for its batch's outcomes.
    End(JobRecord),
    /// A batch; one that is done leaves the database for its folder, but for a line. The last one of a batch in a commit
    /// counts.
    Batch(Box<BatchRecord>),
    /// Totals of the whole state.
    Total(Totals),
    /// Totals of a UTC day.
    Day(UtcDay, Totals),
    /// Totals of the groups that have budgets. A commit that changes the totals of the state without them has them
    /// counted anew before they are next used.
    Groups(Box<GroupTotals>),
    /// What the account refuses to pay for.
    Account(AccountBlock),
}

/// What the single writer keeps between commits.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) commits: u64,
    commits_file: File,
    pub(super) total: StoredTotal,
    outcomes: OutcomeFiles,
    /// Backups as they lie on the disk.
    backups: HashMap<BatchNo, BatchBackup>,
    sled_files: SledFiles,
}

impl Writer {
    /// The writer of a state that was just opened.
    pub(super) fn new(
        dir: &Path,
        (commits, commits_file): (u64, File),
        total: StoredTotal,
        backups: HashMap<BatchNo, BatchBackup>,
    ) -> Result<Writer, StoreError> {
        let mut sled_files = SledFiles::of(dir);
        sled_files.sync()?;
        Ok(Writer { commits, commits_file, total, outcomes: OutcomeFiles::default(), backups, sled_files })
    }

    /// A batch is no longer written to: its file would stay open for as long as the process lives.
    fn forget(&mut self, no: BatchNo) {
        self.outcomes.forget(no);
        self.backups.remove(&no);
    }

    /// Puts another file in the place of that with the number of the last commit, which is returned.
    #[cfg(test)]
    pub(super) fn replace_commits_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.commits_file, file)
    }

    /// How many files of outcomes are open.
    #[cfg(test)]
    pub(super) fn open_files(&self) -> usize {
        self.outcomes.len()
    }
}

/// Opens the database itself: a snapshot of it that was never finished is set aside, and it is read from its log.
pub(super) fn open_database(dir: &Path) -> Result<Database, StoreError> {
    set_torn_aside(dir)?;
    Database::open(dir)
}

pub(super) fn set_torn_aside(dir: &Path) -> Result<(), StoreError> {
    for moved in set_aside::set_torn(dir)? {
        tracing::warn!(to = %moved.to().display(), "set a torn snapshot of the database aside");
    }
    Ok(())
}

/// Writes down in the latest form what a state that was just opened says: the lines of batches that are done and were not
/// kept as such, and what all finished batches come to. The number of the last commit stays: nothing is decided by it. A
/// kill in between leaves the rest for the next opening.
pub(super) fn carry_over(
    dir: &Path,
    database: &Database,
    lines: &[FinishedBatch],
    total: &StoredTotal,
) -> Result<(), StoreError> {
    let mut sled_files = SledFiles::of(dir);
    for part in lines.chunks(COMMIT_MAX_JOBS / 4) {
        let mut writes = Writes::default();
        for line in part {
            finished::insert(&mut writes, line);
            writes.remove(&db_keys::batch(line.no));
            writes.remove(&db_keys::outcomes_bytes(line.no));
        }
        database.apply(writes, &mut sled_files)?;
    }
    let mut writes = Writes::default();
    writes.insert(&db_keys::total(), total);
    database.apply(writes, &mut sled_files)
}

impl Store {
    /// Makes `changes` durable, all of them or none: on return they are on the device.
    ///
    /// # Errors
    /// [`StoreError`]. Nothing that the changes announce may then be done, and the store must be
    /// opened anew before the next commit.
    pub fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        // A writer that panicked took the process with it, so the lock cannot be poisoned.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let committed = match self.try_commit(&mut writer, changes) {
            Err(error) if error.is_full() && disk_reserve::give_up(&self.dir) => {
                self.is_short.store(true, Ordering::Relaxed);
                tracing::warn!(%error, "the disk is full: the reserved space of the state is used now");
                self.reopen(&mut writer).and_then(|()| self.try_commit(&mut writer, changes))
            }
            other => other,
        };
        if committed.is_err() {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        committed
    }

    /// The same again, after a disk that was full although the reserve was given up: the database is opened anew
    /// once there is room for that and for the reserve.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] while there is none; nothing was touched then. Otherwise as [`Store::commit`].
    pub fn commit_again(&self, changes: &[Change]) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        disk_reserve::take(&self.dir)?;
        self.reopen(&mut writer).and_then(|()| self.try_commit(&mut writer, changes))?;
        self.is_short.store(false, Ordering::Relaxed);
        self.is_broken.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the disk of the state has room for more work. Without, requests in flight can still be
    /// brought to its end; nothing new should be begun.
    pub fn has_room(&self) -> bool {
        self.recover_room().is_ok()
    }

    /// Sets the reserve aside again where it was given up.
    pub(super) fn recover_room(&self) -> Result<(), StoreError> {
        if self.is_short.load(Ordering::Relaxed) {
            disk_reserve::take(&self.dir)?;
            self.is_short.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn try_commit(&self, writer: &mut Writer, changes: &[Change]) -> Result<(), StoreError> {
        self.jobs_at_open.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut writes = Writes::default();
        let mut batches: BTreeMap<BatchNo, &BatchRecord> = BTreeMap::new();
        let mut total = writer.total.clone();
        if changes.iter().any(|change| matches!(change, Change::Total(_))) {
            total.groups = None;
        }
        for change in changes {
            match change {
                Change::Open(job) => writes.insert(&db_keys::job(job.key), job),
                Change::End(job) => writes.remove(&db_keys::job(job.key)),
                Change::Batch(batch) => drop(batches.insert(batch.no, batch)),
                Change::Total(totals) => total.totals = *totals,
                Change::Groups(groups) => total.groups = Some((**groups).clone()),
                Change::Day(day, totals) => writes.insert(&db_keys::day(*day), totals),
                Change::Account(block) if block.is_empty() => writes.remove(&db_keys::account()),
                Change::Account(block) => writes.insert(&db_keys::account(), block),
            }
        }
        // Outcomes first: until the database says so, they do not count and their jobs are open.
        let lengths = self.append_outcomes(writer, changes, &batches)?;
        if !lengths.is_empty() {
            failpoint::hit("outcomes-written");
        }
        for (no, bytes) in &lengths {
            writes.insert(&db_keys::outcomes_bytes(*no), bytes);
        }
        let commit = writer.commits + 1;
        for (no, record) in &batches {
            self.write_backup(writer, record)?;
            let (before, after) = finished::put(self, &mut writes, record, lengths.get(no).copied(), commit)?;
            total.replace(before.as_ref(), after.as_ref());
            if record.is_done() {
                failpoint::hit("finishing");
            } else if before.is_some() {
                failpoint::hit("reopening");
            }
        }
        if total != writer.total {
            writes.insert(&db_keys::total(), &total);
        }
        self.apply(writer, writes)?;
        writer.outcomes.close_oldest();
        writer.total = total;
        let finished = writer.total.finished_count();
        for record in batches.values() {
            if record.is_done() {
                self.batch_index.finished(&record.name, record.no, finished);
                writer.forget(record.no);
            } else if self.batch_index.unfinished(&record.name, record.no, finished) {
                finished::forget_archived(&self.dir, record.no);
            }
        }
        Ok(())
    }

    /// Writes to the database, with the number of the commit.
    fn apply(&self, writer: &mut Writer, mut writes: Writes) -> Result<(), StoreError> {
        let commits = writer.commits + 1;
        writes.insert(&db_keys::commits(), &commits);
        self.database()?.apply(writes, &mut writer.sled_files)?;
        writer.commits = commits;
        // Not synced: it need only outlive the process, to notice a database that fell behind it.
        writer.commits_file.write_at(&commits.to_be_bytes(), 0).map_err(StoreError::io(&self.dir))?;
        Ok(())
    }

    /// Writes a batch's backup where it says something new: before the commit, so that what is
    /// acknowledged can be rebuilt.
    fn write_backup(&self, writer: &mut Writer, batch: &BatchRecord) -> Result<(), StoreError> {
        let backup = BatchBackup::of(batch);
        if writer.backups.get(&batch.no) != Some(&backup) {
            batch_backup::write(&batch_dir(&self.dir, batch.no), &backup, writer.commits + 1)?;
            writer.backups.insert(batch.no, backup);
        }
        Ok(())
    }

    /// Opens the database anew: after a full disk it refuses whatever it is asked.
    fn reopen(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if database.as_ref().is_some_and(Database::is_refused) {
            let why = io::Error::other(
                "the device failed to sync the database; it is opened anew by the next process",
            );
            return Err(StoreError::io(&self.dir)(why));
        }
        // Dropped first: only one may have the file.
        *database = None;
        // Others may have taken the room that was just given up: it is opened when there is some.
        disk_reserve::must_have_room_to_open(&self.dir)?;
        let opened = open_database(&self.dir)?;
        let found = opened.get(&db_keys::commits())?.unwrap_or_default();
        commit_count::must_be_latest(&self.dir, found, writer.commits)?;
        // One more than was acknowledged, where only the acknowledgement failed: the commit is made once more then.
        writer.commits = found;
        // Names of files that it did not keep are used again.
        writer.sled_files = SledFiles::of(&self.dir);
        writer.total = StoredTotal::read(&opened)?;
        writer.outcomes.close_all();
        *database = Some(opened);
        Ok(())
    }

    /// Appends the outcomes of jobs that end; returns the new lengths.
    fn append_outcomes(
        &self,
        writer: &mut Writer,
        changes: &[Change],
        batches: &BTreeMap<BatchNo, &BatchRecord>,
    ) -> Result<BTreeMap<BatchNo, u64>, StoreError> {
        let mut touched: BTreeSet<BatchNo> = BTreeSet::new();
        for change in changes {
            let Change::End(job) = change else { continue };
            let no = job.key.batch;
            let place = || {
                // A finished one is reopened by this commit.
                let finished = batches.get(&no).map_or(Ok(None), |batch| self.line(&batch.name))?;
                let finished = finished.map(|line| line.outcomes_bytes(&self.dir)).transpose()?;
                let committed = self.open_outcomes_bytes(no)?.or(finished).unwrap_or_default();
                Ok((self.spool(no).outcomes_path(), committed))
            };
            writer.outcomes.of(no, place)?.push(job)?;
            touched.insert(no);
        }
        let mut lengths = BTreeMap::new();
        for no in touched {
            lengths.extend(writer.outcomes.sync(no)?.map(|bytes| (no, bytes)));
        }
        Ok(lengths)
    }
}
