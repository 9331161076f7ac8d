//! Versions of edited rows: which of them the batch has, and which variation of a row takes the place of another.

use std::collections::HashMap;

use crate::domain::ids::{Fingerprint, Seq};
use crate::domain::row_verdict::JobStanding;
use crate::store::staging::absent::AbsentJob;
use crate::store::staging::partition_entry::{NOT_VALID, PartitionEntry, Tag, label_place};

/// A variation of a row that takes the place of another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariationChange {
    /// Which variation.
    pub variation: u32,
    /// The job that was wanted before: until now, or before the row asked for fewer variations.
    pub instead_of: Seq,
    /// It was wanted until now.
    pub was_wanted: bool,
    /// The job that the batch has of this version, and the byte where its row begins: the manifest goes back to it. Where
    /// the row has no such variation any more, the first variation that the batch has of this version.
    pub back_to: Option<(Seq, u64)>,
    /// The row asks for fewer variations than its other version did: nothing takes the place of this one.
    pub is_dropped: bool,
    /// The byte where the row begins that was wanted before.
    pub before: u64,
    /// Where its job stands.
    pub standing: JobStanding,
}

/// A variation of a row that the batch has with another request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangedRow {
    pub(super) ordinal: u32,
    pub(super) change: VariationChange,
}

/// A version of a row's variation that the batch has.
struct Version {
    fingerprint: Fingerprint,
    variation: u32,
    job: AbsentJob,
    has_id: bool,
    asked_by: Option<AskedBy>,
}

/// The row of the manifest that has the same `id`.
#[derive(Clone, Copy)]
struct AskedBy {
    fingerprint: Fingerprint,
    ordinal: u32,
    is_valid: bool,
    /// What the batch has of the version that it asks for, and the byte where the row of that begins.
    back_to: Option<(Seq, u64)>,
}

impl AskedBy {
    /// Whether it takes the place of a version. One that is not valid takes none, unless the batch has what it asks for.
    fn replaces(&self, version: &Version) -> bool {
        self.fingerprint != version.fingerprint && (self.is_valid || self.back_to.is_some())
    }
}

impl Version {
    fn of(entry: &PartitionEntry) -> Version {
        let PartitionEntry { fingerprint, tag, count: variation, .. } = *entry;
        let has_id = tag != Tag::DerivedLabel;
        Version { fingerprint, variation, job: entry.absent_job(), has_id, asked_by: None }
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
        let PartitionEntry { fingerprint, ordinal, count: variation, .. } = *entry;
        let older = self.older.get_mut(&entry.place).map(Vec::as_mut_slice).unwrap_or_default();
        let last = older.last().map(|version| version.job);
        let same = older.iter_mut().rfind(|version| version.fingerprint == fingerprint);
        let back_to = same.as_ref().map(|version| (version.job.seq, version.job.at));
        let asked_by = AskedBy { fingerprint, ordinal, is_valid: entry.standing != NOT_VALID, back_to };
        let same = same.map(|version| {
            version.asked_by = Some(asked_by);
            version.job
        });
        let (instead_of, was_wanted) = match self.wanted.get_mut(&entry.place) {
            Some(wanted) => {
                let is_same = wanted.fingerprint == fingerprint;
                let back_to = if is_same { Some((wanted.job.seq, wanted.job.at)) } else { back_to };
                wanted.asked_by = Some(AskedBy { back_to, ..asked_by });
                if is_same {
                    return None;
                }
                (wanted.job, true)
            }
            // None of them is wanted: the version before asked for fewer variations.
            None => (same.or(last)?, false),
        };
        let AbsentJob { seq: instead_of, at: before, standing, .. } = instead_of;
        let is_dropped = false;
        let change =
            VariationChange { variation, instead_of, was_wanted, back_to, is_dropped, before, standing };
        Some(ChangedRow { ordinal, change })
    }

    /// The manifest has a row of the `id` that is compared here, of which nothing else could be read.
    pub(super) fn note_unread(&mut self, place: &[u8; 16]) {
        let unread =
            AskedBy { fingerprint: Fingerprint([0; 16]), ordinal: 0, is_valid: false, back_to: None };
        if let Some(wanted) = self.wanted.get_mut(place) {
            wanted.asked_by = wanted.asked_by.or(Some(unread));
        }
    }

