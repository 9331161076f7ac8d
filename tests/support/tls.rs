//! The service behind TLS: every connection is met with what a script picks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::proxy::{head_of, message};

/// The authority that vouches for all certificates but [`Face::Untrusted`]; its key is gone.
pub const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/authority.pem");

/// What a client is met with. The certificates are for `localhost` but for [`Face::Other`]; their keys are no
/// secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// Valid from 2020 to 2120.
    Good,
    /// It ended with the year 2020.
    Expired,
    /// It begins with the year 2100.
    Early,
    /// For `media.example` and `*.media.example`.
    Other,
    /// It vouches for itself.
    Untrusted,
    /// No TLS but some bytes.
    Garbage,
    /// No TLS but HTTP.
    Plain,
    /// No word.
    HungUp,
}

impl Face {
    fn config(self) -> Option<Arc<ServerConfig>> {
        macro_rules! fixture {
            ($name:literal) => {
                (
                    include_bytes!(concat!("../fixtures/tls/", $name, ".der")).to_vec(),
                    include_bytes!(concat!("../fixtures/tls/", $name, ".key.der")).to_vec(),
                )
            };
        }
        let (certificate, key) = match self {
            Face::Good => fixture!("good"),
            Face::Expired => fixture!("expired"),
            Face::Early => fixture!("early"),
            Face::Other => fixture!("other"),
            Face::Untrusted => fixture!("untrusted"),
            Face::Garbage | Face::Plain | Face::HungUp => return None,
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth();
        Some(Arc::new(config.with_single_cert(vec![CertificateDer::from(certificate)], key).unwrap()))
    }
}

type Script = dyn Fn(&[String]) -> Face + Send + Sync;

/// The service on a port of its own. Its threads end with the test's process, or with their connections.
pub struct Front {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Front {
    /// In front of the emulator at `base_url`. The script sees the heads of all requests so far.
    pub fn before(base_url: &str, script: impl Fn(&[String]) -> Face + Send + Sync + 'static) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = base_url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let (script, heads): (Arc<Script>, _) = (Arc::new(script), Arc::<Mutex<Vec<String>>>::default());
        let seen = heads.clone();
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let (service, script, seen) = (service.clone(), script.clone(), seen.clone());
                std::thread::spawn(move || {
                    let face = script(&seen.lock().unwrap());
                    // A client that has had enough hangs up.
                    let _ = meet(&mut client, face, &service, &seen);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Front { port, heads }
    }

    pub fn https(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    pub fn http(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    /// The heads of all requests that came through.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn meet(client: &mut TcpStream, face: Face, service: &str, seen: &Mutex<Vec<String>>) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    match (face, face.config()) {
        (_, Some(config)) => {
            let connection = ServerConnection::new(config).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(connection, client.try_clone()?);
            answer(&mut stream, service, seen)?;
            stream.conn.send_close_notify();
            stream.flush()
        }
        (Face::Garbage, _) => {
            let _ = client.read(&mut [0; 4096])?;
            client.write_all(&[0xa5; 512])
        }
        (Face::Plain, _) => {
            let _ = client.read(&mut [0; 4096])?;
            client.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        }
        _ => client.read(&mut [0; 4096]).map(drop),
    }
}

/// Passes one request on, and the reply back.
fn answer(client: &mut (impl Read + Write), service: &str, seen: &Mutex<Vec<String>>) -> io::Result<()> {
    let Some(request) = message(client)? else { return Ok(()) };
    seen.lock().unwrap().push(head_of(&request));
    let mut line = TcpStream::connect(service)?;
    line.write_all(&request)?;
    let reply = message(&mut line)?.unwrap();
    let status = reply.windows(2).position(|two| two == b"\r\n").unwrap();
    client.write_all(&reply[..status])?;
    client.write_all(b"\r\nconnection: close")?;
    client.write_all(&reply[status..])?;
    client.flush()
}
