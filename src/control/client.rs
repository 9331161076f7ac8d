//! The client: commands speak to a running daemon through it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::control::listening::PATH_MAX_BYTES;
use crate::control::protocol::{Health, Refusal, Refused, Submission, Submitted};

/// How long the daemon may take to begin an answer. Taking in a million rows takes a minute.
const ANSWER_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Over a Unix socket nothing is looked up; the name only has to be one.
const BASE: &str = "http://callsheet";

/// Why the daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no daemon listens on {}", .socket.display())]
    NobodyThere {
        /// The socket.
        socket: PathBuf,
    },
    /// The path is longer than a socket's can be.
    #[error("{} has {} bytes, and a socket's path has at most {PATH_MAX_BYTES}", .socket.display(), .socket.as_os_str().len())]
    TooLong {
        /// The socket.
        socket: PathBuf,
    },
    /// This user may not speak to it.
    #[error("the daemon at {} may not be spoken to: {detail}", .socket.display())]
    Barred {
        /// The socket.
        socket: PathBuf,
        /// Why.
        detail: String,
    },
    /// It refused.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The exchange broke.
    #[error("the daemon at {} did not answer: {detail}", .socket.display())]
    Broken {
        /// The socket.
        socket: PathBuf,
        /// Why.
        detail: String,
    },
    /// What should be sent cannot be read, or what came cannot be passed on.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Speaks to a daemon over its socket.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    socket: PathBuf,
}

impl Client {
    /// Finds out whether a daemon listens on `socket`, and speaks to it.
    ///
    /// # Errors
    /// [`ClientError::NobodyThere`] when none does.
    pub async fn connect(socket: &Path) -> Result<Client, ClientError> {
        if socket.as_os_str().len() > PATH_MAX_BYTES {
            return Err(ClientError::TooLong { socket: socket.to_owned() });
        }
        let broken = |detail: String| ClientError::Broken { socket: socket.to_owned(), detail };
        match UnixStream::connect(socket).await {
            Ok(_) => {}
            Err(error) => {
                use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
                return Err(match error.kind() {
                    NotFound | NotADirectory | ConnectionRefused => {
                        ClientError::NobodyThere { socket: socket.to_owned() }
                    }
                    PermissionDenied => {
                        ClientError::Barred { socket: socket.to_owned(), detail: error.to_string() }
                    }
                    _ => broken(error.to_string()),
                });
            }
        }
        let http = reqwest::Client::builder()
            .unix_socket(socket)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .read_timeout(ANSWER_PATIENCE)
            .build()
            .map_err(|error| broken(error.to_string()))?;
        Ok(Client { http, socket: socket.to_owned() })
    }

    /// Whom one speaks to.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get("/v1/health", &()).await
    }

    /// Asks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.answer(self.http.get(format!("{BASE}{path}")).query(query)).await
    }

    /// Wishes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        wish: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.answer(self.http.post(format!("{BASE}{path}")).json(wish)).await
    }

    /// Hands a manifest in.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn submit(&self, manifest: &Path, terms: &Submission) -> Result<Submitted, ClientError> {
        let file = tokio::fs::File::open(manifest).await?;
        let request = self.http.post(format!("{BASE}/v1/manifests")).query(terms).body(file);
        self.answer(request).await
    }

    /// Asks for an answer of many lines, and hands them over as they come.
    ///
    /// # Errors
    /// [`ClientError`]; an answer that breaks off is one.
    pub async fn lines(
        &self,
        path: &str,
        query: &impl Serialize,
        sink: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), ClientError> {
        let answer = self.sent(self.http.get(format!("{BASE}{path}")).query(query)).await?;
        let mut pieces = answer.bytes_stream();
        let mut rest: Vec<u8> = Vec::new();
        while let Some(piece) = pieces.next().await {
            rest.extend_from_slice(&piece.map_err(|error| self.broken(&error))?);
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let tail = rest.split_off(end + 1);
            for line in rest.split_inclusive(|byte| *byte == b'\n') {
                sink(line)?;
            }
            rest = tail;
        }
        Ok(())
    }

    async fn answer<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, ClientError> {
        self.sent(request).await?.json().await.map_err(|error| self.broken(&error))
    }

    async fn sent(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, ClientError> {
        let answer = request.send().await.map_err(|error| self.broken(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        match answer.json::<Refused>().await {
            Ok(refused) => Err(ClientError::Refused(refused.error)),
            Err(_) => Err(self.broken(&status)),
        }
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> ClientError {
        ClientError::Broken { socket: self.socket.clone(), detail: error.to_string() }
    }
}
