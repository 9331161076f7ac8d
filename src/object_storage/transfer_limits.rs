//! How long a request to a store may take. A transfer goes on as long as it moves, whatever its size: a response ends where
//! nothing came of it for a while, and a request is given the time that its body takes over a slow line.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService, ReqwestConnector,
};
use tokio::time::Sleep;

/// The limits in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransferLimits {
    /// How long nothing may come of a response.
    pub(super) silence: Duration,
    /// How fast a body is sent at least, in bytes a second: the crate does not tell how much of it has left.
    pub(super) least_sent: u64,
    /// How long one request is repeated by itself, with its waits.
    pub(super) retry_for: Duration,
}

impl Default for TransferLimits {
    fn default() -> TransferLimits {
        // Sixteen parts of 8 MiB at once fit through a line of 1 Mbit/s.
        let (silence, retry_for) = (Duration::from_secs(120), Duration::from_secs(30));
        TransferLimits { silence, least_sent: 8 * 1024, retry_for }
    }
}

impl TransferLimits {
    /// How long a request with so large a body may wait for the head of its response.
    fn until_answered(self, body_bytes: usize) -> Duration {
        let milliseconds = (body_bytes as u64).saturating_mul(1000) / self.least_sent.max(1);
        self.silence.saturating_add(Duration::from_millis(milliseconds))
    }
}

/// Makes the crate's HTTP clients, with these limits.
#[derive(Debug)]
pub(super) struct LimitedConnector(pub(super) TransferLimits);

impl HttpConnector for LimitedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(&options.clone().with_timeout_disabled())?;
        Ok(HttpClient::new(LimitedClient { client, limits: self.0 }))
    }
}

#[derive(Debug)]
struct LimitedClient {
    client: HttpClient,
    limits: TransferLimits,
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl HttpService for LimitedClient {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Boxed<'a, Result<HttpResponse, HttpError>>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let limit = self.limits.until_answered(request.body().content_length());
            let answered = tokio::time::timeout(limit, self.client.execute(request)).await;
            let (head, body) = answered.map_err(|_| silent(limit))??.into_parts();
            let body = LimitedBody { body, silence: self.limits.silence, waiting: None };
            Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
        })
    }
}

/// A response that ends with an error where nothing comes of it for too long.
struct LimitedBody {
    body: HttpResponseBody,
    silence: Duration,
    /// Set while something is waited for.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.waiting = None;
            return Poll::Ready(frame);
        }
        let silence = self.silence;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(silence)));
        waiting.as_mut().poll(context).map(|()| Some(Err(silent(silence))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The store was silent for so long.
#[derive(Debug)]
struct Silent(Duration);

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timed out: nothing came for {} s", self.0.as_secs())
    }
}

impl std::error::Error for Silent {}

