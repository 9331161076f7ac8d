//! The emulator's own endpoints, under `/emulator`. They need no key and change no documented behaviour.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::Uri;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::reply;
use crate::clock::iso;
use crate::errors::ApiError;
use crate::faults::{FaultPlan, READY_PLANS};
use crate::service::{AccountChange, Service};
use crate::tasks::{Ending, ErrorCode};

type Shared = State<Arc<Service>>;

/// The largest catalog file, in bytes.
const CATALOG_LIMIT: usize = 16 << 20;

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/emulator/audit", get(audit))
        .route("/emulator/faults", get(faults).post(set_faults))
        .route("/emulator/clock", get(clock).post(step))
        .route("/emulator/account", get(account).post(set_account))
        .route(
            "/emulator/catalog",
            get(catalog).post(replace_catalog).layer(DefaultBodyLimit::max(CATALOG_LIMIT)),
        )
        .route("/emulator/tasks/{id}", post(end_task))
}

fn read<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid(error.to_string()))
}

fn done(result: Result<Value, ApiError>) -> Response {
    match result {
        Ok(value) => reply::json(200, &value),
        Err(error) => reply::error(&error),
    }
}

async fn audit(State(service): Shared, uri: Uri) -> Response {
    let with_tasks = reply::word(&uri, "tasks").as_deref() != Some("false");
    reply::plain(200, "application/json", service.audit_text(with_tasks))
}

async fn faults(State(service): Shared) -> Response {
    let plan =
        service.with_state(|state, _| serde_json::to_value(state.fault_profile.plan()).unwrap_or_default());
    reply::json(200, &json!({"plan": plan, "ready": READY_PLANS}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanName {
    plan: String,
}

async fn set_faults(State(service): Shared, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body);
    let plan = match serde_json::from_str::<PlanName>(&text) {
        Ok(name) => FaultPlan::named(&name.plan).ok_or_else(|| {
            format!("no plan is called {:?}; there are {}", name.plan, READY_PLANS.join(", "))
        }),
        Err(_) => FaultPlan::parse(&text),
    };
    done(plan.map_err(ApiError::invalid).map(|plan| {
        service.set_faults(plan);
        json!({})
    }))
}

async fn clock(State(service): Shared) -> Response {
    let now_ms = service.clock.now_ms();
    reply::json(200, &json!({"now": iso(now_ms), "now_ms": now_ms, "manual": service.clock.is_manual()}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    advance_ms: u64,
}

async fn step(State(service): Shared, body: Bytes) -> Response {
    let stepped =
        read::<Step>(&body).and_then(|step| service.advance(Duration::from_millis(step.advance_ms)));
    match stepped {
        Ok(()) => clock(State(service)).await,
        Err(error) => reply::error(&error),
    }
}

async fn account(State(service): Shared) -> Response {
    let report = service.audit(false);
    let mut account = report["account"].clone();
    account["credits"] = report["totals"]["balance"].clone();
    reply::json(200, &account)
}

async fn set_account(State(service): Shared, body: Bytes) -> Response {
    match read::<AccountChange>(&body).and_then(|change| service.change_account(change)) {
        Ok(()) => account(State(service)).await,
        Err(error) => reply::error(&error),
    }
}

async fn catalog(State(service): Shared) -> Response {
    reply::json(200, &service.with_state(|state, _| state.catalog.parts(&service.media_url)))
}

async fn replace_catalog(State(service): Shared, body: Bytes) -> Response {
    done(service.replace_catalog(&String::from_utf8_lossy(&body)).map(|()| json!({})))
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "snake_case", deny_unknown_fields)]
enum End {
    Success {},
    Canceled {},
    Failed {
        #[serde(default = "generic")]
        error_code: ErrorCode,
        #[serde(default)]
        reason: String,
    },
}

fn generic() -> ErrorCode {
    ErrorCode::Generic
}

async fn end_task(State(service): Shared, Path(id): Path<String>, body: Bytes) -> Response {
    let id = Uuid::parse_str(&id).map_err(|_| ApiError::not_found("task"));
    let ended = id.and_then(|id| {
        let ending = match read::<End>(&body)? {
            End::Success {} => Ending::Success,
            End::Canceled {} => Ending::Canceled,
            End::Failed { error_code, reason } => Ending::Failed { code: error_code, reason: reason.into() },
        };
        service.end_task(id, ending)?;
        Ok(json!({}))
    });
    done(ended)
}
