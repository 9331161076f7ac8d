//! The client that commands use: of the daemon if one runs on the state, otherwise of an engine in this process. Both
//! serve the same routes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use tokio::sync::OnceCell;

use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::failure::Failure;
use crate::cli::follow::is_gone;
use crate::cli::global_flags::Global;
use crate::cli::service_target::PresentState;
use crate::cli::terminal::say;
use crate::cli::{build, service_target};
use crate::client::InProcess;
use crate::client::{Client, ClientError};
use crate::clock::Clock;
use crate::config::Config;
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
    Daemon(Box<DaemonConnection>, Box<Successor>),
    /// An engine in this process has the state.
    InProcess(InProcess),
}

/// Who answers questions after the process that was found first has ended: a run ends when its batches are done.
pub(super) struct Successor {
    state: CommandState,
    found: OnceCell<StateClient>,
}

/// The state that a command names, and what the command may do there.
#[derive(Clone)]
struct CommandState {
    global: Global,
    config: Arc<Config>,
    present: Arc<PresentState>,
    method: Method,
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
    let config = Arc::new(service_target::config(global)?);
    let present = Arc::new(PresentState::find(global, &config));
    let state = CommandState { global: global.clone(), config, present, method };
    let client = state.connect().await?;
    // A mistyped socket is not passed over in silence: the state here may be another one. With --json stderr is for errors.
    if let (StateClient::InProcess(_), Some(socket), false) = (&client, &global.socket, global.json)
        && daemon_discovery::ask_who_listens(socket).await.is_none()
    {
        let (socket, dir) = (socket.display(), state.present.dir.display());
        say!("note: no process listens on {socket}; this command uses the state in {dir}");
    }
    let done = work(&client).await;
    client.end().await?;
    done
}

impl CommandState {
    /// Finds the process that works on the state, or opens it here.
    async fn connect(&self) -> Result<StateClient, Failure> {
        let CommandState { global, config, present, method } = self;
        let clock = Clock::start();
        let socket = daemon_discovery::socket(config, &present.dir);
        let mut daemon = daemon_discovery::find_daemon(global, config, present.is_emulated).await?;
        let store = loop {
            if let Some(daemon) = daemon {
                let successor = Successor { state: self.clone(), found: OnceCell::new() };
                return Ok(StateClient::Daemon(Box::new(daemon), Box::new(successor)));
            }
            match Store::open_briefly(&present.dir) {
                // A process that has just begun listens in a moment.
                Err(StoreError::InUse { .. }) if clock.elapsed() < BEGINNING => {
                    tokio::time::sleep(LOOK_INTERVAL).await;
                    let listens = daemon_discovery::ask_who_listens(&socket).await;
                    daemon = match listens.filter(|listens| listens.works_on(&present.dir)) {
                        Some(_) => daemon_discovery::find_daemon(global, config, present.is_emulated).await?,
                        None => None,
                    };
                }
                opened => break Arc::new(opened?),
            }
        };
        let mode = if *method == Method::GET { Mode::Read } else { Mode::Offline };
        build::list_finished(&store, config, clock);
        let parts = build::app_parts(config, &present.output, None)?;
        let app = App::new(store, mode, &Scope::All, parts, clock)?;
        Ok(StateClient::InProcess(InProcess::begin(app)))
    }
}

impl StateClient {
    fn client(&self) -> &Client {
        match self {
            StateClient::Daemon(daemon, successor) => {
                successor.found.get().map_or(&daemon.client, |found| found.client())
            }
            StateClient::InProcess(engine) => engine.client(),
        }
    }

    /// Ends the engine in this process, where there is one.
    async fn end(self) -> Result<(), Failure> {
        match self {
            // An engine that ended by itself says why.
            StateClient::InProcess(engine) => Ok(engine.end().await?),
            StateClient::Daemon(_, successor) => match successor.found.into_inner() {
                Some(found) => Box::pin(found.end()).await,
                None => Ok(()),
            },
        }
    }

    /// Who is to be asked again, after a question that changes nothing failed since the process that was asked had ended.
    async fn successor(&self, method: &Method, error: &ClientError) -> Result<Option<&StateClient>, Failure> {
        let StateClient::Daemon(_, successor) = self else { return Ok(None) };
        if *method != Method::GET || !is_gone(error) || successor.found.initialized() {
            return Ok(None);
        }
        Ok(Some(successor.found.get_or_try_init(|| Box::pin(successor.state.connect())).await?))
    }

    /// Sends a request. Where the process that was found has ended meanwhile, a question goes to its successor.
    ///
    /// # Errors
    /// What it meets.
    pub(super) async fn call<R: Request>(&self, request: &R) -> Result<R::Response, Failure> {
        let error = match self.client().call(request).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        match self.successor(&R::METHOD, &error).await? {
            Some(successor) => Ok(successor.client().call(request).await?),
            None => Err(error.into()),
        }
    }

    /// Sends a request and passes the response on, line by line. Returns how many finished batches it leaves out.
    ///
    /// # Errors
    /// What it meets.
    pub(super) async fn lines<R: Request<Response = Lines>>(
        &self,
        request: &R,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, Failure> {
        let mut passed_on = false;
        let mut first = |line: &[u8]| {
            passed_on = true;
            sink(line)
        };
        let error = match self.client().lines(request, &mut first).await {
            Ok(not_listed) => return Ok(not_listed),
            Err(error) => error,
        };
        match self.successor(&R::METHOD, &error).await? {
            Some(successor) if !passed_on => Ok(successor.client().lines(request, sink).await?),
            _ => Err(error.into()),
        }
    }

    /// Where the state of the process lies that works on it; nothing where none does.
    pub(super) fn served_state(&self) -> Option<PathBuf> {
        match self {
            StateClient::Daemon(daemon, _) => Some(daemon.health.state.clone()),
            StateClient::InProcess(_) => None,
        }
    }

    /// The process that works on the state; nothing where none does.
    pub(super) fn process(&self) -> Option<ProcessKind> {
        match self {
            StateClient::Daemon(daemon, successor) => {
                successor.found.get().map_or(Some(daemon.health.process), StateClient::process)
            }
            StateClient::InProcess(_) => None,
        }
    }

    /// What happens next with a batch: who continues it, or what blocks it.
    ///
    /// # Errors
    /// What the question for its status meets.
    pub(super) async fn next_step(&self, batch: &BatchName) -> Result<String, Failure> {
        self.next_step_unless_no_process(batch, &Parked::NoProcess.explain_for(batch)).await
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
            let reason =
                status.pause_reason.as_ref().map_or_else(String::new, |reason| format!(", since {reason}"));
            format!("it is paused{reason}; to continue: callsheet resume {}", status.name)
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
            next_step_of(&serde_json::from_value(status).unwrap(), process, "no process works on this state")
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
        assert_eq!(next_with("parked", Some(Parked::NoProcess), None), "no process works on this state");
        let kept = next("parked", Some(Parked::BatchBudget));
        assert!(kept.starts_with("it is parked: the next job does not fit"), "{kept}");
    }
}
