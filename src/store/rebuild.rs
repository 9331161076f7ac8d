//! A database built anew from what is readable: the spool, what the damaged database still tells, an
//! export, and the sidecars of finished outputs.
//!
//! Why this pays for nothing twice: a job that had begun comes back under the key that it had, or an
//! earlier one of its own, with what was set aside for it, and marked as one that may have been sent: it is not
//! dropped as unsent, and gets no other key before its task's own record said that it failed or was canceled. The service answers a key that it knows with that key's task; a task that
//! failed leads on to the next attempt, as it did the first time. A key that was never used would buy,
//! so every batch that is not finished comes back paused, and nothing creating is sent until its owner
//! resumes it. A job whose endpoint honours no key is never queued by guessing: unless a trustworthy
//! database says that it had not begun, it comes back as one whose request was on its way, which the
//! engine leaves to a person.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Add;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, BatchNo, JobKey, Seq};
use crate::domain::job::{Books, Job, JobSpec, Landed, Order};
use crate::domain::ledger::{Movement, Totals};
use crate::domain::queue_class::{Census, Grain, QueueClass};
use crate::domain::recovery::{self, Remains};
use crate::domain::request::Kind;
use crate::domain::time::{Timestamp, UtcDay};
use crate::store::batch_backup::{self, BatchBackup};
use crate::store::dump::{self, DumpError};
use crate::store::finished;
use crate::store::lock::Lock;
use crate::store::open::{REBUILD, copy_database};
use crate::store::open_check::{self, CheckResult};
use crate::store::snapshot::{Salvaged, Snapshot};
use crate::store::spool::{Appender, Lines, Spool};
use crate::store::{
    BatchRecord, CACHE_BYTES, Ended, JobRecord, KindCounts, Pause, Segment, StoreError, batch_dir,
    batch_dirs, clean_shutdown, commits_beside, database, disk_reserve, marker, quarantine, verify,
};

/// Looks for the outputs of a job of a batch, whose layout may be its own.
pub type FindLanded<'a> = dyn Fn(&BatchName, Option<&str>, &JobSpec) -> Option<Landed> + 'a;

/// What came of it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Rebuilt {
    /// Batches.
    pub batches: usize,
    /// Of these, paused.
    pub paused: usize,
    /// Accepted jobs.
    pub jobs: u64,
    /// Jobs that have ended.
    pub ended: u64,
    /// Of these, known from their sidecars alone.
    pub from_sidecars: u64,
    /// Jobs that had begun, or may have, and go on.
    pub open: u64,
    /// Where the damaged database lies now.
    pub aside: Option<PathBuf>,
    /// What could not be read, and what was done instead.
    pub notes: Vec<String>,
}

/// Where a rebuild takes what it knows from.
struct Sources<'a> {
    dir: &'a Path,
    salvage: Snapshot,
    /// The damaged database is the latest one, whole and in agreement with the spool.
    trusted: bool,
    export: Snapshot,
    /// The spool of the export.
    export_dir: PathBuf,
    landed: &'a FindLanded<'a>,
    now: Timestamp,
}

