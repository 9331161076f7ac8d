//! The client that commands use: of the daemon if one runs on the state, otherwise of an engine in this process. Both
//! serve the same routes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;

use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::service_target::PresentState;
use crate::cli::terminal::say;
use crate::cli::{build, service_target};
use crate::client::InProcess;
use crate::client::{Client, ClientError};
use crate::clock::Clock;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::parked_reason::Parked;
use crate::engine::{Mode, Scope};
use crate::server::app::App;
use crate::server::protocol::{BatchState, BatchStatus, Lines, ProcessKind, Request, StatusRequest};
use crate::store::{Store, StoreError};

/// How long a process may take from when it has the state until it listens.
const BEGINNING: Duration = Duration::from_secs(5);
/// Between two looks at whether it does.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The control API of the state that a command names: a daemon's, or this process's own where none runs.
pub(super) enum StateClient {
    /// A daemon works on the state.
    Daemon(Box<DaemonConnection>),
    /// An engine in this process has the state.
    InProcess(InProcess),
}

/// Sends one request: to the daemon if one runs on the state, otherwise to an engine in this process. A question
/// then changes nothing, and a command sends nothing.
///
/// # Errors
/// When the state cannot be opened, and what the request meets.
pub(super) async fn call<R: Request>(global: &Global, request: &R) -> Result<R::Response, Failure> {
    with(global, R::METHOD, async |client| client.call(request).await).await
}

