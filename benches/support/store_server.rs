//! An object store that answers at once in the protocol of S3 and keeps nothing of an object but its size and what is said
//! of it: it shall never be the limit. Signatures are not looked at.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, LAST_MODIFIED};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Before the names of what is said of an object.
const METADATA: &str = "x-amz-meta-";

#[derive(Default)]
struct Shared {
    objects: Mutex<HashMap<String, Object>>,
    /// Uploads in parts, by the name of their object.
    begun: Mutex<HashMap<String, Object>>,
}

#[derive(Default, Clone)]
struct Object {
    bytes: u64,
    headers: HeaderMap,
}

/// Serves until it is killed; prints its address first.
pub fn serve() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = stream.set_nodelay(true);
            let shared = shared.clone();
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(answer(&shared, request).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, mut body) = request.into_parts();
    let (name, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default());
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return plain(StatusCode::BAD_REQUEST, "") };
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
    }
    // A client that signs each chunk says how long they are without their signatures.
    let decoded = head.headers.get("x-amz-decoded-content-length").and_then(|text| text.to_str().ok());
    bytes = decoded.and_then(|text| text.parse().ok()).unwrap_or(bytes);
    let said = || {
        let kept = |name: &str| name.starts_with(METADATA) || name == CONTENT_TYPE.as_str();
        let headers = head.headers.iter().filter(|(name, _)| kept(name.as_str()));
        headers.map(|(name, value)| (name.clone(), value.clone())).collect::<HeaderMap>()
    };
    match (&head.method, query) {
        (&Method::PUT, query) if query.contains("partNumber=") => {
            shared.begun.lock().unwrap().entry(name).or_default().bytes += bytes;
            tagged(Response::builder())
        }
        (&Method::PUT, _) => {
            shared.objects.lock().unwrap().insert(name, Object { bytes, headers: said() });
            tagged(Response::builder())
        }
        (&Method::POST, query) if query.starts_with("uploads") => {
            shared.begun.lock().unwrap().insert(name.clone(), Object { bytes: 0, headers: said() });
            let id = format!("<UploadId>{}</UploadId>", name.len());
            plain(
                StatusCode::OK,
                &format!("<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>"),
            )
        }
        (&Method::POST, _) => {
            let whole = shared.begun.lock().unwrap().remove(&name).unwrap_or_default();
            shared.objects.lock().unwrap().insert(name, whole);
            let tag = "<CompleteMultipartUploadResult><ETag>\"1\"</ETag></CompleteMultipartUploadResult>";
            plain(StatusCode::OK, tag)
        }
        (&Method::HEAD, _) => match shared.objects.lock().unwrap().get(&name) {
            Some(object) => {
                let mut builder = Response::builder().header(CONTENT_LENGTH, object.bytes);
                builder.headers_mut().unwrap().extend(object.headers.clone());
                tagged(builder)
            }
            None => plain(StatusCode::NOT_FOUND, ""),
        },
        _ => plain(StatusCode::NOT_FOUND, "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"),
    }
}

fn tagged(builder: hyper::http::response::Builder) -> Response<Full<Bytes>> {
    let builder = builder.header(ETAG, "\"1\"").header(LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT");
    builder.body(Full::default()).unwrap()
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let builder = Response::builder().status(status).header(CONTENT_TYPE, "application/xml");
    builder.body(Full::from(text.to_owned())).unwrap()
}
