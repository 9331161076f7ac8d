//! Connections of a control server: bounded in number, in time and in patience, so that a client that
//! hangs or floods harms nobody.
//!
//! Every new connection is let in. When all places are taken, the one leaves that has kept the server waiting the
//! longest: first among those that have asked for nothing yet, then among those that send or read slowly. Whoever
//! waits for an answer stays.

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
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may last, whatever happens on it.
const CONNECTION_MAX: Duration = Duration::from_secs(15 * 60);
/// Whoever has sent so many bytes gets on.
const STRIDE_BYTES: usize = 16 * 1024;
/// When nobody can be sent away: between two looks for somebody who can.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The places there are.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    room: Arc<Mutex<Room>>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Place {
    seat: Arc<Seat>,
    leave: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new() -> Places {
        Places::of(CONNECTIONS_MAX)
    }

    fn of(number: usize) -> Places {
        Places { free: Arc::new(Semaphore::new(number)), room: Arc::default() }
    }

    /// A place for a connection that has come: a free one, or that of whoever keeps the server waiting. Nothing once
    /// the server ends.
    pub(super) async fn take(&self) -> Option<Place> {
        loop {
            let free = self.free.clone();
            let permit = match self.free.clone().try_acquire_owned() {
                Ok(permit) => Ok(permit),
                Err(_) => {
                    locked(&self.room).send_one_away();
                    match tokio::time::timeout(LOOK_INTERVAL, free.acquire_owned()).await {
                        Ok(permit) => permit,
                        // Everybody waits for an answer.
                        Err(_) => continue,
                    }
                }
            };
            let (id, leave) = locked(&self.room).welcome();
            let seat = Arc::new(Seat { room: self.room.clone(), id });
            return Some(Place { seat, leave, _permit: permit.ok()? });
        }
    }
}

/// Who is served.
#[derive(Debug, Default)]
struct Room {
    /// Counts what gets on, in the place of a clock.
    turn: u64,
    guests: BTreeMap<u64, Guest>,
}

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// The head of a request is waited for.
    Asking,
    /// Its body is.
    Sending,
    /// The client waits for its answer.
    Waiting,
}

#[derive(Debug)]
struct Guest {
    doing: Doing,
    /// Whether it leaves its answer unread.
    is_full: bool,
    /// The turn at which it got on last.
    moved: u64,
    /// Bytes that it has sent since.
    bytes: usize,
    is_leaving: bool,
    leave: Arc<Notify>,
}

impl Guest {
    /// What the server waits for it to do; nothing while it waits for the server.
    fn keeps_waiting(&self) -> Option<Doing> {
        match self.doing {
            Doing::Waiting => self.is_full.then_some(Doing::Sending),
            doing => Some(doing),
        }
    }
}

impl Room {
    fn welcome(&mut self) -> (u64, Arc<Notify>) {
        self.turn += 1;
        let leave = Arc::new(Notify::new());
        let guest = Guest {
            doing: Doing::Asking,
            is_full: false,
            moved: self.turn,
            bytes: 0,
            is_leaving: false,
            leave: leave.clone(),
        };
        self.guests.insert(self.turn, guest);
        (self.turn, leave)
    }

    fn send_one_away(&mut self) {
        let waited_for = self.guests.values_mut().filter(|guest| !guest.is_leaving);
        let waited_for = waited_for.filter_map(|guest| Some((guest.keeps_waiting()?, guest.moved, guest)));
        if let Some((doing, _, guest)) = waited_for.min_by_key(|(doing, moved, _)| (*doing, *moved)) {
            tracing::debug!(?doing, "a control connection gives its place to another");
            guest.is_leaving = true;
            guest.leave.notify_one();
        }
    }
}

fn locked(room: &Mutex<Room>) -> MutexGuard<'_, Room> {
    room.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guest's own entry in the room, which ends with it.
#[derive(Debug)]
struct Seat {
    room: Arc<Mutex<Room>>,
    id: u64,
}

impl Seat {
    /// Does something else from now on.
    fn does(&self, doing: Doing) {
        let mut room = locked(&self.room);
        room.turn += 1;
        let turn = room.turn;
        if let Some(guest) = room.guests.get_mut(&self.id) {
            (guest.doing, guest.moved, guest.bytes) = (doing, turn, 0);
        }
    }

