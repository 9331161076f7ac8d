//! The server: every route, and what is answered there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use crate::control::answers::{self, AnswerError};
use crate::control::body::{BodyError, Pace, Pieces};
use crate::control::protocol::{
    BatchRequest, BudgetRequest, Health, LINES, NameRequest, Refusal, Refused, ResolveRequest, RetryRequest,
    Schedules, Submission, Submitted,
};
use crate::domain::budget::BudgetSetting;
use crate::domain::credits::Credits;
use crate::domain::exit::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job;
use crate::domain::manifest::row::Policy;
use crate::domain::origin::Place;
use crate::engine::desk::Desk;
use crate::engine::{EngineError, to_the_end};
use crate::intake::IntakeError;
use crate::intake::catalogs::CatalogError;
use crate::intake::reception::{self, Manner, Reception, ReceptionError};
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::output::landing::Landing;
use crate::output::layout::Layout;

/// Largest body of a wish, in bytes.
const WISH_MAX: usize = 64 * 1024;
/// Largest manifest that may be handed in, in bytes.
const MANIFEST_MAX: u64 = 4 << 30;
/// How long a client may leave an answer unread.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// Pieces of an answer of many lines.
const PIECE_BYTES: usize = 32 * 1024;

/// What the server answers from.
#[derive(Debug)]
pub struct Office {
    /// Questions and wishes.
    pub desk: Desk,
    /// Manifests.
    pub reception: Reception,
    /// Whom one speaks to.
    pub health: Health,
    /// Where outputs lie.
    pub landing: Landing,
    /// Layout of batches that have none of their own.
    pub layout: Layout,
    /// Fires a schedule by its name, and says what came of it.
    pub schedules: mpsc::Sender<FireRequest>,
    /// The schedules that are carried out at present.
    pub in_force: watch::Receiver<Schedules>,
    /// The metrics, as Prometheus reads them.
    pub metrics: Metrics,
}

/// A schedule is to be fired out of turn.
#[derive(Debug)]
pub struct FireRequest {
    /// Its name.
    pub name: String,
    /// Where what came of it goes.
    pub reply: tokio::sync::oneshot::Sender<Result<Submitted, NotFired>>,
}

/// Why a schedule does not fire.
#[derive(Debug)]
pub enum NotFired {
    /// No schedule is called so.
    Unknown(Refusal),
    /// Its manifest cannot be taken in.
    Refused(Refusal),
}

type Shared = State<Arc<Office>>;

/// Every route.
pub fn router(office: Arc<Office>) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/status", get(status))
        .route("/v1/jobs", get(jobs))
        .route("/v1/open", get(open))
        .route("/v1/explain", get(explain))
        .route("/v1/ledger", get(ledger))
        .route("/v1/state", get(export))
        .route("/v1/pause", post(pause))
        .route("/v1/resume", post(resume))
        .route("/v1/cancel", post(cancel))
        .route("/v1/retry", post(retry))
        .route("/v1/download", post(download))
        .route("/v1/resolve", post(resolve))
        .route("/v1/budget", post(set_budget))
        .route("/v1/manifests", post(submit))
        .route("/v1/schedules", get(schedules))
        .route("/v1/schedules/{name}/run", post(fire))
        .route("/metrics", get(metrics))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .with_state(office)
}

/// Why a request is not answered as asked.
#[derive(Debug)]
pub(super) struct No(pub(super) StatusCode, pub(super) Refusal);

impl No {
    fn usage(message: impl Into<String>) -> No {
        No(StatusCode::BAD_REQUEST, Refusal::new(Exit::Usage, message))
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        (self.0, Json(Refused { error: self.1 })).into_response()
    }
}

impl From<BodyError> for No {
    fn from(error: BodyError) -> No {
        let status = match error {
            BodyError::Silent(_) | BodyError::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            BodyError::Broken(_) => StatusCode::BAD_REQUEST,
        };
        No(status, Refusal::new(Exit::Usage, error.to_string()))
    }
}

