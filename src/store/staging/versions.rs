//! Versions of edited rows: which of them the batch has, and which variation of a row takes the place of another.

use std::collections::HashMap;

use crate::domain::ids::{Fingerprint, Seq};
use crate::domain::row_verdict::JobStanding;
use crate::store::staging::absent::AbsentJob;
use crate::store::staging::partition_entry::{PartitionEntry, Tag, label_place};

/// A variation of a row that takes the place of another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariationChange {
    /// Which variation.
    pub variation: u32,
    /// The job that was wanted before.
    pub instead_of: Seq,
    /// The job that the batch has of this version, and the byte where its row begins: the manifest goes back to it.
    pub back_to: Option<(Seq, u64)>,
}

/// A variation of a row that the batch has with another request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangedRow {
    pub(super) ordinal: u32,
    pub(super) change: VariationChange,
    /// The byte where the row begins that was wanted before.
    pub(super) before: u64,
    /// Where its job stands.
    pub(super) standing: JobStanding,
}

/// A version of a row's variation that the batch has.
struct Version {
    fingerprint: Fingerprint,
    job: AbsentJob,
    has_id: bool,
    /// The manifest has a row of the same `id`.
    is_asked_for: bool,
}

impl Version {
    fn of(entry: &PartitionEntry) -> Version {
        let PartitionEntry { fingerprint, tag, .. } = *entry;
        let has_id = tag != Tag::DerivedLabel;
        Version { fingerprint, job: entry.absent_job(), has_id, is_asked_for: false }
    }
}

/// The versions that the batch has, by `id` and variation.
#[derive(Default)]
pub(super) struct KnownVersions {
    wanted: HashMap<[u8; 16], Version>,
    older: HashMap<[u8; 16], Vec<Version>>,
}

impl KnownVersions {
    /// Adds one that is wanted. Of several the last: versions of the program that did not tell which is wanted left some.
    pub(super) fn add_wanted(&mut self, entry: &PartitionEntry) {
        if let Some(before) = self.wanted.insert(entry.place, Version::of(entry)) {
            self.older.entry(entry.place).or_default().push(before);
        }
    }

    /// Adds one in whose place another is wanted.
    pub(super) fn add_older(&mut self, entry: &PartitionEntry) {
        self.older.entry(entry.place).or_default().push(Version::of(entry));
    }

    /// What a row's variation, in `count`, takes the place of; nothing where the batch wants the same.
    pub(super) fn change(&mut self, entry: &PartitionEntry) -> Option<ChangedRow> {
        let wanted = self.wanted.get_mut(&entry.place)?;
        wanted.is_asked_for = true;
        if wanted.fingerprint == entry.fingerprint {
            return None;
        }
        let mut of_row = self.older.get(&entry.place).into_iter().flatten();
        let same = of_row.rfind(|version| version.fingerprint == entry.fingerprint);
        let back_to = same.map(|version| (version.job.seq, version.job.at));
        let change = VariationChange { variation: entry.count, instead_of: wanted.job.seq, back_to };
        let AbsentJob { at: before, standing, .. } = wanted.job;
        Some(ChangedRow { ordinal: entry.ordinal, change, before, standing })
    }

    /// Those with an `id` that no row of the manifest has.
    pub(super) fn absent(&self) -> impl Iterator<Item = AbsentJob> + '_ {
        let absent = self.wanted.values().filter(|version| version.has_id && !version.is_asked_for);
        absent.map(|version| version.job)
    }
}

/// Where a variation of a row is compared.
pub(super) fn variation_place(id: &str, variation: u32) -> [u8; 16] {
    if variation <= 1 { label_place(id) } else { label_place(&format!("{id}\0{variation}")) }
}
