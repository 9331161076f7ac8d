//! An object store that speaks the XML protocol of Google Cloud Storage, as far as outputs and inputs need it. It checks
//! tokens and signed links with the public key of a service account that exists for the tests alone, and holds its objects
//! in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use chrono::{NaiveDateTime, TimeDelta, Utc};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustls::SignatureScheme;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::s3::{BUCKET, CutOff, Faults, StoreFault};
use super::{api_key, http_client};

/// A key pair that opens nothing: it was made for these tests.
const PRIVATE_KEY: &str = include_str!("../fixtures/gcs/for-tests-only.private.pem");
const PUBLIC_KEY: &str = include_str!("../fixtures/gcs/for-tests-only.public.pem");
const KEY_ID: &str = "key-of-the-tests";
const EMAIL: &str = "tests@studio.iam.gserviceaccount.example";
/// The token that a machine is given here, which must be nowhere else.
const MACHINE_TOKEN: &str = "machine-token-5b70e2";
/// The host that links are signed for, wherever the store is.
const SIGNED_HOST: &str = "storage.googleapis.com";
/// The largest request that is taken, in bytes.
const BODY_MAX: usize = 256 << 20;
/// The smallest part of an upload beside its last one, in bytes.
const PART_MIN: usize = 5 << 20;
const META: &str = "x-goog-meta-";
/// What the canonical form of a query escapes.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An object, and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcsObject {
    pub content: Vec<u8>,
    pub content_type: String,
    pub metadata: BTreeMap<String, String>,
    e_tag: String,
    generation: u64,
}

/// An upload that was begun: what is said of its object, and the parts that came.
#[derive(Debug)]
struct Upload {
    name: String,
    headers: HeaderMap,
    parts: BTreeMap<usize, Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, GcsObject>,
    uploads: BTreeMap<String, Upload>,
    /// The last number that was given to an object or an upload.
    last: u64,
    seen: Vec<(Method, String)>,
    /// The tokens that requests came with.
    tokens: Vec<String>,
    is_bucket_gone: bool,
    /// An object of others that is there when this name is put next.
    taken: Option<(String, String)>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    faults: Faults,
}

/// See the module's documentation.
pub struct GcsServer {
    runtime: Option<Runtime>,
    port: u16,
    shared: Arc<Shared>,
}

impl GcsServer {
    pub fn start() -> GcsServer {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        runtime.spawn(serve(listener, shared.clone()));
        GcsServer { runtime: Some(runtime), port, shared }
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The file that Google gives a service account.
    pub fn key_file(&self) -> Value {
        json!({
            "type": "service_account", "project_id": "studio", "private_key_id": KEY_ID,
            "private_key": PRIVATE_KEY, "client_email": EMAIL, "gcs_base_url": self.base_url(),
        })
    }

    /// Gives a client the account of a machine.
    pub fn give_by_metadata_to(&self, command: &mut Command) {
        command
            .env("GCE_METADATA_HOST", format!("127.0.0.1:{}", self.port))
            .env("GOOGLE_BASE_URL", self.base_url());
    }

    /// The objects with what is said of them.
    pub fn found(&self) -> BTreeMap<String, GcsObject> {
        self.shared.state.lock().unwrap().objects.clone()
    }

    /// The objects, with their content.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.found().into_iter().map(|(name, object)| (name, object.content)).collect()
    }

    /// Puts an object there that is nobody's.
    pub fn put_theirs(&self, name: &str, content: &str) {
        let mut state = self.shared.state.lock().unwrap();
        state.put(name, content.as_bytes().to_vec(), &HeaderMap::new(), None);
    }

    /// Somebody else puts an object there once it was seen that there is none.
    pub fn take_name_before_the_next_put(&self, name: &str, content: &str) {
        self.shared.state.lock().unwrap().taken = Some((name.to_owned(), content.to_owned()));
    }

    pub fn remove(&self, name: &str) {
        assert!(self.shared.state.lock().unwrap().objects.remove(name).is_some(), "{name} is not there");
    }

    /// Uploads in parts that were neither completed nor given up.
    pub fn unfinished(&self) -> usize {
        self.shared.state.lock().unwrap().uploads.len()
    }

    /// The bucket is gone, or there again with everything in it.
    pub fn set_bucket_gone(&self, is_gone: bool) {
        self.shared.state.lock().unwrap().is_bucket_gone = is_gone;
    }

