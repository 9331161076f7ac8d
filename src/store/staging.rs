//! Deduplication of a manifest on its way in: which of its rows are new, without holding the rows in memory.
//!
//! Rows are appended to a draft file as they are read. Their fingerprints go into 256 partitions, which are files unless they
//! are small, and one partition after the other is validated, so memory holds a 256th of the fingerprints and, for each row, the 12 bytes of its verdict; for each job that the batch has already, a byte that says
//! where it stands; and 48 bytes for each variation of a row that changed.

mod absent;
mod partition_entry;
mod row;
mod verdict_table;
mod versions;

use std::fs;
use std::io::{BufWriter, IntoInnerError, Write};
use std::ops::Add;
use std::path::{Path, PathBuf};

use tempfile::{SpooledTempFile, TempDir};

use crate::domain::absent_rows::{AbsentRow, AbsentRows};
use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::{Fingerprint, Seq};
use crate::domain::job::{JobSpec, Order};
use crate::domain::job_label::row_id;
use crate::domain::queue_class::Census;
use crate::domain::row_verdict::JobStanding;
use crate::store::StoreError;
use crate::store::row_partitions::RowPartitions;
use crate::store::spool::Lines;
use crate::store::staging::absent::{AbsentJob, AbsentJobs};
use crate::store::staging::partition_entry::{NOT_VALID, PartitionEntry, Tag, name_entry, pack, unpack};
pub use crate::store::staging::row::{AllowanceDraw, EncodedRow, RowRequest, StagedOrder, StagedRow};
use crate::store::staging::row::{EncodedLabel, EncodedOrder, RowReader, RowWriter};
pub use crate::store::staging::verdict_table::RepeatedId;
use crate::store::staging::verdict_table::{PackedVerdict, PartitionTables, REPEATED, VerdictTable};
pub use crate::store::staging::versions::VariationChange;
use crate::store::staging::versions::{ChangedRow, variation_place};
use crate::store::state_folders::SpoolEntries;

/// How drafts are called in the spool folder; leftovers of a killed process are swept by it.
const PREFIX: &str = "draft-";

/// Limits from here on are alike in what a draft keeps of them, in credits.
const LIMIT_MAX: u32 = (1 << 23) - 2;
const PARTITIONS: usize = 256;
/// Write buffer of a partition, in bytes. One that is no longer than this never becomes a file.
const PARTITION_BUFFER_BYTES: usize = 4096;

/// Removes the drafts of processes that were killed while they took a manifest in: nothing of them was
/// acknowledged.
pub(super) fn sweep(spool: &SpoolEntries) -> Result<(), StoreError> {
    let is_draft =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    spool
        .others
        .iter()
        .filter(is_draft)
        .try_for_each(|path| fs::remove_dir_all(path).map_err(StoreError::io(path)))
}

/// What is to become of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It asks for the variations from `first` on.
    Wanted {
        /// Its first variation.
        first: u32,
        /// The last of them that the batch has already; 0 for none. It may lack some before: rows that want the same were
        /// left out of the manifest when it came.
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
    /// What it may still cost.
    pub unspent: Credits,
    /// What it was accepted with.
    pub terms: AcceptedTerms,
    /// Its row in the file of [`Staging::note_rows_of`]. Nothing where that is not to be compared.
    pub row: Option<ExistingRow<'a>>,
}

/// The accepted row of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExistingRow<'a> {
    /// What the job is called.
    pub label: &'a str,
    /// Whether the row has an `id`.
    pub has_id: bool,
    /// The byte where it begins.
    pub at: u64,
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
    /// What it was accepted with.
    pub terms: AcceptedTerms,
}

/// What a row says beside its request, and what no later manifest changes of a job that was accepted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedTerms {
    /// The most that a job may cost, in credits; amounts above 8,388,606 are alike.
    pub max_credits: Option<Credits>,
    /// Whether its outputs wait for a decision.
    pub review: bool,
    /// Higher goes first.
    pub priority: i8,
}

