//! What the database and the spool say of each other.
//!
//! Neither is believed alone: sled was seen to open damaged files with older or missing records, and
//! without a word. `quick` runs whenever a state is opened and reads no rows; [`Store::verify`] reads
//! everything, in bounded memory: 17 bytes a job. Finished batches are compared whenever a database is opened that is not
//! byte for byte as it was left.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::ops::Add;
use std::path::Path;

use serde::Serialize;

use crate::domain::budget_group::GroupTotals;
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchNo, JobId, JobKey, Seq};
use crate::domain::job::{Books, Job, JobSpec};
use crate::domain::ledger::Totals;
use crate::domain::utc_day::UtcDay;
use crate::store::finished::FinishedRecord;
use crate::store::snapshot::Snapshot;
use crate::store::spool::{Lines, Spool};
use crate::store::state_folders::{BatchDirs, batch_dir, batch_dirs};
use crate::store::{BatchRecord, Ended, JobRecord, OutcomeOutline, Store, StoreError, batch_backup};

/// Faults of one sort that are told of one batch; the rest are counted.
const REPORTED_MAX: u64 = 20;
/// Uncommitted outcomes whose jobs are looked up together: more than a commit has, and few enough for memory.
const LOOKED_UP_MAX: usize = 1_000;
/// A job without a row or an outcome.
const NO_OFFSET: u64 = u64::MAX;

/// Something that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inconsistency {
    /// Where.
    pub place: String,
    /// What was found there.
    pub found: String,
}

impl fmt::Display for Inconsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.found)
    }
}

/// What was looked at.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Batches.
    pub batches: u64,
    /// Of these, done.
    pub finished: u64,
    /// Accepted jobs.
    pub rows: u64,
    /// Lines of outcomes.
    pub outcomes: u64,
    /// Jobs that have begun and not ended.
    pub open: u64,
    /// Days with totals.
    pub days: u64,
    /// Number of the last commit.
    pub commit: u64,
    /// Everything that does not fit.
    pub faults: u64,
}

impl Store {
    /// Reads the whole state and tells every fault.
    ///
    /// # Errors
    /// When something cannot be read at all.
    pub fn verify(&self, mut tell: impl FnMut(Inconsistency)) -> Result<VerifyReport, StoreError> {
        let records = self.records()?;
        let mut report = full(self.dir(), &records, &mut tell)?;
        if records.stored_total().finished != records.sums {
            let found =
                "the stored sums of all finished batches differ from the sums of their records".to_owned();
            tell(Inconsistency { place: "the totals".to_owned(), found });
            report.faults += 1;
        }
        Ok(report)
    }
}

/// Refuses a state whose parts contradict each other, as far as lengths and counts tell.
/// `dirs` are the folders of its batches.
pub(super) fn quick(dir: &Path, records: &Snapshot, dirs: &BatchDirs) -> Result<(), StoreError> {
    let mut first = None;
    compare_all(dir, records, dirs, &mut |fault| {
        first.get_or_insert(fault);
    })?;
    match first {
        None => Ok(()),
        Some(Inconsistency { place, found }) => {
            Err(StoreError::Damaged { dir: dir.to_owned(), what: place, detail: found })
        }
    }
}

