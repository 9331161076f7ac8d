//! The client that commands use: it talks to the daemon if one runs on the state, and else works on the state
//! itself. Both give the same answers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::arguments::Global;
use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{build, service_target};
use crate::clock::Clock;
use crate::config::Config;
use crate::control::client::{ControlClient, ControlClientError};
use crate::control::handlers::{self, HandlerError};
use crate::control::protocol::{
    BatchOutcomes, BatchRequest, BatchState, BatchStatus, BudgetRequest, BudgetSet, Explanation, NameRequest,
    Refusal, ResolveRequest, RetryRequest, Status,
};
use crate::domain::admission::Parked;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchName;
use crate::domain::job_state::JobState;
use crate::engine::engine_client::EngineClient;
use crate::store::Store;

/// Name of the control socket in the state.
const SOCKET: &str = "callsheet.sock";

/// Local or remote access to batches.
pub(super) enum Client {
    /// Works on the state in this process: no daemon runs.
    Local(EngineClient),
    /// Talks to the daemon.
    Remote(DaemonConnection),
}

/// Path of the control socket of a state's daemon.
pub(super) fn socket(config: &Config, state: &Path) -> PathBuf {
    config.paths.socket.clone().unwrap_or_else(|| state.join(SOCKET))
}

/// Connects to the daemon, or opens the state.
pub(super) async fn open(global: &Global) -> Result<Client, Failure> {
    let config = service_target::config(global)?;
    match daemon_discovery::find_daemon(global, &config, false).await? {
        Some(daemon) => Ok(Client::Remote(daemon)),
        None => {
            let dir = service_target::state_dir(&config, false);
            let store = Arc::new(Store::open_existing(&dir)?);
            Ok(Client::Local(EngineClient::in_process(
                store,
                build::scheduler_settings(&config)?,
                Clock::start(),
            )?))
        }
    }
}

#[derive(Serialize)]
struct BatchQuery<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<&'a BatchName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<JobState>,
}

/// Where lines of JSON go.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

impl Client {
    pub(super) async fn status(&self, batch: Option<&BatchName>) -> Result<Status, Failure> {
        match self {
            Client::Local(desk) => Ok(handlers::status(desk, batch).await?),
            Client::Remote(DaemonConnection { client, .. }) => Ok(status_of(client, batch).await?),
        }
    }

    /// The result of every job, one line each.
    pub(super) async fn jobs(
        &self,
        batch: Option<&BatchName>,
        state: Option<JobState>,
        sink: Sink<'_>,
    ) -> Result<(), Failure> {
        match self {
            Client::Local(desk) => {
                let batches = desk.batches(batch).await.map_err(HandlerError::from)?;
                Ok(handlers::jobs(desk.store(), &batches, state, sink)?)
            }
            Client::Remote(DaemonConnection { client, .. }) => {
                Ok(client.lines("/v1/jobs", &BatchQuery { batch, state }, sink).await?)
            }
        }
    }

    /// Every movement, one line each.
    pub(super) async fn ledger(&self, batch: Option<&BatchName>, sink: Sink<'_>) -> Result<(), Failure> {
        match self {
            Client::Local(desk) => {
                let batches = desk.batches(batch).await.map_err(HandlerError::from)?;
                Ok(handlers::ledger(desk.store(), &batches, sink)?)
            }
            Client::Remote(DaemonConnection { client, .. }) => {
                Ok(client.lines("/v1/ledger", &BatchQuery { batch, state: None }, sink).await?)
            }
        }
    }

    /// Prints how many archived batches a list leaves out.
    pub(super) async fn report_archived(&self) -> Result<(), Failure> {
        let batches = match self {
            Client::Local(desk) => desk.store().archived_count(),
            Client::Remote(_) => self.status(None).await?.archived,
        };
        match batches {
            0 => {}
            1 => anstream::eprintln!("1 archived batch is not listed; give its name to see it"),
            _ => anstream::eprintln!("{batches} archived batches are not listed; give a name to see one"),
        }
        Ok(())
    }

    pub(super) async fn explain(&self, job: &str) -> Result<Explanation, Failure> {
        match self {
            Client::Local(desk) => Ok(handlers::explain(desk, job).await?),
            Client::Remote(DaemonConnection { client, .. }) => {
                Ok(client.get("/v1/explain", &[("job", job)]).await?)
            }
        }
    }

    pub(super) async fn pause(&self, batch: Option<&BatchName>) -> Result<BatchOutcomes, Failure> {
        match self {
            Client::Local(desk) => Ok(handlers::pause(desk, batch).await?),
            Client::Remote(DaemonConnection { client, .. }) => {
                post(client, "/v1/pause", &batch_request(batch)).await
            }
        }
    }

    pub(super) async fn resume(&self, batch: Option<&BatchName>) -> Result<BatchOutcomes, Failure> {
        match self {
            Client::Local(desk) => Ok(handlers::resume(desk, batch).await?),
            Client::Remote(DaemonConnection { client, .. }) => {
                post(client, "/v1/resume", &batch_request(batch)).await
            }
        }
    }

    pub(super) async fn cancel(&self, name: &str) -> Result<BatchOutcomes, Failure> {
        match self {
            Client::Local(desk) => Ok(handlers::cancel(desk, name).await?),
            Client::Remote(DaemonConnection { client, .. }) => {
                post(client, "/v1/cancel", &name_request(name)).await
            }
        }
    }

