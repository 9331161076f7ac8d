//! Result URLs: fetched by a client that has never seen the API key and goes no further than [`UrlPolicy`] says.
//!
//! A link is checked when it is opened and at every redirect. Its host's addresses are checked where the client
//! resolves them, so that the address that was checked is the one that is connected to.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderName, IF_RANGE, LAST_MODIFIED, RANGE,
    RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode, redirect};
use url::Url;

use crate::api::http_client::{ServiceOptions, client};
use crate::api::response;
use crate::api::retry_after::asked_wait;
use crate::domain::time::Millis;
use crate::domain::url_policy::{Refusal, UrlPolicy};

/// Redirects that a result URL may take.
const REDIRECTS_MAX: usize = 5;
/// Longest text that is no address in a message, in characters.
const URL_SHOWN_MAX_CHARS: usize = 200;
/// Prefix of a weak `ETag`.
const WEAK: &str = "W/";
/// Longest wait for the next bytes of a download.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A result URL could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The link is not an HTTP URL.
    #[error("\"{0}\" is not an http(s) address")]
    BadUrl(String),
    /// [`UrlPolicy`] refuses the link or a redirect of it.
    #[error("{0}")]
    Refused(Refusal),
    /// The host refuses: the link has expired, for example. The task has fresh links.
    #[error("the result host answered {0}")]
    Status(u16),
    /// The host cannot answer now (408, 429, 5xx), or cannot be reached (no status): that passes.
    #[error("{reason}")]
    Unavailable {
        /// What it answered, where it did.
        status: Option<u16>,
        /// In words.
        reason: String,
        /// `Retry-After`: how long it asks to wait.
        wait: Option<Millis>,
    },
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
        DownloadError::Broken(response::describe(&error))
    }
}

/// Fetches result URLs.
#[derive(Debug, Clone)]
pub struct Downloads {
    http: Client,
    reach: Arc<UrlPolicy>,
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
    /// Which version of the file it is, for going on after a break.
    pub version: Version,
    response: Response,
}

/// Which version of a file a piece of it belongs to, as far as its host tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    etag: Option<String>,
    modified: Option<String>,
}

impl Version {
    fn of(response: &Response) -> Version {
        let header = |name| header(response, name).map(str::to_owned);
        Version { etag: header(ETAG), modified: header(LAST_MODIFIED) }
    }

    /// What the rest may be asked for with. Only a strong tag stands for the very bytes.
    fn if_range(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with(WEAK))
    }

    /// Whether the tags of both differ, or where one has none, the times of their last change.
    pub fn differs_from(&self, other: &Version) -> bool {
        match (self.bare_etag(), other.bare_etag()) {
            (Some(one), Some(other)) => one != other,
            _ => self.modified.is_some() && other.modified.is_some() && self.modified != other.modified,
        }
    }

    /// Whether a piece of this version may be put to an earlier piece of `known`: what told the version of that one must
    /// be said again, and be the same. Of a host that told nothing at first, nothing can be compared.
    fn continues(&self, known: &Version) -> bool {
        match known.bare_etag() {
            Some(etag) => self.bare_etag() == Some(etag),
            None => known.modified.is_none() || self.modified == known.modified,
        }
    }

    /// A tag that a proxy has weakened on the way is still the same.
    fn bare_etag(&self) -> Option<&str> {
        self.etag.as_deref().map(|etag| etag.trim_start_matches(WEAK))
    }
}

impl Opened {
    /// The next chunk; none at the end.
    pub async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, DownloadError> {
        Ok(self.response.chunk().await?)
    }
}

impl Downloads {
    pub(super) fn new(options: &ServiceOptions, reach: UrlPolicy) -> reqwest::Result<Downloads> {
        Downloads::looking_up(options, reach, by_the_system)
    }

    fn looking_up(options: &ServiceOptions, reach: UrlPolicy, look_up: LookUp) -> reqwest::Result<Downloads> {
        let reach = Arc::new(reach);
        // No overall limit: a large file may take long. Silence has one.
        let http = client(options)
            .redirect(redirects(reach.clone()))
            .dns_resolver(Arc::new(Resolver { reach: reach.clone(), proxies: proxies(), look_up }))
            // A link is a secret of its host: it is all that is needed to get the file.
            .referer(false)
            .timeout(Duration::from_secs(24 * 3600))
            .read_timeout(STALL_TIMEOUT)
            .build()?;
        Ok(Downloads { http, reach })
    }

