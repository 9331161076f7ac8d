//! A batch in memory: its record, the rows of it that wait next, and what keeps it from sending.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::domain::credits::Credits;
use crate::domain::ids::{BatchNo, Seq};
use crate::domain::job::{DOWNLOAD_FAILED, Job, JobSpec, Order, State};
use crate::domain::ledger::{Movement, OutOfBalance};
use crate::domain::parked_reason::Parked;
use crate::domain::pilot::Pilot;
use crate::domain::request::Kind;
use crate::domain::row_versions::RowVersions;
use crate::domain::task::Fault;
use crate::domain::time::{Now, Timestamp};
use crate::engine::scheduler::job_log;
use crate::engine::scheduler::messages::{Effect, EndedVersion, LastFailure, SpooledRow};
use crate::engine::scheduler::parts::row_windows::{RowWindow, window_rows, windows_of};
use crate::store::{AwaitedByHooks, BatchRecord, Pause};

/// Jobs of a batch that may be canceled one by one before their turn: their numbers travel with the
/// batch's record.
pub const SKIPPED_MAX: usize = 1000;

/// Failures of a batch that are remembered.
const LAST_FAILURES: usize = 3;

/// See the module's documentation.
#[derive(Debug)]
pub struct ActiveBatch {
    record: BatchRecord,
    /// Which versions of its edited rows are wanted.
    versions: RowVersions,
    /// What a manifest went back to is being taken up.
    is_going_back: bool,
    /// Rows of it that were read name other rows.
    has_references: bool,
    /// The next rows of each class.
    windows: Vec<RowWindow>,
    /// What keeps every batch from sending.
    parked_with_all: Option<Parked>,
    /// What keeps all of it from being sent, whatever its jobs are.
    parked_whole: Option<Parked>,
    /// What keeps its next jobs from being sent, as admission found last.
    parked_next: Option<Parked>,
    /// What the log last said keeps it from sending.
    logged_parked: Option<Parked>,
    /// The last one first.
    last_failures: VecDeque<(Seq, LastFailure)>,
}

/// Rows that wait in memory and are dropped.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DroppedRows {
    /// All of them.
    pub all: Vec<Seq>,
    /// The last of each window.
    pub lasts: Vec<Seq>,
}

/// What decides whether a row can be sent.
fn needs(row: &SpooledRow) -> (Kind, Option<&str>, Option<Credits>) {
    let order = &row.spec.order;
    (order.kind, order.model.as_deref(), order.hold())
}

impl ActiveBatch {
    /// A batch none of whose rows were read yet.
    pub fn new(record: BatchRecord) -> ActiveBatch {
        let windows = windows_of(&record);
        let versions = RowVersions::default();
        ActiveBatch {
            record,
            versions,
            is_going_back: false,
            has_references: false,
            windows,
            parked_with_all: None,
            parked_whole: None,
            parked_next: None,
            logged_parked: None,
            last_failures: VecDeque::new(),
        }
    }

    /// Takes up what changed of it by another manifest.
    pub fn extend(&mut self, record: BatchRecord) {
        let has_more = record.rows > self.record.rows || record.versions_bytes > self.record.versions_bytes;
        let present = std::mem::replace(&mut self.record, record);
        let record = &mut self.record;
        record.totals = present.totals;
        (record.ended, record.rebuilt_ended) = (present.ended, present.rebuilt_ended);
        record.unreviewed = present.unreviewed;
        record.decided = present.decided;
        record.review_announced = present.review_announced && !has_more;
        record.pilot_announced = present.pilot_announced && !has_more;
        record.take_pilot(&present);
        record.inputs_announced = present.inputs_announced && !has_more;
        record.paused = present.paused;
        record.rejections = present.rejections;
        record.failed_downloads = present.failed_downloads;
        (record.replaced, record.counts_dropped) = (present.replaced, present.counts_dropped);
        record.reopened = present.reopened;
        record.may_be_charged = present.may_be_charged;
        record.may_be_charged_ended = present.may_be_charged_ended;
        record.sent_at_once = present.sent_at_once;
        record.skipped = present.skipped.clone();
        record.canceled_below = present.canceled_below;
        // More of it is wanted anew.
        record.canceled = present.canceled && !has_more;
        record.announced = present.announced && !has_more;
        record.take_cursors(&present);
        // Taking it up again changes nothing.
        let pending = [present.versions_pending, record.versions_pending];
        record.versions_pending = pending.into_iter().flatten().min();
        for (kind, before) in present.kinds {
            record.kinds.entry(kind).or_default().ended = before.ended;
        }
        // What came in is sorted in among the rest: the windows are read anew.
        self.windows = windows_of(record);
    }

