//! The prices in force: what is held for a job when it is admitted.
//!
//! A job may have waited for days. Before it is sent it is priced by the catalog that holds then, which is asked for again
//! after [`RENEW_INTERVAL`]; where the service does not answer, the one that is kept counts while the service lets it be
//! cached, and what it prices waits after that. Only what admission looks at is priced, and each job once for every
//! version of the catalog.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::domain::credit_hold::{self, ABOVE_MAX, Basis, Hold, HoldRefusal};
use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::{BatchName, BatchNo, JobKey, Seq};
use crate::domain::job::{Job, Order, State};
use crate::domain::job_reference::InputField;
use crate::domain::quote::catalog::{CATALOG_MAX_AGE, NEW_BATCH_MAX_AGE};
use crate::domain::quote::{self, Bound, Catalog, CatalogPart, Cost, LengthError, Rules, Surcharges};
use crate::domain::shell_word::job_argument;
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Tick};
use crate::engine::scheduler::job_log;

/// How old the catalogs may be when a job is admitted. The service lets them be cached for an hour, and its prices may
/// change within it; four small answers every five minutes are little beside the readings of a single task.
const RENEW_INTERVAL: Millis = Millis::from_secs(300);
/// When they are asked for again where one of them is missing.
const RETRY_INTERVAL: Millis = Millis::from_secs(30);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Prices {
    /// What the catalogs do not carry; nothing: jobs go out at the price that they were accepted at.
    rules: Option<Arc<Rules>>,
    catalog: Option<Arc<Catalog>>,
    /// Until when what is known of them may be used if no answer comes.
    used_until: Tick,
    /// From when on a batch that is accepted has them asked for again: not at once where they have just come, or just could
    /// not be read.
    batches_renew_from: Tick,
    /// When they are asked for again, while jobs wait; at once where nothing is said.
    due: Option<Tick>,
    /// The catalogs are being asked for.
    asking: bool,
    /// A job that is to be sent again waits for them.
    wanted: bool,
    /// How often what was charged above the catalog is being kept.
    keeping: u32,
    /// What jobs are let out at, by the catalog and the rules in force.
    decided: HashMap<JobKey, Result<Hold, HoldRefusal>>,
    /// Jobs whose charge nothing bounds, from their hold on; some may be settled already.
    unbounded: BTreeSet<JobKey>,
}

impl Prices {
    /// No catalog is known yet.
    pub fn new(rules: Option<Arc<Rules>>) -> Prices {
        Prices { rules, ..Prices::default() }
    }

    /// Other rules hold from now on.
    pub fn set_rules(&mut self, rules: Option<Arc<Rules>>) {
        self.rules = rules;
        self.decided.clear();
    }

    /// The catalogs are asked for again before anything more is sent.
    pub fn renew(&mut self) {
        self.due = None;
    }

    /// A batch was accepted, or its owner lets jobs go that waited: the catalogs are asked for again before anything of it is
    /// sent, unless they have just come.
    pub fn renew_for_owner(&mut self, now: Tick) {
        if now >= self.batches_renew_from {
            self.renew();
        }
    }

    /// Whether the catalogs in force are young enough to send by.
    fn are_fresh(&self, now: Tick) -> bool {
        self.rules.is_none() || !self.asking && self.due.is_some_and(|due| now < due)
    }

    /// Whether something may be sent by the prices that are known.
    pub fn are_known(&self, now: Tick) -> bool {
        let has_catalog = self.catalog.is_some() && now < self.used_until;
        self.rules.is_none() || has_catalog && self.are_fresh(now)
    }

    /// Whether something of it is under way.
    pub fn are_busy(&self) -> bool {
        self.asking || self.keeping > 0
    }

    /// Whether the catalogs are to be asked for, if anything waits to be sent.
    pub fn are_due(&self, now: Tick) -> bool {
        !self.asking && !self.are_fresh(now)
    }

    /// A job that is to be sent again waits for the catalogs.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// Whether a job that is to be sent again waits for the catalogs.
    pub fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// When that is; nothing while they are being asked for, or where that is at once.
    pub fn due(&self) -> Option<Tick> {
        self.due.filter(|_| self.rules.is_some() && !self.asking)
    }

    /// The catalogs are being asked for.
    pub fn asked(&mut self) {
        self.asking = true;
    }

