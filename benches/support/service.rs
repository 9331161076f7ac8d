//! A service that answers at once and stores nothing but when its tasks began: it shall never be the limit.
//!
//! HTTP/1.1 with connections that stay open, and no more of it than clients send here. A task is named by the key of the
//! request that made it, so that a key sent again meets the same task.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Digits of the answer to `GET /posts`: how many requests for tasks there were.
pub const COUNT_DIGITS: usize = 20;

/// Before the name of an image task in the address of its result.
const IMAGE: &str = "image-";

const CATALOG: &str = include_str!("../../src/domain/quote/fixtures/catalog.json");

/// What it serves.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes of every result.
    pub result_bytes: usize,
    /// How long an image renders; all else is done at once.
    pub image_seconds: u64,
}

impl Options {
    pub fn arguments(self) -> Vec<String> {
        vec![self.result_bytes.to_string(), self.image_seconds.to_string()]
    }

    fn read(arguments: &[String]) -> Options {
        let number = |place: usize| arguments[place].parse().unwrap();
        Options { result_bytes: number(0), image_seconds: number(1) as u64 }
    }
}

struct Shared {
    options: Options,
    host: String,
    catalog: HashMap<&'static str, Vec<u8>>,
    /// What an image task makes, and what every other one does.
    image: Vec<u8>,
    sound: Vec<u8>,
    began: Mutex<HashMap<String, Instant>>,
    posts: AtomicU64,
}

/// Serves until it is killed; prints its address first.
pub fn serve(arguments: &[String]) {
    let options = Options::read(arguments);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        println!("{host}");
        let shared = Arc::new(Shared {
            options,
            host,
            catalog: catalog(),
            image: png(options.result_bytes),
            sound: wav(options.result_bytes),
            began: Mutex::default(),
            posts: AtomicU64::new(0),
        });
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let shared = shared.clone();
            tokio::spawn(async move { connection(stream, &shared).await });
        }
    });
}

fn catalog() -> HashMap<&'static str, Vec<u8>> {
    let parts: Value = serde_json::from_str(CATALOG).unwrap();
    let paths = [
        ("/api/v1/models?type=video", parts["video"].clone()),
        ("/api/v1/models?type=image", json!({"type": "image", "models": parts["image"]})),
        ("/api/v1/models?type=music", parts["music"].clone()),
        ("/api/v1/voices", parts["voices"].clone()),
        ("/api/v1/credits", json!({"remainingCredits": 1_000_000_000})),
    ];
    paths.map(|(path, data)| (path, envelope(&data))).into()
}

fn envelope(data: &Value) -> Vec<u8> {
    json!({"code": 0, "message": "ok", "data": data}).to_string().into_bytes()
}

/// A WAV file of so many bytes.
fn wav(bytes: usize) -> Vec<u8> {
    let data = bytes.saturating_sub(44).max(2) & !1;
    let number = |value: usize| u32::try_from(value).unwrap().to_le_bytes();
    let head: [&[u8]; 12] = [
        b"RIFF",
        &number(data + 36),
        b"WAVEfmt ",
        &number(16),
        &1_u16.to_le_bytes(),
        &1_u16.to_le_bytes(),
        &number(16_000),
        &number(32_000),
        &2_u16.to_le_bytes(),
        &16_u16.to_le_bytes(),
        b"data",
        &number(data),
    ];
    let mut file = head.concat();
    file.resize(44 + data, 7);
    file
}

/// A PNG of about so many bytes: noise, which does not shrink.
fn png(bytes: usize) -> Vec<u8> {
    let rows = u32::try_from(bytes / 300).unwrap().max(1);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 100, rows);
    encoder.set_color(png::ColorType::Rgb);
    let mut random = fastrand::Rng::with_seed(1);
    let pixels: Vec<u8> = (0..rows * 300).map(|_| random.u8(..)).collect();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    file
}

async fn connection(mut stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await else { return };
        let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
        let header = |name: &str| {
            let lines = text.lines().skip(1).filter_map(|line| line.split_once(':'));
            lines
                .filter(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().to_owned())
                .next()
        };
        let length: usize = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        while buffer.len() < head + length {
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
        buffer.drain(..head + length);
        let mut words = text.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let sent = match (method, path.strip_prefix("/media/")) {
            ("GET", Some(id)) if id.starts_with(IMAGE) => {
                respond(&mut stream, "image/png", &shared.image).await
            }
            ("GET", Some(_)) => respond(&mut stream, "audio/wav", &shared.sound).await,
            _ => {
                let key = header("idempotency-key").unwrap_or_default();
                respond(&mut stream, "application/json", &shared.answer(method, path, &key)).await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Where the body begins; nothing where the client is gone.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            return Some(at + 4);
        }
        if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

async fn respond(stream: &mut TcpStream, media_type: &str, body: &[u8]) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\netag: \"1\"\r\n\r\n",
        body.len()
    );
    if body.len() < 64 << 10 {
        return stream.write_all(&[head.as_bytes(), body].concat()).await;
    }
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}

impl Shared {
    fn answer(&self, method: &str, path: &str, key: &str) -> Vec<u8> {
        if let Some(part) = self.catalog.get(path) {
            return part.clone();
        }
        if path == "/posts" {
            let count = self.posts.load(Ordering::Relaxed);
            return format!("{count:0COUNT_DIGITS$}").into_bytes();
        }
        if method == "POST" {
            self.posts.fetch_add(1, Ordering::Relaxed);
        }
        let (id, is_image) = match (method, path.strip_prefix("/api/v1/tasks/")) {
            (_, Some(id)) => (id, true),
            _ => (key, path == "/api/v1/images"),
        };
        let render = Duration::from_secs(self.options.image_seconds);
        let is_done = !is_image || {
            let mut began = self.began.lock().unwrap();
            began.entry(id.to_owned()).or_insert_with(Instant::now).elapsed() >= render
        };
        let (status, urls) = match is_done {
            true => (
                "success",
                vec![format!("http://{}/media/{}{id}", self.host, if is_image { IMAGE } else { "" })],
            ),
            false => ("processing", Vec::new()),
        };
        envelope(&json!({
            "id": id, "status": status, "costCredits": if is_image { 4 } else { 5 }, "waivedCredits": 0,
            "taskInfo": null, "taskUrls": urls,
        }))
    }
}
