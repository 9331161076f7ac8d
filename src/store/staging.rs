//! A manifest on its way in: which of its rows are new, without holding the rows in memory.
//!
//! Rows are appended to a draft file as they are read. Their fingerprints go into 256 partition
//! files, and one partition after the other is judged, so memory holds a 256th of the fingerprints
//! and, for each row, the 12 bytes of its verdict; for each job that the batch has already, a byte that says
//! where it stands; and 48 bytes for each variation of a row that changed.

mod row;
mod versions;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::{Fingerprint, Seq};
use crate::domain::job::JobSpec;
use crate::domain::job_label::{folded, name_stem, row_id};
use crate::domain::queue_class::Census;
use crate::domain::row_verdict::JobStanding;
use crate::store::StoreError;
use crate::store::row_partitions::RowPartitions;
use crate::store::spool::Lines;
pub use crate::store::staging::row::{AllowanceDraw, RowRequest, StagedOrder, StagedRow};
use crate::store::staging::row::{RowReader, RowWriter};
pub use crate::store::staging::versions::VariationChange;
use crate::store::staging::versions::{ChangedRow, KnownVersions, variation_place};

/// How drafts are called in the spool folder; leftovers of a killed process are swept by it.
const PREFIX: &str = "draft-";

const PARTITIONS: usize = 256;
/// Write buffer of a partition, in bytes.
const PARTITION_BUFFER_BYTES: usize = 4096;

/// Removes the drafts of processes that were killed while they took a manifest in: nothing of them was
/// acknowledged.
pub(super) fn sweep(spool: &Path) -> Result<(), StoreError> {
    let entries = match fs::read_dir(spool) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::io(spool)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(StoreError::io(spool))?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_dir_all(entry.path()).map_err(StoreError::io(&entry.path()))?;
        }
    }
    Ok(())
}

/// What is to become of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It asks for the variations from `first` on; those up to `have` exist already.
    Wanted {
        /// Its first variation.
        first: u32,
        /// The last variation that the batch has already; 0 for none.
        have: u32,
    },
    /// An earlier row of the manifest has the same `id`.
    RepeatedId {
        /// The line of that row.
        first_line: u64,
    },
    /// It could not be read far enough to tell what it wants.
    Unread,
}

/// An `id` that two rows have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatedId {
    /// Line of the later row.
    pub line: u64,
    /// Line of the first row.
    pub first_line: u64,
}

/// A job that the batch has already, as it is told to a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExistingJob<'a> {
    /// What its row wants.
    pub fingerprint: Fingerprint,
    /// Which variation of the row.
    pub variation: u32,
    /// Its number in the batch.
    pub seq: Seq,
    /// Another version of its row is wanted.
    pub is_superseded: bool,
    /// Where it stands.
    pub standing: JobStanding,
    /// What is set aside or charged for one that is running or in doubt; of others the price at which it was accepted.
    pub credits: Credits,
    /// An earlier manifest of the same plan has it, too: what it costs is counted there.
    pub is_counted: bool,
    /// What it is called, and the byte where its row begins in the file of the last [`Staging::note_rows_of`]. Nothing
    /// where that is not to be compared.
    pub row: Option<(&'a str, u64)>,
}

/// Where a job that the batch has already stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownJob {
    /// Where it stands.
    pub standing: JobStanding,
    /// What an earlier manifest of the same plan wants, too.
    pub is_counted: bool,
    /// What is set aside or charged for one that is running or in doubt. Of a row that is not valid, the price at which
    /// its job was accepted.
    pub credits: Option<Credits>,
}

/// Where an accepted row lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowLocation {
    /// Which file, in the order in which they were told of.
    file: u32,
    /// Its first byte.
    at: u64,
}

/// A row with all that was found out about it.
#[derive(Debug)]
pub struct RowWithVerdict {
    /// The row.
    pub row: StagedRow,
    /// What is to become of it.
    pub verdict: Verdict,
    /// The jobs of it that the batch has already, from its first variation on.
    pub known: Vec<KnownJob>,
    /// The row of the same `id` that the batch has, and that asks for something else.
    pub replaces: Option<Box<JobSpec>>,
    /// The variations of it that take the place of another version.
    pub changes: Vec<VariationChange>,
}

/// Rows being collected.
#[derive(Debug)]
pub struct Staging {
    dir: TempDir,
    /// Files of accepted rows.
    accepted: Vec<PathBuf>,
    rows: RowWriter,
    row_count: u32,
    partitions: Vec<Option<BufWriter<File>>>,
    census: Census,
}

