//! Webhooks: posted by a client that has never seen the API key, follows no redirect and repeats
//! nothing. Who may try again, and when, is decided by `hooks`.

use std::time::Duration;

use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use url::Url;

use crate::api::http_client::{ClientError, RawResponse, ServiceOptions, client_of_base_url};
use crate::api::retry_after::retry_after;
use crate::api::{http_date, response};
use crate::clock::Clock;
use crate::domain::time::Millis;

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What is said of a redirect.
const REDIRECT: &str = " (a redirect, which is not followed: set hooks.webhook to the final address)";

/// The receiver did not accept the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Its status is not 2xx.
    #[error("the receiver answered {status}{}", if (300..400).contains(status) { REDIRECT } else { "" })]
    Status {
        status: u16,
        /// How long it asks to be left alone.
        wait: Option<Millis>,
    },
    /// No connection, or no answer in time.
    #[error("{0}")]
    Unreachable(String),
}

impl WebhookError {
    /// `Retry-After` of the response.
    pub fn wait(&self) -> Option<Millis> {
        match self {
            WebhookError::Status { wait, .. } => *wait,
            WebhookError::Unreachable(_) => None,
        }
    }

    /// 410: the receiver wants nothing of the kind any more (Standard Webhooks).
    pub fn is_final(&self) -> bool {
        matches!(self, WebhookError::Status { status: 410, .. })
    }
}

/// Posts to one receiver.
#[derive(Debug, Clone)]
pub struct Webhook {
    http: Client,
    url: Url,
    clock: Clock,
}

impl Webhook {
    /// Sets up the client; sends nothing yet. `timeout` bounds a whole exchange.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new(url: Url, timeout: Duration) -> Result<Webhook, ClientError> {
        let options = ServiceOptions {
            base_url: url.clone(),
            api_key: None,
            connect_timeout: CONNECT_TIMEOUT.min(timeout),
            request_timeout: timeout,
            render_timeout: timeout,
        };
        Ok(Webhook { http: client_of_base_url(&options).build()?, url, clock: Clock::start() })
    }

    /// Posts `body`, which is JSON, once.
    ///
    /// # Errors
    /// [`WebhookError`]; the receiver may have accepted it all the same.
    pub async fn post(&self, headers: &[(&'static str, String)], body: &str) -> Result<(), WebhookError> {
        let mut request = self.http.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        // What it says beside its status is nobody's business: the body is not read.
        let response = request.body(body.to_owned()).send().await;
        let response = response.map_err(|error| WebhookError::Unreachable(response::describe(&error)))?;
        if response.status().is_success() {
            return Ok(());
        }
        let header = |name| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let raw = RawResponse {
            status: response.status().as_u16(),
            retry_after: header(RETRY_AFTER),
            date: http_date::date_or_now(header(DATE).as_deref(), self.clock.now().wall),
            redirect: None,
            body: Vec::new(),
        };
        Err(WebhookError::Status { status: raw.status, wait: retry_after(&raw) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_says_what_to_set() {
        let said = |status| WebhookError::Status { status, wait: None }.to_string();
        assert_eq!(said(503), "the receiver answered 503");
        assert!(said(308).contains("not followed: set hooks.webhook to the final address"), "{}", said(308));
    }
}
