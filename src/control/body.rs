//! Bodies of requests, taken in as long as they come at a pace.

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::StreamExt;
use tokio::time::Sleep;

/// How slowly a body may come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Longest wait for the next byte.
    pub(super) silence: Duration,
    /// What a body may take beside the time that its bytes allow it.
    pub(super) grace: Duration,
    /// Bytes a second that it has to come with on average after the grace.
    pub(super) bytes_per_second: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        let patience = Duration::from_secs(30);
        Pace { silence: patience, grace: patience, bytes_per_second: 1024 }
    }
}

/// Why a body is not taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// It stopped.
    #[error("the body stopped coming: nothing for {} seconds", .0.as_secs())]
    Silent(Duration),
    /// It drips.
    #[error("the body comes too slowly: at least {0} bytes a second are expected")]
    Slow(u32),
    /// The connection broke, or what came is no body.
    #[error("the body broke off: {0}")]
    Broken(axum::Error),
}

/// A body, piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    stream: BodyDataStream,
    /// When it has come too slowly; every byte moves it on.
    too_late: Pin<Box<Sleep>>,
    pace: Pace,
}

impl Pieces {
    pub(super) fn of(body: Body, pace: Pace) -> Pieces {
        Pieces { stream: body.into_data_stream(), too_late: Box::pin(tokio::time::sleep(pace.grace)), pace }
    }

    /// The next piece; nothing after the last.
    ///
    /// # Errors
    /// [`BodyError`].
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let piece = tokio::select! {
            biased;
            piece = self.stream.next() => piece,
            () = &mut self.too_late => return Err(BodyError::Slow(self.pace.bytes_per_second)),
            () = tokio::time::sleep(self.pace.silence) => return Err(BodyError::Silent(self.pace.silence)),
        };
        let piece = piece.transpose().map_err(BodyError::Broken)?;
        if let Some(piece) = &piece {
            let worth = Duration::from_secs(piece.len() as u64) / self.pace.bytes_per_second.max(1);
            let later = self.too_late.deadline() + worth;
            self.too_late.as_mut().reset(later);
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use axum::Router;
    use axum::routing::post;

    use super::*;
    use crate::control::connections::{self, Places};

    const PACE: Pace = Pace {
        silence: Duration::from_millis(400),
        grace: Duration::from_millis(200),
        bytes_per_second: 1_000,
    };

    /// What a server answers that takes bodies in at [`PACE`]: `pieces` of a body, with a wait before each.
    async fn answer(pieces: &'static [(u64, usize)]) -> String {
        let router = Router::new().route(
            "/",
            post(async |body: Body| {
                let mut pieces = Pieces::of(body, PACE);
                let mut bytes = 0;
                loop {
                    match pieces.next().await {
                        Ok(Some(piece)) => bytes += piece.len(),
                        Ok(None) => return format!("{bytes} bytes"),
                        Err(error) => return error.to_string(),
                    }
                }
            }),
        );
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let place = Places::new().take().await.unwrap();
        connections::serve(tokio::net::UnixStream::from_std(server).unwrap(), router, place);
        let client = tokio::task::spawn_blocking(move || {
            let length: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
            write!(
                client,
                "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
            )?;
            client.set_nonblocking(false)?;
            for (wait, bytes) in pieces {
                // A server that has had enough answers before the body is whole.
                client.set_read_timeout(Some(Duration::from_millis((*wait).max(1))))?;
                let mut said = vec![0; 1024];
                if let Ok(read @ 1..) = client.read(&mut said) {
                    said.truncate(read);
                    return Ok::<_, std::io::Error>(said);
                }
                client.write_all(&vec![b'x'; *bytes])?;
            }
            client.set_read_timeout(Some(Duration::from_secs(20)))?;
            let mut said = vec![0; 1024];
            let read = client.read(&mut said)?;
            said.truncate(read);
            Ok(said)
        });
        String::from_utf8(client.await.unwrap().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_body_may_come_slowly_but_has_to_come() {
        let steady = answer(&[(0, 1000), (300, 1000), (300, 1000), (300, 1000)]).await;
        assert!(steady.ends_with("4000 bytes"), "{steady}");
        let stopped = answer(&[(0, 100_000), (20_000, 1)]).await;
        assert!(stopped.contains("nothing for"), "{stopped}");
        let dripping = answer(&[(0, 1), (100, 1), (100, 1), (100, 1), (100, 1), (20_000, 1)]).await;
        assert!(dripping.contains("too slowly"), "{dripping}");
    }
}
