//! The documented endpoints.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{control, fault_injection, reply};
use crate::errors::ApiError;
use crate::faults::{Call, Target};
use crate::openapi;
use crate::service::Service;
use crate::tasks::Kind;
use crate::wire::ConnectionHandle;

/// The largest request body, in bytes.
const BODY_LIMIT: usize = 1 << 20;
/// How long a request body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
const KEY_HEADER: &str = "idempotency-key";
const KEY_RULE: &str = "Idempotency-Key must be 1-200 visible ASCII characters without spaces";

type Shared = State<Arc<Service>>;
type Peer = ConnectInfo<ConnectionHandle>;

/// The API origin: the documented paths, and the emulator's own under `/emulator`.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/api/v1/models", get(models))
        .route("/api/v1/voices", get(voices))
        .route("/api/v1/videos", creating(Kind::Video))
        .route("/api/v1/images", creating(Kind::Image))
        .route("/api/v1/music", creating(Kind::Music))
        .route("/api/v1/speech", creating(Kind::Speech))
        .route("/api/v1/sound-effects", creating(Kind::SoundEffect))
        .route("/api/v1/tasks/{id}", get(task))
        .route("/api/v1/credits", get(credits))
        .route("/api/v1/shorts-studio", post(shorts_create).get(shorts_poll))
        .route("/openapi.json", get(openapi_json))
        .route("/api/openapi.yaml", get(openapi_yaml))
        .merge(control::routes())
        .fallback(|| async { reply::error(&ApiError::not_found("endpoint")) })
        .with_state(service)
}

fn creating(kind: Kind) -> axum::routing::MethodRouter<Arc<Service>> {
    post(move |State(service): Shared, ConnectInfo(connection): Peer, request: Request| async move {
        create(kind, service, connection, request).await
    })
}

/// The API key of a request, if it carries one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// A well-formed idempotency key, none, or the documented error.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().unwrap_or("");
    let good = (1..=200).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    // Sent twice, it stands for one value with a comma and a space in it.
    let alone = values.next().is_none();
    if good && alone { Ok(Some(key.to_owned())) } else { Err(ApiError::invalid(KEY_RULE)) }
}

async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    let limit = || ApiError::invalid(format!("request body must be at most {BODY_LIMIT} bytes"));
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, BODY_LIMIT)).await {
        Ok(read) => read.map_err(|_| limit()),
        Err(_) => Err(ApiError::invalid("request body did not arrive in time")),
    }
}

/// Endpoint and body, without the order of fields and the white space of JSON.
fn digest(kind: Kind, body: &Result<Value, ApiError>, raw: &[u8]) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(kind.word());
    match body {
        Ok(value) => hasher.update(value.to_string()),
        Err(_) => hasher.update(raw),
    }
    let hash = hasher.finalize();
    hash.iter().take(8).fold(0, |digest, byte| digest << 8 | u64::from(*byte))
}

/// A creating call: its idempotency key and its body, each as it was sent or with the documented error.
struct CreateRequest {
    key: Result<Option<String>, ApiError>,
    body: Result<Value, ApiError>,
    digest: u64,
}

impl CreateRequest {
    async fn read(kind: Kind, request: Request) -> Self {
        let key = idempotency_key(request.headers());
        let (raw, body) = match read_body(request.into_body()).await {
            Ok(raw) => {
                let parsed = serde_json::from_slice(&raw);
                (raw, parsed.map_err(|_| ApiError::invalid("request body must be valid JSON")))
            }
            Err(error) => (Bytes::new(), Err(error)),
        };
        let digest = digest(kind, &body, &raw);
        Self { key, body, digest }
    }

    /// The first of these fields that is a string.
    fn text(&self, names: &[&str]) -> &str {
        let Ok(body) = &self.body else { return "" };
        names.iter().find_map(|name| body.get(name)?.as_str()).unwrap_or("")
    }