impl Staging {
    /// Begins a draft apart from any state: for a plan, of which nothing is kept.
    pub fn apart() -> Result<Staging, StoreError> {
        Staging::begin(&std::env::temp_dir())
    }

    /// Begins a draft in the spool folder.
    pub(super) fn begin(spool: &Path) -> Result<Staging, StoreError> {
        std::fs::create_dir_all(spool).map_err(StoreError::io(spool))?;
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(spool).map_err(StoreError::io(spool))?;
        let rows = RowWriter::create(&dir.path().join("rows"))?;
        let partitions = (0..PARTITIONS).map(|_| None).collect();
        let accepted = Vec::new();
        Ok(Staging { dir, accepted, rows, row_count: 0, partitions, census: Census::default() })
    }

    /// Names the file that holds the rows of the jobs that are told of next.
    pub fn note_rows_of(&mut self, path: &Path) {
        self.accepted.push(path.to_owned());
    }

    /// Tells of a job that the batch has already. All of them are told of before the first row is added.
    pub fn note_existing(&mut self, job: &ExistingJob<'_>) -> Result<(), StoreError> {
        let ExistingJob { fingerprint, variation, credits, .. } = *job;
        let standing = pack(job.standing, job.is_counted);
        let known = PartitionEntry {
            tag: Tag::Known,
            standing,
            place: fingerprint.0,
            fingerprint,
            ordinal: 0,
            count: variation,
            number: credits.0,
            seq: job.seq.0,
        };
        self.partition(&known)?;
        let file = u32::try_from(self.accepted.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let Some((label, at)) = job.row else { return Ok(()) };
        self.partition(&name_entry(label, Tag::KnownName, 0))?;
        let Some(id) = row_id(label, variation) else { return Ok(()) };
        let tag = if job.is_superseded { Tag::OlderLabel } else { Tag::KnownLabel };
        let place = variation_place(id, variation);
        self.partition(&PartitionEntry { tag, place, ordinal: file, number: at, ..known })
    }

    /// Adds a row.
    pub fn push(&mut self, row: &StagedRow) -> Result<(), StoreError> {
        self.rows.push(row)?;
        if let RowRequest::Order(order) = &row.wanted {
            self.census.add(order.priority, order.classes);
        }
        let entry = PartitionEntry {
            tag: if matches!(row.wanted, RowRequest::Order(_)) { Tag::Row } else { Tag::InvalidRow },
            standing: 0,
            place: row.fingerprint.0,
            fingerprint: row.fingerprint,
            ordinal: self.row_count,
            count: row.count,
            number: row.line,
            seq: 0,
        };
        self.partition(&entry)?;
        if let Some(label) = &row.label {
            self.partition(&PartitionEntry { tag: Tag::Label, place: label_place(label), ..entry })?;
            self.partition(&name_entry(label, Tag::Name, self.row_count))?;
            // Further variations matter where the batch has some already.
            let more = if self.accepted.is_empty() { 1..1 } else { 2..row.count.saturating_add(1) };
            for variation in more {
                let place = variation_place(label, variation);
                self.partition(&PartitionEntry { tag: Tag::Variation, place, count: variation, ..entry })?;
            }
        }
        self.row_count += 1;
        Ok(())
    }

    /// Adds a row that could not be read far enough to tell what it wants, in its place.
    pub fn push_unread(&mut self, line: u64, problems: Vec<Diagnostic>) -> Result<(), StoreError> {
        let wanted = RowRequest::Invalid(problems);
        let fingerprint = Fingerprint([0; 16]);
        self.rows.push(&StagedRow {
            fingerprint,
            label: None,
            count: 1,
            line,
            draws: None,
            apart: false,
            wanted,
        })?;
        self.row_count += 1;
        Ok(())
    }

    fn partition(&mut self, entry: &PartitionEntry) -> Result<(), StoreError> {
        let index = usize::from(entry.place[0]);
        let path = partition_path(self.dir.path(), index);
        let slot = &mut self.partitions[index];
        let file = match slot {
            Some(file) => file,
            None => {
                let file = File::create(&path).map_err(StoreError::io(&path))?;
                slot.insert(BufWriter::with_capacity(PARTITION_BUFFER_BYTES, file))
            }
        };
        file.write_all(&entry.to_bytes()).map_err(StoreError::io(&path))
    }

    /// Tells of a row that is left out of a part of the manifest: its `id` still names one row of the whole.
    pub fn leave_out(&mut self, label: &str, line: u64) -> Result<(), StoreError> {
        self.partition(&PartitionEntry {
            tag: Tag::LeftOutLabel,
            standing: 0,
            place: label_place(label),
            fingerprint: Fingerprint([0; 16]),
            ordinal: 0,
            count: 0,
            number: line,
            seq: 0,
        })
    }

    /// Compares all rows with each other and with what the batch has.
    pub fn classify(mut self) -> Result<StagedManifest, StoreError> {
        let rows_bytes = self.rows.finish()?;
        let mut findings = VerdictTable {
            verdicts: vec![PackedVerdict::default(); self.row_count as usize],
            ..VerdictTable::default()
        };
        for index in 0..PARTITIONS {
            if let Some(mut file) = self.partitions[index].take() {
                let path = partition_path(self.dir.path(), index);
                file.flush().map_err(StoreError::io(&path))?;
                drop(file);
                classify_partition(&path, &mut findings).map_err(StoreError::io(&path))?;
            }
        }
        findings.repeated.sort_by_key(|repeat: &RepeatedId| repeat.line);
        findings.changed.sort_unstable_by_key(|changed| (changed.ordinal, changed.change.variation));
        let (dir, accepted, census) = (self.dir, self.accepted, self.census);
        Ok(StagedManifest { dir, accepted, rows_bytes, findings, census })
    }
}

/// What is to become of a row, in 12 bytes. All zero for one that could not be read.
#[derive(Debug, Default, Clone, Copy)]
struct PackedVerdict {
    /// Its first variation.
    first: u32,
    /// The last variation that the batch has; `REPEATED` beside a `first` of 0.
    have: u32,
    /// Where in `standings` those of its jobs begin that the batch has.
    at: u32,
}

/// In `have`: an earlier row has the same `id`.
const REPEATED: u32 = u32::MAX;

/// What judging the partitions found.
#[derive(Debug, Default)]
struct VerdictTable {
    /// By row.
    verdicts: Vec<PackedVerdict>,
    /// Where jobs stand that the batch has, row by row.
    standings: Vec<u8>,
    /// Credits of some of them, by their index.
    credits: HashMap<u32, Credits>,
    /// Rows whose `id` an earlier row has, in order of lines.
    repeated: Vec<RepeatedId>,
    /// Variations of rows whose `id` the batch has with another request, in order of rows.
    changed: Vec<ChangedRow>,
    /// Rows, by their place among all, whose `id` differs from another's only by case or by Unicode normal form.
    apart: HashSet<u32>,
}

/// Rows with their verdicts.
#[derive(Debug)]
pub struct StagedManifest {
    dir: TempDir,
    accepted: Vec<PathBuf>,
    rows_bytes: u64,
    findings: VerdictTable,
    /// The classes of all rows that could be sent.
    pub census: Census,
}

impl StagedManifest {
    /// Its folder, which goes with it.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where its rows can be sorted into parts, for as long as it is kept.
    pub fn parts(&self) -> RowPartitions {
        RowPartitions::begin(self.dir.path())
    }