    /// Begins fetching `url` at byte `start`. With a `start`, `known` must be the version of the earlier piece,
    /// so that two versions of a file are never put together: where the host has another one by now, or does not tell
    /// which one it sends, this begins at 0.
    pub async fn open(&self, url: &str, start: u64, known: &Version) -> Result<Opened, DownloadError> {
        let opened = self.ask(url, start, known).await?;
        if opened.start > 0 && !opened.version.continues(known) {
            // It does not heed what it was asked under, or nobody can tell whether it does.
            drop(opened);
            return self.ask(url, 0, &Version::default()).await;
        }
        Ok(opened)
    }

    async fn ask(&self, url: &str, start: u64, known: &Version) -> Result<Opened, DownloadError> {
        let bad = || DownloadError::BadUrl(url.chars().take(URL_SHOWN_MAX_CHARS).collect());
        let parsed = Url::parse(url).map_err(|_| bad())?;
        self.reach.link(&parsed).map_err(DownloadError::Refused)?;
        let mut request = self.http.get(parsed);
        if let (1.., Some(etag)) = (start, known.if_range()) {
            request = request.header(RANGE, format!("bytes={start}-")).header(IF_RANGE, etag);
        }
        let response = request.send().await.map_err(not_answered)?;
        let length = header(&response, CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
        let (start, total) = match response.status() {
            StatusCode::OK => (0, length),
            StatusCode::PARTIAL_CONTENT => {
                let range = header(&response, CONTENT_RANGE).and_then(parse_content_range);
                let (start, total) = range.ok_or_else(|| {
                    DownloadError::Broken("a partial response without a valid Content-Range".to_owned())
                })?;
                (start, total)
            }
            other => return Err(refused(&response, other)),
        };
        let content_type = header(&response, CONTENT_TYPE).map(str::to_owned);
        let version = Version::of(&response);
        Ok(Opened { start, total, content_type, version, response })
    }
}

/// Why a request had no answer.
fn not_answered(error: reqwest::Error) -> DownloadError {
    let is_away = error.is_connect() || error.is_timeout();
    match DownloadError::from(error) {
        DownloadError::Broken(reason) if is_away => {
            DownloadError::Unavailable { status: None, reason, wait: None }
        }
        other => other,
    }
}

/// What an answer without a file means: to ask later, or not in this way.
fn refused(response: &Response, status: StatusCode) -> DownloadError {
    let refused = DownloadError::Status(status.as_u16());
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    if !passes && !status.is_server_error() {
        return refused;
    }
    DownloadError::Unavailable {
        status: Some(status.as_u16()),
        reason: refused.to_string(),
        wait: asked_wait(header(response, RETRY_AFTER), header(response, DATE)),
    }
}

/// A header of a response, where it is text.
fn header(response: &Response, name: HeaderName) -> Option<&str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Follows a few redirects, each checked as a link is.
fn redirects(reach: Arc<UrlPolicy>) -> redirect::Policy {
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

/// Finds the addresses of a name. It may take its time.
type LookUp = fn(&str) -> io::Result<Vec<SocketAddr>>;

fn by_the_system(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((name, 0).to_socket_addrs()?.collect())
}

/// Resolves hosts, without addresses that [`UrlPolicy`] refuses.
struct Resolver {
    reach: Arc<UrlPolicy>,
    proxies: Vec<String>,
    look_up: LookUp,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, look_up) = (self.reach.clone(), self.look_up);
        let is_proxy = self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        Box::pin(async move {
            let mut refused = None;
            let mut is_allowed = |address: &SocketAddr| match reach.resolved(name.as_str(), address.ip()) {
                Err(refusal) if !is_proxy => {
                    refused = Some(refusal);
                    false
                }
                _ => true,
            };
            let asked = name.as_str().to_owned();
            let found = tokio::task::spawn_blocking(move || look_up(&asked)).await??;
            let left: Vec<SocketAddr> = found.into_iter().filter(|address| is_allowed(address)).collect();
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

    /// Names of which some lead inside.
    fn names(name: &str) -> io::Result<Vec<SocketAddr>> {
        let addresses: &[[u8; 4]] = match name {
            "inside.example" => &[[127, 0, 0, 1]],
            "both.example" => &[[10, 0, 0, 1], [93, 184, 216, 34], [169, 254, 169, 254]],
            _ => return Err(io::Error::other("no such name")),
        };
        Ok(addresses.iter().map(|ip| SocketAddr::from((*ip, 0))).collect())
    }

    fn reach(allowed: &[&str]) -> UrlPolicy {
        let base_url = Url::parse("http://service.example").unwrap();
        UrlPolicy::new(&base_url, allowed.iter().map(|host| host.parse().unwrap()).collect())
    }

    fn downloads(allowed: &[&str]) -> Downloads {
        let options = ServiceOptions {
            base_url: Url::parse("http://127.0.0.1").unwrap(),
            api_key: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            render_timeout: Duration::from_secs(10),
        };
        Downloads::looking_up(&options, reach(allowed), names).unwrap()
    }

    /// A host on this machine that has a file.
    fn inside() -> std::net::TcpListener {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap()
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_not_followed() {
        let host = inside();
        let link = format!("http://inside.example:{}/file", host.local_addr().unwrap().port());
        let error = downloads(&[]).open(&link, 0, &Version::default()).await.unwrap_err();
        assert!(matches!(error, DownloadError::Refused(_)), "{error}");
        let expected = "the link leads to inside.example (127.0.0.1), a loopback address, and is not followed; \
                        output.allow_hosts can list \"inside.example\"";
        assert_eq!(error.to_string(), expected);
        host.set_nonblocking(true).unwrap();
        assert_eq!(host.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody came");
    }

    #[tokio::test]
    async fn what_was_judged_is_what_is_connected_to() {
        let host = inside();
        let link = format!("http://inside.example:{}/file", host.local_addr().unwrap().port());
        let answers = std::thread::spawn(move || {
            let (mut line, _) = host.accept().unwrap();
            let asked = io::Read::read(&mut line, &mut [0; 4096]).unwrap();
            io::Write::write_all(&mut line, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfile").unwrap();
            asked
        });
        let mut opened = downloads(&["inside.example"]).open(&link, 0, &Version::default()).await.unwrap();
        assert_eq!(opened.chunk().await.unwrap().unwrap().as_ref(), b"file");
        assert!(answers.join().unwrap() > 0);
    }

    #[tokio::test]
    async fn of_the_addresses_of_a_name_those_inside_are_left_out_but_for_a_proxy() {
        let left = async |name: &str, proxies: &[&str]| {
            let proxies = proxies.iter().map(|host| (*host).to_owned()).collect();
            let resolver = Resolver { reach: Arc::new(reach(&[])), proxies, look_up: names };
            let left = resolver.resolve(name.parse().unwrap()).await;
            left.map(|left| left.map(|address| address.ip().to_string()).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(left("both.example", &[]).await.unwrap(), ["93.184.216.34"]);
        assert!(left("inside.example", &["other.example"]).await.unwrap_err().contains("a loopback address"));
        assert_eq!(left("inside.example", &["Inside.example"]).await.unwrap(), ["127.0.0.1"]);
        assert_eq!(left("nowhere.example", &[]).await.unwrap_err(), "no such name");
    }

    #[test]
    fn versions_are_told_apart_by_tag_or_else_by_date() {
        let version = |etag: &str, modified: &str| {
            let told = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            Version { etag: told(etag), modified: told(modified) }
        };
        for (one, other, differ) in [
            (("\"a\"", ""), ("\"a\"", ""), false),
            (("\"a\"", ""), ("\"b\"", ""), true),
            (("\"a\"", "Mon"), ("\"a\"", "Tue"), false),
            (("\"a\"", ""), ("W/\"a\"", ""), false),
            (("\"a\"", ""), ("W/\"b\"", ""), true),
            (("\"a\"", "Mon"), ("", "Tue"), true),
            (("\"a\"", "Mon"), ("", "Mon"), false),
            (("\"a\"", "Mon"), ("", ""), false),
            (("", ""), ("\"a\"", "Mon"), false),
        ] {
            let (one, other) = (version(one.0, one.1), version(other.0, other.1));
            assert_eq!(other.differs_from(&one), differ, "{one:?} {other:?}");
            assert!(!(differ && other.continues(&one)), "{one:?} {other:?}");
        }
        for (first, rest, continues) in [
            (("\"a\"", "Mon"), ("\"a\"", ""), true),
            (("\"a\"", ""), ("W/\"a\"", ""), true),
            (("\"a\"", "Mon"), ("", "Mon"), false),
            (("\"a\"", ""), ("", ""), false),
            (("", "Mon"), ("", "Mon"), true),
            (("", "Mon"), ("\"a\"", ""), false),
            (("", "Mon"), ("", ""), false),
            (("", ""), ("\"a\"", "Mon"), true),
            (("", ""), ("", ""), true),
        ] {
            let (first, rest) = (version(first.0, first.1), version(rest.0, rest.1));
            assert_eq!(rest.continues(&first), continues, "{first:?} {rest:?}");
        }
        assert_eq!(version("\"a\"", "").if_range(), Some("\"a\""));
        assert_eq!(version("W/\"a\"", "Mon").if_range(), None);
    }

    #[test]
    fn content_range_is_read() {
        assert_eq!(parse_content_range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(parse_content_range("bytes 100-199/*"), Some((100, None)));
        assert_eq!(parse_content_range("bytes */200"), None);
    }
}
