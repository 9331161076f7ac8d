//! What is due: effects, deadlines, questions to the service; and what is never sent any more.

use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::job::{Attempt, State};
use crate::domain::lifecycle::{Event, Want};
use crate::domain::manifest::row::{Deadline, OnDeadline};
use crate::domain::task::{Fault, PostAnswer};
use crate::domain::time::{Millis, Now, Tick};
use crate::engine::scheduler::parts::active_batch::{ActiveBatch, DroppedRows};
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Effect, Mode, Scheduler, SchedulerError};

/// How long a deadline that passed unseen waits for its task to be read, before it is looked at again.
const UNREAD_GRACE: Millis = Millis::from_secs(5);
/// How long what the account refuses waits before it looks again.
const ACCOUNT_RECHECK: Millis = Millis(1_000);
/// Rows of a batch that a step ends at most, so that its commit stays small.
const DROPPED_MAX: usize = 64;

impl Scheduler {
    /// An overdue job gives its slot back; a task that was watched long enough is left to a person.
    pub(super) fn apply_deadlines(&mut self, now: Now) -> Result<(), SchedulerError> {
        while let Some((key, attempt)) = self.timers.pop_deadline(now.wall) {
            let Some(open) = self.jobs.get(&key) else { continue };
            let is_watched = open.job().is_overdue() || open.job().attempt() != attempt;
            let state = open.job().attempt_of(attempt).map(Attempt::state);
            let is_unread =
                open.seen_for(attempt, now.tick).is_none() && matches!(state, Some(State::Running { .. }));
            if is_unread && (is_watched || self.resubmits(key)) {
                self.postpone_deadline(key, attempt, UNREAD_GRACE, now);
                continue;
            }
            if !is_watched && let Some(left) = self.resubmission_wait(key, now) {
                self.postpone_deadline(key, attempt, left, now);
                continue;
            }
            let event = if is_watched {
                watch_expired()
            } else if self.resubmits(key) {
                Event::Resubmit
            } else {
                Event::Overdue
            };
            self.apply(key, attempt, event, now)?;
            self.watch_deadline(key, attempt);
            let present = self.jobs.get(&key).map(|open| open.job().attempt());
            if let Some(next) = present.filter(|present| *present != attempt && !is_watched) {
                // It waits for a slot and the budgets, and for nothing else.
                self.schedule(key, next, now.tick);
            }
        }
        Ok(())
    }

    /// How much longer a job must be seen in flight before it is resubmitted. The calendar may step, and downtimes count
    /// for nothing: what is bought for want of an answer is bought by the clock that never steps.
    fn resubmission_wait(&self, key: JobKey, now: Now) -> Option<Millis> {
        let open = self.jobs.get(&key).filter(|_| self.resubmits(key))?;
        let span = self.deadline_span(open.spec())?;
        let seen = open.in_flight_for(now.tick)?;
        (seen < span).then(|| Millis(span.0 - seen.0))
    }

    /// Puts a deadline off. After a downtime it may long have passed while the task has long succeeded: that is read
    /// before anything is given up or bought for it.
    fn postpone_deadline(&mut self, key: JobKey, attempt: AttemptNo, wait: Millis, now: Now) {
        self.timers.set_deadline(key, attempt, Some(now.wall.after(wait)));
    }

    /// Whether a job gets another attempt when its deadline passes. One with an instant for a deadline does not:
    /// it could only be late.
    fn resubmits(&self, key: JobKey) -> bool {
        let Some(active) = self.batches.get(&key.batch) else { return false };
        let Some(open) = self.jobs.get(&key) else { return false };
        active.record().policy.on_deadline == Some(OnDeadline::Resubmit)
            && !active.record().canceled
            && !matches!(open.spec().order.deadline, Some(Deadline::At(_)))
    }