impl AcceptedTerms {
    /// Those of an order.
    pub fn of(order: &Order) -> AcceptedTerms {
        AcceptedTerms { max_credits: order.max_credits, review: order.review, priority: order.priority }
    }

    /// In four bytes.
    fn pack(self) -> u32 {
        let limit = self
            .max_credits
            .map_or(0, |most| 1 + u32::try_from(most.0).map_or(LIMIT_MAX, |most| most.min(LIMIT_MAX)));
        limit << 9 | u32::from(self.priority.cast_unsigned()) << 1 | u32::from(self.review)
    }

    fn unpack(packed: u32) -> AcceptedTerms {
        let max_credits = (packed >> 9).checked_sub(1).map(|most| Credits(u64::from(most)));
        let [.., low] = (packed >> 1).to_be_bytes();
        AcceptedTerms { max_credits, review: packed & 1 == 1, priority: low.cast_signed() }
    }

    /// As they are once they were packed.
    pub fn rounded(self) -> AcceptedTerms {
        AcceptedTerms::unpack(self.pack())
    }
}

/// A row with all that was found out about it.
#[derive(Debug)]
pub struct RowWithVerdict {
    /// The row.
    pub row: StagedRow,
    /// What is to become of it.
    pub verdict: Verdict,
    /// The jobs of it, from its first variation to the last one that the batch has already; nothing in the place of one that
    /// it lacks.
    pub known: Vec<Option<KnownJob>>,
    /// The row of the same `id` that the batch has, and that asks for something else; and where its job stands. The
    /// batch may have this row, too, from an earlier manifest, or its first variations.
    pub replaces: Option<(Box<JobSpec>, JobStanding)>,
    /// The variations of it that take the place of another version.
    pub changes: Vec<VariationChange>,
}

impl RowWithVerdict {
    /// The variations of it that the batch does not have.
    pub fn new_variations(&self) -> impl Iterator<Item = u32> + use<'_> {
        let (first, count) = match self.verdict {
            Verdict::Wanted { first, .. } => (first, self.row.count),
            Verdict::RepeatedId { .. } | Verdict::Unread => (1, 0),
        };
        let is_known = |index: u32| matches!(self.known.get(index as usize), Some(Some(_)));
        (0..count).filter(move |index| !is_known(*index)).map(move |index| first.saturating_add(index))
    }
}

/// Rows being collected.
#[derive(Debug)]
pub struct Staging {
    dir: TempDir,
    /// The file of accepted rows.
    accepted: Option<PathBuf>,
    rows: RowWriter,
    row_count: u32,
    /// The line of the first row that could not be read, not even its `id`.
    unread_line: Option<u64>,
    /// The jobs of all its rows; nothing once a row was added that is not valid.
    asked: Option<AskedJobs>,
    partitions: Vec<Option<BufWriter<SpooledTempFile>>>,
    census: Census,
}

/// The jobs that rows ask for, and the credits that are to be set aside for them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct AskedJobs {
    /// How many.
    pub jobs: u64,
    /// For all of them; what a job without a known price may cost is not in it.
    pub credits: Credits,
}

impl AskedJobs {
    /// So many jobs at that price each.
    pub fn of(jobs: u32, price: Credits) -> AskedJobs {
        let jobs = u64::from(jobs);
        AskedJobs { jobs, credits: Credits(price.0.saturating_mul(jobs)) }
    }
}

impl Add for AskedJobs {
    type Output = AskedJobs;

