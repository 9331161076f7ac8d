//! Durable state: the only user of sled.
//!
//! One directory belongs to one process at a time and to one service:
//!
//! ```text
//! state/
//!   callsheet-state.json   format version and the service it was begun with
//!   lock                   held by the process that uses it; names its pid
//!   db/                    sled: unfinished batches, a line for each finished one, open jobs, totals. Small: what
//!                          has not begun and what has ended live in the spool
//!   spool/000001/          rows: what was accepted; outcomes: what became of it; finished: the record of a batch
//!                          that is done
//!   spool/000001/batch.json what a rebuilt database must know of the batch
//!   catalogs.json          the service's catalogs as last seen; a plan keeps them, too
//!   surcharges.json        what was charged above the catalogs' prices
//!   schedules.json         how far each schedule was handled; losing it fires nothing
//!   commits                the number of the last commit, to notice an old database that came back
//!   closed                 checksums of a database that was closed in order
//!   reserve                room for the database's last words on a full disk
//!   aside/                 what was damaged: set aside, never deleted
//! ```
//!
//! Architecture invariant: [`Store::commit`] is the single write path. It returns once everything in
//! it is on the device; no effect may begin before that. No sled type leaves this room.

mod batch;
mod batch_backup;
mod batch_index;
pub mod catalog_cache;
mod clean_shutdown;
mod codec;
mod counters;
mod db_keys;
mod disk_reserve;
pub mod dump;
mod error;
mod finished;
mod job_index;
mod job_statuses;
mod lock;
pub mod locked_state;
mod marker;
mod open;
pub mod open_check;
mod quarantine;
pub mod read_only;
pub mod row_partitions;
pub mod schedule_progress;
mod sled_files;
mod snapshot;
pub mod spool;
pub mod staging;
pub mod surcharge_file;
#[cfg(test)]
mod tests;
pub mod verify;
mod write_atomic;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::domain::account_block::AccountBlock;
use crate::domain::ids::{BatchNo, JobId, JobKey, Seq};
use crate::domain::job::{Job, JobSpec};
use crate::domain::ledger::Totals;
use crate::domain::time::UtcDay;
use crate::failpoint;
pub use crate::store::batch::{BatchRecord, Ended, Pause, Segment};
use crate::store::batch_backup::BatchBackup;
use crate::store::batch_index::BatchIndex;
use crate::store::codec::DecodeError;
pub use crate::store::counters::KindCounts;
pub use crate::store::error::StoreError;
use crate::store::error::database;
pub use crate::store::finished::FinishedBatch;
pub use crate::store::job_statuses::OpenJobStatus;
use crate::store::lock::Lock;
use crate::store::sled_files::SledFiles;
pub use crate::store::snapshot::Snapshot;
use crate::store::spool::{Appender, Lines, Spool};
use crate::store::staging::Staging;

/// Most job changes that one commit should carry: past this nothing is gained (measured), and a
/// power cut inside a larger one was seen to leave a database that does not open cleanly.
pub const COMMIT_MAX_JOBS: usize = 200;

/// Memory that the database may use as its cache, in bytes.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;

/// A job that has begun. Ended jobs have the same shape, in their batch's `outcomes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Where it lives.
    #[serde(flatten)]
    pub key: JobKey,
    /// Who it is.
    pub id: JobId,
    /// Byte of its row in the batch's spool.
    pub row_at: u64,
    /// Where it stands.
    #[serde(flatten)]
    pub job: Job,
}

/// The part of an outcome that tells whose it is.
#[derive(Deserialize)]
struct OutcomeOf {
    seq: Seq,
}

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
    /// What the account refuses to pay for.
    Account(AccountBlock),
}

/// The state directory of one process.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// Nothing while it is opened anew.
    database: RwLock<Option<Database>>,
    writer: Mutex<Writer>,
    batch_index: BatchIndex,
    /// Finished batches are listed whose last job ended at this time or later, in milliseconds since 1970.
    listed_since: AtomicI64,
    /// The disk was full, and the reserve is given up.
    is_short: AtomicBool,
    /// A commit failed: the database is not as it should be left.
    is_broken: AtomicBool,
    _lock: Lock,
}

/// The open database.
#[derive(Debug, Clone)]
struct Database {
    db: sled::Db,
    /// Its file, for the `fdatasync` that sled does not do.
    file: Arc<File>,
}

impl Database {
    fn new(dir: &Path, db: sled::Db) -> Result<Database, StoreError> {
        let path = dir.join("db").join("db");
        let file = File::open(&path).map_err(StoreError::io(&path))?;
        Ok(Database { db, file: Arc::new(file) })
    }
}

