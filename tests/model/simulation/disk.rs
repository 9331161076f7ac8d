//! The disk: what was committed survives a crash, what was not is lost.
//!
//! A commit is all or nothing, as `tests/state/damage.rs` and the store's own tests show of the real one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callsheet::domain::budget_group::{GroupLimits, GroupTotals};
use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{BatchNo, JobKey, Seq};
use callsheet::domain::job::{Books, Job, JobSpec, PublishedOutputs};
use callsheet::domain::ledger::Totals;
use callsheet::domain::out_of_credits::AccountBlock;
use callsheet::domain::pilot::Pilot;
use callsheet::domain::queue_class::{Census, Classes, GroupHash, QueueClass};
use callsheet::domain::recovered_job_state::{self, Remains};
use callsheet::domain::row_versions::{RowVersions, VersionChange};
use callsheet::domain::time::{Now, Timestamp};
use callsheet::domain::utc_day::UtcDay;
use callsheet::engine::scheduler::{AppliedVersions, BegunJob, FoundJob, Scheduler, Settings, SpooledRow};
use callsheet::store::{BatchRecord, Change, Ended, JobRecord, Pause, Segment};

/// Everything durable.
#[derive(Debug, Default)]
pub struct Disk {
    pub batches: BTreeMap<BatchNo, BatchRecord>,
    pub open: BTreeMap<JobKey, JobRecord>,
    pub outcomes: BTreeMap<JobKey, JobRecord>,
    pub total: Totals,
    /// What groups with budgets come to; nothing where the totals went on without them.
    pub groups: Option<GroupTotals>,
    pub account: AccountBlock,
    pub days: BTreeMap<UtcDay, Totals>,
    /// Outputs with their sidecars: whatever becomes of the state, they stay.
    pub published: BTreeMap<JobKey, PublishedOutputs>,
    /// Rows of each batch; a row is one byte long.
    spool: BTreeMap<BatchNo, Vec<Arc<JobSpec>>>,
    /// The rows of pilots.
    pilot_rows: BTreeSet<JobKey>,
    /// Which versions of edited rows are wanted, of each batch; a change is one byte long.
    versions: BTreeMap<BatchNo, Vec<VersionChange>>,
}

impl Disk {
    pub fn commit(&mut self, changes: &[Change]) {
        if changes.iter().any(|change| matches!(change, Change::Total(_))) {
            self.groups = None;
        }
        for change in changes {
            match change {
                Change::Open(record) => drop(self.open.insert(record.key, record.clone())),
                Change::End(record) => {
                    self.open.remove(&record.key);
                    self.outcomes.insert(record.key, record.clone());
                }
                Change::Batch(batch) => drop(self.batches.insert(batch.no, (**batch).clone())),
                Change::Total(totals) => self.total = *totals,
                Change::Groups(groups) => self.groups = Some((**groups).clone()),
                Change::Day(day, totals) => drop(self.days.insert(*day, *totals)),
                Change::Account(block) => self.account = block.clone(),
            }
        }
    }

    /// A process that begins with what is here, as `engine::take_up` makes it.
    pub fn take_up(&self, settings: Settings, now: Now) -> Scheduler {
        let limits = settings.group_limits.clone();
        let mut scheduler = Scheduler::new(settings, self.total);
        let stored = self.groups.clone().and_then(|groups| groups.only(limits.keys()));
        let is_new = stored.is_none();
        scheduler.set_groups(stored.unwrap_or_else(|| self.counted(&limits)), is_new);
        scheduler.set_account_block(self.account.clone());
        for batch in self.batches.values().filter(|batch| !batch.is_done()) {
            scheduler.add_batch(batch.clone());
            scheduler.set_versions(batch.no, self.row_versions(batch));
        }
        for record in self.open.values() {
            for day in record.job.days() {
                self.set_day(&mut scheduler, day);
            }
            scheduler.resume_job(BegunJob::new(record.clone(), self.spec(record)), now);
        }
        scheduler
    }

    /// What the groups of these keys come to, by the jobs' own books.
    pub fn counted(&self, limits: &GroupLimits) -> GroupTotals {
        let mut groups = GroupTotals::of_keys(limits.keys());
        for batch in self.batches.values() {
            for (spec, record) in self.jobs(batch.no) {
                for (day, totals) in recovered_job_state::booked(&record.job) {
                    groups.add(totals, day, &spec.order.meta, batch.origin.as_ref());
                }
            }
        }
        groups
    }

