//! A job that has begun and not ended, with what this process knows of it beyond its record.

mod attempt_progress;

use std::sync::Arc;

use thin_vec::ThinVec;

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::job::{Attempt, Job, JobSpec, State};
use crate::domain::lifecycle::{self, Want};
use crate::domain::poll_interval::Observed;
use crate::domain::task::TaskStatus;
use crate::domain::time::{Millis, Now, Tick};
use crate::engine::scheduler::parts::download_queue::DownloadTurn;
use crate::engine::scheduler::parts::job_counts::{CountedAs, NextAction};
pub use crate::engine::scheduler::parts::open_job::attempt_progress::WaitReason;
use crate::engine::scheduler::parts::open_job::attempt_progress::{
    AttemptProgress, DownloadProgress, TickOrNone,
};
use crate::store::JobRecord;

/// A link that was read so long before its download began may have expired meanwhile.
const LINK_FRESH_FOR: Millis = Millis::from_secs(5);

/// See the module's documentation.
#[derive(Debug)]
pub struct OpenJob {
    record: JobRecord,
    spec: Arc<JobSpec>,
    /// The present attempt, and those beside it whose tasks have not ended: mostly one.
    attempts: ThinVec<AttemptProgress>,
    /// What it was last counted as.
    counted: Option<CountedAs>,
}

impl OpenJob {
    /// A job of which this process knows no more than its record.
    pub fn new(record: JobRecord, spec: Arc<JobSpec>) -> OpenJob {
        let mut open = OpenJob { record, spec, attempts: ThinVec::new(), counted: None };
        open.forget_ended_attempts();
        open
    }

    /// Its key.
    pub fn key(&self) -> JobKey {
        self.record.key
    }

    /// What is durable of it.
    pub fn record(&self) -> &JobRecord {
        &self.record
    }

    /// What became of it so far.
    pub fn job(&self) -> &Job {
        &self.record.job
    }

    /// What is wanted.
    pub fn spec(&self) -> &Arc<JobSpec> {
        &self.spec
    }

    /// What is wanted and what became of it, once it is not open any more.
    pub fn into_parts(self) -> (Arc<JobSpec>, JobRecord) {
        (self.spec, self.record)
    }

    /// Takes over what an event made of it. Returns what it was.
    pub fn replace_job(&mut self, mut job: Job) -> Job {
        job.shrink_to_fit();
        std::mem::replace(&mut self.record.job, job)
    }

    /// Takes up what its row says about a review, where it has succeeded.
    pub fn note_review(&mut self) {
        self.record.job.note_review(&self.spec.order);
    }

    /// Lets it cost more, or less, than its row says; in credits.
    pub fn set_max_credits(&mut self, max_credits: Option<Credits>) {
        self.record.job.set_max_credits(max_credits);
    }

    /// The attempts beside the present one whose tasks were not read within this span, or could not be read since, each with
    /// whether it can be read at once: one that is being read, or could not be, comes by itself.
    pub fn unread_attempts(&self, now: Tick, within: Millis) -> impl Iterator<Item = (AttemptNo, bool)> {
        let present = self.record.job.attempt();
        let is_unread = move |of: &AttemptProgress| of.no != present && !of.was_read_within(now, within);
        let others = self.attempts.iter().filter(move |of| is_unread(of));
        others.map(|of| (of.no, !of.is_busy && of.faults == 0))
    }

    /// Whether some of these are read before another attempt is paid for.
    pub fn is_read_first(&self, now: Tick, within: Millis) -> bool {
        self.unread_attempts(now, within).next().is_some()
    }

    /// Whether reading the task of an attempt has failed so often in a row that nobody waits for it.
    pub fn is_unreadable(&self, attempt: AttemptNo) -> bool {
        self.of(attempt).is_some_and(AttemptProgress::is_unreadable)
    }

    /// Whether the task of an attempt was read within this span and ran, and no reading has failed since.
    pub fn was_read_within(&self, attempt: AttemptNo, now: Tick, within: Millis) -> bool {
        self.of(attempt).is_some_and(|of| of.was_read_within(now, within))
    }

    /// Whether it waits in the queue.
    pub fn is_queued(&self) -> bool {
        matches!(self.record.job.state(), State::Queued)
    }