    fn add(self, other: AskedJobs) -> AskedJobs {
        AskedJobs { jobs: self.jobs.saturating_add(other.jobs), credits: self.credits + other.credits }
    }
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
        let census = Census::default();
        Ok(Staging {
            dir,
            accepted: None,
            rows,
            row_count: 0,
            unread_line: None,
            asked: Some(AskedJobs::default()),
            partitions,
            census,
        })
    }

    /// Names the file that holds the rows of the jobs that are told of next. False where the batch has one already:
    /// those of a second one cannot be compared.
    pub fn note_rows_of(&mut self, path: &Path) -> bool {
        let is_first = self.accepted.is_none();
        self.accepted.get_or_insert_with(|| path.to_owned());
        is_first
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
            ordinal: job.terms.pack(),
            count: variation,
            number: credits.0,
            seq: job.seq.0,
        };
        self.partition(&known)?;
        let Some(ExistingRow { label, has_id, at }) = job.row else { return Ok(()) };
        self.partition(&name_entry(label, Tag::KnownName, 0))?;
        let unspent = u32::try_from(job.unspent.0).unwrap_or(u32::MAX);
        let row = PartitionEntry { ordinal: unspent, number: at, ..known };
        if !has_id && !job.is_superseded {
            self.partition(&PartitionEntry { tag: Tag::CachedRow, ..row })?;
        }
        let Some(id) = row_id(label, variation) else { return Ok(()) };
        let tag = match job.is_superseded {
            true => Tag::OlderLabel,
            false if has_id => Tag::KnownLabel,
            false => Tag::DerivedLabel,
        };
        self.partition(&PartitionEntry { tag, place: variation_place(id, variation), ..row })
    }

    /// Adds a row.
    pub fn push(&mut self, row: &EncodedRow) -> Result<(), StoreError> {
        self.rows.push(row)?;
        self.asked = match (self.asked, row.order) {
            (Some(asked), Some(EncodedOrder { hold, .. })) => Some(asked + AskedJobs::of(row.count, hold)),
            (_, None) | (None, _) => None,
        };
        if let Some(EncodedOrder { priority, classes, .. }) = row.order {
            self.census.add(priority, classes);
        }
        let is_valid = row.order.is_some();
        let entry = PartitionEntry {
            tag: if is_valid { Tag::Row } else { Tag::InvalidRow },
            standing: if is_valid { 0 } else { NOT_VALID },
            place: row.fingerprint.0,
            fingerprint: row.fingerprint,
            ordinal: self.row_count,
            count: row.count,
            number: row.line,
            seq: 0,
        };
        self.partition(&entry)?;
        if let Some(EncodedLabel { label, place, name }) = &row.label {
            self.partition(&PartitionEntry { tag: Tag::Label, place: *place, ..entry })?;
            self.partition(&PartitionEntry { ordinal: self.row_count, ..*name })?;
            // Further variations matter where the batch has some already.
            let more = if self.accepted.is_none() { 1..1 } else { 2..row.count.saturating_add(1) };
            for variation in more {
                let place = variation_place(label, variation);
                self.partition(&PartitionEntry { tag: Tag::Variation, place, count: variation, ..entry })?;
            }
        }
        self.row_count += 1;
        Ok(())
    }

    /// Adds a row that could not be read far enough to tell what it wants, in its place. Its `id` is told where that could
    /// be read.
    pub fn push_unread(
        &mut self,
        line: u64,
        id: Option<&str>,
        problems: Vec<Diagnostic>,
    ) -> Result<(), StoreError> {
        let wanted = RowRequest::Invalid(problems);
        let fingerprint = Fingerprint([0; 16]);
        self.rows.push(&EncodedRow::new(StagedRow {
            fingerprint,
            label: id.map(str::to_owned),
            count: 1,
            line,
            cell: None,
            draws: None,
            apart: false,
            wanted,
        })?)?;
        self.row_count += 1;
        self.asked = None;
        match id {
            Some(id) => self.partition(&PartitionEntry::of_label(Tag::UnreadLabel, id, line)),
            None => {
                self.unread_line = self.unread_line.or(Some(line));
                Ok(())
            }
        }
    }

    fn partition(&mut self, entry: &PartitionEntry) -> Result<(), StoreError> {
        let index = usize::from(entry.place[0]);
        let dir = self.dir.path();
        let new = || {
            let file = SpooledTempFile::new_in(PARTITION_BUFFER_BYTES, dir);
            BufWriter::with_capacity(PARTITION_BUFFER_BYTES, file)
        };
        let file = self.partitions[index].get_or_insert_with(new);
        file.write_all(&entry.to_bytes()).map_err(StoreError::io(dir))
    }

    /// Tells of a row that is left out of a part of the manifest: its `id` still names one row of the whole.
    pub fn leave_out(&mut self, label: &str, line: u64) -> Result<(), StoreError> {
        self.partition(&PartitionEntry::of_label(Tag::LeftOutLabel, label, line))
    }

    /// Tells of a row without an `id` that is left out of a part of the manifest: rows that want the same count from it on,
    /// as in the whole.
    pub fn leave_out_occurrence(&mut self, fingerprint: Fingerprint, count: u32) -> Result<(), StoreError> {
        self.partition(&PartitionEntry {
            tag: Tag::LeftOutRow,
            standing: 0,
            place: fingerprint.0,
            fingerprint,
            ordinal: 0,
            count,
            number: 0,
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
        let mut tables = PartitionTables::default();
        for index in 0..PARTITIONS {
            if let Some(file) = self.partitions[index].take() {
                let file = file.into_inner().map_err(IntoInnerError::into_error);
                let added = file.and_then(|file| findings.add_partition(file, &mut tables));
                added.map_err(StoreError::io(self.dir.path()))?;
            }
        }
        findings.repeated.sort_by_key(|repeat: &RepeatedId| repeat.line);
        findings.changed.sort_unstable_by_key(|changed| (changed.ordinal, changed.change.variation));
        let (dir, accepted, asked, census) = (self.dir, self.accepted, self.asked, self.census);
        let untold_absent = self.unread_line.map(|line| {
            // It may be one of them.
            (line, std::mem::take(&mut findings.absent).unspent)
        });
        Ok(StagedManifest { dir, accepted, rows_bytes, findings, untold_absent, asked, census })
    }
}

/// Rows with their verdicts.
#[derive(Debug)]
pub struct StagedManifest {
    dir: TempDir,
    accepted: Option<PathBuf>,
    rows_bytes: u64,
    findings: VerdictTable,
    untold_absent: Option<(u64, Credits)>,
    /// As in [`Staging`].
    asked: Option<AskedJobs>,
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
        Ok(StagedRows { staged: self, rows, ordinal: 0, accepted: None })
    }

    /// All that its rows ask for, where every row is valid and none asks for a job that the batch has, for another version
    /// of one, or by the `id` of another row. Nothing where rows have to be looked at one by one.
    pub fn all_new(&self) -> Option<AskedJobs> {
        let VerdictTable {
            verdicts: _,
            standings,
            terms: _,
            credits: _,
            repeated,
            changed,
            apart: _,
            absent: _,
        } = &self.findings;
        self.asked.filter(|_| standings.is_empty() && repeated.is_empty() && changed.is_empty())
    }

    /// Rows whose `id` an earlier row has, in order of lines.
    pub fn repeated(&self) -> &[RepeatedId] {
        &self.findings.repeated
    }

    /// Whether it asks for a version of a row again in whose place the batch wants another, or drops variations of another
    /// version than the one that is wanted already.
    pub fn goes_back(&self) -> bool {
        self.findings.changed.iter().any(|changed| changed.change.back_to.is_some())
    }

    /// Where jobs that the manifest may not have cannot be told, since a row could not be read and may be one of theirs: its
    /// line, and what they may still cost at most. Nothing where that is nothing.
    pub fn untold_absent(&self) -> Option<(u64, Credits)> {
        self.untold_absent.filter(|(_, unspent)| !unspent.is_zero())
    }

    /// Jobs of the batch whose rows the manifest does not have, or has in a form that is not valid; nothing where it has
    /// them all. `command` tells what drops one that is not submitted yet.
    ///
    /// # Errors
    /// When the rows of the batch cannot be read.
    pub fn absent(&self, command: impl Fn(&str) -> String) -> Result<Option<AbsentRows>, StoreError> {
        let AbsentJobs { count, not_valid, unspent, first } = &self.findings.absent;
        let Some(path) = self.accepted.as_ref().filter(|_| *count > 0) else { return Ok(None) };
        let mut rows = Vec::with_capacity(first.len());
        let mut lines = Lines::open_scattered(path, 0, u64::MAX)?;
        for AbsentJob { at, standing, unspent, row_is_not_valid, .. } in first {
            let JobSpec { label, .. } = lines.line_at(*at)?;
            let command = (*standing == JobStanding::Waiting).then(|| command(&label));
            rows.push(AbsentRow {
                id: label,
                verdict: (*standing).into(),
                unspent_credits: *unspent,
                not_valid: *row_is_not_valid,
                command,
            });
        }
        Ok(Some(AbsentRows { jobs: *count, not_valid: *not_valid, unspent_credits: *unspent, rows }))
    }

    fn open_accepted(&self) -> Option<Lines> {
        Lines::open(self.accepted.as_ref()?, 0, u64::MAX).ok()
    }

    /// The changes of a row, by its place among all.
    fn changes_of(&self, ordinal: u32) -> &[ChangedRow] {
        let changed = &self.findings.changed;
        let start = changed.partition_point(|changed| changed.ordinal < ordinal);
        let end = start + changed[start..].partition_point(|changed| changed.ordinal == ordinal);
        &changed[start..end]
    }
}

