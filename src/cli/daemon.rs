//! `callsheet daemon`: the service.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;

use crate::api::Service;
use crate::cli::build;
use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::examples;
use crate::cli::failure::Failure;
use crate::cli::global_flags::EmulatorArguments;
use crate::cli::global_flags::Global;
use crate::cli::service_contact;
use crate::cli::service_target::{self, ServiceTarget};
use crate::clock::Clock;
use crate::config::{Budget, Config, INBOX_SETTLE};
use crate::daemon::inboxes::{InboxPlace, InboxSettings};
use crate::daemon::schedules::ConfiguredSchedule;
use crate::daemon::{self, DaemonError, InboxLocks, Parts, ReloadSignal, SystemdNotifier};
use crate::domain::exit_code::Exit;
use crate::engine::blocking;
use crate::engine::upload_limit::Uploads;
use crate::ingest::inbox::dispose::Folders;
use crate::ingest::inbox::overlap::overlap;
use crate::metrics::Metrics;
use crate::server::protocol::ProcessKind;
use crate::store::{EMULATOR_IDENTITY, Store};

/// What `daemon` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::DAEMON))]
pub(super) struct DaemonCommand {
    #[command(flatten)]
    pub(super) emulator: EmulatorArguments,
    /// Use a state that was created for another service
    #[arg(long)]
    pub(super) adopt_state: bool,
}

pub(super) async fn run(command: &DaemonCommand, global: &Global) -> Result<Exit, Failure> {
    let clock = Clock::start();
    // Before anything that takes long: a reload right after the start must not end it.
    let reload_signal = ReloadSignal::listen()
        .map_err(|error| Failure::new(Exit::Disk, format!("failed to listen for signals: {error}")))?;
    let file = Config::place(global.config.as_deref()).map(Path::to_owned);
    let config = service_target::config(&reading(global, file.as_deref()))?;
    let state = service_target::state_dir(&config, global.emulator);
    // Before anything else of that state is used, such as the emulator's own.
    if let Some(first) = daemon_discovery::ask_who_listens(&daemon_discovery::socket(&config, &state)).await
        && first.works_on(&state)
    {
        return Err(refuse_beside(&first));
    }
    let mut chosen = service_target::select(&config, global, &command.emulator).await?;
    let emulator = chosen.emulator.take();
    // Opening a large state may take longer than systemd waits for a start.
    let systemd = SystemdNotifier::begin(clock);
    let (state, identity, adopts) = (chosen.state.clone(), chosen.identity.clone(), command.adopt_state);
    let store = Arc::new(blocking(move || Store::open(&state, &identity, adopts)).await?);
    let parts = parts(&config, &chosen)?;
    // Of a daemon that does not begin the state is not handed over.
    let locks = InboxLocks::take(&parts.inboxes).await?;
    let socket = parts.socket.clone();
    if adopts {
        if daemon_discovery::ask_who_listens(&socket).await.is_some() {
            let source = ErrorKind::AddrInUse.into();
            return Err(cannot_listen(DaemonError::Listen { path: socket.clone(), source }, &socket).await);
        }
        let service = Service::new(chosen.options.clone())?;
        let backoff = parts.app.settings.backoff;
        service_contact::adopt(&store, (&service, chosen.identity.as_str()), backoff).await?;
    }
    let global = global.clone();
    let loaded = Mutex::new(Loaded { file, budget: config.budget.clone() });
    let reload = move || reread(&global, &chosen, &loaded).map_err(|failure| failure.to_string());
    match daemon::run(store, (parts, locks), (clock, systemd), (reload_signal, Box::new(reload))).await {
        Err(error @ DaemonError::Listen { .. }) => return Err(cannot_listen(error, &socket).await),
        ended => ended?,
    }
    if let Some(emulator) = emulator {
        emulator.stop().await;
    }
    Ok(Exit::Success)
}

/// Why no daemon begins beside a process that works on its state.
fn refuse_beside(first: &DaemonConnection) -> Failure {
    Failure::new(Exit::Usage, first.describe()).hint(match first.health.process {
        ProcessKind::Daemon => {
            "submit manifests to it with callsheet submit, stop it first, or choose another state with --state"
        }
        ProcessKind::Run => "wait for that run to end, or choose another state with --state",
    })
}