    pub(super) async fn retry(&self, asked: &RetryRequest) -> Result<BatchOutcomes, Failure> {
        match self {
            Client::Local(desk) => {
                Ok(handlers::retry(desk, &asked.name, asked.max_credits.map(Credits)).await?)
            }
            Client::Remote(DaemonConnection { client, .. }) => post(client, "/v1/retry", asked).await,
        }
    }

    pub(super) async fn resolve(&self, found: &ResolveRequest) -> Result<BatchOutcomes, Failure> {
        match self {
            Client::Local(desk) => Ok(handlers::resolve(desk, found).await?),
            Client::Remote(DaemonConnection { client, .. }) => post(client, "/v1/resolve", found).await,
        }
    }

    /// Sets the budget of a batch; `default` is the configuration's, for a batch that has none of its own.
    pub(super) async fn set_budget(
        &self,
        request: &BudgetRequest,
        default: Option<Credits>,
    ) -> Result<BudgetSet, Failure> {
        match self {
            Client::Local(desk) => Ok(handlers::set_budget(desk, request, default).await?),
            Client::Remote(DaemonConnection { client, .. }) => post(client, "/v1/budget", request).await,
        }
    }

    /// What happens next with a batch: who continues it, or what blocks it.
    pub(super) async fn next_step(&self, batch: &BatchName) -> Result<String, Failure> {
        let status = self.status(Some(batch)).await?;
        Ok(status.batches.first().map_or_else(String::new, next_step_of))
    }
}

/// What a command says that comes next. The status of a state that no process works on is never active.
fn next_step_of(status: &BatchStatus) -> String {
    match (status.state, status.parked_by) {
        (BatchState::Done, _) => "all its jobs have ended".to_owned(),
        (BatchState::Paused, _) => {
            format!("it is paused; to continue: callsheet resume {}", status.name)
        }
        (BatchState::Parked, Some(Parked::NoProcess)) => Parked::NoProcess.explain().to_owned(),
        (BatchState::Parked, Some(parked)) => format!("it is parked: {}", parked.explain()),
        (BatchState::Active | BatchState::Parked, _) => "the daemon continues it".to_owned(),
    }
}

/// The daemon's status of one batch, or of all.
pub(super) async fn status_of(
    client: &ControlClient,
    batch: Option<&BatchName>,
) -> Result<Status, ControlClientError> {
    client.get("/v1/status", &BatchQuery { batch, state: None }).await
}

fn batch_request(batch: Option<&BatchName>) -> BatchRequest {
    BatchRequest { batch: batch.cloned() }
}

/// A request that names a batch or a job.
pub(super) fn name_request(name: &str) -> NameRequest {
    NameRequest { name: name.to_owned() }
}

async fn post<T: DeserializeOwned>(
    client: &ControlClient,
    path: &str,
    body: &impl Serialize,
) -> Result<T, Failure> {
    Ok(client.post(path, body).await?)
}

impl From<Refusal> for Failure {
    fn from(Refusal { message, hint, exit_code }: Refusal) -> Failure {
        let failure = Failure::new(Exit::of_code(exit_code), message);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<HandlerError> for Failure {
    fn from(error: HandlerError) -> Failure {
        match error {
            HandlerError::Engine(error) => error.into(),
            HandlerError::Reader(error) => match super::written(Err(error)) {
                Err(failure) => failure,
                // The reader closed the pipe.
                Ok(()) => Failure::quiet(),
            },
            HandlerError::Find(_) => error.refusal().into(),
        }
    }
}

impl From<ControlClientError> for Failure {
    fn from(error: ControlClientError) -> Failure {
        match error {
            ControlClientError::Refused(refusal) => refusal.into(),
            ControlClientError::Io(error) => HandlerError::Reader(error).into(),
            ControlClientError::NoDaemon { .. } => Failure::new(Exit::Unreachable, error.to_string())
                .hint("start it with callsheet daemon, or give its socket with --socket"),
            ControlClientError::PathTooLong { .. } => Failure::new(Exit::Usage, error.to_string())
                .hint("choose a shorter path with --socket or paths.socket"),
            ControlClientError::PermissionDenied { .. } => Failure::new(Exit::Unreachable, error.to_string())
                .hint("add the user to the socket's group; see callsheet doctor"),
            ControlClientError::ConnectionLost { .. } => Failure::new(Exit::Unreachable, error.to_string())
                .hint("accepted manifests are safe; check that the daemon runs, then repeat the command"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_batch_is_told_in_the_place_of_who_goes_on() {
        let next = |state: &str, parked_by: Option<Parked>| {
            let status = serde_json::json!({
                "name": "spring", "state": state, "parked_by": parked_by, "jobs": 2, "planned_credits": 0,
                "budget_credits": 0, "held_credits": 0, "charged_credits": 0, "waived_credits": 0,
                "refunded_credits": 0,
            });
            next_step_of(&serde_json::from_value(status).unwrap())
        };
        assert_eq!(next("active", None), "the daemon continues it");
        assert_eq!(next("done", None), "all its jobs have ended");
        assert_eq!(
            next("paused", Some(Parked::Paused)),
            "it is paused; to continue: callsheet resume spring"
        );
        assert_eq!(
            next("parked", Some(Parked::NoProcess)),
            "no process works on this state; to continue: callsheet run MANIFEST, or callsheet daemon"
        );
        let kept = next("parked", Some(Parked::BatchBudget));
        assert!(kept.starts_with("it is parked: the next job does not fit"), "{kept}");
    }
}
