//! Outputs as a browser shows and plays them. Nothing is served but what is recorded as the output of a job, and of it
//! only what is on disk as it was recorded.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::time::UNIX_EPOCH;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::io::AsyncReadExt;

use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job::OutputFile;
use crate::domain::shell_word::job_argument;
use crate::engine::{Target, blocking};
use crate::output::open_output::open_output;
use crate::server::api_error::{ApiError, Path};
use crate::server::app_state::{AppState, Shared};
use crate::server::handlers::HandlerError;
use crate::server::page_forms::{Who, batch_name, refused, viewer};
use crate::server::protocol::Refusal;

/// Digits of the identity of a job.
const ID_DIGITS: usize = 32;
/// Read at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// What an output may do that is opened as a page of its own: nothing but be seen and heard.
const MEDIA_POLICY: &str =
    "default-src 'none'; img-src 'self'; media-src 'self'; sandbox; frame-ancestors 'none'";
/// The type of what a browser is not to show.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Output `number` (from 1) of a job of a batch.
pub(super) async fn output(
    State(app): Shared,
    who: Who,
    Path((batch, job, number)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Response {
    match serve(&app, &batch, &job, &number, &headers).await {
        Ok(response) => response,
        Err(error) => refused(&viewer(&app, who), error),
    }
}

pub(super) fn not_there(message: impl Into<String>) -> ApiError {
    ApiError(StatusCode::NOT_FOUND, Refusal::new(Exit::Usage, message))
}

async fn serve(
    app: &AppState,
    batch: &str,
    job: &str,
    number: &str,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let batch = batch_name(batch)?;
    let output = recorded_output(app, &batch, job, number).await?;
    let again = format!("callsheet download {} fetches it again", job_argument(&batch, job));
    let (output_dir, recorded) = (app.output_dir(), output.clone());
    let opened = blocking(move || {
        let file = open_output(&output_dir, &batch, &recorded)?;
        let tag = entity_tag(&recorded, &file)?;
        Ok::<_, io::Error>((file, tag))
    })
    .await;
    let (file, tag) = opened.map_err(|error| {
        tracing::debug!(path = output.path, %error, "an output cannot be shown");
        let message = format!("{} is not on disk as it was recorded", output.path);
        let refusal = Refusal::new(Exit::Usage, message);
        ApiError(StatusCode::NOT_FOUND, refusal.hint(again))
    })?;
    respond(file, &output, &tag, headers).await
}

/// The output as the state has it.
async fn recorded_output(
    app: &AppState,
    batch: &BatchName,
    job: &str,
    number: &str,
) -> Result<OutputFile, ApiError> {
    if job.len() != ID_DIGITS || !job.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(not_there("no job has this identity"));
    }
    let found = app.engine.find(&format!("{batch}/{job}")).await.map_err(HandlerError::from)?;
    let Target::Job(named) = found else { return Err(not_there("it is not a job")) };
    let outputs = named.record.job.outputs();
    let at = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let output = at.and_then(|at| outputs.get(at));
    output.cloned().ok_or_else(|| not_there("the job has no such output"))
}

/// Tells the present bytes of an output from others.
pub(super) fn entity_tag(output: &OutputFile, file: &File) -> io::Result<String> {
    let changed = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let sum = output.sha256.get(..16).unwrap_or_default();
    Ok(format!("\"{sum}-{:x}\"", changed.as_nanos()))
}

/// The type that a browser is told; nothing for what it could run or show as a page.
pub(super) fn shown_type(recorded: &str) -> Option<&str> {
    let (family, name) = recorded.split_once('/')?;
    let is_media = matches!(family, "image" | "audio" | "video");
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte));
    (is_media && is_plain && !name.contains("xml")).then_some(recorded)
}

/// Bytes of a file, from the first up to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Some(u64, u64),
    /// It has none of them.
    None,
}

/// The part that a `Range` asks for (RFC 9110, 14.1.2). Several parts, other units and what is malformed mean all of it.
fn part(range: Option<&str>, bytes: u64) -> Part {
    let asked = range.and_then(|range| range.strip_prefix("bytes=")?.trim().split_once('-'));
    let Some((first, last)) = asked else { return Part::All };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let found: Option<(u64, u64)> = match (number(first), number(last)) {
        (None, Some(length)) if first.is_empty() => {
            if length == 0 {
                return Part::None;
            }
            bytes.checked_sub(1).map(|end| (bytes.saturating_sub(length), end))
        }
        (Some(first), None) if last.is_empty() => bytes.checked_sub(1).map(|end| (first, end)),
        (Some(first), Some(last)) if first <= last => bytes.checked_sub(1).map(|end| (first, last.min(end))),
        _ => return Part::All,
    };
    match found {
        Some((first, last)) if first <= last => Part::Some(first, last),
        _ => Part::None,
    }
}

