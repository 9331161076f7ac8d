//! What is to become of the rows of a draft, found out one partition after the other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufReader, Seek};

use foldhash::fast::RandomState;
use tempfile::SpooledTempFile;

use crate::domain::credits::Credits;
use crate::domain::ids::Fingerprint;
use crate::domain::row_verdict::JobStanding;
use crate::store::staging::absent::{AbsentJob, AbsentJobs};
use crate::store::staging::partition_entry::{COUNTED, MISSING, PartitionEntry, Tag, read_entry, unpack};
use crate::store::staging::versions::{ChangedRow, KnownVersions};

/// Read buffer of a partition, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// An `id` that two rows have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatedId {
    /// Line of the later row.
    pub line: u64,
    /// Line of the first row.
    pub first_line: u64,
}

/// What is to become of a row, in 12 bytes. All zero for one that could not be read.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PackedVerdict {
    /// Its first variation.
    pub(super) first: u32,
    /// The last of its variations that the batch has, 0 for none; `REPEATED` beside a `first` of 0.
    pub(super) have: u32,
    /// Where in `standings` those of its jobs begin, up to the last one that the batch has.
    pub(super) at: u32,
}

/// In `have`: an earlier row has the same `id`.
pub(super) const REPEATED: u32 = u32::MAX;

/// What comparing the partitions found.
#[derive(Debug, Default)]
pub(super) struct VerdictTable {
    /// By row.
    pub(super) verdicts: Vec<PackedVerdict>,
    /// Where jobs stand that the batch has, row by row. `MISSING` stands for one that it lacks before one that it has.
    pub(super) standings: Vec<u8>,
    /// What those jobs were accepted with, packed.
    pub(super) terms: Vec<u32>,
    /// Credits of some of them, by their index.
    pub(super) credits: HashMap<u32, Credits>,
    /// Rows whose `id` an earlier row has, in order of lines.
    pub(super) repeated: Vec<RepeatedId>,
    /// Variations of rows whose `id` the batch has with another request, in order of rows.
    pub(super) changed: Vec<ChangedRow>,
    /// Rows, by their place among all, whose `id` differs from another's only by case or by Unicode normal form.
    pub(super) apart: HashSet<u32>,
    /// Jobs of the batch whose rows the manifest does not have.
    pub(super) absent: AbsentJobs,
}

/// What is known of the entries of one partition: empty again for the next one, in the same memory.
#[derive(Default)]
pub(super) struct PartitionTables {
    seen: HashMap<Fingerprint, SeenRow, RandomState>,
    labels: HashMap<[u8; 16], u64, RandomState>,
    /// The first of several has the plain name.
    names: HashMap<[u8; 16], Fingerprint, RandomState>,
    versions: KnownVersions,
}

#[derive(Debug, Default)]
struct SeenRow {
    /// What the batch has, by variation.
    known: BTreeMap<u32, SeenJob>,
    /// Those of them whose row has no `id`, by variation.
    without_id: Vec<(u32, AbsentJob)>,
    /// The last variation that the manifest asks for.
    asked: u32,
}

/// What an entry says of a job that the batch has.
#[derive(Debug, Clone, Copy)]
struct SeenJob {
    standing: u8,
    price: Credits,
    terms: u32,
}

