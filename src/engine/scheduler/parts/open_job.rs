//! A job that has begun and not ended, with what this process knows of it beyond its record.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, JobKey, TaskId};
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::lifecycle::{self, Want};
use crate::domain::poll_interval::Observed;
use crate::domain::task::TaskStatus;
use crate::domain::time::{Millis, Tick, Timestamp};
use crate::engine::scheduler::parts::job_counts::{CountedAs, NextAction};
use crate::store::JobRecord;

/// See the module's documentation.
#[derive(Debug)]
pub struct OpenJob {
    record: JobRecord,
    spec: Arc<JobSpec>,
    /// An effect of it is under way.
    is_busy: bool,
    /// A timer is set for what it wants next.
    is_timed: bool,
    /// Faults in a row, of whatever is being tried.
    faults: u32,
    /// Downloads in a row that failed; fresh links alone are no progress.
    fetch_faults: u32,
    /// How often its download gave its slot up to another.
    slow_rounds: u32,
    /// Since when this process has had its present attempt in flight.
    in_flight_since: Option<Tick>,
    /// When its present task was first seen by this process.
    task_since: Option<Tick>,
    /// When the first answer to its POST showed the task running: only then it is known how long it has run.
    task_created: Option<Tick>,
    /// When its task was last seen running.
    last_running: Option<Tick>,
    /// Tasks of other attempts that are watched beside it.
    watches: BTreeMap<AttemptNo, TaskWatch>,
    /// What it was last counted as.
    counted: Option<CountedAs>,
}

/// What this process knows of the task of a superseded attempt, which is watched.
#[derive(Debug, Default, Clone, Copy)]
struct TaskWatch {
    /// It is being read.
    is_busy: bool,
    /// It was read since the start.
    is_seen: bool,
    /// Readings in a row that did not find it.
    faults: u32,
}

/// Which superseded attempts are watched from now on, and which no more.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WatchChanges {
    /// Watched no more.
    pub ended: Vec<AttemptNo>,
    /// Watched from now on, and since when their jobs were resubmitted.
    pub begun: Vec<(AttemptNo, Timestamp)>,
}