/// A file as a browser asks for it: whole, or a part of it.
///
/// # Errors
/// When it cannot be read.
pub(super) async fn respond(
    mut file: File,
    output: &OutputFile,
    tag: &str,
    asked: &HeaderMap,
) -> Result<Response, ApiError> {
    let text = |name: HeaderName| asked.get(name).and_then(|value| value.to_str().ok());
    let is_same = text(header::IF_NONE_MATCH)
        .is_some_and(|tags| tags.split(',').any(|known| known.trim().trim_start_matches("W/") == tag));
    let range = text(header::RANGE).filter(|_| text(header::IF_RANGE).is_none_or(|known| known == tag));
    let (status, first, bytes) = match part(range, output.bytes) {
        _ if is_same => (StatusCode::NOT_MODIFIED, 0, 0),
        Part::All => (StatusCode::OK, 0, output.bytes),
        Part::Some(first, last) => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        Part::None => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    set(header::ETAG, tag.to_owned());
    set(header::CACHE_CONTROL, "private, no-cache".to_owned());
    set(header::ACCEPT_RANGES, "bytes".to_owned());
    set(header::CONTENT_SECURITY_POLICY, MEDIA_POLICY.to_owned());
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin".to_owned());
    match shown_type(&output.content_type) {
        Some(shown) => set(header::CONTENT_TYPE, shown.to_owned()),
        None => {
            set(header::CONTENT_TYPE, UNKNOWN_TYPE.to_owned());
            set(header::CONTENT_DISPOSITION, "attachment".to_owned());
        }
    }
    match status {
        StatusCode::PARTIAL_CONTENT => {
            let last = first + bytes - 1;
            set(header::CONTENT_RANGE, format!("bytes {first}-{last}/{}", output.bytes));
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            set(header::CONTENT_RANGE, format!("bytes */{}", output.bytes));
        }
        _ => {}
    }
    if bytes == 0 {
        return Ok((status, headers).into_response());
    }
    set(header::CONTENT_LENGTH, bytes.to_string());
    let unreadable = |error: io::Error| {
        tracing::debug!(path = output.path, %error, "an output cannot be read");
        ApiError(StatusCode::INTERNAL_SERVER_ERROR, Refusal::new(Exit::Disk, "the output cannot be read"))
    };
    let file = blocking(move || file.seek(SeekFrom::Start(first)).map(|_| file)).await.map_err(unreadable)?;
    let file = tokio::fs::File::from_std(file).take(bytes);
    let chunks = futures_util::stream::try_unfold(file, |mut file| async {
        let mut chunk = vec![0; CHUNK_BYTES];
        let read = file.read(&mut chunk).await?;
        chunk.truncate(read);
        Ok::<_, io::Error>((read > 0).then(|| (Bytes::from(chunk), file)))
    });
    Ok((status, headers, Body::from_stream(chunks)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_it_says_or_everything() {
        for (range, expected) in [
            ("bytes=0-", Part::Some(0, 9)),
            ("bytes=2-4", Part::Some(2, 4)),
            ("bytes=2-400", Part::Some(2, 9)),
            ("bytes=-3", Part::Some(7, 9)),
            ("bytes=-30", Part::Some(0, 9)),
            ("bytes=9-9", Part::Some(9, 9)),
            ("bytes=10-", Part::None),
            ("bytes=-0", Part::None),
            ("bytes=4-2", Part::All),
            ("bytes=0-1,4-5", Part::All),
            ("bytes=a-b", Part::All),
            ("bytes=+1-2", Part::All),
            ("bytes=-", Part::All),
            ("rows=0-1", Part::All),
            ("bytes=99999999999999999999-", Part::All),
        ] {
            assert_eq!(part(Some(range), 10), expected, "{range}");
        }
        assert_eq!((part(None, 10), part(Some("bytes=0-"), 0)), (Part::All, Part::None));
    }

    #[test]
    fn only_media_is_shown() {
        for shown in ["image/png", "video/mp4", "audio/x-wav", "image/vnd.microsoft.icon"] {
            assert_eq!(shown_type(shown), Some(shown));
        }
        for other in
            ["text/html", "image/svg+xml", "application/pdf", "image/png\r\nx: y", "image", "video/a;b"]
        {
            assert_eq!(shown_type(other), None, "{other}");
        }
    }
}
