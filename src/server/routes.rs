//! The server of the control API: every route.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::clock::whole_ms;
use crate::domain::budget::StateTotals;
use crate::domain::exit_code::Exit;
use crate::domain::job_state::JobState;
use crate::engine::{EngineError, blocking, to_the_end};
use crate::ingest::IngestOptions;
use crate::ingest::ingest_handle::IncomingDir;
use crate::ingest::retry_edited::{self, EditedRetryOptions};
use crate::ingest::retry_manifest::JobChoice;
use crate::metrics::{CONTENT_TYPE, Moved};
use crate::server::api_error::{
    self, ApiError, BODY_MAX_BYTES, JsonBody, Query, check_file_name, check_folder, ingest_error,
    storage_error,
};
use crate::server::app_state::{AppState, FireMode, Shared};
use crate::server::explain_answer;
use crate::server::handlers::{self, HandlerError};
use crate::server::input_routes;
use crate::server::live_page::TypedCommands;
use crate::server::page_routes;
use crate::server::protocol::{
    AnotherTakeRequest, BudgetRequest, CancelRequest, ContinueRequest, DecideRequest, DownloadRequest,
    ExplainRequest, ExportRequest, GalleryRequest, GroupTotalsRequest, Health, HealthRequest, JobsRequest,
    LedgerRequest, MANIFESTS_PATH, NDJSON, NOT_LISTED, OpenJobsRequest, PauseRequest, Refusal, Request as _,
    ResolveRequest, ResumeRequest, RetryEditedRequest, RetryRequest, ReviewRequest, RunScheduleRequest,
    Schedules, SchedulesRequest, Status, StatusRequest, Submission, SyncOutputsRequest, TotalsRequest,
    TransferTotals, Transfers,
};
use crate::server::review_handlers;
use crate::server::status_list;

/// Largest manifest that may be handed in, in bytes.
const MANIFEST_MAX_BYTES: u64 = 4 << 30;
/// How long a client may leave a response unread.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Size of a chunk of a response of many lines, in bytes.
const CHUNK_BYTES: usize = 32 * 1024;

/// Every route.
pub fn router(app: AppState) -> Router {
    let taking =
        routes(app.pages.typed_commands()).route(MANIFESTS_PATH, post(submit)).merge(input_routes::routes());
    let taking = taking.route(AnotherTakeRequest::PATH, post(another_take));
    with_state(taking.route(RetryEditedRequest::PATH, post(retry_edited)), app)
}

/// Every route of a process that takes no more manifests than it was given.
pub fn router_without_manifests(app: AppState) -> Router {
    let refusing = routes(app.pages.typed_commands()).route(MANIFESTS_PATH, post(refuse_manifest));
    let refusing = refusing.route(AnotherTakeRequest::PATH, post(refuse_manifest));
    with_state(refusing.route(RetryEditedRequest::PATH, post(refuse_manifest)), app)
}

/// The fallback is for the routes that are there when it is set.
fn with_state(routes: Router<Arc<AppState>>, app: AppState) -> Router {
    routes.method_not_allowed_fallback(method_not_allowed).with_state(Arc::new(app))
}

async fn refuse_manifest(State(app): Shared) -> ApiError {
    ApiError(StatusCode::CONFLICT, app.health.refuse_manifests())
}

fn routes(typed: TypedCommands) -> Router<Arc<AppState>> {
    Router::new()
        .route(HealthRequest::PATH, get(health))
        .route(StatusRequest::PATH, get(status))
        .route(JobsRequest::PATH, get(jobs))
        .route(OpenJobsRequest::PATH, get(open))
        .route(ReviewRequest::PATH, get(review).post(decide))
        .route(TotalsRequest::PATH, get(state_totals))
        .route(GroupTotalsRequest::PATH, get(group_totals))
        .route(ExplainRequest::PATH, get(explain))
        .route(LedgerRequest::PATH, get(ledger))
        .route(ExportRequest::PATH, get(export))
        .route(PauseRequest::PATH, post(pause))
        .route(ResumeRequest::PATH, post(resume))
        .route(ContinueRequest::PATH, post(continue_batch))
        .route(CancelRequest::PATH, post(cancel))
        .route(RetryRequest::PATH, post(retry))
        .route(DownloadRequest::PATH, post(download))
        .route(SyncOutputsRequest::PATH, post(sync_outputs))
        .route(ResolveRequest::PATH, post(resolve))
        .route(BudgetRequest::PATH, post(set_budget))
        .route(GalleryRequest::PATH, post(gallery))
        .route(SchedulesRequest::PATH, get(schedules))
        .route(RunScheduleRequest::PATH, post(run_schedule))
        .route("/metrics", get(metrics))
        .merge(page_routes::routes(typed))
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
}