    /// The rows, in manifest order.
    pub fn rows(&self) -> Result<StagedRows<'_>, StoreError> {
        let rows = RowReader::open(&self.dir.path().join("rows"), self.rows_bytes)?;
        Ok(StagedRows { judged: self, rows, ordinal: 0, accepted: BTreeMap::new() })
    }

    /// Rows whose `id` an earlier row has, in order of lines.
    pub fn repeated(&self) -> &[RepeatedId] {
        &self.findings.repeated
    }

    /// Whether it asks for a version of a row again in whose place the batch wants another.
    pub fn goes_back(&self) -> bool {
        self.findings.changed.iter().any(|changed| changed.change.back_to.is_some())
    }

    /// The changes of a row, by its place among all.
    fn changes_of(&self, ordinal: u32) -> &[ChangedRow] {
        let changed = &self.findings.changed;
        let start = changed.partition_point(|changed| changed.ordinal < ordinal);
        let end = start + changed[start..].partition_point(|changed| changed.ordinal == ordinal);
        &changed[start..end]
    }
}

/// The rows of a judged draft, one after the other.
#[derive(Debug)]
pub struct StagedRows<'a> {
    judged: &'a StagedManifest,
    rows: RowReader,
    ordinal: u32,
    /// Files of accepted rows that are open, by their number.
    accepted: BTreeMap<u32, Lines>,
}

