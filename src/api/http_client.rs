//! HTTP clients with our settings, and responses read to their end.

use std::time::Duration;

use reqwest::header::{DATE, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, redirect, retry};
use secrecy::SecretString;
use url::Url;

use super::http_date;
use crate::clock::Clock;
use crate::domain::url_policy::is_loopback;

/// Longest answer that is read, in bytes. A task with thousands of result URLs stays far below.
const ANSWER_MAX_BYTES: usize = 8 * 1024 * 1024;
/// How long a connection stays open that nobody uses. Shorter than servers keep one: of a request that is sent while its
/// server closes the connection nobody knows whether it came. Where connections are limited, new ones wait for these.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// Name and version sent with every request.
const USER_AGENT: &str = concat!("callsheet/", env!("CARGO_PKG_VERSION"));

/// Where the service is and how long to wait for it.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// `{base_url}` of the document.
    pub base_url: Url,
    /// Sent as `Authorization: Bearer`; without one only the public endpoints answer.
    pub api_key: Option<SecretString>,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Timeout of a request with its response.
    pub request_timeout: Duration,
    /// Timeout of a creating call that may render before it responds: all but videos.
    pub render_timeout: Duration,
}

impl ServiceOptions {
    /// Whether the service is on this very machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.base_url)
    }
}

/// The client cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The key cannot be a header's value.
    #[error("the API key holds characters that cannot be sent in a header")]
    Key,
    /// The HTTP client refused: without certificates, for example.
    #[error("failed to set up HTTP: {0}")]
    Http(#[from] reqwest::Error),
}

/// Makes `ring` the process's TLS provider, as every [`reqwest::Client`] needs one. Where there is one, it stays.
pub fn install_tls_provider() {
    let _: Result<(), _> = rustls::crypto::ring::default_provider().install_default();
}

/// The settings that every client of this module has in common.
pub(super) fn client(options: &ServiceOptions) -> reqwest::ClientBuilder {
    install_tls_provider();
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .pool_idle_timeout(IDLE_MAX)
        .connect_timeout(options.connect_timeout)
        .timeout(options.request_timeout);
    if options.is_loopback() { builder.no_proxy() } else { builder }
}

/// The settings of a client that speaks to `base_url` alone. On this machine and without TLS it needs none of the system's
/// certificates, often more than a hundred files.
pub(super) fn client_of_base_url(options: &ServiceOptions) -> reqwest::ClientBuilder {
    let needs_certificates = !options.is_loopback() || options.base_url.scheme() != "http";
    if needs_certificates { client(options) } else { client(options).tls_certs_only([]) }
}

/// A response with its whole body.
#[derive(Debug, Clone)]
pub struct RawResponse {
    pub status: u16,
    /// `Retry-After`, where there is one.
    pub retry_after: Option<String>,
    /// `Date`; where there is none that can be read, when the answer came by our own clock.
    pub date: Option<String>,
    /// Where a redirect (`Location`) leads, without what may be secret of it.
    pub redirect: Option<String>,
    /// The body, cut off at a bound far above any real answer.
    pub body: Vec<u8>,
}

pub(super) async fn read_answer(mut response: Response, clock: Clock) -> reqwest::Result<RawResponse> {
    let status = response.status().as_u16();
    let header = |name| {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned)
    };
    let date = http_date::date_or_now(header(DATE).as_deref(), clock.now().wall);
    let retry_after = header(RETRY_AFTER);
    let location = response.headers().get(LOCATION).filter(|_| (300..400).contains(&status));
    let redirect = location.and_then(|location| redirect_target(response.url(), location.as_bytes()));
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_MAX_BYTES {
            break;
        }
    }
    Ok(RawResponse { status, retry_after, date, redirect, body })
}

/// The address that a redirect of an answer to `asked` leads to, without user, password, query and fragment; nothing where
/// it is none. What a terminal would obey is not in an address: it is escaped there.
fn redirect_target(asked: &Url, location: &[u8]) -> Option<String> {
    let mut target = asked.join(&String::from_utf8_lossy(location)).ok()?;
    // Of an address without a host there is no user either.
    let _ = (target.set_username(""), target.set_password(None));
    target.set_query(None);
    target.set_fragment(None);
    Some(target.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_redirect_the_address_is_shown_and_no_secret() {
        let asked = "http://user:word@media.example/api/v1/images?type=a".parse::<Url>().unwrap();
        for (location, expected) in [
            ("https://www.media.example/api/v1/images", Some("https://www.media.example/api/v1/images")),
            ("/v2/images#there", Some("http://media.example/v2/images")),
            ("https://me:secret@other.example/x?token=secret#secret", Some("https://other.example/x")),
            ("//other.example/\u{1b}[31m\u{202e}", Some("http://other.example/%1B[31m%E2%80%AE")),
            ("http://", None),
            ("http://a b/", None),
        ] {
            assert_eq!(redirect_target(&asked, location.as_bytes()).as_deref(), expected, "{location}");
        }
    }
}