/// What the single writer keeps between commits.
#[derive(Debug)]
struct Writer {
    commits: u64,
    commits_file: File,
    outcomes: std::collections::HashMap<BatchNo, Appender>,
    /// Cards as they lie on the disk.
    backups: std::collections::HashMap<BatchNo, BatchBackup>,
    sled_files: SledFiles,
}

impl Store {
    /// Opens the state in `dir`, making it when the folder is empty or missing. `service` is the
    /// service it belongs to; `adopt` hands an existing state over to it.
    ///
    /// # Errors
    /// [`StoreError`]: in use, another version's, another service's, damaged, or not writable.
    pub fn open(dir: &Path, service: &str, adopt: bool) -> Result<Store, StoreError> {
        marker::check_folder(dir)?;
        std::fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
        let lock = Lock::take(dir)?;
        marker::claim(dir, service, adopt)?;
        disk_reserve::take(dir)?;
        sweep_drafts(&dir.join("spool"))?;
        write_atomic::sweep(dir)?;
        let database = Database::new(dir, open::open(dir)?)?;
        sync_found(dir)?;
        let mut records = Snapshot::read(dir, &database.db)?;
        let commits_file = check_commit_count(dir, records.commits)?;
        verify::quick(dir, &records)?;
        finished::take_over(dir, &database, &mut records)?;
        let batch_index = BatchIndex::of(&records);
        let backups = batch_backup::reconcile(dir, &records)?;
        let mut sled_files = SledFiles::of(dir);
        sled_files.sync()?;
        let outcomes = Default::default();
        let writer = Writer { commits: records.commits, commits_file, outcomes, backups, sled_files };
        Ok(Store {
            dir: dir.to_owned(),
            database: RwLock::new(Some(database)),
            writer: Mutex::new(writer),
            batch_index,
            listed_since: AtomicI64::new(i64::MIN),
            is_short: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            _lock: lock,
        })
    }

    /// Opens the state in `dir` whichever service it belongs to, to look at it or to change what is
    /// wanted. Nothing is made when there is none.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Missing`] when there is no state.
    pub fn open_existing(dir: &Path) -> Result<Store, StoreError> {
        match marker::service(dir)? {
            Some(service) => Store::open(dir, &service, false),
            None => Err(StoreError::Missing { dir: dir.to_owned() }),
        }
    }

    /// The state directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Every batch that is not done, oldest first.
    pub fn batches(&self) -> Result<Vec<BatchRecord>, StoreError> {
        self.scan(db_keys::BATCH)
    }

    /// The batch of that number, done or not.
    ///
    /// # Errors
    /// [`StoreError::BatchMoved`] when it is done, and somebody moved its folder away.
    pub fn batch(&self, no: BatchNo) -> Result<Option<BatchRecord>, StoreError> {
        let both = |store: &Store| match store.unfinished_batch(no)? {
            Some(batch) => Ok(Some(batch)),
            None => store.finished_batch(no),
        };
        match self.unfinished_batch(no)? {
            Some(batch) => Ok(Some(batch)),
            // It may be going from the one to the other just now.
            None => self.at_rest(both),
        }
    }

    /// The batch of that number, unless it is done.
    fn unfinished_batch(&self, no: BatchNo) -> Result<Option<BatchRecord>, StoreError> {
        self.get(&db_keys::batch(no))
    }

    /// A number that no batch ever had.
    pub fn next_batch_no(&self) -> BatchNo {
        self.batch_index.next()
    }

    /// Every job that has begun and not ended, in order of batch and manifest.
    pub fn open_jobs(&self) -> Result<Vec<JobRecord>, StoreError> {
        self.scan(db_keys::JOB)
    }

    /// Where the job stands whose row lies at byte `row_at` of a batch. One that has not begun is queued.
    pub fn job_at(&self, batch: &BatchRecord, row_at: u64, spec: &JobSpec) -> Result<JobRecord, StoreError> {
        let key = JobKey { batch: batch.no, seq: spec.seq };
        // Open ones first: one that ends meanwhile is then seen as it was, and not as one that never began.
        if let Some(open) = self.get(&db_keys::job(key))? {
            return Ok(open);
        }
        let path = self.spool(batch.no).outcomes_path();
        let mut outcomes = Lines::open(&path, 0, self.outcomes_bytes(batch)?)?;
        let mut last = None;
        while let Some((at, outcome)) = outcomes.next_line::<OutcomeOf>()? {
            if outcome.seq == spec.seq {
                last = Some(at);
            }
        }
        match last {
            Some(at) => outcomes.line_at(at),
            None => Ok(JobRecord { key, id: spec.id, row_at, job: Job::queued() }),
        }
    }

