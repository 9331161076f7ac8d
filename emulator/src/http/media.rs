//! The media origin: result files and voice previews. It never needs a key, and refuses to be shown one.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use callsheet_renderer::{Medium, Subject};
use rust_decimal::prelude::ToPrimitive;
use uuid::Uuid;

use super::{fault_injection, reply};
use crate::faults::{Call, Effect, Target};
use crate::service::{Artifact, Service};
use crate::tasks::Kind;
use crate::wire::ConnectionHandle;

type Shared = State<Arc<Service>>;

/// The media origin.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/media/{id}/{file}", get(result))
        .route("/voices/{file}", get(preview))
        .fallback(|| async { missing() })
        .layer(from_fn_with_state(Arc::clone(&service), refuse_keys))
        .with_state(service)
}

fn missing() -> Response {
    reply::plain(404, "text/plain", "no such file\n")
}

async fn refuse_keys(State(service): Shared, request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::AUTHORIZATION) {
        service.with_state(|state, _| state.totals.media_requests_with_key += 1);
        return reply::plain(400, "text/plain", "this host must never be shown an API key\n");
    }
    next.run(request).await
}

/// `0.mp4` as an index, when the ending is right.
fn index_of(file: &str, kind: Kind) -> Option<u16> {
    let (index, extension) = file.split_once('.')?;
    let plain = index.bytes().all(|b| b.is_ascii_digit()) && (index == "0" || !index.starts_with('0'));
    index.parse().ok().filter(|_| plain && extension == kind.extension())
}

async fn result(
    State(service): Shared,
    ConnectInfo(connection): ConnectInfo<ConnectionHandle>,
    Path((id, file)): Path<(String, String)>,
    uri: Uri,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let Some(task) = Uuid::parse_str(&id).ok().and_then(|id| service.glance(id)) else { return missing() };
    let mut effects = service.wire_effects(&Call {
        target: Target::Download,
        kind: Some(task.kind),
        model: task.model.split('/').next().unwrap_or(""),
        prompt: &task.prompt,
        identity: task.key.as_deref().unwrap_or(&id),
    });
    let address = format!("/media/{id}/{file}");
    if reply::word(&uri, "redirected").is_some() {
        effects.retain(|effect| !matches!(effect, Effect::RedirectedDownload { .. }));
    }
    let expires_ms = reply::word(&uri, "expires").and_then(|text| text.parse().ok());
    let Some(index) = index_of(&file, task.kind) else { return missing() };
    let work = async move {
        match service.result(task.id, index, expires_ms) {
            Artifact::Ready(subject) => send(&service, *subject, &method, &headers).await,
            Artifact::Expired => reply::plain(403, "text/plain", "this address has expired\n"),
            Artifact::Missing => missing(),
        }
    };
    let response = fault_injection::apply_effects(&connection, effects, work).await;
    let expires = expires_ms.map_or(String::new(), |ms: i64| format!("&expires={ms}"));
    fault_injection::redirect_to_itself(response, &format!("{address}?redirected=1{expires}"))
}

async fn preview(
    State(service): Shared,
    Path(file): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let id = file.strip_suffix(".wav").unwrap_or("");
    if !service.with_state(|state, _| state.catalog.voice(id).is_some()) {
        return missing();
    }
    let subject = Subject {
        id: Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes()),
        index: 0,
        medium: Medium::Speech,
        ratio: (1, 1),
        pixels: None,
        length_ms: 2_500,
        model: String::new(),
        prompt: String::new(),
        options: String::new(),
    };
    send(&service, subject, &method, &headers).await
}