    /// Whether it waits in the queue until the task of an earlier attempt is read, which nobody waits for any longer.
    pub fn waits_for_unreadable(&self) -> bool {
        let mut others = self.attempts.iter().filter(|of| of.no != self.record.job.attempt());
        self.is_queued() && others.any(AttemptProgress::is_unreadable)
    }

    /// Forgets its links, so that its task is read again for fresh ones.
    pub fn forget_links(&mut self) {
        self.record.job.forget_links();
    }

    /// The attempts that may want something: the present one, and those beside it whose tasks have not ended.
    pub fn open_attempts(&self) -> impl Iterator<Item = AttemptNo> {
        self.attempts.iter().map(|of| of.no)
    }

    /// Keeps what is known of the present attempt and of those beside it whose tasks have not ended. Returns the others,
    /// which want nothing any more.
    pub fn forget_ended_attempts(&mut self) -> Vec<AttemptNo> {
        let job = &self.record.job;
        let is_open =
            |no: AttemptNo| no == job.attempt() || job.watched_attempts().any(|other| other.no() == no);
        let ended: Vec<AttemptNo> = self.open_attempts().filter(|no| !is_open(*no)).collect();
        self.attempts.retain(|of| is_open(of.no));
        for no in job.watched_attempts().map(Attempt::no).chain([job.attempt()]) {
            if let Err(place) = self.attempts.binary_search_by_key(&no, |of| of.no) {
                self.attempts.reserve_exact(1);
                self.attempts.insert(place, AttemptProgress::of_new(no));
            }
        }
        ended
    }

    /// What an attempt wants next.
    pub fn wants(&self, attempt: AttemptNo) -> Want {
        lifecycle::wants_of(&self.record.job, attempt)
    }

    /// What this process knows of an attempt; nothing where it wants nothing any more.
    fn progress(&mut self, attempt: AttemptNo) -> Option<&mut AttemptProgress> {
        self.attempts.iter_mut().find(|of| of.no == attempt)
    }

    fn of(&self, attempt: AttemptNo) -> Option<&AttemptProgress> {
        self.attempts.iter().find(|of| of.no == attempt)
    }

    fn of_present(&self) -> Option<&AttemptProgress> {
        self.of(self.record.job.attempt())
    }

    /// What this process knows of the download of an attempt; nothing where that wants nothing any more.
    fn download(&mut self, attempt: AttemptNo) -> Option<&mut DownloadProgress> {
        Some(self.progress(attempt)?.download.get_or_insert_default())
    }

    /// Whether it is sent with inputs that are still to be found.
    pub fn lacks_found_inputs(&self) -> bool {
        self.spec.order.inputs_to_find() > 0 && self.record.job.present().inputs().is_empty()
    }

    /// Whether it waits for a result host that is not available.
    pub fn waits_for_result_host(&self) -> bool {
        let download = self.of_present().and_then(|of| of.download.as_ref());
        matches!(self.record.job.state(), State::Fetching { .. })
            && download.is_some_and(|of| of.unavailable > 0)
    }

    /// Whether an effect of its present attempt is under way.
    pub fn is_busy(&self) -> bool {
        self.of_present().is_some_and(|present| present.is_busy)
    }

    /// Whether an effect of an attempt is under way.
    pub fn is_attempt_busy(&self, attempt: AttemptNo) -> bool {
        self.of(attempt).is_some_and(|of| of.is_busy)
    }

    /// An effect of an attempt begins.
    pub fn effect_began(&mut self, attempt: AttemptNo) {
        self.progress(attempt).into_iter().for_each(|of| of.is_busy = true);
    }

    /// Its download begins, when so much is known of the versions of edited rows of its batch, in bytes.
    pub fn fetch_began(&mut self, attempt: AttemptNo, versions_bytes: u64, now: Tick) {
        self.download(attempt).into_iter().for_each(|of| {
            of.versions_bytes = versions_bytes;
            // Those of an earlier process are as old as they may be.
            of.had_old_links = of.links_since.is_none_or(|since| now.since(since) >= LINK_FRESH_FOR);
            of.renews_links = false;
        });
    }