/// The same for several requests, of this method or of [`Method::GET`].
///
/// # Errors
/// When the state cannot be opened, and what `work` meets.
pub(super) async fn with<T>(
    global: &Global,
    method: Method,
    work: impl AsyncFnOnce(&StateClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let config = service_target::config(global)?;
    let state = PresentState::find(global, &config);
    let clock = Clock::start();
    let socket = daemon_discovery::socket(&config, &state.dir);
    let mut daemon = daemon_discovery::find_daemon(global, &config, state.is_emulated).await?;
    let store = loop {
        if let Some(daemon) = daemon {
            return work(&StateClient::Daemon(Box::new(daemon))).await;
        }
        match Store::open_briefly(&state.dir) {
            // A process that has just begun listens in a moment.
            Err(StoreError::InUse { .. }) if clock.elapsed() < BEGINNING => {
                tokio::time::sleep(LOOK_INTERVAL).await;
                let listens = daemon_discovery::ask_who_listens(&socket).await;
                daemon = match listens.filter(|listens| listens.works_on(&state.dir)) {
                    Some(_) => daemon_discovery::find_daemon(global, &config, state.is_emulated).await?,
                    None => None,
                };
            }
            opened => break Arc::new(opened?),
        }
    };
    let mode = if method == Method::GET { Mode::Read } else { Mode::Offline };
    build::list_finished(&store, &config, clock);
    let parts = build::app_parts(&config, &state.output_dir(&config), None)?;
    let app = App::new(store, mode, &Scope::All, parts, clock)?;
    let client = StateClient::InProcess(InProcess::begin(app));
    let done = work(&client).await;
    if let StateClient::InProcess(engine) = client {
        // An engine that ended by itself says why.
        engine.end().await?;
    }
    done
}

impl StateClient {
    fn client(&self) -> &Client {
        match self {
            StateClient::Daemon(daemon) => &daemon.client,
            StateClient::InProcess(engine) => engine.client(),
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// What it meets.
    pub(super) async fn call<R: Request>(&self, request: &R) -> Result<R::Response, Failure> {
        Ok(self.client().call(request).await?)
    }

    /// Sends a request and passes the response on, line by line. Returns how many finished batches it leaves out.
    ///
    /// # Errors
    /// What it meets.
    pub(super) async fn lines(
        &self,
        request: &impl Request<Response = Lines>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, Failure> {
        Ok(self.client().lines(request, sink).await?)
    }

    /// The process that works on the state; nothing where none does.
    pub(super) fn process(&self) -> Option<ProcessKind> {
        match self {
            StateClient::Daemon(daemon) => Some(daemon.health.process),
            StateClient::InProcess(_) => None,
        }
    }

    /// What happens next with a batch: who continues it, or what blocks it.
    ///
    /// # Errors
    /// What the question for its status meets.
    pub(super) async fn next_step(&self, batch: &BatchName) -> Result<String, Failure> {
        self.next_step_unless_no_process(batch, Parked::NoProcess.explain()).await
    }

    /// The same where the manifest as it is would take back what was done: only a daemon continues that without it.
    ///
    /// # Errors
    /// What the question for its status meets.
    pub(super) async fn next_step_without_manifest(&self, batch: &BatchName) -> Result<String, Failure> {
        let daemon = "no process works on this state; to continue: callsheet daemon";
        self.next_step_unless_no_process(batch, daemon).await
    }

    async fn next_step_unless_no_process(
        &self,
        batch: &BatchName,
        no_process: &str,
    ) -> Result<String, Failure> {
        let status = self.call(&StatusRequest { batch: Some(batch.clone()), all: false }).await?;
        let next = |batch| next_step_of(batch, self.process(), no_process);
        Ok(status.batches.first().map_or_else(String::new, next))
    }
}

/// Prints how many finished batches a list leaves out.
pub(super) fn report_not_listed(batches: u64) {
    match batches {
        0 => {}
        1 => say!("1 finished batch is not listed; give its name to see it"),
        batches => say!("{batches} finished batches are not listed; give a name to see one"),
    }
}

/// What a command says that comes next; `process` works on the state, and if none does, `no_process` is said.
fn next_step_of(status: &BatchStatus, process: Option<ProcessKind>, no_process: &str) -> String {
    match (status.state, status.parked_by) {
        (BatchState::Done, _) => "all its jobs have ended".to_owned(),
        (BatchState::Review, _) => {
            format!("{} wait for review: callsheet review {}", status.waiting_for_review, status.name)
        }
        (BatchState::Paused, _) => {
            format!("it is paused; to continue: callsheet resume {}", status.name)
        }
        (BatchState::Parked, Some(parked)) if parked != Parked::NoProcess => {
            format!("it is parked: {}", parked.explain_for(&status.name))
        }
        (BatchState::Active | BatchState::Parked, _) => match process {
            Some(process) => format!("{} continues it", process.name()),
            None => no_process.to_owned(),
        },
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Refused(refusal) => refusal.into(),
            ClientError::Manifest(error) => error.into(),
            ClientError::Io(error) => match super::written(Err(error)) {
                Err(failure) => failure,
                // The reader closed the pipe.
                Ok(()) => Failure::quiet(),
            },
            ClientError::NoDaemon { .. } => Failure::new(Exit::Unreachable, error.to_string())
                .hint("start it with callsheet daemon, or give its socket with --socket"),
            ClientError::PathTooLong { .. } => Failure::new(Exit::Usage, error.to_string())
                .hint("choose a shorter path with --socket or paths.socket"),
            ClientError::PermissionDenied { .. } => Failure::new(Exit::Unreachable, error.to_string())
                .hint("add the user to the socket's group; see callsheet doctor"),
            ClientError::ConnectionLost { .. } => Failure::new(Exit::Unreachable, error.to_string())
                .hint("accepted manifests are safe; check that the daemon runs, then repeat the command"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_batch_is_told_in_the_place_of_who_goes_on() {
        let next_with = |state: &str, parked_by: Option<Parked>, process| {
            let status = serde_json::json!({
                "name": "spring", "state": state, "parked_by": parked_by, "jobs": 2, "planned_credits": 0,
                "budget_credits": 0, "held_credits": 0, "charged_credits": 0, "waived_credits": 0,
                "refunded_credits": 0,
            });
            next_step_of(&serde_json::from_value(status).unwrap(), process, Parked::NoProcess.explain())
        };
        let next =
            |state: &str, parked_by: Option<Parked>| next_with(state, parked_by, Some(ProcessKind::Daemon));
        assert_eq!(next("active", None), "the daemon continues it");
        assert_eq!(next_with("active", None, Some(ProcessKind::Run)), "the run continues it");
        assert_eq!(next("done", None), "all its jobs have ended");
        assert_eq!(
            next("paused", Some(Parked::Paused)),
            "it is paused; to continue: callsheet resume spring"
        );
        assert_eq!(
            next_with("parked", Some(Parked::NoProcess), None),
            "no process works on this state; to continue: callsheet run MANIFEST, or callsheet daemon"
        );
        let kept = next("parked", Some(Parked::BatchBudget));
        assert!(kept.starts_with("it is parked: the next job does not fit"), "{kept}");
    }
}