async fn not_found(request: Request) -> ApiError {
    let message = format!("no such route: {} {}", request.method(), request.uri().path());
    let hint = Some("see docs/control.md".to_owned());
    ApiError(StatusCode::NOT_FOUND, Refusal { hint, ..Refusal::new(Exit::Usage, message) })
}

async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} does not support {}", request.uri().path(), request.method());
    let hint = Some("see docs/control.md".to_owned());
    ApiError(StatusCode::METHOD_NOT_ALLOWED, Refusal { hint, ..Refusal::new(Exit::Usage, message) })
}

async fn health(State(app): Shared) -> Json<Health> {
    Json(app.health.clone())
}

async fn metrics(State(app): Shared) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], app.metrics.render())
}

fn totals(moved: Moved) -> TransferTotals {
    let Moved { files, failed, bytes, busy } = moved;
    TransferTotals { files, failed, bytes, busy_ms: whole_ms(busy) }
}

async fn status(State(app): Shared, Query(query): Query<StatusRequest>) -> Result<Response, ApiError> {
    let status = status_list::status(&app.engine, &query).await?;
    let (downloads, uploads) = app.metrics.transfers();
    // Without a store there is nothing to compare.
    let transfers = (uploads != Moved::default())
        .then(|| Transfers { downloads: totals(downloads), uploads: totals(uploads) });
    Ok(Json(Status { transfers, ..status }).into_response())
}

async fn explain(State(app): Shared, Query(query): Query<ExplainRequest>) -> Result<Response, ApiError> {
    Ok(Json(explain_answer::explain(&app.engine, &query.job).await?).into_response())
}

async fn jobs(State(app): Shared, Query(query): Query<JobsRequest>) -> Result<Response, ApiError> {
    let state = query.state.as_deref().map(str::parse::<JobState>).transpose();
    let state = state.map_err(|unknown| ApiError::usage(format!("state: {unknown}")))?;
    let (batches, not_listed) = match state {
        // No finished batch has such a job.
        Some(state) if query.batch.is_none() && (state.is_moving() || state == JobState::Queued) => {
            (app.engine.unfinished_batches().await.map_err(HandlerError::from)?, 0)
        }
        _ => status_list::listed(&app.engine, query.batch.as_ref()).await?,
    };
    let store = app.engine.store().clone();
    Ok((not_listed_header(not_listed), lines(move |sink| handlers::jobs(&store, &batches, state, sink)))
        .into_response())
}

async fn open(State(app): Shared) -> Response {
    let store = app.engine.store().clone();
    lines(move |sink| handlers::open(&store, sink))
}

async fn review(State(app): Shared, Query(query): Query<ReviewRequest>) -> Result<Response, ApiError> {
    let batches = match query.batch {
        // Nothing waits in a finished batch.
        None if !query.all => app.engine.unfinished_batches().await.map_err(HandlerError::from)?,
        _ => app.engine.batches(query.batch.as_ref()).await.map_err(HandlerError::from)?,
    };
    let store = app.engine.store().clone();
    Ok(lines(move |sink| review_handlers::outputs(&store, &batches, &query, sink)))
}

