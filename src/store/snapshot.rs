//! What the database holds, at once: all of it, or what is not finished.
//!
//! The database is small by design: batches, open jobs and totals; rows and outcomes lie in the spool. So checking,
//! exporting and rebuilding a state work on all of it in memory. Opening a state that is byte for byte as it was left
//! reads what is not finished: it takes no longer for what has been done in years.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::domain::budget_group::GroupTotals;
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, BatchNo, JobKey};
use crate::domain::ledger::Totals;
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::utc_day::UtcDay;
use crate::store::commit::Database;
use crate::store::db_keys::{self, Meaning};
use crate::store::finished::{self, FinishedBatch, FinishedKeys};
use crate::store::finished_sums::{FinishedSums, StoredTotal};
use crate::store::finished_tally::{FinishedTally, Unfit};
use crate::store::parallel_map::parallel_map;
use crate::store::{BatchRecord, JobRecord, StoreError, codec};

/// The records of a state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Number of the last commit.
    pub commits: u64,
    /// Every batch that is not done, oldest first; of state format 1 those that are, too.
    pub batches: Vec<BatchRecord>,
    /// Every job that has begun and not ended, in order of batch and manifest.
    pub open: Vec<JobRecord>,
    /// The lines of those that are done. Of what is not finished alone: those that have a name or a number in common
    /// with a batch that is not.
    #[serde(default)]
    pub finished: BTreeMap<BatchNo, FinishedBatch>,
    /// The keys beside those lines.
    #[serde(default)]
    pub(super) finished_keys: FinishedKeys,
    /// Totals of the whole state.
    pub total: Totals,
    /// Totals of every day that has some.
    pub days: BTreeMap<UtcDay, Totals>,
    /// What the account refused, and holds.
    #[serde(default)]
    pub account: AccountBlock,
    /// Committed lengths of outcomes, in bytes.
    pub outcomes_bytes: BTreeMap<BatchNo, u64>,
    /// What the finished batches come to, as it is stored; nothing where it is not, or there are none.
    #[serde(default)]
    pub(super) sums: Option<FinishedSums>,
    /// What the groups that have budgets come to, as it is stored; nothing where they are to be counted.
    #[serde(default)]
    pub(super) groups: Option<GroupTotals>,
    /// Of what is not finished alone: the highest number that a batch has which is done.
    #[serde(default)]
    pub(super) highest_finished: Option<BatchNo>,
    /// Of what is not finished alone: the numbers of those that are done, in order, where all were read.
    #[serde(skip)]
    pub(super) finished_numbers: Option<Vec<BatchNo>>,
}

/// What is wanted of the records of finished batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinishedRecords {
    /// They are kept, all of them.
    Kept,
    /// Whether they fit together: they are compared as they come, and none is kept.
    Compared,
}

/// What could be read of a database, and what could not.
#[derive(Debug, Default)]
pub(super) struct Salvaged {
    /// All of it; but what is not finished, where finished batches were only to be compared and fit together.
    pub(super) records: Snapshot,
    /// Finished batches were only to be compared, and that was not enough: nothing is known of them.
    pub(super) unfit: Option<Unfit>,
    /// What is damaged, in words.
    pub(super) unreadable: Vec<String>,
}

impl Salvaged {
    /// Reads all that can be read of these keys with their bytes, up to the first error, which is in words.
    pub(super) fn of(
        entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), String>>,
        of_finished: FinishedRecords,
    ) -> Salvaged {
        let mut salvage = Salvaged::default();
        let mut entries = entries.fuse();
        let mut tally = (of_finished == FinishedRecords::Compared).then(FinishedTally::default);
        // Jobs and lines, of which there are many, are decoded by other threads meanwhile.
        let many = std::iter::from_fn(|| {
            loop {
                match entries.next()? {
                    Ok((key, bytes)) => match (db_keys::meaning(&key), &mut tally) {
                        (Some(Meaning::Job), _) | (Some(Meaning::Finished), None) => {
                            return Some((key, bytes));
                        }
                        (meaning, tally) => {
                            let taken = salvage.records.take(&key, meaning, &bytes, tally.as_mut());
                            salvage.unreadable.extend(taken.err());
                        }
                    },
                    Err(detail) => {
                        salvage.unreadable.push(format!("the database: {detail}"));
                        return None;
                    }
                }
            }
        });
        let decode = |(key, bytes): &(Vec<u8>, Vec<u8>)| {
            let decoded = match db_keys::meaning(key) {
                Some(Meaning::Finished) => codec::decode(bytes).map(Decoded::Finished),
                _ => codec::decode(bytes).map(Decoded::Job),
            };
            decoded.map_err(|damage| unreadable(key, &damage))
        };
        let decoded = parallel_map(many, decode);
        let Salvaged { records: Snapshot { open, finished, .. }, unreadable, .. } = &mut salvage;
        *open = decoded
            .filter_map(|decoded| match decoded {
                Ok(Decoded::Job(job)) => Some(job),
                Ok(Decoded::Finished(line)) => {
                    unreadable.extend(add_line(finished, line).err());
                    None
                }
                Err(damage) => {
                    unreadable.push(damage);
                    None
                }
            })
            .collect();
        if let Some(tally) = tally {
            match tally.numbers(salvage.records.sums.as_ref()) {
                Ok(numbers) => {
                    salvage.records.highest_finished = numbers.last().copied();
                    salvage.records.finished_numbers = Some(numbers);
                }
                Err(unfit) => salvage.unfit = Some(unfit),
            }
        }
        salvage
    }
}

