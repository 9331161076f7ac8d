//! Batches that are done: a line in the database, and all else in the files of their folder.
//!
//! ```text
//! spool/000012/finished  the batch's record as it left the database, a checksummed JSON line for each time. The line
//!                        in the database says where the last one begins and ends; others do not count
//! ```
//!
//! The line holds the batch's name, so that the same manifest buys nothing again; its number, so that no other batch gets
//! it; and its counts and totals, so that the books of the whole state add up and a list needs no file. Beside it are
//! three keys by which it is found: its number, the time of its end, and whether its end is still to be announced. What
//! all of them come to is kept in the record of the totals (`finished_sums`), so that nothing reads all lines for it.
//!
//! A folder that somebody moved away refuses its name rather than begin the batch anew. Versions that wrote state
//! format 1 moved such folders to `archive/`, with the record in `record.json`: they are read where they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::ledger::Totals;
use crate::domain::request::Kind;
use crate::domain::time::Timestamp;
use crate::store::commit::Writes;
use crate::store::spool::{Appender, Lines, Spool};
use crate::store::state_folders::batch_dir;
use crate::store::{BatchRecord, Ended, KindCounts, Store, StoreError, codec, db_keys};

/// What the database keeps of a batch that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedBatch {
    /// Its number.
    pub no: BatchNo,
    /// Its name.
    pub name: BatchName,
    /// When its last job ended, as far as that is known.
    pub at: Timestamp,
    /// Jobs that were accepted into it.
    pub rows: u32,
    /// Its credits.
    pub totals: Totals,
    /// Sum of the prices of its jobs.
    #[serde(default)]
    pub planned: Credits,
    /// The most it may spend, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Credits>,
    /// Rows of its last manifest that were refused.
    #[serde(default)]
    pub refused_rows: u32,
    /// How its jobs ended.
    #[serde(default)]
    pub ended: Ended,
    /// Its jobs by kind.
    #[serde(default)]
    pub kinds: BTreeMap<Kind, KindCounts>,
    /// Whether its hooks got the event for its end.
    #[serde(default = "yes")]
    pub announced: bool,
    /// What its jobs may have been charged that nothing tells, in credits: see [`BatchRecord::may_be_charged`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub may_be_charged: Credits,
    /// Nothing of a batch that state format 1 archived, and of one whose line was made anew while its folder was elsewhere:
    /// what lies in the folder tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) files: Option<FinishedFiles>,
}

/// How much of a batch's files was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FinishedFiles {
    /// Byte of `finished` where the record begins.
    record: u64,
    /// Byte after it.
    end: u64,
    /// Length of its rows, in bytes.
    rows_bytes: u64,
    /// Length of its outcomes, in bytes.
    outcomes_bytes: u64,
}

/// A batch as it left the database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FinishedRecord {
    /// The commit that it was written for; nothing in a `record.json`, which lies there only while it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<u64>,
    /// Length of its outcomes, in bytes.
    pub(super) outcomes_bytes: u64,
    /// Its record.
    pub(super) record: BatchRecord,
}

pub(super) fn yes() -> bool {
    true
}

impl FinishedBatch {
    pub(super) fn of(batch: &BatchRecord, files: Option<FinishedFiles>) -> FinishedBatch {
        FinishedBatch {
            no: batch.no,
            name: batch.name.clone(),
            at: batch.finished.or(batch.announced_at).unwrap_or(batch.created),
            rows: batch.rows,
            totals: batch.totals,
            planned: batch.planned_credits(),
            budget: batch.policy.budget,
            refused_rows: batch.refused_rows,
            ended: batch.ended,
            kinds: batch.kinds.clone(),
            announced: batch.announced,
            may_be_charged: batch.may_be_charged,
            files,
        }
    }

    /// The line of a batch whose folder was moved away, from a record of it.
    pub fn moved(batch: &BatchRecord) -> FinishedBatch {
        FinishedBatch::of(batch, None)
    }

    /// What the line says, as a record: enough for a list. Terms but the budget, and what tells the batch's rows apart,
    /// are in its folder.
    pub fn summary(&self) -> BatchRecord {
        let mut record = BatchRecord::new(self.no, self.name.clone(), self.at);
        (record.rows, record.planned, record.totals) = (self.rows, self.planned, self.totals);
        (record.ended, record.kinds) = (self.ended, self.kinds.clone());
        (record.refused_rows, record.announced, record.finished) =
            (self.refused_rows, self.announced, Some(self.at));
        record.policy.budget = self.budget;
        record.may_be_charged = self.may_be_charged;
        record
    }

    /// The length of its rows, in bytes, where its line tells.
    pub(super) fn rows_bytes(&self) -> Option<u64> {
        self.files.map(|files| files.rows_bytes)
    }

