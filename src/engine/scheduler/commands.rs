//! What an owner asks for: pause, resume, cancel, retry, other settings, a batch that was accepted. What it takes to cancel, to
//! retry and to resolve has files of its own.
//!
//! A command is executed between two steps and made durable by the next one, so that it is the same thing
//! whether an engine runs or not.

use std::collections::HashSet;
use std::sync::Arc;

use crate::domain::batch_terms;
use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::{AttemptNo, BatchName, BatchNo, JobKey, Seq};
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::lifecycle::{self, AttemptRules, Event};
use crate::domain::review::Decision;
use crate::domain::shell_word::shell_word;
use crate::domain::time::Now;
use crate::domain::utc_day::UtcDay;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{BegunJob, Scheduler, SchedulerError, Settings};
use crate::store::{AwaitedByHooks, BatchRecord, JobRecord, Pause};

/// Why a decision was not recorded.
pub const CHANGED_MEANWHILE: &str = "its outputs have changed meanwhile; look at them and decide again";

/// Why nothing can be decided about a job that has succeeded: the task of another attempt is watched; nothing where none is.
pub fn still_watched(batch: &BatchName, spec: &JobSpec, job: &Job) -> Option<String> {
    let no = job.watched_attempts().next().filter(|_| job.has_succeeded())?.no().0;
    let name = shell_word(&format!("{batch}/{}", spec.label));
    Some(format!(
        "the task of its attempt {no} is still watched; decide once that has ended, or end that: callsheet resolve {name} \
         --attempt {no} --charged N or --not-charged, as the account shows"
    ))
}

/// One job, as it was found in the spool.
pub type FoundJob = (Arc<JobSpec>, JobRecord);

/// What an owner asks for.
#[derive(Debug, Clone)]
pub enum Command {
    /// A manifest was accepted: its batch as `ingest` left it.
    AddBatch(Box<BatchRecord>),
    /// Send nothing more of a batch.
    Pause(BatchNo),
    /// Lift a pause of any cause.
    Resume(BatchNo),
    /// Send what waits after the pilot of a batch.
    Continue(BatchNo),
    /// Another budget for a batch.
    SetBudget(BatchNo, Credits),
    /// The budget of the configuration for a batch, whatever was set before; nothing for what its plans come to.
    SetDefaultBudget(BatchNo, Option<Credits>),
    /// Drop what is not sent yet of a batch.
    Cancel(BatchNo),
    /// Drop one job, if it is not sent yet.
    CancelJob(Box<FoundJob>),
    /// Queue failed, canceled and expired jobs of one batch again.
    Retry(Vec<FoundJob>),
    /// Download outputs of one batch again.
    FetchAgain(Vec<FoundJob>),
    /// A person found out what an attempt in doubt was charged; without a number, the only one of its job.
    Resolve(Box<FoundJob>, Option<AttemptNo>, Credits),
    /// A person decided about outputs of one batch: each job with what is decided.
    Decide(Vec<(FoundJob, Decision)>),
    /// Outputs of one batch were found in the object store: each job with its files and their objects.
    NoteStored(Vec<(FoundJob, Vec<OutputFile>)>),
    /// Hooks have announced that a batch waits, and for what.
    MarkWaitAnnounced(BatchNo, AwaitedByHooks),
    /// Hooks have announced that a batch is done, as it stood then.
    MarkAnnounced(Box<BatchRecord>),
    /// Other limits, budgets, waits and deadlines.
    Reload(Box<Settings>),
}

impl Command {
    /// The batch that it is about. One that is done has to be taken up before it is executed, see
    /// [`Scheduler::add_finished_batch`].
    pub fn batch(&self) -> Option<BatchNo> {
        match self {
            Command::AddBatch(batch) | Command::MarkAnnounced(batch) => Some(batch.no),
            Command::Pause(no)
            | Command::Resume(no)
            | Command::Continue(no)
            | Command::SetBudget(no, _)
            | Command::SetDefaultBudget(no, _)
            | Command::Cancel(no)
            | Command::MarkWaitAnnounced(no, _) => Some(*no),
            Command::Decide(decided) => decided.first().map(|((_, record), _)| record.key.batch),
            Command::NoteStored(stored) => stored.first().map(|((_, record), _)| record.key.batch),
            Command::CancelJob(found) | Command::Resolve(found, ..) => Some(found.1.key.batch),
            Command::Retry(found) | Command::FetchAgain(found) => {
                found.first().map(|found| found.1.key.batch)
            }
            Command::Reload(_) => None,
        }
    }

