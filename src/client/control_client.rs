//! The client of the control API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{self, Method};
use futures_util::StreamExt;
use futures_util::stream::{self, Stream};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tower::ServiceExt;

use crate::api::install_tls_provider;
use crate::domain::hex::hex;
use crate::engine::blocking;
use crate::ingest::ManifestError;
use crate::ingest::input_files::{self, Links, ReadFiles};
use crate::ingest::manifest_file::{self, Identity};
use crate::ingest::receipt::Receipt;
use crate::server::handlers::HandlerError;
use crate::server::listener::PATH_MAX_BYTES;
use crate::server::protocol::{
    ErrorBody, INPUT_PATH, Lines, MANIFESTS_PATH, MissingInputsRequest, NOT_LISTED, Refusal, Request,
    Submission,
};

/// How long the daemon may take to begin a response, and to go on with it. Ingesting a million rows takes a minute. What moves
/// the outputs of a batch may take hours: see [`Client::without_time_limit`].
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// So much of a manifest is read at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Over a Unix socket nothing is looked up; the name only has to be one.
const BASE: &str = "http://callsheet";

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
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
    /// The output cannot be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// How requests reach the server.
#[derive(Debug, Clone)]
enum Transport {
    /// A process that listens on a Unix socket.
    Unix(PathBuf),
    /// The same routes in this process.
    InProcess(Router),
}

/// A client of the control API.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    transport: Transport,
}

/// Speaks to nobody but this machine: the certificates of the system, often more than a hundred files, are not read.
fn http_client() -> reqwest::ClientBuilder {
    install_tls_provider();
    reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
}

impl Client {
    /// A client of routes in this process.
    pub fn in_process(router: Router) -> Client {
        // It only puts requests together.
        let http = http_client().build().unwrap_or_default();
        Client { http, transport: Transport::InProcess(router) }
    }

    /// Connects to the daemon that listens on `socket`.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] when none does.
    pub async fn connect(socket: &Path) -> Result<Client, ClientError> {
        if socket.as_os_str().len() > PATH_MAX_BYTES {
            return Err(ClientError::PathTooLong { socket: socket.to_owned() });
        }
        let broken = |detail: String| ClientError::ConnectionLost { socket: socket.to_owned(), detail };
        match UnixStream::connect(socket).await {
            Ok(_) => {}
            Err(error) => {
                use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
                return Err(match error.kind() {
                    NotFound | NotADirectory | ConnectionRefused => {
                        ClientError::NoDaemon { socket: socket.to_owned() }
                    }
                    PermissionDenied => {
                        ClientError::PermissionDenied { socket: socket.to_owned(), detail: error.to_string() }
                    }
                    _ => broken(error.to_string()),
                });
            }
        }
        let http = http_client().unix_socket(socket).read_timeout(RESPONSE_TIMEOUT).build();
        let http = http.map_err(|error| broken(error.to_string()))?;
        Ok(Client { http, transport: Transport::Unix(socket.to_owned()) })
    }

    /// The same client for commands that take as long as there is to do: it waits for as long as the daemon keeps the connection.
    ///
    /// # Errors
    /// [`ClientError::ConnectionLost`] when it cannot be made.
    pub fn without_time_limit(&self) -> Result<Client, ClientError> {
        let Transport::Unix(socket) = &self.transport else { return Ok(self.clone()) };
        let http = http_client().unix_socket(socket.as_path()).build();
        let http = http.map_err(|error| self.connection_lost(error.to_string()))?;
        Ok(Client { http, transport: self.transport.clone() })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.fetch_json(self.request(request)).await
    }

