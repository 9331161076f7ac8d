//! Finds the daemon that a command talks to: the one that works on the state which the command would use itself.
//!
//! A socket from the configuration is the same for every command, including those with `--emulator` or `--state`,
//! so the daemon is first asked which state it works on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::service_target;
use crate::cli::terminal::say;
use crate::client::{Client, ClientError};
use crate::config::Config;
use crate::domain::exit_code::Exit;
use crate::domain::shell_word::path_word;
use crate::server::protocol::{Health, HealthRequest, ProcessKind};
use crate::store::EMULATOR_IDENTITY;

/// Name of the control socket in the state.
const SOCKET: &str = "callsheet.sock";

/// Timeout of the health request.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the daemon that a command talks to.
#[derive(Debug)]
pub(super) struct DaemonConnection {
    pub(super) client: Client,
    pub(super) health: Health,
    socket: PathBuf,
}

impl DaemonConnection {
    /// Refuses a process that takes no manifests.
    ///
    /// # Errors
    /// When it is no daemon.
    pub(super) fn must_take_manifests(&self) -> Result<(), Failure> {
        match self.health.process {
            ProcessKind::Daemon => Ok(()),
            ProcessKind::Run => Err(self.health.refuse_manifests().into()),
        }
    }
    /// Whether it works on this state.
    pub(super) fn works_on(&self, state: &Path) -> bool {
        is_same_path(state, &self.health.state)
    }

    /// Whether it writes outputs to this folder.
    pub(super) fn writes_to(&self, output: &Path) -> bool {
        is_same_path(output, &self.health.output)
    }

    /// `a daemon (process 12, since 2026-11-22T17:00:00.000Z, socket state/callsheet.sock) works on /srv/state`.
    pub(super) fn describe(&self) -> String {
        let Health { process, pid, since, state, .. } = &self.health;
        let what = match process {
            ProcessKind::Daemon => "a daemon",
            ProcessKind::Run => "a run",
        };
        let (socket, state) = (self.socket.display(), state.display());
        format!("{what} (process {pid}, since {since}, socket {socket}) works on {state}")
    }
}

/// The process that listens on a socket, whatever its state; nothing where none answers.
pub(super) async fn ask_who_listens(socket: &Path) -> Option<DaemonConnection> {
    let (client, health) = ask_health(socket).await.ok()?;
    Some(DaemonConnection { client, health, socket: socket.to_owned() })
}

/// Which daemon listens on the socket.
enum Discovered {
    None,
    SameState(DaemonConnection),
    OtherState(DaemonConnection),
}

