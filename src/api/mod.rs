//! The service, seen from our side: the only user of the HTTP client.
//!
//! Architecture invariant: nothing here repeats a request. The client follows no redirect, retries
//! nothing and reconnects for nothing (money rule 4); who may try again, and when, is the engine's
//! decision. The API key goes to the origin of `base_url` alone (money rule 12): downloads use a
//! client that has never seen it.

mod connectivity;
mod download_request;
mod http_client;
mod http_date;
mod redact;
pub mod response;
mod retry_after;
mod service_client;
pub mod shorts_studio;
mod tls;
mod url_path;
pub mod webhook_client;
mod wire;

pub use self::connectivity::{Connectivity, ConnectivityError, FailurePoint};
pub use self::download_request::{DownloadError, Downloads, Opened, Version};
pub use self::http_client::{ClientError, RawResponse, ServiceOptions, install_tls_provider};
pub use self::service_client::{Service, ServiceError};