    pub fn set_day(&self, scheduler: &mut Scheduler, day: UtcDay) {
        if !scheduler.has_day(day) {
            scheduler.set_day(day, self.days.get(&day).copied().unwrap_or_default());
        }
    }

    fn spec(&self, record: &JobRecord) -> Arc<JobSpec> {
        self.spool[&record.key.batch][usize::try_from(record.row_at).unwrap()].clone()
    }

    pub fn rows(&self, batch: BatchNo, from: u64, end: u64, most: usize) -> Vec<SpooledRow> {
        let spec = |at: u64| self.spool[&batch][usize::try_from(at).unwrap()].clone();
        (from..end).take(most).map(|at| SpooledRow { at, end: at + 1, spec: spec(at) }).collect()
    }

    /// Rows go to the spool, and into a record of their batch that is not committed yet, as `ingest` does it:
    /// the most urgent first, those that need the same together, their numbers in manifest order.
    /// `first` are the rows of a pilot, where there is one.
    pub fn spool(
        &mut self,
        batch: &BatchRecord,
        rows: &[Arc<JobSpec>],
        first: Option<&BTreeSet<Seq>>,
        now: Timestamp,
    ) -> BatchRecord {
        let mut batch = self.batches.get(&batch.no).unwrap_or(batch).clone();
        let lines = self.spool.entry(batch.no).or_default();
        // What was not acknowledged is cut off.
        lines.truncate(usize::try_from(batch.spool_bytes).unwrap());
        if batch.segments.iter().all(|segment| segment.cursor >= segment.end) {
            batch.waiting_since = Some(now);
        }
        let (no, had) = (batch.no, batch.rows);
        self.pilot_rows.retain(|key| key.batch != no || key.seq.0 < had);
        if first.is_some() && batch.pilot.is_none() {
            batch.pilot_from = batch.spool_bytes;
            let waiting = batch.segments.iter().map(|segment| segment.end - segment.cursor).sum::<u64>();
            let rest_jobs = u32::try_from(waiting).unwrap();
            batch.pilot = Some(Pilot { rest_jobs, ..Pilot::default() });
        }
        let is_first = |row: &JobSpec| first.is_some_and(|first| first.contains(&row.seq));
        if let Some(pilot) = &mut batch.pilot {
            rows.iter().for_each(|row| pilot.count(is_first(row), 1, row.order.hold().unwrap_or_default()));
        }
        // One that keeps nothing waiting is none.
        batch.pilot = batch.pilot.filter(|pilot| pilot.rest_jobs > 0);
        let of_pilot = rows.iter().filter(|row| batch.pilot.is_some() && is_first(row));
        self.pilot_rows.extend(of_pilot.map(|row| JobKey { batch: no, seq: row.seq }));
        let class_of = classes(rows);
        let part_of = |row: &Arc<JobSpec>| {
            let (priority, class) = class_of(row);
            (is_first(row), priority, class)
        };
        let mut parts: Vec<(bool, i8, QueueClass)> = Vec::new();
        for part in rows.iter().map(part_of) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts.sort_by_key(|(is_first, priority, _)| std::cmp::Reverse((*is_first, *priority)));
        batch.join_segments();
        for (pilot, priority, class) in parts {
            let cursor = lines.len() as u64;
            for row in rows.iter().filter(|row| part_of(row) == (pilot, priority, class)) {
                batch.planned = batch.planned + row.order.hold().unwrap_or_default();
                batch.count_accepted(row.order.kind);
                lines.push(row.clone());
            }
            batch.segments.push(Segment { priority, class, cursor, end: lines.len() as u64, pilot });
        }
        batch.rows += u32::try_from(rows.len()).unwrap();
        batch.spool_bytes = lines.len() as u64;
        (batch.canceled, batch.announced, batch.finished) = (false, false, None);
        batch
    }

    /// The versions of the edited rows of a batch, as far as its record says.
    pub fn row_versions(&self, batch: &BatchRecord) -> RowVersions {
        let changes = self.versions.get(&batch.no).into_iter().flatten();
        let mut versions = RowVersions::default();
        changes.take(usize::try_from(batch.versions_bytes).unwrap()).for_each(|change| versions.add(*change));
        versions
    }

    /// Whether a job may not be sent for the first time until a person continues.
    pub fn waits_for_pilot(&self, key: JobKey) -> bool {
        let has_pilot = self.batches.get(&key.batch).is_some_and(|batch| batch.pilot.is_some());
        has_pilot && !self.pilot_rows.contains(&key)
    }

