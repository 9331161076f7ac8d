//! The two places where a daemon listens, and who may speak to it there.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};
use tokio::net::{TcpListener, UnixListener};

use crate::control::connections::{self, Places};
use crate::control::protocol::Refusal;
use crate::control::server::No;
use crate::domain::exit::Exit;

/// Listens on a Unix socket that its owner and its group may speak to. One that an earlier process left
/// is taken over: whoever calls holds the state's lock, so nobody listens there any more.
///
/// # Errors
/// When the address cannot be bound, or something else lies there.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something that is no socket lies there",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Serves the Unix socket for ever. Who may connect is for the file's mode to say; who asks is logged.
pub async fn serve_socket(listener: UnixListener, router: Router) {
    let places = Places::new();
    while let Some(place) = places.take().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(peer) = stream.peer_cred() else { continue };
                let who = Who { uid: Some(peer.uid()), pid: peer.pid() };
                let router = router.clone().layer(middleware::from_fn_with_state(who, name_who_asks));
                connections::serve(stream, router, place);
            }
            Err(error) => give_way(&error).await,
        }
    }
}

/// Serves TCP for ever. With a token nothing is answered without it; without one only programs on this
/// machine that are no browser are.
pub async fn serve_tcp(listener: TcpListener, router: Router, token: Option<SecretString>) {
    let places = Places::new();
    let guard = Arc::new(Guard { token });
    while let Some(place) = places.take().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let who = Who { uid: None, pid: None };
                let router = router
                    .clone()
                    .layer(middleware::from_fn_with_state(who, name_who_asks))
                    .layer(middleware::from_fn_with_state(guard.clone(), let_in));
                connections::serve(stream, router, place);
            }
            Err(error) => give_way(&error).await,
        }
    }
}

/// Out of descriptors, say: nothing is gained by asking again at once.
async fn give_way(error: &io::Error) {
    tracing::warn!(%error, "a control connection cannot be accepted");
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Binds the TCP address. One that other machines reach needs a token.
///
/// # Errors
/// When the address cannot be bound, or must not be.
pub async fn listen_tcp(address: SocketAddr, token: Option<&SecretString>) -> io::Result<TcpListener> {
    if token.is_none() && !address.ip().is_loopback() {
        let message = "it can be reached from other machines, and there is no token";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    TcpListener::bind(address).await
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
struct Who {
    uid: Option<u32>,
    pid: Option<i32>,
}

async fn name_who_asks(State(who): State<Who>, request: Request, next: Next) -> Response {
    if request.method() != axum::http::Method::GET {
        tracing::info!(uid = who.uid, pid = who.pid, path = request.uri().path(), "control request");
    }
    next.run(request).await
}

struct Guard {
    token: Option<SecretString>,
}

async fn let_in(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let refuse = |message: &str| {
        No(StatusCode::UNAUTHORIZED, Refusal::new(Exit::Unauthorised, message)).into_response()
    };
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    match &guard.token {
        Some(token) => {
            let given = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            if !given.is_some_and(|given| is_same(given, token.expose_secret())) {
                return refuse("a bearer token is asked for, and none or another was given");
            }
        }
        // A page in a browser on this machine must not command the daemon.
        None if headers.contains_key(header::ORIGIN) || !text(header::HOST).is_some_and(is_loopback) => {
            return refuse("only programs on this machine are answered without a token");
        }
        None => {}
    }
    next.run(request).await
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or_default();
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Compares in a time that says nothing about where two texts differ.
fn is_same(a: &str, b: &str) -> bool {
    use sha2::{Digest, Sha256};
    let (a, b) = (Sha256::digest(a.as_bytes()), Sha256::digest(b.as_bytes()));
    a.iter().zip(b.iter()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
