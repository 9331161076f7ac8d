//! Connection limits of the control server, so that a client that hangs or floods harms nobody: a semaphore bounds the
//! number of connections, hyper the time for the head of a request, tower-http the time for the next bytes of its body.
//!
//! Ours is what happens at the limit. A new connection is accepted, and the one is closed that has kept the server
//! waiting the longest: first among those that have sent no request yet, then among those that send or read slowly. A
//! client that waits for its response is never closed.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutError};

/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take to send the next bytes of a body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may last. It lasts longer only for a client that waits for its response: a command may take hours.
const CONNECTION_LIFETIME_MAX: Duration = Duration::from_secs(15 * 60);
/// So many bytes of a request's body count as progress.
const PROGRESS_BYTES: usize = 16 * 1024;
/// Between two tries to close a connection, when none can be closed.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Marks a response that lasts as long as its client listens, such as a stream of events. It has a limit of its own, and
/// its connection counts for none here.
#[derive(Debug, Clone, Copy)]
pub(super) struct LongLived;

/// Serves connections, a limited number at once.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    body_timeout: Duration,
    lifetime: Duration,
    table: Arc<Mutex<ConnectionTable>>,
}

impl ConnectionLimit {
    pub(super) fn new() -> ConnectionLimit {
        ConnectionLimit::of(CONNECTIONS_MAX, BODY_TIMEOUT)
    }

    fn of(connections: usize, body_timeout: Duration) -> ConnectionLimit {
        ConnectionLimit {
            permits: Arc::new(Semaphore::new(connections)),
            body_timeout,
            lifetime: CONNECTION_LIFETIME_MAX,
            table: Arc::default(),
        }
    }

    /// Serves a connection in a task of its own, once there is a permit for it.
    pub(super) async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        router: Router,
    ) {
        let Some(permit) = self.permit().await else { return };
        // Held until the connection is in the table: its task may begin at once.
        let mut table = lock(&self.table);
        let permit = Arc::new(Mutex::new(Some(permit)));
        let activity = Activity { table: self.table.clone(), id: table.next_turn(), permit: permit.clone() };
        let id = activity.id;
        let router = router
            .layer(RequestBodyTimeoutLayer::new(self.body_timeout))
            .layer(middleware::from_fn_with_state(activity.clone(), track_phase));
        let lifetime = self.lifetime;
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        let task = tokio::spawn(async move {
            let _permit = permit;
            let mut connection = std::pin::pin!(connection);
            let mut waited = false;
            loop {
                match tokio::time::timeout(lifetime, connection.as_mut()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => break tracing::debug!(%error, "control connection failed"),
                    Err(_) => {
                        // What was waited for until a moment ago is still on its way.
                        let waits = activity.is_responding();
                        if !std::mem::replace(&mut waited, waits) && !waits {
                            break tracing::debug!("control connection closed: it lasted too long");
                        }
                    }
                }
            }
        });
        table.insert(id, task.abort_handle());
    }

    /// A free permit, or that of the connection that keeps the server waiting the longest. None once the server ends.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = self.permits.clone().try_acquire_owned() {
                return Some(permit);
            }
            lock(&self.table).evict_one();
            match tokio::time::timeout(RETRY_INTERVAL, self.permits.clone().acquire_owned()).await {
                Ok(permit) => return permit.ok(),
                // Every client waits for a response.
                Err(_) => continue,
            }
        }
    }
}

/// What a connection is doing. Those that compare lower are closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The head of a request is waited for.
    ReadingHead,
    /// The client sends a body, or reads a response that is made as it is read.
    Transferring,
    /// The client waits for its response.
    Responding,
}

#[derive(Debug)]
struct Connection {
    phase: Phase,
    /// The turn at which it entered its phase, or sent [`PROGRESS_BYTES`] more.
    last_progress: u64,
    /// Received since then.
    bytes: usize,
    task: AbortHandle,
}