/// Sets the database of the state in `dir` aside and builds a new one.
///
/// # Errors
/// [`DumpError`] when accepted rows cannot be read and the export does not have them, when the export
/// is damaged, or when the disk refuses; the state is then as it was.
pub fn rebuild(
    dir: &Path,
    export: Option<&Path>,
    landed: &FindLanded<'_>,
    now: Timestamp,
) -> Result<Rebuilt, DumpError> {
    if marker::service(dir)?.is_none() {
        return Err(StoreError::Missing { dir: dir.to_owned() }.into());
    }
    let _lock = Lock::take(dir)?;
    disk_reserve::take(dir)?;
    let work = tempfile::Builder::new().prefix(REBUILD).tempdir_in(dir).map_err(StoreError::io(dir))?;
    let mut rebuilt = Rebuilt::default();
    let Salvaged { records: salvage, unreadable } = salvage(dir, work.path(), &mut rebuilt.notes)?;
    let trusted = unreadable.is_empty()
        && salvage.commits > 0
        && salvage.commits >= commits_beside(dir)?
        && agrees(dir, &salvage)?;
    rebuilt.notes.extend(unreadable);
    let export_dir = work.path().join("export");
    let export = match export {
        Some(path) => dump::read_into_records(fs::File::open(path)?, &export_dir)?,
        None => Snapshot::default(),
    };
    let sources = Sources { dir, salvage, trusted, export, export_dir, landed, now };
    let mut records = Snapshot { commits: sources.last_commit()? + 1, ..Snapshot::default() };
    for (no, _) in batch_dirs(dir)? {
        sources.batch(no, &mut records, &mut rebuilt)?;
    }
    let finished = records.retire(dir)?;
    finished.into_iter().for_each(|line| records.add_finished(line));
    sources.add_moved(&mut records);
    records.account = sources.salvage.account.clone();
    if let Some(lost) = sources.lost(&records) {
        return Err(damaged(dir, "the spool", &format!("nothing is left of batch {lost}")).into());
    }
    let finished = records.finished.values().map(|line| line.totals);
    let live = records.batches.iter().map(|batch| batch.totals);
    records.total = live.chain(finished).fold(Totals::default(), Add::add);
    verify::quick(dir, &records)?;
    marker::raise(dir)?;
    install(dir, work.path(), &records, &mut rebuilt)?;
    Ok(rebuilt)
}

fn damaged(dir: &Path, what: &str, detail: &str) -> StoreError {
    StoreError::Damaged { dir: dir.to_owned(), what: what.to_owned(), detail: detail.to_owned() }
}

/// Whether the records and the spool agree in everything.
fn agrees(dir: &Path, records: &Snapshot) -> Result<bool, StoreError> {
    Ok(verify::full(dir, records, &mut |_| {})?.faults == 0)
}

