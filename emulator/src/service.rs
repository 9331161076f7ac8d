//! The state behind one lock, with its clock and its record log: what the HTTP side calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callsheet_renderer::Subject;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::account::{Plan, Pool};
use super::clock::Clock;
use super::errors::ApiError;
use super::faults::{ActiveFaults, Call, Effect, FaultPlan};
use super::media::Cache;
use super::persistence::RecordLog;
use super::state::{Record, ServiceState};
use super::tasks::{Ending, FirstAnswer, Kind, Status, Task};
use super::{audit, inputs, media, validation};

/// A synchronous call that is not done by then answers with the task as it is (at speed 1).
const PATIENCE_MS: f64 = 600_000.0;
/// The shortest advised interval between two polls of a task (at speed 1).
const ADVISED_POLL_MS: f64 = 5_000.0;
/// What a submission to the provider takes (at speed 1).
const SUBMISSION_MS: f64 = 250.0;

/// The task that a creating call is answered with.
struct CreatedTask {
    id: Uuid,
    answer: FirstAnswer,
    /// False: the task already existed for the call's key.
    is_new: bool,
}

/// The service.
#[derive(Debug)]
pub(crate) struct Service {
    core: Mutex<Core>,
    pub(crate) clock: Clock,
    pub(crate) api_key: String,
    pub(crate) base_url: String,
    pub(crate) media_url: String,
    speed: f64,
    cache: Cache,
    renderers: Semaphore,
}

#[derive(Debug)]
struct Core {
    state: ServiceState,
    record_log: Option<RecordLog>,
    /// After this nothing is created any more.
    closed: bool,
}

impl Core {
    /// Write a fact down, then make it true.
    fn commit(&mut self, record: Record) -> Result<(), ApiError> {
        if self.closed {
            return Err(ApiError::internal());
        }
        if let Some(record_log) = &mut self.record_log
            && let Err(error) = record_log.append(&record)
        {
            tracing::error!(%error, "failed to write the state of the emulator");
            return Err(ApiError::internal());
        }
        self.state.apply(record);
        Ok(())
    }
}

/// Where a service is reached and how it behaves.
pub(crate) struct Setup {
    pub(crate) api_key: String,
    pub(crate) base_url: String,
    pub(crate) media_url: String,
    pub(crate) speed: f64,
}

/// What happens to the account beside the client under test: what is absent stays.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AccountChange {
    credits: Option<u64>,
    plan: Option<Plan>,
    key_valid: Option<bool>,
    /// Credits that are bought.
    top_up: u64,
    /// Credits that another client spends.
    spend: u64,
    /// What another client uses of today's allowances.
    use_allowance: BTreeMap<Pool, u64>,
}

/// What is served for a result URL.
pub(crate) enum Artifact {
    Ready(Box<Subject>),
    Expired,
    Missing,
}