    /// The result host refused a link of its download; fresh ones are read next. True: it was not fresh when the download
    /// began, so that the refusal says nothing of the next; at most for a span of `most`.
    pub fn link_refused(&mut self, attempt: AttemptNo, now: Tick, most: Millis) -> bool {
        self.download(attempt).is_some_and(|of| {
            of.renews_links = true;
            of.had_old_links && now.since(*of.expiring_since.get_or_insert(now)) < most
        })
    }

    /// Whether more is known of them since.
    pub fn has_newer_versions(&self, attempt: AttemptNo, versions_bytes: u64) -> bool {
        let known = |of: &AttemptProgress| of.download.as_ref().map_or(0, |download| download.versions_bytes);
        self.of(attempt).is_some_and(|of| known(of) != versions_bytes)
    }

    /// An effect of an attempt came to an end. Returns its faults in a row so far.
    pub fn effect_ended(&mut self, attempt: AttemptNo) -> u32 {
        self.progress(attempt).map_or(0, |of| {
            of.is_busy = false;
            of.faults
        })
    }

    /// A timer is set for what an attempt wants next, or none is any more: then it has waited.
    pub fn set_timed(&mut self, attempt: AttemptNo, is_timed: bool) {
        self.progress(attempt).into_iter().for_each(|of| {
            of.is_timed = is_timed;
            if !is_timed {
                of.wait_reason = WaitReason::Usual;
            }
        });
    }

    /// What an attempt wants next waits for this reason, until its timer has run out.
    pub fn set_wait_reason(&mut self, attempt: AttemptNo, reason: WaitReason) {
        self.progress(attempt).into_iter().for_each(|of| of.wait_reason = reason);
    }

    /// Why what its present attempt wants next waits.
    pub fn wait_reason(&self) -> WaitReason {
        self.of_present().map_or(WaitReason::Usual, |present| present.wait_reason)
    }

    /// What was tried did not work. Returns how often in a row before.
    pub fn count_fault(&mut self, attempt: AttemptNo) -> u32 {
        self.progress(attempt).map_or(0, |of| {
            let before = of.faults;
            of.faults = before.saturating_add(1);
            before
        })
    }

    /// What was tried worked.
    pub fn reset_faults(&mut self, attempt: AttemptNo) {
        self.progress(attempt).into_iter().for_each(|of| (of.faults, of.missing) = (0, 0));
    }

    /// The task of an attempt was read.
    pub fn task_was_read(&mut self, attempt: AttemptNo) {
        self.progress(attempt).into_iter().for_each(|of| (of.was_read, of.faults, of.missing) = (true, 0, 0));
    }

    /// The task of an attempt was not found. Returns how often in a row, and for how long.
    pub fn count_missing(&mut self, attempt: AttemptNo, now: Tick) -> (u8, Millis) {
        self.progress(attempt).map_or((0, Millis(0)), |of| {
            if of.missing == 0 {
                of.missing_since_s = u32::try_from(now.0 / 1000).unwrap_or(u32::MAX);
            }
            of.missing = of.missing.saturating_add(1);
            (of.missing, now.since(Tick(u64::from(of.missing_since_s) * 1000)))
        })
    }

    /// Its download failed. Returns how many others in a row did before.
    pub fn count_fetch_fault(&mut self, attempt: AttemptNo) -> u32 {
        self.download(attempt).map_or(0, |of| {
            of.faults = of.faults.saturating_add(1);
            of.faults - 1
        })
    }

    /// The result host of its download answered, whatever came of it.
    pub fn result_host_answered(&mut self, attempt: AttemptNo) {
        self.download(attempt).into_iter().for_each(|of| (of.unavailable, of.unavailable_since) = (0, None));
    }

    /// The result host of its download was not available. Returns how many times in a row it was not before, and since
    /// when it is not.
    pub fn count_unavailable(&mut self, attempt: AttemptNo, now: Tick) -> (u32, Tick) {
        self.download(attempt).map_or((0, now), |of| {
            of.unavailable = of.unavailable.saturating_add(1);
            (of.unavailable - 1, *of.unavailable_since.get_or_insert(now))
        })
    }