impl VerdictTable {
    /// Compares the entries of one partition. Entries of accepted jobs were written before the rows.
    pub(super) fn add_partition(
        &mut self,
        mut file: SpooledTempFile,
        tables: &mut PartitionTables,
    ) -> io::Result<()> {
        let PartitionTables { seen, labels, names, versions } = tables;
        file.rewind()?;
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut bytes = [0; PartitionEntry::BYTES];
        while read_entry(&mut file, &mut bytes)? {
            let entry = PartitionEntry::from_bytes(&bytes);
            match entry.tag {
                Tag::Known => {
                    let row = seen.entry(entry.fingerprint).or_default();
                    let known = row.known.entry(entry.count).or_insert(SeenJob {
                        standing: entry.standing,
                        price: Credits(entry.number),
                        terms: entry.ordinal,
                    });
                    known.standing |= entry.standing & COUNTED;
                }
                Tag::Name | Tag::KnownName => {
                    let first = *names.entry(entry.place).or_insert(entry.fingerprint);
                    if first != entry.fingerprint && entry.tag == Tag::Name {
                        self.apart.insert(entry.ordinal);
                    }
                }
                Tag::CachedRow => {
                    let row = seen.entry(entry.fingerprint).or_default();
                    row.without_id.push((entry.count, entry.absent_job()));
                }
                Tag::KnownLabel | Tag::DerivedLabel => versions.add_wanted(&entry),
                Tag::OlderLabel => versions.add_older(&entry),
                Tag::UnreadLabel => {
                    versions.note_unread(&entry.place);
                    labels.entry(entry.place).or_insert(entry.number);
                }
                Tag::LeftOutRow => {
                    let row = seen.entry(entry.fingerprint).or_default();
                    row.asked = row.asked.saturating_add(entry.count);
                }
                Tag::LeftOutLabel => {
                    labels.entry(entry.place).or_insert(entry.number);
                }
                Tag::Label => {
                    // Written by `push` for this very draft, so the ordinal has a verdict.
                    let Some(verdict) = self.verdicts.get_mut(entry.ordinal as usize) else { continue };
                    if let Some(&first_line) = labels.get(&entry.place) {
                        *verdict = PackedVerdict { have: REPEATED, ..PackedVerdict::default() };
                        self.repeated.push(RepeatedId { line: entry.number, first_line });
                        continue;
                    }
                    labels.insert(entry.place, entry.number);
                    self.changed.extend(versions.change(&PartitionEntry { count: 1, ..entry }));
                }
                Tag::Variation => {
                    let verdict = self.verdicts.get(entry.ordinal as usize);
                    if verdict.is_some_and(|verdict| verdict.have != REPEATED) {
                        self.changed.extend(versions.change(&entry));
                    }
                }
                Tag::Row | Tag::InvalidRow => {
                    let VerdictTable { verdicts, standings, terms, credits, .. } = &mut *self;
                    let Some(verdict) = verdicts.get_mut(entry.ordinal as usize) else { continue };
                    if verdict.have == REPEATED {
                        continue;
                    }
                    let row = seen.entry(entry.fingerprint).or_default();
                    let first = row.asked + 1;
                    row.asked = row.asked.saturating_add(entry.count);
                    let own = row.known.range(first..=row.asked.max(first));
                    let have = own.last().map_or(0, |(variation, _)| *variation);
                    let at = u32::try_from(standings.len()).unwrap_or(u32::MAX);
                    *verdict = PackedVerdict { first, have, at };
                    for variation in first..=have {
                        let missing = SeenJob { standing: MISSING, price: Credits::ZERO, terms: 0 };
                        let SeenJob { standing, price, terms: accepted } =
                            row.known.get(&variation).copied().unwrap_or(missing);
                        let is_held = matches!(
                            unpack(standing),
                            Some((JobStanding::Running | JobStanding::InDoubt, _))
                        );
                        if is_held || entry.tag == Tag::InvalidRow {
                            credits.insert(u32::try_from(standings.len()).unwrap_or(u32::MAX), price);
                        }
                        standings.push(standing);
                        terms.push(accepted);
                    }
                }
            }
        }
        for (_, row) in seen.drain() {
            let absent = row.without_id.into_iter().filter(|(variation, _)| *variation > row.asked);
            absent.for_each(|(_, job)| self.absent.add(job));
        }
        versions.absent().for_each(|job| self.absent.add(job));
        self.changed.extend(versions.dropped());
        self.changed.extend(versions.restored());
        labels.clear();
        names.clear();
        *versions = KnownVersions::default();
        Ok(())
    }
}
