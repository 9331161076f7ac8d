//! What came in: answers, downloads, rows and the balance.

use std::sync::Arc;

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::job::{Attempt, DOWNLOAD_FAILED, OutputFile, State};
use crate::domain::lifecycle::Event;
use crate::domain::parked_reason::Parked;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer, TaskReading, TaskStatus};
use crate::domain::time::{Millis, Now};
use crate::engine::scheduler::job_log::{self, LogContext};
use crate::engine::scheduler::parts::api_key_refusal::Call;
use crate::engine::scheduler::parts::job_counts::NextAction;
use crate::engine::scheduler::parts::open_job::{OpenJob, WaitReason};
use crate::engine::scheduler::{FetchFault, Input, Mode, NoBalance, Scheduler, SchedulerError, SpooledRow};

/// How often in a row the service may say that it does not know a task before that is believed: the waits between these
/// readings grow as after faults.
const MISSING_MAX: u8 = 8;
/// For how long it says so of a task that was seen running: its other answers may be away for as long, or come from another
/// copy of its records. No longer than overdue tasks are watched.
const MISSING_FOR: Millis = Millis::from_secs(3600);
/// Downloads of a job that may fail in a row before it is given up until somebody asks again.
const FETCH_TRIES_MAX: u32 = 8;
/// After so many downloads in a row whose result host was not available people are told.
const UNAVAILABLE_TOLD: u32 = 4;
/// A wait that the service asks for and that is longer than this is told as a warning.
const LONG_WAIT: Millis = Millis::from_secs(60);
/// The longest wait that a result host can ask for.
const RESULT_HOST_WAIT_MAX: Millis = Millis::from_secs(300);
/// How long a result host that is not available is waited for.
const UNAVAILABLE_MAX: Millis = Millis::from_secs(24 * 3600);

/// For how long links of a job may be refused after they waited, before a refusal counts as a failed download all the same.
const EXPIRING_MAX: Millis = Millis::from_secs(24 * 3600);

impl Scheduler {
    pub(super) fn handle_input(&mut self, input: Input, now: Now) -> Result<(), SchedulerError> {
        match input {
            Input::Posted(key, attempt, answer) => {
                let answer = self.checked_answer(key, attempt, answer);
                let fault = if let PostAnswer::Again { fault, .. } = &answer { Some(fault) } else { None };
                self.outage_detector.note_answer(fault, self.settings.backoff.base, now);
                self.posted(key, attempt, answer, now)
            }
            Input::Read(key, attempt, answer) => {
                self.reading_slots.release();
                let fault = if let ReadAnswer::Again { fault, .. } = &answer { Some(fault) } else { None };
                self.outage_detector.note_answer(fault, self.settings.backoff.base, now);
                self.read(key, attempt, answer, now)
            }
            Input::InputsFound(key, attempt, outcome) => self.inputs_found(key, attempt, outcome, now),
            Input::Ended { batch, jobs } => {
                self.ended_jobs(batch, jobs);
                Ok(())
            }
            Input::Moved { batch, why } => {
                self.inputs.moved(batch);
                job_log::inputs_moved_away(&why);
                Ok(())
            }
            Input::Received(key, attempt) => {
                self.downloads.received(key, attempt);
                Ok(())
            }
            Input::Fetched(key, attempt, outcome) => self.fetched(key, attempt, outcome, now),
            Input::Rows { batch, from, rows } => {
                self.rows(batch, from, rows);
                Ok(())
            }
            Input::Unreadable(damage) => Err(SchedulerError::Rows(damage)),
            Input::Balance(answer) => {
                self.balance_answered(answer, now);
                Ok(())
            }
            Input::Catalog(answer) => {
                self.prices.answered(answer, now.tick);
                Ok(())
            }
            Input::SurchargesKept => {
                self.prices.surcharges_kept();
                Ok(())
            }
            Input::Versions(applied) => self.versions_applied(applied, now),
            Input::Freed(key) => {
                self.scratch.release(key);
                Ok(())
            }
            Input::OutputStoreAnswers(check, answers) => {
                let was_down = self.output_store.is_down();
                self.output_store.answered(check, answers);
                match (was_down, self.output_store.is_down()) {
                    (false, true) => job_log::queue_parked_by_store(),
                    (true, false) => self.store_takes_again(),
                    _ => {}
                }
                Ok(())
            }
            Input::DiskIsLow(is_low) => {
                self.set_disk_low(is_low);
                Ok(())
            }
            Input::FolderRefused(batch, why) => {
                self.set_folder_refused(batch, &why);
                Ok(())
            }
            Input::FolderTakes(batch) => {
                self.folder_takes(batch, now);
                Ok(())
            }
            Input::Stop => {
                tracing::info!("stopping: waiting for requests in flight");
                self.mode = Mode::Stopping;
                Ok(())
            }
        }
    }