async fn decide(State(app): Shared, JsonBody(body): JsonBody<DecideRequest>) -> Result<Response, ApiError> {
    body.check().map_err(ApiError::usage)?;
    let output_dir = app.output_dir();
    let alone = app.engine.reopening().await;
    let work = async move { review_handlers::decide(&app.engine, &alone, &output_dir, body).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn another_take(
    State(app): Shared,
    JsonBody(body): JsonBody<AnotherTakeRequest>,
) -> Result<Response, ApiError> {
    let alone = app.engine.reopening().await;
    let work = async move { review_handlers::another_take(&app.engine, &alone, &app.ingest, &body).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn state_totals(State(app): Shared) -> Result<Response, ApiError> {
    let account = app.engine.account().await.map_err(HandlerError::from)?;
    Ok(Json(StateTotals { total: account.total, day: account.day, may_be_charged: account.may_be_charged })
        .into_response())
}

async fn group_totals(State(app): Shared) -> Result<Response, ApiError> {
    let store = app.engine.store().clone();
    let totals =
        blocking(move || store.groups()).await.map_err(EngineError::from).map_err(HandlerError::from)?;
    Ok(Json(totals).into_response())
}

async fn ledger(State(app): Shared, Query(query): Query<LedgerRequest>) -> Result<Response, ApiError> {
    let (batches, not_listed) = status_list::listed(&app.engine, query.batch.as_ref()).await?;
    let store = app.engine.store().clone();
    Ok((not_listed_header(not_listed), lines(move |sink| handlers::ledger(&store, &batches, sink)))
        .into_response())
}

async fn export(State(app): Shared) -> Response {
    let store = app.engine.store().clone();
    lines(move |sink| handlers::export(&store, sink))
}

/// Says how many finished batches a response leaves out; nothing where it leaves out none.
fn not_listed_header(batches: u64) -> Option<[(&'static str, String); 1]> {
    (batches > 0).then(|| [(NOT_LISTED, batches.to_string())])
}

/// Where lines go.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// An answer of as many lines as there are, made as fast as it is read. What goes wrong half-way cuts the
/// answer off, so that no client takes it for whole.
fn lines(make: impl FnOnce(Sink<'_>) -> Result<(), HandlerError> + Send + 'static) -> Response {
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(1);
    let (made, mut chunks) = mpsc::channel::<io::Result<Bytes>>(1);
    // The time is measured here and not by the thread below: that may outlive the runtime, whose timers are gone then.
    tokio::spawn(async move {
        while let Some(chunk) = chunks.recv().await {
            // The client may have disconnected, or read nothing for too long: then it gets no end that looks like one.
            if sender.send_timeout(chunk, READ_TIMEOUT).await.is_err() {
                drop(chunks);
                let _ = sender.send(Err(io::ErrorKind::TimedOut.into())).await;
                break;
            }
        }
    });
    tokio::task::spawn_blocking(move || {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let send = |chunk: io::Result<Bytes>| {
            made.blocking_send(chunk).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
        };
        let outcome = make(&mut |line| {
            chunk.extend_from_slice(line);
            if chunk.len() < CHUNK_BYTES {
                return Ok(());
            }
            send(Ok(std::mem::take(&mut chunk).into()))
        });
        let last = outcome.map(|()| chunk.into()).map_err(io::Error::other);
        if let Err(error) = &last {
            tracing::debug!(%error, "a response was cut off");
        }
        // Nobody may wait for it any more.
        let _ = send(last);
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        let chunk = receiver.recv().await?;
        Some((chunk, receiver))
    });
    ([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(stream)).into_response()
}

// A command runs to its end once it has begun, even if the client disconnects. One that changes jobs that have ended waits for
// others of these before: if its client gives up meanwhile, nothing of it is done later.

async fn pause(State(app): Shared, JsonBody(body): JsonBody<PauseRequest>) -> Result<Response, ApiError> {
    let work = async move { handlers::pause(&app.engine, body.batch.as_ref()).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn resume(State(app): Shared, JsonBody(body): JsonBody<ResumeRequest>) -> Result<Response, ApiError> {
    let work = async move { handlers::resume(&app.engine, body.batch.as_ref()).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn continue_batch(
    State(app): Shared,
    JsonBody(body): JsonBody<ContinueRequest>,
) -> Result<Response, ApiError> {
    let work = async move { handlers::continue_batch(&app.engine, &app.ingest, &body.batch).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn cancel(State(app): Shared, JsonBody(body): JsonBody<CancelRequest>) -> Result<Response, ApiError> {
    let work = async move { handlers::cancel(&app.engine, &app.output_dir(), &body.name).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn retry(State(app): Shared, JsonBody(body): JsonBody<RetryRequest>) -> Result<Response, ApiError> {
    let alone = app.engine.reopening().await;
    let work = async move { handlers::retry(&app.engine, &alone, &body).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn retry_edited(
    State(app): Shared,
    JsonBody(body): JsonBody<RetryEditedRequest>,
) -> Result<Response, ApiError> {
    let fields = body.edits().map_err(ApiError::usage)?;
    // What is taken anew must not be queued again meanwhile.
    let alone = app.engine.reopening().await;
    let work = async move {
        let _alone = alone;
        let named = app.engine.find(&body.name).await.map_err(HandlerError::from)?;
        let choice = JobChoice { job: named.job(), only_failed: body.failed };
        let options = EditedRetryOptions { choice, fields, is_plan: body.plan };
        let retried = retry_edited::retry_edited(&app.ingest, named.batch().clone(), options).await;
        retried.map_err(|error| ingest_error(&error))
    };
    Ok(Json(to_the_end(Box::pin(work)).await?).into_response())
}

async fn resolve(State(app): Shared, JsonBody(body): JsonBody<ResolveRequest>) -> Result<Response, ApiError> {
    let work = async move { handlers::resolve(&app.engine, &app.output_dir(), &body).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn set_budget(
    State(app): Shared,
    JsonBody(body): JsonBody<BudgetRequest>,
) -> Result<Response, ApiError> {
    let work = async move { handlers::set_budget(&app.engine, &app.ingest, &body.batch, body.budget).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn download(
    State(app): Shared,
    JsonBody(body): JsonBody<DownloadRequest>,
) -> Result<Response, ApiError> {
    let work = async move { handlers::download(&app.engine, &body.name, app.output_places()).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn sync_outputs(
    State(app): Shared,
    JsonBody(body): JsonBody<SyncOutputsRequest>,
) -> Result<Response, ApiError> {
    let work = async move { handlers::sync_outputs(&app.engine, &body.name, app.output_places()).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn gallery(State(app): Shared, JsonBody(body): JsonBody<GalleryRequest>) -> Result<Response, ApiError> {
    let work = async move { handlers::gallery(&app.engine, &app.gallery, body.batch.as_ref()).await };
    Ok(Json(to_the_end(work).await?).into_response())
}

async fn schedules(State(app): Shared) -> Json<Schedules> {
    Json(app.schedules.as_ref().map(|schedules| schedules.in_force.borrow().clone()).unwrap_or_default())
}

async fn run_schedule(
    State(app): Shared,
    api_error::Path(name): api_error::Path<String>,
) -> Result<Response, ApiError> {
    Ok(Json(app.fire(name, FireMode::Now).await?).into_response())
}

async fn submit(
    State(app): Shared,
    Query(submission): Query<Submission>,
    body: Body,
) -> Result<Response, ApiError> {
    check_file_name(&submission.file)?;
    submission.folder.as_deref().map_or(Ok(()), check_folder)?;
    let folder = IncomingDir::create(app.engine.store().dir()).map_err(|error| storage_error(&error))?;
    let path = folder.path().join(Path::new(&submission.file));
    receive(body, &path).await?;
    let file = PathBuf::from(&submission.file);
    let files = match submission.files.clone() {
        Some(sha256) => Some(Arc::new(input_routes::take_list(&app, sha256).await?)),
        None => None,
    };
    let options = IngestOptions { files, ..IngestOptions::from(submission) };
    // The folder is kept until the manifest was read, though the client goes away.
    let work = async move {
        let accepted = app.ingest.accept(&path, options).await;
        drop(folder);
        accepted
    };
    let mut receipt = to_the_end(work).await.map_err(|error| ingest_error(&error))?;
    receipt.file = file;
    Ok(Json(receipt).into_response())
}

/// Writes a manifest as it comes in.
async fn receive(body: Body, path: &Path) -> Result<(), ApiError> {
    let broken = |error: io::Error| storage_error(&error);
    let mut file = tokio::fs::File::create(path).await.map_err(broken)?;
    let mut chunks = body.into_data_stream();
    let mut bytes = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| ApiError::body(&error))?;
        bytes += chunk.len() as u64;
        if bytes > MANIFEST_MAX_BYTES {
            return Err(ApiError::usage(format!("the manifest has more than {MANIFEST_MAX_BYTES} bytes")));
        }
        file.write_all(&chunk).await.map_err(broken)?;
    }
    file.flush().await.map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command ends while a list is still being made: its runtime is gone, and the thread that makes the list is not.
    #[test]
    fn a_list_outlives_its_runtime() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (go_on, ended_runtime) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let response = runtime.block_on(async move {
            lines(move |sink| {
                ended_runtime.recv().map_err(|error| HandlerError::Reader(io::Error::other(error)))?;
                let chunk = vec![b'\n'; CHUNK_BYTES];
                let sent = (0..8).find_map(|_| sink(&chunk).err());
                tell.send(sent.map(|error| error.kind())).unwrap();
                Ok(())
            })
        });
        runtime.shutdown_background();
        go_on.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), Some(io::ErrorKind::BrokenPipe));
        drop(response);
    }
}
