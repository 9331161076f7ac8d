//! Connection limits of the control server: number, lifetime and idle time are bounded, so that a client that
//! hangs or floods harms nobody.
//!
//! Every new connection is accepted. At the limit, the one is closed that has kept the server waiting the
//! longest: first among those that have sent no request yet, then among those that send or read slowly. A client
//! that waits for its response is never closed.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may last, whatever happens on it.
const CONNECTION_LIFETIME_MAX: Duration = Duration::from_secs(15 * 60);
/// So many bytes received count as progress.
const PROGRESS_BYTES: usize = 16 * 1024;
/// Between two tries to close a connection, when none can be closed.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Limits the number of connections.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    free: Arc<Semaphore>,
    table: Arc<Mutex<ConnectionTable>>,
}

/// Held by a connection while it is served.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    handle: Arc<ConnectionHandle>,
    evict: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub(super) fn new() -> ConnectionLimit {
        ConnectionLimit::of(CONNECTIONS_MAX)
    }

    fn of(number: usize) -> ConnectionLimit {
        ConnectionLimit { free: Arc::new(Semaphore::new(number)), table: Arc::default() }
    }

    /// A permit for a new connection: a free one, or that of the connection that keeps the server waiting the longest.
    /// None once the server ends.
    pub(super) async fn take(&self) -> Option<ConnectionPermit> {
        loop {
            let free = self.free.clone();
            let permit = match self.free.clone().try_acquire_owned() {
                Ok(permit) => Ok(permit),
                Err(_) => {
                    lock(&self.table).evict_one();
                    match tokio::time::timeout(RETRY_INTERVAL, free.acquire_owned()).await {
                        Ok(permit) => permit,
                        // Everybody waits for an answer.
                        Err(_) => continue,
                    }
                }
            };
            let (id, evict) = lock(&self.table).register();
            let handle = Arc::new(ConnectionHandle { table: self.table.clone(), id });
            return Some(ConnectionPermit { handle, evict, _permit: permit.ok()? });
        }
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct ConnectionTable {
    /// A logical clock: counts progress of any connection.
    turn: u64,
    connections: BTreeMap<u64, ConnectionInfo>,
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The head of a request is waited for.
    ReadingHead,
    /// Its body is.
    ReadingBody,
    /// The client waits for its answer.
    Responding,
}

#[derive(Debug)]
struct ConnectionInfo {
    phase: Phase,
    /// Whether it leaves its answer unread.
    is_full: bool,
    /// The turn at which it got on last.
    last_progress: u64,
    /// Bytes that it has sent since.
    bytes: usize,
    is_evicted: bool,
    evict: Arc<Notify>,
}

impl ConnectionInfo {
    /// What the server waits for it to do; nothing while it waits for the server.
    fn waiting_for(&self) -> Option<Phase> {
        match self.phase {
            Phase::Responding => self.is_full.then_some(Phase::ReadingBody),
            phase => Some(phase),
        }
    }
}

impl ConnectionTable {
    fn register(&mut self) -> (u64, Arc<Notify>) {
        self.turn += 1;
        let evict = Arc::new(Notify::new());
        let info = ConnectionInfo {
            phase: Phase::ReadingHead,
            is_full: false,
            last_progress: self.turn,
            bytes: 0,
            is_evicted: false,
            evict: evict.clone(),
        };
        self.connections.insert(self.turn, info);
        (self.turn, evict)
    }

    fn evict_one(&mut self) {
        let waited_for = self.connections.values_mut().filter(|info| !info.is_evicted);
        let waited_for = waited_for.filter_map(|info| Some((info.waiting_for()?, info.last_progress, info)));
        if let Some((phase, _, info)) =
            waited_for.min_by_key(|(phase, last_progress, _)| (*phase, *last_progress))
        {
            tracing::debug!(?phase, "control connection closed: too many connections");
            info.is_evicted = true;
            info.evict.notify_one();
        }
    }
}

fn lock(table: &Mutex<ConnectionTable>) -> MutexGuard<'_, ConnectionTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection's entry in the table; removed when dropped.
#[derive(Debug)]
struct ConnectionHandle {
    table: Arc<Mutex<ConnectionTable>>,
    id: u64,
}

impl ConnectionHandle {
    /// Does something else from now on.
    fn enter(&self, phase: Phase) {
        let mut table = lock(&self.table);
        table.turn += 1;
        let turn = table.turn;
        if let Some(info) = table.connections.get_mut(&self.id) {
            (info.phase, info.last_progress, info.bytes) = (phase, turn, 0);
        }
    }

    fn has_sent(&self, bytes: usize) {
        let mut table = lock(&self.table);
        let turn = table.turn + 1;
        let Some(info) = table.connections.get_mut(&self.id) else { return };
        info.bytes += bytes;
        if info.bytes >= PROGRESS_BYTES {
            (info.last_progress, info.bytes) = (turn, 0);
            table.turn = turn;
        }
    }

    fn is_full(&self, is_full: bool) {
        if let Some(info) = lock(&self.table).connections.get_mut(&self.id) {
            info.is_full = is_full;
        }
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        lock(&self.table).connections.remove(&self.id);
    }
}

/// Serves one connection to its end.
pub(super) fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    permit: ConnectionPermit,
) {
    tokio::spawn(async move {
        let router = router.layer(middleware::from_fn_with_state(permit.handle.clone(), track_phase));
        let stream = ObservedStream { stream, handle: permit.handle.clone() };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "control connection failed");
            },
            () = permit.evict.notified() => {}
            () = tokio::time::sleep(CONNECTION_LIFETIME_MAX) => {
                tracing::debug!("control connection closed: it lasted too long");
            }
        }
    });
}