    fn has_sent(&self, bytes: usize) {
        let mut room = locked(&self.room);
        let turn = room.turn + 1;
        let Some(guest) = room.guests.get_mut(&self.id) else { return };
        guest.bytes += bytes;
        if guest.bytes >= STRIDE_BYTES {
            (guest.moved, guest.bytes) = (turn, 0);
            room.turn = turn;
        }
    }

    fn is_full(&self, is_full: bool) {
        if let Some(guest) = locked(&self.room).guests.get_mut(&self.id) {
            guest.is_full = is_full;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        locked(&self.room).guests.remove(&self.id);
    }
}

/// Serves one connection to its end.
pub(super) fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    place: Place,
) {
    tokio::spawn(async move {
        let router = router.layer(middleware::from_fn_with_state(place.seat.clone(), note_what_it_does));
        let stream = Watched { stream, seat: place.seat.clone() };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_PATIENCE)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "a control connection broke");
            },
            () = place.leave.notified() => {}
            () = tokio::time::sleep(CONNECTION_MAX) => {
                tracing::debug!("a control connection was closed: it lasted too long");
            }
        }
    });
}

async fn note_what_it_does(State(seat): State<Arc<Seat>>, request: Request, next: Next) -> Response {
    let request = request.map(|body| {
        if body.is_end_stream() {
            seat.does(Doing::Waiting);
            return body;
        }
        seat.does(Doing::Sending);
        then(body, seat.clone(), Doing::Waiting)
    });
    let response = next.run(request).await;
    response.map(|body| {
        // What is there as a whole is on its way now; of many lines some are still to be made.
        if body.size_hint().exact().is_some() {
            seat.does(Doing::Asking);
            return body;
        }
        seat.does(Doing::Waiting);
        then(body, seat.clone(), Doing::Asking)
    })
}

/// The same body, with a note of what comes after its end.
fn then(body: Body, seat: Arc<Seat>, doing: Doing) -> Body {
    let end = stream::poll_fn(move |_| {
        seat.does(doing);
        Poll::Ready(None)
    });
    Body::from_stream(body.into_data_stream().chain(end))
}

/// A stream that tells how its client gets on.
#[derive(Debug)]
struct Watched<S> {
    stream: S,
    seat: Arc<Seat>,
}

impl<S> Watched<S> {
    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.seat.is_full(written.is_pending());
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.seat.has_sent(bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
    fn sent_away(room: &mut Room, number: usize) -> Vec<u64> {
        let mut order = Vec::new();
        for _ in 0..number {
            room.send_one_away();
            order.extend(room.guests.iter().filter(|(_, guest)| guest.is_leaving).map(|(id, _)| *id));
            room.guests.retain(|_, guest| !guest.is_leaving);
        }
        order
    }

    #[test]
    fn who_keeps_the_server_waiting_the_longest_leaves_first() {
        let room: Arc<Mutex<Room>> = Arc::default();
        let seats: Vec<Arc<Seat>> =
            (0..6).map(|_| Arc::new(Seat { room: room.clone(), id: locked(&room).welcome().0 })).collect();
        seats[0].does(Doing::Waiting);
        seats[1].does(Doing::Sending);
        seats[2].does(Doing::Sending);
        // The first of the two gets on.
        seats[1].has_sent(STRIDE_BYTES);
        seats[2].has_sent(10);
        // And one has an answer that it does not read.
        seats[3].does(Doing::Waiting);
        seats[3].is_full(true);
        let ids: Vec<u64> = seats.iter().map(|seat| seat.id).collect();
        let order = sent_away(&mut locked(&room), 6);
        assert_eq!(order, [ids[4], ids[5], ids[2], ids[1], ids[3]], "the one that waits stays");
    }

    #[tokio::test]
    async fn a_place_is_found_as_long_as_not_everybody_waits_for_an_answer() {
        let places = Places::of(2);
        let (first, second) = (places.take().await.unwrap(), places.take().await.unwrap());
        second.seat.does(Doing::Waiting);
        let leave = first.leave.clone();
        let leaving = tokio::spawn(async move {
            leave.notified().await;
            drop(first);
        });
        let third = places.take().await.unwrap();
        leaving.await.unwrap();
        third.seat.does(Doing::Waiting);
        let full = tokio::time::timeout(LOOK_INTERVAL * 3, places.take()).await;
        assert!(full.is_err(), "both wait for their answers");
        drop(second);
        assert!(places.take().await.is_some());
    }
}