/// The open connections.
#[derive(Debug, Default)]
struct ConnectionTable {
    /// A logical clock: counts progress of any connection.
    turn: u64,
    connections: BTreeMap<u64, Connection>,
}

impl ConnectionTable {
    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn insert(&mut self, id: u64, task: AbortHandle) {
        self.connections.retain(|_, connection| !connection.task.is_finished());
        let connection = Connection { phase: Phase::ReadingHead, last_progress: id, bytes: 0, task };
        self.connections.insert(id, connection);
    }

    fn evict_one(&mut self) {
        let open = self.connections.iter().filter(|(_, connection)| !connection.task.is_finished());
        let waited_for = open.filter(|(_, connection)| connection.phase != Phase::Responding);
        let first = waited_for.min_by_key(|(_, connection)| (connection.phase, connection.last_progress));
        let Some(id) = first.map(|(id, _)| *id) else { return };
        if let Some(Connection { phase, task, .. }) = self.connections.remove(&id) {
            tracing::debug!(?phase, "control connection closed: too many connections");
            task.abort();
        }
    }
}

fn lock(table: &Mutex<ConnectionTable>) -> MutexGuard<'_, ConnectionTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records what one connection is doing.
#[derive(Debug, Clone)]
struct Activity {
    table: Arc<Mutex<ConnectionTable>>,
    id: u64,
    /// Its place among the connections, until it gives that up.
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Activity {
    /// Leaves its place to others: it is not counted and not closed for them any more.
    fn leave(&self) {
        lock(&self.table).connections.remove(&self.id);
        drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether its client waits for a response.
    fn is_responding(&self) -> bool {
        let table = lock(&self.table);
        table.connections.get(&self.id).is_some_and(|connection| connection.phase == Phase::Responding)
    }

    fn enter(&self, phase: Phase) {
        let mut table = lock(&self.table);
        let turn = table.next_turn();
        if let Some(connection) = table.connections.get_mut(&self.id) {
            (connection.phase, connection.last_progress, connection.bytes) = (phase, turn, 0);
        }
    }

    fn received(&self, bytes: usize) {
        let mut table = lock(&self.table);
        let turn = table.turn + 1;
        let Some(connection) = table.connections.get_mut(&self.id) else { return };
        connection.bytes += bytes;
        if connection.bytes >= PROGRESS_BYTES {
            (connection.last_progress, connection.bytes) = (turn, 0);
            table.turn = turn;
        }
    }
}

async fn track_phase(State(activity): State<Activity>, request: Request, next: Next) -> Response {
    let request = request.map(|body| {
        if body.is_end_stream() {
            activity.enter(Phase::Responding);
            return body;
        }
        activity.enter(Phase::Transferring);
        let activity = activity.clone();
        observed(body, move |polled| match polled {
            Poll::Ready(Some(bytes)) => activity.received(bytes),
            Poll::Ready(None) => activity.enter(Phase::Responding),
            Poll::Pending => {}
        })
    });
    let response = next.run(request).await;
    if response.extensions().get::<LongLived>().is_some() {
        activity.leave();
        return response;
    }
    response.map(|body| {
        // What is there as a whole is on its way now; of many lines some are still to be made.
        if body.size_hint().exact().is_some() {
            activity.enter(Phase::ReadingHead);
            return body;
        }
        activity.enter(Phase::Responding);
        // hyper asks for more when the client has read enough of what there is.
        observed(body, move |polled| {
            activity.enter(match polled {
                Poll::Ready(Some(_)) => Phase::Transferring,
                Poll::Ready(None) => Phase::ReadingHead,
                Poll::Pending => Phase::Responding,
            });
        })
    })
}

/// The same body; `observe` is called with the length of each chunk, and at the end.
fn observed(body: Body, observe: impl Fn(Poll<Option<usize>>) + Send + 'static) -> Body {
    let mut chunks = body.into_data_stream();
    Body::from_stream(stream::poll_fn(move |context| {
        let polled = chunks.poll_next_unpin(context);
        observe(match &polled {
            Poll::Ready(chunk) => {
                Poll::Ready(chunk.as_ref().map(|chunk| chunk.as_ref().map_or(0, |bytes| bytes.len())))
            }
            Poll::Pending => Poll::Pending,
        });
        polled
    }))
}

/// Whether a body was not read to its end because nothing came for too long.
pub(super) fn is_body_timeout(error: &(dyn Error + 'static)) -> bool {
    let mut error = Some(error);
    while let Some(cause) = error {
        if cause.is::<TimeoutError>() {
            return true;
        }
        error = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use axum::routing::post;

    use super::*;

    fn activity(table: &Arc<Mutex<ConnectionTable>>) -> Activity {
        let mut entries = lock(table);
        let id = entries.next_turn();
        entries.insert(id, tokio::spawn(std::future::pending::<()>()).abort_handle());
        Activity { table: table.clone(), id, permit: Arc::default() }
    }

    #[tokio::test]
    async fn who_keeps_the_server_waiting_the_longest_is_closed_first() {
        let table: Arc<Mutex<ConnectionTable>> = Arc::default();
        let connections: Vec<Activity> = (0..6).map(|_| activity(&table)).collect();
        connections[0].enter(Phase::Responding);
        connections[1].enter(Phase::Transferring);
        connections[2].enter(Phase::Transferring);
        // The first of the two gets on.
        connections[1].received(PROGRESS_BYTES);
        connections[2].received(10);
        // And one has a response that it does not read.
        connections[3].enter(Phase::Responding);
        connections[3].enter(Phase::Transferring);
        let mut order = Vec::new();
        for _ in 0..6 {
            let before: Vec<u64> = lock(&table).connections.keys().copied().collect();
            lock(&table).evict_one();
            order.extend(before.into_iter().filter(|id| !lock(&table).connections.contains_key(id)));
        }
        let ids: Vec<u64> = connections.iter().map(|activity| activity.id).collect();
        assert_eq!(order, [ids[4], ids[5], ids[2], ids[1], ids[3]], "the one that waits stays");
    }

    /// A client of a new connection that is served with `router`.
    async fn connect(limit: &ConnectionLimit, router: &Router) -> UnixStream {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        limit.serve(tokio::net::UnixStream::from_std(server).unwrap(), router.clone()).await;
        client
    }

    /// What a client reads until the server closes the connection.
    async fn read_to_end(mut client: UnixStream) -> String {
        let read = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            client.read_to_string(&mut text).map(|_| text)
        });
        read.await.unwrap().unwrap()
    }

    /// A route that tells when a request comes, and answers one for each permit.
    fn answers_when_told() -> (Router, tokio::sync::mpsc::Receiver<()>, Arc<Semaphore>) {
        let (started, starts) = tokio::sync::mpsc::channel(2);
        let finish = Arc::new(Semaphore::new(0));
        let finished = finish.clone();
        let answer = async move || {
            started.send(()).await.unwrap();
            finished.acquire().await.unwrap().forget();
            "done"
        };
        (Router::new().route("/", post(answer)), starts, finish)
    }

    #[tokio::test]
    async fn a_new_connection_is_served_unless_every_client_waits_for_its_response() {
        let limit = ConnectionLimit::of(2, BODY_TIMEOUT);
        let (router, mut starts, finish) = answers_when_told();
        let request = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let idle = connect(&limit, &router).await;
        let mut first = connect(&limit, &router).await;
        first.write_all(request).unwrap();
        starts.recv().await.unwrap();
        let mut second = connect(&limit, &router).await;
        assert_eq!(read_to_end(idle).await, "", "it sent no request, and is closed");
        second.write_all(request).unwrap();
        starts.recv().await.unwrap();
        let third = tokio::time::timeout(RETRY_INTERVAL * 3, connect(&limit, &router)).await;
        assert!(third.is_err(), "both wait for their responses");
        finish.add_permits(2);
        assert!(read_to_end(first).await.ends_with("done"));
        assert!(read_to_end(second).await.ends_with("done"));
        connect(&limit, &router).await;
    }

    #[tokio::test]
    async fn a_response_that_lasts_takes_no_connection_from_others() {
        let limit = ConnectionLimit::of(1, BODY_TIMEOUT);
        let events = async || {
            let body =
                Body::from_stream(stream::iter([Ok::<_, Infallible>("event")]).chain(stream::pending()));
            (axum::Extension(LongLived), body)
        };
        let router =
            Router::new().route("/", axum::routing::get(events)).route("/other", post(async || "done"));
        let mut listening = connect(&limit, &router).await;
        listening.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut listening = tokio::task::spawn_blocking(move || {
            let mut read = [0; 1024];
            while !String::from_utf8_lossy(&read).contains("event") {
                let _ = listening.read(&mut read).unwrap();
            }
            listening
        })
        .await
        .unwrap();
        let mut other = connect(&limit, &router).await;
        other.write_all(b"POST /other HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        assert!(read_to_end(other).await.ends_with("done"));
        listening.set_nonblocking(true).unwrap();
        let still_open = listening.read(&mut [0; 8]).unwrap_err();
        assert_eq!(still_open.kind(), std::io::ErrorKind::WouldBlock, "and it was not closed for the other");
    }

    #[tokio::test]
    async fn a_connection_lasts_as_long_as_its_client_waits_for_a_response() {
        let lifetime = Duration::from_millis(500);
        let limit = ConnectionLimit { lifetime, ..ConnectionLimit::of(2, BODY_TIMEOUT) };
        let (router, mut starts, finish) = answers_when_told();
        let mut waiting = connect(&limit, &router).await;
        waiting.write_all(b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        starts.recv().await.unwrap();
        let mut sending = connect(&limit, &router).await;
        sending.write_all(b"POST / HTTP/1.1\r\n").unwrap();
        assert_eq!(read_to_end(sending).await, "", "it waits for none");
        finish.add_permits(1);
        assert!(read_to_end(waiting).await.ends_with("done"), "it is older");
    }

    /// The response to a body that comes in `chunks`, with a pause in milliseconds before each.
    async fn response(chunks: &'static [(u64, usize)]) -> String {
        let router = Router::new().route(
            "/",
            post(async |body: Body| match axum::body::to_bytes(body, 1 << 20).await {
                Ok(bytes) => format!("{} bytes", bytes.len()),
                Err(error) if is_body_timeout(&error) => "timeout".to_owned(),
                Err(error) => error.to_string(),
            }),
        );
        let limit = ConnectionLimit::of(1, Duration::from_millis(400));
        let mut client = connect(&limit, &router).await;
        let mut writer = client.try_clone().unwrap();
        std::thread::spawn(move || {
            let length: usize = chunks.iter().map(|(_, bytes)| bytes).sum();
            let head = format!("connection: close\r\ncontent-length: {length}\r\n\r\n");
            writer.write_all(format!("POST / HTTP/1.1\r\nhost: x\r\n{head}").as_bytes())?;
            for (pause, bytes) in chunks {
                std::thread::sleep(Duration::from_millis(*pause));
                writer.write_all(&vec![b'x'; *bytes])?;
            }
            Ok::<_, std::io::Error>(())
        });
        let read = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; 1024];
            client.read(&mut buffer).map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
        });
        read.await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_body_may_come_slowly_but_has_to_come() {
        let steady = response(&[(0, 1000), (150, 1000), (150, 1000), (150, 1000)]).await;
        assert!(steady.ends_with("4000 bytes"), "{steady}");
        let stopped = response(&[(0, 100_000), (1500, 1)]).await;
        assert!(stopped.ends_with("timeout"), "{stopped}");
    }
}