impl OpenJob {
    /// A job of which this process knows no more than its record.
    pub fn new(record: JobRecord, spec: Arc<JobSpec>) -> OpenJob {
        OpenJob {
            record,
            spec,
            is_busy: false,
            is_timed: false,
            faults: 0,
            fetch_faults: 0,
            slow_rounds: 0,
            in_flight_since: None,
            task_since: None,
            task_created: None,
            last_running: None,
            watches: BTreeMap::new(),
            counted: None,
        }
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
    pub fn replace_job(&mut self, job: Job) -> Job {
        std::mem::replace(&mut self.record.job, job)
    }

    /// Lets it cost more, or less, than its row says; in credits.
    pub fn set_max_credits(&mut self, max_credits: Option<Credits>) {
        self.record.job.set_max_credits(max_credits);
    }

    /// Forgets its links, so that its task is read again for fresh ones.
    pub fn forget_links(&mut self) {
        self.record.job.forget_links();
    }

    /// Whether an effect of it is under way.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// An effect of it begins.
    pub fn effect_began(&mut self) {
        self.is_busy = true;
    }

    /// Its effect came to an end. Returns its faults in a row so far.
    pub fn effect_ended(&mut self) -> u32 {
        self.is_busy = false;
        self.faults
    }

    /// A timer is set for what it wants next, or none is any more.
    pub fn set_timed(&mut self, is_timed: bool) {
        self.is_timed = is_timed;
    }

    /// What was tried did not work.
    pub fn count_fault(&mut self) {
        self.faults = self.faults.saturating_add(1);
    }

    /// What was tried worked.
    pub fn reset_faults(&mut self) {
        self.faults = 0;
    }

    /// Its download failed. Returns how many others in a row did before.
    pub fn count_fetch_fault(&mut self) -> u32 {
        let before = self.fetch_faults;
        self.fetch_faults = before.saturating_add(1);
        before
    }

    /// Its download gave its slot up to another. Returns how often it did before.
    pub fn count_slow_round(&mut self) -> u32 {
        let before = self.slow_rounds;
        self.slow_rounds = before.saturating_add(1);
        before
    }

    /// Whether its download gave its slot up to another.
    pub fn is_slow(&self) -> bool {
        self.slow_rounds > 0
    }

    /// Its present attempt is in flight from now on, as far as this process knows.
    pub fn set_in_flight(&mut self, now: Tick) {
        self.in_flight_since = Some(now);
    }

    /// For how long this process has had its present attempt in flight.
    pub fn in_flight_for(&self, now: Tick) -> Option<Millis> {
        self.in_flight_since.map(|since| now.since(since))
    }

    /// For how long its present task has been seen by this process; nothing before it was read.
    pub fn seen_for(&self, now: Tick) -> Option<Millis> {
        self.task_since.map(|since| now.since(since))
    }

    /// The answer to its POST showed its task; only that of a first POST tells when the task was created.
    pub fn task_was_created(&mut self, at: Option<Tick>) {
        self.task_created = at;
    }

    /// Its task was seen in this status. Returns how long it ran, where it succeeded and that is known.
    pub fn observe(&mut self, status: &TaskStatus, now: Tick) -> Option<Observed> {
        self.task_since.get_or_insert(now);
        match status {
            TaskStatus::Success => {
                let (created, last_running) = self.task_created.take().zip(self.last_running)?;
                Some(Observed { created, last_running, ended: now })
            }
            TaskStatus::Failed | TaskStatus::Canceled => {
                (self.task_since, self.task_created, self.last_running) = (None, None, None);
                None
            }
            _ => {
                self.last_running = Some(now);
                None
            }
        }
    }

    /// Watches what its last change left to be watched, and nothing else. `before` is the attempt it was at: an exchange
    /// that is under way belongs to that.
    pub fn update_watches(&mut self, before: AttemptNo) -> WatchChanges {
        let job = &self.record.job;
        let present = job.attempt();
        if present == before && self.watches.is_empty() && job.resubmitted_attempts().next().is_none() {
            return WatchChanges::default();
        }
        let watched = job.watched_attempts();
        let watched: Vec<(AttemptNo, Timestamp)> =
            watched.filter_map(|other| Some((other.no(), other.watched_since()?))).collect();
        let is_watched = |attempt: &AttemptNo| watched.iter().any(|(watched, _)| watched == attempt);
        let ended: Vec<AttemptNo> =
            self.watches.keys().copied().filter(|attempt| !is_watched(attempt)).collect();
        for attempt in &ended {
            self.watches.remove(attempt);
        }
        let was_busy = present != before && self.is_busy;
        if present != before {
            (self.is_busy, self.faults, self.fetch_faults, self.task_since) = (false, 0, 0, None);
        }
        let mut begun = watched;
        begun.retain(|(attempt, _)| !self.watches.contains_key(attempt));
        for (attempt, _) in &begun {
            let is_busy = was_busy && *attempt == before;
            self.watches.insert(*attempt, TaskWatch { is_busy, is_seen: present != before, faults: 0 });
        }
        WatchChanges { ended, begun }
    }

    /// Whether the task of a superseded attempt is watched.
    pub fn is_watched(&self, attempt: AttemptNo) -> bool {
        self.watches.contains_key(&attempt)
    }

    /// Whether the task of a watched attempt was not read since the start.
    pub fn is_unread(&self, attempt: AttemptNo) -> bool {
        self.watches.get(&attempt).is_some_and(|watch| !watch.is_seen)
    }

    /// The task of a watched attempt is to be read; nothing while it is being read.
    pub fn begin_watched_read(&mut self, attempt: AttemptNo) -> Option<TaskId> {
        let task = self.record.job.task_of(attempt)?.clone();
        let watch = self.watches.get_mut(&attempt).filter(|watch| !watch.is_busy)?;
        watch.is_busy = true;
        Some(task)
    }

    /// Reading the task of a watched attempt came to an end. Returns how often in a row it was not found.
    pub fn watched_read_ended(&mut self, attempt: AttemptNo, is_missing: bool) -> Option<u32> {
        let watch = self.watches.get_mut(&attempt)?;
        (watch.is_busy, watch.is_seen) = (false, true);
        watch.faults = if is_missing { watch.faults + 1 } else { 0 };
        Some(watch.faults)
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
        let action = match lifecycle::wants(job.state()) {
            Want::Admission if self.is_timed => NextAction::NextAttempt,
            // An overdue one is waited for until it was tried once since the start.
            Want::Post if !job.is_overdue() || self.faults == 0 => NextAction::Post,
            Want::Read if !job.is_overdue() || self.task_since.is_none() => NextAction::Read,
            Want::Fetch => NextAction::Fetch,
            Want::Admission | Want::Post | Want::Read | Want::Nothing => NextAction::Nothing,
        };
        let is_queued = matches!(job.state(), State::Queued);
        CountedAs {
            state: job.state().job_state(),
            holds_slot: job.holds_slot(),
            busy: self.is_busy || self.watches.values().any(|watch| watch.is_busy),
            never_sent: is_queued && job.first_sent().is_none(),
            unread: self.watches.values().any(|watch| !watch.is_seen),
            action,
            held_in_queue: if is_queued { job.books().held } else { Credits::ZERO },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Seq};
    use crate::domain::lifecycle::{AttemptRules, Event};
    use crate::domain::request::Kind;
    use crate::domain::task::{PostAnswer, TaskReading};
    use crate::domain::time::UtcDay;
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
            charged: Credits(10),
            waived: Credits::ZERO,
            urls: vec![],
            fault: None,
            record: None,
        };
        apply(&mut open, Event::Posted(PostAnswer::Task(task)));
        open
    }