/// The rows of a validated staging, one after the other.
#[derive(Debug)]
pub struct StagedRows<'a> {
    staged: &'a StagedManifest,
    rows: RowReader,
    ordinal: u32,
    /// The file of accepted rows, once it is open.
    accepted: Option<Lines>,
}

impl StagedRows<'_> {
    /// The next row; nothing at the end.
    pub fn next_row(&mut self) -> Result<Option<RowWithVerdict>, StoreError> {
        let Some(mut row) = self.rows.next_row()? else { return Ok(None) };
        let ordinal = self.ordinal;
        row.apart = self.staged.findings.apart.contains(&ordinal);
        self.ordinal += 1;
        let packed = self.staged.findings.verdicts.get(ordinal as usize).copied().unwrap_or_default();
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
        let changed = self.staged.changes_of(ordinal);
        let is_new = matches!(verdict, Verdict::Wanted { have: 0, .. });
        let takes_place = |changed: &&ChangedRow| {
            let VariationChange { variation, was_wanted, back_to, .. } = changed.change;
            match variation {
                1 => is_new || back_to.is_some(),
                // An earlier version had it, and the present one did not ask for it so far.
                _ => !was_wanted && back_to.is_none(),
            }
        };
        let before = changed.first().filter(takes_place);
        let replaces =
            before.and_then(|changed| Some((self.row_at(changed.change.before)?, changed.change.standing)));
        let changes = changed.iter().map(|changed| changed.change).collect();
        Ok(Some(RowWithVerdict { row, verdict, known, replaces, changes }))
    }

    fn known(&self, index: u32) -> Option<KnownJob> {
        let VerdictTable { standings, terms, credits, .. } = &self.staged.findings;
        let (standing, is_counted) = unpack(*standings.get(index as usize)?)?;
        let terms = AcceptedTerms::unpack(terms.get(index as usize).copied().unwrap_or_default());
        Some(KnownJob { standing, is_counted, credits: credits.get(&index).copied(), terms })
    }

    /// An accepted row. One that cannot be read any more is left out: it decides nothing.
    fn row_at(&mut self, at: u64) -> Option<Box<JobSpec>> {
        if self.accepted.is_none() {
            self.accepted = self.staged.open_accepted();
        }
        self.accepted.as_mut()?.line_at(at).ok().map(Box::new)
    }

    fn first_line(&self, line: u64) -> u64 {
        let repeated = self.staged.repeated();
        let found = repeated.binary_search_by_key(&line, |repeat| repeat.line);
        found.ok().and_then(|index| repeated.get(index)).map_or(line, |repeat| repeat.first_line)
    }
}