    /// The catalogs came, or did not.
    pub fn answered(&mut self, answer: Result<Arc<Catalog>, Fault>, now: Tick) {
        (self.asking, self.wanted) = (false, false);
        self.batches_renew_from = now.after(RETRY_INTERVAL);
        match answer {
            Ok(mut catalog) => {
                if let Some(known) = &self.catalog
                    && !known.surcharges.is_empty()
                {
                    Arc::make_mut(&mut catalog).surcharges.merge(&known.surcharges);
                }
                let is_whole = catalog.missing.is_empty();
                self.due = Some(now.after(if is_whole { RENEW_INTERVAL } else { RETRY_INTERVAL }));
                self.used_until = now.after(CATALOG_MAX_AGE);
                self.batches_renew_from = now.after(NEW_BATCH_MAX_AGE);
                if self.catalog.as_ref() != Some(&catalog) {
                    self.catalog = Some(catalog);
                    self.decided.clear();
                }
            }
            Err(fault) if self.catalog.is_some() && now < self.used_until => {
                job_log::catalog_not_renewed(&fault);
                self.due = Some(now.after(RENEW_INTERVAL));
            }
            Err(fault) => {
                job_log::no_catalog(&fault);
                self.due = Some(now.after(RETRY_INTERVAL));
            }
        }
    }

    /// Whether one of the catalogs is missing, and asked for again soon.
    pub fn lack_a_catalog(&self) -> bool {
        self.catalog.as_ref().is_some_and(|catalog| !catalog.missing.is_empty())
    }

    /// What a body costs now; nothing where no catalog is known.
    fn cost(&self, order: &Order) -> Option<Result<Cost, Diagnostic>> {
        let (rules, catalog) = (self.rules.as_deref()?, self.catalog.as_deref()?);
        if let Some(why) = CatalogPart::needed_by(order.kind).and_then(|part| catalog.unavailable(part)) {
            return Some(Err(Diagnostic::new(why)));
        }
        Some(quote::reprice(order.kind, &order.body.fields(), catalog, rules))
    }

    /// The same of what an attempt of a job sends: with the length that was found for it.
    fn cost_as_sent(&self, order: &Order, job: &Job) -> Option<Result<Cost, Diagnostic>> {
        if !order.has_open_length() {
            return self.cost(order);
        }
        let (rules, catalog) = (self.rules.as_deref()?, self.catalog.as_deref()?);
        let body = order.body_with_length(job.present().inputs());
        Some(quote::reprice(order.kind, &body, catalog, rules))
    }

    /// The exact price of a job whose length was measured; nothing where there is none.
    pub fn price_by_length(&self, order: &Order, job: &Job) -> Option<Credits> {
        if !order.has_open_length() {
            return None;
        }
        self.cost_as_sent(order, job)?.ok()?.price
    }

    /// What is sent in this option for an output that is so long; nothing where no catalog is known.
    ///
    /// # Errors
    /// [`LengthError`].
    pub fn fitting_length(
        &self,
        order: &Order,
        field: InputField,
        measured: Millis,
    ) -> Option<Result<Value, LengthError>> {
        let (rules, catalog) = (self.rules.as_deref()?, self.catalog.as_deref()?);
        let body = order.body.fields();
        Some(quote::fitting_length_of_body((order.kind, &body), field, measured, catalog, rules))
    }

    /// The price at which a waiting job is admitted; `max` is what a person allowed it to cost. Worked out once for every
    /// version of the catalog.
    ///
    /// # Errors
    /// [`HoldRefusal`]: it must not be sent at this price.
    pub fn decide(&mut self, key: JobKey, order: &Order, max: Option<Credits>) -> Result<Hold, HoldRefusal> {
        if let Some(known) = self.decided.get(&key) {
            return known.clone();
        }
        let decision = self.hold_for(order, max);
        self.decided.insert(key, decision.clone());
        decision
    }

    /// What must be held to admit a waiting job, in credits; nothing where it must not be sent at its price.
    pub fn hold_of(&self, key: JobKey, order: &Order, max: Option<Credits>) -> Option<Credits> {
        Some(self.foresee(key, order, max).ok()?.hold)
    }

    /// At which price a waiting job would be admitted now.
    ///
    /// # Errors
    /// [`HoldRefusal`]: it must not be sent at its price.
    pub fn foresee(&self, key: JobKey, order: &Order, max: Option<Credits>) -> Result<Hold, HoldRefusal> {
        match self.decided.get(&key) {
            Some(known) => known.clone(),
            None => self.hold_for(order, max),
        }
    }

