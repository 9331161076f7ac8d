//! The service, seen from our side: the only user of the HTTP client.
//!
//! Architecture invariant: nothing here repeats a request. The client follows no redirect, retries
//! nothing and reconnects for nothing (money rule 4); who may try again, and when, is the engine's
//! decision. The API key goes to the origin of `base_url` alone (money rule 12): downloads use a
//! client that has never seen it.

mod connectivity;
mod download;
mod http_date;
mod redact;
pub mod response;
pub mod shorts_studio;
mod tls;
pub mod webhook;
mod wire;

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, redirect, retry};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

pub use self::connectivity::{Connectivity, ConnectivityError, FailurePoint};
pub use self::download::{DownloadError, Downloads, Opened, Version};
use crate::clock::Clock;
use crate::domain::credits::Credits;
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::TaskId;
use crate::domain::job::Order;
use crate::domain::quote::catalog::CatalogPart;
use crate::domain::request::Kind;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer};
use crate::domain::url_policy::{UrlPolicy, is_loopback};

/// Longest answer that is read, in bytes. A task with thousands of result URLs stays far below.
const ANSWER_MAX_BYTES: usize = 8 * 1024 * 1024;
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

/// A question that has no job behind it (catalogs, balance) was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// 401.
    #[error("the service refuses the API key: {0}")]
    Unauthorised(String),
    /// No connection, no answer in time, or an answer from something else than the service.
    #[error("{url}: {reason}")]
    Unreachable {
        /// Method and path of the request.
        url: String,
        /// Why there is no usable response.
        reason: String,
    },
}

/// The service at one base address, with one key.
#[derive(Debug, Clone)]
pub struct Service {
    http: Client,
    options: ServiceOptions,
    clock: Clock,
}

impl Service {
    /// Sets up the client; asks nothing yet.
    pub fn new(options: ServiceOptions) -> Result<Service, ClientError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &options.api_key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()))
                .map_err(|_| ClientError::Key)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let http = client(&options).default_headers(headers).build()?;
        Ok(Service { http, options, clock: Clock::start() })
    }

    /// A client for result URLs, which never carries the key and goes no further than `reach`.
    pub fn downloads(&self, reach: UrlPolicy) -> Result<Downloads, ClientError> {
        Ok(Downloads::new(&self.options, reach)?)
    }

    /// Sends a creating POST, once.
    pub async fn post(&self, order: &Order, key: Option<&IdempotencyKey>) -> PostAnswer {
        let kind = order.kind;
        let timeout = if kind.may_render_in_call() {
            self.options.render_timeout
        } else {
            self.options.request_timeout
        };
        let mut request = self.request(Method::POST, kind.endpoint()).timeout(timeout).json(&order.body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key.as_str());
        }
        match self.exchange(request).await {
            Err(error) => response::classify_post_error(&error),
            Ok(raw) if kind == Kind::ShortsStudio => {
                shorts_studio::classify_post(&raw, order.hold().unwrap_or_default())
            }
            Ok(raw) => response::classify_post(&raw),
        }
    }

    /// Polls the task of a job.
    pub async fn read_task(&self, order: &Order, task: &TaskId) -> ReadAnswer {
        let is_studio = order.kind == Kind::ShortsStudio;
        let path = match is_studio {
            true => shorts_studio::poll_path(task),
            false => format!("/api/v1/tasks/{}", path_segment(&task.0)),
        };
        match self.exchange(self.request(Method::GET, &path)).await {
            Err(error) => response::classify_read_error(&error),
            Ok(raw) if is_studio => {
                shorts_studio::classify_read(&raw, task, order.hold().unwrap_or_default())
            }
            Ok(raw) => response::classify_read(&raw).about(task),
        }
    }

    /// The record of any task of the account (`GET /api/v1/tasks/{taskId}`), as it came; nothing where the service knows
    /// none of that name.
    pub async fn task(&self, task: &TaskId) -> Result<Option<Value>, ServiceError> {
        let path = format!("/api/v1/tasks/{}", path_segment(&task.0));
        self.ask(&path, |raw| response::parse_task_record(raw, task)).await
    }

    /// The balance (`GET /api/v1/credits`).
    pub async fn credits(&self) -> Result<Credits, ServiceError> {
        self.ask("/api/v1/credits", response::parse_balance).await
    }

    /// One of the catalogs; its `data` as it came.
    pub async fn catalog(&self, part: CatalogPart) -> Result<Value, ServiceError> {
        let path = match part {
            CatalogPart::Video => "/api/v1/models?type=video",
            CatalogPart::Image => "/api/v1/models?type=image",
            CatalogPart::Music => "/api/v1/models?type=music",
            CatalogPart::Voices => "/api/v1/voices",
        };
        self.ask(path, |raw| response::parse_catalog(raw, part)).await
    }

    async fn ask<T>(
        &self,
        path: &str,
        read: impl Fn(&RawResponse) -> Result<T, Fault>,
    ) -> Result<T, ServiceError> {
        let raw = self.exchange(self.request(Method::GET, path)).await;
        let raw = raw.map_err(|error| self.unreachable(path, &response::describe(&error)))?;
        match read(&raw) {
            Ok(data) => Ok(data),
            Err(fault) if raw.status == 401 => Err(ServiceError::Unauthorised(fault.message)),
            Err(fault) => Err(self.unreachable(path, &fault.to_string())),
        }
    }

    /// Sends a request, once, and reads the answer to its end.
    async fn exchange(&self, request: RequestBuilder) -> reqwest::Result<RawResponse> {
        let mut raw = read_answer(request.send().await?, self.clock).await?;
        if let Some(key) = &self.options.api_key {
            // A proxy's error page may show the request that it could not pass on, headers and all. Masked here,
            // before anything is read, so that no reader of an answer ever has it.
            redact::all(&mut raw.body, key.expose_secret());
        }
        Ok(raw)
    }

    fn unreachable(&self, path: &str, reason: &str) -> ServiceError {
        ServiceError::Unreachable { url: self.url(path), reason: reason.to_owned() }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.options.base_url.as_str().trim_end_matches('/'))
    }
}

/// The settings that every client of this module has in common.
fn client(options: &ServiceOptions) -> reqwest::ClientBuilder {
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .connect_timeout(options.connect_timeout)
        .timeout(options.request_timeout);
    if options.is_loopback() { builder.no_proxy() } else { builder }
}

/// A task id as one segment of a path, whatever characters it holds.
fn path_segment(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// A response with its whole body.
#[derive(Debug, Clone)]
pub struct RawResponse {
    pub status: u16,
    /// `Retry-After`, where there is one.
    pub retry_after: Option<String>,
    /// `Date`; where there is none that can be read, when the answer came by our own clock.
    pub date: Option<String>,
    /// The body, cut off at a bound far above any real answer.
    pub body: Vec<u8>,
}

async fn read_answer(mut response: Response, clock: Clock) -> reqwest::Result<RawResponse> {
    let status = response.status().as_u16();
    let header = |name| {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned)
    };
    let date = response::date(header(DATE).as_deref(), clock.now().wall);
    let retry_after = header(RETRY_AFTER);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_MAX_BYTES {
            break;
        }
    }
    Ok(RawResponse { status, retry_after, date, body })
}