/// Reads everything.
pub(super) fn full(
    dir: &Path,
    records: &Snapshot,
    tell: &mut dyn FnMut(Inconsistency),
) -> Result<VerifyReport, StoreError> {
    let mut faults = 0;
    let mut count = |fault| {
        faults += 1;
        tell(fault);
    };
    compare_all(dir, records, &batch_dirs(dir)?, &mut count)?;
    let mut checked = VerifyReport {
        batches: records.batches.len() as u64,
        open: records.open.len() as u64,
        days: records.days.len() as u64,
        commit: records.commits,
        ..VerifyReport::default()
    };
    let mut sums = Sums { days: BTreeMap::new(), groups: records.groups.as_ref().map(GroupTotals::emptied) };
    let mut is_complete = true;
    for batch in &records.batches {
        let spool = Spool::new(batch_dir(dir, batch.no));
        is_complete &= BatchCheck::new(spool, records, batch, &mut count).all(&mut sums, &mut checked)?;
    }
    for line in records.finished.values() {
        checked.batches += 1;
        checked.finished += 1;
        let place = format!("batch {}", line.name);
        let FinishedRecord { outcomes_bytes, record, .. } = match line.read(dir) {
            // Somebody moved it away, which they may. What it had a part in cannot be added up then.
            Err(StoreError::BatchMoved { .. }) => {
                is_complete = false;
                continue;
            }
            Err(StoreError::Damaged { what, detail, .. }) => {
                is_complete = false;
                count(Inconsistency { place, found: format!("{what}: {detail}") });
                continue;
            }
            other => other?,
        };
        compare(&place, record.totals, line.totals, &mut count);
        if record.rows != line.rows || !record.is_done() {
            let found = format!("{} of its {} jobs have ended", record.ended.all(), record.rows);
            count(Inconsistency { place, found });
        }
        let folder = batch_dir(dir, line.no);
        let lengths = BTreeMap::from([(record.no, outcomes_bytes)]);
        let records = Snapshot { outcomes_bytes: lengths, ..Snapshot::default() };
        let check = BatchCheck::new(Spool::new(folder), &records, &record, &mut count);
        is_complete &= check.all(&mut sums, &mut checked)?;
    }
    let Sums { days, groups } = sums;
    let all_days = days.keys().chain(records.days.keys()).collect::<BTreeSet<_>>();
    for day in all_days.into_iter().filter(|_| is_complete) {
        let (found, stored) = (days.get(day).copied(), records.days.get(day).copied());
        compare("the totals of a day", found.unwrap_or_default(), stored.unwrap_or_default(), &mut count);
    }
    if let (Some(found), Some(stored), true) = (&groups, &records.groups, is_complete) {
        for (name, found, stored) in found.compared(stored) {
            compare(&format!("the totals of {name}"), found, stored, &mut count);
        }
    }
    checked.faults = faults;
    Ok(checked)
}

/// Lengths, counts and sums of the records: nothing of the spool is read but what lies beyond its
/// committed length.
fn compare_all(
    dir: &Path,
    records: &Snapshot,
    dirs: &BatchDirs,
    tell: &mut dyn FnMut(Inconsistency),
) -> Result<(), StoreError> {
    let known: BTreeSet<BatchNo> = records.batches.iter().map(|batch| batch.no).collect();
    for open in &records.open {
        if !known.contains(&open.key.batch) {
            let found = format!("no batch {} is known, but a job of it is open", open.key.batch.0);
            tell(Inconsistency { place: "the database".to_owned(), found });
        }
    }
    for batch in &records.batches {
        let place = format!("batch {}", batch.name);
        let mut say = |found: String| tell(Inconsistency { place: place.clone(), found });
        lengths(dir, records, batch, &mut say)?;
        segments(batch, &mut say);
        counts(records, batch, &mut say);
        tail(dir, records, batch, &mut say)?;
    }
    backups(dir, dirs, records, &known, tell);
    identities(records, &known, tell);
    // Otherwise what is not finished is all that was read.
    if records.highest_finished.is_none()
        && let Some(found) = records.finished_keys.contradiction(&records.finished)
    {
        tell(Inconsistency { place: "the database".to_owned(), found });
    }
    let live = records.batches.iter().map(|batch| batch.totals);
    let sum = live.fold(records.finished_totals(), Add::add);
    if sum != records.total {
        let found = format!("the batches come to {sum:?}, the state to {:?}", records.total);
        tell(Inconsistency { place: "the totals".to_owned(), found });
    }
    Ok(())
}

/// A name and a number mean one batch: what is wanted twice under one name would be bought twice.
fn identities(records: &Snapshot, known: &BTreeSet<BatchNo>, tell: &mut dyn FnMut(Inconsistency)) {
    let live = records.batches.iter().map(|batch| &batch.name);
    let mut names = HashSet::new();
    for name in live.chain(records.finished.values().map(|line| &line.name)) {
        if !names.insert(name) {
            tell(Inconsistency {
                place: format!("batch {name}"),
                found: "there are two of that name".to_owned(),
            });
        }
    }
    for line in records.finished.values().filter(|line| known.contains(&line.no)) {
        let found = format!("another one that is not finished has its number, {}", line.no.0);
        tell(Inconsistency { place: format!("batch {}", line.name), found });
    }
}