    /// Totals of the whole state.
    pub fn total(&self) -> Result<Totals, StoreError> {
        Ok(self.get(&db_keys::total())?.unwrap_or_default())
    }

    /// Totals of a UTC day.
    pub fn day(&self, day: UtcDay) -> Result<Totals, StoreError> {
        Ok(self.get(&db_keys::day(day))?.unwrap_or_default())
    }

    /// What the account refused to pay for, and nothing has lifted since.
    pub fn account(&self) -> Result<AccountBlock, StoreError> {
        Ok(self.get(&db_keys::account())?.unwrap_or_default())
    }

    /// Begins taking a manifest in.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] when the disk is full: what room there is belongs to what is under way.
    pub fn begin_staging(&self) -> Result<Staging, StoreError> {
        self.recover_room()?;
        Staging::begin(&self.dir.join("spool"))
    }

    /// The rows and outcomes of a batch.
    pub fn spool(&self, batch: BatchNo) -> Spool {
        Spool::new(batch_dir(&self.dir, batch))
    }

    /// Length of a batch's outcomes, in bytes, as committed: what lies beyond was never
    /// acknowledged.
    pub fn outcomes_bytes(&self, batch: &BatchRecord) -> Result<u64, StoreError> {
        if let Some(bytes) = self.open_outcomes_bytes(batch.no)? {
            return Ok(bytes);
        }
        // It may be going from unfinished to done, or back, just now.
        self.at_rest(|store| match (store.open_outcomes_bytes(batch.no)?, store.line(&batch.name)?) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(line)) if line.no == batch.no => line.outcomes_bytes(&store.dir),
            (None, _) => Ok(0),
        })
    }

    /// The same of a batch that is not done; nothing while no job of it has ended.
    fn open_outcomes_bytes(&self, no: BatchNo) -> Result<Option<u64>, StoreError> {
        self.get(&db_keys::outcomes_bytes(no))
    }

    /// Opens the rows of a batch to add some after those that were accepted.
    pub fn append_rows(&self, batch: &BatchRecord) -> Result<Appender, StoreError> {
        let commits = self.writer.lock().unwrap_or_else(PoisonError::into_inner).commits;
        let spool = self.spool(batch.no);
        batch_backup::reconcile_one(spool.dir(), batch, commits)?;
        job_index::cut(spool.dir(), batch.spool_bytes)?;
        Appender::open(&spool.rows_path(), batch.spool_bytes)
    }

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
                tracing::warn!(%error, "the disk is full: the state uses up its reserve");
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
    fn recover_room(&self) -> Result<(), StoreError> {
        if self.is_short.load(Ordering::Relaxed) {
            disk_reserve::take(&self.dir)?;
            self.is_short.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn try_commit(&self, writer: &mut Writer, changes: &[Change]) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        let mut batches: BTreeMap<BatchNo, &BatchRecord> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Open(job) => batch.insert(&db_keys::job(job.key)[..], codec::encode(job)),
                Change::End(job) => batch.remove(&db_keys::job(job.key)[..]),
                Change::Batch(b) => drop(batches.insert(b.no, b)),
                Change::Total(totals) => batch.insert(&db_keys::total()[..], codec::encode(totals)),
                Change::Day(day, totals) => batch.insert(&db_keys::day(*day)[..], codec::encode(totals)),
                Change::Account(block) if block.is_empty() => batch.remove(&db_keys::account()[..]),
                Change::Account(block) => batch.insert(&db_keys::account()[..], codec::encode(block)),
            }
        }
        // Outcomes first: until the database says so, they do not count and their jobs are open.
        let lengths = self.append_outcomes(writer, changes, &batches)?;
        for (no, bytes) in &lengths {
            batch.insert(&db_keys::outcomes_bytes(*no)[..], codec::encode(bytes));
        }
        let commit = writer.commits + 1;
        let mut were_finished = Vec::with_capacity(batches.len());
        for (no, record) in &batches {
            self.write_backup(writer, record)?;
            let was_finished = finished::put(self, &mut batch, record, lengths.get(no).copied(), commit)?;
            if record.is_done() {
                failpoint::hit("finishing");
            } else if was_finished {
                failpoint::hit("reopening");
            }
            were_finished.push(was_finished);
        }
        self.commit_batch(writer, batch)?;
        for (record, was_finished) in batches.values().zip(were_finished) {
            if record.is_done() {
                self.batch_index.finished(&record.name, record.no, was_finished);
                // Its file would stay open for as long as the process lives.
                writer.forget(record.no);
            } else {
                self.batch_index.unfinished(&record.name, record.no, was_finished);
                if was_finished {
                    finished::forget_archived(&self.dir, record.no);
                }
            }
        }
        Ok(())
    }

    /// Makes a batch of the database durable, with the number of its commit.
    fn commit_batch(&self, writer: &mut Writer, mut batch: sled::Batch) -> Result<(), StoreError> {
        let commits = writer.commits + 1;
        batch.insert(&db_keys::commits()[..], codec::encode(&commits));
        self.write(writer, batch)?;
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

    /// Applies a batch and waits for the device. `flush` alone is not durable: on Linux it ends in
    /// `sync_file_range` (measured).
    fn write(&self, writer: &mut Writer, batch: sled::Batch) -> Result<(), StoreError> {
        let refused = |source| database(&self.dir, source);
        let Database { db, file } = self.database()?;
        db.apply_batch(batch).map_err(refused)?;
        // Before the log tells of them, and those that came with the flush.
        writer.sled_files.sync()?;
        db.flush().map_err(refused)?;
        failpoint::hit("flushed");
        writer.sled_files.sync()?;
        file.sync_data().map_err(StoreError::io(&self.dir))
    }

    /// Opens the database anew: after a full disk it refuses whatever it is asked.
    fn reopen(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Dropped first: only one may have the file.
        *database = None;
        // Others may have taken the room that was just given up: it is opened when there is some.
        disk_reserve::must_have_room_to_open(&self.dir)?;
        for moved in quarantine::set_torn(&self.dir)? {
            tracing::warn!(to = %moved.to().display(), "set a torn snapshot of the database aside");
        }
        let opened = Database::new(&self.dir, open::open_here(&self.dir)?)?;
        let found = Snapshot::read(&self.dir, &opened.db)?.commits;
        must_be_latest(&self.dir, found, writer.commits)?;
        // One more than was acknowledged, where only the acknowledgement failed.
        writer.commits = found;
        writer.outcomes.clear();
        *database = Some(opened);
        Ok(())
    }

    fn database(&self) -> Result<Database, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let broken = || StoreError::io(&self.dir)(io::ErrorKind::StorageFull.into());
        // Nothing only after it could not be opened anew on a full disk.
        database.clone().ok_or_else(broken)
    }

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
            if let std::collections::hash_map::Entry::Vacant(free) = writer.outcomes.entry(no) {
                // A finished one goes on within this commit.
                let finished = batches.get(&no).map_or(Ok(None), |batch| self.line(&batch.name))?;
                let finished = finished.map(|line| line.outcomes_bytes(&self.dir)).transpose()?;
                let committed = self.open_outcomes_bytes(no)?.or(finished).unwrap_or_default();
                free.insert(Appender::open(&self.spool(no).outcomes_path(), committed)?);
            }
            if let Some(appender) = writer.outcomes.get_mut(&no) {
                appender.push(job)?;
            }
            touched.insert(no);
        }
        let mut lengths = BTreeMap::new();
        for no in touched {
            if let Some(appender) = writer.outcomes.get_mut(&no) {
                lengths.insert(no, appender.sync()?);
            }
        }
        Ok(lengths)
    }

    fn get<T: for<'de> Deserialize<'de>>(&self, key: &[u8]) -> Result<Option<T>, StoreError> {
        let found = self.database()?.db.get(key).map_err(|source| database(&self.dir, source))?;
        found.map(|bytes| codec::decode(&bytes).map_err(|damage| self.damaged(key, &damage))).transpose()
    }

    fn scan<T: for<'de> Deserialize<'de>>(&self, prefix: u8) -> Result<Vec<T>, StoreError> {
        let entries = self.database()?.db.scan_prefix([prefix]);
        let read = entries.map(|entry| {
            let (key, bytes) = entry.map_err(|source| database(&self.dir, source))?;
            codec::decode(&bytes).map_err(|damage| self.damaged(&key, &damage))
        });
        read.collect()
    }

    /// Looks at the database while no commit changes it: what is seen is of one moment.
    fn at_rest<T>(&self, look: impl FnOnce(&Store) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let _still = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        look(self)
    }

    /// All records at once.
    fn records(&self) -> Result<Snapshot, StoreError> {
        Snapshot::read(&self.dir, &self.database()?.db)
    }

    fn damaged(&self, key: &[u8], damage: &DecodeError) -> StoreError {
        let what = format!("the record {}", db_keys::describe(key));
        StoreError::Damaged { dir: self.dir.clone(), what, detail: damage.to_string() }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let database = self.database.get_mut().unwrap_or_else(PoisonError::into_inner);
        let was_open = database.take().is_some();
        if was_open && !self.is_broken.load(Ordering::Relaxed) {
            clean_shutdown::mark(&self.dir);
        }
    }
}