    /// What fault rules can see of it.
    fn call(&self, kind: Kind) -> Call<'_> {
        let key = self.key.as_ref().ok().and_then(Option::as_deref);
        Call {
            target: Target::Create,
            kind: Some(kind),
            model: self.text(&["model"]),
            prompt: self.text(&["prompt", "text"]),
            identity: key.unwrap_or_else(|| self.text(&["prompt", "text"])),
        }
    }
}

async fn create(
    kind: Kind,
    service: Arc<Service>,
    connection: ConnectionHandle,
    request: Request,
) -> Response {
    let authorized = service.authorize(bearer(request.headers()));
    let received = CreateRequest::read(kind, request).await;
    let effects = service.wire_effects(&received.call(kind));
    fault_injection::apply_effects(&connection, effects, async move {
        if let Err(error) = authorized {
            return reply::error(&error);
        }
        let key = match &received.key {
            Ok(key) => key.as_deref(),
            Err(error) => return reply::error(error),
        };
        reply::answer(service.create(kind, key, received.digest, &received.body).await)
    })
    .await
}

/// A reading call: its faults, then its answer.
async fn read(
    service: Arc<Service>,
    connection: ConnectionHandle,
    call: Call<'_>,
    work: impl FnOnce(&Service) -> Response + Send + 'static,
) -> Response {
    let effects = service.wire_effects(&call);
    fault_injection::apply_effects(&connection, effects, async move { work(&service) }).await
}

fn call(target: Target) -> Call<'static> {
    Call { target, kind: None, model: "", prompt: "", identity: "" }
}

/// `data` of `GET /api/v1/models`.
#[derive(Serialize)]
struct ModelList<'a> {
    models: &'a Value,
}

async fn models(State(service): Shared, ConnectInfo(connection): Peer, uri: Uri) -> Response {
    let kind = reply::word(&uri, "type");
    read(service, connection, call(Target::Catalog), move |service| {
        cacheable(service.with_state(|state, _| {
            reply::ok(200, &ModelList { models: state.catalog.models(kind.as_deref()) })
        }))
    })
    .await
}

async fn voices(State(service): Shared, ConnectInfo(connection): Peer) -> Response {
    read(service, connection, call(Target::Catalog), |service| {
        cacheable(reply::ok(200, &service.with_state(|state, _| state.catalog.voices(&service.media_url))))
    })
    .await
}

fn cacheable(mut response: Response) -> Response {
    let value = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response
}

