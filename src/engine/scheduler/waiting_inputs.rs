//! Jobs that need outputs of other rows: they wait for these, and go before what was not begun.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::domain::ids::{AttemptNo, BatchNo, JobId, JobKey};
use crate::domain::job::{Order, State};
use crate::domain::job_reference::{self, EndedTake, FoundInput};
use crate::domain::lifecycle::{Event, Want};
use crate::domain::parked_reason::Parked;
use crate::domain::quote::unfit_length;
use crate::domain::task::{Fault, PostAnswer};
use crate::domain::time::{Millis, Now};
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::attention::Attention;
use crate::engine::scheduler::parts::input_waits::NextTry;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Effect, InputFault, Mode, Scheduler, SchedulerError, job_log};
use crate::store::JobRecord;

/// Rows of a batch that are in memory and wait for others, unless nothing moves that they wait for.
const WAITING_MAX: u32 = 1_024;
/// Rows that a step lets into memory at most, so that its commit stays small.
const OPENED_MAX: usize = 64;

/// How a job ended, for the jobs that need its outputs.
pub fn ended_take(record: &JobRecord) -> EndedTake {
    let job = &record.job;
    EndedTake {
        seq: record.key.seq,
        state: job.state().job_state(),
        wants_review: job.wants_review(),
        verdict: job.decision().map(|decision| decision.verdict),
    }
}

/// The same of an open job that has succeeded, while the task of another attempt is watched.
pub fn take_of_open(record: &JobRecord, order: &Order) -> EndedTake {
    let take = ended_take(record);
    EndedTake { wants_review: take.wants_review || order.review, ..take }
}

/// Code of a job whose inputs could not be had for as long as they are waited for.
const INPUT_UNAVAILABLE: &str = "input_unavailable";

impl Scheduler {
    /// An open job waits in the queue: as a candidate for admission, or for its inputs.
    pub(super) fn queue(&mut self, key: JobKey) {
        // Another attempt may have succeeded meanwhile, whose outputs are kept instead.
        let Some(open) = self.jobs.get(&key).filter(|open| open.is_queued()) else { return };
        let order = &open.spec().order;
        if order.inputs.is_empty() {
            self.jobs.queue(key);
            return;
        }
        self.inputs.want_for(key.batch, order);
        if self.inputs.are_there(key.batch, order) {
            self.inputs.is_ready(key, order);
            self.jobs.queue(key);
        } else {
            self.inputs.wait(key, order);
            self.jobs.unqueue(&key);
        }
    }

    /// An open job has left the queue. What is known of its inputs is kept until they are found and its request may have made
    /// a task.
    pub(super) fn unqueue(&mut self, key: JobKey) {
        self.jobs.unqueue(&key);
        let Some(open) = self.jobs.get(&key) else { return };
        let needs_inputs = match open.job().state() {
            State::Submitting { may_have_run, .. } => !may_have_run || open.lacks_found_inputs(),
            _ => false,
        };
        match needs_inputs {
            true => self.inputs.looks_for(key, &open.spec().order),
            false => self.inputs.has_left(key, &open.spec().order),
        }
    }

    /// A job has ended, or was decided about: the jobs that need its outputs are looked at again.
    pub(super) fn note_ended(&mut self, record: &JobRecord) {
        for child in self.inputs.has_ended(record.key.batch, record.id, ended_take(record)) {
            self.queue(child);
        }
    }

    /// The outputs of a job are there, whose other tasks are watched to their end: the jobs that need them are looked at again,
    /// and do not wait for these.
    pub(super) fn note_outputs(&mut self, key: JobKey) {
        let Some(open) = self.jobs.get(&key).filter(|open| open.job().has_succeeded()) else { return };
        let (id, take) = (open.record().id, take_of_open(open.record(), &open.spec().order));
        for child in self.inputs.has_ended(key.batch, id, take) {
            self.queue(child);
        }
    }

    /// A job that had ended goes on: queued jobs that need its outputs wait for it again.
    pub(super) fn note_goes_on(&mut self, batch: BatchNo, job: JobId) {
        for child in self.inputs.goes_on(batch, job) {
            self.queue(child);
        }
    }