fn lengths(
    dir: &Path,
    records: &Snapshot,
    batch: &BatchRecord,
    say: &mut dyn FnMut(String),
) -> Result<(), StoreError> {
    let spool = Spool::new(batch_dir(dir, batch.no));
    let wanted = [
        (spool.rows_path(), batch.spool_bytes),
        (spool.outcomes_path(), records.outcomes_bytes(batch.no)),
        (spool.versions_path(), batch.versions_bytes),
    ];
    for (path, committed) in wanted {
        let found = match std::fs::metadata(&path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(StoreError::io(&path)(error)),
        };
        if found < committed {
            say(format!("{} has {found} bytes, but {committed} were acknowledged", path.display()));
        }
    }
    Ok(())
}

fn segments(batch: &BatchRecord, say: &mut dyn FnMut(String)) {
    let mut start = 0;
    for segment in &batch.segments {
        if segment.cursor < start || segment.cursor > segment.end {
            let range = format!("byte {start} to byte {}", segment.end);
            say(format!("the place reached in the rows is byte {}, outside {range}", segment.cursor));
        }
        start = segment.end;
    }
    if start != batch.spool_bytes {
        say(format!("its rows are known up to byte {start}, but {} were acknowledged", batch.spool_bytes));
    }
}

fn counts(records: &Snapshot, batch: &BatchRecord, say: &mut dyn FnMut(String)) {
    let open: Vec<&JobRecord> = records.open_of(batch.no).collect();
    let begun = u64::from(batch.ended.all()) + open.len() as u64;
    let rows = u64::from(batch.rows);
    let is_through = batch.segments.iter().all(|segment| segment.cursor == segment.end);
    if begun > rows || is_through && begun != rows {
        let (ended, open) = (batch.ended.all(), open.len());
        say(format!("{rows} jobs were accepted, {ended} have ended and {open} are open"));
    }
    let held: Credits = open.iter().map(|open| open.job.all_books().held).sum();
    if held > batch.totals.held {
        say(format!("its open jobs hold {held}, the batch {}", batch.totals.held));
    }
    if batch.ended.all() > 0 && records.outcomes_bytes(batch.no) == 0 {
        say(format!("{} jobs have ended, but no outcome is known", batch.ended.all()));
    }
}

/// What lies beyond the committed outcomes was never acknowledged. It is of one commit, and every request is committed before
/// it is sent: where the database does not know of one, it is an older one. Without a request jobs end that are not open: what a
/// person records or decides of one that has ended, and rows that are dropped, refused or resolved in the queue.
fn tail(
    dir: &Path,
    records: &Snapshot,
    batch: &BatchRecord,
    say: &mut dyn FnMut(String),
) -> Result<(), StoreError> {
    let path = Spool::new(batch_dir(dir, batch.no)).outcomes_path();
    let committed = records.outcomes_bytes(batch.no);
    let Ok(meta) = std::fs::metadata(&path) else { return Ok(()) };
    if meta.len() <= committed {
        return Ok(());
    }
    let mut lines = Lines::open(&path, committed, meta.len())?;
    // A line that is cut off, or was never on the device, ends what can be told.
    let lines = std::iter::from_fn(|| lines.next_line::<JobRecord>().ok()?).fuse();
    let mut unopened = lines.map(|(_, ended)| ended).filter(|ended| records.open_job(ended.key).is_none());
    loop {
        let ended: Vec<JobRecord> = unopened.by_ref().take(LOOKED_UP_MAX).collect();
        if ended.is_empty() {
            return Ok(());
        }
        let known = last_outcomes(&path, committed, &ended.iter().map(|ended| ended.key.seq).collect())?;
        if let Some(ended) = ended.iter().find(|ended| !follows(batch, known.get(&ended.key.seq), ended)) {
            let seq = ended.key.seq.0;
            say(format!("job {seq} has ended, and the database knows neither that nor that it began"));
            return Ok(());
        }
    }
}

/// Whether the commit that follows a database can end a job of it so: one that is not open there, and of which it has the
/// outcome `known`.
fn follows(batch: &BatchRecord, known: Option<&Job>, ended: &JobRecord) -> bool {
    // What may have been sent by a state that is gone counts as such until it is asked for. Without a key it cannot be, and is in
    // doubt as soon as its turn comes.
    let is_doubted = batch.may_have_been_sent(ended.key.seq)
        && ended.job.tasks().next().is_none()
        && known.is_none_or(|known| known.first_sent().is_none());
    is_doubted || ended.job.adds_no_request_to(known)
}

