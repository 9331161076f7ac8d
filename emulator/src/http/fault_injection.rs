//! The faults of the wire: what a plan does to a call on its way in and out.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream;

use super::reply;
use crate::clock::{http_date, wall_ms};
use crate::errors::ApiError;
use crate::faults::{AnswerBody, Break, Effect, Moment, RetryAfterForm};
use crate::wire::ConnectionHandle;

const HTML: &str =
    "<!doctype html><html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>";
/// Long enough for the first half of a broken answer to leave.
const BEFORE_BREAKING: Duration = Duration::from_millis(40);

/// Do the work of a call under these effects. The work is done even when the client has gone away.
pub(super) async fn apply_effects<W>(connection: &ConnectionHandle, effects: Vec<Effect>, work: W) -> Response
where
    W: Future<Output = Response> + Send + 'static,
{
    let mut after = Vec::new();
    for effect in effects {
        match effect {
            Effect::Drop { when: Break::Before } => return cut(connection),
            Effect::Delay { ms, when: Moment::Before } => pause(ms).await,
            Effect::Answer { when: Moment::Before, .. } => return foreign(&effect),
            other => after.push(other),
        }
    }
    let Ok(mut response) = tokio::spawn(work).await else { return reply::error(&ApiError::internal()) };
    for effect in after {
        match effect {
            Effect::Drop { when: Break::After } => return cut(connection),
            Effect::Drop { when: Break::MidBody } => return break_off(response, 50).await,
            Effect::Delay { ms, .. } => pause(ms).await,
            Effect::Answer { .. } => return foreign(&effect),
            Effect::TruncatedDownload { keep_percent } => return break_off(response, keep_percent).await,
            Effect::ShortDownload { keep_percent } => return shorten(response, keep_percent).await,
            Effect::EmptyDownload {} => return shorten(response, 0).await,
            Effect::HtmlDownload {} => return reply::plain(200, "text/html", HTML),
            Effect::SlowDownload { bytes_per_second } => response = slow(response, bytes_per_second).await,
            Effect::RedirectedDownload { location } => {
                return with_location(answer(302, AnswerBody::Empty), location.as_deref());
            }
            _ => {}
        }
    }
    response
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms.min(86_400_000))).await;
}

fn cut(connection: &ConnectionHandle) -> Response {
    connection.cut();
    Response::new(Body::empty())
}

/// An answer that is not the call's own.
fn foreign(effect: &Effect) -> Response {
    let Effect::Answer { status, body, retry_after_s, retry_after_as, without_date, location, .. } = effect
    else {
        return reply::error(&ApiError::internal());
    };
    let mut response = with_location(answer(*status, *body), location.as_deref());
    let headers = response.headers_mut();
    if let Some(value) = retry_after_s.and_then(|seconds| retry_after(seconds, *retry_after_as)) {
        headers.insert(header::RETRY_AFTER, value);
    }
    if *without_date {
        // The server adds a date where there is none; an empty one stays.
        headers.insert(header::DATE, HeaderValue::from_static(""));
    }
    response
}

fn answer(status: u16, body: AnswerBody) -> Response {
    match body {
        AnswerBody::Error => reply::json(status, &documented(status).body()),
        AnswerBody::Html => reply::plain(status, "text/html", HTML),
        AnswerBody::BrokenJson => {
            reply::plain(status, "application/json", "{\"code\": 0, \"message\": \"ok\", \"da")
        }
        AnswerBody::GatewayJson => {
            let body = format!("{{\"code\": {status}, \"message\": \"refused by the gateway\"}}");
            reply::plain(status, "application/json", body)
        }
        AnswerBody::Empty => reply::plain(status, "text/plain", ""),
    }
}

fn with_location(mut response: Response, location: Option<&str>) -> Response {
    if let Some(location) = location.and_then(|text| HeaderValue::from_str(text).ok()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// So many seconds from now; as a date it is by the same clock as the answer's `Date`.
fn retry_after(seconds: u64, form: RetryAfterForm) -> Option<HeaderValue> {
    let format = match form {
        RetryAfterForm::Seconds => return Some(HeaderValue::from(seconds)),
        RetryAfterForm::ImfFixdate => "%a, %d %b %Y %H:%M:%S GMT",
        RetryAfterForm::Rfc850 => "%A, %d-%b-%y %H:%M:%S GMT",
        RetryAfterForm::Asctime => "%a %b %e %H:%M:%S %Y",
    };
    let after = i64::try_from(seconds).ok()?.saturating_mul(1_000);
    HeaderValue::from_str(&http_date(wall_ms().saturating_add(after), format)).ok()
}

/// The error body that goes with a status.
fn documented(status: u16) -> ApiError {
    match status {
        400 => ApiError::invalid("the request is not valid"),
        401 | 403 => ApiError::unauthorized(),
        402 => ApiError::insufficient_credits(),
        404 => ApiError::not_found("endpoint"),
        429 => ApiError::too_many_requests(),
        503 => ApiError::safety_check_unavailable(),
        _ => ApiError::internal(),
    }
}

async fn taken_apart(response: Response) -> (axum::http::response::Parts, Bytes) {
    let (parts, body) = response.into_parts();
    (parts, to_bytes(body, usize::MAX).await.unwrap_or_default())
}

fn part(bytes: &Bytes, percent: u8) -> Bytes {
    bytes.slice(0..bytes.len() * usize::from(percent.min(100)) / 100)
}

/// Headers that promise everything, part of the body, then nothing.
async fn break_off(response: Response, percent: u8) -> Response {
    let (mut parts, bytes) = taken_apart(response).await;
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    let first = part(&bytes, percent);
    let pieces = stream::unfold(Some(first), |first| async move {
        match first {
            Some(bytes) => Some((Ok(bytes), None)),
            None => {
                tokio::time::sleep(BEFORE_BREAKING).await;
                Some((Err(io::Error::from(io::ErrorKind::ConnectionReset)), None))
            }
        }
    });
    // The first piece is sent once; after it every poll is an error, which ends the connection.
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// A body that is too short, and headers that agree with it.
async fn shorten(response: Response, percent: u8) -> Response {
    let (mut parts, bytes) = taken_apart(response).await;
    let kept = part(&bytes, percent);
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(kept.len()));
    Response::from_parts(parts, Body::from(kept))
}

/// The whole body, a little at a time.
async fn slow(response: Response, bytes_per_second: u64) -> Response {
    let (mut parts, bytes) = taken_apart(response).await;
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    let piece = usize::try_from(bytes_per_second / 10).unwrap_or(usize::MAX).max(1);
    let pieces = stream::unfold(bytes, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = left.split_to(piece.min(left.len()));
        Some((Ok::<_, io::Error>(now), left))
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// Where a redirect without a location points: the same address, marked so that it is not redirected for ever.
pub(super) fn redirect_to_itself(mut response: Response, here: &str) -> Response {
    let lost = response.status().is_redirection() && !response.headers().contains_key(header::LOCATION);
    if lost && let Ok(here) = HeaderValue::from_str(here) {
        response.headers_mut().insert(HeaderName::from_static("location"), here);
    }
    response
}
