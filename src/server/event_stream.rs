//! Events that keep open pages current. However many pages are open, one task asks the engine once a second, and only
//! while somebody listens; all get the same bytes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::domain::ids::BatchName;
use crate::server::connections::LongLived;
use crate::server::handlers::HandlerError;

/// Streams that are served at once, beside the connections of requests.
pub(super) const STREAMS_MAX: usize = 256;
/// Between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);
/// After so many snapshots without news a stream says that it is there.
const QUIET_MAX: u32 = 15;

/// A page that events are about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Overview,
    Batch(BatchName),
}

/// What the pages show at one moment, as events.
#[derive(Debug, Default)]
struct Snapshot {
    number: u64,
    parts: BTreeMap<Topic, Bytes>,
}

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct EventStreams(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    permits: Arc<Semaphore>,
    /// Nothing when there was no answer: the streams end.
    latest: watch::Sender<Option<Arc<Snapshot>>>,
    listeners: Mutex<Listeners>,
    snapshots: AtomicU64,
    interval: Duration,
}

#[derive(Debug, Default)]
struct Listeners {
    topics: BTreeMap<Topic, usize>,
    is_served: bool,
}

/// One page that listens.
#[derive(Debug)]
struct Listener {
    inside: Arc<Inside>,
    topic: Topic,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.inside.listeners();
        if let Some(count) = listeners.topics.get_mut(&self.topic) {
            *count -= 1;
            if *count == 0 {
                listeners.topics.remove(&self.topic);
            }
        }
    }
}

impl Inside {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventStreams {
    pub(super) fn new() -> EventStreams {
        EventStreams::of(STREAMS_MAX, INTERVAL)
    }

    fn of(streams: usize, interval: Duration) -> EventStreams {
        EventStreams(Arc::new(Inside {
            permits: Arc::new(Semaphore::new(streams)),
            latest: watch::Sender::new(None),
            listeners: Mutex::default(),
            snapshots: AtomicU64::new(0),
            interval,
        }))
    }

    /// A stream of events about a page; nothing where too many are open. `render` makes what the pages of some topics show,
    /// as JSON: later streams use the same one, until the last stream has ended. This one ends with `until` at the latest.
    pub(super) fn listen<F, R>(
        &self,
        topic: Topic,
        until: impl Future<Output = ()> + Send + 'static,
        render: F,
    ) -> Option<Response>
    where
        F: Fn(Vec<Topic>) -> R + Send + 'static,
        R: Future<Output = Result<BTreeMap<Topic, String>, HandlerError>> + Send + 'static,
    {
        let permit = self.0.permits.clone().try_acquire_owned().ok()?;
        let latest = self.0.latest.subscribe();
        let mut listeners = self.0.listeners();
        *listeners.topics.entry(topic.clone()).or_default() += 1;
        if !std::mem::replace(&mut listeners.is_served, true) {
            tokio::spawn(serve(self.0.clone(), render));
        }
        drop(listeners);
        let listener = Listener { inside: self.0.clone(), topic, _permit: permit };
        let events = futures_util::stream::unfold((listener, latest, Bytes::new()), next_event);
        let events = events.take_until(Box::pin(until));
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
            (header::CONNECTION, "close"),
        ];
        Some((headers, axum::Extension(LongLived), Body::from_stream(events)).into_response())
    }
}

type Listening = (Listener, watch::Receiver<Option<Arc<Snapshot>>>, Bytes);

/// The next event of one stream: what is there by the time its client has read the last one.
async fn next_event(
    (listener, mut latest, shown): Listening,
) -> Option<(Result<Bytes, Infallible>, Listening)> {
    let mut quiet = 0;
    loop {
        latest.changed().await.ok()?;
        let snapshot = latest.borrow_and_update().clone()?;
        match snapshot.parts.get(&listener.topic) {
            Some(part) if *part != shown => {
                let event = Bytes::from([format!("id: {}\n", snapshot.number).as_bytes(), part].concat());
                return Some((Ok(event), (listener, latest, part.clone())));
            }
            _ => quiet += 1,
        }
        if quiet >= QUIET_MAX {
            // A client that disconnected without a FIN is detected by this write.
            return Some((Ok(Bytes::from_static(b":\n\n")), (listener, latest, shown)));
        }
    }
}