    /// What an answer to a job's POST comes to by what is known besides.
    fn checked_answer(&mut self, key: JobKey, attempt: AttemptNo, answer: PostAnswer) -> PostAnswer {
        let named = match &answer {
            PostAnswer::Task(reading) => Some(&reading.id),
            PostAnswer::TaskNamed(task, _) => Some(task),
            _ => None,
        };
        if let Some(task) = named.filter(|task| self.jobs.task_belongs_to_another(key, task)) {
            let text = format!("the service answered with task {task}, which it has made for another job");
            let fault = Fault::new("broken_answer", text);
            return PostAnswer::Again { fault, wait: None, may_have_run: true };
        }
        let of_attempt = self.jobs.get(&key).and_then(|open| open.job().attempt_of(attempt));
        match of_attempt.map(Attempt::state) {
            Some(State::Submitting { may_have_run: true, .. }) => answer.after_a_lost_one(),
            _ => answer,
        }
    }

    fn posted(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        answer: PostAnswer,
        now: Now,
    ) -> Result<(), SchedulerError> {
        let Some(faults) = self.effect_ended(key, attempt) else { return Ok(()) };
        if self.jobs.get(&key).is_some_and(|open| open.job().attempt() != attempt) {
            // It is late: the attempt has a task, or is over.
            return self.apply(key, attempt, Event::Posted(answer), now);
        }
        let wait = match &answer {
            PostAnswer::Again { fault, wait, .. } => {
                if fault.code == "http_429" || fault.code == "rate_limited" {
                    self.adaptive_limit.refused(now.tick, *wait);
                }
                let asked = *wait;
                let wait = self.wait_times.after_fault(faults, asked);
                self.count_fault(key, attempt);
                self.note_wait(key, attempt, asked_for(asked).map(|_| wait), fault, now);
                // While the service is away nothing tells whether it has a task.
                if !self.outage_detector.is_outage()
                    && let Some(mut open) = self.jobs.get_mut(&key)
                {
                    open.was_answered_without_task(attempt, now.tick);
                }
                wait
            }
            PostAnswer::OutOfCredits(_) => {
                if let Some(open) = self.jobs.get(&key) {
                    let need = open.job().books().held;
                    let allowance = self.account.allowance_of(&open.spec().order);
                    self.account.refuse_credits(need, allowance.as_ref(), now);
                }
                Millis(0)
            }
            PostAnswer::Unauthorised(_) => {
                self.account.suspect_key(Call::Post, now.tick);
                Millis(0)
            }
            PostAnswer::Task(_) | PostAnswer::TaskNamed(..) | PostAnswer::Refused(_) => {
                self.adaptive_limit.taken();
                self.reset_faults(key, attempt);
                if !matches!(answer, PostAnswer::Refused(_)) {
                    self.account.post_was_taken();
                }
                Millis(0)
            }
        };
        // One that named a task is read at once; one that nobody paid for waits for the account alone.
        let is_next = matches!(answer, PostAnswer::TaskNamed(..) | PostAnswer::OutOfCredits(_));
        if let PostAnswer::Task(reading) = &answer {
            self.learn_from_task(key, attempt, reading, now);
            if let Some(mut open) = self.jobs.get_mut(&key) {
                // A task that was asked for twice may have run since the first time.
                open.task_was_created(attempt, (faults == 0).then_some(now.tick));
            }
        }
        self.apply(key, attempt, Event::Posted(answer), now)?;
        let again_after = if is_next { Some(Millis(0)) } else { Some(wait).filter(|wait| wait.0 > 0) };
        self.follow_up(key, attempt, again_after, now);
        Ok(())
    }

