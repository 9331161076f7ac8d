//! A database built anew from what is readable: the spool, what the damaged database still tells, an
//! export, and the sidecars of finished outputs.
//!
//! Why this pays for nothing twice: a job that had begun comes back under the key that it had, or an
//! earlier one of its own, with what was set aside for it, and marked as one that may have been sent: it is not
//! dropped as unsent, and gets no other key before its task's own record said that it failed or was canceled. The
//! service answers a key that it knows with that key's task; a task that failed leads on to the next attempt, as it did the first time. A key that was never used would buy,
//! so every batch that is not finished comes back paused, and nothing creating is sent until its owner
//! resumes it. A job whose endpoint honours no key is never queued by guessing: unless a trustworthy
//! database says that it had not begun, it comes back as one whose request was on its way, which the
//! engine leaves to a person.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::domain::budget_group::GroupKey;
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, BatchNo, JobId, JobKey, Seq};
use crate::domain::job::{Job, JobSpec, PublishedOutputs, State};
use crate::domain::ledger::Totals;
use crate::domain::path_text;
use crate::domain::recovered_job_state::{self, Remains};
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;
use crate::recovery::segment_builder::SegmentBuilder;
use crate::recovery::total_of;
use crate::store::dump::DumpError;
use crate::store::unopened_state::{Remainder, UnopenedState};
use crate::store::{BatchRecord, Ended, FinishedBatch, JobRecord, Pause, Snapshot, StoreError};

/// Looks for the outputs of a job of a batch, whose layout may be its own.
pub type FindPublished<'a> = dyn Fn(&BatchName, Option<&str>, &JobSpec) -> Option<PublishedOutputs> + 'a;

/// What came of it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Rebuilt {
    /// Batches.
    pub batches: usize,
    /// Of these, paused.
    pub paused: usize,
    /// Names of those that their owners had paused before, and that stay so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paused_by_owner: Vec<String>,
    /// Accepted jobs.
    pub jobs: u64,
    /// Jobs that have ended.
    pub ended: u64,
    /// Of these, known from their sidecars alone.
    pub from_sidecars: u64,
    /// Jobs that had begun, or may have, and go on.
    pub open: u64,
    /// What the service may have charged for requests of which nothing is left, in credits: for as many jobs of a batch as had
    /// been sent and had not ended at one time; where that is not known, for all of them, within its budget. It counts against
    /// the budgets of the state and of the day until these are asked for.
    pub may_be_charged_credits: Credits,
    /// Where the damaged database lies now.
    #[serde(serialize_with = "path_text::shown_if_any")]
    pub aside: Option<PathBuf>,
    /// What could not be read, and what was done instead.
    pub notes: Vec<String>,
}

/// Where a rebuild takes what it knows from.
struct Sources<'a> {
    state: &'a UnopenedState,
    /// What the damaged database still tells.
    salvage: Snapshot,
    /// The damaged database is the latest one, whole and in agreement with the spool.
    trusted: bool,
    export: Snapshot,
    published: &'a FindPublished<'a>,
    group_keys: &'a [GroupKey],
    now: Timestamp,
}

/// A batch that has no folder.
enum WithoutFolder {
    /// It was finished, and somebody moved the folder away.
    Moved(FinishedBatch),
    /// It was not finished.
    Lost(BatchName),
}

/// Sets the database of the state in `dir` aside and builds a new one. Groups have budgets by these keys.
///
/// # Errors
/// [`DumpError`] when accepted rows cannot be read and the export does not have them, when the export
/// is damaged, or when the disk refuses; the old database is then in its place. Rows and outcomes that were replaced by then
/// stay so, with the former ones in `aside/`: another rebuild goes on from there.
pub fn rebuild(
    dir: &Path,
    export: Option<&Path>,
    published: &FindPublished<'_>,
    group_keys: &[GroupKey],
    now: Timestamp,
) -> Result<Rebuilt, DumpError> {
    let state = UnopenedState::take(dir)?;
    let Remainder { records: salvage, is_whole: trusted, notes } = state.read_database()?;
    let mut rebuilt = Rebuilt { notes, ..Rebuilt::default() };
    let export = export.map_or_else(|| Ok(Snapshot::default()), |path| state.read_export(path))?;
    must_be_of(&state, &salvage, &export)?;
    let last_commit = state.last_commit_beside()?.max(salvage.commits).max(export.commits);
    let mut sources = Sources { state: &state, salvage, trusted, export, published, group_keys, now };
    let mut records = Snapshot::at(last_commit.saturating_add(1));
    let mut moved = Vec::new();
    for (no, found) in sources.without_folder() {
        match found {
            WithoutFolder::Moved(line) => moved.push(line),
            WithoutFolder::Lost(name) => sources.take_folder_from_export(no, &name, &mut rebuilt)?,
        }
    }
    for no in state.folders()? {
        sources.batch(no, &mut records, &mut rebuilt)?;
    }
    sources.add_moved(moved, &mut records);
    records.account = sources.salvage.account.clone();
    records.total = total_of(&records);
    rebuilt.aside = state.install(records)?;
    Ok(rebuilt)
}