    /// The length of its outcomes, in bytes.
    pub(super) fn outcomes_bytes(&self, dir: &Path) -> Result<u64, StoreError> {
        match self.files {
            Some(files) => Ok(files.outcomes_bytes),
            None => Ok(self.read(dir)?.outcomes_bytes),
        }
    }

    /// Whether its rows and outcomes are as long as was acknowledged. Somebody may have moved them away.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one is shorter.
    pub(super) fn check_lengths(&self, dir: &Path) -> Result<(), StoreError> {
        let folder = batch_dir(dir, self.no);
        let Some(files) = self.files.filter(|_| folder.exists()) else { return Ok(()) };
        let spool = Spool::new(folder.clone());
        for (path, acknowledged) in
            [(spool.rows_path(), files.rows_bytes), (spool.outcomes_path(), files.outcomes_bytes)]
        {
            let found = path.metadata().map_or(0, |found| found.len());
            if found < acknowledged {
                return Err(StoreError::Damaged {
                    dir: folder,
                    what: path.display().to_string(),
                    detail: format!("it has {found} bytes, but {acknowledged} were acknowledged"),
                });
            }
        }
        Ok(())
    }

    /// Its record, from its folder in the state `dir`.
    ///
    /// # Errors
    /// [`StoreError::BatchMoved`] when somebody moved the folder away.
    pub(super) fn read(&self, dir: &Path) -> Result<FinishedRecord, StoreError> {
        let folder = batch_dir(dir, self.no);
        if !folder.exists() {
            return Err(StoreError::BatchMoved { name: self.name.to_string(), folder });
        }
        let kept = match self.files {
            Some(files) => {
                let found = Lines::open_scattered(&path(&folder), files.record, files.end)
                    .and_then(|mut lines| lines.next_line());
                match found {
                    Ok(Some((_, kept))) => kept,
                    Ok(None) => return Err(not_its_record(&folder, "it is empty")),
                    Err(StoreError::Io { source, .. }) => {
                        return Err(not_its_record(&folder, &source.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
            None => last_kept(&folder).map_or_else(|| read_archived(&folder), Ok)?,
        };
        if (kept.record.no, &kept.record.name) != (self.no, &self.name) {
            let found = format!("it is of batch {}, and not of {}", kept.record.name, self.name);
            return Err(not_its_record(&folder, &found));
        }
        Ok(kept)
    }
}

fn not_its_record(folder: &Path, detail: &str) -> StoreError {
    StoreError::Damaged {
        dir: folder.to_owned(),
        what: path(folder).display().to_string(),
        detail: detail.to_owned(),
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join("finished")
}

fn read_archived(folder: &Path) -> Result<FinishedRecord, StoreError> {
    let path = folder.join("record.json");
    let bytes = fs::read(&path).map_err(StoreError::io(&path))?;
    serde_json::from_slice(&bytes).map_err(|error| StoreError::Damaged {
        dir: folder.to_owned(),
        what: path.display().to_string(),
        detail: error.to_string(),
    })
}

/// The last record in a batch's folder, with the number of its commit, whatever a database says: for one that is lost.
pub(super) fn last_record(folder: &Path) -> Option<(u64, BatchRecord)> {
    last_kept(folder).map(|kept| (kept.commit.unwrap_or(u64::MAX), kept.record))
}

fn last_kept(folder: &Path) -> Option<FinishedRecord> {
    let mut last = read_archived(folder).ok();
    let path = path(folder);
    let bytes = fs::metadata(&path).map_or(0, |meta| meta.len());
    let mut lines = Lines::open(&path, 0, bytes).ok()?;
    loop {
        match lines.next_line::<FinishedRecord>() {
            Ok(Some((_, kept))) => last = Some(kept),
            Err(StoreError::Damaged { .. }) => {}
            Ok(None) | Err(_) => return last,
        }
    }
}

/// Writes the record of a batch that is done, for that commit, behind those that were written before; it is on the
/// device on return. Nothing is cut off: somebody may just be reading what an earlier line tells of.
pub(super) fn write(
    dir: &Path,
    batch: &BatchRecord,
    outcomes_bytes: u64,
    commit: u64,
) -> Result<FinishedBatch, StoreError> {
    let path = path(&batch_dir(dir, batch.no));
    let before = fs::metadata(&path).map_or(0, |meta| meta.len());
    let mut file = Appender::open(&path, before)?;
    let record =
        file.push(&FinishedRecord { commit: Some(commit), outcomes_bytes, record: batch.clone() })?;
    let end = file.sync()?;
    Ok(FinishedBatch::of(
        batch,
        Some(FinishedFiles { record, end, rows_bytes: batch.spool_bytes, outcomes_bytes }),
    ))
}

/// The keys by which a batch that is done is found, beside its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FinishedKeys {
    pub(super) by_number: BTreeMap<BatchNo, BatchName>,
    pub(super) by_time: BTreeSet<(Timestamp, BatchNo)>,
    pub(super) unannounced: BTreeSet<BatchNo>,
}

impl FinishedKeys {
    pub(super) fn of(finished: &FinishedBatch) -> FinishedKeys {
        let mut keys = FinishedKeys::default();
        keys.by_number.insert(finished.no, finished.name.clone());
        keys.by_time.insert((finished.at, finished.no));
        if !finished.announced {
            keys.unannounced.insert(finished.no);
        }
        keys
    }

    /// The first contradiction to the lines, in words. State format 1 had no such keys.
    pub(super) fn contradiction(&self, lines: &BTreeMap<BatchNo, FinishedBatch>) -> Option<String> {
        let FinishedKeys { by_number, by_time, unannounced } = self;
        let has_keys = |line: &&FinishedBatch| line.files.is_some() || by_number.contains_key(&line.no);
        let (mut listed, mut to_announce, mut fits) = (0, 0, true);
        for line in lines.values().filter(has_keys) {
            listed += 1;
            to_announce += usize::from(!line.announced);
            fits &= by_number.get(&line.no) == Some(&line.name)
                && by_time.contains(&(line.at, line.no))
                && unannounced.contains(&line.no) != line.announced;
        }
        // No line has two keys of a sort, so as many keys are these.
        fits &= (by_number.len(), by_time.len(), unannounced.len()) == (listed, listed, to_announce);
        (!fits).then(|| "finished batches are not listed as they are".to_owned())
    }
}

/// The records of a batch that is done, as they lie in the database.
pub(super) fn entries(finished: &FinishedBatch) -> Vec<(Vec<u8>, Vec<u8>)> {
    let FinishedBatch { no, name, at, announced, .. } = finished;
    let mut entries = vec![
        (db_keys::finished(name), codec::encode(finished)),
        (db_keys::finished_number(*no).to_vec(), codec::encode(name)),
        (db_keys::finished_at(*at, *no).to_vec(), codec::encode(name)),
    ];
    if !announced {
        entries.push((db_keys::unannounced(*no).to_vec(), codec::encode(name)));
    }
    entries
}

/// Puts them into a commit.
pub(super) fn insert(writes: &mut Writes, finished: &FinishedBatch) {
    for (key, bytes) in entries(finished) {
        writes.insert_encoded(&key, bytes);
    }
}

fn remove(writes: &mut Writes, finished: &FinishedBatch) {
    writes.remove(&db_keys::finished(&finished.name));
    writes.remove(&db_keys::finished_number(finished.no));
    writes.remove(&db_keys::finished_at(finished.at, finished.no));
    writes.remove(&db_keys::unannounced(finished.no));
}

/// Puts what a commit says about a batch into it: its record while it is unfinished, its line from then on.
/// `outcomes_bytes` is the new length of its outcomes, where that changes, `number` that of the commit. Returns its line
/// before and after, where it was done or is.
pub(super) fn put(
    store: &Store,
    writes: &mut Writes,
    batch: &BatchRecord,
    outcomes_bytes: Option<u64>,
    number: u64,
) -> Result<(Option<FinishedBatch>, Option<FinishedBatch>), StoreError> {
    let before = store.line_before(batch)?;
    let outcomes = match (outcomes_bytes, &before) {
        (Some(bytes), _) => bytes,
        (None, Some(line)) => line.outcomes_bytes(&store.dir)?,
        (None, None) => store.open_outcomes_bytes(batch.no)?.unwrap_or_default(),
    };
    if let Some(before) = &before {
        remove(writes, before);
    }
    if batch.is_done() {
        let line = write(&store.dir, batch, outcomes, number)?;
        insert(writes, &line);
        writes.remove(&db_keys::batch(batch.no));
        writes.remove(&db_keys::outcomes_bytes(batch.no));
        return Ok((before, Some(line)));
    }
    writes.insert(&db_keys::batch(batch.no), batch);
    if outcomes > 0 {
        writes.insert(&db_keys::outcomes_bytes(batch.no), &outcomes);
    }
    Ok((before, None))
}

impl Store {
    /// The line of the batch of that name, if it is done.
    pub(super) fn line(&self, name: &BatchName) -> Result<Option<FinishedBatch>, StoreError> {
        self.database()?.get(&db_keys::finished(name))
    }

    /// The line that a commit with this record takes back or replaces. The database alone tells: what the names of
    /// unfinished batches say is older where a commit is repeated that had landed.
    fn line_before(&self, batch: &BatchRecord) -> Result<Option<FinishedBatch>, StoreError> {
        match self.line(&batch.name)? {
            Some(line) if line.no != batch.no => Err(StoreError::Damaged {
                dir: self.dir.clone(),
                what: format!("batch {}", batch.name),
                detail: format!("it has number {}, and a finished one of its name {}", batch.no.0, line.no.0),
            }),
            line => Ok(line),
        }
    }

    /// What is known of the batch of that number, if it is done: read from its folder.
    ///
    /// # Errors
    /// [`StoreError::BatchMoved`] when somebody moved its folder away.
    pub fn finished_batch(&self, no: BatchNo) -> Result<Option<BatchRecord>, StoreError> {
        let Some(name) = self.database()?.get::<BatchName>(&db_keys::finished_number(no))? else {
            return Ok(None);
        };
        let Some(line) = self.line(&name)? else { return Ok(None) };
        line.read(&self.dir).map(|kept| Some(kept.record))
    }

    /// The batch of that name, done or not; nothing where none is called so.
    ///
    /// # Errors
    /// [`StoreError::BatchMoved`] when somebody moved its folder away.
    pub fn batch_named(&self, name: &BatchName) -> Result<Option<BatchRecord>, StoreError> {
        let unfinished = || self.batch_index.number(name).map_or(Ok(None), |no| self.unfinished_batch(no));
        if let Some(batch) = unfinished()? {
            return Ok(Some(batch));
        }
        // No commit in between: seen in the middle of one, a batch that ends or goes on would be nowhere, and a second
        // one of its name would buy everything twice.
        let _still = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batch) = unfinished()? {
            return Ok(Some(batch));
        }
        let Some(line) = self.line(name)? else { return Ok(None) };
        line.read(&self.dir).map(|kept| Some(kept.record))
    }

    /// Batches that ended before are not listed from now on.
    pub fn list_finished_since(&self, at: Timestamp) {
        self.listed_since.store(at.0, Ordering::Relaxed);
    }

    /// Whether a batch has ended before those that are listed, and its end was announced.
    pub fn is_unlisted(&self, name: &BatchName) -> Result<bool, StoreError> {
        let since = self.listed_since.load(Ordering::Relaxed);
        Ok(self.line(name)?.is_some_and(|line| line.announced && line.at.0 < since))
    }

    /// The lines of the listed batches that finished last, `most` at most, in the order of their ends.
    pub fn newest_finished(&self, most: usize) -> Result<Vec<FinishedBatch>, StoreError> {
        let since = Timestamp(self.listed_since.load(Ordering::Relaxed));
        let names: Vec<BatchName> = self.database()?.last_of(db_keys::finished_since(since), most)?;
        let lines = names.iter().map(|name| self.line(name)).filter_map(Result::transpose);
        lines.collect()
    }

    /// The lines of the finished batches that are listed, in the order of their ends.
    pub fn listed_finished(&self) -> Result<Vec<FinishedBatch>, StoreError> {
        self.newest_finished(usize::MAX)
    }

    /// The lines of all finished batches, listed or not.
    pub fn all_finished(&self) -> Result<Vec<FinishedBatch>, StoreError> {
        let names: Vec<BatchName> = self.database()?.scan([db_keys::FINISHED_NUMBER])?;
        names.iter().map(|name| self.line(name)).filter_map(Result::transpose).collect()
    }

    /// Every batch that is not done, and the finished ones that are listed, oldest first. Those whose folder somebody
    /// moved away are left out.
    pub fn listed_batches(&self) -> Result<Vec<BatchRecord>, StoreError> {
        // Finished ones last: one that ends meanwhile is in both.
        let mut batches = self.batches()?;
        for line in self.listed_finished()? {
            match line.read(&self.dir) {
                Ok(kept) => batches.push(kept.record),
                Err(StoreError::BatchMoved { .. }) => {}
                // One of thousands keeps no other from being listed.
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(batch = %line.name, %error, "a finished batch is left out of a list");
                }
                Err(error) => return Err(error),
            }
        }
        batches.sort_by_key(|batch| batch.no);
        batches.dedup_by_key(|batch| batch.no);
        Ok(batches)
    }

    /// How many batches are done, listed or not.
    pub fn finished_count(&self) -> u64 {
        self.batch_index.finished_count()
    }

    /// Batches that are done, and whose end was not announced.
    pub fn unannounced(&self) -> Result<Vec<BatchNo>, StoreError> {
        let names: Vec<BatchName> = self.database()?.scan([db_keys::UNANNOUNCED])?;
        let lines = names.iter().map(|name| self.line(name)).filter_map(Result::transpose);
        lines.map(|line| line.map(|line| line.no)).collect()
    }
}

/// After a commit by which a batch goes on that state format 1 archived: what is left of that says the same.
pub(super) fn forget_archived(dir: &Path, no: BatchNo) {
    let _ = fs::remove_file(batch_dir(dir, no).join("record.json"));
}
