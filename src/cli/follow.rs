//! Follows a batch that a daemon works on: survives a restart of the daemon, ends on an interrupt.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::daemon_discovery::DaemonConnection;
use crate::cli::failure::Failure;
use crate::cli::terminal::say;
use crate::client::{Client, ClientError};
use crate::domain::exit_code::Exit;
use crate::server::protocol::{HealthRequest, ProcessKind};

/// How long to wait for a daemon that went away. Under systemd it is back within seconds.
const ABSENCE_MAX: Duration = Duration::from_secs(30);
/// Between two tries to reconnect.
const TRY_INTERVAL: Duration = Duration::from_millis(500);

/// Polls a daemon, and waits for it when it goes away.
#[derive(Debug)]
pub(super) struct Follower<'a> {
    client: &'a Client,
    /// The daemon's state: another daemon may replace it.
    state: PathBuf,
    absence_max: Duration,
}

impl<'a> Follower<'a> {
    pub(super) fn new(daemon: &'a DaemonConnection) -> Follower<'a> {
        Follower { client: &daemon.client, state: daemon.health.state.clone(), absence_max: ABSENCE_MAX }
    }

    /// Sends a request, and repeats it until the daemon answers.
    ///
    /// # Errors
    /// What the daemon refuses, and that it does not come back.
    pub(super) async fn ask<T>(
        &self,
        question: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        // A connection may break for less than the end of a daemon.
        for _ in 0..2 {
            match question(self.client).await {
                Err(error) if is_gone(&error) => {}
                answer => return Ok(answer?),
            }
        }
        say!("lost the connection to the daemon; the batch is safe; reconnecting");
        let asking = async {
            loop {
                tokio::time::sleep(TRY_INTERVAL).await;
                match self.ask_if_same_daemon(&question).await {
                    Err(error) if is_gone(&error) => {}
                    answer => return answer,
                }
            }
        };
        let Ok(answer) = tokio::time::timeout(self.absence_max, asking).await else {
            let seconds = self.absence_max.as_secs();
            let message = format!("the daemon did not come back within {seconds} seconds");
            return Err(Failure::new(Exit::Unreachable, message).hint(
                "the batch is safe and continues when the daemon runs again; callsheet status shows its progress",
            ));
        };
        let Some(answer) = answer? else {
            let message = "the daemon was replaced by one that works on another state";
            return Err(Failure::new(Exit::Unreachable, message)
                .hint(format!("the batch is safe in {}", self.state.display())));
        };
        say!("reconnected to the daemon");
        Ok(answer)
    }

    /// None when a daemon of another state answers.
    async fn ask_if_same_daemon<T>(
        &self,
        question: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<Option<T>, ClientError> {
        if self.client.call(&HealthRequest {}).await?.state != self.state {
            return Ok(None);
        }
        question(self.client).await.map(Some)
    }
}

/// Whether the daemon is gone or stopping.
pub(super) fn is_gone(error: &ClientError) -> bool {
    match error {
        ClientError::NoDaemon { .. } | ClientError::ConnectionLost { .. } => true,
        ClientError::Refused(refusal) => refusal.exit_code == Exit::Unfinished.code(),
        ClientError::PathTooLong { .. }
        | ClientError::PermissionDenied { .. }
        | ClientError::Manifest(_)
        | ClientError::Io(_) => false,
    }
}

/// Reports that a process continues without this command. `name` is a batch's, or a placeholder.
pub(super) fn report_interrupted(process: ProcessKind, name: &str) -> Exit {
    let process = process.name();
    say!(
        "interrupted: {process} continues; callsheet status {name} shows the progress, callsheet cancel {name} \
         cancels jobs that are not submitted yet"
    );
    Exit::Interrupted
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::server::protocol::Refusal;

    async fn answers(answers: &[Option<&str>], absence_max: Duration) -> Result<String, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let client = Client::connect(&socket).await.unwrap();
        let follower = Follower { client: &client, state: PathBuf::from("/state"), absence_max };
        let asked = Cell::new(0);
        follower
            .ask(async |_: &Client| {
                let answer = answers.get(asked.replace(asked.get() + 1)).copied().flatten();
                let gone = Refusal::new(Exit::Unfinished, "the daemon is stopping");
                answer.map(str::to_owned).ok_or(ClientError::Refused(gone))
            })
            .await
    }

    #[tokio::test]
    async fn one_that_does_not_come_back_is_told_as_what_it_is() {
        assert_eq!(answers(&[None, Some("again")], Duration::ZERO).await.unwrap(), "again");
        let (exit, message, hint) = answers(&[], Duration::from_millis(20)).await.unwrap_err().into_parts();
        assert_eq!((exit, &*message), (Exit::Unreachable, "the daemon did not come back within 0 seconds"));
        assert!(hint.unwrap().contains("the batch is safe and continues when the daemon runs again"));
    }
}
