//! The service as a state machine: account, keys, tasks and the audit of calls.
//!
//! Pure: time is an argument, and a creation is split in two so that it can be written down in between.
//! [`ServiceState::prepare`] decides and changes nothing that matters; [`ServiceState::apply`] makes a [`Record`] true.
//! A record log that is applied again from the start gives the same state.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::account::{Account, Plan, Pool};
use super::catalog::Catalog;
use super::clock::utc_day;
use super::errors::ApiError;
use super::faults::ActiveFaults;
use super::refund::DueRefunds;
use super::task_duration::task_duration;
use super::task_outcome::{self, TaskOutcome};
use super::tasks::{Ending, FirstAnswer, Kind, Shape, Task, Timing};
use super::usage::{TaskUsage, Totals};
use super::validation::Order;

/// The most tasks the emulator remembers; one more is refused with 500.
const MOST_TASKS: usize = 2_000_000;
/// The most text (prompts, options, keys) it remembers.
const MOST_TEXT_BYTES: usize = 1 << 30;

/// A fact that outlives the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The first line: who the account is and what it begins with.
    Opened { version: u32, epoch: u64, manual_clock: bool, credits: u64, plan: Plan },
    /// The account was set from outside.
    Account {
        at_ms: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credits: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plan: Option<Plan>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key_revoked: Option<bool>,
        /// Credits that were bought.
        #[serde(default, skip_serializing_if = "is_zero")]
        topped_up: u64,
        /// Credits that another client of the account spent.
        #[serde(default, skip_serializing_if = "is_zero")]
        spent_elsewhere: u64,
        /// What another client used of the day's allowances.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        used_elsewhere: Vec<(Pool, u64)>,
    },
    /// A task was created, its key taken and its price charged.
    Task { task: Box<Task> },
    /// A key was sent again.
    Replay { at_ms: i64, id: Uuid, foreign: bool },
    /// The end of a running task was decided from outside.
    Ended { at_ms: i64, id: Uuid, ending: Ending },
    /// The clock was stepped, or another kind of clock took over.
    Clock { manual: bool, base_ms: i64 },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over by reference")]
fn is_zero(credits: &u64) -> bool {
    *credits == 0
}

/// A task with what was seen of it.
#[derive(Debug)]
pub(crate) struct TrackedTask {
    pub(crate) task: Task,
    pub(crate) usage: TaskUsage,
    pub(crate) refunded: bool,
}

/// The state of the service.
#[derive(Debug)]
pub(crate) struct ServiceState {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) account: Account,
    pub(crate) fault_profile: ActiveFaults,
    pub(crate) totals: Totals,
    tasks: HashMap<Uuid, TrackedTask>,
    order: Vec<Uuid>,
    keys: HashMap<Box<str>, Uuid>,
    /// Tasks of Shorts Studio by their `requestId`.
    requests: HashMap<Uuid, Uuid>,
    refunds: DueRefunds,
    text_bytes: usize,
    epoch: u64,
    speed: f64,
    seed: u64,
}