/// Why a daemon cannot listen: where another one does, which.
async fn cannot_listen(error: DaemonError, socket: &Path) -> Failure {
    let failure = Failure::from(error);
    match daemon_discovery::ask_who_listens(socket).await {
        Some(first) => failure.message(format!("{} is taken: {}", socket.display(), first.describe())),
        None => failure,
    }
}

/// What the configuration in force was read from, and its budgets.
struct Loaded {
    /// Nothing: there was no configuration file.
    file: Option<PathBuf>,
    budget: Budget,
}

/// Flags that read this file and no other, whatever becomes of the default paths meanwhile.
fn reading(global: &Global, file: Option<&Path>) -> Global {
    Global { config: file.map(Path::to_owned), ..global.clone() }
}

/// Reads the configuration anew. What a running daemon cannot change is refused, and the old one stays; so is another
/// file than the one that was loaded, since without its budgets the daemon would buy at once.
fn reread(global: &Global, present: &ServiceTarget, loaded: &Mutex<Loaded>) -> Result<Parts, Failure> {
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    let file = Config::place(global.config.as_deref()).map(Path::to_owned);
    if let Some(before) = loaded.file.as_ref().filter(|before| file.as_ref() != Some(*before)) {
        let before = before.display();
        let message = match &file {
            None => format!("{before}, which the configuration was loaded from, is missing"),
            Some(file) => {
                format!(
                    "the configuration was loaded from {before}, and would now be read from {}",
                    file.display()
                )
            }
        };
        return Err(Failure::new(Exit::Usage, message)
            .hint("restore the file and reload; to use another one or none, restart the daemon"));
    }
    let config = service_target::config(&reading(global, file.as_deref()))?;
    let parts = reread_parts(&config, global, present)?;
    let lifted = loaded.budget.lifted_by(&config.budget);
    if !lifted.is_empty() {
        tracing::warn!("the new configuration lifts limits that were set before: {}", lifted.join(", "));
    }
    *loaded = Loaded { file, budget: config.budget };
    Ok(parts)
}

fn reread_parts(config: &Config, global: &Global, present: &ServiceTarget) -> Result<Parts, Failure> {
    if global.emulator {
        return parts(config, present);
    }
    let chosen = service_target::configured_target(config)?;
    must_not_change([
        (chosen.identity != present.identity, "service.base_url"),
        (chosen.state != present.state, "paths.state"),
        (chosen.output != present.output, "paths.output"),
    ])?;
    parts(config, &chosen)
}

/// Refuses a configuration in which one of these keys has changed: each keeps its value until the daemon is restarted.
fn must_not_change(keys: [(bool, &str); 3]) -> Result<(), Failure> {
    keys.iter().find(|(has_changed, _)| *has_changed).map_or(Ok(()), |(_, key)| {
        let message = format!("{key} cannot change while the daemon runs; restart it");
        Err(Failure::new(Exit::Usage, message))
    })
}

/// Why a daemon would refuse this configuration at a reload, as far as that shows from outside: the key and secrets are
/// not looked at. Where a daemon answers, what it cannot change is compared with what it says of itself.
pub(super) async fn check_reload(config: &Config, global: &Global) -> Result<(), Failure> {
    let (state, output) = (
        service_target::state_dir(config, global.emulator),
        service_target::output_dir(config, global.emulator),
    );
    must_not_overlap(&inboxes(config))?;
    let transfers = Uploads::new(config.limits.uploads, Metrics::new());
    build::input_store(config, &transfers, None)?;
    build::output_store(config, &transfers, (&state, &output))?;
    let running = daemon_discovery::ask_who_listens(&daemon_discovery::socket(config, &state)).await;
    let running = running.filter(|running| running.health.process == ProcessKind::Daemon);
    let is_emulated = |running: &DaemonConnection| running.health.service == EMULATOR_IDENTITY;
    if global.emulator || running.as_ref().is_some_and(is_emulated) {
        return Ok(());
    }
    let chosen = service_target::target_with_key(config, None)?;
    let has_file = Config::place(global.config.as_deref()).is_some();
    match (running, chosen) {
        (Some(running), Some(chosen)) => must_not_change([
            (chosen.identity != running.health.service, "service.base_url"),
            (!running.works_on(&chosen.state), "paths.state"),
            (!running.writes_to(&chosen.output), "paths.output"),
        ]),
        (Some(_), None) => Err(service_target::not_configured()),
        // What a daemon has loaded it is found by, which is gone together with the file.
        (None, None) if !has_file => Err(service_target::not_configured()),
        (None, _) => Ok(()),
    }
}