    /// How the jobs of a batch ended was looked up. Those that go on have not ended.
    pub(super) fn ended_jobs(&mut self, batch: BatchNo, mut ended: Vec<(JobId, EndedTake)>) {
        ended.retain(|(_, take)| !self.jobs.contains_key(&JobKey { batch, seq: take.seq }));
        let are_there = |open: &&OpenJob| open.key().batch == batch && open.job().has_succeeded();
        let open = self.jobs.iter().filter(are_there);
        ended.extend(open.map(|open| (open.record().id, take_of_open(open.record(), &open.spec().order))));
        for child in self.inputs.looked_up(batch, ended) {
            self.queue(child);
        }
    }

    /// Looks up how the jobs of batches ended whose rows name others.
    pub(super) fn look_up_ended(&mut self) {
        for batch in self.inputs.begin_lookups() {
            self.pending.begin(Effect::LoadEnded { batch });
        }
    }

    /// Rows at the front that wait for others make way: as queued jobs that wait for their inputs.
    pub(super) fn open_waiting_rows(&mut self, now: Now) {
        let mut opened = 0;
        for batch in self.batches.needing(Attention::HasReferences) {
            if self.batches.get(&batch).is_some_and(|active| active.record().paused.is_some()) {
                continue;
            }
            let fronts: Vec<_> =
                self.batches.get(&batch).into_iter().flat_map(ActiveBatch::fronts).cloned().collect();
            fronts.iter().for_each(|spec| self.inputs.want_for(batch, &spec.order));
            if !fronts.iter().all(|spec| self.inputs.are_known_for(batch, &spec.order)) {
                continue;
            }
            // Computed once a step: each admitted row changes it only a little.
            let mut lets_in = None;
            while let Some(key) = self.next_waiting_row(batch) {
                let waiting = self.inputs.waiting_count(batch);
                if waiting >= WAITING_MAX {
                    let lets_in_more = lets_in.unwrap_or_else(|| !self.waits_for_progress(batch));
                    lets_in = Some(lets_in_more);
                    if !lets_in_more {
                        break;
                    }
                }
                if opened >= OPENED_MAX {
                    self.pending.wake_at(now.tick);
                    return;
                }
                self.open_rows_up_to(key);
                opened += 1;
            }
        }
    }

    /// A row at the front that waits for others.
    fn next_waiting_row(&self, batch: BatchNo) -> Option<JobKey> {
        let mut fronts = self.batches.get(&batch)?.fronts();
        let spec = fronts.find(|spec| !self.inputs.are_there(batch, &spec.order))?;
        Some(JobKey { batch, seq: spec.seq })
    }

    /// Whether waiting rows of a batch may get their inputs without more of its rows in memory: one of the next rows is
    /// ready, or a job goes on whose outputs they lack.
    fn waits_for_progress(&mut self, batch: BatchNo) -> bool {
        let Some(active) = self.batches.get(&batch) else { return false };
        if active.is_loading() || active.fronts().any(|spec| self.inputs.are_there(batch, &spec.order)) {
            return true;
        }
        let lacked: Vec<(BatchNo, JobId)> = self.inputs.lacked_by(batch).collect();
        let of_batches: BTreeSet<BatchNo> = lacked.iter().map(|(no, _)| *no).collect();
        of_batches.into_iter().for_each(|no| self.jobs.identify(no));
        let goes_on =
            |(no, id): &(BatchNo, JobId)| self.jobs.named(*no, *id).is_some_and(|open| self.goes_on(open));
        lacked.iter().any(goes_on)
    }

    /// Whether an open job gets on by itself. One that is overdue or waits for a result host may take a day, and no other row
    /// is to wait for it; one that has ended has only tasks beside it that are watched.
    fn goes_on(&self, open: &OpenJob) -> bool {
        let key = open.key();
        let is_sent = |active: &ActiveBatch| {
            let record = active.record();
            record.paused.is_none()
                && active.parked().is_none()
                && !record.waits_for_pilot(open.record().row_at, open.job())
        };
        match open.job().state() {
            State::Queued => {
                !self.inputs.is_waiting(key) && self.batches.get(&key.batch).is_some_and(is_sent)
            }
            state => !state.is_final() && !open.job().is_overdue() && !open.waits_for_result_host(),
        }
    }