impl ServiceState {
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        fault_profile: ActiveFaults,
        speed: f64,
        seed: u64,
        epoch: u64,
    ) -> Self {
        Self {
            catalog,
            account: Account::default(),
            fault_profile,
            totals: Totals::default(),
            tasks: HashMap::new(),
            order: Vec::new(),
            keys: HashMap::new(),
            requests: HashMap::new(),
            refunds: DueRefunds::default(),
            text_bytes: 0,
            epoch,
            speed,
            seed,
        }
    }

    /// The account's user id.
    pub(crate) fn user(&self) -> Uuid {
        self.name("user", 0)
    }

    /// Makes refunds that are due.
    pub(crate) fn advance(&mut self, now_ms: i64) {
        while let Some(id) = self.refunds.next_due(now_ms) {
            if let Some(tracked) = self.tasks.get_mut(&id)
                && !tracked.refunded
            {
                tracked.refunded = true;
                self.account.give_back(tracked.task.charged_credits, tracked.task.allowance);
                self.totals.refunded(tracked.task.charged_credits);
            }
        }
    }

    /// The task that a key created, if it did.
    pub(crate) fn task_of_key(&self, key: &str) -> Option<Uuid> {
        self.keys.get(key).copied()
    }

    /// The Shorts Studio task that a `requestId` names.
    pub(crate) fn task_of_request(&self, request_id: Uuid) -> Option<Uuid> {
        self.requests.get(&request_id).copied()
    }

    pub(crate) fn task(&self, id: Uuid) -> Option<&Task> {
        self.tasks.get(&id).map(|tracked| &tracked.task)
    }

    pub(crate) fn tracked_task_mut(&mut self, id: Uuid) -> Option<&mut TrackedTask> {
        self.tasks.get_mut(&id)
    }

    /// All tasks in the order of their creation.
    pub(crate) fn tracked_tasks(&self) -> impl Iterator<Item = &TrackedTask> {
        self.order.iter().filter_map(|id| self.tasks.get(id))
    }

    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Decide on a valid order: the last check (the balance), faults, price cover and timing.
    pub(crate) fn prepare(
        &mut self,
        order: &Order,
        key: Option<&str>,
        body_digest: u64,
        now_ms: i64,
    ) -> Result<Task, ApiError> {
        let text = order.prompt.len() + key.map_or(0, str::len) + 1024;
        if self.tasks.len() >= MOST_TASKS || self.text_bytes.saturating_add(text) > MOST_TEXT_BYTES {
            return Err(ApiError::internal());
        }
        let number = self.order.len();
        let id = self.name("task", number);
        let mut outcome = TaskOutcome::decide(&mut self.fault_profile, order, key.unwrap_or(""))?;
        let price_credits = order.price_credits.saturating_mul(outcome.charge_percent).div_ceil(100);
        let cover = self
            .account
            .cover(price_credits, order.claim, utc_day(now_ms))
            .ok_or_else(ApiError::insufficient_credits)?;
        let mut timing = self.timing(order.kind, order.shape, id, now_ms);
        if outcome.at_once {
            timing = Timing { created_ms: now_ms, pending_ms: 0, render_ms: 0 };
        }
        timing.render_ms = timing.render_ms.saturating_add(outcome.late_ms);
        if (outcome.in_call || order.kind.is_synchronous()) && outcome.first_answer == FirstAnswer::Task {
            outcome.first_answer = task_outcome::answer_of_a_synchronous(&outcome.ending);
        }
        Ok(Task {
            id,
            kind: order.kind,
            model: outcome.model.into(),
            scene: order.scene.as_str().into(),
            prompt: order.prompt.as_str().into(),
            options: serde_json::to_string(&order.options).unwrap_or_default().into(),
            timing,
            ending: outcome.ending,
            shape: order.shape,
            results: outcome.results,
            charged_credits: cover.charged_credits,
            waived_credits: cover.waived_credits,
            allowance: cover.allowance,
            key: key.map(Into::into),
            body_digest,
            first_answer: outcome.first_answer,
            in_call: outcome.in_call,
            request_id_alone: outcome.request_id_alone,
        })
    }

    /// Make a record true.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Opened { epoch, credits, plan, .. } => {
                self.epoch = epoch;
                self.account.credits = credits;
                self.account.plan = plan;
            }
            Record::Account {
                at_ms,
                credits,
                plan,
                key_revoked,
                topped_up,
                spent_elsewhere,
                used_elsewhere,
            } => {
                self.advance(at_ms);
                self.account.credits = credits.unwrap_or(self.account.credits);
                self.account.plan = plan.unwrap_or(self.account.plan);
                self.account.key_revoked = key_revoked.unwrap_or(self.account.key_revoked);
                let credits = self.account.credits.saturating_add(topped_up);
                self.account.credits = credits.saturating_sub(spent_elsewhere);
                self.totals.moved_elsewhere(topped_up, spent_elsewhere);
                for (pool, units) in used_elsewhere {
                    self.account.use_up(pool, utc_day(at_ms), units);
                }
            }
            Record::Task { task } => self.insert(*task),
            Record::Replay { id, foreign, .. } => {
                if let Some(tracked) = self.tasks.get_mut(&id) {
                    tracked.usage.replayed(foreign);
                    self.totals.replayed(foreign);
                }
            }
            Record::Ended { at_ms, id, ending } => self.end(id, ending, at_ms),
            Record::Clock { .. } => {}
        }
    }

    fn insert(&mut self, task: Task) {
        self.advance(task.timing.created_ms);
        if self.tasks.contains_key(&task.id) {
            return;
        }
        self.account.take(task.charged_credits, task.allowance);
        self.totals.created(&task);
        self.refunds.expect(&task);
        if let Some(key) = &task.key {
            self.keys.insert(key.clone(), task.id);
        }
        if task.kind == Kind::ShortsStudio {
            self.requests.insert(task.request_id(), task.id);
        }
        self.text_bytes +=
            task.prompt.len() + task.options.len() + 2 * task.key.as_deref().map_or(0, str::len) + 512;
        let (id, created_ms) = (task.id, task.timing.created_ms);
        self.order.push(id);
        self.tasks.insert(id, TrackedTask { task, usage: TaskUsage::default(), refunded: false });
        // A task that failed at submission is refunded in the same moment.
        self.advance(created_ms);
    }

    fn end(&mut self, id: Uuid, ending: Ending, at_ms: i64) {
        let Some(tracked) = self.tasks.get_mut(&id) else { return };
        let task = &mut tracked.task;
        let is_final = task.ending != Ending::Never && at_ms >= task.timing.ends_ms();
        if is_final {
            return;
        }
        self.refunds.withdraw(task);
        let lived_ms = at_ms.saturating_sub(task.timing.created_ms).max(0);
        task.timing.pending_ms = task.timing.pending_ms.min(lived_ms);
        task.timing.render_ms = lived_ms - task.timing.pending_ms;
        task.ending = ending;
        self.refunds.expect(task);
        self.advance(at_ms);
    }

    /// An id that never comes twice in the life of an account.
    fn name(&self, what: &str, number: usize) -> Uuid {
        let text = format!("{what}/{}/{}/{number}", self.seed, self.epoch);
        Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes())
    }

    /// Plausible times, divided by the speed. Jitter comes from the task's id.
    fn timing(&self, kind: Kind, shape: Shape, id: Uuid, now_ms: i64) -> Timing {
        let (pending_ms, render_ms) = task_duration(kind, shape);
        let jitter = fastrand::Rng::with_seed(id.as_u64_pair().0).f64() * 0.6 + 0.7;
        let scaled = |ms: u32| {
            let scaled = f64::from(ms) * jitter / self.speed;
            #[expect(clippy::cast_possible_truncation, reason = "bounded on both sides")]
            let whole = scaled.clamp(0.0, 1e12) as i64;
            whole
        };
        Timing { created_ms: now_ms, pending_ms: scaled(pending_ms), render_ms: scaled(render_ms) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::faults::FaultPlan;
    use crate::validation;

    fn state(faults: &str, credits: u64, plan: Plan) -> ServiceState {
        let fault_profile = ActiveFaults::new(FaultPlan::parse(faults).unwrap());
        let mut state = ServiceState::new(Catalog::built_in().unwrap(), fault_profile, 1.0, 1, 1);
        state.apply(account(Some(credits), Some(plan)));
        state
    }

    fn account(credits: Option<u64>, plan: Option<Plan>) -> Record {
        Record::Account {
            at_ms: 0,
            credits,
            plan,
            key_revoked: None,
            topped_up: 0,
            spent_elsewhere: 0,
            used_elsewhere: Vec::new(),
        }
    }

    fn create(state: &mut ServiceState, key: Option<&str>, now_ms: i64) -> Result<Task, ApiError> {
        let body = json!({"model": "house-c1", "prompt": "a boat"});
        let order = validation::order(&state.catalog, Kind::Video, &body).unwrap();
        let task = state.prepare(&order, key, 0, now_ms)?;
        state.apply(Record::Task { task: Box::new(task.clone()) });
        Ok(task)
    }

    #[test]
    fn credits_are_deducted_at_creation_and_refunded_at_the_end_of_a_failed_task() {
        let mut state = state("[[rules]]\neffect = { do = 'task-fails', code = 'busy' }", 100, Plan::None);
        let task = create(&mut state, Some("k"), 1_000).unwrap();
        assert_eq!(state.account.credits, 90);
        state.advance(task.timing.ends_ms() - 1);
        assert_eq!(state.account.credits, 90);
        state.advance(task.timing.ends_ms());
        state.advance(task.timing.ends_ms() + 1);
        assert_eq!((state.account.credits, state.totals.refunds), (100, 1));
    }

    #[test]
    fn a_canceled_task_returns_its_allowance_slot() {
        let mut state = state("[[rules]]\neffect = { do = 'task-canceled' }", 0, Plan::Ultra);
        let task = create(&mut state, None, 1_000).unwrap();
        assert_eq!((task.charged_credits, task.waived_credits), (0, 10));
        let used = |state: &ServiceState| state.account.used(super::super::account::Pool::HouseSeconds, 0);
        assert_eq!(used(&state), 5);
        state.advance(task.timing.ends_ms());
        assert_eq!(used(&state), 0);
    }

    #[test]
    fn a_balance_lower_than_the_cost_creates_no_task() {
        let mut state = state("", 9, Plan::None);
        assert_eq!(create(&mut state, Some("k"), 0).unwrap_err().status, 402);
        assert_eq!((state.task_of_key("k"), state.totals.tasks), (None, 0));
    }

    #[test]
    fn an_account_is_shared_with_other_clients() {
        let mut state = state("", 10, Plan::Ultra);
        let elsewhere = Record::Account {
            at_ms: 0,
            credits: None,
            plan: None,
            key_revoked: None,
            topped_up: 5,
            spent_elsewhere: 3,
            used_elsewhere: vec![(Pool::HouseSeconds, 296)],
        };
        let line = serde_json::to_string(&elsewhere).unwrap();
        state.apply(serde_json::from_str(&line).unwrap());
        assert_eq!(state.account.credits, 12);
        // Five seconds do not fit into the four that are left.
        let task = create(&mut state, None, 0).unwrap();
        assert_eq!((task.charged_credits, task.waived_credits), (10, 0));
    }

    #[test]
    fn another_charge_than_the_price_is_what_is_taken() {
        let mut state =
            state("[[rules]]\neffect = { do = 'charge-percent', percent = 125 }", 100, Plan::None);
        assert_eq!(create(&mut state, None, 0).unwrap().charged_credits, 13);
        assert_eq!(state.account.credits, 87);
    }

    #[test]
    fn a_submission_that_fails_is_refunded_at_once() {
        let mut state = state("[[rules]]\neffect = { do = 'fail-at-submission' }", 100, Plan::None);
        let task = create(&mut state, Some("k"), 50).unwrap();
        assert_eq!(task.first_answer, FirstAnswer::Failed);
        state.advance(50);
        assert_eq!((state.account.credits, state.totals.charges, state.totals.refunds), (100, 1, 1));
    }

    #[test]
    fn a_log_applied_again_gives_the_same_state() {
        let mut first = state("[[rules]]\nevery = 2\neffect = { do = 'task-canceled' }", 1_000, Plan::Pro);
        let mut records = vec![account(Some(1_000), Some(Plan::Pro))];
        for n in 0..10 {
            let task = create(&mut first, Some(&format!("k{n}")), n * 30_000).unwrap();
            records.push(Record::Task { task: Box::new(task) });
        }
        let mut second = state("", 0, Plan::None);
        for record in records {
            let line = serde_json::to_string(&record).unwrap();
            second.apply(serde_json::from_str(&line).unwrap());
        }
        for state in [&mut first, &mut second] {
            state.advance(200_000);
        }
        assert_eq!(first.account.credits, second.account.credits);
        assert_eq!(first.totals, second.totals);
        assert_eq!(first.task_of_key("k3"), second.task_of_key("k3"));
    }

    #[test]
    fn ending_a_running_task_by_hand_refunds_it_and_a_final_one_stays() {
        let mut state = state("", 100, Plan::None);
        let task = create(&mut state, None, 0).unwrap();
        state.apply(Record::Ended { at_ms: 10, id: task.id, ending: Ending::Canceled });
        assert_eq!(state.account.credits, 100);
        state.apply(Record::Ended { at_ms: 20, id: task.id, ending: Ending::Success });
        assert_eq!(state.task(task.id).unwrap().ending, Ending::Canceled);
    }
}
