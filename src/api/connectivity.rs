//! Whether the service can be reached, and if not, at which step it fails. Asks for what needs no key and
//! charges nothing.

use std::error::Error;
use std::io;

use reqwest::header::DATE;
use serde_json::Value;
use tokio::net::lookup_host;

use crate::api::http_client::{ClientError, client_of_base_url, read_answer};
use crate::api::service_client::Service;
use crate::api::{http_date, response, tls};
use crate::domain::time::Timestamp;

/// Path of the service's OpenAPI description.
const DESCRIPTION: &str = "/openapi.json";

/// A response came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connectivity {
    /// The URL of the request.
    pub url: String,
    pub status: u16,
    /// `Date` of the response, to the second.
    pub date: Option<Timestamp>,
    /// The version that the service's description gives itself; nothing where there is no description.
    pub version: Option<String>,
}

/// The step at which the connection fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePoint {
    /// Its name does not resolve.
    Name,
    /// The connection was refused.
    Refused,
    /// Its certificate is not trusted here.
    Certificate,
    /// The TLS handshake failed.
    Tls,
    /// No answer in time.
    Silence,
    /// Another step.
    Elsewhere,
}

/// No response came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {detail}")]
pub struct ConnectivityError {
    /// The URL of the request.
    pub url: String,
    /// The step that failed.
    pub end: FailurePoint,
    /// The innermost cause, as the system gives it.
    pub detail: String,
}

impl Service {
    /// Sends a request that needs no key.
    ///
    /// # Errors
    /// [`ConnectivityError`], with the step that failed.
    pub async fn check_connectivity(&self) -> Result<Connectivity, ConnectivityError> {
        let url = self.url(DESCRIPTION);
        // A client without the key: whatever answers there is not known yet.
        let bare = client_of_base_url(&self.options).build().map_err(ClientError::from).map_err(|error| {
            ConnectivityError { url: url.clone(), end: FailurePoint::Elsewhere, detail: error.to_string() }
        })?;
        let response = match bare.get(&url).send().await {
            Ok(response) => response,
            Err(error) => return Err(self.not_reached(url, &error).await),
        };
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok());
        let date = date.and_then(|text| http_date::parse(text, self.clock.now().wall));
        match read_answer(response, self.clock).await {
            Ok(raw) => {
                let description: Option<Value> = serde_json::from_slice(&raw.body).ok();
                let version = description.as_ref().and_then(|it| it.pointer("/info/version"));
                let version = version.and_then(Value::as_str).map(str::to_owned);
                Ok(Connectivity { url, status: raw.status, date, version })
            }
            Err(error) => Err(self.not_reached(url, &error).await),
        }
    }

    async fn not_reached(&self, url: String, error: &reqwest::Error) -> ConnectivityError {
        let detail = response::describe(error);
        let end = match failure_point(error) {
            FailurePoint::Elsewhere if error.is_connect() && !self.has_address().await => FailurePoint::Name,
            end => end,
        };
        ConnectivityError { url, end, detail }
    }

    /// Whether the service's name resolves.
    async fn has_address(&self) -> bool {
        let base = &self.options.base_url;
        let Some(host) = base.host_str() else { return true };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found = lookup_host((host, base.port_or_known_default().unwrap_or(443))).await;
        found.is_ok_and(|mut addresses| addresses.next().is_some())
    }
}

/// The step that failed, by the causes of an error.
fn failure_point(error: &reqwest::Error) -> FailurePoint {
    if error.is_timeout() {
        return FailurePoint::Silence;
    }
    let mut end = FailurePoint::Elsewhere;
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            return FailurePoint::Refused;
        }
        match tls::within(error) {
            Some(rustls::Error::InvalidCertificate(_)) => return FailurePoint::Certificate,
            Some(_) => end = FailurePoint::Tls,
            None => {}
        }
        cause = error.source();
    }
    end
}