/// A record of which there are many.
enum Decoded {
    Job(JobRecord),
    Finished(FinishedBatch),
}

/// Adds the line of a finished batch; what is wrong where another has its number.
fn add_line(finished: &mut BTreeMap<BatchNo, FinishedBatch>, line: FinishedBatch) -> Result<(), String> {
    let key = db_keys::finished(&line.name);
    match finished.insert(line.no, line) {
        None => Ok(()),
        Some(FinishedBatch { name, .. }) => {
            Err(format!("the record {}: batch {name} has the same number", db_keys::describe(&key)))
        }
    }
}

fn unreadable(key: &[u8], damage: &codec::DecodeError) -> String {
    format!("the record {}: {damage}", db_keys::describe(key))
}

impl Snapshot {
    /// No records but the number of a commit.
    pub fn at(commits: u64) -> Snapshot {
        Snapshot { commits, ..Snapshot::default() }
    }

    /// What jobs may have been charged that a state which is gone may have sent, of all batches.
    pub(super) fn may_be_charged(&self) -> Credits {
        let unfinished = self.batches.iter().map(|batch| (batch.no, batch.may_be_charged));
        let finished: Vec<(BatchNo, Credits)> = match &self.sums {
            Some(sums) => sums.may_be_charged.clone(),
            None => self.finished.values().map(|line| (line.no, line.may_be_charged)).collect(),
        };
        let of_each: BTreeMap<BatchNo, Credits> = unfinished.chain(finished).collect();
        of_each.into_values().fold(Credits::ZERO, |sum, credits| sum + credits)
    }

    /// Reads all records.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for the first one that is not what was written.
    pub(super) fn read(dir: &Path, database: &Database) -> Result<Snapshot, StoreError> {
        let mut refused = None;
        let entries = database.entries().map(|entry| {
            entry.map_err(|error| {
                let detail = error.to_string();
                refused = Some(error);
                detail
            })
        });
        let Salvaged { records, unreadable, .. } = Salvaged::of(entries, FinishedRecords::Kept);
        if let Some(error) = refused {
            return Err(error);
        }
        let damaged =
            |detail| StoreError::Damaged { dir: dir.to_owned(), what: "the database".to_owned(), detail };
        unreadable.into_iter().next().map_or(Ok(records), |detail| Err(damaged(detail)))
    }

