//! Connections of a control server: bounded in number, in time and in patience, so that a client that
//! hangs or floods harms nobody.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

/// Connections that are served at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may last, whatever happens on it.
const CONNECTION_MAX: Duration = Duration::from_secs(15 * 60);

/// The places there are.
#[derive(Debug)]
pub(super) struct Places {
    free: std::sync::Arc<Semaphore>,
}

/// One of them.
pub(super) type Place = tokio::sync::OwnedSemaphorePermit;

impl Places {
    pub(super) fn new() -> Places {
        Places { free: std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Waits for a free place; nothing once the server ends.
    pub(super) async fn take(&self) -> Option<Place> {
        self.free.clone().acquire_owned().await.ok()
    }
}

/// Serves one connection to its end.
pub(super) fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    place: Place,
) {
    tokio::spawn(async move {
        let _place = place;
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_PATIENCE)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        match tokio::time::timeout(CONNECTION_MAX, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a control connection broke"),
            Err(_) => tracing::debug!("a control connection was closed: it lasted too long"),
        }
    });
}
