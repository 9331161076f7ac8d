//! Prices in force: when the catalogs are asked for again, and which jobs are priced again before they are sent.

use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::time::{Now, Tick};
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::api_key_refusal::Call;
use crate::engine::scheduler::parts::attention::Attention;
use crate::engine::scheduler::{Effect, Mode, Scheduler, SchedulerError};

impl Scheduler {
    /// Whether a job is held at the price in force. False, too, where that is not known.
    pub(super) fn is_held_at_its_price(&mut self, key: JobKey, now: Now) -> bool {
        let Some((order, job)) = self.jobs.get(&key).map(|open| (&open.spec().order, open.job())) else {
            return true;
        };
        self.prices.are_known(now.tick)
            && (self.prices.decide(key, order, job.max_credits()))
                .is_ok_and(|now| now.hold == job.books().held)
    }

    /// A job whose POST made no task is admitted anew where its price has changed: asked against every limit, under the
    /// same key. Where the price in force is not known it waits for that.
    pub(super) fn price_again(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        now: Now,
    ) -> Result<(), SchedulerError> {
        if !self.prices.are_known(now.tick) {
            self.prices.want();
            self.postpone(key, attempt, now);
            return Ok(());
        }
        self.requeue(key, attempt, now)
    }

    /// Asks for the catalogs, where jobs wait and what is known is too old to send them by.
    pub(super) fn renew_prices_when_due(&mut self, now: Now) {
        self.batches.sort_in();
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
        self.mode == Mode::Paying && self.account.key_lets(Call::ReadCatalogs)
    }

    /// Whether anything waits that would be sent.
    fn has_waiting(&self) -> bool {
        if self.batches.sorted(Attention::HasRows).next().is_some() {
            return true;
        }
        let counts = self.jobs.counts();
        let waits =
            |active: &ActiveBatch| active.record().paused.is_none() && counts.has_queued(active.record().no);
        counts.queued() > 0 && self.batches.iter().any(waits)
    }
}