impl StagedRows<'_> {
    /// The next row; nothing at the end.
    pub fn next_row(&mut self) -> Result<Option<RowWithVerdict>, StoreError> {
        let Some(mut row) = self.rows.next_row()? else { return Ok(None) };
        let ordinal = self.ordinal;
        row.apart = self.judged.findings.apart.contains(&ordinal);
        self.ordinal += 1;
        let packed = self.judged.findings.verdicts.get(ordinal as usize).copied().unwrap_or_default();
        let (verdict, known) = match packed {
            PackedVerdict { first: 0, have: REPEATED, .. } => {
                (Verdict::RepeatedId { first_line: self.first_line(row.line) }, Vec::new())
            }
            PackedVerdict { first: 0, .. } => (Verdict::Unread, Vec::new()),
            PackedVerdict { first, have, at } => {
                let known = have.saturating_sub(first - 1).min(row.count);
                let known = (at..at + known).map(|index| self.known(index)).collect();
                (Verdict::Wanted { first, have }, known)
            }
        };
        let changed = self.judged.changes_of(ordinal);
        let is_new = matches!(verdict, Verdict::Wanted { have: 0, .. });
        let before = changed.first().filter(|changed| is_new && changed.change.variation == 1);
        let replaces = before.and_then(|changed| self.row_at(changed.before));
        let changes = changed.iter().map(|changed| changed.change).collect();
        Ok(Some(RowWithVerdict { row, verdict, known, replaces, changes }))
    }

    fn known(&self, index: u32) -> KnownJob {
        let VerdictTable { standings, credits, .. } = &self.judged.findings;
        let (standing, is_counted) = unpack(standings.get(index as usize).copied().unwrap_or_default());
        KnownJob { standing, is_counted, credits: credits.get(&index).copied() }
    }

    /// An accepted row. One that cannot be read any more is left out: it decides nothing.
    fn row_at(&mut self, place: RowLocation) -> Option<Box<JobSpec>> {
        if let std::collections::btree_map::Entry::Vacant(free) = self.accepted.entry(place.file) {
            let path = self.judged.accepted.get(place.file as usize)?;
            free.insert(Lines::open(path, 0, u64::MAX).ok()?);
        }
        self.accepted.get_mut(&place.file)?.line_at(place.at).ok().map(Box::new)
    }

    fn first_line(&self, line: u64) -> u64 {
        let repeated = self.judged.repeated();
        let found = repeated.binary_search_by_key(&line, |repeat| repeat.line);
        found.ok().and_then(|index| repeated.get(index)).map_or(line, |repeat| repeat.first_line)
    }
}

/// What a partition file's entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// A row that wants jobs.
    Row,
    /// A row that is not valid.
    InvalidRow,
    /// The `id` of a row.
    Label,
    /// A job that the batch has: `count` is its variation, `number` its credits.
    Known,
    /// The `id` and variation of such a job: its row lies in file `ordinal` at byte `number`.
    KnownLabel,
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
}

impl Tag {
    const ALL: [Tag; 10] = [
        Tag::Row,
        Tag::InvalidRow,
        Tag::Label,
        Tag::Known,
        Tag::KnownLabel,
        Tag::OlderLabel,
        Tag::Variation,
        Tag::Name,
        Tag::KnownName,
        Tag::LeftOutLabel,
    ];
}

/// Above every standing: an earlier manifest of the plan counts it.
const COUNTED: u8 = 0x80;

/// In the order of their bytes.
const STANDINGS: [JobStanding; 6] = [
    JobStanding::Waiting,
    JobStanding::Running,
    JobStanding::InDoubt,
    JobStanding::Failed,
    JobStanding::FailedForGood,
    JobStanding::Done,
];

fn pack(standing: JobStanding, is_counted: bool) -> u8 {
    let index = STANDINGS.iter().position(|one| *one == standing).unwrap_or_default();
    // There are six.
    u8::try_from(index).unwrap_or_default() | if is_counted { COUNTED } else { 0 }
}

fn unpack(byte: u8) -> (JobStanding, bool) {
    let standing = STANDINGS.get(usize::from(byte & !COUNTED)).copied().unwrap_or(JobStanding::Waiting);
    (standing, byte & COUNTED != 0)
}

/// What a partition file holds.
struct PartitionEntry {
    tag: Tag,
    /// Of a job that the batch has.
    standing: u8,
    /// Decides the partition: the fingerprint, or a hash of the label.
    place: [u8; 16],
    fingerprint: Fingerprint,
    ordinal: u32,
    count: u32,
    /// A line of the manifest, or as the tag says.
    number: u64,
    /// The number of a job that the batch has.
    seq: u32,
}

impl PartitionEntry {
    const BYTES: usize = 54;