    /// Those with an `id` that no row of the manifest asks for, or another version of which a row asks for that is not
    /// valid.
    pub(super) fn absent(&self) -> impl Iterator<Item = AbsentJob> + '_ {
        let with_id = self.wanted.iter().filter(|(_, version)| version.has_id);
        with_id.filter_map(|(place, version)| {
            if self.replaced_by(place, version).is_some() {
                return None;
            }
            let is_other = |asked: &AskedBy| asked.fingerprint != version.fingerprint;
            let of_first = || self.wanted.get(&first_place(*place, version.variation))?.asked_by;
            let asked_by = match version.asked_by {
                Some(asked) if asked.replaces(version) || !is_other(&asked) => return None,
                Some(asked) => Some(asked),
                None => of_first().filter(is_other),
            };
            Some(AbsentJob { row_is_not_valid: asked_by.is_some(), ..version.job })
        })
    }

    /// Further variations of a version in whose place another is wanted that has no such variation.
    pub(super) fn dropped(&self) -> impl Iterator<Item = ChangedRow> + '_ {
        self.unasked().filter_map(|(place, version)| {
            let AskedBy { ordinal, back_to, .. } = self.replaced_by(place, version)?;
            let Version { variation, job: AbsentJob { seq: instead_of, at: before, standing, .. }, .. } =
                *version;
            let (was_wanted, is_dropped) = (true, true);
            let change =
                VariationChange { variation, instead_of, was_wanted, back_to, is_dropped, before, standing };
            Some(ChangedRow { ordinal, change })
        })
    }

    /// Further variations of a version that is wanted again, which its row does not ask for: another take was bought of it.
    /// Those that were paid for are wanted as before.
    pub(super) fn restored(&self) -> impl Iterator<Item = ChangedRow> + '_ {
        let older = self.older.iter().flat_map(|(place, older)| older.iter().map(move |one| (place, one)));
        older.filter_map(|(place, version)| {
            let Version { fingerprint, variation, job, .. } = *version;
            let is_further = version.has_id && variation > 1 && version.asked_by.is_none();
            let asked = self.wanted.get(&first_place(*place, variation)).filter(|_| is_further)?.asked_by?;
            let is_paid =
                matches!(job.standing, JobStanding::Done | JobStanding::Running | JobStanding::InDoubt);
            if asked.fingerprint != fingerprint || asked.back_to.is_none() || !is_paid {
                return None;
            }
            let AskedBy { ordinal, .. } = asked;
            let AbsentJob { seq, at, standing, .. } = job;
            let wanted = self.wanted.get(place).map(|wanted| wanted.job.seq);
            let change = VariationChange {
                variation,
                instead_of: wanted.unwrap_or(seq),
                was_wanted: false,
                back_to: Some((seq, at)),
                is_dropped: false,
                before: at,
                standing,
            };
            Some(ChangedRow { ordinal, change })
        })
    }

    fn unasked(&self) -> impl Iterator<Item = (&[u8; 16], &Version)> + '_ {
        self.wanted.iter().filter(|(_, version)| version.has_id && version.asked_by.is_none())
    }

    /// The row that asks for another version of the one that this is a further variation of.
    fn replaced_by(&self, place: &[u8; 16], version: &Version) -> Option<AskedBy> {
        let first = self.wanted.get(&first_place(*place, version.variation))?;
        first.asked_by.filter(|asked| asked.replaces(version))
    }
}

/// Where a variation of a row is compared: in one partition with the other variations of the row.
pub(super) fn variation_place(id: &str, variation: u32) -> [u8; 16] {
    first_place(label_place(id), variation)
}

/// From where a variation is compared to where the first one is, and back.
fn first_place(mut place: [u8; 16], variation: u32) -> [u8; 16] {
    if variation > 1 {
        let [.., a, b, c, d] = &mut place;
        [a, b, c, d].into_iter().zip(variation.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
    }
    place
}