    /// Begins what is due: resends, readings, downloads, and the wait for admission.
    pub(super) fn start_due_effects(&mut self, now: Now) -> Result<(), SchedulerError> {
        // Requests in flight finish after a stop; nothing new begins.
        if self.mode == Mode::Stopping {
            self.timers.stop_effects();
            return Ok(());
        }
        while let Some((at, key, attempt)) = self.timers.pop_effect(now.tick) {
            let Some(mut open) = self.jobs.get_mut(&key) else { continue };
            open.set_timed(attempt, false);
            if open.is_attempt_busy(attempt) {
                continue;
            }
            let is_keyed = open.spec().order.kind.is_keyed();
            let is_slow = open.is_slow();
            let want = open.wants(attempt);
            drop(open);
            match want {
                Want::Admission => self.jobs.queue(key),
                Want::Nothing => {}
                Want::Fetch => self.downloads.add(key, is_slow),
                Want::Post if self.mode == Mode::Free => {}
                Want::Post if !is_keyed => self.mark_outcome_unknown(key, now)?,
                Want::Post if !self.may_post_again(key, now) => self.postpone(key, attempt, now),
                Want::Post if !self.was_taken(key) && !self.is_held_at_its_price(key, now) => {
                    self.price_again(key, attempt, now)?;
                }
                Want::Read if self.account.key_is_refused() => self.postpone(key, attempt, now),
                want @ (Want::Post | Want::Read) => self.begin(key, attempt, want, at),
            }
        }
        while !self.disk.is_low()
            && let Some(key) = self.downloads.pop(self.settings.downloads)
        {
            if let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) {
                self.begin(key, attempt, Want::Fetch, now.tick);
            }
        }
        Ok(())
    }

    /// A POST without a key leaves straight from admission. One that is still to be sent was on its way
    /// when an earlier process ended: it may have made a task, and sending it again may make another.
    fn mark_outcome_unknown(&mut self, key: JobKey, now: Now) -> Result<(), SchedulerError> {
        let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { return Ok(()) };
        let fault = Fault::new("interrupted", "the program ended while the request was on its way");
        let unknown = PostAnswer::Again { fault, wait: None, may_have_run: true };
        self.apply(key, attempt, Event::Posted(unknown), now)
    }

    /// Whether a job's POST may be sent again.
    fn may_post_again(&mut self, key: JobKey, now: Now) -> bool {
        let Some(open) = self.jobs.get(&key) else { return true };
        let post = (key, &open.spec().order, open.job().books().held);
        let is_busy = |other: &JobKey| self.jobs.get(other).is_some_and(OpenJob::is_busy);
        self.account.may_post_again(post, is_busy, now.wall)
    }

    /// Whether a POST of a job may have made a task: then it is charged what that costs, whatever the catalog says now.
    fn was_taken(&self, key: JobKey) -> bool {
        let state = self.jobs.get(&key).map(|open| open.job().state());
        !matches!(state, Some(State::Submitting { may_have_run: false, .. }))
    }

    /// Whether a job is held at the price in force. False, too, where that is not known.
    fn is_held_at_its_price(&mut self, key: JobKey, now: Now) -> bool {
        let Some((order, job)) = self.jobs.get(&key).map(|open| (&open.spec().order, open.job())) else {
            return true;
        };
        self.prices.are_known(now.tick)
            && (self.prices.decide(key, order, job.max_credits()))
                .is_ok_and(|release| release.hold == job.books().held)
    }

    /// A job whose POST made no task is let out anew where its price has changed: asked against every limit, under the
    /// same key. Where the price in force is not known it waits for that.
    fn price_again(&mut self, key: JobKey, attempt: AttemptNo, now: Now) -> Result<(), SchedulerError> {
        if !self.prices.are_known(now.tick) {
            self.prices.want();
            self.postpone(key, attempt, now);
            return Ok(());
        }
        self.apply(key, attempt, Event::PriceChanged, now)?;
        self.jobs.queue(key);
        Ok(())
    }

    /// Nothing that nobody pays for leaves, and nothing at all under a refused key.
    fn postpone(&mut self, key: JobKey, attempt: AttemptNo, now: Now) {
        self.schedule(key, attempt, now.tick.after(ACCOUNT_RECHECK));
    }

    /// Asks for the catalogs, where jobs wait and what is known is too old to send them by.
    pub(super) fn renew_prices_when_due(&mut self, now: Now) {
        let is_wanted = self.prices.are_wanted() || self.has_waiting();
        if self.may_renew_prices() && self.prices.are_due(now.tick) && is_wanted {
            self.prices.asked();
            self.pending.begin(Effect::RenewCatalog);
        }
    }

    /// When the catalogs are asked for again.
    pub(super) fn prices_due(&self) -> Option<Tick> {
        self.prices.due().filter(|_| self.may_renew_prices() && self.has_waiting())
    }

    fn may_renew_prices(&self) -> bool {
        self.mode == Mode::Paying && !self.account.key_is_refused()
    }

    /// Whether anything waits that would be sent.
    fn has_waiting(&self) -> bool {
        let waits = |active: &ActiveBatch| {
            active.record().paused.is_none()
                && (active.has_rows() || self.jobs.counts().has_queued(active.record().no))
        };
        self.batches.iter().any(waits)
    }

    /// Asks for the balance, where something waits for it or it is to be watched.
    pub(super) fn ask_balance_when_due(&mut self, now: Now) {
        if self.mode != Mode::Stopping && self.account.ask_when_due(self.budgets.charged(), now.tick) {
            self.pending.begin(Effect::AskBalance);
        }
    }

    /// What was not sent before its batch expired, or was canceled, never is.
    pub(super) fn drop_unsent(&mut self, now: Now) -> Result<(), SchedulerError> {
        if self.mode == Mode::Stopping {
            return Ok(());
        }
        let reason = |active: &ActiveBatch| match active {
            _ if active.record().is_done() => None,
            _ if active.is_canceled() => Some(Event::Cancel),
            _ if active.has_expired(now) => Some(Event::Expire),
            _ => None,
        };
        let dropped: Vec<(BatchNo, Event)> =
            self.batches.iter().filter_map(|active| Some((active.record().no, reason(active)?))).collect();
        for (no, event) in dropped {
            self.drop_rows(no, &event, now)?;
            if event == Event::Expire || self.batches.get(&no).is_some_and(|active| active.record().canceled)
            {
                self.drop_queued(no, &event, now)?;
            }
        }
        Ok(())
    }

    /// Begins rows of a batch that wait in memory, only to end them.
    fn drop_rows(&mut self, no: BatchNo, event: &Event, now: Now) -> Result<(), SchedulerError> {
        let Some(active) = self.batches.get(&no) else { return Ok(()) };
        let DroppedRows { all, lasts } = active.rows_to_drop(*event == Event::Cancel, DROPPED_MAX);
        if all.len() >= DROPPED_MAX {
            // There may be more in memory, of which nothing else would remind.
            self.pending.wake_at(now.tick);
        }
        for seq in lasts {
            self.open_rows_up_to(JobKey { batch: no, seq });
        }
        for seq in all {
            self.apply(JobKey { batch: no, seq }, AttemptNo::FIRST, event.clone(), now)?;
        }
        Ok(())
    }

    fn drop_queued(&mut self, no: BatchNo, event: &Event, now: Now) -> Result<(), SchedulerError> {
        for key in self.jobs.all_candidates(no) {
            let Some(job) = self.jobs.get(&key).map(|open| open.job()) else { continue };
            // One that waits for another attempt does not expire; its owner may still cancel it.
            let is_due = *event == Event::Cancel || job.first_sent().is_none();
            if is_due && !job.may_have_been_sent() {
                let attempt = job.attempt();
                self.apply(key, attempt, event.clone(), now)?;
            }
        }
        Ok(())
    }
}

/// A task was watched to the end of the late window, and is left to a person.
fn watch_expired() -> Event {
    Event::WatchExpired(Fault::new("deadline", "its task did not end within deadlines.watch_overdue_for"))
}
