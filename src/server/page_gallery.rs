//! The gallery of a batch, served to a browser: the page and the script of this program, the data that the batch's folder
//! has, and the pictures, videos and sounds in it.
//!
//! Nothing that lies in an output folder is run: the page, its style and its script come from the program, and data is read
//! and written again as data.

use std::fs::File;
use std::io::{self, Read};

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse, Redirect, Response};

use crate::domain::ids::BatchName;
use crate::domain::job::OutputFile;
use crate::engine::blocking;
use crate::output::open_output::open_in_batch;
use crate::pages::document::in_address;
use crate::pages::gallery_page::gallery_page;
use crate::pages::{ASSETS, GALLERY_FOLDER, INDEX, script_data};
use crate::server::api_error::{ApiError, Path};
use crate::server::app_state::{AppState, Shared};
use crate::server::handlers;
use crate::server::page_forms::{Who, batch_name, refused, viewer};
use crate::server::page_output_files::{entity_tag, not_there, respond, shown_type};

/// Largest file of data that is read, in bytes.
const DATA_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The page lies in a folder of addresses of its own: what it loads is relative to it.
pub(super) async fn enter(Path(name): Path<String>) -> Redirect {
    Redirect::to(&format!("/batches/{}/gallery/{INDEX}", in_address(&name)))
}

/// The list of batches that a gallery leads back to.
pub(super) async fn list() -> Redirect {
    Redirect::to("/")
}

pub(super) async fn file(
    State(app): Shared,
    who: Who,
    Path((batch, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    match serve(&app, &batch, &path, &headers).await {
        Ok(response) => response,
        Err(error) => refused(&viewer(&app, who), error),
    }
}

async fn serve(app: &AppState, batch: &str, path: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let name = batch_name(batch)?;
    let own = path.strip_prefix(GALLERY_FOLDER).and_then(|rest| rest.strip_prefix('/'));
    if path == INDEX {
        handlers::find_batch(&app.engine, &name).await?;
        return Ok(Html(gallery_page(&name)).into_response());
    }
    if let Some((_, content)) = ASSETS.iter().find(|(asset, _)| own == Some(*asset)) {
        let content_type = if path.ends_with(".css") { "text/css" } else { "text/javascript" };
        let headers = [
            (header::CONTENT_TYPE, format!("{content_type}; charset=utf-8")),
            // A new version of the program has another one.
            (header::CACHE_CONTROL, "no-cache".to_owned()),
        ];
        return Ok((headers, *content).into_response());
    }
    if let Some((function, number)) = own.and_then(data_call) {
        return data(app, name, path.to_owned(), function, number).await;
    }
    let Some(content_type) = mime_guess::from_path(path).first_raw().and_then(shown_type) else {
        return Err(not_there("a gallery has no such file"));
    };
    let (output_dir, path) = (app.output_dir(), path.to_owned());
    let opened = blocking(move || {
        let file = open_in_batch(&output_dir, &name, &path)?;
        let found = OutputFile {
            bytes: file.metadata()?.len(),
            path,
            sha256: String::new(),
            content_type: content_type.to_owned(),
            edited: None,
            object: None,
        };
        let tag = entity_tag(&found, &file)?;
        Ok::<_, io::Error>((file, found, tag))
    })
    .await;
    let (file, found, tag) = opened.map_err(|_| not_there("the file is not on disk"))?;
    respond(file, &found, &tag, headers).await
}

/// What a file of data calls, and with which number; nothing where it is none.
fn data_call(path: &str) -> Option<(&'static str, usize)> {
    if path == "index.js" {
        return Some(("callsheetBatch", 0));
    }
    let name = path.strip_prefix("data/")?.strip_suffix(".js")?;
    let (function, digits) = match name.strip_suffix(".media") {
        Some(digits) => ("callsheetMedia", digits),
        None => ("callsheetPage", name),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((function, digits.parse().ok().filter(|_| is_number)?))
}

async fn data(
    app: &AppState,
    batch: BatchName,
    path: String,
    function: &'static str,
    number: usize,
) -> Result<Response, ApiError> {
    let output_dir = app.output_dir();
    let read = blocking(move || -> io::Result<Option<String>> {
        let file: File = open_in_batch(&output_dir, &batch, &path)?;
        let mut text = String::new();
        file.take(DATA_BYTES_MAX).read_to_string(&mut text)?;
        // The first line of an index says for whom it is.
        let call = match text.strip_prefix("//").and_then(|rest| rest.split_once('\n')) {
            Some((_, call)) => call,
            None => &text,
        };
        Ok(script_data::json_of(call).map(|json| script_data::call_with(function, number, &json)))
    });
    let script = read.await.ok().flatten().ok_or_else(|| not_there("the data of this gallery is gone"))?;
    let headers =
        [(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, script).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_called_by_its_name_alone() {
        for (path, expected) in [
            ("index.js", Some(("callsheetBatch", 0))),
            ("data/0003.js", Some(("callsheetPage", 3))),
            ("data/0003.media.js", Some(("callsheetMedia", 3))),
            ("data/.js", None),
            ("data/x.js", None),
            ("data/+1.js", None),
            ("data/../0003.js", None),
            ("data/99999999999999999999999.js", None),
            ("script.js", None),
            ("thumbs/a/a.jpg", None),
        ] {
            assert_eq!(data_call(path), expected, "{path}");
        }
    }
}
