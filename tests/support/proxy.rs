//! A line between client and service that breaks after the n-th byte of a creating call: of the request on
//! its way there, or of the reply on its way back. Everything else passes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Where the first call of every key is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Nothing,
    /// After some bytes of the request; the service hears no more.
    Request,
    /// After some bytes of the reply; the service has done its work.
    Reply,
}

/// What passed under one key.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    /// How often it was sent.
    pub sends: u32,
    /// Where its first call was cut; nothing when all of it passed.
    pub cut_at: Option<usize>,
    /// Length of what would have been cut.
    pub length: usize,
}

/// A proxy on a port of its own. Its threads end with the test's process, or with their connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    service: String,
    cut: Mutex<Cut>,
    /// How far the places of two keys' cuts are from each other.
    bytes_apart: AtomicUsize,
    keys: Mutex<BTreeMap<String, Passed>>,
    /// Clients that are connected.
    lines: Mutex<Vec<TcpStream>>,
    door: Mutex<Door>,
    moved: Condvar,
}

/// Whether connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// To be shut: who waits at the door is let in once more.
    Shutting,
    /// Nobody listens: connections are refused.
    Shut,
    /// For ever.
    Gone,
}

impl Proxy {
    /// In front of the service at `base_url` (`http://HOST:PORT`).
    pub fn before(base_url: &str) -> Proxy {
        let (listener, port, service) = listen_before(base_url);
        let shared = Arc::new(Shared {
            service,
            cut: Mutex::new(Cut::Nothing),
            bytes_apart: AtomicUsize::new(1),
            keys: Mutex::default(),
            lines: Mutex::default(),
            door: Mutex::new(Door::Open),
            moved: Condvar::new(),
        });
        let seen = shared.clone();
        std::thread::spawn(move || {
            seen.listen(listener);
            while seen.waits_for(Door::Open) {
                seen.listen(TcpListener::bind(("127.0.0.1", port)).unwrap());
            }
        });
        Proxy { port, shared }
    }

    /// Hangs up on everybody, and refuses connections until it opens again.
    pub fn shut(&self) {
        self.shared.turn(Door::Shutting);
        // Wakes the listener, so that it sees it.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        self.shared.waits_for(Door::Shut);
    }

