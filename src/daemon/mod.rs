//! The service: one engine that never stands still, and everything that feeds it.
//!
//! Order of a start: systemd is notified that the state is being loaded, inboxes are locked, the state is loaded, the socket
//! listens, finished batches that were not announced are announced, inboxes and schedules are watched, the engine prepares the
//! outputs of unfinished batches and takes its first step, and only then systemd is notified that the service is ready. Until then it is asked for more time, however long that takes.
//! Order of a stop: nothing new is accepted or sent, requests in flight finish, the socket is removed.

mod completion_notifier;
pub mod inboxes;
mod retention;
pub mod schedules;
mod sd_notify;
mod signals;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use secrecy::SecretString;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::config::{ControlConfig, HooksConfig};
use crate::daemon::completion_notifier::CompletionNotifier;
use crate::daemon::inboxes::{InboxPlace, InboxSettings};
use crate::daemon::retention::RetentionTerms;
use crate::daemon::schedules::{ConfiguredSchedule, Inputs, ScheduleRunner};
pub use crate::daemon::sd_notify::SystemdNotifier;
pub use crate::daemon::signals::ReloadSignal;
use crate::daemon::signals::Signals;
use crate::domain::time::Millis;
use crate::engine::{EngineDeps, EngineError, Mode, Scope, Stop};
use crate::hooks::{HookTimeouts, Hooks, HooksError};
use crate::ingest::inbox::folder_lock::{FolderLock, LockHolder};
use crate::ingest::ingest_handle;
use crate::server::access::TcpAccess;
use crate::server::app::{App, AppParts};
use crate::server::app_state::ScheduleAccess;
use crate::server::listener::{self, ServedSocket};
use crate::server::protocol::ProcessKind;
use crate::store::{BatchRecord, Store, StoreError};

/// Everything that the configuration decides.
#[derive(Debug)]
pub struct Parts {
    /// The service, the output folder and rates.
    pub deps: EngineDeps,
    /// What holds for the engine and for every manifest.
    pub app: AppParts,
    /// Where it listens.
    pub socket: PathBuf,
    /// TCP, where it is asked for.
    pub control: ControlConfig,
    /// The token that TCP asks for.
    pub token: Option<SecretString>,
    /// Where manifests are dropped.
    pub inboxes: Vec<InboxSettings>,
    /// Whom it tells what it did.
    pub hooks: HooksConfig,
    /// What signs webhooks.
    pub hooks_secret: Option<SecretString>,
    /// How long a batch that is done is listed; nothing for ever.
    pub list_finished_for: Option<Millis>,
    /// How long uploaded inputs are kept.
    pub keep_inputs: Millis,
    /// What fires by itself.
    pub schedules: Vec<ConfiguredSchedule>,
}

/// Reads the configuration anew.
pub type Reload = Box<dyn Fn() -> Result<Parts, String> + Send + Sync>;

/// The daemon cannot begin, or cannot go on. State is safe; a restart resumes.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine cannot go on.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It cannot listen on its socket.
    #[error("failed to listen on {}: {source}", .path.display())]
    Listen { path: PathBuf, source: std::io::Error },
    /// It cannot listen on `control.http`.
    #[error("failed to listen on control.http = \"{at}\": {source}")]
    ListenTcp { at: SocketAddr, source: std::io::Error },
    /// Another process watches an inbox.
    #[error("the inbox {} is watched by {holder}; each manifest in it would be bought twice", .inbox.display())]
    InboxTaken {
        inbox: PathBuf,
        holder: LockHolder,
        /// It is that of the jobs folder.
        is_of_jobs: bool,
    },
    /// Hooks cannot be set up.
    #[error(transparent)]
    Hooks(#[from] HooksError),
    /// Something that feeds it came to an end.
    #[error("{0}")]
    Broken(String),
    /// A folder of the state cannot be used.
    #[error("failed to use {}: {source}", .path.display())]
    Folder { path: PathBuf, source: std::io::Error },
}

/// The inboxes of a daemon, which no other watches while this is kept.
#[derive(Debug)]
pub struct InboxLocks(Vec<Option<FolderLock>>);