/// Refuses an export in which a number belongs to another batch: a state gives each to one. Rows and outcomes are found by
/// their places, and would be taken for those of the batch that has the number here.
fn must_be_of(state: &UnopenedState, salvage: &Snapshot, export: &Snapshot) -> Result<(), DumpError> {
    let refused = |no: BatchNo, theirs: &str, ours: &str| {
        let found = format!("batch {} is {theirs} there, and {ours} in this state", no.0);
        Err(DumpError::OtherState { found })
    };
    for theirs in &export.batches {
        let no = theirs.no;
        let salvaged = || salvage.batches.iter().find(|batch| batch.no == no).cloned();
        let ours = state.backed_up(no, None).or_else(|| state.last_finished_record(no));
        match ours.map(|(_, batch)| batch).or_else(salvaged) {
            Some(ours) if ours.name != theirs.name => {
                return refused(no, theirs.name.as_str(), ours.name.as_str());
            }
            Some(ours) if ours.created != theirs.created => {
                let [theirs, ours] =
                    [theirs, &ours].map(|batch| format!("{}, begun {}", batch.name, batch.created));
                return refused(no, &theirs, &ours);
            }
            _ => {}
        }
    }
    for theirs in export.finished.values() {
        let ours = state.backed_up(theirs.no, None).map(|(_, batch)| batch.name);
        let ours = ours.or_else(|| salvage.finished.get(&theirs.no).map(|line| line.name.clone()));
        if let Some(ours) = ours.filter(|ours| *ours != theirs.name) {
            return refused(theirs.no, theirs.name.as_str(), ours.as_str());
        }
    }
    Ok(())
}