fn silent(limit: Duration) -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, Silent(limit))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use tempfile::TempDir;
    use url::Url;

    use super::*;
    use crate::object_storage::bucket::Bucket;
    use crate::object_storage::{Expected, Replaces};

    /// What the servers of these tests have, and its SHA-256.
    const CONTENT: &[u8] = b"abc";
    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const TICK: Duration = Duration::from_millis(150);

    /// Waits, as a slow store does.
    fn wait(time: Duration) {
        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
        // Nothing is ever sent.
        let _ = receiver.recv_timeout(time);
    }

    /// A store that answers each request like this, and what it was asked for.
    fn store(answer: fn(&str, &mut TcpStream)) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, seen) = (stream.unwrap(), seen.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                    let head = head.to_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                    reader.read_exact(&mut body).unwrap();
                    seen.lock().unwrap().push(head.clone());
                    answer(&head, &mut stream);
                });
            }
        });
        (address, asked)
    }

    fn bucket(endpoint: &str, home: &TempDir, limits: TransferLimits) -> Bucket {
        crate::api::install_tls_provider();
        let folder = home.path().join(".aws");
        fs::create_dir(&folder).unwrap();
        let config = format!("[default]\nregion = us-east-1\nendpoint_url = {endpoint}\n");
        fs::write(folder.join("config"), config).unwrap();
        fs::write(
            folder.join("credentials"),
            "[default]\naws_access_key_id = A\naws_secret_access_key = S\n",
        )
        .unwrap();
        let home = home.path().display().to_string();
        let environment = move |name: &str| (name == "HOME").then(|| home.clone());
        let url = Url::parse("s3://media/a").unwrap();
        Bucket::open(&url, &environment, None, limits).unwrap()
    }

    fn limits() -> TransferLimits {
        TransferLimits { silence: TICK * 2, least_sent: 1 << 20, retry_for: Duration::ZERO }
    }

    /// Sends one byte of what is asked for, a moment later, and then says nothing more.
    fn one_byte(head: &str, stream: &mut TcpStream) {
        let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
        let start: usize = range.map_or(0, |range| range.trim_end_matches('-').parse().unwrap());
        let left = &CONTENT[start..];
        let (status, last) = (if start == 0 { "200 OK" } else { "206 Partial Content" }, CONTENT.len() - 1);
        let length = left.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\netag: \"1\"\r\n\
             last-modified: Fri, 27 Nov 2026 10:00:00 GMT\r\ncontent-range: bytes {start}-{last}/3\r\n\r\n"
        )
        .unwrap();
        wait(TICK);
        stream.write_all(&left[..1]).unwrap();
        wait(TICK * 40);
    }

    #[tokio::test]
    async fn a_transfer_that_falls_silent_goes_on_from_there() {
        let (endpoint, asked) = store(one_byte);
        let home = tempfile::tempdir().unwrap();
        let mut reader = bucket(&endpoint, &home, limits()).get("x").await.unwrap();
        let mut content = Vec::new();
        while let Some(chunk) = reader.next().await.unwrap() {
            content.extend_from_slice(&chunk);
        }
        assert_eq!(content, CONTENT);
        let asked = asked.lock().unwrap().clone();
        let ranges: Vec<_> = asked.iter().filter_map(|head| head.split_once("\r\nrange: ")).collect();
        let ranges: Vec<&str> = ranges.iter().filter_map(|(_, rest)| rest.lines().next()).collect();
        assert_eq!(ranges, ["bytes=1-", "bytes=2-"], "{asked:?}");
        assert!(asked[1].contains("if-match: \"1\""), "another object is not taken for the rest: {asked:?}");
    }

    #[tokio::test]
    async fn a_store_that_says_nothing_is_not_waited_for() {
        let (endpoint, _) = store(|_, _| wait(TICK * 40));
        let home = tempfile::tempdir().unwrap();
        let found = bucket(&endpoint, &home, limits()).get("x").await;
        let error = found.err().unwrap();
        assert!(crate::object_storage::error_text::is_cut(&error), "{error:?}");
    }

    #[tokio::test]
    async fn an_upload_has_the_time_that_its_size_takes() {
        let (endpoint, _) = store(|_, stream| {
            wait(TICK * 4);
            stream.write_all(b"HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 0\r\n\r\n").unwrap();
        });
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, CONTENT).unwrap();
        let put = async |bucket: &Bucket, file: &Path| {
            let expected = Expected { bytes: 3, sha256: SHA256, content_type: "image/png" };
            bucket.put(("x", "s3://media/a/x".to_owned()), file, expected, &[], Replaces::Any).await
        };
        let slow_line = TransferLimits { least_sent: 1, ..limits() };
        put(&bucket(&endpoint, &home, slow_line), &file).await.unwrap();
        let other = tempfile::tempdir().unwrap();
        put(&bucket(&endpoint, &other, limits()), &file).await.unwrap_err();
        let part = TransferLimits::default().until_answered(8 << 20);
        assert!(part > Duration::from_secs(1000), "8 MiB at 8 KiB/s: {part:?}");
    }
}