    pub fn open(&self) {
        self.shared.turn(Door::Open);
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Cuts from now on; what was seen before is forgotten. The call of each key is cut so many bytes behind where that of
    /// the key before it was, and the first one before its first byte.
    pub fn cut(&self, cut: Cut, bytes_apart: usize) {
        *self.shared.cut.lock().unwrap() = cut;
        self.shared.bytes_apart.store(bytes_apart, Ordering::Relaxed);
        self.shared.keys.lock().unwrap().clear();
    }

    /// What passed under every key.
    pub fn passed(&self) -> Vec<Passed> {
        self.shared.keys.lock().unwrap().values().cloned().collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.turn(Door::Gone);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn turn(&self, door: Door) {
        *self.door.lock().unwrap() = door;
        self.moved.notify_all();
    }

    /// Waits until the door is so; false when it is gone.
    fn waits_for(&self, wanted: Door) -> bool {
        let is_other = |door: &mut Door| *door != wanted && *door != Door::Gone;
        *self.moved.wait_while(self.door.lock().unwrap(), is_other).unwrap() == wanted
    }

    /// Takes connections until the door is shut, then hangs up on all of them.
    fn listen(self: &Arc<Shared>, listener: TcpListener) {
        for client in listener.incoming().map_while(Result::ok) {
            if *self.door.lock().unwrap() != Door::Open {
                break;
            }
            self.lines.lock().unwrap().extend(client.try_clone());
            let seen = self.clone();
            in_thread(client, move |client| seen.carry(client));
        }
        drop(listener);
        for line in self.lines.lock().unwrap().drain(..) {
            // One that is gone already cannot be hung up on.
            let _ = line.shutdown(Shutdown::Both);
        }
        let mut door = self.door.lock().unwrap();
        if *door == Door::Shutting {
            *door = Door::Shut;
            self.moved.notify_all();
        }
    }

    /// Carries call after call, until one side hangs up or the line is cut.
    fn carry(&self, client: &mut TcpStream) -> io::Result<()> {
        let mut service = connect(client, &self.service)?;
        while let Some(request) = message(client)? {
            let cut = *self.cut.lock().unwrap();
            let key = key_of(&request);
            let place = key.as_ref().and_then(|key| self.send(key));
            if cut == Cut::Request
                && let (Some(key), Some(place)) = (&key, place)
                && self.is_cut(key, place, request.len())
            {
                service.write_all(&request[..place])?;
                service.shutdown(Shutdown::Write)?;
                // Whatever it says to half a request is lost, too.
                return drain(&mut service);
            }
            service.write_all(&request)?;
            let Some(reply) = message(&mut service)? else { return Ok(()) };
            if cut != Cut::Request
                && let (Some(key), Some(place)) = (&key, place)
                && self.is_cut(key, place, reply.len())
            {
                return client.write_all(&reply[..place]);
            }
            client.write_all(&reply)?;
        }
        Ok(())
    }

    /// Counts a creating call; of the first one under its key, the place to cut it at.
    fn send(&self, key: &str) -> Option<usize> {
        let mut keys = self.keys.lock().unwrap();
        let place = keys.len() * self.bytes_apart.load(Ordering::Relaxed);
        let passed = keys.entry(key.to_owned()).or_default();
        passed.sends += 1;
        (passed.sends == 1).then_some(place)
    }

    fn is_cut(&self, key: &str, place: usize, length: usize) -> bool {
        let cuts = *self.cut.lock().unwrap() != Cut::Nothing && place < length;
        if let Some(passed) = self.keys.lock().unwrap().get_mut(key) {
            (passed.cut_at, passed.length) = (cuts.then_some(place), length);
        }
        cuts
    }
}

/// A listener on a port of its own, that port, and the address of the service at `base_url` (`http://HOST:PORT`).
pub fn listen_before(base_url: &str) -> (TcpListener, u16, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = base_url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
    (listener, port, service)
}

/// Handles a client in a thread of its own, and disconnects it at the end. Errors are what proxies are for: clients are
/// killed, and connections break.
pub fn in_thread(
    mut client: TcpStream,
    handle: impl FnOnce(&mut TcpStream) -> io::Result<()> + Send + 'static,
) {
    std::thread::spawn(move || {
        drop(handle(&mut client));
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// Connects to the service for a client.
pub fn connect(client: &TcpStream, service: &str) -> io::Result<TcpStream> {
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    client.set_nodelay(true)?;
    let service = TcpStream::connect(service)?;
    service.set_nodelay(true)?;
    Ok(service)
}

fn drain(from: &mut TcpStream) -> io::Result<()> {
    io::copy(from, &mut io::sink()).map(drop)
}

/// The idempotency key of a creating call.
fn key_of(request: &[u8]) -> Option<String> {
    let head = head_of(request);
    head.starts_with("post ").then(|| header(&head, "idempotency-key")).flatten()
}

/// One request or reply, head and body; nothing when the other side has hung up.
pub fn message(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let length = header(&head_of(&bytes), "content-length");
            let whole = end + 4 + length.and_then(|text| text.parse().ok()).unwrap_or(0);
            if bytes.len() >= whole {
                assert_eq!(bytes.len(), whole, "one message at a time");
                return Ok(Some(bytes));
            }
        }
        match from.read(&mut piece)? {
            0 => return Ok(None),
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
}

/// The head of a message, in small letters.
pub fn head_of(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    text.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase()
}

/// A header's value.
pub fn header(head: &str, name: &str) -> Option<String> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value.trim().to_owned()).next()
}