/// Refuses inboxes that share a folder.
fn must_not_overlap(inboxes: &[InboxSettings]) -> Result<(), Failure> {
    let folders: Vec<&Folders> = inboxes.iter().map(|inbox| &inbox.place.folders).collect();
    overlap(&folders).map_or(Ok(()), |overlap| Err(Failure::new(Exit::Usage, overlap)))
}

fn parts(config: &Config, chosen: &ServiceTarget) -> Result<Parts, Failure> {
    let service = Service::new(chosen.options.clone())?;
    let inboxes = inboxes(config);
    must_not_overlap(&inboxes)?;
    let app = build::app_parts(config, &chosen.output, Some((service.clone(), chosen)))?;
    Ok(Parts {
        deps: build::engine_deps(service, chosen, config, &app)?,
        app,
        socket: daemon_discovery::socket(config, &chosen.state),
        control: config.control.clone(),
        token: config.control.token()?,
        inboxes,
        hooks: config.hooks.clone(),
        hooks_secret: config.hooks.secret(service_target::credentials().as_deref())?,
        list_finished_for: config.retention.list_finished_for.map(|span| span.0),
        keep_inputs: config.inputs.keep.0,
        schedules: config.schedule.iter().map(ConfiguredSchedule::of).collect::<Result<_, _>>()?,
    })
}

/// The inbox of the jobs folder, and those that the configuration names beside it.
pub(super) fn inboxes(config: &Config) -> Vec<InboxSettings> {
    let jobs = config.paths.jobs.clone().unwrap_or_else(|| PathBuf::from("jobs"));
    let (folders, settle) = (Folders::in_jobs(&jobs), INBOX_SETTLE.0);
    let first = InboxSettings { place: InboxPlace { folders, name: None, settle }, terms: Arc::default() };
    let named = config.inbox.iter().map(InboxSettings::from);
    // One that the configuration names with terms of its own is not watched twice.
    let is_named = config.inbox.iter().any(|inbox| inbox.path == first.place.folders.inbox);
    std::iter::once(first).filter(|_| !is_named).chain(named).collect()
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Failure {
        let message = error.to_string();
        match error {
            DaemonError::Store(error) => error.into(),
            DaemonError::Engine(error) => error.into(),
            DaemonError::Listen { source, .. } => {
                Failure::new(Exit::Usage, message).hint(match source.kind() {
                    ErrorKind::AddrInUse => {
                        "a daemon on another state uses this socket: stop it, or give this daemon another socket \
                         with --socket or paths.socket"
                    }
                    ErrorKind::InvalidFilename => "choose a shorter path with --socket or paths.socket",
                    _ => {
                        "choose a path with --socket or paths.socket in an existing directory that this user can \
                         write to"
                    }
                })
            }
            DaemonError::ListenTcp { source, .. } => {
                Failure::new(Exit::Usage, message).hint(match source.kind() {
                    ErrorKind::AddrInUse => {
                        "another program listens on that address; choose a free port, or remove control.http"
                    }
                    _ => "give an address of this machine and a free port, or remove control.http",
                })
            }
            DaemonError::InboxTaken { is_of_jobs, .. } => {
                Failure::new(Exit::Usage, message).hint(match is_of_jobs {
                    true => "stop that daemon first, or give this one another manifest directory: --jobs DIR",
                    false => {
                        "stop that daemon first, or give this one a configuration without that [[inbox]]: --config FILE"
                    }
                })
            }
            DaemonError::Hooks(_) => Failure::new(Exit::Usage, message).hint(
                "hooks.webhook needs a secret: hooks.webhook_secret_file, or the credential webhook-secret",
            ),
            DaemonError::Broken(what) => Failure::new(Exit::Disk, what).hint("start it again"),
            DaemonError::Folder { .. } => Failure::new(Exit::Disk, error.to_string()),
        }
    }
}