/// The last outcome of each of these jobs among those that were committed, which are read once.
fn last_outcomes(path: &Path, committed: u64, of: &BTreeSet<Seq>) -> Result<BTreeMap<Seq, Job>, StoreError> {
    let mut lines = Lines::open(path, 0, committed)?;
    let mut last = BTreeMap::new();
    while let Some((at, OutcomeOutline { seq })) = lines.next_line()? {
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + 1);
        if of.contains(&seq) {
            last.insert(seq, at);
        }
    }
    let mut lines = Lines::open_scattered(path, 0, committed)?;
    last.into_iter().map(|(seq, at)| Ok((seq, lines.line_at::<JobRecord>(at)?.job))).collect()
}

#[cfg(test)]
std::thread_local! {
    /// Committed outcomes that this thread looked at for others that were not.
    pub(super) static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A backup is written before the commit that it is for.
fn backups(
    dir: &Path,
    dirs: &BatchDirs,
    records: &Snapshot,
    known: &BTreeSet<BatchNo>,
    tell: &mut dyn FnMut(Inconsistency),
) {
    for written in batch_backup::unfinished(dirs, records) {
        let backup = &written.backup;
        let place = format!("batch {}", backup.name);
        if written.commit > records.commits + 1 {
            let (backup, db) = (written.commit, records.commits);
            let found =
                format!("its batch.json was written for commit {backup}, but the database is at commit {db}");
            tell(Inconsistency { place, found });
        } else if !known.contains(&backup.no) && has_outcomes(dir, backup.no) {
            tell(Inconsistency {
                place,
                found: "jobs of it have ended, and the database does not know it".to_owned(),
            });
        } else if written.commit <= records.commits {
            let bytes = records.batch(backup.no).map_or(0, |batch| batch.spool_bytes);
            if !known.contains(&backup.no) || bytes < backup.spool_bytes {
                let found =
                    format!("{} bytes of rows were accepted, the database knows {bytes}", backup.spool_bytes);
                tell(Inconsistency { place, found });
            }
        }
    }
}

fn has_outcomes(dir: &Path, no: BatchNo) -> bool {
    std::fs::metadata(Spool::new(batch_dir(dir, no)).outcomes_path()).is_ok_and(|meta| meta.len() > 0)
}

/// Tells when sums of jobs are not what is stored. What was refunded cannot be added up from them.
fn compare(place: &str, found: Totals, stored: Totals, tell: &mut dyn FnMut(Inconsistency)) {
    let pairs = [
        ("held", found.held, stored.held),
        ("charged", found.spent, stored.spent),
        ("waived", found.waived, stored.waived),
    ];
    for (what, found, stored) in pairs.into_iter().filter(|(_, found, stored)| found != stored) {
        let found = format!("{} {what} according to the jobs, {} as stored", found.0, stored.0);
        tell(Inconsistency { place: place.to_owned(), found });
    }
}

/// What is known of a job while its batch is read.
#[derive(Debug, Clone, Copy)]
struct JobOffsets {
    row: u64,
    outcome: u64,
    begun: bool,
}

/// What jobs come to, whichever their batch.
struct Sums {
    days: BTreeMap<UtcDay, Totals>,
    /// Of the groups that have budgets, where that is stored.
    groups: Option<GroupTotals>,
}

/// A batch being read.
struct BatchCheck<'a> {
    records: &'a Snapshot,
    batch: &'a BatchRecord,
    spool: Spool,
    places: Vec<JobOffsets>,
    planned: Credits,
    rows_read: u64,
    outcomes_read: u64,
    told: u64,
    tell: &'a mut dyn FnMut(Inconsistency),
}