    /// Batches of which all that may be sent waits for rows that a person has to see to.
    pub(super) fn park_by_inputs(&mut self) {
        let waiting: Vec<BatchNo> = self.inputs.with_waiting().collect();
        for no in waiting {
            let Some(active) = self.batches.get(&no) else { continue };
            let is_parked = self.stands_still(active) && self.inputs.are_known(no);
            if is_parked && let Some(active) = self.batches.get_mut(&no) {
                active.park_next(Some(Parked::Inputs));
                active.log_parked(Parked::Inputs);
            }
        }
    }

    /// Looking for the inputs of a job came to this.
    pub(super) fn inputs_found(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        outcome: Result<Vec<FoundInput>, InputFault>,
        now: Now,
    ) -> Result<(), SchedulerError> {
        if self.abandoned_lookups.remove(&(key, attempt)) {
            self.input_store.not_asked();
            // It may be wanted again by now.
            if self.jobs.contains_key(&key) {
                self.schedule(key, attempt, now.tick);
            }
            return Ok(());
        }
        let was_taken = self.was_taken(key);
        let Some(mut open) = self.jobs.get_mut(&key) else {
            self.input_store.not_asked();
            return Ok(());
        };
        let faults = open.effect_ended(attempt);
        let has_files = !open.spec().order.files.is_empty();
        match &outcome {
            Err(InputFault::Store(_)) if has_files => {}
            Ok(_) if has_files => {
                if self.input_store.took() {
                    job_log::input_store_answers();
                }
            }
            _ => self.input_store.not_asked(),
        }
        match outcome {
            Ok(found) => {
                open.reset_faults(attempt);
                drop(open);
                self.input_waits.remove(&key);
                if !was_taken {
                    if self.waits_for_store(key) {
                        self.postpone(key, attempt, now);
                        return Ok(());
                    }
                    if !self.knows_inputs(key) {
                        self.want_inputs(key);
                        self.postpone(key, attempt, now);
                        return Ok(());
                    }
                    if self.is_held_back(key, now) {
                        let fault =
                            Fault::new("held_back", "it may not be sent any more, or not at that price");
                        return self.take_back(key, attempt, fault, now);
                    }
                    if self.is_given_otherwise(key, &found) {
                        return self.lost_inputs(key, attempt, now);
                    }
                }
                let found = match self.with_lengths(key, found) {
                    Some(Ok(found)) => found,
                    Some(Err(fault)) => return self.refused_for_inputs(key, attempt, (fault, faults), now),
                    None => {
                        self.prices.want();
                        self.postpone(key, attempt, now);
                        return Ok(());
                    }
                };
                self.apply(key, attempt, Event::InputsFound(found), now)?;
                let sent = self.jobs.get(&key).map(|open| (open.spec(), open.job()));
                let price = sent.and_then(|(spec, job)| self.prices.price_by_length(&spec.order, job));
                if let Some(price) = price {
                    self.apply(key, attempt, Event::PriceKnown(price), now)?;
                }
                // What may have been sent is sent again, and not while the account refuses it.
                if self.was_taken(key) && (self.mode != Mode::Paying || !self.may_post_again(key, now)) {
                    self.postpone(key, attempt, now);
                    return Ok(());
                }
                self.begin(key, attempt, Want::Post, now.tick);
            }
            // It gives its slot back, and waits in the queue until the store answers.
            Err(InputFault::Store(fault)) if has_files => {
                let spec = open.spec().clone();
                drop(open);
                self.input_waits.store_refused(key, &fault, now.tick);
                let wait = self.wait_times.after_fault(self.input_store.faults(), None);
                let is_first = self.input_store.refused(wait, now.tick);
                job_log::inputs_not_found(&spec, &fault, is_first);
                if was_taken {
                    self.schedule(key, attempt, now.tick.after(wait));
                } else {
                    self.take_back(key, attempt, fault, now)?;
                }
            }
            // The same of one that has no file of its own: each asks by itself.
            Err(InputFault::Store(fault)) if !was_taken => {
                let spec = open.spec().clone();
                drop(open);
                let before = self.input_waits.store_refused(key, &fault, now.tick);
                job_log::inputs_not_found(&spec, &fault, before == 0);
                let wait = self.wait_times.after_fault(before, None);
                self.give_slot_back(key, attempt, (fault, wait), now)?;
            }
            Err(InputFault::Passing(fault) | InputFault::Store(fault)) => {
                open.count_fault(attempt);
                drop(open);
                self.inputs_unavailable(key, attempt, (fault, faults), now)?;
            }
            Err(InputFault::Lasting(fault)) => {
                drop(open);
                self.refused_for_inputs(key, attempt, (fault, faults), now)?;
            }
        }
        Ok(())
    }

