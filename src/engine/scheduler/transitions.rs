//! What becomes of a job: events applied, movements booked, changes noted, timers set, effects begun.
//!
//! Everything that changes a job comes through here, and nothing here calls back to whatever asked for it.

use std::sync::Arc;

use crate::domain::charge_drift;
use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::job::{Attempt, Job, JobSpec, State};
use crate::domain::ledger::Movement;
use crate::domain::lifecycle::{self, AttemptRules, Event, Want};
use crate::domain::retry_delay;
use crate::domain::time::{Millis, Now, Tick};
use crate::engine::scheduler::job_log::{self, LogContext};
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Effect, FetchOrder, Scheduler, SchedulerError};
use crate::store::{JobRecord, Pause};

impl Scheduler {
    /// Applies an event, books its movements and notes what changed. An event that has no place is
    /// said and dropped: a late answer for an older attempt, for one.
    pub(super) fn apply(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        event: Event,
        now: Now,
    ) -> Result<(), SchedulerError> {
        let Some(mut open) = self.jobs.get_mut(&key) else { return Ok(()) };
        let Some(active) = self.batches.get_mut(&key.batch) else { return Ok(()) };
        let attempts = active.record().policy.attempts.unwrap_or(self.settings.attempts);
        let terms = AttemptRules { attempts, keyed: open.spec().order.kind.is_keyed() };
        let transition = match lifecycle::apply(open.job(), attempt, event, terms, now.wall) {
            Ok(transition) => transition,
            Err(illegal) => {
                let task = open.job().state().task();
                let context = LogContext::new(&active.record().name, open.spec(), attempt, task);
                job_log::dropped(context, &illegal);
                return Ok(());
            }
        };
        // A reading of a task that still runs says nothing new, and costs no commit.
        if transition.movements.is_empty() && transition.job == *open.job() {
            return Ok(());
        }
        let mut job = transition.job;
        job.share_ran_with(|ran_with| self.ran_with.share(ran_with));
        let before = open.replace_job(job);
        job_log::moved(&active.record().name, open.spec(), &before, open.job());
        if active.note_perhaps_sent(&before, open.job(), &open.spec().order) {
            self.pending.batch_changed(key.batch);
        }
        let (previous, before, before_books) = (&before, before.attempt(), before.books());
        for movement in transition.movements.iter().copied() {
            active.apply(movement)?;
            let (meta, origin) = (&open.spec().order.meta, active.record().origin.as_ref());
            self.budgets.apply(movement, transition.day, meta, origin)?;
            self.pending.batch_changed(key.batch);
            self.pending.totals_changed();
            if let Some(day) = transition.day {
                self.pending.day_changed(day);
            }
        }
        self.pending.job_changed(key);
        let on_drift = active.record().policy.on_drift;
        let (order, job) = (&open.spec().order, open.job());
        let is_settled = job.books() != before_books && job.books().held.is_zero();
        // Comparing options costs more than the rest of the transition: only who asked for it pays for it.
        let pauses = || {
            let drift = on_drift.map(|_| charge_drift::of(order, job));
            // What was found before has paused it once, and a person may have resumed it.
            drift.is_some_and(|drift| {
                charge_drift::pauses(on_drift, &drift) && drift != charge_drift::of(order, previous)
            })
        };
        // Its owner's own pause gives way to the reason, which they are to see before they resume it.
        if matches!(active.record().paused, None | Some(Pause::Owner))
            && (is_settled && charge_drift::is_above_hold(order, job) || pauses())
        {
            active.pause(Pause::Drift);
            job_log::paused(active.record(), "a charge, a model or options other than planned");
            self.pending.batch_changed(key.batch);
        }
        let is_over = open.job().is_over();
        let is_queued = matches!(open.job().state(), State::Queued);
        let settled = is_settled.then(|| (open.spec().clone(), job.clone()));
        drop(open);
        if !is_queued {
            self.unqueue(key);
        }
        self.note_movements(key, &transition.movements);
        if let Some((spec, job)) = settled
            && let Some(surcharges) = self.prices.learn_charge(key, &spec.order, &job)
        {
            self.pending.begin(Effect::KeepSurcharges(surcharges));
        }
        self.attempts_changed(key, before, now);
        if is_over {
            self.prices.forget(&key);
            self.end(key);
        } else {
            self.note_outputs(key);
            self.give_up_unneeded(key, now)?;
        }
        Ok(())
    }

