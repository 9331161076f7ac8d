//! Files that rows name as inputs, handed over before their manifest: which are missing, and their contents.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use axum::{Router, body::Bytes};
use futures_util::StreamExt;

use crate::domain::exit_code::Exit;
use crate::domain::input_file::is_sha256;
use crate::engine::blocking;
use crate::ingest::input_files::{HandedFile, HandedFiles};
use crate::server::api_error::{ApiError, Path, storage_error};
use crate::server::app_state::{AppState, Shared};
use crate::server::protocol::{INPUT_PATH, MissingInputs, MissingInputsRequest, Refusal, Request as _};
use crate::store::staged_inputs::{StageError, StagedCopy, StagedInputs};

/// Largest list of files, in bytes.
const LIST_MAX_BYTES: u64 = 256 << 20;
/// Largest body that asks which files are missing, in bytes.
const QUESTION_MAX_BYTES: usize = 64 << 20;
/// Written to disk at once, in bytes.
const WRITE_BYTES: usize = 1 << 20;

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route(INPUT_PATH, put(put_input))
        .route(MissingInputsRequest::PATH, post(missing).layer(DefaultBodyLimit::max(QUESTION_MAX_BYTES)))
}

async fn missing(State(app): Shared, body: Result<Bytes, BytesRejection>) -> Result<Response, ApiError> {
    let body = body.map_err(|error| match error {
        BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)) => {
            ApiError::usage(format!("the request body has more than {QUESTION_MAX_BYTES} bytes"))
        }
        error => ApiError::body(&error),
    })?;
    let asked: MissingInputsRequest = serde_json::from_slice(&body)
        .map_err(|error| ApiError::usage(format!("invalid request body: {error}")))?;
    if let Some(bad) = asked.sha256.iter().find(|sha256| !is_sha256(sha256)) {
        return Err(not_a_hash(bad));
    }
    app.ingest.forget_missing_inputs(asked.sha256.clone()).await;
    let staged = staged(&app);
    let missing = blocking(move || {
        let missing = asked.sha256.into_iter().filter(|sha256| !staged.has_for_manifest(sha256));
        missing.collect()
    });
    Ok(Json(MissingInputs { missing: missing.await }).into_response())
}

fn staged(app: &AppState) -> StagedInputs {
    StagedInputs::of(app.engine.store().dir())
}

fn not_a_hash(text: &str) -> ApiError {
    ApiError::usage(format!("\"{text}\" is not a SHA-256 of 64 digits in lowercase hex"))
}

async fn put_input(
    State(app): Shared,
    Path(sha256): Path<String>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    if !is_sha256(&sha256) {
        return Err(not_a_hash(&sha256));
    }
    let most = app.ingest.input_max_bytes().max(LIST_MAX_BYTES);
    let staged = staged(&app);
    let begun = blocking(move || staged.begin()).await;
    let mut copy = begun.map_err(|error| storage_error(&error))?;
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut waiting): (u64, Vec<Bytes>) = (0, Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| ApiError::body(&error))?;
        bytes += chunk.len() as u64;
        if bytes > most {
            return Err(ApiError::usage(format!("the file has more than {most} bytes (inputs.max_file)")));
        }
        waiting.push(chunk);
        if waiting.iter().map(Bytes::len).sum::<usize>() >= WRITE_BYTES {
            copy = write(copy, std::mem::take(&mut waiting)).await?;
        }
    }
    let copy = write(copy, waiting).await?;
    match blocking(move || copy.finish(&sha256)).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error @ StageError::Changed { .. }) => Err(ApiError::usage(error.to_string())),
        Err(StageError::Io(error)) => Err(storage_error(&error)),
    }
}

async fn write(mut copy: StagedCopy, chunks: Vec<Bytes>) -> Result<StagedCopy, ApiError> {
    let written = blocking(move || {
        chunks.iter().try_for_each(|chunk| copy.write(chunk))?;
        Ok::<_, std::io::Error>(copy)
    });
    written.await.map_err(|error| storage_error(&error))
}

/// The list of files that was handed over under this hash, all of whose contents were, too. It is used once.
pub(super) async fn take_list(app: &AppState, sha256: String) -> Result<HandedFiles, ApiError> {
    let staged = staged(app);
    let read = blocking(move || -> Result<HandedFiles, ApiError> {
        let unknown = |what: &str| {
            let message =
                format!("{what} is missing: send it with PUT /v1/inputs/SHA256 before the manifest");
            ApiError(StatusCode::CONFLICT, Refusal::new(Exit::Usage, message).hint("repeat the command"))
        };
        let path = staged.content(&sha256).ok_or_else(|| unknown("the list of files"))?;
        let list = std::fs::read(&path).map_err(|error| storage_error(&error))?;
        let list: HandedFiles = serde_json::from_slice(&list)
            .map_err(|error| ApiError::usage(format!("the list of files is invalid: {error}")))?;
        for (name, file) in &list.0 {
            if let HandedFile::Content(content) = file
                && !staged.has_for_manifest(&content.sha256)
            {
                return Err(unknown(&format!("the content of {name}")));
            }
        }
        std::fs::remove_file(&path).map_err(|error| storage_error(&error))?;
        Ok(list)
    });
    read.await
}