    /// Reads what is not finished. Nothing where what is finished is not summed up: then all must be read. `open` are the
    /// jobs that have begun and not ended, where they are known; they are taken.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub(super) fn read_unfinished(
        database: &Database,
        open: &mut Option<Vec<JobRecord>>,
    ) -> Result<Option<Snapshot>, StoreError> {
        let highest = database.last_key(db_keys::FINISHED_NUMBER)?;
        let Some(Meaning::FinishedNumber(highest)) = highest.as_deref().and_then(db_keys::meaning) else {
            return Ok(None);
        };
        let StoredTotal { totals: total, finished: Some(sums), groups } = StoredTotal::read(database)? else {
            return Ok(None);
        };
        let mut records = Snapshot {
            commits: database.get(&db_keys::commits())?.unwrap_or_default(),
            batches: database.scan([db_keys::BATCH])?,
            open: open.take().map_or_else(|| database.scan([db_keys::JOB]), Ok)?,
            total,
            sums: Some(sums),
            groups,
            highest_finished: Some(highest),
            ..Snapshot::default()
        };
        for batch in &records.batches {
            if let Some(bytes) = database.get(&db_keys::outcomes_bytes(batch.no))? {
                records.outcomes_bytes.insert(batch.no, bytes);
            }
            let of_its_number = database.get::<BatchName>(&db_keys::finished_number(batch.no))?;
            for name in of_its_number.iter().chain([&batch.name]) {
                let line: Option<FinishedBatch> = database.get(&db_keys::finished(name))?;
                records.finished.extend(line.map(|line| (line.no, line)));
            }
        }
        Ok(Some(records))
    }

    /// The same, and its open jobs apart from it.
    pub(super) fn without_open_jobs(mut self) -> (Snapshot, Vec<JobRecord>) {
        let open = std::mem::take(&mut self.open);
        (self, open)
    }

    /// Whether a batch is done. Of what is not finished alone, a number below one that is taken says so.
    pub(super) fn is_finished(&self, no: BatchNo) -> bool {
        match (&self.finished_numbers, self.highest_finished) {
            (Some(numbers), _) => numbers.binary_search(&no).is_ok(),
            (None, None) => self.finished.contains_key(&no),
            (None, Some(highest)) => {
                let last = self.batches.last().map_or(highest, |batch| batch.no.max(highest));
                self.batch(no).is_none() && no <= last
            }
        }
    }

    /// Whether the keys of finished batches name one, whatever became of its line.
    pub fn is_listed_as_finished(&self, no: BatchNo) -> bool {
        self.finished_keys.by_number.contains_key(&no)
    }

    /// The totals of all finished batches together.
    pub(super) fn finished_totals(&self) -> Totals {
        match (&self.sums, self.highest_finished) {
            (Some(sums), Some(_)) => sums.totals,
            _ => FinishedSums::of(self.finished.values()).totals,
        }
    }

    /// The totals as they are to be stored.
    pub(super) fn stored_total(&self) -> StoredTotal {
        let stored = match (&self.sums, self.highest_finished) {
            (Some(sums), Some(_)) => {
                StoredTotal { totals: self.total, finished: Some(sums.clone()), groups: None }
            }
            _ => StoredTotal::of(self.total, self.finished.values()),
        };
        StoredTotal { groups: self.groups.clone(), ..stored }
    }

    /// Takes a record in; the reason when it is not what was written. Those of finished batches go into `tally`, where one is
    /// given.
    fn take(
        &mut self,
        key: &[u8],
        meaning: Option<Meaning>,
        bytes: &[u8],
        tally: Option<&mut FinishedTally>,
    ) -> Result<(), String> {
        let Some(meaning) = meaning else {
            return Err(format!("the record {} is none of ours", db_keys::describe(key)));
        };
        let put = || -> Result<(), codec::DecodeError> {
            match meaning {
                Meaning::Batch => self.batches.push(codec::decode(bytes)?),
                Meaning::OutcomesBytes(no) => {
                    self.outcomes_bytes.insert(no, codec::decode(bytes)?);
                }
                Meaning::Day(day) => {
                    self.days.insert(day, codec::decode(bytes)?);
                }
                // Decoded by `Salvaged::of`, unless lines are compared.
                Meaning::Job => {}
                Meaning::Finished => tally.map_or(Ok(()), |tally| tally.line(key, bytes))?,
                Meaning::FinishedNumber(no) => {
                    let name = codec::decode(bytes)?;
                    match tally {
                        Some(tally) => tally.number(no, &name, &self.batches),
                        None => drop(self.finished_keys.by_number.insert(no, name)),
                    }
                }
                Meaning::FinishedAt(at, no) => {
                    codec::decode::<BatchName>(bytes)?;
                    match tally {
                        Some(tally) => tally.time(at, no),
                        None => drop(self.finished_keys.by_time.insert((at, no))),
                    }
                }
                Meaning::Unannounced(no) => {
                    codec::decode::<BatchName>(bytes)?;
                    match tally {
                        Some(tally) => tally.unannounced(no),
                        None => drop(self.finished_keys.unannounced.insert(no)),
                    }
                }
                Meaning::Account => self.account = codec::decode(bytes)?,
                Meaning::Total => {
                    let stored: StoredTotal = codec::decode(bytes)?;
                    (self.total, self.sums, self.groups) = (stored.totals, stored.finished, stored.groups);
                }
                Meaning::Commits => self.commits = codec::decode(bytes)?,
            }
            Ok(())
        };
        put().map_err(|damage| unreadable(key, &damage))
    }

    /// Writes a new database, which is on the device on return.
    pub(super) fn write_database(&self, dir: &Path, path: &Path) -> Result<(), StoreError> {
        Database::create(dir, path, &self.entries())
    }

    /// Keys and bytes, the number of the last commit at the end.
    fn entries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let batches =
            self.batches.iter().map(|batch| (db_keys::batch(batch.no).to_vec(), codec::encode(batch)));
        entries.extend(batches);
        entries.extend(self.open.iter().map(|open| (db_keys::job(open.key).to_vec(), codec::encode(open))));
        let lengths = self.outcomes_bytes.iter();
        entries
            .extend(lengths.map(|(no, bytes)| (db_keys::outcomes_bytes(*no).to_vec(), codec::encode(bytes))));
        entries.extend(self.finished.values().flat_map(finished::entries));
        entries.extend(
            self.days.iter().map(|(day, totals)| (db_keys::day(*day).to_vec(), codec::encode(totals))),
        );
        if !self.account.is_empty() {
            entries.push((db_keys::account().to_vec(), codec::encode(&self.account)));
        }
        entries.push((db_keys::total().to_vec(), codec::encode(&self.stored_total())));
        entries.push((db_keys::commits().to_vec(), codec::encode(&self.commits)));
        entries
    }

    /// The batch of that number, unless it is done.
    pub(super) fn batch(&self, no: BatchNo) -> Option<&BatchRecord> {
        let index = self.batches.binary_search_by_key(&no, |batch| batch.no).ok()?;
        self.batches.get(index)
    }

    /// The open jobs of a batch.
    pub(super) fn open_of(&self, no: BatchNo) -> impl Iterator<Item = &JobRecord> {
        let first = self.open.partition_point(|open| open.key.batch < no);
        self.open.iter().skip(first).take_while(move |open| open.key.batch == no)
    }

    /// The open job of that place.
    pub fn open_job(&self, key: JobKey) -> Option<&JobRecord> {
        let index = self.open.binary_search_by_key(&key, |open| open.key).ok()?;
        self.open.get(index)
    }

    /// Committed length of a batch's outcomes, in bytes.
    pub(super) fn outcomes_bytes(&self, no: BatchNo) -> u64 {
        self.outcomes_bytes.get(&no).copied().unwrap_or_default()
    }
}