    fn to_bytes(&self) -> [u8; PartitionEntry::BYTES] {
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

    fn from_bytes(bytes: &[u8; PartitionEntry::BYTES]) -> PartitionEntry {
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

fn name_entry(label: &str, tag: Tag, ordinal: u32) -> PartitionEntry {
    let stem = name_stem(label);
    let (place, exact) = (label_place(&folded(stem)), label_place(stem));
    let fingerprint = Fingerprint(exact);
    PartitionEntry { tag, standing: 0, place, fingerprint, ordinal, count: 0, number: 0, seq: 0 }
}

fn label_place(label: &str) -> [u8; 16] {
    use sha2::{Digest, Sha256};
    let mut place = [0; 16];
    place.copy_from_slice(&Sha256::digest(label.as_bytes())[..16]);
    place
}

fn partition_path(dir: &Path, index: usize) -> std::path::PathBuf {
    dir.join(format!("fingerprints.{index:02x}"))
}

/// Judges the entries of one partition. Entries of accepted jobs were written before the rows.
fn classify_partition(path: &Path, findings: &mut VerdictTable) -> io::Result<()> {
    #[derive(Default)]
    struct Seen {
        /// What the batch has, by variation.
        known: BTreeMap<u32, (u8, Credits)>,
        /// The last variation that the manifest asks for.
        asked: u32,
    }
    let mut seen: HashMap<Fingerprint, Seen> = HashMap::new();
    let mut labels: HashMap<[u8; 16], u64> = HashMap::new();
    let mut versions = KnownVersions::default();
    // The first of several has the plain name.
    let mut names: HashMap<[u8; 16], Fingerprint> = HashMap::new();
    let mut file = BufReader::new(File::open(path)?);
    let mut bytes = [0; PartitionEntry::BYTES];
    while read_entry(&mut file, &mut bytes)? {
        let entry = PartitionEntry::from_bytes(&bytes);
        match entry.tag {
            Tag::Known => {
                let row = seen.entry(entry.fingerprint).or_default();
                let known = row.known.entry(entry.count).or_insert((entry.standing, Credits(entry.number)));
                known.0 |= entry.standing & COUNTED;
            }
            Tag::Name | Tag::KnownName => {
                let first = *names.entry(entry.place).or_insert(entry.fingerprint);
                if first != entry.fingerprint && entry.tag == Tag::Name {
                    findings.apart.insert(entry.ordinal);
                }
            }
            Tag::KnownLabel => versions.add_wanted(&entry),
            Tag::OlderLabel => versions.add_older(&entry),
            Tag::LeftOutLabel => {
                labels.entry(entry.place).or_insert(entry.number);
            }
            Tag::Label => {
                // StoredBackup by `push` for this very draft, so the ordinal has a verdict.
                let Some(verdict) = findings.verdicts.get_mut(entry.ordinal as usize) else { continue };
                if let Some(&first_line) = labels.get(&entry.place) {
                    *verdict = PackedVerdict { have: REPEATED, ..PackedVerdict::default() };
                    findings.repeated.push(RepeatedId { line: entry.number, first_line });
                    continue;
                }
                labels.insert(entry.place, entry.number);
                findings.changed.extend(versions.change(&PartitionEntry { count: 1, ..entry }));
            }
            Tag::Variation => findings.changed.extend(versions.change(&entry)),
            Tag::Row | Tag::InvalidRow => {
                let VerdictTable { verdicts, standings, credits, .. } = &mut *findings;
                let Some(verdict) = verdicts.get_mut(entry.ordinal as usize) else { continue };
                if verdict.have == REPEATED {
                    continue;
                }
                let row = seen.entry(entry.fingerprint).or_default();
                let first = row.asked + 1;
                row.asked = row.asked.saturating_add(entry.count);
                let have = row.known.last_key_value().map_or(0, |(variation, _)| *variation);
                let at = u32::try_from(standings.len()).unwrap_or(u32::MAX);
                *verdict = PackedVerdict { first, have, at };
                for variation in first..=have.min(row.asked) {
                    let absent = (pack(JobStanding::Waiting, false), Credits::ZERO);
                    let (standing, price) = row.known.get(&variation).copied().unwrap_or(absent);
                    let is_held = matches!(unpack(standing).0, JobStanding::Running | JobStanding::InDoubt);
                    if is_held || entry.tag == Tag::InvalidRow {
                        credits.insert(u32::try_from(standings.len()).unwrap_or(u32::MAX), price);
                    }
                    standings.push(standing);
                }
            }
        }
    }
    Ok(())
}

/// Reads one entry; false at the end.
fn read_entry(file: &mut impl Read, bytes: &mut [u8; PartitionEntry::BYTES]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