impl From<AnswerError> for No {
    fn from(error: AnswerError) -> No {
        let status = match error {
            AnswerError::Find(_) => StatusCode::NOT_FOUND,
            AnswerError::Engine(EngineError::Gone(_)) => StatusCode::SERVICE_UNAVAILABLE,
            AnswerError::Engine(_) | AnswerError::Reader(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        No(status, error.refusal())
    }
}

/// A wish: JSON, however it is labelled, and small. An empty body asks for nothing in particular.
struct Wished<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Wished<T> {
    type Rejection = No;

    async fn from_request(request: Request, _: &S) -> Result<Wished<T>, No> {
        let mut pieces = Pieces::of(request.into_body(), Pace::default());
        let mut body = Vec::new();
        while let Some(piece) = pieces.next().await? {
            if body.len() + piece.len() > WISH_MAX {
                return Err(No::usage(format!("the request's body has more than {WISH_MAX} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
        serde_json::from_slice(text)
            .map(Wished)
            .map_err(|error| No::usage(format!("the request's body: {error}")))
    }
}

/// The part of an address after `?`.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> axum::extract::FromRequestParts<S> for Asked<T> {
    type Rejection = No;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, _: &S) -> Result<Asked<T>, No> {
        let Query(asked) = Query::try_from_uri(&parts.uri).map_err(|error| No::usage(error.body_text()))?;
        Ok(Asked(asked))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfBatch {
    batch: Option<BatchName>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfJobs {
    batch: Option<BatchName>,
    state: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfJob {
    job: String,
}

async fn nothing_here(request: Request) -> No {
    let message = format!("there is no {} {}", request.method(), request.uri().path());
    let hint = Some("see docs/control.md".to_owned());
    No(StatusCode::NOT_FOUND, Refusal { hint, ..Refusal::new(Exit::Usage, message) })
}

async fn not_so(request: Request) -> No {
    let message = format!("{} is not answered with {}", request.uri().path(), request.method());
    let hint = Some("see docs/control.md".to_owned());
    No(StatusCode::METHOD_NOT_ALLOWED, Refusal { hint, ..Refusal::new(Exit::Usage, message) })
}

async fn health(State(office): Shared) -> Json<Health> {
    Json(office.health.clone())
}

async fn metrics(State(office): Shared) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], office.metrics.render())
}

async fn status(State(office): Shared, Asked(asked): Asked<OfBatch>) -> Result<Response, No> {
    Ok(Json(answers::status(&office.desk, asked.batch.as_ref()).await?).into_response())
}

async fn explain(State(office): Shared, Asked(asked): Asked<OfJob>) -> Result<Response, No> {
    Ok(Json(answers::explain(&office.desk, &asked.job).await?).into_response())
}

async fn jobs(State(office): Shared, Asked(asked): Asked<OfJobs>) -> Result<Response, No> {
    if let Some(state) = asked.state.as_deref().filter(|state| !job::State::NAMES.contains(state)) {
        let known = job::State::NAMES.join(", ");
        return Err(No::usage(format!("state: found {state:?}, expected one of {known}")));
    }
    let batches = office.desk.batches(asked.batch.as_ref()).await.map_err(AnswerError::from)?;
    let store = office.desk.store().clone();
    Ok(lines(move |sink| answers::jobs(&store, &batches, asked.state.as_deref(), sink)))
}

async fn open(State(office): Shared) -> Response {
    let store = office.desk.store().clone();
    lines(move |sink| answers::open(&store, sink))
}

async fn ledger(State(office): Shared, Asked(asked): Asked<OfBatch>) -> Result<Response, No> {
    let batches = office.desk.batches(asked.batch.as_ref()).await.map_err(AnswerError::from)?;
    let store = office.desk.store().clone();
    Ok(lines(move |sink| answers::ledger(&store, &batches, sink)))
}

async fn export(State(office): Shared) -> Response {
    let store = office.desk.store().clone();
    lines(move |sink| answers::export(&store, sink))
}

/// Where lines go.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// An answer of as many lines as there are, made as fast as it is read. What goes wrong half-way cuts the
/// answer off, so that no client takes it for whole.
fn lines(make: impl FnOnce(Sink<'_>) -> Result<(), AnswerError> + Send + 'static) -> Response {
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(2);
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Handle::current();
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let send = |piece: io::Result<Bytes>| {
            let sent = runtime.block_on(sender.send_timeout(piece, READ_PATIENCE));
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
        };
        let made = make(&mut |line| {
            piece.extend_from_slice(line);
            if piece.len() < PIECE_BYTES {
                return Ok(());
            }
            send(Ok(std::mem::take(&mut piece).into()))
        });
        let last = made.map(|()| piece.into()).map_err(io::Error::other);
        if let Err(error) = &last {
            tracing::debug!(%error, "an answer was cut off");
        }
        // Whoever asked may have gone away.
        let _ = send(last);
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    ([(header::CONTENT_TYPE, LINES)], Body::from_stream(stream)).into_response()
}

// A wish is carried out to its end once it has come in: a client that goes away leaves nothing half done.

async fn pause(State(office): Shared, Wished(wish): Wished<BatchRequest>) -> Result<Response, No> {
    let work = async move { answers::pause(&office.desk, wish.batch.as_ref()).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn resume(State(office): Shared, Wished(wish): Wished<BatchRequest>) -> Result<Response, No> {
    let work = async move { answers::resume(&office.desk, wish.batch.as_ref()).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn cancel(State(office): Shared, Wished(wish): Wished<NameRequest>) -> Result<Response, No> {
    let work = async move { answers::cancel(&office.desk, &wish.name).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn retry(State(office): Shared, Wished(wish): Wished<RetryRequest>) -> Result<Response, No> {
    let max_credits = wish.max_credits.map(Credits);
    let work = async move { answers::retry(&office.desk, &wish.name, max_credits).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn resolve(State(office): Shared, Wished(wish): Wished<ResolveRequest>) -> Result<Response, No> {
    let work = async move { answers::resolve(&office.desk, &wish).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn set_budget(State(office): Shared, Wished(wish): Wished<BudgetRequest>) -> Result<Response, No> {
    let record = answers::batch_called(&office.desk, &wish.batch).await?;
    let granted = office.reception.set_budget(record.no, wish.budget).await;
    granted.map_err(|gone| AnswerError::from(EngineError::from(gone)))?;
    Ok(Json(answers::budget_set(&office.desk, &record).await?).into_response())
}

async fn download(State(office): Shared, Wished(wish): Wished<NameRequest>) -> Result<Response, No> {
    let (landing, layout) = (office.landing.clone(), office.layout.clone());
    let work = async move { answers::download(&office.desk, &wish.name, landing, layout).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn schedules(State(office): Shared) -> Json<Schedules> {
    Json(office.in_force.borrow().clone())
}

async fn fire(
    State(office): Shared,
    name: Result<axum::extract::Path<String>, PathRejection>,
) -> Result<Response, No> {
    let axum::extract::Path(name) = name.map_err(|error| No::usage(error.body_text()))?;
    let (reply, answer) = tokio::sync::oneshot::channel();
    let gone =
        || No(StatusCode::SERVICE_UNAVAILABLE, Refusal::new(Exit::Unfinished, "the daemon is stopping"));
    office.schedules.send(FireRequest { name, reply }).await.map_err(|_| gone())?;
    match answer.await.map_err(|_| gone())? {
        Ok(receipt) => Ok(Json(receipt).into_response()),
        Err(NotFired::Unknown(refusal)) => Err(No(StatusCode::NOT_FOUND, refusal)),
        Err(NotFired::Refused(refusal)) => Err(No(StatusCode::CONFLICT, refusal)),
    }
}

async fn submit(
    State(office): Shared,
    Asked(submission): Asked<Submission>,
    body: Body,
) -> Result<Response, No> {
    let name = Path::new(&submission.file);
    if name.file_name().is_none_or(|file| file != name.as_os_str()) || submission.file.len() > 255 {
        return Err(No::usage(format!(
            "file: found {:?}, expected a file's name without folders",
            submission.file
        )));
    }
    if submission.file.contains('\0') {
        return Err(No::usage(format!("file: found {:?}, and no file's name holds a NUL", submission.file)));
    }
    let folder = reception::incoming(office.desk.store().dir()).map_err(|error| not_kept(&error))?;
    let path = folder.path().join(name);
    receive(body, &path).await?;
    let manner = Manner {
        batch: submission.batch,
        policy: Policy {
            budget: submission.budget.and_then(BudgetSetting::limit),
            strict: submission.strict.then_some(true),
            allow_unknown_options: submission.allow_unknown_options.then_some(true),
            ..Policy::default()
        },
        default_policy: Policy::default(),
        is_default_budget: submission.budget == Some(BudgetSetting::Default),
        ceiling: None,
        place: submission.folder.map_or(Place::Socket, Place::Folder),
        max_credits: submission.max_credits.map(Credits),
        expected: None,
        occasion: None,
    };
    // The folder is kept until the manifest was read, though the client goes away.
    let work = async move {
        let accepted = office.reception.accept(&path, manner).await;
        drop(folder);
        accepted
    };
    let mut receipt = to_the_end(work).await.map_err(|error| not_accepted(&error))?;
    receipt.file = PathBuf::from(submission.file);
    Ok(Json::<Submitted>(receipt).into_response())
}

/// Why a manifest was not taken in.
pub fn refusal_of(error: &ReceptionError) -> Refusal {
    Refusal::new(exit_of(error), error.to_string())
}

fn exit_of(error: &ReceptionError) -> Exit {
    match error {
        ReceptionError::Intake(IntakeError::Store(error)) if error.is_disk() => Exit::Disk,
        ReceptionError::Intake(_) => Exit::Usage,
        ReceptionError::Catalog(CatalogError::Store(_)) => Exit::Disk,
        ReceptionError::Catalog(_) | ReceptionError::Unjudged(_) => Exit::Unreachable,
        ReceptionError::Gone(_) => Exit::Unfinished,
    }
}

fn not_accepted(error: &ReceptionError) -> No {
    let status = match exit_of(error) {
        Exit::Usage => StatusCode::UNPROCESSABLE_ENTITY,
        Exit::Unreachable => StatusCode::BAD_GATEWAY,
        Exit::Disk => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    No(status, refusal_of(error))
}

/// The manifest has no place on the state's disk.
fn not_kept(error: &io::Error) -> No {
    let refusal = Refusal::new(Exit::Disk, format!("failed to keep the manifest: {error}"));
    No(StatusCode::INSUFFICIENT_STORAGE, refusal)
}

/// Writes a manifest as it comes in.
async fn receive(body: Body, path: &Path) -> Result<(), No> {
    let broken = |error: io::Error| not_kept(&error);
    let mut file = tokio::fs::File::create(path).await.map_err(broken)?;
    let mut pieces = Pieces::of(body, Pace::default());
    let mut bytes = 0;
    while let Some(piece) = pieces.next().await? {
        bytes += piece.len() as u64;
        if bytes > MANIFEST_MAX {
            return Err(No::usage(format!("the manifest has more than {MANIFEST_MAX} bytes")));
        }
        file.write_all(&piece).await.map_err(broken)?;
    }
    file.flush().await.map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineGone;
    use crate::engine::desk::FindError;
    use crate::store::StoreError;

    #[test]
    fn a_refusal_says_what_refuses() {
        let missing = || StoreError::Missing { dir: PathBuf::from("state") };
        for (error, status, exit) in [
            (FindError::Nothing("a".to_owned()).into(), StatusCode::NOT_FOUND, Exit::Usage),
            (EngineError::from(EngineGone).into(), StatusCode::SERVICE_UNAVAILABLE, Exit::Unfinished),
            (missing().into(), StatusCode::INTERNAL_SERVER_ERROR, Exit::Disk),
            (FindError::Engine(missing().into()).into(), StatusCode::INTERNAL_SERVER_ERROR, Exit::Disk),
        ] {
            let No(found, refusal) = AnswerError::into(error);
            assert_eq!((found, refusal.exit_code), (status, exit.code()), "{}", refusal.message);
        }
    }
}