impl InboxLocks {
    /// Waits a moment for a daemon that is about to end.
    ///
    /// # Errors
    /// [`DaemonError::InboxTaken`].
    pub async fn take(inboxes: &[InboxSettings]) -> Result<InboxLocks, DaemonError> {
        let mut locks = Vec::new();
        for inbox in inboxes {
            locks.push(inboxes::lock(&inbox.place).await?);
        }
        Ok(InboxLocks(locks))
    }
}

/// Serves until a signal ends it. `locks` are those of its inboxes.
///
/// # Errors
/// [`DaemonError`].
pub async fn run(
    store: Arc<Store>,
    (parts, InboxLocks(locks)): (Parts, InboxLocks),
    (clock, mut systemd): (Clock, SystemdNotifier),
    (reload_signal, reload): (ReloadSignal, Reload),
) -> Result<(), DaemonError> {
    let signals = Signals::listen(reload_signal)
        .map_err(|error| DaemonError::Broken(format!("failed to listen for signals: {error}")))?;
    let incoming = store.dir().to_owned();
    ingest_handle::sweep_incoming(&incoming)
        .map_err(|source| DaemonError::Folder { path: incoming.join("incoming"), source })?;
    let fixed = Fixed::of(&parts);
    let Parts { deps, app: app_parts, socket, control, token, .. } = parts;
    let Parts { inboxes, hooks, hooks_secret, schedules: planned, list_finished_for, keep_inputs, .. } =
        parts;
    let retention = RetentionTerms { list_finished_for, keep_inputs, inputs: deps.inputs.clone() };
    let mode = Mode::Paying(Box::new(deps));
    let mut app = App::new(store.clone(), mode, &Scope::All, app_parts, clock)?;
    app.state.health.process = ProcessKind::Daemon;
    let (handle, ingest) = (app.engine.handle(), app.state.ingest.clone());
    let (output_places, places) = watch::channel(app.state.output_places());
    app.state.output_places = places.clone();
    let metrics = app.state.metrics.clone();
    let (fire, fires) = mpsc::channel(8);
    let schedule_ingest =
        schedules::DaemonIngest { ingest: ingest.clone(), store: store.clone(), engine: handle.clone() };
    let scheduled = ScheduleRunner::begin(schedule_ingest, store.dir(), planned);
    app.state.schedules = Some(ScheduleAccess { run: fire, in_force: scheduled.in_force() });
    let hooks = Hooks::new(&hooks, hooks_secret.as_ref(), store.dir(), HookTimeouts::default(), clock)?;
    let tcp_access = Arc::new(TcpAccess::new(token.clone()));
    app.engine.show_gauges();
    let listening = listen(&socket, &control, (token, tcp_access.clone()), app.router()).await?;

    let completion_notifier =
        CompletionNotifier::begin(store.clone(), handle.clone(), places, hooks.clone(), clock);
    store.unannounced()?.into_iter().for_each(|batch| completion_notifier.announce(batch));
    let waits = |batch: &BatchRecord| {
        batch.waits_for_review() && !batch.review_announced
            || batch.waits_after_pilot() && !batch.pilot_announced
    };
    let waiting = store.batches()?.into_iter().filter(waits);
    waiting.for_each(|batch| completion_notifier.announce(batch.no));
    let (break_sender, mut broken) = mpsc::channel(1);
    let watched: Vec<String> =
        inboxes.iter().map(|inbox| inbox.place.folders.inbox.display().to_string()).collect();
    let watch_inbox = |inbox| inboxes::watch(inbox, ingest.clone(), clock, break_sender.clone());
    let inboxes = inboxes.into_iter().zip(locks).map(watch_inbox).collect();
    let (stop_sender, stop) = watch::channel(Stop::No);
    let (retention, spans) = watch::channel(retention);
    tokio::spawn(retention::run(store.clone(), hooks.clone(), clock, spans));
    let delivering = tokio::spawn(deliver(hooks.clone(), stop.clone()));
    let (schedules, reloads) = watch::channel(Vec::new());
    tokio::spawn(scheduled.run(clock, Inputs { reloads, fires, stop: stop.clone() }));
    tokio::spawn(signals::watch(
        signals,
        stop_sender,
        signals::Reloader {
            reload,
            handle,
            ingest,
            inboxes,
            tcp_access,
            hooks,
            schedules,
            retention,
            output_places,
            metrics,
            fixed,
        },
    ));
    let stopping = stop.clone();
    let mut is_ready = false;
    let working = app.engine.run(stop, |view| {
        if !std::mem::replace(&mut is_ready, true) {
            tracing::info!(socket = %socket.display(), inboxes = %watched.join(", "), "ready");
            systemd.ready();
        }
        completion_notifier.observe(view);
        systemd.observe(view, *stopping.borrow() == Stop::Soon);
    });
    let outcome = tokio::select! {
        outcome = working => outcome.map_err(DaemonError::from),
        Some(what) = broken.recv() => Err(DaemonError::Broken(what)),
    };
    if outcome.is_ok() {
        // What is under way has a bounded time; what is left is in the outbox. A panic in it ends the process.
        let _ = delivering.await;
    }
    systemd.stopping();
    drop(listening);
    app.engine.end();
    outcome.map(drop)
}