    /// Submits a manifest.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn submit(&self, manifest: &Path, terms: &Submission) -> Result<Receipt, ClientError> {
        let path = manifest.to_owned();
        let (file, opened) = blocking(move || manifest_file::open_to_send(&path)).await?;
        let body = reqwest::Body::wrap_stream(unchanged(file, opened, manifest.to_owned()));
        let request = self.http.post(format!("{BASE}{MANIFESTS_PATH}")).query(terms).body(body);
        let response = self.fetch_json(request).await;
        if let (Err(_), Some(opened)) = (&response, opened) {
            opened.check(manifest)?;
        }
        response
    }

    /// Hands over the files that rows of a manifest name, before the manifest: those that are not there yet, and the list
    /// of all. Returns the hash of that list, for [`Submission::files`]; nothing where no file is named.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn hand_over(&self, files: &ReadFiles) -> Result<Option<String>, ClientError> {
        if files.handed.0.is_empty() {
            return Ok(None);
        }
        let asked = MissingInputsRequest { sha256: files.found.keys().cloned().collect() };
        for sha256 in self.call(&asked).await?.missing {
            let Some(file) = files.found.get(&sha256) else { continue };
            let path = file.path.clone();
            let opened = blocking(move || input_files::open(&path, Links::Followed)).await;
            let opened =
                opened.map_err(|source| ManifestError::Unreadable { path: file.path.clone(), source })?;
            let body = unchanged(opened, None, file.path.clone());
            self.put_input(&sha256, reqwest::Body::wrap_stream(body)).await?;
        }
        let list =
            serde_json::to_vec(&files.handed).map_err(|error| self.connection_lost(error.to_string()))?;
        let sha256 = hex(&Sha256::digest(&list));
        self.put_input(&sha256, list.into()).await?;
        Ok(Some(sha256))
    }

    async fn put_input(&self, sha256: &str, body: reqwest::Body) -> Result<(), ClientError> {
        let path = INPUT_PATH.replace("{sha256}", sha256);
        self.send(self.http.put(format!("{BASE}{path}")).body(body)).await.map(drop)
    }

    /// Sends a request and passes the response on, line by line. Returns how many finished batches it leaves out.
    ///
    /// # Errors
    /// [`ClientError`]; a response that breaks off is one.
    pub async fn lines(
        &self,
        request: &impl Request<Response = Lines>,
        sink: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<u64, ClientError> {
        let answer = self.send(self.request(request)).await?;
        let not_listed = answer.headers().get(NOT_LISTED).and_then(|value| value.to_str().ok()?.parse().ok());
        let mut chunks = answer.bytes_stream();
        let mut rest: Vec<u8> = Vec::new();
        while let Some(chunk) = chunks.next().await {
            rest.extend_from_slice(&chunk.map_err(|error| self.broken(&error))?);
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let tail = rest.split_off(end + 1);
            for line in rest.split_inclusive(|byte| *byte == b'\n') {
                sink(line)?;
            }
            rest = tail;
        }
        Ok(not_listed.unwrap_or_default())
    }

    fn request<R: Request>(&self, request: &R) -> reqwest::RequestBuilder {
        let url = format!("{BASE}{}", request.path());
        match R::METHOD {
            Method::GET => self.http.get(url).query(request),
            method => self.http.request(method, url).json(request),
        }
    }

    async fn fetch_json<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<T, ClientError> {
        self.send(request).await?.json().await.map_err(|error| self.broken(&error))
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, ClientError> {
        let answer = self.exchange(request).await.map_err(|error| self.broken(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        match answer.json::<ErrorBody>().await {
            Ok(refused) => Err(ClientError::Refused(refused.error)),
            Err(_) => Err(self.connection_lost(status.to_string())),
        }
    }

    /// The only place where the two transports differ.
    async fn exchange(&self, request: reqwest::RequestBuilder) -> reqwest::Result<reqwest::Response> {
        let request = request.build()?;
        match &self.transport {
            Transport::Unix(_) => self.http.execute(request).await,
            Transport::InProcess(router) => {
                let request = http::Request::try_from(request)?.map(Body::new);
                let Ok(response) = router.clone().oneshot(request).await;
                let body = |body: Body| reqwest::Body::wrap_stream(body.into_data_stream());
                Ok(response.map(body).into())
            }
        }
    }

    /// A request or a response that broke off. What the server in this process met is known; a daemon has logged it.
    fn broken(&self, error: &reqwest::Error) -> ClientError {
        let mut source = std::error::Error::source(error);
        while let Some(error) = source {
            if let Some(met) = error.downcast_ref::<HandlerError>() {
                return ClientError::Refused(met.refusal());
            }
            source = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        self.connection_lost(error.to_string())
    }

    fn connection_lost(&self, detail: String) -> ClientError {
        let socket = match &self.transport {
            Transport::Unix(socket) => socket.clone(),
            Transport::InProcess(_) => PathBuf::from("in this process"),
        };
        ClientError::ConnectionLost { socket, detail }
    }
}

/// The bytes of a manifest. A file that was written to meanwhile breaks off before its end, and nothing of it is accepted.
fn unchanged(
    file: std::fs::File,
    opened: Option<Identity>,
    path: PathBuf,
) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((tokio::fs::File::from_std(file), path), move |(mut file, path)| async move {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        file.read_buf(&mut chunk).await?;
        if chunk.is_empty() {
            if let Some(opened) = opened {
                opened.check(&path).map_err(std::io::Error::other)?;
            }
            return Ok(None);
        }
        Ok(Some((Bytes::from(chunk), (file, path))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manifest_that_is_written_to_while_it_is_sent_is_not_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("batch.csv");
        let rows = "prompt,kind\n".to_owned() + &"a gull,image\n".repeat(20_000);
        std::fs::write(&path, rows).unwrap();
        let written = path.clone();
        let receive = async move |body: Body| {
            let mut chunks = body.into_data_stream();
            chunks.next().await.unwrap().unwrap();
            let mut file = std::fs::File::options().append(true).open(&written).unwrap();
            std::io::Write::write_all(&mut file, b"late,image\n").unwrap();
            while let Some(chunk) = chunks.next().await {
                if chunk.is_err() {
                    return axum::http::StatusCode::BAD_REQUEST;
                }
            }
            panic!("the body ended as if it were whole");
        };
        let router = Router::new().route(MANIFESTS_PATH, axum::routing::post(receive));
        let sent = Client::in_process(router).submit(&path, &Submission::default()).await;
        let message = sent.unwrap_err().to_string();
        assert!(
            message.ends_with("batch.csv changed while it was read; nothing of it was accepted"),
            "{message}"
        );
    }
}
