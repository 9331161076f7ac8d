//! Request bodies with an idle timeout and a minimum rate.

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::StreamExt;
use tokio::time::Sleep;

/// The slowest rate at which a body is accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyRate {
    /// Longest wait for the next bytes.
    pub(super) idle_timeout: Duration,
    /// Added to the time that the minimum rate allows.
    pub(super) grace: Duration,
    /// Minimum average rate after the grace period.
    pub(super) bytes_per_second: u32,
}

impl Default for BodyRate {
    fn default() -> BodyRate {
        let patience = Duration::from_secs(30);
        BodyRate { idle_timeout: patience, grace: patience, bytes_per_second: 1024 }
    }
}

/// Why a body is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("body timeout: no data for {} seconds", .0.as_secs())]
    Stalled(Duration),
    #[error("the body is too slow: at least {0} bytes per second are required")]
    TooSlow(u32),
    /// The connection broke, or the body is malformed.
    #[error("the body ended early: {0}")]
    Broken(axum::Error),
}

/// A body, read chunk by chunk.
#[derive(Debug)]
pub(super) struct TimedBody {
    stream: BodyDataStream,
    /// When the body is too slow; every byte extends it.
    deadline: Pin<Box<Sleep>>,
    rate: BodyRate,
}

impl TimedBody {
    pub(super) fn of(body: Body, rate: BodyRate) -> TimedBody {
        TimedBody {
            stream: body.into_data_stream(),
            deadline: Box::pin(tokio::time::sleep(rate.grace)),
            rate,
        }
    }

    /// The next chunk; none after the last.
    ///
    /// # Errors
    /// [`BodyError`].
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let chunk = tokio::select! {
            biased;
            chunk = self.stream.next() => chunk,
            () = &mut self.deadline => return Err(BodyError::TooSlow(self.rate.bytes_per_second)),
            () = tokio::time::sleep(self.rate.idle_timeout) => return Err(BodyError::Stalled(self.rate.idle_timeout)),
        };
        let chunk = chunk.transpose().map_err(BodyError::Broken)?;
        if let Some(chunk) = &chunk {
            let worth = Duration::from_secs(chunk.len() as u64) / self.rate.bytes_per_second.max(1);
            let later = self.deadline.deadline() + worth;
            self.deadline.as_mut().reset(later);
        }
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use axum::Router;
    use axum::routing::post;

    use super::*;
    use crate::control::connections::{self, ConnectionLimit};

    const BODY_RATE: BodyRate = BodyRate {
        idle_timeout: Duration::from_millis(400),
        grace: Duration::from_millis(200),
        bytes_per_second: 1_000,
    };

    /// What a server answers that takes bodies in at [`PACE`]: `chunks` of a body, with a wait before each.
    async fn answer(chunks: &'static [(u64, usize)]) -> String {
        let router = Router::new().route(
            "/",
            post(async |body: Body| {
                let mut chunks = TimedBody::of(body, BODY_RATE);
                let mut bytes = 0;
                loop {
                    match chunks.next().await {
                        Ok(Some(chunk)) => bytes += chunk.len(),
                        Ok(None) => return format!("{bytes} bytes"),
                        Err(error) => return error.to_string(),
                    }
                }
            }),
        );
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let permit = ConnectionLimit::new().take().await.unwrap();
        connections::serve(tokio::net::UnixStream::from_std(server).unwrap(), router, permit);
        let client = tokio::task::spawn_blocking(move || {
            let length: usize = chunks.iter().map(|(_, bytes)| bytes).sum();
            write!(
                client,
                "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
            )?;
            client.set_nonblocking(false)?;
            for (wait, bytes) in chunks {
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
        assert!(stopped.contains("body timeout"), "{stopped}");
        let dripping = answer(&[(0, 1), (100, 1), (100, 1), (100, 1), (100, 1), (20_000, 1)]).await;
        assert!(dripping.contains("too slow"), "{dripping}");
    }
}