    /// A request that waits for the account's owner, and of which no answer is to come, is given up where another attempt has
    /// succeeded.
    fn give_up_unneeded(&mut self, key: JobKey, now: Now) -> Result<(), SchedulerError> {
        match self.jobs.get(&key) {
            Some(open) if !open.is_busy() && open.job().waits_unneeded() => {
                let attempt = open.job().attempt();
                self.apply(key, attempt, Event::NotNeeded, now)
            }
            _ => Ok(()),
        }
    }

    /// Tells the account what moved for a job.
    pub(super) fn note_movements(&mut self, key: JobKey, movements: &[Movement]) {
        let Some(open) = self.jobs.get(&key) else { return };
        self.account.job_moved(open, movements);
    }

    fn end(&mut self, key: JobKey) {
        let Some(mut open) = self.jobs.remove(&key) else { return };
        open.note_review();
        self.timers.cancel_job(key);
        self.input_waits.remove(&key);
        if let Some(active) = self.batches.get_mut(&key.batch) {
            active.count_review(key.seq, false, open.job().awaits_review());
            active.job_ended(open.spec(), open.job(), self.settings.rejections);
            if let State::Failed { fault, .. } = open.job().state() {
                active.note_failure(open.spec(), fault);
            }
            self.pending.batch_changed(key.batch);
        }
        let (spec, record) = open.into_parts();
        self.note_ended(&record);
        self.pending.job_ended(spec, record);
    }

    /// After an answer: when the attempt that it is about wants something next.
    pub(super) fn follow_up(&mut self, key: JobKey, attempt: AttemptNo, wait: Option<Millis>, now: Now) {
        let Some(open) = self.jobs.get(&key) else { return };
        let job = open.job();
        let lacks_links = attempt == job.attempt() && matches!(job.state(), State::Fetching { .. });
        let usual = match open.wants(attempt) {
            // It is the present one since its task succeeded: only its links are missing.
            Want::Read if lacks_links => Millis(0),
            Want::Read => self.poll_wait(key, attempt, now),
            Want::Admission => {
                let longer = job.begun_for().last().map_or(0, |code| retry_delay::doublings(code));
                let repeated = attempt.0.saturating_sub(2).saturating_add(longer);
                self.wait_times.after_fault(repeated, None)
            }
            Want::Post | Want::Fetch => Millis(0),
            Want::Nothing => return,
        };
        self.schedule(key, attempt, now.tick.after(wait.unwrap_or(usual)));
        self.set_deadline_timer(key, attempt);
    }

