//! The control socket and the TCP listener, and authentication of their clients.

use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use secrecy::SecretString;
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::server::access::{TcpAccess, authenticate, check_site};
use crate::server::connections::ConnectionLimit;

/// Most bytes of a socket's path: `sun_path` of unix(7) has 108, and a zero ends it.
pub const PATH_MAX_BYTES: usize = 107;

/// Between two looks at whether the socket's file is still there: whatever cleans temporary folders may remove it.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Removes the socket's file when dropped, unless another process has taken it over.
#[derive(Debug)]
pub struct SocketGuard {
    path: PathBuf,
    file: SocketFile,
}

/// Device and inode of the socket's present file.
type SocketFile = Arc<Mutex<(u64, u64)>>;

/// Device and inode of a file.
fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        let file = *self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file_at(&self.path).is_ok_and(|found| found == file) {
            // A socket file without a listener is stale; the next daemon replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A socket that is served until this is dropped; its file goes with it.
#[derive(Debug)]
pub struct ServedSocket {
    serving: tokio::task::JoinHandle<()>,
    _guard: SocketGuard,
}

impl ServedSocket {
    /// Begins to serve.
    pub fn begin(listener: UnixListener, guard: SocketGuard, router: Router) -> ServedSocket {
        let serving = tokio::spawn(serve_socket(listener, &guard, router));
        ServedSocket { serving, _guard: guard }
    }
}

impl Drop for ServedSocket {
    fn drop(&mut self) {
        // It would make the file again.
        self.serving.abort();
    }
}

/// Listens on a Unix socket that its owner and its group may use. A stale one of an earlier process is removed; one on
/// which a process listens is not.
///
/// # Errors
/// When the address cannot be bound, somebody listens there, or something else lies there.
pub async fn listen(path: &Path) -> io::Result<(UnixListener, SocketGuard)> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_MAX_BYTES {
        let message = format!("the path has {bytes} bytes; a socket path has at most {PATH_MAX_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, message));
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => remove_stale(path).await?,
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the existing file is not a socket"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (listener, file) = bind(path)?;
    Ok((listener, SocketGuard { path: path.to_owned(), file: Arc::new(Mutex::new(file)) }))
}

fn bind(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok((listener, file_at(path)?))
}

/// Removes a socket on which no process listens.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let in_use = |who: String| Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{who} listens there")));
    match UnixStream::connect(path).await {
        Ok(stream) => match stream.peer_cred().ok().and_then(|peer| peer.pid()) {
            Some(pid) => in_use(format!("process {pid}")),
            None => in_use("another process".to_owned()),
        },
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            // It went away meanwhile.
            io::ErrorKind::NotFound => Ok(()),
            // More wait for it than the system lets wait.
            io::ErrorKind::WouldBlock => in_use("another process".to_owned()),
            _ => Err(error),
        },
    }
}

/// Serves the Unix socket for ever. The file's mode says who may connect; commands are logged with their peer. A
/// removed file is created again.
fn serve_socket(
    mut listener: UnixListener,
    name: &SocketGuard,
    router: Router,
) -> impl Future<Output = ()> + use<> {
    let (path, file) = (name.path.clone(), name.file.clone());
    async move {
        let limit = ConnectionLimit::new();
        let mut checks = tokio::time::interval(FILE_CHECK_INTERVAL);
        let mut is_told = false;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = checks.tick() => {
                    match rebind(&path, &file) {
                        Ok(None) => {}
                        Ok(Some(anew)) => {
                            tracing::warn!(socket = %path.display(), "the control socket was removed; created it \
                                                                      again");
                            (listener, is_told) = (anew, false);
                        }
                        Err(error) => {
                            if !std::mem::replace(&mut is_told, true) {
                                let socket = path.display();
                                tracing::error!(%socket, %error, "the control socket was removed and cannot be \
                                                                  created again");
                            }
                        }
                    }
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    let Ok(peer) = stream.peer_cred() else { continue };
                    let peer = Peer { uid: Some(peer.uid()), pid: peer.pid() };
                    let router = router
                        .clone()
                        .layer(middleware::from_fn_with_state(peer, log_peer))
                        .layer(middleware::from_fn(check_site));
                    limit.serve(stream, router).await;
                }
                Err(error) => back_off(&error).await,
            }
        }
    }
}

/// Binds the socket anew if its file is gone. A file that another process put there is left alone.
fn rebind(path: &Path, file: &SocketFile) -> io::Result<Option<UnixListener>> {
    match file_at(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        _ => return Ok(None),
    }
    let (listener, found) = bind(path)?;
    *file.lock().unwrap_or_else(PoisonError::into_inner) = found;
    Ok(Some(listener))
}

/// Serves TCP for ever. With a token nothing but the login is answered without it; without one there is only reading, from
/// this machine.
pub async fn serve_tcp(listener: TcpListener, router: Router, access: Arc<TcpAccess>) {
    let limit = ConnectionLimit::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = Peer { uid: None, pid: None };
                let router = router
                    .clone()
                    .layer(middleware::from_fn_with_state(peer, log_peer))
                    .layer(middleware::from_fn_with_state(access.clone(), authenticate));
                limit.serve(stream, router).await;
            }
            Err(error) => back_off(&error).await,
        }
    }
}

/// Waits after an error of `accept`, such as too many open files.
async fn back_off(error: &io::Error) {
    tracing::warn!(%error, "failed to accept a control connection");
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Binds the TCP address. One that other machines reach needs a token.
///
/// # Errors
/// When the address cannot be bound, or must not be.
pub async fn listen_tcp(address: SocketAddr, token: Option<&SecretString>) -> io::Result<TcpListener> {
    if token.is_none() && !address.ip().is_loopback() {
        let message = "the address can be reached from other machines, and no token is set";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    TcpListener::bind(address).await
}

/// The process at the other end.
#[derive(Debug, Clone, Copy)]
struct Peer {
    uid: Option<u32>,
    pid: Option<i32>,
}

async fn log_peer(State(peer): State<Peer>, request: Request, next: Next) -> Response {
    if request.method() != axum::http::Method::GET {
        tracing::info!(uid = peer.uid, pid = peer.pid, path = request.uri().path(), "control request");
    }
    next.run(request).await
}