    /// Leaves out jobs of these numbers, which are not any more what they were found to be. Returns what came of a command
    /// on one job that is among them.
    pub fn leave_out(&mut self, changed: &HashSet<Seq>) -> Option<CommandOutcome> {
        let has_changed = |found: &FoundJob| changed.contains(&found.1.key.seq);
        match self {
            Command::Retry(found) | Command::FetchAgain(found) => {
                found.retain(|found| !has_changed(found));
                None
            }
            // What they are called now is looked at once more.
            Command::NoteStored(stored) => {
                stored.retain(|(found, _)| !has_changed(found));
                None
            }
            Command::CancelJob(found) | Command::Resolve(found, ..) if has_changed(found) => {
                Some(CommandOutcome::refused("it has ended meanwhile: look at it with callsheet explain"))
            }
            // All or none: what is decided of one take may hang on the others.
            Command::Decide(decided) if decided.iter().any(|(found, _)| has_changed(found)) => {
                Some(CommandOutcome::refused(CHANGED_MEANWHILE))
            }
            _ => None,
        }
    }

    /// Days whose totals it may change: they have to be known before it is executed.
    pub fn days(&self) -> Vec<UtcDay> {
        let of = |found: &FoundJob| found.1.job.days().collect::<Vec<_>>();
        match self {
            Command::FetchAgain(found) => found.iter().flat_map(of).collect(),
            Command::Resolve(found, ..) => of(found),
            _ => Vec::new(),
        }
    }
}

/// What came of a command.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommandOutcome {
    /// Jobs that it changed.
    pub jobs: u32,
    /// Jobs of the batch that are at the service, or on their way to it.
    pub in_flight: u32,
    /// Those of them that had failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: u32,
    /// The batch was paused before the command.
    #[serde(default, skip_serializing_if = "is_default")]
    pub was_paused: bool,
    /// Jobs that the service would refuse again unchanged: their rows need changing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hopeless: Vec<String>,
    /// Jobs that are paid for and only were not downloaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paid: Vec<String>,
    /// Jobs that are not dropped, since they may have been sent by a state that is gone: this one was rebuilt or
    /// imported.
    #[serde(default, skip_serializing_if = "is_default")]
    pub may_have_been_sent: u32,
    /// Canceled jobs that may have been sent by a state that is gone and that go on: those that were never sent are bought.
    #[serde(default, skip_serializing_if = "is_default")]
    pub canceled_go_on: u32,
    /// Those of them that wait in the queue, and may cost more, or less, than before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allowed: u32,
    /// Jobs that are queued again under the key that they had.
    #[serde(default, skip_serializing_if = "is_default")]
    pub same_key: u32,
    /// Jobs that are queued again whose endpoint supports no keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub without_key: u32,
    /// Jobs that are queued again and were made and paid for under a state that is gone: they fail again, free of charge,
    /// while the file is there that their error names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_before: Vec<String>,
    /// Jobs that would expire again at once: the time of their batch is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<String>,
    /// Jobs that would expire again at once: the deadline of their row has passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed_deadline: Vec<String>,
    /// Jobs that have ended while the task of another attempt has not: it is watched, and its outputs are kept if it succeeds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<String>,
    /// The attempt whose charge was recorded, where its job goes by another one, or the task of another is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of_several: Option<u32>,
    /// The task is known of the attempt whose charge was recorded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_task: bool,
    /// Jobs that are older versions of edited rows: the newer ones are wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<String>,
    /// Jobs whose outputs were brought back to disk from the object store.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restored: u32,
    /// Outputs that a person edited: they stay, and what is fetched again is put beside them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<String>,
    /// Why nothing was done, where something else would have been expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Nothing was done, and that is `refused`, since a process has the state open that works on other batches.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left_alone: bool,
}

impl CommandOutcome {
    /// Nothing was done, for this reason.
    pub fn refused(why: impl Into<String>) -> CommandOutcome {
        CommandOutcome { refused: Some(why.into()), ..CommandOutcome::default() }
    }

    /// Adds what came of a further part of the same command.
    pub fn add(&mut self, more: CommandOutcome) {
        self.jobs += more.jobs;
        self.failed += more.failed;
        self.in_flight = more.in_flight;
        self.hopeless.extend(more.hopeless);
        self.paid.extend(more.paid);
        self.expired.extend(more.expired);
        self.missed_deadline.extend(more.missed_deadline);
        self.watched.extend(more.watched);
        self.one_of_several = self.one_of_several.or(more.one_of_several);
        self.has_task |= more.has_task;
        self.edited.extend(more.edited);
        self.superseded.extend(more.superseded);
        self.may_have_been_sent += more.may_have_been_sent;
        self.allowed += more.allowed;
        self.same_key += more.same_key;
        self.restored += more.restored;
        self.without_key += more.without_key;
        self.made_before.extend(more.made_before);
        self.refused = self.refused.take().or(more.refused);
        self.left_alone |= more.left_alone;
    }
}

