//! `[service]`: its address, key and timeouts.

use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use super::read::Positions;
use super::span::{Span, secs, zero_problems};
use crate::domain::diagnostic::Diagnostic;
use crate::domain::quote::AccountPlan;

/// `[service]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceConfig {
    /// Base address of the service. Without one nothing is sent: it is never guessed.
    pub base_url: Option<Url>,
    pub api_key_file: Option<PathBuf>,
    /// The account's subscription: decides which allowances `callsheet plan` shows.
    pub plan: AccountPlan,
    /// Part of every idempotency key: two installations that share an account and batch names, and
    /// must not share jobs, have different ones.
    pub key_namespace: String,
    /// Timeout of a connection attempt.
    pub connect_timeout: Span,
    /// Timeout of a request with its response.
    pub request_timeout: Span,
    /// Timeout of a creating call that renders before it responds.
    pub render_timeout: Span,
}

impl ServiceConfig {
    /// Values that are out of their range.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        let spans = [
            ("service.connect_timeout", self.connect_timeout),
            ("service.request_timeout", self.request_timeout),
            ("service.render_timeout", self.render_timeout),
        ];
        zero_problems(spans, positions)
    }
}

impl Default for ServiceConfig {
    fn default() -> ServiceConfig {
        ServiceConfig {
            base_url: None,
            api_key_file: None,
            plan: AccountPlan::Unknown,
            key_namespace: String::new(),
            connect_timeout: secs(10),
            request_timeout: secs(60),
            render_timeout: secs(600),
        }
    }
}