    /// After a change of a job whose present attempt was `before`: attempts that are over want nothing any more, another
    /// present attempt goes on by itself, and the one before it is watched slowly while its task runs.
    fn attempts_changed(&mut self, key: JobKey, before: AttemptNo, now: Now) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        let ended = open.forget_ended_attempts();
        let present = open.job().attempt();
        drop(open);
        for attempt in ended {
            self.timers.cancel_attempt(key, attempt);
        }
        if present != before {
            self.follow_up(key, before, Some(self.settings.overdue_poll), now);
            self.follow_up(key, present, None, now);
        }
    }

    /// Begins an effect of an attempt that was due at `due`.
    pub(super) fn begin(&mut self, key: JobKey, attempt: AttemptNo, want: Want, due: Tick) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        let Some(state) = open.job().attempt_of(attempt).map(Attempt::state) else { return };
        let effect = match (want, state) {
            (Want::Post, State::Submitting { .. }) => {
                let spec = open.spec().clone();
                let inputs = open.job().attempt_of(attempt).map(Attempt::inputs).unwrap_or_default().to_vec();
                match self.inputs.parents(key.batch, &spec.order) {
                    // Found once for all times that it is sent.
                    _ if inputs.len() == spec.order.inputs_to_find() => {
                        Effect::Post { key, attempt, spec, inputs }
                    }
                    // It was canceled and is wanted again: its turn comes when what was begun before has ended.
                    _ if self.abandoned_lookups.contains(&(key, attempt)) => return,
                    Ok(parents) => {
                        let uses_own_copies = self.input_waits.uses_own_copies(&key);
                        Effect::FindInputs { key, attempt, spec, parents, uses_own_copies }
                    }
                    // It waits again: `start_due_effects` takes it back.
                    Err(_) => {
                        drop(open);
                        self.schedule(key, attempt, due);
                        return;
                    }
                }
            }
            (Want::Read, State::Running { task } | State::Fetching { task, .. }) => {
                self.reading_slots.take();
                Effect::Read { key, attempt, task: task.clone(), spec: open.spec().clone(), due }
            }
            (Want::Fetch, State::Fetching { urls, .. }) => {
                let Some(active) = self.batches.get(&key.batch) else { return };
                self.downloads.started();
                self.scratch.begin(key);
                let (versions, spec) = (active.versions(), open.spec().clone());
                let is_superseded = versions.is_superseded(key.seq);
                let takes_name = versions.is_edited(key.seq) && !is_superseded;
                let urls = urls.to_vec();
                open.fetch_began(attempt, active.record().versions_bytes, due);
                let spec = match is_superseded {
                    true => Arc::new(JobSpec { apart: true, ..(*spec).clone() }),
                    false => spec,
                };
                Effect::Fetch(Box::new(FetchOrder {
                    key,
                    attempt,
                    batch: active.record().name.clone(),
                    layout: active.record().layout().map(str::to_owned),
                    spec,
                    job: open.job().clone(),
                    urls,
                    takes_name,
                    is_superseded,
                }))
            }
            _ => return,
        };
        open.effect_began(attempt);
        self.pending.begin(effect);
    }

    /// Sets an attempt's alarm, in place of the one it had.
    pub(super) fn schedule(&mut self, key: JobKey, attempt: AttemptNo, at: Tick) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        open.set_timed(attempt, true);
        self.timers.set_effect(key, attempt, at);
    }

    /// Has the task of an attempt, which was due at `at`, read once fewer others are.
    pub(super) fn delay_reading(&mut self, key: JobKey, attempt: AttemptNo, at: Tick) {
        let Some(mut open) = self.jobs.get_mut(&key) else { return };
        open.set_timed(attempt, true);
        self.timers.delay_reading(key, attempt, at);
    }

    /// The wait before the task of an attempt is read (again).
    pub(super) fn poll_wait(&mut self, key: JobKey, attempt: AttemptNo, now: Now) -> Millis {
        match self.jobs.get(&key) {
            Some(open) => self.wait_times.until_poll_of(open, attempt, now.tick),
            None => self.settings.poll_max,
        }
    }

    /// Rows leave a window in order, up to that of `key`. One that is passed over, because it fits no budget, begins as
    /// a queued job, so that the cursor can move on.
    pub(super) fn open_rows_up_to(&mut self, key: JobKey) {
        let Some(active) = self.batches.get_mut(&key.batch) else { return };
        let Some(rows) = active.take_rows_up_to(key.seq) else { return };
        for row in rows {
            let key = JobKey { batch: key.batch, seq: row.spec.seq };
            let record = self.batches.get(&key.batch).map(ActiveBatch::record);
            let job = match record.is_some_and(|record| record.may_have_been_sent(row.spec.seq)) {
                true => Job::queued_perhaps_sent(),
                false => Job::queued(),
            };
            let record = JobRecord { key, id: row.spec.id, row_at: row.at, job };
            self.jobs.insert(OpenJob::new(record, row.spec));
            self.queue(key);
            self.pending.job_changed(key);
        }
        self.pending.batch_changed(key.batch);
    }
}