    /// The inputs of a job cannot be had just now. It tries again in its slot a few times, then from the queue, with its hold
    /// and its slot left to others, and not for ever.
    fn inputs_unavailable(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        (fault, faults): (Fault, u32),
        now: Now,
    ) -> Result<(), SchedulerError> {
        let Some(spec) = self.jobs.get(&key).map(|open| open.spec().clone()) else { return Ok(()) };
        // What a lost state may have sent stays let out.
        if self.was_taken(key) {
            job_log::inputs_not_found(&spec, &fault, faults == 0);
            let wait = self.wait_times.after_fault(faults, None);
            self.schedule(key, attempt, now.tick.after(wait));
            return Ok(());
        }
        let (before, next) = self.input_waits.failed(key, &fault, now.tick);
        let wait = self.wait_times.after_fault(before, None);
        match next {
            NextTry::NoMore => {
                let text = format!(
                    "its inputs could not be had for a day; nothing was charged. The last time: {fault}"
                );
                let fault = Fault::new(INPUT_UNAVAILABLE, text);
                return self.refused_for_inputs(key, attempt, (fault, faults), now);
            }
            NextTry::KeepsSlot => {
                job_log::inputs_not_found(&spec, &fault, before == 0);
                self.schedule(key, attempt, now.tick.after(wait));
            }
            NextTry::GivesSlotBack(is_new) => {
                job_log::inputs_unavailable(&spec, &fault, is_new);
                self.give_slot_back(key, attempt, (fault, wait), now)?;
            }
        }
        Ok(())
    }

    /// A job whose inputs cannot be had leaves its slot and its hold to others, and tries again from the queue after a wait.
    fn give_slot_back(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        (fault, wait): (Fault, Millis),
        now: Now,
    ) -> Result<(), SchedulerError> {
        self.apply(key, attempt, Event::InputsLost(fault), now)?;
        self.schedule(key, attempt, now.tick.after(wait));
        Ok(())
    }

    /// A job is not sent because of its inputs. One that may have been sent before looks for them a few times more, since
    /// its POST would find its task; then a person has to tell what became of it.
    fn refused_for_inputs(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        (fault, faults): (Fault, u32),
        now: Now,
    ) -> Result<(), SchedulerError> {
        let looks = faults.saturating_add(1);
        let unfit = job_reference::unfit_after_a_loss(&fault, looks).filter(|_| self.was_taken(key));
        if let Some(unfit) = unfit {
            return self.apply(key, attempt, Event::InputsUnfit(unfit), now);
        }
        self.apply(key, attempt, Event::Posted(PostAnswer::Refused(fault)), now)?;
        self.count_fault(key, attempt);
        let wait = self.wait_times.after_fault(faults, None);
        self.follow_up(key, attempt, Some(wait), now);
        Ok(())
    }

    /// Whether a job's inputs are not those any more that were found: a row was decided about meanwhile, or goes on.
    fn is_given_otherwise(&self, key: JobKey, found: &[FoundInput]) -> bool {
        let Some(open) = self.jobs.get(&key) else { return false };
        let takes = self.inputs.takes(key.batch, &open.spec().order);
        // The files of a row follow its references; they are decided about by nobody.
        let found = found.iter().take(open.spec().order.inputs.len());
        takes.is_none_or(|takes| takes.into_iter().ne(found.map(|input| input.take)))
    }

