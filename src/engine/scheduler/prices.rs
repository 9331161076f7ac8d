//! The prices in force: what is held for a job when it is admitted.
//!
//! A job may have waited for days. Before it is sent it is priced by the catalog that holds then, which is never older
//! than [`RENEW_INTERVAL`]. Only what admission looks at is priced, and each job once for every version of the catalog.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchName, BatchNo, JobKey, Seq};
use crate::domain::job::{Job, Order, State};
use crate::domain::lifecycle::Event;
use crate::domain::quote::{self, Bound, Catalog, Cost, FieldDiagnostic, Rules};
use crate::domain::release_price::{self, ABOVE_MAX, Basis, Release, Withheld};
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Now, Tick};
use crate::engine::scheduler::{ActiveBatch, Effect, Scheduler, SchedulerError, job_log};

/// How old the catalogs may be when a job is admitted. The service lets them be cached for an hour, and its prices may
/// change within it; four small answers every five minutes are little beside the readings of a single task.
pub(super) const RENEW_INTERVAL: Millis = Millis::from_secs(300);
/// When they are asked for again where there are none at all.
const RETRY_INTERVAL: Millis = Millis::from_secs(30);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Prices {
    /// What the catalogs do not carry; nothing: jobs go out at the price that they were accepted at.
    rules: Option<Arc<Rules>>,
    catalog: Option<Arc<Catalog>>,
    /// When they are asked for again, while jobs wait; at once where nothing is said.
    due: Option<Tick>,
    /// The catalogs are being asked for.
    asking: bool,
    /// How often what was charged above the catalog is being kept.
    keeping: u32,
    /// What jobs are let out at, by the catalog and the rules in force.
    decided: Mutex<HashMap<JobKey, Result<Release, Withheld>>>,
    /// Jobs whose charge nothing bounds, from their hold on; some may be settled already.
    unbounded: BTreeSet<JobKey>,
}

impl Prices {
    pub(super) fn new(rules: Option<Arc<Rules>>) -> Prices {
        Prices { rules, ..Prices::default() }
    }

    /// The catalogs are asked for again before anything more is sent.
    pub(super) fn renew(&mut self) {
        self.due = None;
    }

    /// Other rules hold from now on.
    pub(super) fn set_rules(&mut self, rules: Option<Arc<Rules>>) {
        self.rules = rules;
        self.forget_all();
    }