    /// Takes up which versions of its edited rows are wanted. Returns which were.
    pub fn set_versions(&mut self, versions: RowVersions) -> RowVersions {
        std::mem::replace(&mut self.versions, versions)
    }

    /// Counts a job that has ended anew, as that of a version that was `superseded` before or was not.
    pub fn recount(&mut self, ended: &EndedVersion, was_superseded: bool) {
        let EndedVersion { seq, kind, ref state, awaits_review } = *ended;
        let is_superseded = self.versions.is_superseded(seq);
        if was_superseded != is_superseded {
            self.record.recount_ended(kind, state, is_superseded);
            if awaits_review {
                self.record.count_review(is_superseded, was_superseded);
            }
        }
    }

    /// Which versions of its edited rows are wanted.
    pub fn versions(&self) -> &RowVersions {
        &self.versions
    }

    /// From which byte on what a manifest went back to is to be taken up; it is being taken up from now on.
    pub fn begin_going_back(&mut self) -> Option<u64> {
        let from = self.record.versions_pending.filter(|_| !self.is_going_back)?;
        self.is_going_back = true;
        Some(from)
    }

    /// Whether what a manifest went back to is being taken up.
    pub fn is_going_back(&self) -> bool {
        self.is_going_back
    }

    /// What a manifest went back to was taken up to byte `up_to`.
    pub fn went_back(&mut self, up_to: u64) {
        self.is_going_back = false;
        self.record.versions_pending = Some(up_to).filter(|up_to| *up_to < self.record.versions_bytes);
    }

    /// Rows that wait in memory, `most` at most, in whose place other versions are wanted.
    pub fn replaced_rows(&self, most: usize) -> Vec<SpooledRow> {
        if self.versions.is_empty() {
            return Vec::new();
        }
        let is_replaced = |row: &&SpooledRow| {
            self.versions.is_superseded(row.spec.seq) && !self.record.skipped.contains(&row.spec.seq)
        };
        self.rows().filter(is_replaced).take(most).cloned().collect()
    }

    /// What is durable of it.
    pub fn record(&self) -> &BatchRecord {
        &self.record
    }

    /// What is durable of it, once it leaves.
    pub fn into_record(self) -> BatchRecord {
        self.record
    }

    /// Whether what was never sent of it is not to be sent any more.
    pub fn has_expired(&self, now: Now) -> bool {
        self.record.has_expired(now.wall)
    }

    /// Whether some rows have not begun.
    pub fn has_rows(&self) -> bool {
        self.record.segments.iter().any(|segment| !segment.is_through())
    }

    /// A job that waits for the end of its pilot is wanted again, or is not any more; what it costs.
    pub fn change_waiting(&mut self, is_wanted: bool, hold: Credits) {
        self.record.pilot.iter_mut().for_each(|pilot| pilot.change_waiting(is_wanted, hold));
    }

    /// What waits for the end of its pilot is dropped, but for `kept` jobs that may have been sent by a state that is gone.
    /// What of it is wanted again later waits as before.
    pub fn drop_rest_of_pilot(&mut self, kept: u32) {
        let record = &mut self.record;
        record.canceled_below = record.spool_bytes;
        record.pilot_announced &= kept > 0;
        record.pilot = record.pilot.map(|pilot| pilot.without_rest_beyond(kept));
        if record.pilot.is_some() {
            self.windows = windows_of(record);
        }
    }

