//! Which daemon a command talks to: the one that works on the state which the command would use itself.
//!
//! A socket alone says little: where the configuration names it, every command finds the same daemon there, one
//! against the emulator or on another state included. So the daemon is asked what it works on first.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstream::eprintln;

use crate::cli::access;
use crate::cli::arguments::Global;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::service;
use crate::config::Config;
use crate::control::client::{ControlClient, ControlClientError};
use crate::control::protocol::Health;

/// How long a daemon may take to say what it works on.
const HEALTH_PATIENCE: Duration = Duration::from_secs(30);

/// The daemon that a command talks to.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) client: ControlClient,
    /// What it said of itself.
    pub(super) health: Health,
    /// Where it listens.
    socket: PathBuf,
}

/// Who listens where the command looks.
enum Found {
    Nobody,
    /// It works on what the command would work on.
    Ours(Met),
    /// It works on another state.
    Another(Met),
}

/// The daemon that works on the state of this command, if one does. Without one the command works on the state
/// itself.
///
/// # Errors
/// When there is one that works with another service or output folder than the command names, or that does not
/// answer.
pub(super) async fn daemon(
    global: &Global,
    config: &Config,
    is_emulated: bool,
) -> Result<Option<Met>, Failure> {
    let names_state = global.state.is_some() || is_emulated;
    let state = service::state_dir(config, is_emulated);
    let socket = access::socket(config, &state);
    match look(global, &socket, &state, is_emulated).await {
        Ok(Found::Nobody) => Ok(None),
        Ok(Found::Ours(met)) => {
            agrees(&met, global, is_emulated)?;
            Ok(Some(met))
        }
        Ok(Found::Another(met)) => {
            let (theirs, state, socket) = (met.health.state.display(), state.display(), socket.display());
            tracing::debug!(%socket, %theirs, %state, "the daemon works on another state");
            if !names_state {
                eprintln!(
                    "note: the daemon at {socket} works on {theirs} and is not asked: this command works on \
                     {state}; --socket {socket} means that daemon"
                );
            }
            Ok(None)
        }
        // Nobody can listen there; submit says so.
        Err(ControlClientError::PathTooLong { .. }) if global.socket.is_none() => Ok(None),
        // The socket of the configuration, and a state that is not its: should that daemon have the state after all,
        // the state's lock says so.
        Err(error) if names_state && global.socket.is_none() && config.paths.socket.is_some() => {
            tracing::debug!(%error, "whether a daemon works on this state cannot be asked");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The daemon, for commands that are nothing without one.
///
/// # Errors
/// The same, and when there is none or it works on another state than the one that is named.
pub(super) async fn needed(global: &Global, config: &Config) -> Result<Met, Failure> {
    let state = service::state_dir(config, false);
    let socket = access::socket(config, &state);
    let met = match look(global, &socket, &state, false).await? {
        Found::Nobody => return Err(ControlClientError::NoDaemon { socket }.into()),
        Found::Another(met) if config.paths.state.is_some() => {
            let (socket, theirs) = (socket.display(), met.health.state.display());
            let message = format!("the daemon at {socket} works on {theirs}, and not on {}", state.display());
            return Err(Failure::new(Exit::Usage, message).hint(
                "leave the state out to mean that daemon, or name the socket of the other one with --socket",
            ));
        }
        Found::Ours(met) | Found::Another(met) => met,
    };
    agrees(&met, global, false)?;
    Ok(met)
}

async fn look(
    global: &Global,
    socket: &Path,
    state: &Path,
    is_emulated: bool,
) -> Result<Found, ControlClientError> {
    let client = match ControlClient::connect(socket).await {
        Err(ControlClientError::NoDaemon { .. }) => return Ok(Found::Nobody),
        other => other?,
    };
    let health = tokio::time::timeout(HEALTH_PATIENCE, client.health()).await;
    let health = health.map_err(|_| ControlClientError::ConnectionLost {
        socket: socket.to_owned(),
        detail: format!("nothing came for {} seconds", HEALTH_PATIENCE.as_secs()),
    })??;
    if health.state.as_os_str().is_empty() {
        let detail =
            format!("it is callsheet {}, which does not say what it works on; restart it", health.version);
        return Err(ControlClientError::ConnectionLost { socket: socket.to_owned(), detail });
    }
    let is_meant = global.socket.is_some() && global.state.is_none() && !is_emulated;
    let is_ours = is_meant || is_same_place(state, &health.state);
    let met = Met { client, health, socket: socket.to_owned() };
    Ok(if is_ours { Found::Ours(met) } else { Found::Another(met) })
}

/// What the command names beside the state is what the daemon works with.
fn agrees(met: &Met, global: &Global, is_emulated: bool) -> Result<(), Failure> {
    if is_emulated {
        works_with(met, service::EMULATOR_IDENTITY)?;
    }
    if let Some(url) = &global.base_url {
        works_with(met, &service::identity_of(url))?;
    }
    match &global.output {
        Some(output) if !is_same_place(output, &met.health.output) => {
            let (output, theirs) = (output.display(), met.health.output.display());
            let message = format!(
                "the daemon at {} puts outputs into {theirs}, and this command names {output}",
                met.socket.display()
            );
            Err(Failure::new(Exit::Usage, message).hint(
                "leave --output out, or name another state with --state: while a daemon works on a state, it alone \
                 says where its outputs go",
            ))
        }
        _ => Ok(()),
    }
}

/// Whether a daemon works with a service.
///
/// # Errors
/// When it works with another.
pub(super) fn works_with(met: &Met, service: &str) -> Result<(), Failure> {
    if met.health.service == service {
        return Ok(());
    }
    let message = format!(
        "the daemon at {} works with {}, and this command names {service}",
        met.socket.display(),
        met.health.service
    );
    Err(Failure::new(Exit::Usage, message).hint(
        "nothing was handed over; leave --base-url or --emulator out to use the daemon's service, or name another \
         state with --state: a state belongs to one service",
    ))
}

/// Whether two paths mean the same place, as far as this process may look.
fn is_same_place(a: &Path, b: &Path) -> bool {
    settled(a) == settled(b)
}

/// A path without links and relative parts. What cannot be looked at, or is not there, stays as it is written.
fn settled(path: &Path) -> PathBuf {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_through_links_and_before_they_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("real/state")).unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        assert!(is_same_place(&at("link/state"), &at("real/state")));
        assert!(is_same_place(&at("link/state/"), &at("real/./state")));
        assert!(is_same_place(&at("link/later/on"), &at("real/later/on")));
        assert!(!is_same_place(&at("link/state/emulator"), &at("real/state")));
        assert!(is_same_place(Path::new("state"), &std::env::current_dir().unwrap().join("state")));
    }

    #[test]
    fn a_folder_that_may_not_be_looked_into_is_compared_as_it_is_written() {
        let state = Path::new("/proc/1/root/var/lib/callsheet/state");
        assert!(is_same_place(state, state));
        assert!(!is_same_place(state, Path::new("/proc/1/root/var/lib/callsheet/other")));
    }
}