    /// Its download gave its slot up to another. Returns how often it did before.
    pub fn count_slow_round(&mut self, attempt: AttemptNo) -> u32 {
        self.download(attempt).map_or(0, |of| {
            of.slow_rounds = of.slow_rounds.saturating_add(1);
            of.slow_rounds - 1
        })
    }

    /// The object store refused its outputs while it takes others. Returns how often it did before.
    pub fn count_refused(&mut self, attempt: AttemptNo) -> u32 {
        self.download(attempt).map_or(0, |of| {
            of.refused = of.refused.saturating_add(1);
            of.refused - 1
        })
    }

    /// When its download has its turn.
    pub fn download_turn(&self) -> DownloadTurn {
        match self.of_present().and_then(|present| present.download.as_ref()) {
            Some(download) if download.slow_rounds > 0 => DownloadTurn::Last,
            Some(download) if download.renews_links => DownloadTurn::First,
            _ => DownloadTurn::Usual,
        }
    }

    /// Its present attempt is in flight from now on, as far as this process knows.
    pub fn set_in_flight(&mut self, now: Now) {
        let present = self.record.job.attempt();
        let used = self.record.job.deadline_from().map_or(Millis(0), |from| now.wall.since(from));
        if let Some(of) = self.progress(present) {
            of.in_flight_since = now.tick.into();
            of.used_before_s = u32::try_from(used.0.div_ceil(1000)).unwrap_or(u32::MAX);
            (of.watch_is_over, of.runs_after_watch) = (false, false);
        }
    }

    /// How much of the time until its deadline has passed: before this process by the calendar, and then by the clock that
    /// never steps.
    pub fn used_of_deadline(&self, now: Tick) -> Option<Millis> {
        let of = self.of_present()?;
        let seen = now.since(of.in_flight_since.get()?);
        Some(Millis(seen.0.saturating_add(u64::from(of.used_before_s) * 1000)))
    }

    /// The watch of an attempt's task is over. Returns whether a reading has shown since then that it runs, or its request was
    /// answered without one. The answer to its POST is no reading.
    pub fn watch_is_over(&mut self, attempt: AttemptNo) -> bool {
        self.progress(attempt).is_none_or(|of| {
            of.watch_is_over = true;
            of.runs_after_watch
        })
    }

    /// For how long this process has had its present attempt in flight.
    pub fn in_flight_for(&self, now: Tick) -> Option<Millis> {
        self.of_present()?.in_flight_since.get().map(|since| now.since(since))
    }

    /// For how long the task of an attempt has been seen by this process; nothing before it was read.
    pub fn seen_for(&self, attempt: AttemptNo, now: Tick) -> Option<Millis> {
        self.of(attempt)?.task_since.get().map(|since| now.since(since))
    }

    /// The POST of an attempt was answered, and nothing tells whether it has a task.
    pub fn was_answered_without_task(&mut self, attempt: AttemptNo, now: Tick) {
        self.progress(attempt)
            .into_iter()
            .for_each(|of| (of.last_running, of.runs_after_watch) = (now.into(), of.watch_is_over));
    }

    /// The answer to an attempt's POST showed its task; only that of a first POST tells when the task was created.
    pub fn task_was_created(&mut self, attempt: AttemptNo, at: Option<Tick>) {
        self.progress(attempt).into_iter().for_each(|of| of.task_created = at.into());
    }

    /// The task of an attempt was seen in this status. Returns how long it ran, where it succeeded and that is known.
    pub fn observe(&mut self, attempt: AttemptNo, status: &TaskStatus, now: Tick) -> Option<Observed> {
        let of = self.progress(attempt)?;
        of.task_since = of.task_since.get().unwrap_or(now).into();
        match status {
            TaskStatus::Success => {
                of.download.get_or_insert_default().links_since = Some(now);
                let (created, last_running) = of.task_created.take().zip(of.last_running.get())?;
                Some(Observed { created, last_running, ended: now })
            }
            TaskStatus::Failed | TaskStatus::Canceled => {
                (of.task_since, of.task_created, of.last_running) =
                    (TickOrNone::NONE, TickOrNone::NONE, TickOrNone::NONE);
                None
            }
            _ => {
                of.last_running = now.into();
                of.runs_after_watch = of.watch_is_over && of.was_read;
                None
            }
        }
    }