    /// What waits for the end of its pilot may be sent.
    pub fn end_pilot(&mut self) {
        self.record.pilot_announced = false;
        if self.record.pilot.take().is_some() {
            self.windows = windows_of(&self.record);
        }
    }

    /// Whether rows are being read.
    pub fn is_loading(&self) -> bool {
        self.windows.iter().any(RowWindow::is_loading)
    }

    /// What keeps it from sending: all of it, or, as admission found last, its next jobs.
    pub fn parked(&self) -> Option<Parked> {
        self.parked_with_all.or(self.parked_whole).or(self.parked_next)
    }

    /// When what was not sent of it by then is not sent any more, unless all of it has ended.
    pub fn expires(&self) -> Option<Timestamp> {
        self.record.expires().filter(|_| !self.record.has_ended())
    }

    /// This keeps every batch from sending, or nothing does.
    pub fn park_with_all(&mut self, parked: Option<Parked>) {
        self.parked_with_all = parked;
    }

    /// What keeps it from sending, whatever its jobs are.
    pub fn parked_whole(&self) -> Option<Parked> {
        self.parked_whole
    }

    /// This keeps it from sending, whatever its jobs are, or nothing does.
    pub fn park_whole(&mut self, parked: Option<Parked>) {
        self.parked_whole = parked;
    }

    /// This keeps its next jobs from being sent, or nothing does.
    pub fn park_next(&mut self, parked: Option<Parked>) {
        self.parked_next = parked;
    }

    /// Whether admission found that its next jobs may not be sent.
    pub fn is_next_parked(&self) -> bool {
        self.parked_next.is_some()
    }

    /// Says what keeps it from sending, once.
    pub fn log_parked(&mut self, parked: Parked) {
        if self.logged_parked != Some(parked) {
            self.logged_parked = Some(parked);
            job_log::batch_parked(&self.record, parked);
        }
    }

    /// Says that it sends again, if it was said that it did not.
    pub fn log_unparked(&mut self) {
        if let Some(parked) = self.logged_parked.take() {
            job_log::batch_unparked(&self.record, parked);
        }
    }

    /// A job goes on: whether a state that is gone may have sent it may be another matter now. True: it is.
    pub fn note_perhaps_sent(&mut self, before: &Job, now: &Job, order: &Order) -> bool {
        self.record.note_perhaps_sent(before, now, order)
    }

    /// Nothing more of it is sent until it is resumed.
    pub fn pause(&mut self, pause: Pause) {
        self.record.paused = Some(pause);
    }

    /// Lifts a pause of any cause.
    pub fn resume(&mut self) {
        self.record.paused = None;
        (self.record.rejections, self.record.failed_downloads) = (0, 0);
    }

    /// Another budget, in credits, which may be that of the configuration; nothing for what its plans come to.
    pub fn set_budget(&mut self, budget: Option<Credits>, is_default: bool) {
        (self.record.policy.budget, self.record.has_default_budget) = (budget, is_default);
    }

    /// Hooks have announced that it is done, as it stood then. A later end is still to be announced.
    pub fn mark_announced(&mut self, told: &BatchRecord, now: Now) {
        let end = |batch: &BatchRecord| (batch.finished, batch.ended, batch.totals);
        if self.record.is_done() && end(&self.record) == end(told) {
            self.record.announced = true;
            self.record.announced_at = Some(now.wall);
        }
    }

    /// Whether all that is left of it waits for rows that a person has to see to.
    pub fn waits_for_rows(&self) -> bool {
        self.parked() == Some(Parked::Inputs)
    }

    /// Hooks have announced what it waited for.
    pub fn mark_wait_announced(&mut self, told: AwaitedByHooks) {
        self.record.mark_wait_announced(told, self.waits_for_rows());
    }

    /// A person decided about outputs of a job, which awaits a decision now, or does not any more.
    pub fn decided(&mut self, seq: Seq, before: bool, now: bool) {
        self.record.decided = self.record.decided.saturating_add(1);
        self.count_review(seq, before, now);
    }