impl Sources<'_> {
    /// The batches that something knows of and that have no folder, as the latest one that knows them has them.
    fn without_folder(&self) -> BTreeMap<BatchNo, WithoutFolder> {
        let mut sources = [&self.export, &self.salvage];
        sources.sort_by_key(|records| records.commits);
        let mut latest = BTreeMap::new();
        for records in sources {
            let batches = records.batches.iter().filter(|batch| batch.rows > 0).map(|batch| {
                let is_finished = batch.is_done() || records.is_listed_as_finished(batch.no);
                let found = match is_finished {
                    true => WithoutFolder::Moved(FinishedBatch::moved(batch)),
                    false => WithoutFolder::Lost(batch.name.clone()),
                };
                (batch.no, found)
            });
            let finished =
                records.finished.values().map(|line| (line.no, WithoutFolder::Moved(line.clone())));
            latest.extend(batches.chain(finished).filter(|(no, _)| !self.state.has_folder(*no)));
        }
        latest
    }

    /// Puts the folder of an unfinished batch that has none in its place, as the export has it: nothing tells what was done since
    /// the export was made.
    fn take_folder_from_export(
        &mut self,
        no: BatchNo,
        name: &BatchName,
        rebuilt: &mut Rebuilt,
    ) -> Result<(), StoreError> {
        let rows_in = |records: &Snapshot| {
            records.batches.iter().find(|batch| batch.no == no).map(|batch| batch.spool_bytes)
        };
        let lack = match (rows_in(&self.export), rows_in(&self.salvage)) {
            (None, _) => "",
            (Some(exported), Some(known)) if exported < known => ", and the export lacks some of its rows",
            (Some(exported), _) => {
                self.state.take_folder_from_export(no, exported)?;
                self.trusted = false;
                rebuilt
                    .notes
                    .push(format!("the folder of batch {name} was missing, and was taken from the export"));
                return Ok(());
            }
        };
        let detail =
            format!("nothing is left of batch {name}{lack}; if its folder was moved away, put it back");
        Err(self.state.rows_damaged(no, detail))
    }

    /// Adds finished batches whose folders somebody moved away: their names and numbers stay taken, and what they were
    /// charged still counts, also for its day.
    fn add_moved(&self, moved: Vec<FinishedBatch>, records: &mut Snapshot) {
        if moved.is_empty() {
            return;
        }
        moved.into_iter().for_each(|line| records.add_finished(line));
        // Which part of a day was theirs nothing tells: no day comes to less than it did. What is finished holds nothing.
        for (day, known) in self.export.days.iter().chain(&self.salvage.days) {
            let stored = records.days.entry(*day).or_default();
            stored.spent = stored.spent.max(known.spent);
            stored.waived = stored.waived.max(known.waived);
            stored.refunded = stored.refunded.max(known.refunded);
        }
    }

    /// What is known of a batch itself, the most recent source first.
    fn known(&self, no: BatchNo) -> Option<BatchRecord> {
        let of = |records: &Snapshot| {
            let batch = records.batches.iter().find(|batch| batch.no == no)?;
            Some((records.commits, batch.clone()))
        };
        let finished = || {
            let record = self.state.finished_record(self.salvage.finished.get(&no)?)?;
            Some((self.salvage.commits, record))
        };
        let salvaged = of(&self.salvage).or_else(finished);
        if self.trusted && salvaged.is_some() {
            return salvaged.map(|(_, batch)| batch);
        }
        let finished_beside = self.state.last_finished_record(no);
        let mut known: Vec<(u64, BatchRecord)> =
            salvaged.into_iter().chain(finished_beside).chain(of(&self.export)).collect();
        known.sort_by_key(|(commit, _)| Reverse(*commit));
        known.extend(self.state.backed_up(no, known.first().map(|(_, batch)| batch)));
        // Among equals the backup comes last: it has less of a batch.
        known.sort_by_key(|(commit, _)| Reverse(*commit));
        let most = known.iter().map(|(_, batch)| batch.spool_bytes).max()?;
        // The latest one that knows all rows.
        known.into_iter().map(|(_, batch)| batch).find(|batch| batch.spool_bytes == most)
    }

    fn batch(&self, no: BatchNo, records: &mut Snapshot, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let spool = self.state.spool(no);
        let rows_bytes = spool.rows_on_disk();
        let Some(known) = self.known(no) else {
            // Another batch would be given that number.
            if rows_bytes > 0
                && let Some(aside) = self.state.set_folder_aside(no)?
            {
                let (folder, aside) = (spool.dir().display(), aside.display());
                let note = format!("the rows in {folder} belong to no known batch; they are in {aside} now");
                rebuilt.notes.push(note);
            }
            return Ok(());
        };
        if self.state.repair_rows(&known)? {
            rebuilt.notes.push(format!("rows of batch {} were taken from the export", known.name));
        }
        let mut known = known;
        let versions_bytes = self.state.readable_versions_bytes(no)?;
        if versions_bytes < known.versions_bytes {
            let name = &known.name;
            let note =
                format!("which versions of edited rows of batch {name} are wanted is not known in full");
            rebuilt.notes.push(note);
            known.versions_bytes = versions_bytes;
        }
        if !self.trusted && known.versions_bytes > 0 {
            // Taking up again what a manifest went back to changes nothing where that was done.
            known.versions_pending = Some(0);
        }
        let mut parts = BatchRebuild::read_rows(self, known)?;
        parts.read_outcomes(self, rebuilt)?;
        let outcomes = parts.decide(self, rebuilt)?;
        let BatchRebuild {
            mut batch,
            open,
            days,
            may_be_charged: of_batch,
            ended_may_be_charged,
            goes_back,
            ..
        } = parts;
        if !self.trusted {
            if !ended_may_be_charged.is_empty() {
                rebuilt.notes.push(perhaps_queued_again(&batch.name, ended_may_be_charged.len()));
            }
            let backup = self.state.backed_up(no, None).and_then(|(_, batch)| batch.sent_at_once);
            let room = batch.budget().saturating_sub(batch.totals.committed());
            let ended = dearest(ended_may_be_charged, backup, room);
            let unended = dearest(of_batch, backup, room.saturating_sub(ended));
            (batch.may_be_charged, batch.may_be_charged_ended) = (unended + ended, ended);
            rebuilt.may_be_charged_credits = rebuilt.may_be_charged_credits + batch.may_be_charged;
            batch.mark_rebuilt();
        }
        rebuilt.batches += 1;
        rebuilt.jobs += u64::from(batch.rows);
        rebuilt.ended += u64::from(batch.ended.all());
        rebuilt.open += open.len() as u64;
        if batch.ended.all() < batch.rows || goes_back {
            match batch.paused {
                Some(_) => rebuilt.paused_by_owner.push(batch.name.to_string()),
                None => batch.paused = Some(Pause::Rebuilt),
            }
            rebuilt.paused += 1;
        } else {
            batch.paused = None;
        }
        let bytes = self.state.write_outcomes(no, &outcomes)?;
        if bytes > 0 {
            records.outcomes_bytes.insert(no, bytes);
        }
        for (day, totals) in days {
            let stored = records.days.entry(day).or_default();
            *stored = *stored + totals;
        }
        records.open.extend(open);
        records.batches.push(batch);
        Ok(())
    }
}

