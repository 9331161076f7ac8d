//! Answers: the two envelopes and plain bytes.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;

use crate::errors::ApiError;

/// The first value of a name in the query.
pub(super) fn word(uri: &Uri, name: &str) -> Option<String> {
    let words = url::form_urlencoded::parse(uri.query()?.as_bytes());
    words.into_iter().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

/// A response with a status, a content type and a body.
pub(super) fn plain(status: u16, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Any JSON. What is answered are values of JSON, which always print.
pub(super) fn json(status: u16, value: &impl Serialize) -> Response {
    plain(status, "application/json", serde_json::to_vec(value).unwrap_or_default())
}

/// The success envelope (document: "Response envelope").
#[derive(Serialize)]
struct Success<'a, T> {
    code: u8,
    data: &'a T,
    message: &'static str,
}

/// An answer in the success envelope.
pub(super) fn ok(status: u16, data: &impl Serialize) -> Response {
    json(status, &Success { code: 0, data, message: "ok" })
}

/// The error envelope.
pub(super) fn error(error: &ApiError) -> Response {
    json(error.status, &error.body())
}

/// One or the other.
pub(super) fn answer(result: Result<Value, ApiError>) -> Response {
    match result {
        Ok(data) => ok(200, &data),
        Err(wrong) => error(&wrong),
    }
}