    /// What it will do by itself, as it was counted last.
    pub fn action(&self) -> Option<NextAction> {
        self.counted.map(|counted_as| counted_as.action)
    }

    /// What it was last counted as.
    pub(super) fn counted(&self) -> Option<CountedAs> {
        self.counted
    }

    /// Notes what it is counted as. Returns what it was before.
    pub(super) fn set_counted(&mut self, counted: Option<CountedAs>) -> Option<CountedAs> {
        std::mem::replace(&mut self.counted, counted)
    }

    /// What it is to be counted as.
    pub(super) fn count_as(&self) -> CountedAs {
        let job = &self.record.job;
        let present = self.of_present();
        let is_timed = present.is_some_and(|of| of.is_timed);
        let action = match lifecycle::wants(job.state()) {
            Want::Admission if is_timed => NextAction::NextAttempt,
            // An overdue one is waited for until it was tried once since the start.
            Want::Post if !job.is_overdue() || present.is_none_or(|of| of.faults == 0) => NextAction::Post,
            Want::Read if !job.is_overdue() || present.is_none_or(AttemptProgress::is_to_be_read) => {
                NextAction::Read
            }
            Want::Fetch => NextAction::Fetch,
            Want::Admission | Want::Post | Want::Read | Want::Nothing => NextAction::Nothing,
        };
        let is_queued = self.is_queued();
        let is_fetching = matches!(job.state(), State::Fetching { .. });
        let download = present.filter(|_| is_fetching).and_then(|of| of.download.as_ref());
        let mut others = self.attempts.iter().filter(|of| of.no != job.attempt());
        CountedAs {
            state: job.state().job_state(),
            holds_slot: job.holds_slot(),
            busy: self.attempts.iter().any(|of| of.is_busy),
            refused: download.is_some_and(|of| of.refused > 0),
            unavailable: self.waits_for_result_host(),
            overdue: job.is_overdue()
                && matches!(job.state(), State::Submitting { .. } | State::Running { .. }),
            never_sent: is_queued && job.first_sent().is_none(),
            unread: others.any(AttemptProgress::is_to_be_read),
            action,
            held_in_queue: if is_queued { job.books().held } else { Credits::ZERO },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Seq, TaskId};
    use crate::domain::job::HistoryLine;
    use crate::domain::lifecycle::{AttemptRules, Event};
    use crate::domain::request::Kind;
    use crate::domain::task::{PostAnswer, TaskReading};
    use crate::domain::time::Timestamp;
    use crate::domain::utc_day::UtcDay;
    use crate::engine::scheduler::tests::spec;

    const FIRST: AttemptNo = AttemptNo::FIRST;

    fn apply(open: &mut OpenJob, event: Event) {
        let rules = AttemptRules { attempts: 3, keyed: true };
        let applied = lifecycle::apply(open.job(), open.job().attempt(), event, rules, Timestamp(5));
        open.replace_job(applied.unwrap().job);
    }

    /// A job whose first attempt has a task.
    fn running() -> OpenJob {
        let (spec, key) = (spec(0, Kind::Video), JobKey { batch: BatchNo(1), seq: Seq(0) });
        let mut open = OpenJob::new(JobRecord { key, id: spec.id, row_at: 0, job: Job::queued() }, spec);
        apply(&mut open, Event::Admit { hold: Credits(10), day: UtcDay(0) });
        let task = TaskReading {
            id: TaskId("t".into()),
            status: TaskStatus::Processing,
            model: None,
            options: None,
            charged: Some(Credits(10)),
            waived: Some(Credits::ZERO),
            urls: vec![],
            fault: None,
            record: None,
        };
        apply(&mut open, Event::Posted(PostAnswer::Task(task)));
        open
    }

    fn in_seconds((times, seconds): (u8, u64)) -> (u8, Millis) {
        (times, Millis::from_secs(seconds))
    }

    #[test]
    fn an_attempt_in_flight_takes_no_memory_for_a_download_that_it_does_not_have_yet() {
        let mut open = running();
        open.observe(FIRST, &TaskStatus::Processing, Tick(1));
        assert!(open.of(FIRST).unwrap().download.is_none());
        open.observe(FIRST, &TaskStatus::Success, Tick(2));
        assert!(open.of(FIRST).unwrap().download.is_some());
    }

    #[test]
    fn a_job_in_flight_takes_little_memory_beside_its_texts() {
        // In bytes; the benchmark `in_flight` counts them with the texts, the timers and the tables.
        let sizes = [
            ("open job", size_of::<OpenJob>(), 152),
            ("progress of an attempt", size_of::<AttemptProgress>(), 64),
            ("attempt", size_of::<Attempt>(), 96),
            ("row", size_of::<JobSpec>(), 144),
            ("line of the history", size_of::<HistoryLine>(), 64),
        ];
        for (what, size, most) in sizes {
            assert!(size <= most, "{what}: {size} bytes instead of {most}");
        }
    }

    #[test]
    fn what_is_known_of_a_resubmitted_attempt_stays_its_own() {
        let mut open = running();
        open.effect_began(FIRST);
        open.count_fault(FIRST);
        assert_eq!(open.forget_ended_attempts(), []);
        apply(&mut open, Event::Resubmit);
        assert_eq!(open.forget_ended_attempts(), []);
        assert!(!open.is_busy() && open.is_attempt_busy(FIRST));
        assert_eq!((open.wants(FIRST), open.wants(AttemptNo(2))), (Want::Read, Want::Admission));
        assert_eq!(open.count_as().action, NextAction::Nothing, "the next attempt waits for admission");
        assert!(open.count_as().busy, "a reading of the first is under way");
        assert_eq!(open.effect_ended(FIRST), 1);
        let missing = |open: &mut OpenJob, s: u64| open.count_missing(FIRST, Tick(s * 1000));
        assert_eq!([1, 5, 9].map(|s| missing(&mut open, s)), [(1, 0), (2, 4), (3, 8)].map(in_seconds));
        open.reset_faults(FIRST);
        assert_eq!((missing(&mut open, 10), open.effect_ended(AttemptNo(2))), (in_seconds((1, 0)), 0));
    }

    #[test]
    fn an_attempt_beside_the_present_one_is_unread_until_it_is_seen_and_open_until_its_task_ends() {
        let mut open = running();
        apply(&mut open, Event::Resubmit);
        let mut again = OpenJob::new(open.record().clone(), open.spec().clone());
        assert_eq!(again.open_attempts().collect::<Vec<_>>(), [FIRST, AttemptNo(2)]);
        assert!(again.count_as().unread);
        again.observe(FIRST, &TaskStatus::Processing, Tick(1));
        assert!(!again.count_as().unread);
        again.replace_job(Job::at(AttemptNo(2), State::Queued));
        assert_eq!(again.forget_ended_attempts(), [FIRST]);
        assert_eq!(again.wants(FIRST), Want::Nothing);
    }

    #[test]
    fn how_long_a_task_ran_is_known_only_of_one_that_was_seen_from_its_creation_on() {
        let mut open = running();
        assert_eq!(open.seen_for(FIRST, Tick(4)), None);
        open.task_was_created(FIRST, Some(Tick(1)));
        assert_eq!(open.observe(FIRST, &TaskStatus::Processing, Tick(5)), None);
        let observed = Observed { created: Tick(1), last_running: Tick(5), ended: Tick(9) };
        assert_eq!(open.observe(FIRST, &TaskStatus::Success, Tick(9)), Some(observed));
        assert_eq!(open.observe(FIRST, &TaskStatus::Success, Tick(9)), None, "once");
        assert_eq!(open.seen_for(FIRST, Tick(9)), Some(Millis(4)));
        open.observe(FIRST, &TaskStatus::Failed, Tick(9));
        assert_eq!(open.seen_for(FIRST, Tick(9)), None, "the next task is another");
    }

    #[test]
    fn an_overdue_job_is_waited_for_until_it_was_tried_once() {
        let mut open = running();
        assert_eq!(open.count_as().action, NextAction::Read);
        apply(&mut open, Event::Overdue);
        assert_eq!(open.count_as().action, NextAction::Read);
        open.observe(FIRST, &TaskStatus::Processing, Tick(5));
        assert_eq!(open.count_as().action, NextAction::Nothing);
        assert!(!open.count_as().holds_slot);
    }
}