    fn read(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        answer: ReadAnswer,
        now: Now,
    ) -> Result<(), SchedulerError> {
        let Some(faults) = self.effect_ended(key, attempt) else { return Ok(()) };
        let wait = match answer {
            ReadAnswer::Task(reading) => {
                self.account.task_was_read();
                if let Some(mut open) = self.jobs.get_mut(&key) {
                    open.task_was_read(attempt);
                }
                self.learn_from_task(key, attempt, &reading, now);
                let is_present = self.jobs.get(&key).is_some_and(|open| open.job().attempt() == attempt);
                self.apply(key, attempt, Event::Read(reading), now)?;
                if is_present && self.has_no_results(key) {
                    let fault = Fault::new("no_results", "the task succeeded and lists no result");
                    return self.fetch_failed(key, attempt, FetchFault::Stale(fault), now);
                }
                None
            }
            ReadAnswer::Missing(fault) => {
                self.count_fault(key, attempt);
                self.note_wait_reason(key, attempt, WaitReason::Fault);
                if self.is_missing_for_good(key, attempt, now) {
                    self.apply(key, attempt, Event::TaskMissing(fault), now)?;
                }
                Some(self.wait_times.after_fault(faults, None).max(self.settings.poll_min))
            }
            ReadAnswer::Unauthorised(_) => {
                self.account.suspect_key(Call::ReadTask, now.tick);
                // It is put off for as long as the key is refused, and no longer.
                Some(self.settings.poll_min)
            }
            ReadAnswer::Again { fault, wait: asked } => {
                self.count_fault(key, attempt);
                let wait = self.wait_times.after_fault(faults, asked).max(self.settings.poll_min);
                self.note_wait(key, attempt, asked_for(asked).map(|_| wait), &fault, now);
                Some(wait)
            }
        };
        self.follow_up(key, attempt, wait, now);
        Ok(())
    }

    /// Whether a task that was not found once more is taken for gone. A run does not read an overdue one for an hour: it is
    /// enough that the task has been overdue for an hour when a run finds it missing. Where it has succeeded only its outputs
    /// are lost, which can be asked for again: its charge is known.
    fn is_missing_for_good(&mut self, key: JobKey, attempt: AttemptNo, now: Now) -> bool {
        let watch = self.settings.watch_overdue_for;
        let most = MISSING_FOR.min(watch);
        let is_long_late = self.jobs.get(&key).is_some_and(|open| {
            let is_watched = open.job().is_overdue() || open.job().attempt() != attempt;
            let ends = self.deadline_of(open.spec(), open.job(), attempt).filter(|_| is_watched);
            // One that this process has read was there meanwhile.
            open.seen_for(attempt, now.tick).is_none()
                && ends.is_some_and(|ends| now.wall.after(Millis(watch.0.saturating_sub(most.0))) >= ends)
        });
        let Some(mut open) = self.jobs.get_mut(&key) else { return false };
        let (times, lasted) = open.count_missing(attempt, now.tick);
        let state = open.job().attempt_of(attempt).map(Attempt::state);
        let has_succeeded = matches!(state, Some(State::Fetching { .. }));
        times >= MISSING_MAX && (has_succeeded || is_long_late || lasted >= most)
    }

    /// The question for the balance came to this.
    fn balance_answered(&mut self, answer: Result<Credits, NoBalance>, now: Now) {
        // What is held for a job that waits in the queue, since its state was recovered, is taken off when it is sent.
        let waiting = self.jobs.counts().held_in_queue();
        let held = self.budgets.total().held.saturating_sub(waiting);
        let news = self.account.balance_answered(answer, (self.budgets.charged(), held), now.tick);
        if news.renews_prices {
            self.prices.renew();
        }
        for key in news.unblocked {
            if let Some(present) = self.jobs.get(&key).map(|open| open.job().attempt()) {
                self.schedule(key, present, now.tick);
            }
        }
    }