async fn track_phase(State(handle): State<Arc<ConnectionHandle>>, request: Request, next: Next) -> Response {
    let request = request.map(|body| {
        if body.is_end_stream() {
            handle.enter(Phase::Responding);
            return body;
        }
        handle.enter(Phase::ReadingBody);
        then(body, handle.clone(), Phase::Responding)
    });
    let response = next.run(request).await;
    response.map(|body| {
        // What is there as a whole is on its way now; of many lines some are still to be made.
        if body.size_hint().exact().is_some() {
            handle.enter(Phase::ReadingHead);
            return body;
        }
        handle.enter(Phase::Responding);
        then(body, handle.clone(), Phase::ReadingHead)
    })
}

/// The same body, with a note of what comes after its end.
fn then(body: Body, handle: Arc<ConnectionHandle>, phase: Phase) -> Body {
    let end = stream::poll_fn(move |_| {
        handle.enter(phase);
        Poll::Ready(None)
    });
    Body::from_stream(body.into_data_stream().chain(end))
}

/// A stream that records its client's progress.
#[derive(Debug)]
struct ObservedStream<S> {
    stream: S,
    handle: Arc<ConnectionHandle>,
}

impl<S> ObservedStream<S> {
    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.handle.is_full(written.is_pending());
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.handle.has_sent(bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guests that were sent away, in the order in which they were.
    fn evicted(table: &mut ConnectionTable, number: usize) -> Vec<u64> {
        let mut order = Vec::new();
        for _ in 0..number {
            table.evict_one();
            order.extend(table.connections.iter().filter(|(_, info)| info.is_evicted).map(|(id, _)| *id));
            table.connections.retain(|_, info| !info.is_evicted);
        }
        order
    }

    #[test]
    fn who_keeps_the_server_waiting_the_longest_leaves_first() {
        let table: Arc<Mutex<ConnectionTable>> = Arc::default();
        let handles: Vec<Arc<ConnectionHandle>> = (0..6)
            .map(|_| Arc::new(ConnectionHandle { table: table.clone(), id: lock(&table).register().0 }))
            .collect();
        handles[0].enter(Phase::Responding);
        handles[1].enter(Phase::ReadingBody);
        handles[2].enter(Phase::ReadingBody);
        // The first of the two gets on.
        handles[1].has_sent(PROGRESS_BYTES);
        handles[2].has_sent(10);
        // And one has an answer that it does not read.
        handles[3].enter(Phase::Responding);
        handles[3].is_full(true);
        let ids: Vec<u64> = handles.iter().map(|handle| handle.id).collect();
        let order = evicted(&mut lock(&table), 6);
        assert_eq!(order, [ids[4], ids[5], ids[2], ids[1], ids[3]], "the one that waits stays");
    }

    #[tokio::test]
    async fn a_place_is_found_as_long_as_not_everybody_waits_for_an_answer() {
        let limit = ConnectionLimit::of(2);
        let (first, second) = (limit.take().await.unwrap(), limit.take().await.unwrap());
        second.handle.enter(Phase::Responding);
        let evict = first.evict.clone();
        let leaving = tokio::spawn(async move {
            evict.notified().await;
            drop(first);
        });
        let third = limit.take().await.unwrap();
        leaving.await.unwrap();
        third.handle.enter(Phase::Responding);
        let full = tokio::time::timeout(RETRY_INTERVAL * 3, limit.take()).await;
        assert!(full.is_err(), "both wait for their answers");
        drop(second);
        assert!(limit.take().await.is_some());
    }
}