    /// How many requests with this method came.
    pub fn requests(&self, method: &Method) -> usize {
        self.shared.state.lock().unwrap().seen.iter().filter(|(seen, _)| seen == method).count()
    }

    /// How many requests came for the content of objects, beside the one that is never there.
    pub fn objects_read(&self) -> usize {
        let state = self.shared.state.lock().unwrap();
        state.seen.iter().filter(|(method, path)| method == Method::GET && !path.ends_with("none")).count()
    }

    /// The next requests with this method meet this, as often.
    pub fn fault(&self, method: &Method, fault: StoreFault, times: usize) {
        self.shared.faults.add(method, fault, times);
    }

    /// Fetches an address as the service would: with nothing but the address.
    pub fn fetch(&self, address: &str) -> (u16, Vec<u8>) {
        let http = http_client().build().unwrap();
        self.runtime.as_ref().unwrap().block_on(async {
            let answer = http.get(address).send().await.unwrap();
            (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
        })
    }

    /// The key of the account, its tokens and what it signed were said nowhere and are in no file below a folder.
    #[track_caller]
    pub fn secrets_are_nowhere(&self, dir: &Path, said: &[&str]) {
        let mut secrets: Vec<String> = PRIVATE_KEY.lines().skip(1).map(str::to_owned).collect();
        secrets.retain(|line| !line.starts_with('-'));
        secrets.extend(["X-Goog-Signature".to_owned(), MACHINE_TOKEN.to_owned()]);
        secrets.extend(self.shared.state.lock().unwrap().tokens.iter().cloned());
        let holds = |text: &[u8]| {
            secrets.iter().any(|secret| memchr::memmem::find(text, secret.as_bytes()).is_some())
        };
        assert!(
            !said.iter().any(|said| holds(said.as_bytes())),
            "the store's credentials are said: {said:?}"
        );
        let files = api_key::files(dir).into_iter();
        let found: Vec<_> =
            files.filter(|path| std::fs::read(path).is_ok_and(|bytes| holds(&bytes))).collect();
        assert!(found.is_empty(), "the store's credentials are in {found:?}");
    }
}

impl Drop for GcsServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let shared = shared.clone();
            // A request that arrived whole is done whole, also where its client is killed meanwhile.
            let done = tokio::spawn(async move { answer(&shared, request).await });
            async move { done.await.unwrap_or(Err(CutOff)) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

/// A refusal: its status and its code.
type Refusal = (u16, &'static str);

async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Response<Body>, CutOff> {
    let (head, body) = request.into_parts();
    if let Some(what) = head.uri.path().strip_prefix("/computeMetadata/v1/instance/service-accounts/default/")
    {
        return Ok(metadata(what, &head.headers));
    }
    shared.state.lock().unwrap().seen.push((head.method.clone(), head.uri.path().to_owned()));
    let fault = shared.faults.next(&head.method);
    let mut content = to_bytes(Body::new(body), BODY_MAX).await.map_err(|_| CutOff)?.to_vec();
    match fault {
        Some(StoreFault::Status(status)) => return Ok(refused((status, "ServiceUnavailable"))),
        Some(StoreFault::Code(status, code)) => return Ok(refused((status, code))),
        Some(StoreFault::Cut) => return Err(CutOff),
        Some(StoreFault::Corrupted | StoreFault::CorruptedAndUnanswered) => {
            content.last_mut().into_iter().for_each(|byte| *byte ^= 1);
        }
        Some(StoreFault::Unanswered | StoreFault::HalfAnswered) | None => {}
    }
    let done = shared.state.lock().unwrap().answer(&head, content).unwrap_or_else(refused);
    match fault {
        Some(StoreFault::Unanswered | StoreFault::CorruptedAndUnanswered) => Err(CutOff),
        Some(StoreFault::HalfAnswered) => Ok(half_of(done).await),
        _ => Ok(done),
    }
}

/// An answer that says how long it is, and ends before.
async fn half_of(whole: Response<Body>) -> Response<Body> {
    let (head, body) = whole.into_parts();
    let content = to_bytes(body, BODY_MAX).await.unwrap();
    let half = content.slice(..content.len() / 2);
    let pieces = futures_util::stream::iter([Ok(half), Err(std::io::Error::other("cut off"))]);
    Response::from_parts(head, Body::from_stream(pieces))
}

fn refused((status, code): Refusal) -> Response<Body> {
    let message = match code {
        "NoSuchBucket" => "The specified bucket does not exist.",
        "NoSuchKey" => "The specified key does not exist.",
        _ => "as the test says",
    };
    let body = format!(
        "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let answer = Response::builder().status(StatusCode::from_u16(status).unwrap());
    answer.header("content-type", "application/xml; charset=UTF-8").body(Body::from(body)).unwrap()
}

/// What the metadata service of a machine says.
fn metadata(what: &str, headers: &HeaderMap) -> Response<Body> {
    if headers.get("metadata-flavor").is_none_or(|flavor| flavor != "Google") {
        return refused((403, "Forbidden"));
    }
    let token = json!({"access_token": MACHINE_TOKEN, "expires_in": 3599, "token_type": "Bearer"});
    Response::new(Body::from(if what == "token" { token.to_string() } else { EMAIL.to_owned() }))
}

impl State {
    fn answer(&mut self, head: &Parts, content: Vec<u8>) -> Result<Response<Body>, Refusal> {
        let query: BTreeMap<String, String> =
            url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        match head.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default()) {
            Some(value) => {
                let token = value.strip_prefix("Bearer ").ok_or((401, "AuthenticationRequired"))?;
                if token != MACHINE_TOKEN {
                    token_is_valid(token).ok_or((401, "AuthenticationRequired"))?;
                }
                if !self.tokens.iter().any(|known| known == token) {
                    self.tokens.push(token.to_owned());
                }
            }
            None => link_is_valid(&head.method, &head.uri, &query)?,
        }
        let path = head.uri.path().trim_start_matches('/');
        let (bucket, name) = path.split_once('/').ok_or((400, "InvalidURI"))?;
        if bucket != BUCKET || self.is_bucket_gone {
            return Err((404, "NoSuchBucket"));
        }
        let name = percent_decode_str(name).decode_utf8().map_err(|_| (400, "InvalidURI"))?.into_owned();
        let upload = query.get("uploadId");
        match (head.method.as_str(), upload) {
            ("POST", None) if query.contains_key("uploads") => {
                self.last += 1;
                let id = format!("upload/{}+=", self.last);
                let upload =
                    Upload { name: name.clone(), headers: head.headers.clone(), parts: BTreeMap::new() };
                self.uploads.insert(id.clone(), upload);
                Ok(xml(&format!(
                    "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{name}</Key>\
                     <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                )))
            }
            ("PUT", Some(id)) => {
                let number = query.get("partNumber").and_then(|number| number.parse().ok());
                let number = number.filter(|number| (1..=10_000).contains(number));
                let number = number.ok_or((400, "InvalidArgument"))?;
                let e_tag = e_tag_of(&content);
                self.upload(id, &name)?.parts.insert(number, content);
                Ok(Response::builder().header("etag", e_tag).body(Body::empty()).unwrap())
            }
            ("POST", Some(id)) => self.complete(id, &name, &String::from_utf8_lossy(&content)),
            ("DELETE", Some(id)) => {
                self.upload(id, &name)?;
                self.uploads.remove(id);
                Ok(Response::builder().status(204).body(Body::empty()).unwrap())
            }
            ("PUT", None) => {
                if let Some((name, theirs)) = self.taken.take_if(|(taken, _)| *taken == name) {
                    self.put(&name, theirs.into_bytes(), &HeaderMap::new(), None);
                }
                self.check_condition(&name, &head.headers)?;
                let object = self.put(&name, content, &head.headers, None);
                let answer = Response::builder().header("etag", &object.e_tag);
                Ok(answer.header("x-goog-generation", object.generation).body(Body::empty()).unwrap())
            }
            ("GET" | "HEAD", None) => {
                let object = self.objects.get(&name).ok_or((404, "NoSuchKey"))?;
                Ok(described(object, &head.method, &head.headers))
            }
            ("DELETE", None) => {
                self.objects.remove(&name).ok_or((404, "NoSuchKey"))?;
                Ok(Response::builder().status(204).body(Body::empty()).unwrap())
            }
            _ => Err((405, "MethodNotAllowed")),
        }
    }

    fn upload(&mut self, id: &str, name: &str) -> Result<&mut Upload, Refusal> {
        self.uploads.get_mut(id).filter(|upload| upload.name == name).ok_or((404, "NoSuchUpload"))
    }

    /// Whether the object is the generation that is asked for; generation 0 is none.
    fn check_condition(&self, name: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(wanted) = headers.get("x-goog-if-generation-match") else { return Ok(()) };
        let there = self.objects.get(name).map_or(0, |object| object.generation);
        if wanted.to_str().ok() == Some(there.to_string().as_str()) {
            Ok(())
        } else {
            Err((412, "PreconditionFailed"))
        }
    }

    fn put(
        &mut self,
        name: &str,
        content: Vec<u8>,
        headers: &HeaderMap,
        e_tag: Option<String>,
    ) -> &GcsObject {
        self.last += 1;
        let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
        let said = headers
            .iter()
            .filter_map(|(key, value)| Some((key.as_str().strip_prefix(META)?.to_owned(), text(value))));
        let object = GcsObject {
            e_tag: e_tag.unwrap_or_else(|| e_tag_of(&content)),
            content,
            content_type: headers.get("content-type").map(text).unwrap_or_default(),
            metadata: said.collect(),
            generation: 1_700_000_000_000_000 + self.last,
        };
        self.objects.insert(name.to_owned(), object);
        &self.objects[name]
    }

    /// Makes an object of the parts that are listed.
    fn complete(&mut self, id: &str, name: &str, listed: &str) -> Result<Response<Body>, Refusal> {
        let upload = self.upload(id, name)?;
        let within = |text: &str, tag: &str| -> Option<String> {
            let (_, rest) = text.split_once(&format!("<{tag}>"))?;
            Some(rest.split_once(&format!("</{tag}>"))?.0.replace("&quot;", "\""))
        };
        let (mut content, mut last) = (Vec::new(), 0);
        let count = listed.matches("<Part>").count();
        for (index, part) in listed.split("<Part>").skip(1).enumerate() {
            let number: usize =
                within(part, "PartNumber").and_then(|number| number.parse().ok()).unwrap_or(0);
            let found = upload.parts.get(&number).ok_or((400, "InvalidPart"))?;
            if number <= last {
                return Err((400, "InvalidPartOrder"));
            }
            if within(part, "ETag") != Some(e_tag_of(found)) {
                return Err((400, "InvalidPart"));
            }
            if index + 1 < count && found.len() < PART_MIN {
                return Err((400, "EntityTooSmall"));
            }
            content.extend_from_slice(found);
            last = number;
        }
        if count == 0 {
            return Err((400, "MalformedCompleteMultipartUploadRequest"));
        }
        let upload = self.uploads.remove(id).ok_or((404, "NoSuchUpload"))?;
        let e_tag = format!("\"{}-{count}\"", &e_tag_of(&content)[1..17]);
        let generation = self.put(name, content, &upload.headers, Some(e_tag.clone())).generation;
        let mut done = xml(&format!(
            "<CompleteMultipartUploadResult><Location>http://{SIGNED_HOST}/{BUCKET}/{name}</Location>\
             <Bucket>{BUCKET}</Bucket><Key>{name}</Key><ETag>{e_tag}</ETag></CompleteMultipartUploadResult>"
        ));
        done.headers_mut().insert("x-goog-generation", generation.into());
        Ok(done)
    }
}

fn xml(body: &str) -> Response<Body> {
    Response::new(Body::from(format!("<?xml version='1.0' encoding='UTF-8'?>{body}")))
}

/// An object, or the range of it that is asked for.
fn described(object: &GcsObject, method: &Method, headers: &HeaderMap) -> Response<Body> {
    let bytes = object.content.len();
    let range = headers.get("range").and_then(|range| {
        let (from, to) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let to = to.parse().map_or(bytes, |to: usize| to + 1).min(bytes);
        Some(from.parse::<usize>().ok()?..to)
    });
    let mut answer = Response::builder()
        .header("etag", &object.e_tag)
        .header("x-goog-generation", object.generation)
        .header("last-modified", Utc::now().format("%a, %d %b %Y %H:%M:%S GMT").to_string())
        .header("accept-ranges", "bytes")
        .header("content-type", &object.content_type);
    for (key, value) in &object.metadata {
        answer = answer.header(format!("{META}{key}"), value);
    }
    let content = match range {
        Some(range) if range.start < range.end => {
            let place = format!("bytes {}-{}/{bytes}", range.start, range.end - 1);
            answer = answer.status(206).header("content-range", place);
            object.content[range].to_vec()
        }
        Some(_) => return refused((416, "InvalidRange")),
        None => object.content.clone(),
    };
    answer = answer.header("content-length", content.len());
    answer.body(if method == Method::HEAD { Body::empty() } else { Body::from(content) }).unwrap()
}

fn e_tag_of(content: &[u8]) -> String {
    format!("\"{}\"", &hex_of(&Sha256::digest(content))[..32])
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the account of the tests signed this.
fn is_signed(message: &[u8], signature: &[u8]) -> bool {
    let key: String = PUBLIC_KEY.lines().filter(|line| !line.starts_with('-')).collect();
    let key = BASE64_STANDARD.decode(key).unwrap();
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let of_rsa = known.mapping.iter().filter(|(scheme, _)| *scheme == SignatureScheme::RSA_PKCS1_SHA256);
    let mut algorithms = of_rsa.flat_map(|(_, algorithms)| algorithms.iter());
    algorithms.any(|algorithm| algorithm.verify_signature(&key, message, signature).is_ok())
}

/// A token that the account signed for itself, and that has not ended.
fn token_is_valid(token: &str) -> Option<()> {
    let (message, signature) = token.rsplit_once('.')?;
    let (header, claims) = message.split_once('.')?;
    let part = |part: &str| -> Option<Value> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).ok()?).ok()
    };
    let (header, claims) = (part(header)?, part(claims)?);
    let now = Utc::now().timestamp();
    let is_valid = header["alg"] == "RS256"
        && header["kid"] == KEY_ID
        && claims["iss"] == EMAIL
        && claims["scope"].as_str()?.starts_with("https://www.googleapis.com/auth/")
        && claims["iat"].as_i64()? <= now + 60
        && claims["exp"].as_i64()? > now
        && is_signed(message.as_bytes(), &BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?);
    is_valid.then_some(())
}

/// Whether a link was signed by the account for this method and address, and has not ended.
fn link_is_valid(method: &Method, uri: &Uri, query: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let said = |name: &str| query.get(name).map(String::as_str).ok_or((401, "AuthenticationRequired"));
    let wrong = (403, "SignatureDoesNotMatch");
    let signature = said("X-Goog-Signature")?;
    let date = said("X-Goog-Date")?;
    let begins = NaiveDateTime::parse_from_str(date, "%Y%m%dT%H%M%SZ").map_err(|_| wrong)?;
    let valid_for: i64 = said("X-Goog-Expires")?.parse().map_err(|_| wrong)?;
    let scope = format!("{}/auto/storage/goog4_request", &date[..8]);
    let is_of_the_account = said("X-Goog-Algorithm")? == "GOOG4-RSA-SHA256"
        && said("X-Goog-Credential")? == format!("{EMAIL}/{scope}")
        && said("X-Goog-SignedHeaders")? == "host"
        && (1..=604_800).contains(&valid_for);
    if !is_of_the_account {
        return Err(wrong);
    }
    let escaped = |text: &str| utf8_percent_encode(text, STRICT).to_string();
    let canonical: Vec<String> = query
        .iter()
        .filter(|(name, _)| *name != "X-Goog-Signature")
        .map(|(name, value)| format!("{}={}", escaped(name), escaped(value)))
        .collect();
    let request = format!(
        "{method}\n{}\n{}\nhost:{SIGNED_HOST}\n\nhost\nUNSIGNED-PAYLOAD",
        uri.path(),
        canonical.join("&")
    );
    let message =
        format!("GOOG4-RSA-SHA256\n{date}\n{scope}\n{}", hex_of(&Sha256::digest(request.as_bytes())));
    let digits =
        signature.as_bytes().chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok());
    let signature: Vec<u8> = digits.collect::<Option<_>>().ok_or(wrong)?;
    if !is_signed(message.as_bytes(), &signature) {
        return Err(wrong);
    }
    match begins.and_utc() + TimeDelta::seconds(valid_for) > Utc::now() {
        true => Ok(()),
        false => Err((400, "ExpiredToken")),
    }
}