/// The folder of a batch's rows and outcomes.
fn batch_dir(dir: &Path, batch: BatchNo) -> PathBuf {
    let folder = dir.join("spool").join(folder_name(batch));
    // State format 1 moved those away that were done long ago.
    let archived = finished::archive(dir).join(folder_name(batch));
    if !folder.exists() && archived.exists() { archived } else { folder }
}

/// How a batch's folder is called.
fn folder_name(batch: BatchNo) -> String {
    format!("{:06}", batch.0)
}

/// The folders of all batches in a state, in order.
fn batch_dirs(dir: &Path) -> Result<Vec<(BatchNo, PathBuf)>, StoreError> {
    let mut dirs = numbered_dirs(&dir.join("spool"))?;
    dirs.extend(numbered_dirs(&finished::archive(dir))?);
    dirs.sort();
    dirs.dedup_by_key(|(no, _)| *no);
    Ok(dirs)
}

fn numbered_dirs(spool: &Path) -> Result<Vec<(BatchNo, PathBuf)>, StoreError> {
    let entries = match std::fs::read_dir(spool) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(spool)(error)),
    };
    let mut dirs = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StoreError::io(spool))?;
        if let Ok(no) = entry.file_name().to_string_lossy().parse() {
            dirs.push((BatchNo(no), entry.path()));
        }
    }
    Ok(dirs)
}