    /// The price of a job is to be decided anew.
    pub(super) fn forget(&mut self, key: &JobKey) {
        self.decided.get_mut().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn forget_all(&mut self) {
        self.decided.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether the catalogs in force are young enough to send by.
    pub(super) fn are_fresh(&self, now: Tick) -> bool {
        self.rules.is_none() || !self.asking && self.due.is_some_and(|due| now < due)
    }

    /// Whether something of it is under way.
    pub(super) fn are_busy(&self) -> bool {
        self.asking || self.keeping > 0
    }

    /// What was charged above the catalog is kept.
    pub(super) fn are_kept(&mut self) {
        self.keeping = self.keeping.saturating_sub(1);
    }

    /// What a body costs now; nothing where no catalog is known.
    fn cost(&self, order: &Order) -> Option<Result<Cost, FieldDiagnostic>> {
        let (rules, catalog) = (self.rules.as_deref()?, self.catalog.as_deref()?);
        Some(quote::reprice(order.kind, &order.body, catalog, rules))
    }

    /// The price at which a waiting job is admitted.
    pub(super) fn decide(
        &self,
        key: JobKey,
        order: &Order,
        max: Option<Credits>,
    ) -> Result<Release, Withheld> {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = decided.get(&key) {
            return known.clone();
        }
        let cost = self.cost(order).unwrap_or_else(|| Ok(as_accepted(order)));
        let decision = release_price::release(&cost, max.or(order.max_credits));
        decided.insert(key, decision.clone());
        decision
    }

    /// Takes note of a job that is admitted.
    pub(super) fn let_out(&mut self, key: JobKey, release: Release) {
        self.forget(&key);
        if release.basis == Basis::MaxCredits {
            self.unbounded.insert(key);
        }
    }

    /// A charge above the price that a job was let out at holds for its cell of the catalog from now on. True: that
    /// is new.
    fn learn(&mut self, order: &Order, release: Release, charged: Credits) -> bool {
        let (Some(released), Some(Ok(cost))) = (release.price(), self.cost(order)) else { return false };
        let (Some(price), Some(listed)) = (cost.price, cost.listed) else { return false };
        // What was let out at a price that fell since says nothing of the present one.
        if charged <= price || released > price {
            return false;
        }
        let Some(catalog) = self.catalog.as_mut() else { return false };
        let is_new = Arc::make_mut(catalog).surcharges.learn(&cost.cell, listed, charged);
        if is_new {
            self.forget_all();
        }
        is_new
    }
}

/// What was planned, where no catalog is known.
fn as_accepted(order: &Order) -> Cost {
    let dearest = order.price.or(order.bound);
    Cost {
        price: order.price,
        bound: Bound { dearest: dearest.unwrap_or_default(), is_firm: dearest.is_some() },
        formula: order.formula.clone(),
        listed: order.price,
        cell: String::new(),
    }
}

/// Why a job that costs more than it may is not sent.
pub(super) fn above_max(withheld: &Withheld, batch: &BatchName, label: &str) -> Option<Fault> {
    let Withheld::AboveMax { price, .. } = withheld else { return None };
    let message = format!(
        "{withheld}; to send it all the same: callsheet retry {batch}/{label} --max-credits {}",
        price.0
    );
    Some(Fault::new(ABOVE_MAX, message))
}

impl Scheduler {
    /// Asks for the catalogs, where jobs wait and what is known is too old to send them by.
    pub(super) fn renew_when_due(&mut self, now: Now) {
        if self.stopping || self.sending_disabled || self.prices.asking || self.prices.are_fresh(now.tick) {
            return;
        }
        if !self.key_is_refused() && self.has_waiting() {
            self.prices.asking = true;
            self.pending.begin(Effect::RenewCatalog);
        }
    }

    /// When the catalogs are asked for again.
    pub(super) fn renewal(&self) -> Option<Tick> {
        let Prices { rules, due, asking, .. } = &self.prices;
        let is_wanted = rules.is_some() && !*asking && !self.sending_disabled && !self.key_is_refused();
        due.filter(|_| is_wanted && self.has_waiting())
    }

    /// Whether anything waits that would be sent.
    pub(super) fn has_waiting(&self) -> bool {
        let waits = |active: &ActiveBatch| {
            active.record.paused.is_none()
                && (active.has_rows() || self.jobs.counts().has_queued(active.record.no))
        };
        self.batches.iter().any(waits)
    }

    /// The catalogs came, or did not.
    pub(super) fn catalog(&mut self, answer: Result<Arc<Catalog>, Fault>, now: Now) {
        self.prices.asking = false;
        match answer {
            Ok(mut catalog) => {
                if let Some(known) = &self.prices.catalog
                    && !known.surcharges.is_empty()
                {
                    Arc::make_mut(&mut catalog).surcharges.merge(&known.surcharges);
                }
                self.prices.due = Some(now.tick.after(RENEW_INTERVAL));
                if self.prices.catalog.as_ref() != Some(&catalog) {
                    self.prices.catalog = Some(catalog);
                    self.prices.forget_all();
                }
            }
            Err(fault) if self.prices.catalog.is_some() => {
                job_log::catalog_not_renewed(&fault);
                self.prices.due = Some(now.tick.after(RENEW_INTERVAL));
            }
            Err(fault) => {
                job_log::no_catalog(&fault);
                self.prices.due = Some(now.tick.after(RETRY_INTERVAL));
            }
        }
    }

    /// Whether something may be sent by the prices that are known.
    pub(super) fn prices_are_known(&self, now: Now) -> bool {
        self.prices.rules.is_none() || self.prices.catalog.is_some() && self.prices.are_fresh(now.tick)
    }

    /// Whether a job of the batch is out whose charge nothing bounds and nobody knows yet. One that waits in the queue
    /// with its hold, since its state was recovered, is the next to go.
    pub(super) fn waits_for_a_charge(&self, batch: BatchNo) -> bool {
        let range = JobKey { batch, seq: Seq(0) }..=JobKey { batch, seq: Seq(u32::MAX) };
        let is_unsettled = |key: &JobKey| {
            self.jobs
                .get(key)
                .map(|open| open.job())
                .filter(|job| !matches!(job.state(), State::Queued))
                .is_some_and(|job| is_unbounded(job) && is_unsettled(job))
        };
        self.prices.unbounded.range(range).any(is_unsettled)
    }

    /// Notes the price at which a job is admitted, and what changed since it was planned.
    pub(super) fn let_out(
        &mut self,
        key: JobKey,
        attempt: AttemptNo,
        now: Now,
    ) -> Result<(), SchedulerError> {
        let Some(open) = self.jobs.get(&key) else { return Ok(()) };
        let (order, job) = (&open.spec().order, open.job());
        let Ok(release) = self.prices.decide(key, order, job.max_credits()) else { return Ok(()) };
        let was = job.hold(order).filter(|was| *was != release.hold);
        self.prices.let_out(key, release);
        self.apply(key, attempt, Event::Price { release, was }, now)
    }

    /// Takes up a job that was let out before.
    pub(super) fn note_release(&mut self, key: JobKey) {
        if self.jobs.get(&key).is_some_and(|open| is_unbounded(open.job())) {
            self.prices.unbounded.insert(key);
        }
    }

    /// What a charge says of the price of its cell, once it is known.
    pub(super) fn learn_charge(&mut self, key: JobKey, order: &Order, job: &Job) {
        if !is_unsettled(job) {
            self.prices.unbounded.remove(&key);
        }
        let Some(release) = job.released() else { return };
        let charged = job.books().charged + job.books().waived;
        if matches!(job.state(), State::Running { .. } | State::Fetching { .. } | State::Succeeded { .. })
            && !is_unsettled(job)
            && self.prices.learn(order, release, charged)
            && let Some(catalog) = &self.prices.catalog
        {
            job_log::charged_above(order, release.hold, charged);
            self.prices.keeping += 1;
            self.pending.begin(Effect::KeepSurcharges(catalog.surcharges.clone()));
        }
    }
}

fn is_unbounded(job: &Job) -> bool {
    job.released().is_some_and(|release| release.basis == Basis::MaxCredits)
}

fn is_unsettled(job: &Job) -> bool {
    !job.books().held.is_zero()
}