    /// Whether another version of a job's row is wanted.
    pub fn is_superseded(&self, key: JobKey) -> bool {
        self.batches.get(&key.batch).is_some_and(|batch| self.row_versions(batch).is_superseded(key.seq))
    }

    /// Changes go to the file of versions, and into a record that is not committed yet, as `ingest` does it.
    pub fn add_versions(&mut self, batch: &mut BatchRecord, changes: &[VersionChange]) {
        let lines = self.versions.entry(batch.no).or_default();
        // What was not acknowledged is cut off.
        lines.truncate(usize::try_from(batch.versions_bytes).unwrap());
        if changes.iter().any(|change| change.row_at.is_some()) {
            batch.versions_pending = batch.versions_pending.or(Some(batch.versions_bytes));
        }
        lines.extend_from_slice(changes);
        batch.versions_bytes = lines.len() as u64;
    }

    /// What a manifest went back to, from a byte of the file of versions on, as `engine::edited_rows` finds it.
    pub fn going_back(&self, no: BatchNo, from: u64) -> AppliedVersions {
        let mut applied = AppliedVersions::none(no);
        let Some(batch) = self.batches.get(&no) else { return applied };
        let versions = self.row_versions(batch);
        let changes = &self.versions[&no][..usize::try_from(batch.versions_bytes).unwrap()];
        let jobs = self.jobs(no);
        for change in &changes[usize::try_from(from).unwrap()..] {
            let is_wanted = change.row_at.is_some() && !versions.is_superseded(change.wanted);
            let found = jobs.iter().find(|(spec, _)| is_wanted && spec.seq == change.wanted);
            applied.queued.extend(found.filter(|found| found.1.job.state().is_replaced()).cloned());
        }
        applied.up_to = Some(batch.versions_bytes);
        applied
    }

    /// The state is exported, and imported elsewhere.
    pub fn carry_over(&mut self, now: Timestamp) {
        for record in std::mem::take(&mut self.open).into_values() {
            let spec = self.spec(&record);
            let job = recovered_job_state::requeued(record.job.clone(), &spec, now);
            self.open.insert(record.key, JobRecord { job, ..record });
        }
        for batch in self.batches.values_mut().filter(|batch| !batch.is_done()) {
            batch.paused = Some(Pause::Rebuilt);
            batch.mark_rebuilt();
        }
    }