    #[test]
    fn the_exchange_of_a_resubmitted_attempt_goes_on_as_its_watch() {
        let mut open = running();
        open.effect_began();
        open.count_fault();
        assert_eq!(open.update_watches(FIRST), WatchChanges::default());
        apply(&mut open, Event::Resubmit);
        let begun = vec![(FIRST, Timestamp(5))];
        assert_eq!(open.update_watches(FIRST), WatchChanges { ended: vec![], begun });
        assert!(!open.is_busy() && open.is_watched(FIRST) && !open.is_unread(FIRST));
        assert_eq!(open.count_as().action, NextAction::Nothing, "the next attempt waits for admission");
        assert!(open.count_as().busy, "a reading of the first is under way");
        assert_eq!(open.begin_watched_read(FIRST), None);
        assert_eq!(open.watched_read_ended(FIRST, true), Some(1));
        assert_eq!(open.begin_watched_read(FIRST), Some(TaskId("t".into())));
        assert_eq!(open.watched_read_ended(FIRST, true), Some(2));
        assert_eq!(open.watched_read_ended(FIRST, false), Some(0));
    }

    #[test]
    fn a_watch_that_is_taken_up_is_unread_and_ends_with_its_task() {
        let mut open = running();
        apply(&mut open, Event::Resubmit);
        let mut again = OpenJob::new(open.record().clone(), open.spec().clone());
        let present = again.job().attempt();
        assert_eq!(again.update_watches(present).begun, [(FIRST, Timestamp(5))]);
        assert!(again.is_unread(FIRST) && again.count_as().unread);
        again.replace_job(Job::queued());
        assert_eq!(again.update_watches(FIRST).ended, [FIRST]);
        assert!(!again.is_watched(FIRST));
    }

    #[test]
    fn how_long_a_task_ran_is_known_only_of_one_that_was_seen_from_its_creation_on() {
        let mut open = running();
        assert_eq!(open.seen_for(Tick(4)), None);
        open.task_was_created(Some(Tick(1)));
        assert_eq!(open.observe(&TaskStatus::Processing, Tick(5)), None);
        let observed = Observed { created: Tick(1), last_running: Tick(5), ended: Tick(9) };
        assert_eq!(open.observe(&TaskStatus::Success, Tick(9)), Some(observed));
        assert_eq!(open.observe(&TaskStatus::Success, Tick(9)), None, "once");
        assert_eq!(open.seen_for(Tick(9)), Some(Millis(4)));
        open.observe(&TaskStatus::Failed, Tick(9));
        assert_eq!(open.seen_for(Tick(9)), None, "the next task is another");
    }

    #[test]
    fn an_overdue_job_is_waited_for_until_it_was_tried_once() {
        let mut open = running();
        assert_eq!(open.count_as().action, NextAction::Read);
        apply(&mut open, Event::Overdue);
        assert_eq!(open.count_as().action, NextAction::Read);
        open.observe(&TaskStatus::Processing, Tick(5));
        assert_eq!(open.count_as().action, NextAction::Nothing);
        assert!(!open.count_as().holds_slot);
    }
}
