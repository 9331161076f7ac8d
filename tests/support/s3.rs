//! An object store that speaks the protocol of S3 and checks signatures, on a folder of the test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
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

use super::api_key::holds_key;
use super::http_client;

/// The credentials that the server takes, and that must be nowhere else.
pub const ACCESS_KEY: &str = "AKIDTESTSTORE";
pub const SECRET_KEY: &str = "store-secret-9f2c7d";
/// A token of temporary credentials, which must be nowhere else either.
pub const SESSION_TOKEN: &str = "session-token-41c8aa";
pub const BUCKET: &str = "media";
/// What a container and a workload show for temporary credentials, and which role they ask for.
const IDENTITY_TOKEN: &str = "identity-token-77d0f3";
const ROLE: &str = "arn:aws:iam::123456789012:role/callsheet";

/// Whether a text has anything of the store's credentials, or a signature that they made.
pub fn holds_store_secret(text: &[u8]) -> bool {
    [SECRET_KEY, SESSION_TOKEN, IDENTITY_TOKEN, "X-Amz-Signature"]
        .iter()
        .any(|secret| memchr::memmem::find(text, secret.as_bytes()).is_some())
}

/// The credentials of the store were said nowhere and are in no file below a folder, nor is its access key.
#[track_caller]
pub fn store_secrets_are_nowhere(dir: &Path, said: &[&str]) {
    assert!(
        !said.iter().any(|said| holds_store_secret(said.as_bytes())),
        "the store's credentials are said: {said:?}"
    );
    let holds = |path: &PathBuf| {
        fs::read(path).is_ok_and(|bytes| {
            holds_store_secret(&bytes) || memchr::memmem::find(&bytes, ACCESS_KEY.as_bytes()).is_some()
        })
    };
    let found: Vec<_> = super::api_key::files(dir).into_iter().filter(holds).collect();
    assert!(found.is_empty(), "the store's credentials are in {found:?}");
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// It is answered with this status.
    Status(u16),
    /// It is answered with this status and an error of this code.
    Code(u16, &'static str),
    /// The connection is cut before anything is done.
    Cut,
    /// It is done, and the connection is cut before the answer.
    Unanswered,
    /// It is done, and the connection is cut in the middle of the answer; only where the answer is an object of Google's.
    HalfAnswered,
    /// The last byte of what is sent arrives as another one.
    Corrupted,
    /// Both: it is done with another last byte, and the connection is cut before the answer.
    CorruptedAndUnanswered,
}

/// What the next requests with a method meet.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<(Method, StoreFault)>>);

impl Faults {
    pub fn add(&self, method: &Method, fault: StoreFault, times: usize) {
        self.0.lock().unwrap().extend(std::iter::repeat_n((method.clone(), fault), times));
    }

    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    /// What a request with this method meets, which the next one does not meet again.
    pub fn next(&self, method: &Method) -> Option<StoreFault> {
        let mut faults = self.0.lock().unwrap();
        let at = faults.iter().position(|(on, _)| on == method)?;
        Some(faults.remove(at).1)
    }
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<(Method, String)>>,
    faults: Faults,
    /// Whether what is put waits.
    holds_puts: tokio::sync::watch::Sender<bool>,
    /// Where the buckets are.
    root: Mutex<PathBuf>,
    /// When the credentials end that machines are given here.
    role_ends: Mutex<String>,
    is_bucket_gone: AtomicBool,
    /// The beginning of names under which nothing may be put.
    forbidden: Mutex<Option<String>>,
    /// Who asks for what is missing is told that it is forbidden, as without the right to list the bucket.
    hides_what_is_missing: AtomicBool,
    /// Objects of which something is told as bytes that are not ASCII, by their paths.
    told_raw: Mutex<BTreeMap<String, (String, String)>>,
    /// Requests that came with what is the service's alone.
    with_service_secrets: Mutex<Vec<String>>,
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
        *shared.root.lock().unwrap() = dir.path().to_owned();
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

    /// Gives a client its credentials as a machine gets them, with their end.
    pub fn give_by_metadata_to(&self, command: &mut Command, end: &str) {
        *self.shared.role_ends.lock().unwrap() = end.to_owned();
        command
            .env("AWS_METADATA_ENDPOINT", self.base_url())
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", self.base_url());
    }

    /// Gives a client the address at which a container gets its credentials: a full one, or the one that is the same on
    /// every machine, which is found here by way of a proxy.
    pub fn give_by_container_to(&self, command: &mut Command, end: &str, token_file: Option<&Path>) {
        *self.shared.role_ends.lock().unwrap() = end.to_owned();
        match token_file {
            Some(file) => {
                fs::write(file, IDENTITY_TOKEN).unwrap();
                command
                    .env(
                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                        format!("{}/latest/container", self.base_url()),
                    )
                    .env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file);
            }
            None => {
                command
                    .env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/latest/task")
                    .env("http_proxy", self.base_url())
                    .env("no_proxy", "127.0.0.1,localhost");
            }
        }
        command.env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT_URL", self.base_url());
    }

    /// Gives a client the identity of a workload, which is exchanged for credentials at `sts`, in front of this server.
    pub fn give_by_web_identity_to(&self, command: &mut Command, end: &str, token_file: &Path, sts: &str) {
        *self.shared.role_ends.lock().unwrap() = end.to_owned();
        fs::write(token_file, IDENTITY_TOKEN).unwrap();
        command
            .env("AWS_WEB_IDENTITY_TOKEN_FILE", token_file)
            .env("AWS_ROLE_ARN", ROLE)
            .env("AWS_ENDPOINT_URL_STS", format!("{sts}/latest/sts"))
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", self.base_url());
    }

    /// Requests so far that came with the API key of the service, or with a key of a request that it is sent.
    pub fn with_service_secrets(&self) -> Vec<String> {
        self.shared.with_service_secrets.lock().unwrap().clone()
    }

    /// The bucket is gone.
    pub fn remove_bucket(&self) {
        self.shared.is_bucket_gone.store(true, Ordering::SeqCst);
    }

    /// It is there again, with everything in it.
    pub fn restore_bucket(&self) {
        self.shared.is_bucket_gone.store(false, Ordering::SeqCst);
    }

    /// Somebody removes an object.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.dir.path().join(BUCKET).join(name)).unwrap();
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

    /// Puts an object there that is nobody's.
    pub fn put_theirs(&self, object: &str, content: &str) {
        for note in self.notes_of(object) {
            // It may have none.
            let _ = fs::remove_file(note);
        }
        fs::create_dir_all(self.path_of(object).parent().unwrap()).unwrap();
        fs::write(self.path_of(object), content).unwrap();
    }

    /// What is said of an object.
    fn notes_of(&self, object: &str) -> [PathBuf; 2] {
        let name = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let start = format!(".bucket-{}.object-{}", name(BUCKET), name(object));
        ["metadata", "internal"].map(|kind| self.dir.path().join(format!("{start}.{kind}.json")))
    }

    /// Gives an object another name, with all that is said of it.
    pub fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.path_of(to).parent().unwrap()).unwrap();
        fs::rename(self.path_of(from), self.path_of(to)).unwrap();
        for (from, to) in self.notes_of(from).into_iter().zip(self.notes_of(to)) {
            fs::rename(from, to).unwrap();
        }
    }

    /// From now on nothing may be put under names that begin like this; nothing is forbidden any more without one.
    pub fn forbid_below(&self, prefix: Option<&str>) {
        *self.shared.forbidden.lock().unwrap() = prefix.map(|prefix| format!("/{BUCKET}/{prefix}"));
    }

    /// Nobody may list the bucket.
    pub fn hide_what_is_missing(&self) {
        self.shared.hides_what_is_missing.store(true, Ordering::SeqCst);
    }

    /// Tells this of an object from now on, byte by byte, as stores do that keep what older versions wrote.
    pub fn tell_raw(&self, object: &str, name: &str, value: &str) {
        let said = (format!("x-amz-meta-{name}"), value.to_owned());
        self.shared.told_raw.lock().unwrap().insert(format!("/{BUCKET}/{object}"), said);
    }

    /// How many requests with this method came.
    pub fn requests(&self, method: &Method) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|(seen, _)| seen == method).count()
    }

    /// The next requests with this method meet this, as often.
    pub fn fault(&self, method: &Method, fault: StoreFault, times: usize) {
        self.shared.faults.add(method, fault, times);
    }

    /// What is put from now on waits until this says otherwise.
    pub fn hold_puts(&self, holds: bool) {
        self.shared.holds_puts.send_replace(holds);
    }

    /// Nothing goes wrong from now on.
    pub fn mend(&self) {
        self.shared.faults.clear();
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
            // A request that arrived whole is done whole, also where its client is killed meanwhile: dropped half-way, it
            // would leave an object without its metadata, as no store does.
            let done = tokio::spawn(async move { answer(&service, &shared, request).await });
            async move { done.await.unwrap_or(Err(CutOff)) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

/// The largest request that is taken, in bytes.
const BODY_MAX: usize = 256 << 20;

/// The connection is cut.
#[derive(Debug)]
pub struct CutOff;

impl std::fmt::Display for CutOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut off")
    }
}