    /// A job of it awaits a decision now, or does not any more.
    pub fn count_review(&mut self, seq: Seq, before: bool, now: bool) {
        if !self.versions.is_superseded(seq) {
            self.record.count_review(before, now);
        }
    }

    /// Before it is made durable: when it was finished, if it is. `sent` jobs have been sent and have not ended.
    pub fn note_standing(&mut self, sent: u32, now: Timestamp) {
        let record = &mut self.record;
        record.note_sent_at_once(sent);
        record.finished = record.finished.or(Some(now)).filter(|_| record.is_done());
        record.pilot = record.open_pilot().or(record.pilot.map(Pilot::without_rest));
    }

    /// Books a movement of one of its jobs.
    ///
    /// # Errors
    /// [`OutOfBalance`] when more would be taken out than is in it.
    pub fn apply(&mut self, movement: Movement) -> Result<(), OutOfBalance> {
        self.record.totals.apply(movement)
    }

    /// Its owner drops what is not sent. `perhaps_sent` jobs, begun or not, may have been sent by a state that is gone: with
    /// any such, it is paused, since they are not dropped.
    pub fn cancel(&mut self, perhaps_sent: u32) {
        self.record.canceled = true;
        if perhaps_sent > 0 {
            self.record.paused = Some(Pause::Rebuilt);
        }
        self.drop_rest_of_pilot(perhaps_sent);
    }

    /// A job of it ends before its turn: its row is passed over. False: there are too many such already.
    pub fn skip(&mut self, seq: Seq) -> bool {
        let has_room = self.record.skipped.len() < SKIPPED_MAX;
        if has_room {
            self.record.skipped.insert(seq);
        }
        has_room
    }

    /// Remembers that a job of it failed.
    pub fn note_failure(&mut self, spec: &JobSpec, fault: &Fault) {
        self.last_failures.truncate(LAST_FAILURES - 1);
        let failure = LastFailure { job: spec.label.clone(), code: fault.code.clone() };
        self.last_failures.push_front((spec.seq, failure));
    }

    /// Jobs of it that failed last, the last one first.
    pub fn last_failures(&self) -> Vec<LastFailure> {
        self.last_failures.iter().map(|(_, failure)| failure.clone()).collect()
    }

    /// A job of it has ended. `in_row_max` rejected prompts in a row pause it, or as many outputs that are paid for and could
    /// not be downloaded: the next ones would probably meet the same.
    pub fn job_ended(&mut self, spec: &JobSpec, job: &Job, in_row_max: u32) {
        let is_superseded = self.versions.is_superseded(spec.seq);
        let record = &mut self.record;
        record.inputs_announced = false;
        record.count_ended((spec.seq, spec.order.kind), job.state(), is_superseded);
        record.replaced = record.replaced + record.unspent_of(job, &spec.order);
        let pause = match job.state() {
            State::Failed { fault, .. } if record.is_rejection(&fault.code, spec.order.kind, in_row_max) => {
                record.rejections = record.rejections.saturating_add(1);
                (record.rejections >= in_row_max)
                    .then_some((Pause::Rejections, "requests were rejected one after the other"))
            }
            State::Failed { fault, .. } if fault.code == DOWNLOAD_FAILED => {
                record.failed_downloads = record.failed_downloads.saturating_add(1);
                let why = "outputs that are paid for could not be downloaded, one after the other";
                (record.failed_downloads >= in_row_max).then_some((Pause::Downloads, why))
            }
            State::Succeeded { .. } => {
                (record.rejections, record.failed_downloads) = (0, 0);
                None
            }
            _ => None,
        };
        if let Some((pause, why)) = pause
            && record.paused.is_none()
        {
            record.paused = Some(pause);
            job_log::paused(record, why);
        }
        job_log::batch_done(record);
    }