async fn task(
    State(service): Shared,
    ConnectInfo(connection): Peer,
    headers: HeaderMap,
    path: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Response {
    let id = path.map(|Path(id)| id).unwrap_or_default();
    let known = Uuid::parse_str(&id).ok().and_then(|id| service.glance(id));
    let bearer = bearer(&headers).map(str::to_owned);
    let seen = match &known {
        Some(task) => Call {
            target: Target::Poll,
            kind: Some(task.kind),
            model: task.model.split('/').next().unwrap_or(""),
            prompt: &task.prompt,
            identity: task.key.as_deref().unwrap_or(&id),
        },
        None => call(Target::Poll),
    };
    let id = id.clone();
    read(service, connection, seen, move |service| {
        reply::answer(service.authorize(bearer.as_deref()).and_then(|()| service.poll(&id)))
    })
    .await
}

async fn credits(State(service): Shared, ConnectInfo(connection): Peer, headers: HeaderMap) -> Response {
    let bearer = bearer(&headers).map(str::to_owned);
    read(service, connection, call(Target::Credits), move |service| {
        reply::answer(service.authorize(bearer.as_deref()).map(|()| service.balance()))
    })
    .await
}

/// Shorts Studio's errors carry only `code` and `message`.
fn bare(error: &ApiError) -> Response {
    reply::json(error.status, &json!({"code": error.code, "message": error.message}))
}

fn shorts_answer(service: &Service, result: Result<Value, ApiError>) -> Response {
    let id = |task: &Value| task["id"].as_str().and_then(|id| Uuid::parse_str(id).ok());
    let found = result.and_then(|task| {
        let seen = id(&task).and_then(|id| service.glance(id)).filter(|seen| seen.kind == Kind::ShortsStudio);
        seen.map(|seen| (task, seen)).ok_or_else(|| ApiError::not_found("task"))
    });
    match found {
        Ok((task, seen)) => {
            let status = &task["status"];
            let running = *status == "pending" || *status == "processing";
            let mut data = json!({"requestId": seen.request_id(), "status": status,
                "taskUrls": task["taskUrls"], "costCredits": task["costCredits"]});
            if !seen.request_id_alone {
                data["taskId"] = task["id"].clone();
            }
            reply::ok(if running { 202 } else { 200 }, &data)
        }
        Err(error) => bare(&error),
    }
}

async fn shorts_create(State(service): Shared, ConnectInfo(connection): Peer, request: Request) -> Response {
    let kind = Kind::ShortsStudio;
    let authorized = service.authorize(bearer(request.headers()));
    let received = CreateRequest::read(kind, request).await;
    let effects = service.wire_effects(&received.call(kind));
    fault_injection::apply_effects(&connection, effects, async move {
        match authorized {
            // Idempotency keys are not for this endpoint.
            Ok(()) => {
                let created = service.create(kind, None, received.digest, &received.body).await;
                shorts_answer(&service, created)
            }
            Err(error) => bare(&error),
        }
    })
    .await
}

async fn shorts_poll(
    State(service): Shared,
    ConnectInfo(connection): Peer,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let (task_id, request_id) = (reply::word(&uri, "taskId"), reply::word(&uri, "requestId"));
    let bearer = bearer(&headers).map(str::to_owned);
    read(service, connection, call(Target::Poll), move |service| {
        if let Err(error) = service.authorize(bearer.as_deref()) {
            return bare(&error);
        }
        let task = match (task_id, request_id) {
            (Some(id), _) => service.poll_short(&id),
            (None, Some(id)) => match service.task_of_request(&id) {
                Some(id) => service.poll_short(&id.to_string()),
                None => Err(ApiError::not_found("task")),
            },
            (None, None) => Err(ApiError::invalid("taskId or requestId is required")),
        };
        shorts_answer(service, task)
    })
    .await
}

async fn openapi_json(State(service): Shared) -> Response {
    reply::json(200, &openapi::description(&service.base_url))
}

async fn openapi_yaml(State(service): Shared) -> Response {
    reply::plain(200, "application/yaml", openapi::yaml(&openapi::description(&service.base_url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &[u8]) -> Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(KEY_HEADER, HeaderValue::from_bytes(text).unwrap());
        idempotency_key(&headers).map_err(|error| error.message)
    }

    #[test]
    fn a_key_is_1_to_200_visible_ascii_characters() {
        assert_eq!(idempotency_key(&HeaderMap::new()), Ok(None));
        assert_eq!(key(b"!~"), Ok(Some("!~".into())));
        assert_eq!(key(&[b'k'; 200]).map(|k| k.is_some()), Ok(true));
        for bad in [&b""[..], b"a b", b"a\tb", "é".as_bytes(), &[b'k'; 201]] {
            assert_eq!(key(bad), Err(KEY_RULE.into()));
        }
        let mut twice = HeaderMap::new();
        twice.append(KEY_HEADER, HeaderValue::from_static("a"));
        twice.append(KEY_HEADER, HeaderValue::from_static("b"));
        assert!(idempotency_key(&twice).is_err());
    }

    #[test]
    fn a_body_is_the_same_body_whatever_its_white_space_and_order() {
        let of = |text: &str| {
            digest(
                Kind::Video,
                &serde_json::from_str(text).map_err(|_| ApiError::internal()),
                text.as_bytes(),
            )
        };
        assert_eq!(of("{\"a\": 1, \"b\": 2}"), of("{\"b\":2,\"a\":1}"));
        assert_ne!(of("{\"a\": 1}"), of("{\"a\": 2}"));
        assert_ne!(of("{"), of("}"));
    }
}