impl Scheduler {
    /// Executes a command. It is durable once the changes of the next step are.
    ///
    /// # Errors
    /// [`SchedulerError`] when the books do not balance.
    pub fn execute(&mut self, mut command: Command, now: Now) -> Result<CommandOutcome, SchedulerError> {
        // Its batch may be wanted again from now on: what was canceled before that is not.
        if matches!(command, Command::Retry(_) | Command::AddBatch(_)) {
            self.end_canceled(usize::MAX, now)?;
        }
        // What ended in this very step was found as it stood before it.
        let ended = command.batch().into_iter().flat_map(|no| self.pending.ended_of(no));
        let ended: HashSet<Seq> =
            ended.filter(|key| !self.jobs.contains_key(key)).map(|key| key.seq).collect();
        if !ended.is_empty()
            && let Some(refused) = command.leave_out(&ended)
        {
            return Ok(refused);
        }
        match command {
            Command::AddBatch(record) => {
                let no = record.no;
                self.prices.renew_for_owner(now.tick);
                self.add_batch(*record);
                self.pending.batch_changed(no);
                Ok(CommandOutcome::default())
            }
            Command::Pause(no) => Ok(self.change(no, |batch| batch.pause(Pause::Owner))),
            Command::Resume(no) => {
                self.account.ask_soon();
                self.prices.renew();
                self.inputs.look_up_moved();
                let canceled_go_on = self.canceled_and_perhaps_sent(no);
                Ok(CommandOutcome { canceled_go_on, ..self.change(no, ActiveBatch::resume) })
            }
            Command::Continue(no) => {
                self.prices.renew();
                let pilot = self.batches.get(&no).and_then(|active| active.record().pilot);
                let jobs = pilot.map_or(0, |pilot| pilot.rest_jobs);
                Ok(CommandOutcome { jobs, ..self.change(no, ActiveBatch::end_pilot) })
            }
            Command::SetBudget(no, budget) => {
                self.prices.renew_for_owner(now.tick);
                Ok(self.change(no, |batch| batch.set_budget(Some(budget), false)))
            }
            Command::SetDefaultBudget(no, configured) => {
                self.prices.renew_for_owner(now.tick);
                Ok(self.change(no, |batch| {
                    let limit = batch_terms::upper_limit(batch.record().said_by_defaults.as_ref());
                    batch.set_budget(limit.or(configured), limit.is_none() && configured.is_some());
                }))
            }
            Command::MarkAnnounced(announced) => {
                Ok(self.change(announced.no, |batch| batch.mark_announced(&announced, now)))
            }
            Command::MarkWaitAnnounced(no, told) => {
                Ok(self.change(no, |batch| batch.mark_wait_announced(told)))
            }
            Command::Decide(decided) => {
                self.prices.renew_for_owner(now.tick);
                Ok(self.decide(decided, now))
            }
            Command::NoteStored(stored) => self.note_stored(stored, now),
            Command::Cancel(no) => self.cancel(no, now),
            Command::CancelJob(found) => self.cancel_job(*found, now),
            Command::Retry(found) => Ok(self.retry(found, now)),
            Command::FetchAgain(found) => Ok(self.fetch_again(found, now)),
            Command::Resolve(found, asked, charged) => self.resolve(*found, asked, charged, now),
            Command::Reload(settings) => {
                self.prices.renew_for_owner(now.tick);
                self.reload(*settings);
                Ok(CommandOutcome::default())
            }
        }
    }

    fn change(&mut self, no: BatchNo, change: impl FnOnce(&mut ActiveBatch)) -> CommandOutcome {
        let Some(active) = self.batches.get_mut(&no) else { return CommandOutcome::default() };
        let was_paused = active.record().paused.is_some();
        change(active);
        // Admission looks at it anew.
        active.park_next(None);
        self.pending.batch_changed(no);
        CommandOutcome { in_flight: self.in_flight_of(no), was_paused, ..CommandOutcome::default() }
    }

    pub(super) fn in_flight_of(&self, no: BatchNo) -> u32 {
        self.jobs.counts().sent_of(no)
    }

    /// Whether a queued job, begun or not, may have been sent by a state that is gone.
    pub(super) fn may_have_been_sent(&self, key: &JobKey) -> bool {
        let batch = self.batches.get(&key.batch);
        batch.is_some_and(|active| self.jobs.may_have_been_sent(key, active.record()))
    }

