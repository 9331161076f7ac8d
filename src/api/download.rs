//! Result URLs: fetched by a client that has never seen the API key and goes no further than [`Reach`] says.
//!
//! A link is judged when it is opened and at every redirect. Its host's addresses are judged where the client
//! resolves them, so that the address that was judged is the one that is connected to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, redirect};
use url::Url;

use crate::api::{ServiceOptions, answer, client};
use crate::domain::reach::{Reach, Refusal};

/// Redirects that a result URL may take.
const REDIRECTS_MAX: usize = 5;
/// Longest text that is no address in a message, in characters.
const URL_SHOWN_MAX_CHARS: usize = 200;
/// Longest silence in the middle of a download.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A result URL could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// No address at all.
    #[error("\"{0}\" is not an http(s) address")]
    BadUrl(String),
    /// It leads where results may not come from, itself or by way of a redirect.
    #[error("{0}")]
    Refused(Refusal),
    /// The host says no: an expired link, for one. The task has fresh links.
    #[error("the result host answered {0}")]
    Status(u16),
    /// The connection failed.
    #[error("{0}")]
    Broken(String),
}

impl From<reqwest::Error> for DownloadError {
    fn from(error: reqwest::Error) -> DownloadError {
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            if let Some(refusal) = cause.downcast_ref::<Refusal>() {
                return DownloadError::Refused(refusal.clone());
            }
            source = cause.source();
        }
        DownloadError::Broken(answer::describe(&error))
    }
}

/// Fetches result URLs.
#[derive(Debug, Clone)]
pub struct Downloads {
    http: Client,
    reach: Arc<Reach>,
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
    pub(super) fn new(options: &ServiceOptions, reach: Reach) -> reqwest::Result<Downloads> {
        let reach = Arc::new(reach);
        // No overall limit: a large file may take long. Silence has one.
        let http = client(options)
            .redirect(redirects(reach.clone()))
            .dns_resolver(Arc::new(Resolver { reach: reach.clone(), proxies: proxies() }))
            // A link is a secret of its host: whoever knows it has the file.
            .referer(false)
            .timeout(Duration::from_secs(24 * 3600))
            .read_timeout(STALL_TIMEOUT)
            .build()?;
        Ok(Downloads { http, reach })
    }

    /// Begins fetching `url` at byte `start`. With a `start`, `etag` must be what the earlier piece
    /// came with, so that two versions of a file are never put together.
    pub async fn open(&self, url: &str, start: u64, etag: Option<&str>) -> Result<Opened, DownloadError> {
        let bad = || DownloadError::BadUrl(url.chars().take(URL_SHOWN_MAX_CHARS).collect());
        let parsed = Url::parse(url).map_err(|_| bad())?;
        self.reach.link(&parsed).map_err(DownloadError::Refused)?;
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

/// Follows a few redirects, each to where a link may lead.
fn redirects(reach: Arc<Reach>) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error("too many redirects");
        }
        match reach.link(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(refusal) => attempt.error(refusal),
        }
    })
}

/// Finds the addresses of hosts, and keeps those back that results may not come from.
struct Resolver {
    reach: Arc<Reach>,
    proxies: Vec<String>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach.clone();
        let is_proxy = self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        Box::pin(async move {
            let mut refused = None;
            let mut judge = |address: &SocketAddr| match reach.resolved(name.as_str(), address.ip()) {
                Err(refusal) if !is_proxy => {
                    refused = Some(refusal);
                    false
                }
                _ => true,
            };
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let left: Vec<SocketAddr> = found.filter(|address| judge(address)).collect();
            match refused {
                Some(refusal) if left.is_empty() => Err(refusal.into()),
                _ => Ok(Box::new(left.into_iter()) as Addrs),
            }
        })
    }
}

/// Hosts of the proxies that the environment names: they are the operator's, on whatever address, and
/// resolve the names of links themselves.
fn proxies() -> Vec<String> {
    let matcher = Matcher::from_system();
    let hosts = ["http://link.example/", "https://link.example/"].into_iter().filter_map(|link| {
        let proxy = matcher.intercept(&link.parse().ok()?)?;
        proxy.uri().host().map(str::to_owned)
    });
    hosts.collect()
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