/// What jobs may have been charged of which nothing tells whether they were sent: `sent_at_once` of them at most, the most
/// expensive ones at worst; where that is not known all, within the `room` of their batch's budget.
fn dearest(mut holds: Vec<Credits>, sent_at_once: Option<u32>, room: Credits) -> Credits {
    holds.sort_unstable_by_key(|hold| Reverse(*hold));
    let sum = |most: usize| holds.iter().take(most).fold(Credits::ZERO, |sum, hold| sum + *hold);
    match sent_at_once {
        Some(most) => sum(most as usize),
        None => sum(usize::MAX).min(room),
    }
}

/// What is said of jobs that have ended as far as is known, and may have been queued again and sent since.
fn perhaps_queued_again(batch: &BatchName, jobs: usize) -> String {
    let are = if jobs == 1 { "1 job is" } else { &format!("{jobs} jobs are") };
    format!(
        "{are} known to have failed, expired or been canceled in batch {batch}, and may have been retried and sent since: \
         what that may have cost counts against the budgets until they are queued again with callsheet retry {batch}. A key \
         that was used returns its task, but a key that was never used buys the job; to end a job that was queued again \
         instead: callsheet resolve JOB"
    )
}

/// A batch being put together: its record as something knew it, with all that its jobs come to counted anew.
struct BatchRebuild {
    batch: BatchRecord,
    /// Byte of each job's row and its id, by its place.
    rows: Vec<Option<(u64, JobId)>>,
    /// The last outcome of each job, by its place.
    outcomes: BTreeMap<u32, JobRecord>,
    open: Vec<JobRecord>,
    days: BTreeMap<UtcDay, Totals>,
    /// What each job may have been charged of which nothing tells whether it was sent, beyond what is set aside for it.
    may_be_charged: Vec<Credits>,
    /// What each job may have been charged that has ended, and may have been queued again and sent since.
    ended_may_be_charged: Vec<Credits>,
    /// A wanted version of a row ended because another one took its place: it is queued again.
    goes_back: bool,
}

impl BatchRebuild {
    /// Finds every row, and the segments that they make.
    fn read_rows(from: &Sources<'_>, mut batch: BatchRecord) -> Result<BatchRebuild, StoreError> {
        let mut rows = vec![None; batch.rows as usize];
        let mut segments = SegmentBuilder::new(batch.pilot_rows(), batch.rebuilt_bytes, from.group_keys);
        let mut lines = from.state.spool(batch.no).rows(0, batch.spool_bytes)?;
        while let Some((at, spec)) = lines.next_line::<JobSpec>()? {
            if let Some(row) = rows.get_mut(spec.seq.0 as usize) {
                *row = Some((at, spec.id));
            }
            segments.add(&spec.order, at, lines.at());
        }
        batch.segments = segments.segments();
        (batch.ended, batch.rebuilt_ended, batch.totals) = (Ended::default(), 0, Totals::default());
        (batch.replaced, batch.counts_dropped) = (Credits::ZERO, true);
        batch.kinds.clear();
        (batch.rejections, batch.paused) = (0, batch.paused.filter(|pause| *pause == Pause::Owner));
        (batch.unreviewed, batch.decided, batch.review_announced) = (0, 0, false);
        batch.inputs_announced = false;
        let (outcomes, days) = (BTreeMap::new(), BTreeMap::new());
        let (open, may_be_charged, ended_may_be_charged) = (Vec::new(), Vec::new(), Vec::new());
        let goes_back = false;
        Ok(BatchRebuild {
            batch,
            rows,
            outcomes,
            open,
            days,
            may_be_charged,
            ended_may_be_charged,
            goes_back,
        })
    }