async fn send(service: &Service, subject: Subject, method: &Method, headers: &HeaderMap) -> Response {
    let kind = subject.medium.content_type();
    let etag = format!("\"{}-{}\"", subject.id.simple(), subject.index);
    let Some(bytes) = service.render(subject).await else {
        return reply::plain(500, "text/plain", "the file could not be rendered\n");
    };
    let mut response = respond(&bytes, kind, &etag, headers);
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

/// A file under the rules of conditional and range requests.
fn respond(bytes: &Bytes, kind: &'static str, etag: &str, headers: &HeaderMap) -> Response {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let same = |value: &str| value.split(',').any(|tag| tag.trim() == etag || tag.trim() == "*");
    let mut response = if text(header::IF_NONE_MATCH).is_some_and(same) {
        let mut unchanged = Response::new(Body::empty());
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        let ranged = text(header::RANGE).filter(|_| text(header::IF_RANGE).is_none_or(|tag| tag == etag));
        match ranged.map_or(Range::Whole, |range| Range::parse(range, bytes.len())) {
            Range::Whole => whole(bytes, kind),
            Range::Part(from, to) => part(bytes, kind, from, to),
            Range::Outside => outside(bytes.len()),
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

fn whole(bytes: &Bytes, kind: &'static str) -> Response {
    let mut response = reply::plain(200, kind, bytes.clone());
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    response
}

fn part(bytes: &Bytes, kind: &'static str, from: usize, to: usize) -> Response {
    let piece = bytes.slice(from..=to);
    let length = piece.len();
    let mut response = reply::plain(206, kind, piece);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if let Ok(range) = HeaderValue::from_str(&format!("bytes {from}-{to}/{}", bytes.len())) {
        headers.insert(header::CONTENT_RANGE, range);
    }
    response
}

fn outside(length: usize) -> Response {
    let mut response = reply::plain(416, "text/plain", "");
    if let Ok(range) = HeaderValue::from_str(&format!("bytes */{length}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    Whole,
    /// First and last byte, both inside.
    Part(usize, usize),
    Outside,
}

impl Range {
    /// One range of bytes; several, or nonsense, mean the whole file.
    fn parse(text: &str, length: usize) -> Self {
        let Some((from, to)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
            return Self::Whole;
        };
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let clip = |n: u64| n.to_usize().unwrap_or(usize::MAX);
        match (from.trim().is_empty(), number(from), to.trim().is_empty(), number(to)) {
            (true, _, false, Some(0)) => Self::Outside,
            (true, _, false, Some(_)) if length == 0 => Self::Outside,
            (true, _, false, Some(last)) => Self::Part(length.saturating_sub(clip(last)), length - 1),
            (false, Some(from), open, to) if open || to.is_some() => {
                let to = to.map_or(usize::MAX, clip);
                match clip(from) {
                    from if to < from => Self::Whole,
                    from if from >= length => Self::Outside,
                    from => Self::Part(from, to.min(length - 1)),
                }
            }
            _ => Self::Whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_has_them() {
        assert_eq!(Range::parse("bytes=0-9", 100), Range::Part(0, 9));
        assert_eq!(Range::parse("bytes=90-", 100), Range::Part(90, 99));
        assert_eq!(Range::parse("bytes=90-1000", 100), Range::Part(90, 99));
        assert_eq!(Range::parse("bytes=-10", 100), Range::Part(90, 99));
        assert_eq!(Range::parse("bytes=-1000", 100), Range::Part(0, 99));
        assert_eq!(Range::parse("bytes=100-", 100), Range::Outside);
        assert_eq!(Range::parse("bytes=-0", 100), Range::Outside);
        for whole in
            ["bytes=9-1", "bytes=-", "bytes=a-b", "bytes=0-1,4-5", "lines=1-2", "bytes=99999999999999999999-"]
        {
            assert_eq!(Range::parse(whole, 100), Range::Whole, "{whole}");
        }
    }

    #[test]
    fn file_names_have_one_spelling() {
        assert_eq!(index_of("0.mp4", Kind::Video), Some(0));
        for bad in ["00.mp4", "0.png", "+1.mp4", "x.mp4", "0", "70000.mp4"] {
            assert_eq!(index_of(bad, Kind::Video), None, "{bad}");
        }
    }
}
