//! Server connections that can be cut: a fault plan may end a connection without a single byte of an answer. Connections are counted: beyond the limit the next one waits for another to end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A handle on one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionHandle {
    cut: Arc<AtomicBool>,
}

impl ConnectionHandle {
    /// Nothing more is written; the connection ends at the next attempt.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }
}

/// The most connections that are open at once, per origin.
pub(crate) const MOST_CONNECTIONS: usize = 1024;

/// A TCP listener whose connections can be cut.
#[derive(Debug)]
pub(crate) struct CuttableListener {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl CuttableListener {
    /// At most so many connections at once.
    pub(crate) fn new(listener: TcpListener, most: usize) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(most)) }
    }
}

impl Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed; without a permit a connection would merely not be counted.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Small answers should leave at once; a socket that cannot do that still works.
                    let _ = stream.set_nodelay(true);
                    return (
                        CuttableStream { stream, connection: ConnectionHandle::default(), _permit: permit },
                        peer,
                    );
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for ConnectionHandle {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        stream.io().connection.clone()
    }
}

/// A connection that can be cut.
#[derive(Debug)]
pub(crate) struct CuttableStream {
    stream: TcpStream,
    connection: ConnectionHandle,
    /// Counts the connection as long as it lives.
    _permit: Option<OwnedSemaphorePermit>,
}

impl CuttableStream {
    fn alive(&self) -> io::Result<()> {
        if self.connection.cut.load(Ordering::SeqCst) {
            Err(io::ErrorKind::ConnectionReset.into())
        } else {
            Ok(())
        }
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.alive()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.alive()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.alive()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_connection_too_many_waits_until_another_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = CuttableListener::new(listener, 2);
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let first = listener.accept().await;
        let _second = listener.accept().await;
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, listener.accept()).await.is_err());
        drop(first);
        listener.accept().await;
    }
}