    /// A job of it that had ended goes on, as it stood then: its owner is told anew once it is done.
    pub fn job_reopened(&mut self, spec: &JobSpec, ended: &Job) {
        self.last_failures.retain(|(failed, _)| *failed != spec.seq);
        let is_superseded = self.versions.is_superseded(spec.seq);
        self.record.count_reopened((spec.seq, spec.order.kind), ended.state(), is_superseded);
        let unspent = self.record.unspent_of(ended, &spec.order);
        self.record.replaced = self.record.replaced.saturating_sub(unspent);
        self.record.note_reopened(ended, &spec.order);
        (self.record.announced, self.record.inputs_announced) = (false, false);
    }

    /// Its owner wants some of it after all.
    pub fn uncancel(&mut self) {
        self.record.canceled = false;
    }

    /// Whether the row of a job waits in memory.
    pub fn holds(&self, seq: Seq) -> bool {
        self.windows.iter().any(|window| window.holds(seq))
    }

    /// Whether the row of a job is the next of its window.
    pub fn is_at_front(&self, seq: Seq) -> bool {
        self.windows.iter().filter_map(RowWindow::first).any(|row| row.spec.seq == seq)
    }

    /// Whether rows of it that were read name other rows.
    pub fn has_references(&self) -> bool {
        self.has_references
    }

    /// The batches whose outputs rows of it take that wait in memory.
    pub fn named_batches(&self) -> impl Iterator<Item = BatchNo> {
        let rows = self.has_references.then(|| self.rows()).into_iter().flatten();
        let no = self.record.no;
        rows.flat_map(move |row| row.spec.order.inputs.iter().map(move |input| input.batch_of(no)))
    }

    /// The first row of each window that is to be sent.
    pub fn fronts(&self) -> impl Iterator<Item = &Arc<JobSpec>> {
        let fronts = self.windows.iter().filter_map(RowWindow::first);
        let is_sent = |row: &&SpooledRow| !self.is_dropped(row) && !self.versions.is_superseded(row.spec.seq);
        fronts.filter(is_sent).map(|row| &row.spec)
    }

    /// Whether a row that has not begun is dropped at its turn, since its owner canceled what waited then.
    fn is_dropped(&self, row: &SpooledRow) -> bool {
        row.at < self.record.canceled_below && !self.record.may_have_been_sent(row.spec.seq)
    }

    /// Rows that wait in memory.
    pub fn rows(&self) -> impl Iterator<Item = &SpooledRow> {
        self.windows.iter().flat_map(RowWindow::rows)
    }