impl std::error::Error for CutOff {}

async fn answer(
    service: &S3Service,
    shared: &Shared,
    request: Request<Incoming>,
) -> Result<Response<Body>, CutOff> {
    if request.uri().path().starts_with("/latest/") {
        return Ok(Response::new(Body::from(metadata(&request, shared))));
    }
    let method = request.method().clone();
    shared.seen.lock().unwrap().push((method.clone(), request.uri().path().to_owned()));
    if method == Method::PUT {
        // Its sender is as old as the server.
        let _ = shared.holds_puts.subscribe().wait_for(|holds| !holds).await;
    }
    let fault = shared.faults.next(&method);
    let refused = |status: u16, code: &str| {
        let body = format!("<Error><Code>{code}</Code><Message>as the test says</Message></Error>");
        let answer = Response::builder().status(StatusCode::from_u16(status).unwrap());
        Ok(answer.body(Body::from(body)).unwrap())
    };
    // As Amazon says it; the server's folder store says of every object that it is missing.
    if shared.is_bucket_gone.load(Ordering::SeqCst) {
        return refused(404, "NoSuchBucket");
    }
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_forbidden = shared.forbidden.lock().unwrap().as_ref().is_some_and(|below| path.starts_with(below));
    let is_hidden = shared.hides_what_is_missing.load(Ordering::SeqCst)
        && (matches!(method, Method::GET | Method::HEAD) || head.headers.contains_key("if-match"))
        && !shared.root.lock().unwrap().join(path.trim_start_matches('/')).exists();
    if is_hidden || is_forbidden && matches!(method, Method::PUT | Method::POST) {
        return refused(403, "AccessDenied");
    }
    let mut body = Body::from(body).store_all_limited(BODY_MAX).await.map_err(|_| CutOff)?.to_vec();
    let text = format!("{} {} {:?}", head.method, head.uri, head.headers);
    if holds_key(text.as_bytes()) || text.contains("idempotency-key") || holds_key(&body) {
        shared.with_service_secrets.lock().unwrap().push(text);
    }
    match fault {
        Some(StoreFault::Status(status)) => return refused(status, "SlowDown"),
        Some(StoreFault::Code(status, code)) => return refused(status, code),
        Some(StoreFault::Cut) => return Err(CutOff),
        Some(StoreFault::Corrupted | StoreFault::CorruptedAndUnanswered) => {
            body.last_mut().into_iter().for_each(|byte| *byte ^= 1);
        }
        Some(StoreFault::Unanswered | StoreFault::HalfAnswered) | None => {}
    }
    let told_raw = shared.told_raw.lock().unwrap().get(head.uri.path()).cloned();
    let mut done = service.call(Request::from_parts(head, Body::from(body))).await.map_err(|_| CutOff)?;
    if let Some((name, value)) = told_raw.filter(|_| done.status().is_success()) {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        done.headers_mut().insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    match fault {
        Some(StoreFault::Unanswered | StoreFault::CorruptedAndUnanswered) => Err(CutOff),
        _ => Ok(done),
    }
}

/// What machines, containers and workloads are told that ask for credentials. Who may not have them is told nothing.
fn metadata(request: &Request<Incoming>, shared: &Shared) -> String {
    let end = shared.role_ends.lock().unwrap();
    let credentials = serde_json::json!({
        "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
        "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Token": SESSION_TOKEN, "Expiration": *end,
    });
    let uri = request.uri();
    match uri.path() {
        "/latest/api/token" => "a-token".to_owned(),
        "/latest/meta-data/iam/security-credentials/" => "a-role".to_owned(),
        "/latest/task" if uri.host() == Some("169.254.170.2") => credentials.to_string(),
        "/latest/container"
            if request.headers().get("authorization").is_some_and(|token| token == IDENTITY_TOKEN) =>
        {
            credentials.to_string()
        }
        "/latest/sts" if asks_for_the_role(uri.query().unwrap_or_default()) => format!(
            "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
             <SessionToken>{SESSION_TOKEN}</SessionToken><SecretAccessKey>{SECRET_KEY}</SecretAccessKey>\
             <AccessKeyId>{ACCESS_KEY}</AccessKeyId><Expiration>{end}</Expiration>\
             </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        ),
        path if path.starts_with("/latest/meta-data/") => credentials.to_string(),
        _ => String::new(),
    }
}

fn asks_for_the_role(query: &str) -> bool {
    let said: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let is = |name: &str, value: &str| said.get(name).is_some_and(|said| said == value);
    is("Action", "AssumeRoleWithWebIdentity") && is("RoleArn", ROLE) && is("WebIdentityToken", IDENTITY_TOKEN)
}