impl Service {
    pub(crate) fn new(
        state: ServiceState,
        record_log: Option<RecordLog>,
        clock: Clock,
        setup: Setup,
    ) -> Self {
        Self {
            core: Mutex::new(Core { state, record_log, closed: false }),
            clock,
            api_key: setup.api_key,
            base_url: setup.base_url,
            media_url: setup.media_url,
            speed: setup.speed,
            cache: Cache::default(),
            renderers: Semaphore::new(2),
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        // No panic is possible while it is held; if one were, the state would still be whole.
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.state.advance(self.clock.now_ms());
        core
    }

    /// Run something on the state, brought up to the present.
    pub(crate) fn with_state<T>(&self, run: impl FnOnce(&mut ServiceState, i64) -> T) -> T {
        let now_ms = self.clock.now_ms();
        run(&mut self.core().state, now_ms)
    }

    /// Close the record log: nothing is created any more, and nobody waits for time to pass.
    pub(crate) fn close(&self) {
        let mut core = self.core();
        core.closed = true;
        core.record_log = None;
        self.clock.close();
    }

    /// Whether a key is the account's.
    pub(crate) fn authorize(&self, bearer: Option<&str>) -> Result<(), ApiError> {
        let good = bearer.is_some_and(|key| key == self.api_key);
        self.with_state(|state, _| {
            if good && !state.account.key_revoked {
                return Ok(());
            }
            state.totals.unauthorized += 1;
            Err(ApiError::unauthorized())
        })
    }

    /// What goes wrong with the carrying of a call.
    pub(crate) fn wire_effects(&self, call: &Call<'_>) -> Vec<Effect> {
        self.with_state(|state, _| {
            let effects = state.fault_profile.on_the_wire(call);
            if !effects.is_empty() {
                state.totals.faults_struck += 1;
                tracing::debug!(?effects, identity = call.identity, "fault");
            }
            effects
        })
    }

    /// A creating call: an old key gives its old task; else the order is checked, charged and written down.
    pub(crate) async fn create(
        &self,
        kind: Kind,
        key: Option<&str>,
        digest: u64,
        body: &Result<Value, ApiError>,
    ) -> Result<Value, ApiError> {
        let CreatedTask { id, answer, is_new } = self.take_order(kind, key, digest, body)?;
        self.wait_for(id, answer).await;
        match answer {
            FirstAnswer::Task => self.answered_task(id, is_new).ok_or_else(ApiError::internal),
            FirstAnswer::Rejected => Err(ApiError::unsupported_settings(id)),
            FirstAnswer::Failed => Err(ApiError::failed_after_creation(id)),
            FirstAnswer::Unknown => Err(ApiError::outcome_unknown(id)),
            FirstAnswer::ContentRejected => Err(ApiError::content_rejected().with_task(id)),
        }
    }

    fn take_order(
        &self,
        kind: Kind,
        key: Option<&str>,
        digest: u64,
        body: &Result<Value, ApiError>,
    ) -> Result<CreatedTask, ApiError> {
        let mut core = self.core();
        let now_ms = self.clock.now_ms();
        if let Some(id) = key.and_then(|key| core.state.task_of_key(key)) {
            let foreign = core.state.task(id).is_some_and(|task| task.body_digest != digest);
            core.commit(Record::Replay { at_ms: now_ms, id, foreign })?;
            return Ok(CreatedTask { id, answer: FirstAnswer::Task, is_new: false });
        }
        let created = match body {
            Ok(body) => validation::order(&core.state.catalog, kind, body).and_then(|mut order| {
                let unreadable = || inputs::unreadable(&core.state, &self.media_url, body, now_ms);
                order.provider_rejection = order.provider_rejection.take().or_else(unreadable);
                core.state.prepare(&order, key, digest, now_ms)
            }),
            Err(error) => Err(error.clone()),
        };
        let task = created.inspect_err(|error| core.state.totals.refused(error.status))?;
        let created = CreatedTask { id: task.id, answer: task.first_answer, is_new: true };
        tracing::debug!(id = %task.id, kind = kind.word(), credits = task.charged_credits, key, "task created");
        core.commit(Record::Task { task: Box::new(task) })?;
        Ok(created)
    }

    /// The part of a creating call that takes time.
    async fn wait_for(&self, id: Uuid, answer: FirstAnswer) {
        let seen = self.with_state(|state, _| {
            state.task(id).map(|task| (task.timing.ends_ms(), task.renders_in_call()))
        });
        let Some((ends_ms, in_call)) = seen else { return };
        if in_call && answer != FirstAnswer::Unknown {
            let never =
                self.with_state(|state, _| state.task(id).is_some_and(|task| task.ending == Ending::Never));
            let patience_ms = self.clock.now_ms().saturating_add(scaled(PATIENCE_MS, self.speed));
            self.clock.wait_until(if never { patience_ms } else { ends_ms.min(patience_ms) }).await;
        } else if !self.clock.is_manual() {
            let ms = u64::try_from(scaled(SUBMISSION_MS, self.speed)).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    /// The task in the answer to a creating call. A new one that is not rendered in the call is shown as it was accepted, `pending`
    /// or `processing` and without URLs, however long the answer takes (States and transitions). At a speed that leaves a task less
    /// than a millisecond it is finished at once.
    fn answered_task(&self, id: Uuid, is_new: bool) -> Option<Value> {
        self.with_state(|state, now_ms| {
            let user = state.user();
            let task = state.task(id)?;
            let as_accepted = is_new && !task.renders_in_call();
            let at_ms = if as_accepted { task.timing.created_ms } else { now_ms };
            Some(task.object(at_ms, user, &self.media_url))
        })
    }

    /// `GET /api/v1/tasks/{taskId}`, which tells of every kind but Shorts Studio.
    pub(crate) fn poll(&self, id: &str) -> Result<Value, ApiError> {
        self.read_task(id, |kind| kind != Kind::ShortsStudio)
    }

    /// `GET /api/v1/shorts-studio`, which tells of no other kind.
    pub(crate) fn poll_short(&self, id: &str) -> Result<Value, ApiError> {
        self.read_task(id, |kind| kind == Kind::ShortsStudio)
    }

    fn read_task(&self, id: &str, is_told: impl Fn(Kind) -> bool) -> Result<Value, ApiError> {
        let id = Uuid::parse_str(id).ok().filter(|_| id.len() == 36);
        let id = id.ok_or_else(|| ApiError::not_found("task"))?;
        self.with_state(|state, now_ms| {
            state.totals.polls += 1;
            let user = state.user();
            let tracked = state.tracked_task_mut(id).filter(|tracked| is_told(tracked.task.kind));
            let tracked = tracked.ok_or_else(|| ApiError::not_found("task"))?;
            let status = tracked.task.status(now_ms);
            let running = matches!(status, Status::Pending | Status::Processing);
            let hasty = tracked.usage.polled(now_ms, running, scaled(ADVISED_POLL_MS, self.speed));
            let object = tracked.task.object(now_ms, user, &self.media_url);
            state.totals.hasty_polls += u64::from(hasty);
            Ok(object)
        })
    }

    /// What is known of a task, for matching fault rules.
    pub(crate) fn glance(&self, id: Uuid) -> Option<Task> {
        self.with_state(|state, _| state.task(id).cloned())
    }

    /// `data` of `GET /api/v1/credits`.
    pub(crate) fn balance(&self) -> Value {
        self.with_state(|state, _| json!({"remainingCredits": state.account.credits}))
    }

    /// The result behind a URL.
    pub(crate) fn result(&self, id: Uuid, index: u16, expires_ms: Option<i64>) -> Artifact {
        self.with_state(|state, now_ms| {
            let Some(tracked) = state.tracked_task_mut(id) else { return Artifact::Missing };
            if tracked.task.status(now_ms) != Status::Success || index >= tracked.task.results.count {
                return Artifact::Missing;
            }
            let must_expire = tracked.task.results.expire_ms.is_some();
            if must_expire && expires_ms.is_none_or(|expires_ms| now_ms > expires_ms) {
                return Artifact::Expired;
            }
            tracked.usage.downloaded();
            let subject = media::subject(&tracked.task, index);
            state.totals.downloads += 1;
            Artifact::Ready(Box::new(subject))
        })
    }

    /// The bytes of a result, rendered now unless they were lately.
    pub(crate) async fn render(&self, subject: Subject) -> Option<axum::body::Bytes> {
        let key = (subject.id, subject.index);
        if let Some(bytes) = self.cache.get(key) {
            return Some(bytes);
        }
        let _permit = self.renderers.acquire().await.ok()?;
        if let Some(bytes) = self.cache.get(key) {
            return Some(bytes);
        }
        let rendered = tokio::task::spawn_blocking(move || callsheet_renderer::render(&subject)).await;
        match rendered {
            Ok(Ok(bytes)) => {
                let bytes = axum::body::Bytes::from(bytes);
                self.cache.put(key, bytes.clone());
                Some(bytes)
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "a result could not be rendered");
                None
            }
            Err(_) => None,
        }
    }

    /// The audit.
    pub(crate) fn audit(&self, with_tasks: bool) -> Value {
        self.with_state(|state, now_ms| {
            serde_json::to_value(audit::report(state, now_ms, with_tasks)).unwrap_or_default()
        })
    }

    /// The audit as JSON text.
    pub(crate) fn audit_text(&self, with_tasks: bool) -> String {
        self.with_state(|state, now_ms| {
            serde_json::to_string(&audit::report(state, now_ms, with_tasks)).unwrap_or_default()
        })
    }

    /// The Shorts Studio task that a `requestId` names.
    pub(crate) fn task_of_request(&self, request_id: &str) -> Option<Uuid> {
        let request_id = Uuid::parse_str(request_id).ok()?;
        self.with_state(|state, _| state.task_of_request(request_id))
    }

    /// Put what a catalog file holds in place of what is served, from now on.
    pub(crate) fn replace_catalog(&self, text: &str) -> Result<(), ApiError> {
        self.with_state(|state, _| {
            state.catalog = Arc::new(state.catalog.replaced(text).map_err(ApiError::invalid)?);
            Ok(())
        })
    }

    /// Set parts of the account.
    pub(crate) fn change_account(&self, change: AccountChange) -> Result<(), ApiError> {
        let at_ms = self.clock.now_ms();
        let mut core = self.core();
        let credits = change.credits.unwrap_or(core.state.account.credits);
        if change.spend > credits.saturating_add(change.top_up) {
            return Err(ApiError::invalid(format!("spend: the account has {credits} credits")));
        }
        core.commit(Record::Account {
            at_ms,
            credits: change.credits,
            plan: change.plan,
            key_revoked: change.key_valid.map(|valid| !valid),
            topped_up: change.top_up,
            spent_elsewhere: change.spend,
            used_elsewhere: change.use_allowance.into_iter().collect(),
        })
    }

    /// Step the clock.
    pub(crate) fn advance(&self, by: Duration) -> Result<(), ApiError> {
        let mut core = self.core();
        let base_ms = self.clock.advance(by);
        core.commit(Record::Clock { manual: self.clock.is_manual(), base_ms })?;
        core.state.advance(self.clock.now_ms());
        Ok(())
    }

    /// Replace the fault plan.
    pub(crate) fn set_faults(&self, faults: FaultPlan) {
        self.with_state(|state, _| state.fault_profile = ActiveFaults::new(faults));
    }

    /// Decide the end of a running task, now.
    pub(crate) fn end_task(&self, id: Uuid, ending: Ending) -> Result<(), ApiError> {
        let mut core = self.core();
        let at_ms = self.clock.now_ms();
        let Some(task) = core.state.task(id) else { return Err(ApiError::not_found("task")) };
        if !matches!(task.status(at_ms), Status::Pending | Status::Processing) {
            return Err(ApiError::invalid("the task is already final"));
        }
        core.commit(Record::Ended { at_ms, id, ending })
    }
}

fn scaled(ms: f64, speed: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "bounded on both sides")]
    let whole = (ms / speed).clamp(0.0, 1e9) as i64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn a_late_answer_shows_a_new_task_as_it_was_accepted() {
        let fault_profile = ActiveFaults::new(FaultPlan::default());
        let state = ServiceState::new(Catalog::built_in().unwrap(), fault_profile, 1.0, 1, 1);
        let text = || String::from("a");
        let setup = Setup { api_key: text(), base_url: text(), media_url: text(), speed: 1.0 };
        let service = Service::new(state, None, Clock::new(true, 0), setup);
        service.change_account(AccountChange { credits: Some(1_000), ..AccountChange::default() }).unwrap();
        let body = Ok(json!({"model": "house-c1", "prompt": "a boat"}));
        let created = service.take_order(Kind::Video, Some("key"), 7, &body).unwrap();
        service.clock.advance(Duration::from_secs(3_600));
        let answer = service.answered_task(created.id, created.is_new).unwrap();
        assert_eq!((&answer["status"], &answer["taskUrls"]), (&json!("pending"), &json!([])));
        let again = service.take_order(Kind::Video, Some("key"), 7, &body).unwrap();
        let answer = service.answered_task(again.id, again.is_new).unwrap();
        assert_eq!((&answer["status"], again.id), (&json!("success"), created.id));
    }
}
