//! Effects that are due: resends, readings, downloads, the balance; and what keeps a POST from being sent again.

use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::lifecycle::{Event, Want};
use crate::domain::task::{Fault, PostAnswer};
use crate::domain::time::{Millis, Now};
use crate::engine::scheduler::parts::api_key_refusal::Call;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Effect, Mode, Scheduler, SchedulerError};

/// How long what the account refuses waits before it looks again.
const ACCOUNT_RECHECK: Millis = Millis(1_000);

impl Scheduler {
    /// Begins what is due: resends, readings, downloads, and the wait for admission.
    pub(super) fn start_due_effects(&mut self, now: Now) -> Result<(), SchedulerError> {
        // Requests in flight finish after a stop; nothing new begins.
        if self.mode == Mode::Stopping {
            return self.requeue_at_stop(now);
        }
        // What is left over is due at once.
        let most = self.most_changed_jobs();
        while self.pending.changed_jobs() < most
            && let Some((at, key, attempt)) = self.timers.pop_effect(now.tick, self.may_read())
        {
            let Some(mut open) = self.jobs.get_mut(&key) else { continue };
            open.set_timed(attempt, false);
            if open.is_attempt_busy(attempt) {
                continue;
            }
            let is_keyed = open.spec().order.kind.is_keyed();
            let turn = open.download_turn();
            let want = open.wants(attempt);
            let lacks_inputs = open.lacks_found_inputs();
            drop(open);
            match want {
                Want::Admission => self.queue(key),
                Want::Nothing => {}
                Want::Fetch => self.downloads.add(key, turn),
                Want::Post if self.mode == Mode::Free => {}
                Want::Post
                    if is_keyed
                        && !self.was_taken(key)
                        && (!self.stands_as_admitted(key, now) || self.depends_on_balance(key)) =>
                {
                    self.requeue(key, attempt, now)?;
                }
                // What was let out before, and surely not sent, waits like the queue.
                Want::Post if self.waits_for_store(key) && (is_keyed || lacks_inputs) => {
                    self.postpone(key, attempt, now);
                }
                Want::Post if (lacks_inputs || self.waits_with_inputs(key)) && !self.knows_inputs(key) => {
                    self.want_inputs(key);
                    self.postpone(key, attempt, now);
                }
                Want::Post if lacks_inputs && self.lacks_input(key) => self.lost_inputs(key, attempt, now)?,
                Want::Post if lacks_inputs => self.begin(key, attempt, want, at),
                // Surely nothing was made of what was found: by now the inputs may have been decided otherwise.
                Want::Post if self.waits_with_inputs(key) && self.takes_others(key) => {
                    self.lost_inputs(key, attempt, now)?;
                }
                Want::Post if !is_keyed => self.mark_outcome_unknown(key, now)?,
                Want::Post if self.requests_left() == 0 || !self.may_post_again(key, now) => {
                    self.postpone(key, attempt, now);
                }
                Want::Post if self.submit_rate.turns(now.tick) == 0 => {
                    self.schedule(key, attempt, self.submit_rate.next_turn(now.tick));
                }
                Want::Post if !self.was_taken(key) && !self.is_held_at_its_price(key, now) => {
                    self.price_again(key, attempt, now)?;
                }
                Want::Post => {
                    self.submit_rate.take(1, now.tick);
                    self.begin(key, attempt, want, at);
                }
                Want::Read if !self.account.key_lets(Call::ReadTask) => self.postpone(key, attempt, now),
                Want::Read if !self.may_read() => self.delay_reading(key, attempt, at),
                Want::Read => self.begin(key, attempt, want, at),
            }
        }
        while !self.disk.is_low()
            && let Some(key) = self.downloads.pop(self.settings.downloads, |key| self.scratch.may_begin(key))
        {
            if let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) {
                self.begin(key, attempt, Want::Fetch, now.tick);
            }
        }
        Ok(())
    }

    /// Whether nothing of a job was sent, and it is not known yet if the object store of outputs answers.
    pub(super) fn waits_for_store(&self, key: JobKey) -> bool {
        self.output_store.is_awaited() && !self.was_taken(key)
    }

    /// A POST without a key leaves straight from admission. One that is still to be sent was on its way
    /// when an earlier process ended: it may have made a task, and sending it again may make another.
    fn mark_outcome_unknown(&mut self, key: JobKey, now: Now) -> Result<(), SchedulerError> {
        let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { return Ok(()) };
        let fault = Fault::new("interrupted", "the program ended while the request was on its way");
        let unknown = PostAnswer::Again { fault, wait: None, may_have_run: true };
        self.apply(key, attempt, Event::Posted(unknown), now)
    }

    /// Whether one more task may be read now.
    fn may_read(&self) -> bool {
        let tasks = self.jobs.counts().in_flight().all;
        self.requests_left() > 0 && self.reading_slots.has_room(tasks, self.settings.poll_min)
    }

    /// Whether a job's POST may be sent again. Where the answer to an earlier one was lost, nothing that the account lacks keeps
    /// it: its key returns the task that was made of it, free of charge, or is answered with one more 402 (Idempotency, 2 and 4).
    pub(super) fn may_post_again(&mut self, key: JobKey, now: Now) -> bool {
        let Some(open) = self.jobs.get(&key) else { return true };
        if open.job().lacks_answer() && open.spec().order.kind.is_keyed() {
            return self.account.may_ask_for_task(&key);
        }
        let post = (key, &open.spec().order, open.job().books().held);
        let is_busy = |other: &JobKey| self.jobs.get(other).is_some_and(OpenJob::is_busy);
        self.account.may_post_again(post, is_busy, now.wall)
    }

    /// Whether the account still lets a job be sent that was let out and of which nothing was sent.
    pub(super) fn account_still_lets(&self, key: JobKey, now: Now) -> bool {
        let Some(open) = self.jobs.get(&key) else { return true };
        let is_busy = |other: &JobKey| self.jobs.get(other).is_some_and(OpenJob::is_busy);
        self.account.still_lets((&key, &open.spec().order), is_busy, now.wall)
    }

    /// Nothing that nobody pays for leaves, and nothing at all under a refused key.
    pub(super) fn postpone(&mut self, key: JobKey, attempt: AttemptNo, now: Now) {
        self.schedule(key, attempt, now.tick.after(ACCOUNT_RECHECK));
    }

    /// Asks for the balance, where something waits for it or it is to be watched.
    pub(super) fn ask_balance_when_due(&mut self, now: Now) {
        if self.mode != Mode::Stopping && self.account.ask_when_due(self.budgets.charged(), now.tick) {
            self.pending.begin(Effect::AskBalance);
        }
    }
}