impl Snapshot {
    /// Takes the batches that are done out of the unfinished ones: their records are in their folders on return, their
    /// lines are returned.
    pub(super) fn retire(&mut self, dir: &Path) -> Result<Vec<FinishedBatch>, StoreError> {
        let (done, unfinished) =
            std::mem::take(&mut self.batches).into_iter().partition(BatchRecord::is_done);
        self.batches = unfinished;
        let done: Vec<BatchRecord> = done;
        let outcomes = &mut self.outcomes_bytes;
        let mut retire = |batch: &BatchRecord| {
            finished::write(dir, batch, outcomes.remove(&batch.no).unwrap_or_default(), self.commits)
        };
        done.iter().map(&mut retire).collect()
    }

    /// Adds a batch that is done.
    pub fn add_finished(&mut self, line: FinishedBatch) {
        let FinishedKeys { by_number, by_time, unannounced } = FinishedKeys::of(&line);
        self.finished_keys.by_number.extend(by_number);
        self.finished_keys.by_time.extend(by_time);
        self.finished_keys.unannounced.extend(unannounced);
        self.finished.insert(line.no, line);
    }
}

/// The lines of batches that are done and that the database keeps in the form of state format 1: those that were archived,
/// and those that were kept among the unfinished ones. They are among the finished ones of `records` on return.
pub(super) fn take_over(dir: &Path, records: &mut Snapshot) -> Result<Vec<FinishedBatch>, StoreError> {
    let is_listed = |line: &FinishedBatch| records.finished_keys.by_number.contains_key(&line.no);
    let archived: Vec<FinishedBatch> =
        records.finished.values().filter(|line| !is_listed(line)).cloned().collect();
    let lines = archived.into_iter().map(|line| {
        let read = line.read(dir).ok();
        read.map_or(line.clone(), |kept| FinishedBatch {
            at: line.at,
            ..FinishedBatch::of(&kept.record, None)
        })
    });
    let lines: Vec<FinishedBatch> = lines.chain(records.retire(dir)?).collect();
    lines.iter().for_each(|line| records.add_finished(line.clone()));
    Ok(lines)
}