/// Makes snapshots until the last stream has ended.
async fn serve<F, R>(inside: Arc<Inside>, render: F)
where
    F: Fn(Vec<Topic>) -> R + Send + 'static,
    R: Future<Output = Result<BTreeMap<Topic, String>, HandlerError>> + Send,
{
    loop {
        let topics = {
            let mut listeners = inside.listeners();
            if listeners.topics.is_empty() {
                listeners.is_served = false;
                return;
            }
            listeners.topics.keys().cloned().collect()
        };
        let rendered = render(topics).await;
        let number = inside.snapshots.fetch_add(1, Ordering::Relaxed) + 1;
        let is_over = rendered.is_err();
        let snapshot = rendered.map(|parts| {
            let event = |json: String| Bytes::from(format!("event: fragments\ndata: {json}\n\n"));
            let parts = parts.into_iter().map(|(topic, json)| (topic, event(json))).collect();
            Arc::new(Snapshot { number, parts })
        });
        if is_over {
            // Before the streams end: a page that begins to listen from now on gets a new stream.
            inside.listeners().is_served = false;
            inside.latest.send_replace(None);
            return;
        }
        inside.latest.send_replace(snapshot.ok());
        // Also before it ends: a page that is reloaded again and again makes no more snapshots.
        tokio::time::sleep(inside.interval).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    type Rendered = std::future::Ready<Result<BTreeMap<Topic, String>, HandlerError>>;

    fn count(count: Arc<AtomicU64>) -> impl Fn(Vec<Topic>) -> Rendered + Send + 'static {
        move |topics| {
            let n = count.fetch_add(1, Ordering::Relaxed) + 1;
            std::future::ready(Ok(topics
                .into_iter()
                .map(|topic| (topic, format!("{{\"n\":{n}}}")))
                .collect()))
        }
    }

    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn fifty_pages_ask_as_often_as_one_and_nobody_asks_when_none_is_open() {
        let (streams, asked) = (EventStreams::of(50, SHORT), Arc::new(AtomicU64::new(0)));
        let listen = || streams.listen(Topic::Overview, pending(), count(asked.clone()));
        let mut pages: Vec<_> = (0..50).map(|_| listen().unwrap().into_body().into_data_stream()).collect();
        assert!(listen().is_none(), "that is one too many");
        let mut seen = BTreeMap::new();
        for page in (0..3).flat_map(|_| 0..50) {
            let event = String::from_utf8(pages[page].next().await.unwrap().unwrap().to_vec()).unwrap();
            let (id, rest) = event.split_once('\n').unwrap();
            let known = seen.entry(id.to_owned()).or_insert_with(|| rest.to_owned());
            assert_eq!(known, rest, "all get the same bytes");
        }
        let (asked_for_all, snapshots) =
            (asked.load(Ordering::Relaxed), streams.0.snapshots.load(Ordering::Relaxed));
        assert!(
            snapshots >= seen.len() as u64 && asked_for_all - snapshots <= 1,
            "{asked_for_all} {snapshots}"
        );
        assert_eq!(seen["id: 2"], "event: fragments\ndata: {\"n\":2}\n\n");
        drop(pages);
        while streams.0.listeners().is_served {
            tokio::task::yield_now().await;
        }
        let asked_last = asked.load(Ordering::Relaxed);
        let mut again = listen().unwrap().into_body().into_data_stream();
        let event = again.next().await.unwrap().unwrap();
        assert!(event.starts_with(format!("id: {}\n", asked_last + 1).as_bytes()), "{event:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[allow(clippy::await_holding_lock, reason = "the other thread is to wait for it")]
    async fn who_listens_as_the_streams_end_is_served_anew() {
        let streams = EventStreams::of(2, SHORT);
        let (fail, failed) = tokio::sync::oneshot::channel::<()>();
        let failed = Mutex::new(Some(failed));
        let render = move |_| {
            let failed = failed.lock().unwrap().take();
            async move {
                if let Some(failed) = failed {
                    let _ = failed.await;
                }
                Err(HandlerError::NoOutputStore)
            }
        };
        let mut page =
            streams.listen(Topic::Overview, pending(), render).unwrap().into_body().into_data_stream();
        let listeners = streams.0.listeners();
        fail.send(()).unwrap();
        let early = tokio::time::timeout(SHORT * 10, page.next()).await;
        assert!(early.is_err(), "the stream has ended, and another one would not be served");
        drop(listeners);
        assert!(page.next().await.is_none());
        assert!(!streams.0.listeners().is_served);
    }

    #[tokio::test]
    async fn a_page_that_nothing_changes_on_gets_nothing_but_a_sign_of_life() {
        let streams = EventStreams::of(1, SHORT);
        let same = |topics: Vec<Topic>| {
            std::future::ready(Ok(topics.into_iter().map(|topic| (topic, "{}".to_owned())).collect()))
        };
        let mut page =
            streams.listen(Topic::Overview, pending(), same).unwrap().into_body().into_data_stream();
        assert!(page.next().await.unwrap().unwrap().starts_with(b"id: 1\n"));
        assert_eq!(page.next().await.unwrap().unwrap(), ":\n\n");
    }
}
