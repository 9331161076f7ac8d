//! Result URLs: fetched by a client that has never seen the API key.

use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, redirect};
use url::Url;

use crate::api::{ServiceOptions, answer, client};

/// Redirects that a result URL may take.
const REDIRECTS_MAX: usize = 5;
/// Longest silence in the middle of a download.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A result URL could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// Not an `http` or `https` address.
    #[error("\"{0}\" is not an http(s) address")]
    BadUrl(String),
    /// The host says no: an expired link, for one. The task has fresh links.
    #[error("the result host answered {0}")]
    Status(u16),
    /// The connection failed.
    #[error("{0}")]
    Broken(String),
}

impl From<reqwest::Error> for DownloadError {
    fn from(error: reqwest::Error) -> DownloadError {
        DownloadError::Broken(answer::describe(&error))
    }
}

/// Fetches result URLs.
#[derive(Debug, Clone)]
pub struct Downloads {
    http: Client,
}

/// A download that has begun.
#[derive(Debug)]
pub struct Opened {
    /// Byte of the file at which this begins: what was asked for, or 0 when the host starts over.
    pub start: u64,
    /// Length of the whole file, where the host tells it.
    pub total: Option<u64>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// Validator for going on after a break.
    pub etag: Option<String>,
    response: Response,
}

impl Opened {
    /// The next piece; nothing at the end.
    pub async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, DownloadError> {
        Ok(self.response.chunk().await?)
    }
}

impl Downloads {
    pub(super) fn new(options: &ServiceOptions) -> reqwest::Result<Downloads> {
        // No overall limit: a large file may take long. Silence has one.
        let http = client(options)
            .redirect(redirect::Policy::limited(REDIRECTS_MAX))
            // A link is a secret of its host: whoever knows it has the file.
            .referer(false)
            .timeout(Duration::from_secs(24 * 3600))
            .read_timeout(STALL_TIMEOUT)
            .build()?;
        Ok(Downloads { http })
    }

    /// Begins fetching `url` at byte `start`. With a `start`, `etag` must be what the earlier piece
    /// came with, so that two versions of a file are never put together.
    pub async fn open(&self, url: &str, start: u64, etag: Option<&str>) -> Result<Opened, DownloadError> {
        let bad = || DownloadError::BadUrl(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| bad())?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(bad());
        }
        let mut request = self.http.get(parsed);
        if let (1.., Some(etag)) = (start, etag) {
            request = request.header(RANGE, format!("bytes={start}-")).header(IF_RANGE, etag);
        }
        let response = request.send().await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let length = header(CONTENT_LENGTH.as_str()).and_then(|text| text.parse::<u64>().ok());
        let (start, total) = match response.status() {
            StatusCode::OK => (0, length),
            StatusCode::PARTIAL_CONTENT => {
                let range = header(CONTENT_RANGE.as_str()).and_then(parse_content_range);
                let (start, total) =
                    range.ok_or_else(|| DownloadError::Broken("a part without its place".to_owned()))?;
                (start, total)
            }
            other => return Err(DownloadError::Status(other.as_u16())),
        };
        let content_type = header(CONTENT_TYPE.as_str()).map(str::to_owned);
        let etag = header(ETAG.as_str()).filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        Ok(Opened { start, total, content_type, etag, response })
    }
}

/// `bytes 100-199/200` begins at 100 of 200; the total may be `*`.
fn parse_content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_range_is_read() {
        assert_eq!(parse_content_range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(parse_content_range("bytes 100-199/*"), Some((100, None)));
        assert_eq!(parse_content_range("bytes */200"), None);
    }
}