impl<'a> BatchCheck<'a> {
    fn new(
        spool: Spool,
        records: &'a Snapshot,
        batch: &'a BatchRecord,
        tell: &'a mut dyn FnMut(Inconsistency),
    ) -> BatchCheck<'a> {
        let nothing = JobOffsets { row: NO_OFFSET, outcome: NO_OFFSET, begun: false };
        BatchCheck {
            records,
            batch,
            spool,
            places: vec![nothing; batch.rows as usize],
            planned: Credits::ZERO,
            rows_read: 0,
            outcomes_read: 0,
            told: 0,
            tell,
        }
    }

    /// Reads all of it, and adds to what is known of days, groups and the whole state. Returns whether its files are there.
    fn all(mut self, sums: &mut Sums, checked: &mut VerifyReport) -> Result<bool, StoreError> {
        let (rows_path, outcomes_path) = (self.spool.rows_path(), self.spool.outcomes_path());
        let rows = self.open(&rows_path, self.batch.spool_bytes)?;
        let outcomes = self.open(&outcomes_path, self.records.outcomes_bytes(self.batch.no))?;
        let is_complete = rows.is_some() && outcomes.is_some();
        // Each is compared with what was read before it.
        if let Some(rows) = rows {
            self.rows(rows)?;
            if let Some(outcomes) = outcomes {
                self.outcomes(outcomes)?;
                self.jobs();
                self.sums(sums)?;
            }
        }
        checked.rows += self.rows_read;
        checked.outcomes += self.outcomes_read;
        Ok(is_complete)
    }

    fn say(&mut self, found: String) {
        self.told += 1;
        if self.told <= REPORTED_MAX {
            (self.tell)(Inconsistency { place: format!("batch {}", self.batch.name), found });
        }
    }

    /// A file of its spool; nothing where it is missing, which is told.
    fn open(&mut self, path: &Path, bytes: u64) -> Result<Option<Lines>, StoreError> {
        match Lines::open(path, 0, bytes) {
            Ok(lines) => Ok(Some(lines)),
            Err(StoreError::Damaged { what, detail, .. }) => {
                self.say(format!("{what}: {detail}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads every row: whole, each place once, priorities and cursors where a row begins or ends.
    fn rows(&mut self, mut lines: Lines) -> Result<(), StoreError> {
        let mut borders: BTreeSet<u64> =
            self.batch.segments.iter().flat_map(|segment| [segment.cursor, segment.end]).collect();
        borders.remove(&0);
        loop {
            let read = lines.next_line::<JobSpec>();
            borders.remove(&lines.at());
            match read {
                Ok(Some((at, spec))) => self.row(at, &spec),
                Ok(None) => break,
                Err(StoreError::Damaged { what, detail, .. }) => self.say(format!("{what}: {detail}")),
                Err(error) => return Err(error),
            }
            self.rows_read += 1;
        }
        for border in borders {
            self.say(format!("byte {border} of its rows is not where a row ends"));
        }
        if self.planned != self.batch.planned {
            self.say(format!(
                "its rows are planned at {}, the batch at {}",
                self.planned, self.batch.planned
            ));
        }
        Ok(())
    }

    fn row(&mut self, at: u64, spec: &JobSpec) {
        self.planned = self.planned + spec.order.hold().unwrap_or_default();
        if spec.id != JobId::derive(spec.fingerprint, spec.variation) {
            self.say(format!("the row at byte {at} has an identity that is not its own"));
        }
        let begun = self.batch.has_begun(at, spec.seq);
        match self.places.get_mut(spec.seq.0 as usize) {
            Some(place) if place.row == NO_OFFSET => (place.row, place.begun) = (at, begun),
            Some(_) => self.say(format!("job {} has two rows", spec.seq.0)),
            None => {
                self.say(format!("job {} has a row, but only {} were accepted", spec.seq.0, self.batch.rows));
            }
        }
    }

    /// Reads every outcome: whole, final, of a job of this batch.
    fn outcomes(&mut self, mut lines: Lines) -> Result<(), StoreError> {
        let bytes = self.records.outcomes_bytes(self.batch.no);
        loop {
            match lines.next_line::<JobRecord>() {
                Ok(Some((at, record))) => self.outcome(at, &record),
                Ok(None) => break,
                Err(StoreError::Damaged { what, detail, .. }) => self.say(format!("{what}: {detail}")),
                Err(error) => return Err(error),
            }
            self.outcomes_read += 1;
        }
        if lines.at() != bytes {
            self.say(format!("its outcomes end within a line, at byte {bytes}"));
        }
        Ok(())
    }

    fn outcome(&mut self, at: u64, record: &JobRecord) {
        let seq = record.key.seq.0;
        if record.key.batch != self.batch.no || !record.job.is_over() {
            let (batch, state) = (record.key.batch.0, record.job.state().name());
            self.say(format!("the outcome at byte {at} is of job {seq} of batch {batch}, which is {state}"));
            return;
        }
        match self.places.get_mut(seq as usize) {
            Some(place) if place.row == record.row_at => place.outcome = at,
            _ => self.say(format!("the outcome at byte {at} is of job {seq}, whose row lies elsewhere")),
        }
    }

    /// Every job before the cursors, or taken out of turn, is open or has ended, and no other is.
    fn jobs(&mut self) {
        for seq in 0..self.batch.rows {
            let key = JobKey { batch: self.batch.no, seq: Seq(seq) };
            let JobOffsets { row, outcome, begun } = self.places[seq as usize];
            let open = self.records.open_job(key);
            let problem = match (row, begun, open, outcome) {
                (NO_OFFSET, ..) => "has no row",
                (_, true, None, NO_OFFSET) => "has begun, and is neither open nor ended",
                (_, false, Some(_), _) => "is open, but has not begun",
                (_, false, None, at) if at != NO_OFFSET => "has ended, but has not begun",
                (row, _, Some(open), _) if open.row_at != row => "is open, and its row lies elsewhere",
                (_, _, Some(open), _) if open.job.is_over() => "is open, but its state is final",
                _ => continue,
            };
            self.say(format!("job {seq} {problem}"));
        }
        let beyond =
            self.records.open_of(self.batch.no).filter(|open| open.key.seq.0 >= self.batch.rows).count();
        if beyond > 0 {
            self.say(format!("{beyond} open jobs have no row"));
        }
    }

    /// Adds up what the jobs hold and were charged.
    fn sums(&mut self, sums: &mut Sums) -> Result<(), StoreError> {
        let (mut sum, mut ended) = (Totals::default(), Ended::default());
        let (mut unreviewed, mut replaced) = (0, Credits::ZERO);
        let Sums { days, groups } = sums;
        let rows_path = self.spool.rows_path();
        let mut rows = Lines::open_scattered(&rows_path, 0, self.batch.spool_bytes)?;
        let mut replaced_rows = Lines::open_scattered(&rows_path, 0, self.batch.spool_bytes)?;
        let origin = self.batch.origin.as_ref();
        let mut add = |job: &Job, row_at: u64| {
            let all = job.all_books();
            let has_books = all.held + all.charged + all.waived > Credits::ZERO;
            // A row that cannot be read is told already.
            let groups = groups.as_mut().filter(|groups| has_books && !groups.is_empty());
            let mut of_group =
                groups.and_then(|groups| Some((groups, rows.line_at::<JobSpec>(row_at).ok()?)));
            for (day, Books { held, charged, waived }) in job.books_by_day() {
                let more = Totals { held, spent: charged, waived, refunded: Credits::ZERO };
                sum = sum + more;
                if let Some((groups, spec)) = &mut of_group {
                    groups.add(more, day, &spec.order.meta, origin);
                }
                if let Some(day) = day {
                    let total = days.entry(day).or_default();
                    *total = *total + more;
                }
            }
        };
        for open in self.records.open_of(self.batch.no) {
            add(&open.job, open.row_at);
        }
        let bytes = self.records.outcomes_bytes(self.batch.no);
        let mut lines = Lines::open(&self.spool.outcomes_path(), 0, bytes)?;
        loop {
            match lines.next_line::<JobRecord>() {
                Ok(Some((at, record))) => {
                    let counts = self.places.get(record.key.seq.0 as usize).is_some_and(|p| p.outcome == at);
                    if counts && self.records.open_job(record.key).is_none() {
                        add(&record.job, record.row_at);
                        ended.count(record.job.state(), false);
                        unreviewed += u32::from(record.job.awaits_review());
                        if self.batch.may_leave_unspent(record.job.state())
                            && let Ok(spec) = replaced_rows.line_at::<JobSpec>(record.row_at)
                        {
                            replaced = replaced + self.batch.unspent_of(&record.job, &spec.order);
                        }
                    }
                }
                Ok(None) => break,
                // Told already.
                Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let is_edited = self.batch.versions_bytes > 0;
        let told = if is_edited { self.batch.ended.without_versions() } else { self.batch.ended };
        if told != if is_edited { ended.without_versions() } else { ended } {
            self.say(format!("its outcomes come to {ended}; the batch to {}", self.batch.ended));
        }
        // Jobs that were replaced before that was noted are not counted.
        if self.batch.replaced > replaced {
            self.say(format!(
                "by its outcomes jobs planned at {replaced} were dropped free of charge, by the batch at {}",
                self.batch.replaced
            ));
        }
        // Those of versions that are not wanted are not counted.
        let told = self.batch.unreviewed;
        if if is_edited { told > unreviewed } else { told != unreviewed } {
            self.say(format!("by its outcomes {unreviewed} jobs wait for review, by the batch {told}"));
        }
        let name = format!("batch {}", self.batch.name);
        compare(&name, sum, self.batch.totals, self.tell);
        Ok(())
    }
}