    pub(super) fn open_queued(&mut self, record: JobRecord, spec: Arc<JobSpec>) {
        let key = record.key;
        self.note_goes_on(key.batch, record.id);
        self.jobs.insert(OpenJob::new(record, spec));
        self.queue(key);
        self.pending.job_changed(key);
        self.pending.batch_changed(key.batch);
    }

    fn fetch_again(&mut self, found: Vec<FoundJob>, now: Now) -> CommandOutcome {
        let mut outcome = CommandOutcome::default();
        for (spec, record) in found {
            let key = record.key;
            if let Some(open) = self.jobs.get(&key) {
                // Its outputs are kept if the task that is watched succeeds.
                if open.job().state().is_final() {
                    outcome.watched.push(spec.label.clone());
                }
                continue;
            }
            let terms = AttemptRules { attempts: 0, keyed: true };
            let attempt = record.job.attempt();
            let Ok(transition) = lifecycle::apply(&record.job, attempt, Event::FetchAgain, terms, now.wall)
            else {
                continue;
            };
            let Some(active) = self.batches.get_mut(&key.batch) else { continue };
            active.job_reopened(&spec, &record.job);
            active.count_review(spec.seq, record.job.awaits_review(), false);
            self.pending.batch_changed(key.batch);
            self.pending.job_changed(key);
            outcome.failed += u32::from(matches!(record.job.state(), State::Failed { .. }));
            outcome.jobs += 1;
            let record = JobRecord { job: transition.job, ..record };
            self.resume_job(BegunJob::new(record, spec), now);
        }
        outcome
    }

    /// Takes down what a person decided. A job whose outputs are being downloaded again is left as it is.
    /// All of it or nothing: what is decided of one take may hang on the others.
    fn decide(&mut self, decided: Vec<(FoundJob, Decision)>, now: Now) -> CommandOutcome {
        for ((spec, record), _) in &decided {
            let batch = self.batches.get(&record.key.batch).map(ActiveBatch::record);
            if let (Some(batch), Some(open)) = (batch, self.jobs.get(&record.key))
                && let Some(why) = still_watched(&batch.name, spec, open.job())
            {
                return CommandOutcome::refused(why);
            }
            if self.jobs.contains_key(&record.key) || !record.job.has_succeeded() {
                return CommandOutcome::refused(CHANGED_MEANWHILE);
            }
        }
        let mut outcome = CommandOutcome::default();
        for ((spec, record), decision) in decided {
            let Some(active) = self.batches.get_mut(&record.key.batch) else { continue };
            let mut job = record.job.clone();
            job.decide(Decision { at: now.wall, ..decision });
            active.decided(spec.seq, record.job.awaits_review(), job.awaits_review());
            self.pending.batch_changed(record.key.batch);
            let record = JobRecord { job, ..record };
            self.note_ended(&record);
            self.pending.outcome_changed(record);
            outcome.jobs += 1;
        }
        outcome
    }

    /// Takes down which objects the outputs of jobs are in.
    fn note_stored(
        &mut self,
        stored: Vec<(FoundJob, Vec<OutputFile>)>,
        now: Now,
    ) -> Result<CommandOutcome, SchedulerError> {
        let mut outcome = CommandOutcome::default();
        for ((_, record), files) in stored {
            let key = record.key;
            // One that is open while the task of another attempt is watched may have been renamed meanwhile.
            let is_as_read = |open: &OpenJob| open.job().outputs() == record.job.outputs();
            if self.jobs.get(&key).is_none_or(is_as_read)
                && self.outputs_changed(&record, Event::Stored(files), now)?
            {
                self.pending.batch_changed(key.batch);
                outcome.jobs += 1;
            }
        }
        Ok(outcome)
    }

    fn reload(&mut self, settings: Settings) {
        self.adaptive_limit.reconfigure(settings.limits.in_flight, settings.adaptive);
        self.submit_rate.set_limit(settings.submits_per_second);
        self.account.reconfigure(&settings);
        self.prices.set_rules(settings.rules.clone());
        self.wait_times.reconfigure(&settings);
        self.budgets.reserve_groups(&settings.group_limits);
        self.jobs.set_group_keys(settings.group_limits.keys().cloned().collect());
        self.scratch.set_max(settings.scratch_max);
        self.settings = settings;
        self.unpark_batches();
        let of_job = |open: &OpenJob| open.open_attempts().map(|no| (open.key(), no)).collect::<Vec<_>>();
        let attempts: Vec<_> = self.jobs.iter().flat_map(of_job).collect();
        attempts.into_iter().for_each(|(key, attempt)| self.set_deadline_timer(key, attempt));
    }
}
