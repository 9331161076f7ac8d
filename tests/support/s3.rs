//! An object store that speaks the protocol of S3 and checks signatures, on a folder of the test.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::http_client;

/// The credentials that the server takes, and that must be nowhere else.
pub const ACCESS_KEY: &str = "AKIDTESTSTORE";
pub const SECRET_KEY: &str = "store-secret-9f2c7d";
pub const BUCKET: &str = "media";

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// It is answered with this status.
    Status(u16),
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<(Method, String)>>,
    /// The next requests with a method meet these.
    faults: Mutex<Vec<(Method, StoreFault)>>,
}

/// See the module's documentation.
pub struct S3Server {
    runtime: Option<Runtime>,
    dir: TempDir,
    port: u16,
    shared: Arc<Shared>,
}

impl S3Server {
    pub fn start() -> S3Server {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        runtime.spawn(serve(listener, service, shared.clone()));
        S3Server { runtime: Some(runtime), dir, port, shared }
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Gives a client its credentials, as every client of such a store takes them.
    pub fn give_to(&self, command: &mut Command) {
        command
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", self.base_url());
    }

    /// The objects, with their content.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let root = self.dir.path().join(BUCKET);
        let mut found = BTreeMap::new();
        let mut open = vec![root.clone()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if !path.file_name().unwrap().to_string_lossy().starts_with('.') {
                    let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
        found
    }

    /// Where an object lies on disk.
    pub fn path_of(&self, object: &str) -> PathBuf {
        self.dir.path().join(BUCKET).join(object)
    }

    /// How many requests with this method came.
    pub fn requests(&self, method: &Method) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|(seen, _)| seen == method).count()
    }

    /// The next requests with this method meet this, as often.
    pub fn fault(&self, method: &Method, fault: StoreFault, times: usize) {
        let mut faults = self.shared.faults.lock().unwrap();
        faults.extend(std::iter::repeat_n((method.clone(), fault), times));
    }

    /// Nothing goes wrong from now on.
    pub fn mend(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// Fetches an address as the service would: with nothing but the address.
    pub fn fetch(&self, address: &str) -> (u16, Vec<u8>) {
        let http = http_client().build().unwrap();
        self.runtime.as_ref().unwrap().block_on(async {
            let answer = http.get(address).send().await.unwrap();
            (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
        })
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, service: S3Service, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (service, shared) = (service.clone(), shared.clone());
        let answer = service_fn(move |request: Request<Incoming>| {
            let (service, shared) = (service.clone(), shared.clone());
            async move {
                let method = request.method().clone();
                shared.seen.lock().unwrap().push((method.clone(), request.uri().path().to_owned()));
                let fault = {
                    let mut faults = shared.faults.lock().unwrap();
                    let at = faults.iter().position(|(on, _)| *on == method);
                    at.map(|at| faults.remove(at).1)
                };
                if let Some(StoreFault::Status(status)) = fault {
                    let body = "<Error><Code>SlowDown</Code><Message>slow down</Message></Error>";
                    let answer = Response::builder().status(StatusCode::from_u16(status).unwrap());
                    return Ok(answer.body(Body::from(body.to_owned())).unwrap());
                }
                hyper::service::Service::call(&service, request).await
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}