    /// The database is built anew from rows, outcomes and sidecars, and from what the old one says, if it is whole.
    pub fn rebuild(&mut self, is_whole: bool, now: Timestamp) {
        let mut known = std::mem::take(&mut self.open);
        if !is_whole {
            known.clear();
            self.account = AccountBlock::default();
        }
        let outcomes = std::mem::take(&mut self.outcomes);
        (self.total, self.days, self.groups) = (Totals::default(), BTreeMap::new(), None);
        for before in std::mem::take(&mut self.batches).into_values() {
            let BatchRecord { no, created, rows, spool_bytes, planned, canceled, .. } = before;
            let mut batch = BatchRecord::new(no, before.name.clone(), created);
            (batch.rows, batch.spool_bytes, batch.planned, batch.canceled) =
                (rows, spool_bytes, planned, canceled);
            (batch.policy, batch.origin) = (before.policy.clone(), before.origin.clone());
            (batch.pilot, batch.pilot_from) = (before.pilot, before.pilot_from);
            batch.versions_bytes = before.versions_bytes;
            batch.versions_pending = (batch.versions_bytes > 0).then_some(0);
            if is_whole {
                batch = BatchRecord { segments: Vec::new(), skipped: BTreeSet::new(), ..before.clone() };
                (batch.ended, batch.totals) = (Ended::default(), Totals::default());
                (batch.kinds, batch.rejections, batch.rebuilt_ended) = (BTreeMap::new(), 0, 0);
            }
            let versions = self.row_versions(&before);
            let specs = &self.spool[&no][..usize::try_from(spool_bytes).unwrap()];
            let class_of = classes(specs);
            let mut found = Vec::new();
            for (at, spec) in (0..).zip(specs) {
                let key = JobKey { batch: no, seq: spec.seq };
                let remains = Remains {
                    outcome: outcomes
                        .get(&key)
                        .filter(|_| !known.contains_key(&key))
                        .map(|of| of.job.clone()),
                    open: known.get(&key).map(|of| of.job.clone()),
                    exported: None,
                    may_be_asked_again: before.reopened > 0 && !versions.is_superseded(spec.seq),
                };
                let published = || self.published.get(&key).cloned();
                let job = recovered_job_state::recovered(spec, remains, published, is_whole, now)
                    .map(|found| found.job);
                found.push(job);
                let (priority, class) = class_of(spec);
                match batch.segments.last_mut() {
                    Some(last)
                        if (last.priority, last.class) == (priority, class) && at != batch.rebuilt_bytes =>
                    {
                        last.end = at + 1;
                    }
                    _ => batch.segments.push(Segment {
                        priority,
                        class,
                        cursor: at,
                        end: at + 1,
                        pilot: false,
                    }),
                }
                batch.count_accepted(spec.order.kind);
            }
            for segment in &mut batch.segments {
                let taken = |at: &u64| {
                    let at = usize::try_from(*at).unwrap();
                    found[at].is_some() && !before.skipped.contains(&specs[at].seq)
                };
                segment.cursor =
                    (segment.cursor..segment.end).rfind(taken).map_or(segment.cursor, |at| at + 1);
            }
            for ((at, spec), job) in (0..).zip(specs).zip(found) {
                let segment = batch.segments.partition_point(|segment| segment.end <= at);
                let has_begun = at < batch.segments[segment].cursor;
                let silent = || if is_whole { Job::queued() } else { Job::queued_perhaps_sent() };
                let Some(job) = job.or_else(|| has_begun.then(silent)) else { continue };
                if !has_begun {
                    batch.skipped.insert(spec.seq);
                }
                for (day, Books { held, charged, waived }) in job.books_by_day() {
                    let own = Totals { held, spent: charged, waived, ..Totals::default() };
                    batch.totals = batch.totals + own;
                    if let Some(day) = day {
                        let total = self.days.entry(day).or_default();
                        *total = *total + own;
                    }
                }
                let key = JobKey { batch: no, seq: spec.seq };
                if job.is_over() {
                    let is_superseded = versions.is_superseded(spec.seq);
                    batch.count_ended((spec.seq, spec.order.kind), job.state(), is_superseded);
                }
                let place = if job.is_over() { &mut self.outcomes } else { &mut self.open };
                place.insert(key, JobRecord { key, id: spec.id, row_at: at, job });
            }
            if !is_whole {
                batch.mark_rebuilt();
            }
            if !batch.is_done() {
                batch.paused = Some(Pause::Rebuilt);
            }
            self.total = self.total + batch.totals;
            self.batches.insert(no, batch);
        }
    }

    /// Every accepted job of a batch as it stands here.
    pub fn jobs(&self, no: BatchNo) -> Vec<FoundJob> {
        let Some(batch) = self.batches.get(&no) else { return Vec::new() };
        let rows =
            self.spool.get(&no).into_iter().flatten().take(usize::try_from(batch.spool_bytes).unwrap());
        let found = |(at, spec): (u64, &Arc<JobSpec>)| {
            let key = JobKey { batch: no, seq: spec.seq };
            let known = self.open.get(&key).or_else(|| self.outcomes.get(&key)).cloned();
            let unbegun = JobRecord { key, id: spec.id, row_at: at, job: Job::queued() };
            (spec.clone(), known.unwrap_or(unbegun))
        };
        (0..).zip(rows).map(found).collect()
    }

    /// Whether a job is open or has ended.
    pub fn knows(&self, key: JobKey) -> bool {
        self.open.contains_key(&key) || self.outcomes.contains_key(&key)
    }

    /// Every job that began, as it stands.
    pub fn begun(&self) -> impl Iterator<Item = &JobRecord> {
        self.open.values().chain(self.outcomes.values().filter(|record| !self.open.contains_key(&record.key)))
    }

    /// What all the jobs' own books come to.
    pub fn summed(&self, of: impl Fn(&JobRecord) -> bool) -> (Credits, Credits) {
        self.begun().filter(|record| of(record)).fold(
            (Credits::ZERO, Credits::ZERO),
            |(held, spent), record| {
                let books = record.job.all_books();
                (held + books.held, spent + books.charged)
            },
        )
    }
}

/// How rows are put together that need the same.
fn classes(rows: &[Arc<JobSpec>]) -> impl Fn(&Arc<JobSpec>) -> (i8, QueueClass) + use<> {
    let mut census = Census::default();
    rows.iter().for_each(|row| census.count(&row.order));
    move |row| (row.order.priority, census.division().of(&Classes::of(&row.order, GroupHash::default())))
}