/// Checks the configuration of hooks; nothing is sent.
///
/// # Errors
/// [`DaemonError::Hooks`].
pub fn check_hooks(config: &HooksConfig, secret: Option<&SecretString>) -> Result<(), DaemonError> {
    Ok(Hooks::check(config, secret, HookTimeouts::default())?)
}

/// Delivers messages of hooks until the daemon stops.
async fn deliver(hooks: Hooks, mut stop: watch::Receiver<Stop>) {
    hooks
        .run(async move {
            // A sender that is gone says as much.
            let _ = stop.wait_for(|stop| *stop == Stop::Soon).await;
        })
        .await;
}

/// What a running daemon does not take over from a new configuration.
#[derive(Debug, PartialEq)]
struct Fixed {
    socket: PathBuf,
    control: ControlConfig,
    inboxes: Vec<InboxPlace>,
    hooks: HooksConfig,
    gallery: bool,
    namespace: String,
}

impl Fixed {
    fn of(parts: &Parts) -> Fixed {
        Fixed {
            socket: parts.socket.clone(),
            control: parts.control.clone(),
            inboxes: parts.inboxes.iter().map(|inbox| inbox.place.clone()).collect(),
            hooks: parts.hooks.clone(),
            gallery: parts.app.output_dir.options().gallery,
            namespace: parts.app.ingest.namespace.clone(),
        }
    }

    /// The sections in which `new` differs.
    fn differences(&self, new: &Fixed) -> Vec<&'static str> {
        let differs = [
            (self.socket != new.socket, "paths.socket"),
            (self.control != new.control, "control"),
            (self.inboxes != new.inboxes, "inbox"),
            (self.hooks != new.hooks, "hooks"),
            (self.gallery != new.gallery, "output.gallery"),
            (self.namespace != new.namespace, "service.key_namespace"),
        ];
        differs.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
    }
}

async fn listen(
    socket: &Path,
    control: &ControlConfig,
    (token, tcp_access): (Option<SecretString>, Arc<TcpAccess>),
    router: Router,
) -> Result<ServedSocket, DaemonError> {
    let tcp = match control.http {
        None => None,
        Some(at) => {
            let listener = listener::listen_tcp(at, token.as_ref()).await;
            Some(listener.map_err(|source| DaemonError::ListenTcp { at, source })?)
        }
    };
    let listener = listener::listen(socket).await;
    let (listener, name) =
        listener.map_err(|source| DaemonError::Listen { path: socket.to_owned(), source })?;
    if let Some(listener) = tcp {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(page = %format_args!("http://{address}/"), "serving the live page");
        }
        tokio::spawn(listener::serve_tcp(listener, router.clone(), tcp_access));
    }
    Ok(ServedSocket::begin(listener, name, router))
}