    /// Reads every outcome that can be read, the export's first: the last one of a job counts.
    fn read_outcomes(&mut self, from: &Sources<'_>, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        for spool in [from.state.export_spool(self.batch.no), from.state.spool(self.batch.no)] {
            let Some(mut lines) = spool.outcomes_on_disk()? else { continue };
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
        let seq = record.key.seq.0;
        let row = self.rows.get(seq as usize).copied().flatten();
        let is_ours = record.key.batch == self.batch.no && row == Some((record.row_at, record.id));
        let before = self.outcomes.get(&seq).map(|before| &before.job);
        if is_ours && recovered_job_state::replaces(&record.job, before) {
            self.outcomes.insert(seq, record);
        }
    }

    /// Decides where every job stands; returns the outcomes that count.
    fn decide(&mut self, from: &Sources<'_>, rebuilt: &mut Rebuilt) -> Result<Vec<JobRecord>, StoreError> {
        let mut lines = from.state.spool(self.batch.no).rows(0, self.batch.spool_bytes)?;
        let versions = from.state.row_versions(&self.batch)?;
        let has_reopened = self.batch.reopened > 0 || from.state.may_have_reopened(self.batch.no);
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
            if self.batch.segments.get(segment).is_some_and(|segment| at >= segment.end) {
                segment += 1;
                silent.clear();
                self.batch.skipped.extend(ahead.drain(..));
            }
            let key = JobKey { batch: self.batch.no, seq: spec.seq };
            let row =
                JobRecord { key, id: spec.id, row_at: at, job: recovered_job_state::silent(from.trusted) };
            self.batch.count_accepted(spec.order.kind);
            let outcome = outcomes.remove(&spec.seq.0);
            let hold = spec.order.hold().unwrap_or_default();
            let is_superseded = versions.is_superseded(spec.seq);
            let may_be_asked_again = has_reopened && !is_superseded;
            let Some(found) = self.stands(from, &spec, &row, outcome, may_be_asked_again, rebuilt) else {
                self.may_be_charged.push(hold);
                silent.push(row);
                continue;
            };
            if found.job.may_have_been_sent() && matches!(found.job.state(), State::Queued) {
                self.may_be_charged.push(hold.saturating_sub(found.job.books().held));
            }
            self.goes_back |= !is_superseded && found.job.state().is_replaced();
            let is_counted = spec.order.kind.is_keyed() || may_be_asked_again;
            if found.job.may_have_been_sent() && found.job.is_over() && is_counted {
                self.ended_may_be_charged.push(hold);
            }
            if out_of_turn.contains(&spec.seq) {
                ahead.push(spec.seq);
            } else {
                if let Some(segment) = self.batch.segments.get_mut(segment) {
                    segment.cursor = lines.at();
                }
                ahead.clear();
                self.open.append(&mut silent);
            }
            self.book(&found.job);
            if found.job.is_over() {
                let job = (spec.seq, spec.order.kind);
                self.batch.count_ended(job, found.job.state(), is_superseded);
                self.batch.replaced = self.batch.replaced + self.batch.unspent_of(&found.job, &spec.order);
                self.batch.unreviewed += u32::from(!is_superseded && found.job.awaits_review());
                self.batch.decided += u32::try_from(found.job.decisions().len()).unwrap_or(u32::MAX);
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
        may_be_asked_again: bool,
        rebuilt: &mut Rebuilt,
    ) -> Option<JobRecord> {
        let fits = |open: &&JobRecord| open.id == row.id && open.row_at == row.row_at;
        let open_in =
            |records: &Snapshot| records.open_job(row.key).filter(fits).map(|open| open.job.clone());
        let remains = Remains {
            outcome: outcome.map(|outcome| outcome.job),
            open: open_in(&from.salvage),
            exported: open_in(&from.export),
            may_be_asked_again,
        };
        let published = || (from.published)(&self.batch.name, self.batch.layout(), spec);
        let found = recovered_job_state::recovered(spec, remains, published, from.trusted, from.now)?;
        rebuilt.from_sidecars += u64::from(found.is_from_sidecar);
        let mut job = found.job;
        job.note_review(&spec.order);
        Some(JobRecord { job, ..row.clone() })
    }

    fn book(&mut self, job: &Job) {
        for (day, totals) in recovered_job_state::booked(job) {
            self.batch.totals = self.batch.totals + totals;
            if let Some(day) = day {
                let of_the_day = self.days.entry(day).or_default();
                *of_the_day = *of_the_day + totals;
            }
        }
    }
}
