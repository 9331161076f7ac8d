//! What the partition files of a draft hold: rows of the manifest and jobs of the batch, by fingerprint and by `id`.

use std::io::{self, Read};

use crate::domain::credits::Credits;
use crate::domain::ids::{Fingerprint, Seq};
use crate::domain::job_label::{folded, name_stem};
use crate::domain::row_verdict::JobStanding;
use crate::store::staging::absent::AbsentJob;

/// What a partition file's entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    /// A row that wants jobs.
    Row,
    /// A row that is not valid.
    InvalidRow,
    /// The `id` of a row.
    Label,
    /// A job that the batch has: `count` is its variation, `number` its credits, `ordinal` what it was accepted with.
    Known,
    /// The row of such a job that has no `id`: it lies at byte `number`, and may still cost `ordinal`.
    CachedRow,
    /// The `id` and variation of such a job: its row lies at byte `number`, and may still cost `ordinal`.
    KnownLabel,
    /// The same of a row that has no `id`: what its job is called.
    DerivedLabel,
    /// The same of one in whose place another version is wanted.
    OlderLabel,
    /// The `id` of a row with a variation beyond the first, in `count`.
    Variation,
    /// The name of the files of a row: `place` is a hash of the name as a disk may see it, `fingerprint` one of the name
    /// as it is.
    Name,
    /// The same of a job that the batch has.
    KnownName,
    /// The `id` of a row that is left out.
    LeftOutLabel,
    /// The `id` of a row of which nothing else could be read.
    UnreadLabel,
    /// A row without an `id` that is left out: `count` is how many jobs it wants.
    LeftOutRow,
}

impl Tag {
    pub(super) const ALL: [Tag; 14] = [
        Tag::Row,
        Tag::InvalidRow,
        Tag::Label,
        Tag::Known,
        Tag::CachedRow,
        Tag::KnownLabel,
        Tag::DerivedLabel,
        Tag::OlderLabel,
        Tag::Variation,
        Tag::Name,
        Tag::KnownName,
        Tag::LeftOutLabel,
        Tag::UnreadLabel,
        Tag::LeftOutRow,
    ];
}

/// Above every standing: an earlier manifest of the plan counts it.
pub(super) const COUNTED: u8 = 0x80;

/// In the place of a standing: the batch does not have the job.
pub(super) const MISSING: u8 = 0x7f;

/// As the standing of a row.
pub(super) const NOT_VALID: u8 = 1;

/// In the order of their bytes.
pub(super) const STANDINGS: [JobStanding; 9] = [
    JobStanding::Waiting,
    JobStanding::Running,
    JobStanding::InDoubt,
    JobStanding::Failed,
    JobStanding::Canceled,
    JobStanding::Expired,
    JobStanding::FailedForGood,
    JobStanding::Done,
    JobStanding::PerhapsSent,
];

pub(super) fn pack(standing: JobStanding, is_counted: bool) -> u8 {
    let index = STANDINGS.iter().position(|one| *one == standing).unwrap_or_default();
    // There are few.
    u8::try_from(index).unwrap_or_default() | if is_counted { COUNTED } else { 0 }
}

/// Nothing of one that is missing.
pub(super) fn unpack(byte: u8) -> Option<(JobStanding, bool)> {
    let standing = STANDINGS.get(usize::from(byte & !COUNTED)).copied()?;
    Some((standing, byte & COUNTED != 0))
}

/// What a partition file holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionEntry {
    pub(super) tag: Tag,
    /// Of a job that the batch has; of a row `NOT_VALID`, or 0.
    pub(super) standing: u8,
    /// Decides the partition: the fingerprint, or a hash of the label.
    pub(super) place: [u8; 16],
    pub(super) fingerprint: Fingerprint,
    pub(super) ordinal: u32,
    pub(super) count: u32,
    /// A line of the manifest, or as the tag says.
    pub(super) number: u64,
    /// The number of a job that the batch has.
    pub(super) seq: u32,
}

impl PartitionEntry {
    pub(super) const BYTES: usize = 54;

    pub(super) fn to_bytes(self) -> [u8; PartitionEntry::BYTES] {
        let mut bytes = [0; PartitionEntry::BYTES];
        let tag = Tag::ALL.iter().position(|tag| *tag == self.tag).unwrap_or_default();
        bytes[..16].copy_from_slice(&self.place);
        bytes[16..32].copy_from_slice(&self.fingerprint.0);
        bytes[32..36].copy_from_slice(&self.ordinal.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.count.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.number.to_be_bytes());
        bytes[48] = u8::try_from(tag).unwrap_or_default();
        bytes[49] = self.standing;
        bytes[50..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; PartitionEntry::BYTES]) -> PartitionEntry {
        let (mut place, mut fingerprint) = ([0; 16], [0; 16]);
        let (mut ordinal, mut count, mut number, mut seq) = ([0; 4], [0; 4], [0; 8], [0; 4]);
        place.copy_from_slice(&bytes[..16]);
        fingerprint.copy_from_slice(&bytes[16..32]);
        ordinal.copy_from_slice(&bytes[32..36]);
        count.copy_from_slice(&bytes[36..40]);
        number.copy_from_slice(&bytes[40..48]);
        seq.copy_from_slice(&bytes[50..]);
        PartitionEntry {
            tag: Tag::ALL.get(usize::from(bytes[48])).copied().unwrap_or(Tag::Row),
            standing: bytes[49],
            place,
            fingerprint: Fingerprint(fingerprint),
            ordinal: u32::from_be_bytes(ordinal),
            count: u32::from_be_bytes(count),
            number: u64::from_be_bytes(number),
            seq: u32::from_be_bytes(seq),
        }
    }
}

impl PartitionEntry {
    /// The `id` of a row of the manifest, of which only that counts.
    pub(super) fn of_label(tag: Tag, label: &str, line: u64) -> PartitionEntry {
        let (place, fingerprint) = (label_place(label), Fingerprint([0; 16]));
        PartitionEntry { tag, standing: 0, place, fingerprint, ordinal: 0, count: 0, number: line, seq: 0 }
    }

    /// Of a row that the batch has.
    pub(super) fn absent_job(&self) -> AbsentJob {
        let standing = unpack(self.standing).map_or(JobStanding::Waiting, |(standing, _)| standing);
        let unspent = Credits(u64::from(self.ordinal));
        AbsentJob { seq: Seq(self.seq), at: self.number, standing, unspent, row_is_not_valid: false }
    }
}

pub(super) fn name_entry(label: &str, tag: Tag, ordinal: u32) -> PartitionEntry {
    let stem = name_stem(label);
    let folded = folded(stem);
    let place = label_place(&folded);
    let fingerprint = Fingerprint(if folded == stem { place } else { label_place(stem) });
    PartitionEntry { tag, standing: 0, place, fingerprint, ordinal, count: 0, number: 0, seq: 0 }
}

pub(super) fn label_place(label: &str) -> [u8; 16] {
    use sha2::{Digest, Sha256};
    let mut place = [0; 16];
    place.copy_from_slice(&Sha256::digest(label.as_bytes())[..16]);
    place
}

/// Reads one entry; false at the end.
pub(super) fn read_entry(file: &mut impl Read, bytes: &mut [u8; PartitionEntry::BYTES]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