/// Reads what a copy of the damaged database still tells: reading writes to it.
fn salvage(dir: &Path, work: &Path, notes: &mut Vec<String>) -> Result<Salvaged, StoreError> {
    for with_snapshots in [true, false] {
        let copy = work.join(if with_snapshots { "db" } else { "db-log" });
        if !copy_database(&dir.join("db"), &copy, with_snapshots)? {
            break;
        }
        match open_check::check_in_child(&copy) {
            CheckResult::Opens(salvage) => return Ok(*salvage),
            CheckResult::Damaged(detail) => {
                notes.push(format!("nothing can be read from the damaged database: {detail}"));
            }
            CheckResult::No => {
                let opened =
                    sled::Config::new().path(&copy).cache_capacity(CACHE_BYTES).flush_every_ms(None).open();
                match opened.map_err(|source| database(dir, source)) {
                    Ok(db) => return Ok(Salvaged::of(&db)),
                    Err(StoreError::Damaged { detail, .. }) => notes.push(detail),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(Salvaged::default())
}

/// Puts the new database in the place of the old one.
fn install(dir: &Path, work: &Path, records: &Snapshot, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
    let fresh = work.join("fresh");
    records.write_database(dir, &fresh)?;
    for batch in &records.batches {
        batch_backup::write(&batch_dir(dir, batch.no), &BatchBackup::of(batch), records.commits)?;
    }
    for line in records.finished.values() {
        // One whose folder was moved away keeps the backup that is in it.
        if let Ok(kept) = line.read(dir) {
            batch_backup::write(&batch_dir(dir, line.no), &BatchBackup::of(&kept.record), records.commits)?;
        }
    }
    let commits = dir.join("commits");
    clean_shutdown::take_mark(dir);
    rebuilt.aside = quarantine::set(dir, &dir.join("db"), "db")?.map(|moved| moved.to().to_owned());
    fs::rename(&fresh, dir.join("db")).map_err(StoreError::io(&fresh))?;
    fs::write(&commits, records.commits.to_be_bytes()).map_err(StoreError::io(&commits))?;
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::io(dir))
}

impl Sources<'_> {
    /// The highest number of a commit that anything shows.
    fn last_commit(&self) -> Result<u64, StoreError> {
        let backups = batch_backup::all(self.dir).into_iter().map(|written| written.commit);
        let known = [self.salvage.commits, self.export.commits, commits_beside(self.dir)?];
        Ok(backups.chain(known).max().unwrap_or_default())
    }

    /// Adds finished batches whose folders somebody moved away: their names and numbers stay taken.
    fn add_moved(&self, records: &mut Snapshot) {
        let known = self.export.finished.values().chain(self.salvage.finished.values());
        for line in known {
            if records.batch(line.no).is_none() && !batch_dir(self.dir, line.no).exists() {
                records.add_finished(line.clone());
            }
        }
    }

    /// A batch that something knows of, and that has no folder.
    fn lost(&self, records: &Snapshot) -> Option<BatchName> {
        let live = records.batches.iter().map(|batch| batch.no);
        let found: BTreeSet<BatchNo> = live.chain(records.finished.keys().copied()).collect();
        let known = self.salvage.batches.iter().chain(&self.export.batches);
        known
            .filter(|batch| batch.rows > 0)
            .find(|batch| !found.contains(&batch.no))
            .map(|batch| batch.name.clone())
    }

    /// What is known of a batch itself, the most recent source first.
    fn known(&self, no: BatchNo) -> Option<BatchRecord> {
        let of = |records: &Snapshot| records.batches.iter().find(|batch| batch.no == no).cloned();
        let finished = self.salvage.finished.get(&no).and_then(|line| Some(line.read(self.dir).ok()?.record));
        let salvaged = of(&self.salvage).or(finished);
        if self.trusted && salvaged.is_some() {
            return salvaged;
        }
        let folder = batch_dir(self.dir, no);
        let backup = batch_backup::read(&folder).map(|written| (written.commit, written.backup.batch()));
        let mut beside: Vec<(u64, BatchRecord)> =
            [finished::last_record(&folder), backup].into_iter().flatten().collect();
        beside.sort_by_key(|(commit, _)| std::cmp::Reverse(*commit));
        let beside = beside.into_iter().map(|(_, batch)| batch);
        let known: Vec<BatchRecord> = salvaged.into_iter().chain(beside).chain(of(&self.export)).collect();
        let most = known.iter().map(|batch| batch.spool_bytes).max()?;
        // The one that knows the most rows; among equals the first.
        known.into_iter().find(|batch| batch.spool_bytes == most)
    }

    fn batch(&self, no: BatchNo, records: &mut Snapshot, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let spool = Spool::new(batch_dir(self.dir, no));
        let rows_bytes = fs::metadata(spool.rows_path()).map_or(0, |meta| meta.len());
        let Some(mut batch) = self.known(no) else {
            if rows_bytes > 0 {
                let note = format!(
                    "the rows in {} belong to no known batch; they are left there",
                    spool.dir().display()
                );
                rebuilt.notes.push(note);
            }
            return Ok(());
        };
        self.mend_rows(&batch, rebuilt)?;
        let mut sheet = BatchRebuild::read_rows(self, &batch)?;
        sheet.read_outcomes(self, rebuilt)?;
        let outcomes = sheet.decide(self, rebuilt)?;
        batch.segments = sheet.segments;
        batch.skipped = sheet.batch.skipped;
        batch.ended = sheet.ended;
        batch.kinds = sheet.kinds;
        batch.totals = sheet.totals;
        batch.rejections = 0;
        batch.paused = None;
        if !self.trusted {
            batch.rebuilt_rows = batch.rows;
        }
        rebuilt.batches += 1;
        rebuilt.jobs += u64::from(batch.rows);
        rebuilt.ended += u64::from(batch.ended.all());
        rebuilt.open += sheet.open.len() as u64;
        if !batch.is_done() {
            batch.paused = Some(Pause::Rebuilt);
            rebuilt.paused += 1;
        }
        let bytes = write_outcomes(self.dir, &spool, no, &outcomes)?;
        if bytes > 0 {
            records.outcomes_bytes.insert(no, bytes);
        }
        for (day, totals) in sheet.days {
            let stored = records.days.entry(day).or_default();
            *stored = *stored + totals;
        }
        records.open.extend(sheet.open);
        records.batches.push(batch);
        Ok(())
    }

    /// Accepted rows that cannot be read are taken from the export, of which the spool is the
    /// continuation.
    fn mend_rows(&self, batch: &BatchRecord, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let path = Spool::new(batch_dir(self.dir, batch.no)).rows_path();
        let Err(error) = read_all(&path, batch.spool_bytes) else { return Ok(()) };
        let StoreError::Damaged { .. } = error else { return Err(error) };
        let theirs = Spool::new(batch_dir(&self.export_dir, batch.no)).rows_path();
        let Ok(mut whole) = fs::read(&theirs) else { return Err(error) };
        if let Ok(ours) = fs::read(&path) {
            whole.extend(ours.get(whole.len()..).unwrap_or_default());
        }
        let draft = path.with_extension("mended");
        fs::write(&draft, &whole).map_err(StoreError::io(&draft))?;
        if read_all(&draft, batch.spool_bytes).is_err() {
            fs::remove_file(&draft).map_err(StoreError::io(&draft))?;
            return Err(error);
        }
        quarantine::set(self.dir, &path, &format!("rows-{:06}", batch.no.0))?;
        fs::rename(&draft, &path).map_err(StoreError::io(&draft))?;
        rebuilt.notes.push(format!("rows of batch {} were taken from the export", batch.name));
        Ok(())
    }
}

fn read_all(path: &Path, bytes: u64) -> Result<(), StoreError> {
    let mut lines = Lines::open(path, 0, bytes)?;
    while lines.next_line::<JobSpec>()?.is_some() {}
    Ok(())
}

/// Writes the outcomes that count, if they are not those that lie there, and returns their length.
fn write_outcomes(dir: &Path, spool: &Spool, no: BatchNo, outcomes: &[JobRecord]) -> Result<u64, StoreError> {
    let (path, draft) = (spool.outcomes_path(), spool.dir().join("outcomes.mended"));
    let _ = fs::remove_file(&draft);
    let mut file = Appender::open(&draft, 0)?;
    for outcome in outcomes {
        file.push(outcome)?;
    }
    let bytes = file.sync()?;
    let is_same = match (fs::read(&path), fs::read(&draft)) {
        (Ok(before), Ok(after)) => before == after,
        (Err(_), Ok(after)) => after.is_empty(),
        _ => false,
    };
    if is_same {
        fs::remove_file(&draft).map_err(StoreError::io(&draft))?;
        return Ok(bytes);
    }
    if path.exists() {
        // The old ones keep their place until the new ones take it.
        let kept = quarantine::place(dir, &format!("outcomes-{:06}", no.0))?;
        fs::hard_link(&path, &kept)
            .or_else(|_| fs::copy(&path, &kept).map(drop))
            .map_err(StoreError::io(&kept))?;
    }
    fs::rename(&draft, &path).map_err(StoreError::io(&path))?;
    Ok(bytes)
}

/// Neighbouring rows that are alike: what intake made a segment of, or a part of one.
#[derive(Default)]
struct SegmentBuilder {
    /// By priority alone.
    mixed: Vec<Segment>,
    /// By class, with the names of the class at each grain; nothing once there are too many.
    alike: Vec<(Segment, [QueueClass; Grain::ALL.len()])>,
    are_too_many: bool,
    census: Census,
}

/// Most runs that are told apart. Versions that did not sort rows by class left as many as there are rows.
const RUNS_MAX: usize = 512;

impl SegmentBuilder {
    fn add(&mut self, order: &Order, at: u64, end: u64) {
        let priority = order.priority;
        match self.mixed.last_mut() {
            Some(last) if last.priority == priority => last.end = end,
            _ => self.mixed.push(Segment::mixed(priority, at, end)),
        }
        if self.are_too_many {
            return;
        }
        self.census.count(order);
        let classes = Grain::ALL.map(|grain| grain.class_of(order));
        match self.alike.last_mut() {
            Some((last, of_last)) if last.priority == priority && *of_last == classes => last.end = end,
            _ => self.alike.push((Segment::mixed(priority, at, end), classes)),
        }
        self.are_too_many = self.alike.len() > RUNS_MAX;
    }

    fn segments(self) -> Vec<Segment> {
        if self.are_too_many {
            return self.mixed;
        }
        let grain = self.census.grain();
        let place = Grain::ALL.iter().position(|other| *other == grain).unwrap_or_default();
        let named = |(segment, classes): (Segment, [QueueClass; Grain::ALL.len()])| Segment {
            class: classes[place],
            ..segment
        };
        self.alike.into_iter().map(named).collect()
    }
}

/// A batch being put together.
struct BatchRebuild {
    batch: BatchRecord,
    /// Byte of each job's row, by its place.
    rows: Vec<u64>,
    segments: Vec<Segment>,
    outcomes: BTreeMap<u32, JobRecord>,
    open: Vec<JobRecord>,
    ended: Ended,
    kinds: BTreeMap<Kind, KindCounts>,
    totals: Totals,
    days: BTreeMap<UtcDay, Totals>,
}

impl BatchRebuild {
    /// Finds every row, and the segments that they make.
    fn read_rows(from: &Sources<'_>, batch: &BatchRecord) -> Result<BatchRebuild, StoreError> {
        let mut rows = vec![0; batch.rows as usize];
        let mut runs = SegmentBuilder::default();
        let path = Spool::new(batch_dir(from.dir, batch.no)).rows_path();
        let mut lines = Lines::open(&path, 0, batch.spool_bytes)?;
        while let Some((at, spec)) = lines.next_line::<JobSpec>()? {
            if let Some(row) = rows.get_mut(spec.seq.0 as usize) {
                *row = at;
            }
            runs.add(&spec.order, at, lines.at());
        }
        let segments = runs.segments();
        Ok(BatchRebuild {
            batch: batch.clone(),
            rows,
            segments,
            outcomes: BTreeMap::new(),
            open: Vec::new(),
            ended: Ended::default(),
            kinds: BTreeMap::new(),
            totals: Totals::default(),
            days: BTreeMap::new(),
        })
    }

    /// Reads every outcome that can be read, the export's first: the last one of a job counts.
    fn read_outcomes(&mut self, from: &Sources<'_>, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        for dir in [&from.export_dir, from.dir] {
            let path = Spool::new(batch_dir(dir, self.batch.no)).outcomes_path();
            let Ok(meta) = fs::metadata(&path) else { continue };
            let mut lines = Lines::open(&path, 0, meta.len())?;
            loop {
                match lines.next_line::<JobRecord>() {
                    Ok(Some((_, record))) => self.outcome(record),
                    Ok(None) => break,
                    Err(StoreError::Damaged { what, detail, .. }) => {
                        rebuilt.notes.push(format!("left out {what}: {detail}"));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn outcome(&mut self, record: JobRecord) {
        let place = self.rows.get(record.key.seq.0 as usize).copied();
        let is_ours = record.key.batch == self.batch.no && place == Some(record.row_at);
        let before = self.outcomes.get(&record.key.seq.0).map(|record| record.job.attempt());
        if is_ours && record.job.is_over() && before.is_none_or(|attempt| attempt <= record.job.attempt()) {
            self.outcomes.insert(record.key.seq.0, record);
        }
    }

    /// Decides where every job stands; returns the outcomes that count.
    fn decide(&mut self, from: &Sources<'_>, rebuilt: &mut Rebuilt) -> Result<Vec<JobRecord>, StoreError> {
        let path = Spool::new(batch_dir(from.dir, self.batch.no)).rows_path();
        let mut lines = Lines::open(&path, 0, self.batch.spool_bytes)?;
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let mut ended = Vec::new();
        // Rows that nothing is known of: had they begun, a later one of their segment has.
        let mut silent: Vec<JobRecord> = Vec::new();
        // Jobs that were taken out of turn say nothing of the rows before them. One of which nothing is left has its
        // turn again.
        let out_of_turn = std::mem::take(&mut self.batch.skipped);
        let mut ahead: Vec<Seq> = Vec::new();
        let mut segment = 0;
        while let Some((at, spec)) = lines.next_line::<JobSpec>()? {
            if self.segments.get(segment).is_some_and(|segment| at >= segment.end) {
                segment += 1;
                silent.clear();
                self.batch.skipped.extend(ahead.drain(..));
            }
            let record = JobRecord {
                key: JobKey { batch: self.batch.no, seq: spec.seq },
                id: spec.id,
                row_at: at,
                job: if from.trusted { Job::queued() } else { Job::queued_perhaps_sent() },
            };
            self.kinds.entry(spec.order.kind).or_default().rows += 1;
            let outcome = outcomes.remove(&spec.seq.0);
            let Some(found) = self.stands(from, &spec, &record, outcome, rebuilt) else {
                silent.push(record);
                continue;
            };
            if out_of_turn.contains(&spec.seq) {
                ahead.push(spec.seq);
            } else {
                if let Some(segment) = self.segments.get_mut(segment) {
                    segment.cursor = lines.at();
                }
                ahead.clear();
                self.open.append(&mut silent);
            }
            self.book(&found.job);
            if found.job.is_over() {
                self.ended.count(found.job.state());
                self.kinds.entry(spec.order.kind).or_default().ended.count(found.job.state());
                ended.push(found);
            } else {
                self.open.push(found);
            }
        }
        self.batch.skipped.extend(ahead);
        self.open.sort_by_key(|open| open.key);
        Ok(ended)
    }

    /// Where a job stands, if anything tells.
    fn stands(
        &self,
        from: &Sources<'_>,
        spec: &JobSpec,
        row: &JobRecord,
        outcome: Option<JobRecord>,
        rebuilt: &mut Rebuilt,
    ) -> Option<JobRecord> {
        let fits = |open: &&JobRecord| open.id == row.id && open.row_at == row.row_at;
        let open_in =
            |records: &Snapshot| records.open_job(row.key).filter(fits).map(|open| open.job.clone());
        let remains = Remains {
            outcome: outcome.map(|outcome| outcome.job),
            open: open_in(&from.salvage),
            exported: open_in(&from.export),
        };
        let landed = || (from.landed)(&self.batch.name, self.batch.policy.layout.as_deref(), spec);
        let found = recovery::recovered(spec, remains, landed, from.trusted, from.now)?;
        rebuilt.from_sidecars += u64::from(found.is_from_sidecar);
        Some(JobRecord { job: found.job, ..row.clone() })
    }

    fn book(&mut self, job: &Job) {
        for (day, Books { held, charged, waived }) in job.books_by_day() {
            let own = Totals { held, spent: charged, waived, refunded: Credits::ZERO };
            self.totals = self.totals + own;
            if let Some(day) = day {
                let total = self.days.entry(day).or_default();
                *total = *total + own;
            }
        }
        let mut day = job.day();
        for line in job.history() {
            match line.movement {
                Some(Movement::Hold(_)) => day = Some(line.at.utc_day()),
                Some(Movement::Refund { spent, .. }) => {
                    self.totals.refunded = self.totals.refunded + spent;
                    if let Some(day) = day {
                        let total = self.days.entry(day).or_default();
                        total.refunded = total.refunded + spent;
                    }
                }
                _ => {}
            }
        }
    }
}