    fn hold_for(&self, order: &Order, max: Option<Credits>) -> Result<Hold, HoldRefusal> {
        let cost = self.cost(order).unwrap_or_else(|| Ok(as_accepted(order)));
        credit_hold::hold_for(&cost, max.or(order.max_credits))
    }

    /// The price of a job is to be decided anew.
    pub fn forget(&mut self, key: &JobKey) {
        self.decided.remove(key);
    }

    /// A job is admitted at this price.
    pub fn note_admission(&mut self, key: JobKey, hold: Hold) {
        self.forget(&key);
        if hold.basis == Basis::MaxCredits {
            self.unbounded.insert(key);
        }
    }

    /// Takes up a job that was let out before.
    pub fn note_resumed(&mut self, key: JobKey, job: &Job) {
        if is_unbounded(job) {
            self.unbounded.insert(key);
        }
    }

    /// Whether a job of the batch is out whose charge nothing bounds and nobody knows yet. One that waits in the queue
    /// with its hold, since its state was recovered, is the next to go.
    pub fn await_charge<'a>(&self, batch: BatchNo, job: impl Fn(&JobKey) -> Option<&'a Job>) -> bool {
        let range = JobKey { batch, seq: Seq(0) }..=JobKey { batch, seq: Seq(u32::MAX) };
        let is_awaited =
            |job: &Job| !matches!(job.state(), State::Queued) && is_unbounded(job) && is_unsettled(job);
        self.unbounded.range(range).filter_map(job).any(is_awaited)
    }

    /// What a charge says of the price of its cell, once it is known. Returns all that was charged above the catalog, to
    /// be kept, where that is new.
    pub fn learn_charge(&mut self, key: JobKey, order: &Order, job: &Job) -> Option<Surcharges> {
        if !is_unsettled(job) {
            self.unbounded.remove(&key);
        }
        let admitted = job.admission_hold()?;
        let charged = job.books().charged + job.books().waived;
        let tells =
            matches!(job.state(), State::Running { .. } | State::Fetching { .. } | State::Succeeded { .. });
        if !tells || is_unsettled(job) || !self.learn(order, job, admitted, charged) {
            return None;
        }
        let surcharges = self.catalog.as_ref()?.surcharges.clone();
        job_log::charged_above(order, admitted.hold, charged);
        self.keeping += 1;
        Some(surcharges)
    }

    /// What was charged above the catalog is kept, or could not be.
    pub fn surcharges_kept(&mut self) {
        self.keeping = self.keeping.saturating_sub(1);
    }

    /// A charge above the price that a job was let out at holds for its cell of the catalog from now on. True: that
    /// is new.
    fn learn(&mut self, order: &Order, job: &Job, admitted: Hold, charged: Credits) -> bool {
        let (Some(held), Some(Ok(cost))) = (admitted.price(), self.cost_as_sent(order, job)) else {
            return false;
        };
        let (Some(price), Some(listed)) = (cost.price, cost.listed) else { return false };
        // What was let out at a price that fell since says nothing of the present one.
        if charged <= price || held > price {
            return false;
        }
        let Some(catalog) = self.catalog.as_mut() else { return false };
        let is_new = Arc::make_mut(catalog).surcharges.learn(&cost.cell, listed, charged);
        if is_new {
            self.decided.clear();
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
        cheapest: order.cheapest,
        formula: order.formula.clone(),
        listed: order.price,
        cell: String::new(),
    }
}

/// Why a job that costs more than it may, or may come to, is not sent.
pub fn above_max(withheld: &HoldRefusal, batch: &BatchName, label: &str) -> Option<Fault> {
    let needed = match withheld {
        HoldRefusal::AboveMax { price, .. } => price,
        HoldRefusal::MayExceedMax { dearest, .. } => dearest,
        HoldRefusal::NoPrice { .. } => return None,
    };
    let message = format!(
        "{withheld}; to send it all the same: callsheet retry {} --max-credits {}",
        job_argument(batch, label),
        needed.0
    );
    Some(Fault::new(ABOVE_MAX, message))
}

fn is_unbounded(job: &Job) -> bool {
    job.admission_hold().is_some_and(|admitted| admitted.basis == Basis::MaxCredits)
}

