//! What a state says: its unfinished batches, their open jobs, and totals. `finished` reads of batches that are done,
//! `job_index` and `batch_index` find by name.

use std::collections::HashSet;
use std::sync::PoisonError;

use crate::domain::budget_group::GroupTotals;
use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::domain::job::{Job, JobSpec};
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::utc_day::UtcDay;
use crate::store::commit::Database;
use crate::store::finished_sums::StoredTotal;
use crate::store::snapshot::Snapshot;
use crate::store::spool::{Lines, Spool};
use crate::store::staging::Staging;
use crate::store::state_folders::{self, batch_dir};
use crate::store::{BatchRecord, JobRecord, OutcomeOutline, Store, StoreError, db_keys};

impl Store {
    /// Every batch that is not done, oldest first.
    pub fn batches(&self) -> Result<Vec<BatchRecord>, StoreError> {
        self.database()?.scan([db_keys::BATCH])
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
    pub fn unfinished_batch(&self, no: BatchNo) -> Result<Option<BatchRecord>, StoreError> {
        self.database()?.get(&db_keys::batch(no))
    }

    /// A number that no batch ever had.
    pub fn next_batch_no(&self) -> BatchNo {
        self.batch_index.next()
    }

    /// Every job that has begun and not ended, in order of batch and manifest.
    pub fn open_jobs(&self) -> Result<Vec<JobRecord>, StoreError> {
        let at_open = self.jobs_at_open.lock().unwrap_or_else(PoisonError::into_inner).take();
        at_open.map_or_else(|| self.database()?.scan([db_keys::JOB]), Ok)
    }

    /// The same of one batch, whatever else is open.
    pub fn open_jobs_of(&self, batch: BatchNo) -> Result<Vec<JobRecord>, StoreError> {
        self.database()?.scan(db_keys::jobs_of(batch))
    }

    /// Where the job stands whose row lies at byte `row_at` of a batch. One that has not begun is queued.
    pub fn job_at(&self, batch: &BatchRecord, row_at: u64, spec: &JobSpec) -> Result<JobRecord, StoreError> {
        let key = JobKey { batch: batch.no, seq: spec.seq };
        // Open ones first: one that ends meanwhile is then seen as it was, and not as one that never began.
        if let Some(open) = self.database()?.get(&db_keys::job(key))? {
            return Ok(open);
        }
        let ended = self.outcome(batch, spec.seq)?;
        Ok(ended.unwrap_or_else(|| JobRecord { key, id: spec.id, row_at, job: Job::queued() }))
    }

    /// The job of a key that has outputs: as it ended, or as it is open while another of its tasks is watched. Nothing of one
    /// that has neither.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read.
    pub fn job_with_outputs(&self, batch: &BatchRecord, seq: Seq) -> Result<Option<JobRecord>, StoreError> {
        let open = self.database()?.get::<JobRecord>(&db_keys::job(JobKey { batch: batch.no, seq }))?;
        match open.filter(|open| open.job.has_succeeded()) {
            Some(open) => Ok(Some(open)),
            None => self.outcome(batch, seq),
        }
    }

    /// Adds the jobs of a batch that have ended, or whose outcome has changed, since its outcomes were `before` bytes long.
    /// Returns how many bytes they have now.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read.
    pub fn add_ended_since(
        &self,
        batch: &BatchRecord,
        before: u64,
        ended: &mut HashSet<Seq>,
    ) -> Result<u64, StoreError> {
        let now = self.outcomes_bytes(batch)?;
        if now <= before {
            return Ok(before);
        }
        let mut outcomes = Lines::open(&self.spool(batch.no).outcomes_path(), before, now)?;
        while let Some((_, outcome)) = outcomes.next_line::<OutcomeOutline>()? {
            ended.insert(outcome.seq);
        }
        Ok(now)
    }

    /// Totals of the whole state.
    pub fn total(&self) -> Result<Totals, StoreError> {
        Ok(self.database()?.get(&db_keys::total())?.unwrap_or_default())
    }

    /// Totals of the groups that have budgets, as they were last committed with the totals; nothing where they are to be
    /// counted.
    pub fn groups(&self) -> Result<Option<GroupTotals>, StoreError> {
        Ok(StoredTotal::read(&self.database()?)?.groups)
    }

    /// Totals of a UTC day.
    pub fn day(&self, day: UtcDay) -> Result<Totals, StoreError> {
        Ok(self.database()?.get(&db_keys::day(day))?.unwrap_or_default())
    }

    /// What the account refused to pay for, and nothing has lifted since.
    pub fn account(&self) -> Result<AccountBlock, StoreError> {
        Ok(self.database()?.get(&db_keys::account())?.unwrap_or_default())
    }

    /// Begins taking a manifest in.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] when the disk is full: what room there is belongs to what is under way.
    pub fn begin_staging(&self) -> Result<Staging, StoreError> {
        self.recover_room()?;
        Staging::begin(&state_folders::spool(&self.dir))
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
    pub(super) fn open_outcomes_bytes(&self, no: BatchNo) -> Result<Option<u64>, StoreError> {
        self.database()?.get(&db_keys::outcomes_bytes(no))
    }

    /// The database; refused only after it could not be opened anew on a full disk.
    pub(super) fn database(&self) -> Result<Database, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let broken = || StoreError::io(&self.dir)(std::io::ErrorKind::StorageFull.into());
        database.clone().ok_or_else(broken)
    }

    /// Looks at the database while no commit changes it: what is seen is of one moment.
    pub(super) fn at_rest<T>(
        &self,
        look: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _still = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        look(self)
    }

    /// All records at once.
    pub(super) fn records(&self) -> Result<Snapshot, StoreError> {
        Snapshot::read(&self.dir, &self.database()?)
    }
}
