//! A service that means harm: it passes calls on to the emulator and answers, changes or drags out those that
//! a script picks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::Value;

use super::proxy::message;

/// What a call was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Create,
    Poll,
    Catalog,
    Result,
    Other,
}

/// A call of the client.
#[derive(Debug, Clone)]
pub struct Call {
    pub route: Route,
    pub path: String,
    /// Its first line and its headers.
    pub head: String,
    pub body: String,
    /// The first byte that was asked for, where only a part was.
    pub range_from: Option<u64>,
    /// How many calls of this path came before it.
    pub nth: usize,
}

/// What is done with a call.
pub enum Act {
    /// Passed on, and the reply back.
    Pass,
    /// Passed on, and the JSON of the reply changed on its way back.
    Change(Box<dyn FnOnce(&mut Value) + Send>),
    /// Answered with these bytes.
    Bytes(Vec<u8>),
    /// Passed on, and answered with these bytes all the same.
    Robbed(Vec<u8>),
    /// Answered with a head, and then with this piece for ever.
    Endless(String, Vec<u8>),
    /// Answered with a head, and then with a byte now and then.
    Drip(String),
    /// Heard, and not answered.
    Mute,
    /// Passed on to this host, and the reply back bit by bit.
    Slow(String),
}

type Script = dyn Fn(&Call) -> Act + Send + Sync;

/// The service on a port of its own. Its threads end with the test's process, or with their connections.
pub struct ScriptedProxy {
    port: u16,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl ScriptedProxy {
    /// In front of the emulator at `base_url`.
    pub fn before(base_url: &str, script: impl Fn(&Call) -> Act + Send + Sync + 'static) -> ScriptedProxy {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = base_url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let (script, calls): (Arc<Script>, _) = (Arc::new(script), Arc::<Mutex<Vec<Call>>>::default());
        let seen = calls.clone();
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let (service, script, seen) = (service.clone(), script.clone(), seen.clone());
                std::thread::spawn(move || {
                    // A client that has had enough hangs up.
                    let _ = serve(&mut client, &service, &*script, &seen);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        ScriptedProxy { port, calls }
    }

    /// In front of the emulator, with sounds of nine megabytes in the place of its own.
    pub fn with_large_sounds(base_url: &str) -> ScriptedProxy {
        let link = Arc::new(OnceLock::<String>::new());
        let large = link.clone();
        let proxy = ScriptedProxy::before(base_url, move |call| {
            let large = large.clone();
            match call.route {
                _ if call.path.ends_with("large.wav") => Act::Bytes(large_sound()),
                Route::Create | Route::Poll => Act::Change(Box::new(move |body| {
                    if body["data"]["taskUrls"].as_array().is_some_and(|urls| !urls.is_empty()) {
                        body["data"]["taskUrls"] = serde_json::json!([large.get().unwrap()]);
                    }
                })),
                _ => Act::Pass,
            }
        });
        link.set(format!("{}/media/large.wav", proxy.base_url())).unwrap();
        proxy
    }

    pub fn base_url(&self) -> String {
        self.at("127.0.0.1")
    }

    /// The same service under another address of this machine.
    pub fn at(&self, host: &str) -> String {
        format!("http://{host}:{}", self.port)
    }

    /// What was asked so far.
    pub fn calls(&self, route: Route) -> Vec<Call> {
        self.calls.lock().unwrap().iter().filter(|call| call.route == route).cloned().collect()
    }
}

fn serve(client: &mut TcpStream, service: &str, script: &Script, seen: &Mutex<Vec<Call>>) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    client.set_nodelay(true)?;
    while let Some(request) = message(client)? {
        let call = note(&request, seen);
        match script(&call) {
            Act::Pass => client.write_all(&forward(service, &request)?)?,
            Act::Change(change) => {
                return client.write_all(&changed(&forward(service, &request)?, change));
            }
            Act::Bytes(bytes) => return client.write_all(&bytes),
            Act::Robbed(bytes) => {
                forward(service, &request)?;
                return client.write_all(&bytes);
            }
            Act::Endless(head, piece) => {
                client.write_all(head.as_bytes())?;
                loop {
                    client.write_all(&piece)?;
                }
            }
            Act::Mute => return client.read(&mut [0]).map(drop),
            Act::Slow(host) => return dawdle(client, &forward(&host, &request)?),
            Act::Drip(head) => {
                client.write_all(head.as_bytes())?;
                client.set_read_timeout(Some(Duration::from_millis(50)))?;
                loop {
                    client.write_all(b" ")?;
                    // Sees at once that the client has hung up.
                    match client.read(&mut [0]) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        _ => return Ok(()),
                    }
                }
            }
        }
    }
    Ok(())
}

/// Sends a reply's body in pieces of 100 bytes, some twelve a second.
fn dawdle(client: &mut TcpStream, reply: &[u8]) -> io::Result<()> {
    let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    client.write_all(&reply[..head])?;
    client.set_read_timeout(Some(Duration::from_millis(80)))?;
    for piece in reply[head..].chunks(100) {
        client.write_all(piece)?;
        // Sees at once that the client has hung up.
        match client.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return Ok(()),
        }
    }
    Ok(())
}

fn note(request: &[u8], seen: &Mutex<Vec<Call>>) -> Call {
    let text = String::from_utf8_lossy(request);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let route = match path.as_str() {
        _ if head.starts_with("POST ") => Route::Create,
        path if path.starts_with("/api/v1/tasks/") => Route::Poll,
        path if path.starts_with("/api/v1/models") || path.starts_with("/api/v1/voices") => Route::Catalog,
        path if path.starts_with("/api/") => Route::Other,
        _ => Route::Result,
    };
    let mut seen = seen.lock().unwrap();
    let nth = seen.iter().filter(|call| call.path == path && call.body == body).count();
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let range_from = range.map(|range| range.trim_end_matches('-').parse().unwrap());
    let (head, body) = (head.to_owned(), body.to_owned());
    let call = Call { route, path, head, body, range_from, nth };
    seen.push(call.clone());
    call
}

fn forward(service: &str, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut line = TcpStream::connect(service)?;
    line.write_all(request)?;
    Ok(message(&mut line)?.unwrap())
}

fn changed(reply: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply);
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let mut body: Value = serde_json::from_str(body).unwrap();
    change(&mut body);
    reply_of("200 OK", "application/json", body.to_string())
}

/// A reply with nine megabytes of a silent sound.
fn large_sound() -> Vec<u8> {
    const BYTES: u32 = 9 << 20;
    let mut sound = b"RIFF".to_vec();
    sound.extend((BYTES + 36).to_le_bytes());
    sound.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data");
    sound.extend(BYTES.to_le_bytes());
    sound.resize(44 + BYTES as usize, 0);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        sound.len()
    );
    [head.into_bytes(), sound].concat()
}

/// A whole reply.
pub fn reply_of(status: &str, content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}
