//! The client of the service: one method for each call of the document, and how long each is waited for.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::download_request::Downloads;
use super::http_client::{ClientError, RawResponse, ServiceOptions, client_of_base_url, read_answer};
use super::response::{self, CatalogAnswer};
use super::url_path::path_segment;
use super::{redact, shorts_studio};
use crate::clock::Clock;
use crate::domain::credits::Credits;
use crate::domain::idempotency_key::IdempotencyKey;
use crate::domain::ids::TaskId;
use crate::domain::job::Order;
use crate::domain::quote::catalog::CatalogPart;
use crate::domain::request::Kind;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer};
use crate::domain::url_policy::UrlPolicy;

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
    pub(super) options: ServiceOptions,
    pub(super) clock: Clock,
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
        let http = client_of_base_url(&options).default_headers(headers).build()?;
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
            Ok(raw) if kind == Kind::ShortsStudio => shorts_studio::classify_post(&raw),
            Ok(raw) => response::classify_post(&raw, kind),
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
            Ok(raw) if is_studio => shorts_studio::classify_read(&raw, task),
            Ok(raw) => response::classify_read(&raw).about(task),
        }
    }

    /// The record of any task of the account (`GET /api/v1/tasks/{taskId}`), as it came, or what its poll shows of a task of
    /// Shorts Studio, which the document does not list there; nothing where the service knows none of that name.
    pub async fn task(&self, task: &TaskId) -> Result<Option<Value>, ServiceError> {
        let path = format!("/api/v1/tasks/{}", path_segment(&task.0));
        match self.ask(&path, |raw| response::parse_task_record(raw, task)).await? {
            Some(record) => Ok(Some(record)),
            None => {
                let path = shorts_studio::poll_path(task);
                self.ask(&path, |raw| shorts_studio::parse_task_record(raw, task)).await
            }
        }
    }

    /// The balance (`GET /api/v1/credits`).
    pub async fn credits(&self) -> Result<Credits, ServiceError> {
        self.ask("/api/v1/credits", response::parse_balance).await
    }

    /// One of the catalogs.
    pub async fn catalog(&self, part: CatalogPart) -> Result<CatalogAnswer, ServiceError> {
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
            Err(fault) if raw.status == 401 => Err(ServiceError::Unauthorised(fault.into_message())),
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
            raw.redirect = raw.redirect.map(|target| redact::text(target, key.expose_secret()));
        }
        Ok(raw)
    }

    fn unreachable(&self, path: &str, reason: &str) -> ServiceError {
        ServiceError::Unreachable { url: self.url(path), reason: reason.to_owned() }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.options.base_url.as_str().trim_end_matches('/'))
    }
}