    /// Whether a job that takes outputs of others, and surely has no task, waits to be sent again.
    pub(super) fn waits_with_inputs(&self, key: JobKey) -> bool {
        let takes_outputs =
            |open: &OpenJob| open.spec().order.kind.is_keyed() && !open.spec().order.inputs.is_empty();
        !self.was_taken(key) && self.jobs.get(&key).is_some_and(takes_outputs)
    }

    /// Whether the inputs that were found for a job are not those any more that it takes.
    pub(super) fn takes_others(&self, key: JobKey) -> bool {
        let Some(open) = self.jobs.get(&key) else { return false };
        let Some(takes) = self.inputs.takes(key.batch, &open.spec().order) else { return true };
        // Without any choice none is noted.
        let noted = open.job().present().input_takes().iter().copied().chain(std::iter::repeat(0));
        takes.into_iter().zip(noted).any(|(take, noted)| take.unwrap_or(0) != noted)
    }

    /// Inputs with what is sent for those of which the length is taken; nothing where no catalog is known.
    ///
    /// # Errors
    /// Why the job is not sent.
    fn with_lengths(
        &self,
        key: JobKey,
        mut found: Vec<FoundInput>,
    ) -> Option<Result<Vec<FoundInput>, Fault>> {
        let (active, open) = self.batches.get(&key.batch).zip(self.jobs.get(&key))?;
        let spec = open.spec();
        for (input, found) in spec.order.inputs.iter().zip(&mut found) {
            let Some(length) = found.length else { continue };
            match self.prices.fitting_length(&spec.order, input.field, length)? {
                Ok(Value::String(text)) => found.address = text,
                Ok(value) => found.address = value.to_string(),
                Err(why) => {
                    return Some(Err(unfit_length(&why, input, &active.record().name, &spec.label)));
                }
            }
        }
        Some(Ok(found))
    }

    /// Whether it is known how the jobs ended that give the inputs of a job.
    pub(super) fn knows_inputs(&self, key: JobKey) -> bool {
        self.jobs.get(&key).is_none_or(|open| self.inputs.are_known_for(key.batch, &open.spec().order))
    }

    /// That has to be known.
    pub(super) fn want_inputs(&mut self, key: JobKey) {
        if let Some(open) = self.jobs.get(&key) {
            self.inputs.want_for(key.batch, &open.spec().order);
            // Batches that finish meanwhile do not have it looked up again and again.
            self.inputs.looks_for(key, &open.spec().order);
        }
    }

    /// Whether a job needs an output that is not there.
    pub(super) fn lacks_input(&self, key: JobKey) -> bool {
        self.jobs.get(&key).is_some_and(|open| !self.inputs.are_there(key.batch, &open.spec().order))
    }

    /// What gives the inputs of a job that is about to be sent was decided otherwise: it waits again, and nothing of it
    /// was sent.
    pub(super) fn lost_inputs(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        now: Now,
    ) -> Result<(), SchedulerError> {
        // It waits for that row now, and for its inputs anew afterwards.
        self.input_waits.remove(&key);
        let fault = Fault::new("inputs", "a row that it refers to is not done any more");
        self.take_back(key, attempt, fault, now)
    }

    /// Whether a job of which nothing was sent is not to be sent by now: it was let out, and meanwhile its inputs were
    /// looked for.
    fn is_held_back(&mut self, key: JobKey, now: Now) -> bool {
        !self.stands_as_admitted(key, now)
            || !self.account_still_lets(key, now)
            || !self.is_held_at_its_price(key, now)
    }

    fn take_back(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        fault: Fault,
        now: Now,
    ) -> Result<(), SchedulerError> {
        // What a lost state may have sent stays let out.
        if self.was_taken(key) {
            self.postpone(key, attempt, now);
            return Ok(());
        }
        self.apply(key, attempt, Event::InputsLost(fault), now)?;
        self.queue(key);
        Ok(())
    }
}
