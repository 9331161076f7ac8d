//! Error responses, and the extractors that produce them.

use std::io;
use std::path::{self, Component};

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::domain::exit_code::Exit;
use crate::engine::EngineError;
use crate::ingest::ingest_handle::IngestError;
use crate::server::connections::{self, BODY_TIMEOUT};
use crate::server::handlers::HandlerError;
use crate::server::protocol::{ErrorBody, Refusal};
use crate::store::StoreError;

/// Largest body of a command, in bytes.
pub(super) const BODY_MAX_BYTES: usize = 64 * 1024;

/// An error response.
#[derive(Debug)]
pub(super) struct ApiError(pub(super) StatusCode, pub(super) Refusal);

impl ApiError {
    pub(super) fn usage(message: impl Into<String>) -> ApiError {
        ApiError(StatusCode::BAD_REQUEST, Refusal::new(Exit::Usage, message))
    }

    /// A body that was not read to its end.
    pub(super) fn body(error: &(dyn std::error::Error + 'static)) -> ApiError {
        if connections::is_body_timeout(error) {
            let message = format!("body timeout: no data for {} seconds", BODY_TIMEOUT.as_secs());
            return ApiError(StatusCode::REQUEST_TIMEOUT, Refusal::new(Exit::Usage, message));
        }
        ApiError::usage(format!("the body ended early: {error}"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.0, Json(ErrorBody { error: self.1 })).into_response()
    }
}

impl From<HandlerError> for ApiError {
    fn from(error: HandlerError) -> ApiError {
        let status = match error {
            HandlerError::Find(_) | HandlerError::IsBatch { .. } => StatusCode::NOT_FOUND,
            HandlerError::ManifestRead { .. }
            | HandlerError::Refused { .. }
            | HandlerError::NoOutputStore
            | HandlerError::NotCompared { .. } => StatusCode::CONFLICT,
            HandlerError::Engine(EngineError::Gone(_)) => StatusCode::SERVICE_UNAVAILABLE,
            HandlerError::Engine(EngineError::Store(StoreError::BatchMoved { .. })) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            HandlerError::Engine(_) | HandlerError::Reader(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError(status, error.refusal())
    }
}

/// The query string.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> axum::extract::FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, _: &S) -> Result<Query<T>, ApiError> {
        let axum::extract::Query(query) = axum::extract::Query::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::usage(error.body_text()))?;
        Ok(Query(query))
    }
}

/// The parts of an address that a route names.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> axum::extract::FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Path<T>, ApiError> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Path(path)).map_err(|error| ApiError::usage(error.body_text()))
    }
}

/// Refuses a file name that has folders in it, or is too long.
pub(super) fn check_file_name(file: &str) -> Result<(), ApiError> {
    let name = path::Path::new(file);
    if name.file_name().is_none_or(|file| file != name.as_os_str()) || file.len() > 255 {
        return Err(ApiError::usage(format!("file: found {file:?}, expected a file's name without folders")));
    }
    if file.contains('\0') {
        return Err(ApiError::usage(format!("file: found {file:?}; a file name must not contain NUL")));
    }
    Ok(())
}

/// Refuses a folder that is not told apart from others by its path: one that is relative, or leads up.
pub(super) fn check_folder(folder: &str) -> Result<(), ApiError> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let path = path::Path::new(folder);
    if path.is_absolute() && path.components().all(is_plain) && !folder.contains('\0') {
        return Ok(());
    }
    Err(ApiError::usage(format!("folder: found {folder:?}, expected an absolute path without \"..\"")))
}

pub(super) fn ingest_error(error: &IngestError) -> ApiError {
    let refusal = Refusal::from(error);
    let status = match Exit::of_code(refusal.exit_code) {
        Exit::Usage => StatusCode::UNPROCESSABLE_ENTITY,
        Exit::Unreachable | Exit::Unauthorised => StatusCode::BAD_GATEWAY,
        Exit::Disk => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    ApiError(status, refusal)
}

/// The manifest has no place on the state's disk.
pub(super) fn storage_error(error: &io::Error) -> ApiError {
    let refusal = Refusal::new(Exit::Disk, format!("failed to store the manifest: {error}"));
    ApiError(StatusCode::INSUFFICIENT_STORAGE, refusal)
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        HandlerError::from(error).into()
    }
}

/// A JSON body of at most [`BODY_MAX_BYTES`], whatever its content type: an object, and nothing else.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<JsonBody<T>, ApiError> {
        let body = Bytes::from_request(request, state).await.map_err(|error| match error {
            BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)) => {
                ApiError::usage(format!("the request body has more than {BODY_MAX_BYTES} bytes"))
            }
            error => ApiError::body(&error),
        })?;
        // Read as a request, a list would be its fields in order, and an empty one the request for everything.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(ApiError::usage(
                "invalid request body: expected a JSON object, such as {}; docs/control.md lists its fields",
            ));
        }
        serde_json::from_slice(&body)
            .map(JsonBody)
            .map_err(|error| ApiError::usage(format!("invalid request body: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::engine::{EngineGone, FindError};
    use crate::store::StoreError;

    #[test]
    fn a_folder_is_absolute_and_leads_nowhere_else() {
        assert!(check_folder("/srv/jobs").is_ok() && check_folder("/").is_ok());
        for folder in ["", "jobs", "../jobs", "/srv/../etc", "/srv/\0"] {
            let refused = check_folder(folder).unwrap_err().1.message;
            assert!(refused.ends_with("expected an absolute path without \"..\""), "{refused}");
        }
    }

    #[test]
    fn a_refusal_says_what_refuses() {
        let missing = || StoreError::Missing { dir: PathBuf::from("state") };
        for (error, status, exit) in [
            (
                FindError::Nothing { text: "a".to_owned(), not_searched: 0 }.into(),
                StatusCode::NOT_FOUND,
                Exit::Usage,
            ),
            (EngineError::from(EngineGone).into(), StatusCode::SERVICE_UNAVAILABLE, Exit::Unfinished),
            (missing().into(), StatusCode::INTERNAL_SERVER_ERROR, Exit::Usage),
            (FindError::Engine(missing().into()).into(), StatusCode::INTERNAL_SERVER_ERROR, Exit::Usage),
        ] {
            let ApiError(found, refusal) = HandlerError::into(error);
            assert_eq!((found, refusal.exit_code), (status, exit.code()), "{}", refusal.message);
        }
    }
}