fn is_unsettled(job: &Job) -> bool {
    !job.books().held.is_zero()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::request::Kind;
    use crate::engine::scheduler::tests::spec;

    const KEY: JobKey = JobKey { batch: BatchNo(1), seq: Seq(0) };

    /// An image that was accepted at 10 credits.
    fn order() -> Order {
        let body = json!({"model": "flat", "prompt": "a fox", "scene": "text-to-image"});
        let body = body.as_object().unwrap().clone();
        let mut order = Order { body: body.into(), ..spec(0, Kind::Image).order.clone() };
        order.terms_mut().model = Some("flat".to_owned());
        order
    }

    /// A catalog in which it costs this much.
    fn catalog(price: u64) -> Result<Arc<Catalog>, Fault> {
        let prices = json!({"aspect_ratios": [], "qualities": [], "credits_per_generation": price});
        let images = json!([{"id": "flat", "modes": {"text-to-image": prices}}]);
        Ok(Arc::new(Catalog::of(&json!([]), &images, &json!([]), &Value::Null)))
    }

    fn priced() -> Prices {
        Prices::new(Some(Arc::new(Rules::builtin())))
    }

    #[test]
    fn without_rules_jobs_go_at_the_price_that_they_were_accepted_at() {
        let mut prices = Prices::new(None);
        assert!(prices.are_known(Tick(0)) && !prices.are_due(Tick(0)));
        assert_eq!(prices.decide(KEY, &order(), None), Ok(Hold::priced(Credits(10))));
        prices.forget(&KEY);
        assert!(prices.decide(KEY, &order(), Some(Credits(9))).is_err());
        assert_eq!(prices.hold_of(KEY, &order(), Some(Credits(9))), None);
    }

    #[test]
    fn a_catalog_is_asked_for_again_after_a_while_and_sooner_where_there_is_none() {
        let mut prices = priced();
        assert!(prices.are_due(Tick(0)) && !prices.are_known(Tick(0)));
        prices.asked();
        assert!(prices.are_busy() && !prices.are_due(Tick(0)));
        prices.answered(Err(Fault::new("catalog", "none")), Tick(0));
        assert_eq!((prices.due(), prices.are_known(Tick(0))), (Some(Tick(30_000)), false));
        prices.answered(catalog(10), Tick(0));
        assert_eq!((prices.due(), prices.are_known(Tick(299_999))), (Some(Tick(300_000)), true));
        assert!(!prices.are_known(Tick(300_000)));
        prices.renew_for_owner(Tick(4_999));
        assert!(prices.are_known(Tick(4_999)), "they have just come");
        prices.renew_for_owner(Tick(5_000));
        assert!(prices.are_due(Tick(5_000)) && !prices.are_known(Tick(5_000)));
        prices.answered(Err(Fault::new("catalog", "none")), Tick(5_000));
        prices.renew_for_owner(Tick(34_999));
        assert!(prices.are_known(Tick(34_999)), "they just could not be read");
        prices.renew_for_owner(Tick(35_000));
        assert!(!prices.are_known(Tick(35_000)));
        prices.answered(catalog(10), Tick(5_000));
        prices.renew();
        assert!(prices.are_due(Tick(5_001)) && !prices.are_known(Tick(5_001)));
    }

    #[test]
    fn another_catalog_decides_anew() {
        let mut prices = priced();
        prices.answered(catalog(20), Tick(0));
        assert_eq!(prices.decide(KEY, &order(), None), Ok(Hold::priced(Credits(20))));
        assert_eq!(prices.hold_of(KEY, &order(), None), Some(Credits(20)));
        prices.answered(catalog(30), Tick(0));
        assert_eq!(prices.decide(KEY, &order(), None), Ok(Hold::priced(Credits(30))));
    }

    #[test]
    fn a_job_whose_charge_nothing_bounds_is_waited_for() {
        let mut prices = Prices::new(None);
        prices.note_admission(KEY, Hold { hold: Credits(7), basis: Basis::MaxCredits });
        assert!(!prices.await_charge(KEY.batch, |_| None), "it is not open any more");
        let queued = Job::queued();
        assert!(!prices.await_charge(KEY.batch, |_| Some(&queued)));
        assert!(!prices.await_charge(BatchNo(2), |_| -> Option<&Job> { panic!("of another batch") }));
    }
}
