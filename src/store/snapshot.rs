//! Everything that the database holds, at once.
//!
//! The database is small by design: batches, open jobs and totals; rows and outcomes lie in the spool.
//! So checking, exporting and rebuilding a state work on all of it in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::domain::account_block::AccountBlock;
use crate::domain::ids::{BatchName, BatchNo, JobKey};
use crate::domain::ledger::Totals;
use crate::domain::time::UtcDay;
use crate::store::db_keys::{self, Meaning};
use crate::store::error::in_words;
use crate::store::finished::{self, FinishedBatch, FinishedKeys};
use crate::store::{BatchRecord, COMMIT_MAX_JOBS, JobRecord, StoreError, codec, database};

/// The records of a state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Number of the last commit.
    pub commits: u64,
    /// Every batch that is not done, oldest first; of state format 1 those that are, too.
    pub batches: Vec<BatchRecord>,
    /// Every job that has begun and not ended, in order of batch and manifest.
    pub open: Vec<JobRecord>,
    /// The lines of those that are done.
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
}

/// What could be read of a database, and what could not.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Salvaged {
    pub(super) records: Snapshot,
    /// What is damaged, in words.
    pub(super) unreadable: Vec<String>,
}

impl Salvaged {
    /// Reads all that can be read.
    pub(super) fn of(db: &sled::Db) -> Salvaged {
        let mut salvage = Salvaged::default();
        for entry in db.iter() {
            let taken = match entry {
                Ok((key, bytes)) => salvage.records.take(&key, &bytes),
                Err(error) => {
                    salvage.unreadable.push(format!("the database: {}", in_words(&error)));
                    // It has no way past a page that it cannot read.
                    break;
                }
            };
            if let Err(damage) = taken {
                salvage.unreadable.push(damage);
            }
        }
        salvage
    }
}

impl Snapshot {
    /// No records but the number of a commit.
    pub fn at(commits: u64) -> Snapshot {
        Snapshot { commits, ..Snapshot::default() }
    }

    /// Reads all records.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for the first one that is not what was written.
    pub(super) fn read(dir: &Path, db: &sled::Db) -> Result<Snapshot, StoreError> {
        let mut records = Snapshot::default();
        for entry in db.iter() {
            let (key, bytes) = entry.map_err(|source| database(dir, source))?;
            records.take(&key, &bytes).map_err(|detail| StoreError::Damaged {
                dir: dir.to_owned(),
                what: "the database".to_owned(),
                detail,
            })?;
        }
        Ok(records)
    }

    /// Takes a record in; the reason when it is not what was written.
    fn take(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), String> {
        let Some(meaning) = db_keys::meaning(key) else {
            return Err(format!("the record {} is none of ours", db_keys::describe(key)));
        };
        let mut twin = None;
        let mut put = || -> Result<(), codec::DecodeError> {
            match meaning {
                Meaning::Batch => self.batches.push(codec::decode(bytes)?),
                Meaning::Job => self.open.push(codec::decode(bytes)?),
                Meaning::OutcomesBytes(no) => {
                    self.outcomes_bytes.insert(no, codec::decode(bytes)?);
                }
                Meaning::Day(day) => {
                    self.days.insert(day, codec::decode(bytes)?);
                }
                Meaning::Finished => {
                    let line: FinishedBatch = codec::decode(bytes)?;
                    twin = self.finished.insert(line.no, line);
                }
                Meaning::FinishedNumber(no) => {
                    self.finished_keys.by_number.insert(no, codec::decode(bytes)?);
                }
                Meaning::FinishedAt(at, no) => {
                    codec::decode::<BatchName>(bytes)?;
                    self.finished_keys.by_time.insert((at, no));
                }
                Meaning::Unannounced(no) => {
                    codec::decode::<BatchName>(bytes)?;
                    self.finished_keys.unannounced.insert(no);
                }
                Meaning::Account => self.account = codec::decode(bytes)?,
                Meaning::Total => self.total = codec::decode(bytes)?,
                Meaning::Commits => self.commits = codec::decode(bytes)?,
            }
            Ok(())
        };
        put().map_err(|damage| format!("the record {}: {damage}", db_keys::describe(key)))?;
        match twin {
            None => Ok(()),
            Some(FinishedBatch { name, .. }) => {
                Err(format!("the record {}: batch {name} has the same number", db_keys::describe(key)))
            }
        }
    }

    /// Writes a new database, which is on the device on return.
    pub(super) fn write_database(&self, dir: &Path, path: &Path) -> Result<(), StoreError> {
        let refused = |source| database(dir, source);
        let db = sled::Config::new().path(path).flush_every_ms(None).open().map_err(refused)?;
        for entries in self.entries().chunks(COMMIT_MAX_JOBS) {
            let mut batch = sled::Batch::default();
            for (key, bytes) in entries {
                batch.insert(&key[..], &bytes[..]);
            }
            db.apply_batch(batch).map_err(refused)?;
        }
        db.flush().map_err(refused)?;
        drop(db);
        for file in [&path.join("db"), path] {
            File::open(file).and_then(|file| file.sync_all()).map_err(StoreError::io(file))?;
        }
        Ok(())
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
        entries.push((db_keys::total().to_vec(), codec::encode(&self.total)));
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
