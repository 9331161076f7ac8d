//! The client of the control API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::control::listener::PATH_MAX_BYTES;
use crate::control::protocol::{ErrorBody, Health, Refusal, Submission, Submitted};

/// How long the daemon may take to begin a response. Ingesting a million rows takes a minute.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Over a Unix socket nothing is looked up; the name only has to be one.
const BASE: &str = "http://callsheet";

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlClientError {
    /// No process listens on the socket.
    #[error("no daemon is running ({})", .socket.display())]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
    },
    /// The path is longer than a socket's can be.
    #[error("{} has {} bytes; a socket path has at most {PATH_MAX_BYTES}", .socket.display(), .socket.as_os_str().len())]
    PathTooLong {
        /// The socket.
        socket: PathBuf,
    },
    /// This user may not connect.
    #[error("permission denied: {}", .socket.display())]
    PermissionDenied {
        /// The socket.
        socket: PathBuf,
        /// Why.
        detail: String,
    },
    /// The daemon refused the request.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The connection failed half-way.
    #[error("the daemon at {} did not answer: {detail}", .socket.display())]
    ConnectionLost {
        /// The socket.
        socket: PathBuf,
        /// Why.
        detail: String,
    },
    /// The input cannot be read, or the output cannot be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// A connection to the daemon's control socket.
#[derive(Debug, Clone)]
pub struct ControlClient {
    http: reqwest::Client,
    socket: PathBuf,
}

impl ControlClient {
    /// Connects to the daemon that listens on `socket`.
    ///
    /// # Errors
    /// [`ControlClientError::NoDaemon`] when none does.
    pub async fn connect(socket: &Path) -> Result<ControlClient, ControlClientError> {
        if socket.as_os_str().len() > PATH_MAX_BYTES {
            return Err(ControlClientError::PathTooLong { socket: socket.to_owned() });
        }
        let broken =
            |detail: String| ControlClientError::ConnectionLost { socket: socket.to_owned(), detail };
        match UnixStream::connect(socket).await {
            Ok(_) => {}
            Err(error) => {
                use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
                return Err(match error.kind() {
                    NotFound | NotADirectory | ConnectionRefused => {
                        ControlClientError::NoDaemon { socket: socket.to_owned() }
                    }
                    PermissionDenied => ControlClientError::PermissionDenied {
                        socket: socket.to_owned(),
                        detail: error.to_string(),
                    },
                    _ => broken(error.to_string()),
                });
            }
        }
        let http = reqwest::Client::builder()
            .unix_socket(socket)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .read_timeout(RESPONSE_TIMEOUT)
            .build()
            .map_err(|error| broken(error.to_string()))?;
        Ok(ControlClient { http, socket: socket.to_owned() })
    }

    /// The health of the daemon.
    ///
    /// # Errors
    /// [`ControlClientError`].
    pub async fn health(&self) -> Result<Health, ControlClientError> {
        self.get("/v1/health", &()).await
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// [`ControlClientError`].
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ControlClientError> {
        self.fetch_json(self.http.get(format!("{BASE}{path}")).query(query)).await
    }

    /// Sends a POST request with a JSON body.
    ///
    /// # Errors
    /// [`ControlClientError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ControlClientError> {
        self.fetch_json(self.http.post(format!("{BASE}{path}")).json(body)).await
    }

    /// Submits a manifest.
    ///
    /// # Errors
    /// [`ControlClientError`].
    pub async fn submit(&self, manifest: &Path, terms: &Submission) -> Result<Submitted, ControlClientError> {
        let file = tokio::fs::File::open(manifest).await?;
        let request = self.http.post(format!("{BASE}/v1/manifests")).query(terms).body(file);
        self.fetch_json(request).await
    }

    /// Sends a GET request and passes the response on, line by line.
    ///
    /// # Errors
    /// [`ControlClientError`]; an answer that breaks off is one.
    pub async fn lines(
        &self,
        path: &str,
        query: &impl Serialize,
        sink: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), ControlClientError> {
        let answer = self.send(self.http.get(format!("{BASE}{path}")).query(query)).await?;
        let mut chunks = answer.bytes_stream();
        let mut rest: Vec<u8> = Vec::new();
        while let Some(chunk) = chunks.next().await {
            rest.extend_from_slice(&chunk.map_err(|error| self.connection_lost(&error))?);
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let tail = rest.split_off(end + 1);
            for line in rest.split_inclusive(|byte| *byte == b'\n') {
                sink(line)?;
            }
            rest = tail;
        }
        Ok(())
    }

    async fn fetch_json<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<T, ControlClientError> {
        self.send(request).await?.json().await.map_err(|error| self.connection_lost(&error))
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, ControlClientError> {
        let answer = request.send().await.map_err(|error| self.connection_lost(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        match answer.json::<ErrorBody>().await {
            Ok(refused) => Err(ControlClientError::Refused(refused.error)),
            Err(_) => Err(self.connection_lost(&status)),
        }
    }

    fn connection_lost(&self, error: &dyn std::fmt::Display) -> ControlClientError {
        ControlClientError::ConnectionLost { socket: self.socket.clone(), detail: error.to_string() }
    }
}