/// The daemon that works on the state of this command, if one does. Without one the command works on the state
/// itself.
///
/// # Errors
/// When there is one that works with another service or output folder than the command names, or that does not
/// answer.
pub(super) async fn find_daemon(
    global: &Global,
    config: &Config,
    is_emulated: bool,
) -> Result<Option<DaemonConnection>, Failure> {
    let names_state = global.state.is_some() || is_emulated;
    let state = service_target::state_dir(config, is_emulated);
    let socket = socket(config, &state);
    match probe(global, &socket, &state, is_emulated).await {
        Ok(Discovered::None) => Ok(None),
        Ok(Discovered::SameState(daemon)) => {
            check_flags_match(&daemon, global, is_emulated)?;
            Ok(Some(daemon))
        }
        Ok(Discovered::OtherState(daemon)) => {
            let typed = path_word(&socket);
            let (theirs, state, socket) = (daemon.health.state.display(), state.display(), socket.display());
            tracing::debug!(%socket, %theirs, %state, "the daemon works on another state");
            // With --json stderr is for errors, as JSON.
            if !names_state && !global.json {
                say!(
                    "note: the daemon at {socket} works on another state ({theirs}); this command uses {state}. To \
                     use that daemon: --socket {typed}"
                );
            }
            Ok(None)
        }
        // Nobody can listen there; submit says so.
        Err(ClientError::PathTooLong { .. }) if global.socket.is_none() => Ok(None),
        // The socket of the configuration, and a state that is not its: should that daemon have the state after all,
        // the state's lock says so.
        Err(error) if names_state && global.socket.is_none() && config.paths.socket.is_some() => {
            tracing::debug!(%error, "failed to check whether a daemon works on this state");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The daemon, for commands that need one.
///
/// # Errors
/// The same, and when there is none or it works on another state than the one that is named.
pub(super) async fn require_daemon(global: &Global, config: &Config) -> Result<DaemonConnection, Failure> {
    let is_emulated = global.emulator;
    let state = service_target::state_dir(config, is_emulated);
    let socket = socket(config, &state);
    let daemon = match probe(global, &socket, &state, is_emulated).await? {
        Discovered::None => return Err(ClientError::NoDaemon { socket }.into()),
        Discovered::OtherState(daemon) if config.paths.state.is_some() || is_emulated => {
            let (socket, theirs) = (socket.display(), daemon.health.state.display());
            let message = format!("the daemon at {socket} works on {theirs}, not on {}", state.display());
            return Err(Failure::new(Exit::Usage, message).hint(
                "omit the state to use that daemon, or give the socket of the other one with --socket",
            ));
        }
        Discovered::SameState(daemon) | Discovered::OtherState(daemon) => daemon,
    };
    check_flags_match(&daemon, global, is_emulated)?;
    Ok(daemon)
}

/// A client of the process that listens on a socket, and what that process says of itself.
async fn ask_health(socket: &Path) -> Result<(Client, Health), ClientError> {
    let ask = async || {
        let client = Client::connect(socket).await?;
        let health = client.call(&HealthRequest {}).await?;
        Ok((client, health))
    };
    let answer = async {
        match ask().await {
            // A killed process accepts connections until it is gone; then the second one is refused.
            Err(ClientError::ConnectionLost { .. }) => ask().await,
            other => other,
        }
    };
    tokio::time::timeout(HEALTH_TIMEOUT, answer).await.unwrap_or_else(|_| {
        let detail = format!("no response within {} seconds", HEALTH_TIMEOUT.as_secs());
        Err(ClientError::ConnectionLost { socket: socket.to_owned(), detail })
    })
}

async fn probe(
    global: &Global,
    socket: &Path,
    state: &Path,
    is_emulated: bool,
) -> Result<Discovered, ClientError> {
    let (client, health) = match ask_health(socket).await {
        Err(ClientError::NoDaemon { .. }) => return Ok(Discovered::None),
        other => other?,
    };
    if health.state.as_os_str().is_empty() {
        let detail = format!(
            "it runs callsheet {}, which does not report its state directory; restart it",
            health.version
        );
        return Err(ClientError::ConnectionLost { socket: socket.to_owned(), detail });
    }
    let is_meant = global.socket.is_some() && global.state.is_none() && !is_emulated;
    let is_ours = is_meant || is_same_path(state, &health.state);
    let daemon = DaemonConnection { client, health, socket: socket.to_owned() };
    Ok(if is_ours { Discovered::SameState(daemon) } else { Discovered::OtherState(daemon) })
}

/// Checks that the command's other flags agree with the daemon.
fn check_flags_match(daemon: &DaemonConnection, global: &Global, is_emulated: bool) -> Result<(), Failure> {
    if is_emulated {
        check_service_matches(daemon, EMULATOR_IDENTITY)?;
    }
    if let Some(url) = &global.base_url {
        check_service_matches(daemon, &service_target::identity_of(url))?;
    }
    match &global.output {
        Some(output) if !daemon.writes_to(output) => {
            let (output, theirs) = (output.display(), daemon.health.output.display());
            let message = format!(
                "the daemon at {} writes outputs to {theirs}, but this command names {output}",
                daemon.socket.display()
            );
            Err(Failure::new(Exit::Usage, message).hint(
                "omit --output, or choose another state with --state: the daemon of a state decides where its \
                 outputs go",
            ))
        }
        _ => Ok(()),
    }
}

/// Checks that the daemon works with a service.
///
/// # Errors
/// When it works with another.
pub(super) fn check_service_matches(daemon: &DaemonConnection, service: &str) -> Result<(), Failure> {
    if daemon.health.service == service {
        return Ok(());
    }
    let message = format!(
        "the daemon at {} uses {}, but this command names {service}",
        daemon.socket.display(),
        daemon.health.service
    );
    Err(Failure::new(Exit::Usage, message).hint(
        "nothing was submitted; omit --base-url or --emulator to use the daemon's service, or choose another state \
         with --state: a state belongs to one service",
    ))
}

/// Whether two paths resolve to the same one, as far as this process may look.
fn is_same_path(a: &Path, b: &Path) -> bool {
    resolved(a) == resolved(b)
}

/// The absolute path without symbolic links. Parts that are unreadable or missing stay as written.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest: Vec<OsString> = Vec::new();
    let mut above = absolute.as_path();
    loop {
        if let Ok(found) = above.canonicalize() {
            return found.join(rest.iter().rev().collect::<PathBuf>()).components().collect();
        }
        let (Some(name), Some(parent)) = (above.file_name(), above.parent()) else { return absolute };
        rest.push(name.to_owned());
        above = parent;
    }
}

/// Path of the control socket of a state's daemon.
pub(super) fn socket(config: &Config, state: &Path) -> PathBuf {
    config.paths.socket.clone().unwrap_or_else(|| state.join(SOCKET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_through_links_and_before_they_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("real/state")).unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        assert!(is_same_path(&at("link/state"), &at("real/state")));
        assert!(is_same_path(&at("link/state/"), &at("real/./state")));
        assert!(is_same_path(&at("link/later/on"), &at("real/later/on")));
        assert!(!is_same_path(&at("link/state/emulator"), &at("real/state")));
        assert!(is_same_path(Path::new("state"), &std::env::current_dir().unwrap().join("state")));
    }

    #[test]
    fn a_folder_that_may_not_be_looked_into_is_compared_as_it_is_written() {
        let state = Path::new("/proc/1/root/var/lib/callsheet/state");
        assert!(is_same_path(state, state));
        assert!(!is_same_path(state, Path::new("/proc/1/root/var/lib/callsheet/other")));
    }
}