/// Makes durable what the process before wrote and this one reads: a killed one may have synced none of it.
/// With it, the names of the folders that all else is written in.
fn sync_found(dir: &Path) -> Result<(), StoreError> {
    let (spool, db) = (dir.join("spool"), dir.join("db"));
    std::fs::create_dir_all(&spool).map_err(StoreError::io(&spool))?;
    for entry in std::fs::read_dir(&db).map_err(StoreError::io(&db))? {
        let path = entry.map_err(StoreError::io(&db))?.path();
        File::open(&path).and_then(|file| file.sync_all()).map_err(StoreError::io(&path))?;
    }
    for folder in [&spool, &db, dir] {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::io(folder))?;
    }
    let dir = dir.canonicalize().map_err(StoreError::io(dir))?;
    // One that refuses was made by somebody else, and not just now.
    let synced = |above: &Path| File::open(above).and_then(|folder| folder.sync_all()).is_ok();
    dir.ancestors().skip(1).take_while(|above| synced(above)).for_each(drop);
    Ok(())
}

/// Removes the drafts of processes that were killed while they took a manifest in: nothing of them was
/// acknowledged.
fn sweep_drafts(spool: &Path) -> Result<(), StoreError> {
    let entries = match std::fs::read_dir(spool) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::io(spool)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(StoreError::io(spool))?;
        if entry.file_name().to_string_lossy().starts_with(staging::PREFIX) {
            std::fs::remove_dir_all(entry.path()).map_err(StoreError::io(&entry.path()))?;
        }
    }
    Ok(())
}

/// Opens a file to read and to write, as it is; an empty one where there was none.
fn open_or_create(path: &Path) -> Result<File, StoreError> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(StoreError::io(path))
}

/// Compares the database's number of the last commit with the one beside it. A database that is
/// behind its own count is an older one that came back: going on with it would forget what was sent.
fn check_commit_count(dir: &Path, stored: u64) -> Result<File, StoreError> {
    let file = open_or_create(&dir.join("commits"))?;
    must_be_latest(dir, stored, commits_beside(dir)?)?;
    Ok(file)
}

fn must_be_latest(dir: &Path, stored: u64, seen: u64) -> Result<(), StoreError> {
    if stored < seen {
        let detail = format!("it is at commit {stored}, but commit {seen} was acknowledged");
        return Err(StoreError::Damaged { dir: dir.to_owned(), what: "the database".to_owned(), detail });
    }
    Ok(())
}

/// The number of the last commit as it was written beside the database; 0 when it was not.
fn commits_beside(dir: &Path) -> Result<u64, StoreError> {
    let path = dir.join("commits");
    match std::fs::read(&path) {
        Ok(bytes) => Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::io(&path)(error)),
    }
}