    fn fetched(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        outcome: Result<Vec<OutputFile>, FetchFault>,
        now: Now,
    ) -> Result<(), SchedulerError> {
        self.downloads.ended(key, attempt);
        if self.effect_ended(key, attempt).is_none() {
            return Ok(());
        }
        match outcome {
            // A manifest came meanwhile that decides what its outputs are called: they are looked at again.
            Ok(_) if self.is_named_anew(key, attempt) => {
                self.follow_up(key, attempt, None, now);
                Ok(())
            }
            Ok(files) => {
                self.scratch.came(key, files.iter().map(|file| file.bytes).sum());
                let is_stored = files.iter().any(|file| file.object.is_some());
                if is_stored && self.output_store.took() {
                    self.store_takes_again();
                }
                self.apply(key, attempt, Event::Fetched(files), now)
            }
            Err(fault) => self.fetch_failed(key, attempt, fault, now),
        }
    }

    /// A download that gave its slot up has not failed: it takes its turn again, behind all that are not slow.
    fn download_yielded(&mut self, key: JobKey, attempt: AttemptNo, fault: &Fault, now: Now) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        let rounds = open.count_slow_round(attempt);
        drop(open);
        if let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key)) {
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            job_log::download_yielded(context, fault);
        }
        let wait = self.wait_times.after_fault(rounds, None);
        self.follow_up(key, attempt, Some(wait), now);
    }

    /// Parks the queue until the object store takes outputs. No try is counted: they are on disk, and wait there.
    fn store_refused(&mut self, key: JobKey, attempt: AttemptNo, fault: &Fault, now: Now) {
        let was_down = self.output_store.is_down();
        let wait = self.wait_times.after_fault(self.output_store.refused(), None);
        if let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key)) {
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            job_log::not_stored(context, fault, wait, was_down);
        }
        self.follow_up(key, attempt, Some(wait), now);
    }

    /// Nothing waits for the object store of outputs any more.
    pub(super) fn store_takes_again(&mut self) {
        job_log::queue_unparked(Parked::Store);
        self.unpark_batches();
    }

    /// Puts one job off: the store refuses what it has, and takes other objects. No try is counted.
    fn object_refused(&mut self, key: JobKey, attempt: AttemptNo, fault: &Fault, now: Now) {
        if self.output_store.took() {
            self.store_takes_again();
        }
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        let before = open.count_refused(attempt);
        drop(open);
        let wait = self.wait_times.after_fault(before, None);
        if let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key)) {
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            job_log::object_refused(context, fault, wait, before == 0);
        }
        self.follow_up(key, attempt, Some(wait), now);
    }

    /// Parks the queue, or lets it go.
    pub(in crate::engine) fn set_disk_low(&mut self, is_low: bool) {
        if self.disk.set_low(is_low) {
            job_log::disk(is_low);
        }
    }

    /// Parks the queue until the disk has room. No try is counted: what is paid for is not given up because others
    /// filled the disk.
    fn disk_refused(&mut self, key: JobKey, attempt: AttemptNo, fault: &Fault, wanted_bytes: u64, now: Now) {
        // Requests that were in flight beside it meet the same.
        if !self.disk.is_low()
            && let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key))
        {
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            job_log::download_given_up(context, fault);
        }
        if self.disk.refuse(wanted_bytes) {
            job_log::disk(true);
        }
        self.follow_up(key, attempt, None, now);
    }

    /// Keeps the batch from buying until its folder can be written to. No try is counted.
    fn folder_refused(&mut self, key: JobKey, attempt: AttemptNo, fault: &Fault, now: Now) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        let faults = open.count_fault(attempt);
        drop(open);
        let wait = self.wait_times.after_fault(faults, None);
        if let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key)) {
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            job_log::download_failed(context, fault, wait);
        }
        self.set_folder_refused(key.batch, &fault.message);
        self.follow_up(key, attempt, Some(wait), now);
    }

    fn set_folder_refused(&mut self, batch: BatchNo, why: &str) {
        if let Some(active) = self.batches.get(&batch)
            && self.refused_folders.refuse(batch)
        {
            job_log::folder_refused(active.record(), why);
        }
    }

    /// Lets a batch go on whose folder can be written to again. What waits for it waits no longer.
    fn folder_takes(&mut self, batch: BatchNo, now: Now) {
        let waits = |open: &&OpenJob| open.key().batch == batch && self.waits_for_folder(open);
        let waiting: Vec<_> =
            self.jobs.iter().filter(waits).map(|open| (open.key(), open.job().attempt())).collect();
        if self.refused_folders.take(batch)
            && let Some(active) = self.batches.get(&batch)
        {
            job_log::folder_takes(active.record());
        }
        for (key, attempt) in waiting {
            self.schedule(key, attempt, now.tick);
        }
    }

    /// Whether a job is to be downloaded again, into a folder that cannot be written to.
    pub(super) fn waits_for_folder(&self, open: &OpenJob) -> bool {
        self.refused_folders.contains(open.key().batch)
            && !open.is_busy()
            && open.action() == Some(NextAction::Fetch)
    }

    fn fetch_failed(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        fault: FetchFault,
        now: Now,
    ) -> Result<(), SchedulerError> {
        // What came of it was removed.
        let is_kept = matches!(
            fault,
            FetchFault::Passing(_)
                | FetchFault::Slow(_)
                | FetchFault::StoreRefuses(_)
                | FetchFault::ObjectRefused(_)
        );
        if !is_kept {
            self.scratch.release(key);
        }
        let unavailable = matches!(fault, FetchFault::Unavailable { .. });
        if !unavailable && let Some(mut open) = self.jobs.get_mut(&key) {
            open.result_host_answered(attempt);
        }
        if let FetchFault::LinkRefused(fault) = &fault
            && self.link_expired(key, attempt, fault, now)
        {
            return Ok(());
        }
        let stale = unavailable || matches!(fault, FetchFault::Stale(_) | FetchFault::LinkRefused(_));
        let (fault, is_over, faults, asked) = match fault {
            FetchFault::Stale(fault) | FetchFault::LinkRefused(fault) | FetchFault::Passing(fault) => {
                let Some(mut open) = self.jobs.get_mut(&key) else { return Ok(()) };
                let faults = open.count_fetch_fault(attempt);
                (fault, faults + 1 >= FETCH_TRIES_MAX, faults, None)
            }
            FetchFault::Unavailable { fault, wait } => {
                let Some(mut open) = self.jobs.get_mut(&key) else { return Ok(()) };
                let (faults, since) = open.count_unavailable(attempt, now.tick);
                (fault, now.tick.since(since) >= UNAVAILABLE_MAX, faults, wait)
            }
            FetchFault::Lasting(fault) => (fault, true, 0, None),
            // The job does not fail here: it waits, without an end, for a slot, the store, the folder or the disk.
            FetchFault::Slow(fault) => {
                self.download_yielded(key, attempt, &fault, now);
                return Ok(());
            }
            FetchFault::StoreRefuses(fault) => {
                self.store_refused(key, attempt, &fault, now);
                return Ok(());
            }
            FetchFault::ObjectRefused(fault) => {
                self.object_refused(key, attempt, &fault, now);
                return Ok(());
            }
            FetchFault::FolderRefuses(fault) => {
                self.folder_refused(key, attempt, &fault, now);
                return Ok(());
            }
            FetchFault::DiskRefuses { fault, wanted_bytes } => {
                self.disk_refused(key, attempt, &fault, wanted_bytes, now);
                return Ok(());
            }
        };
        // A day of waiting for a host is some three hundred tries, and not a few of an hour each.
        let asked = asked_for(asked).map(|asked| asked.min(RESULT_HOST_WAIT_MAX));
        let wait = (!is_over).then(|| self.wait_times.after_fault(faults, asked));
        if let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key)) {
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            match wait {
                None => job_log::download_given_up(context, &fault),
                Some(_) if unavailable && faults == UNAVAILABLE_TOLD => {
                    job_log::result_host_unavailable(context, &fault);
                }
                Some(wait) => job_log::download_failed(context, &fault, wait),
            }
        }
        let Some(wait) = wait else {
            let fault = Fault::new(DOWNLOAD_FAILED, fault.to_string());
            self.apply(key, attempt, Event::FetchAbandoned(fault), now)?;
            return Ok(());
        };
        if stale {
            self.read_before_fetching(key);
        }
        self.note_wait_reason(key, attempt, asked.map_or(WaitReason::Fault, |_| WaitReason::ResultHostAsked));
        self.follow_up(key, attempt, Some(wait), now);
        Ok(())
    }

    /// Notes why an attempt waits after a fault, and says it where the service asked to wait: for this span. A long wait is a
    /// warning, once for all that wait at a time.
    fn note_wait(&mut self, key: JobKey, attempt: AttemptNo, asked: Option<Millis>, fault: &Fault, now: Now) {
        self.note_wait_reason(key, attempt, asked.map_or(WaitReason::Fault, |_| WaitReason::ServiceAsked));
        if let (Some(wait), Some(active), Some(open)) =
            (asked, self.batches.get(&key.batch), self.jobs.get(&key))
        {
            let is_told = self.long_wait_told_at.is_some_and(|at| now.tick.since(at) <= LONG_WAIT);
            let warns = wait > LONG_WAIT && !is_told;
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            job_log::asked_to_wait(context, fault, wait, warns);
            if warns {
                self.long_wait_told_at = Some(now.tick);
            }
        }
    }

    fn note_wait_reason(&mut self, key: JobKey, attempt: AttemptNo, reason: WaitReason) {
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.set_wait_reason(attempt, reason);
        }
    }

    /// Reads the task for fresh links where the refused one may have expired while it waited for its turn: no try is counted.
    /// False: it was fresh.
    fn link_expired(&mut self, key: JobKey, attempt: AttemptNo, fault: &Fault, now: Now) -> bool {
        let Some(mut open) = self.jobs.get_mut(&key) else { return false };
        let has_expired = open.link_refused(attempt, now.tick, EXPIRING_MAX);
        drop(open);
        if !has_expired {
            return false;
        }
        if let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key)) {
            let context =
                LogContext::new(&active.record().name, open.spec(), attempt, open.job().state().task());
            job_log::link_expired(context, fault);
        }
        self.read_before_fetching(key);
        self.follow_up(key, attempt, Some(Millis(0)), now);
        true
    }

    /// Takes from a task's record what it says about how long tasks of the model take, and about crowding.
    fn learn_from_task(&mut self, key: JobKey, attempt: AttemptNo, reading: &TaskReading, now: Now) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        if let Some(observed) = open.observe(attempt, &reading.status, now.tick) {
            self.wait_times.learn(open.spec(), observed);
        }
        let code = reading.fault.as_ref().map(|fault| fault.code.as_str());
        if matches!(code, Some("rate_limited" | "busy")) {
            self.adaptive_limit.refused(now.tick, None);
        }
        if matches!(reading.status, TaskStatus::Failed | TaskStatus::Canceled) {
            let need = open.job().hold(&open.spec().order).unwrap_or_default();
            drop(open);
            match code {
                Some("insufficient_credits") => self.account.refuse_credits(need, None, now),
                Some("auth_required") => self.account.suspect_key(Call::ReadTask, now.tick),
                _ => {}
            }
        }
    }

    /// Whether a job's task has succeeded and shows nothing to download.
    fn has_no_results(&self, key: JobKey) -> bool {
        let state = self.jobs.get(&key).map(|open| open.job().state());
        matches!(state, Some(State::Fetching { urls, .. }) if urls.is_empty())
    }

    /// Forgets a job's links, so that its task is read again for fresh ones.
    fn read_before_fetching(&mut self, key: JobKey) {
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.forget_links();
        }
    }

    /// Rows were read.
    pub(super) fn rows(&mut self, batch: BatchNo, from: u64, mut rows: Vec<SpooledRow>) {
        if let Some(active) = self.batches.get_mut(&batch) {
            for spec in rows.iter_mut().filter_map(|row| Arc::get_mut(&mut row.spec)) {
                self.order_terms.share(&mut spec.order.terms);
            }
            rows.iter().for_each(|row| self.inputs.want_for(batch, &row.spec.order));
            active.add_rows(from, rows);
        }
    }

    /// Marks an attempt's effect as over and returns its faults in a row so far; nothing for a job that is not open any
    /// more.
    fn effect_ended(&mut self, key: JobKey, attempt: AttemptNo) -> Option<u32> {
        let mut open = self.jobs.get_mut(&key)?;
        Some(open.effect_ended(attempt))
    }

    pub(super) fn count_fault(&mut self, key: JobKey, attempt: AttemptNo) {
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.count_fault(attempt);
        }
    }

    fn reset_faults(&mut self, key: JobKey, attempt: AttemptNo) {
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.reset_faults(attempt);
        }
    }
}

/// What an answer asks to wait, where that is any time at all.
fn asked_for(wait: Option<Millis>) -> Option<Millis> {
    wait.filter(|wait| wait.0 > 0)
}