    /// The first `most` rows of each window; of a mixed one all, since any may fit where the first does not. A row that
    /// is passed over costs a record: where the queue `is_crowded` with them, only rows that pass none are given.
    pub fn front_rows<'a>(
        &'a self,
        most: usize,
        is_crowded: bool,
        is_ready: impl Fn(&JobSpec) -> bool,
    ) -> Vec<&'a Arc<JobSpec>> {
        let ActiveBatch { record, windows, .. } = self;
        // The order of the manifest is only known once every window shows its first row.
        if windows.iter().any(|window| window.is_empty() && window.unread(&record.segments).is_some()) {
            return Vec::new();
        }
        // Canceled rows leave the window in order: whatever is behind one waits for that.
        let front = |window: &'a RowWindow| {
            let first = window.first().map(needs);
            let most = if window.is_mixed() { usize::MAX } else { most };
            let goes =
                |row: &&SpooledRow| !self.is_dropped(row) && (!is_crowded || Some(needs(row)) == first);
            let rows = window.rows().take_while(goes);
            let rows = rows.filter(|row| !record.skipped.contains(&row.spec.seq));
            let rows = rows.filter(|row| !self.versions.is_superseded(row.spec.seq));
            let rows = rows.filter(|row| is_ready(&row.spec));
            rows.map(|row| &row.spec).take(most).collect::<Vec<_>>()
        };
        windows.iter().flat_map(front).collect()
    }

    /// Takes rows out of a window for good, in order, up to that of `seq`. Nothing where that does not wait in memory.
    pub fn take_rows_up_to(&mut self, seq: Seq) -> Option<Vec<SpooledRow>> {
        let window = self.windows.iter_mut().find(|window| window.holds(seq))?;
        let mut taken = Vec::new();
        while let Some(row) = window.pop(&mut self.record.segments) {
            if self.record.skipped.remove(&row.spec.seq) {
                continue;
            }
            let is_last = row.spec.seq == seq;
            taken.push(row);
            if is_last {
                break;
            }
        }
        Some(taken)
    }

    /// Passes over rows at the front whose jobs were canceled before their turn. True: there were any.
    pub fn pass_over_skipped(&mut self) -> bool {
        let ActiveBatch { record, windows, .. } = self;
        let mut has_changed = false;
        if record.skipped.is_empty() {
            return has_changed;
        }
        for window in windows {
            while let Some(row) = window.first()
                && record.skipped.remove(&row.spec.seq)
            {
                window.pop(&mut record.segments);
                has_changed = true;
            }
        }
        has_changed
    }

    /// Whether what waits of it was canceled: all of it, or rows at the front.
    pub fn is_canceled(&self) -> bool {
        let mut fronts = self.windows.iter().filter_map(RowWindow::first);
        self.record.canceled || fronts.any(|row| row.at < self.record.canceled_below)
    }

    /// The next rows that wait in memory and are to be dropped, `most` at most: those that were canceled, or else all.
    pub fn rows_to_drop(&self, only_canceled: bool, most: usize) -> DroppedRows {
        let record = &self.record;
        // Rows that came after its owner canceled it are wanted anew.
        let below = if only_canceled { record.canceled_below } else { u64::MAX };
        // What may have been sent is not dropped, and keeps its place.
        let may_be_dropped = |row: &&SpooledRow| row.at < below && !record.may_have_been_sent(row.spec.seq);
        let mut dropped = DroppedRows::default();
        for window in &self.windows {
            let rows = window.rows().take_while(may_be_dropped);
            let rows = rows.map(|row| row.spec.seq).filter(|seq| !record.skipped.contains(seq));
            let before = dropped.all.len();
            dropped.all.extend(rows.take(most - before));
            dropped.lasts.extend(dropped.all[before..].last());
        }
        dropped
    }

    /// The highest priority of its rows in memory; nothing where there are none, or it is paused.
    pub fn priority_in_memory(&self) -> Option<i8> {
        let priorities = self.windows.iter().filter_map(RowWindow::priority);
        priorities.max().filter(|_| self.record.paused.is_none())
    }

    /// Whether more of its rows are to be read, where it is one of so many batches.
    pub fn lacks_rows(&self, batches: usize) -> bool {
        let (segments, most) = (&self.record.segments, window_rows(self.windows.len(), batches));
        self.windows.iter().any(|window| window.lacks_rows(segments, most))
    }

    /// What is to be read of its rows, so that enough of them wait in memory. It is being read from now on. It is one of so
    /// many batches.
    pub fn load_rows(&mut self, batches: usize) -> Vec<Effect> {
        let ActiveBatch { record, windows, .. } = self;
        windows.retain_mut(|window| window.advance(&record.segments));
        let most = window_rows(windows.len(), batches);
        let load = |window: &mut RowWindow| {
            let (from, end) = window.begin_loading(&record.segments, most)?;
            Some(Effect::LoadRows { batch: record.no, from, end, most })
        };
        windows.iter_mut().filter_map(load).collect()
    }

    /// Takes in rows that were read from byte `from` on. Rows of a place that was passed meanwhile belong nowhere.
    pub fn add_rows(&mut self, from: u64, rows: Vec<SpooledRow>) {
        self.has_references |= rows.iter().any(|row| !row.spec.order.inputs.is_empty());
        let ActiveBatch { record, windows, .. } = self;
        let is_next =
            |window: &&mut RowWindow| window.unread(&record.segments).is_some_and(|(next, _)| next == from);
        if let Some(window) = windows.iter_mut().find(is_next) {
            window.add(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::BatchNo;
    use crate::domain::task::Fault;
    use crate::engine::scheduler::tests::spec;
    use crate::store::Segment;

    /// A batch of four videos, one byte a row.
    fn batch() -> ActiveBatch {
        let mut record = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
        (record.rows, record.spool_bytes) = (4, 4);
        record.segments.push(Segment::mixed(0, 0, 4));
        ActiveBatch::new(record)
    }

    /// The same with all its rows in memory.
    fn loaded() -> ActiveBatch {
        let mut active = batch();
        let effects = active.load_rows(1);
        assert!(matches!(effects[..], [Effect::LoadRows { from: 0, end: 4, .. }]), "{effects:?}");
        assert!(active.is_loading() && active.load_rows(1).is_empty());
        let row = |at: u32| {
            let at64 = u64::from(at);
            SpooledRow { at: at64, end: at64 + 1, spec: spec(at, Kind::Video) }
        };
        active.add_rows(0, (0..4).map(row).collect());
        assert!(!active.is_loading());
        active
    }

    fn seqs<'a>(rows: impl IntoIterator<Item = &'a Arc<JobSpec>>) -> Vec<u32> {
        rows.into_iter().map(|spec| spec.seq.0).collect()
    }

    #[test]
    fn rows_leave_in_order_and_those_that_were_skipped_leave_no_job() {
        let mut active = loaded();
        assert!(active.skip(Seq(1)));
        assert_eq!(seqs(active.front_rows(9, false, |_| true)), [0, 2, 3]);
        let taken = active.take_rows_up_to(Seq(2)).unwrap();
        assert_eq!(seqs(taken.iter().map(|row| &row.spec)), [0, 2]);
        assert!(!active.holds(Seq(2)) && active.holds(Seq(3)) && active.has_rows());
        assert!(active.take_rows_up_to(Seq(2)).is_none());
        active.skip(Seq(3));
        assert!(active.pass_over_skipped() && !active.pass_over_skipped());
        assert!(!active.has_rows() && active.rows().next().is_none());
    }

    #[test]
    fn what_comes_after_a_cancel_is_wanted_and_what_may_have_been_sent_keeps_its_place() {
        let mut active = loaded();
        active.cancel(0);
        assert!(active.is_canceled() && active.front_rows(9, false, |_| true).is_empty());
        assert_eq!(active.rows_to_drop(true, 3).all, [Seq(0), Seq(1), Seq(2)]);
        let mut active = loaded();
        active.record.rebuilt_rows = 2;
        active.cancel(2);
        assert_eq!(active.record().paused, Some(Pause::Rebuilt));
        assert_eq!(active.rows_to_drop(true, 9), DroppedRows::default(), "the first may have been sent");
    }

    #[test]
    fn failures_of_a_kind_in_a_row_pause_it_and_a_resume_counts_anew() {
        let spec = spec(0, Kind::Video);
        let failed = |code: &str| {
            let state = State::Failed { task: None, fault: Fault::new(code, "no") };
            Job::at(crate::domain::ids::AttemptNo::FIRST, state)
        };
        let [rejected, lost] = ["content_rejected", "not_found"].map(|code| (code, Pause::Rejections));
        for (code, pause) in [rejected, lost, (DOWNLOAD_FAILED, Pause::Downloads)] {
            let (mut active, job) = (batch(), &failed(code));
            for job in [job, &failed("generic"), job] {
                assert_eq!(active.record().paused, None);
                active.job_ended(&spec, job, 2);
            }
            assert_eq!(active.record().paused, Some(pause));
            active.resume();
            active.job_ended(&spec, job, 2);
            assert_eq!(active.record().paused, None);
        }
    }

    #[test]
    fn another_manifest_keeps_what_is_known_and_wants_the_rest_anew() {
        let mut active = loaded();
        active.pause(Pause::Owner);
        active.cancel(0);
        active.take_rows_up_to(Seq(0));
        let mut more = batch().into_record();
        (more.rows, more.spool_bytes) = (5, 5);
        more.segments.push(Segment::mixed(0, 4, 5));
        active.extend(more);
        let record = active.record();
        assert_eq!((record.paused, record.canceled, record.canceled_below), (Some(Pause::Owner), false, 4));
        assert_eq!(record.segments[0].cursor, 1);
        assert!(active.rows().next().is_none(), "the windows are read anew");
    }
}
