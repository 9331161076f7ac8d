//! Checks the configuration of hooks. Nothing is sent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::cli::doctor::{Check, configuration};
use crate::cli::global_flags::Global;
use crate::cli::service_target;
use crate::config::{Config, HooksConfig};
use crate::daemon;
use crate::domain::exit_code::Exit;

/// Where the unit's credentials come from, under their own names.
const UNIT_CREDENTIALS: &str = "/etc/callsheet";

/// What the secret of the webhook is looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretUse {
    /// A daemon that starts.
    Start,
    /// The daemon that runs, which may have been given a credential that is not shown here.
    Running,
    /// A reload.
    Reload,
}

pub(super) fn all(config: &Config, global: &Global, used: SecretUse) -> Vec<Check> {
    let command = config.hooks.batch_done.first().map(|program| command(program));
    let shown = service_target::credentials();
    let is_of_unit = shown.is_none() && configuration::is_installed(global);
    let credentials = shown.or_else(|| is_of_unit.then(|| PathBuf::from(UNIT_CREDENTIALS)));
    let webhook = webhook(&config.hooks, (credentials.as_deref(), is_of_unit), used);
    command.into_iter().chain(webhook).collect()
}

fn command(program: &str) -> Check {
    match find(program) {
        Ok(path) => Check::good("hook", format!("{} is run when a batch is done", path.display())),
        Err(why) => Check::wrong(
            "hook",
            Exit::Usage,
            format!("hooks.batch_done cannot be run: {why}"),
            "give the full path of an executable program: chmod +x",
        ),
    }
}

/// The program as the daemon would find it.
fn find(program: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        return runnable(PathBuf::from(program));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&folders).map(|folder| runnable(folder.join(program)));
    found.find_map(Result::ok).ok_or_else(|| format!("{program} is not in PATH"))
}

fn runnable(path: PathBuf) -> Result<PathBuf, String> {
    let is_file = fs::metadata(&path).map(|meta| meta.is_file());
    let may_run = is_file.and_then(|is_file| match is_file {
        true => access(&path, Access::EXEC_OK).map_err(io::Error::from),
        false => Err(io::Error::other("it is not a file")),
    });
    match may_run {
        Ok(()) => Ok(path),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// `is_of_unit`: the credentials are where the unit gets them from, and this process was given none.
fn webhook(
    hooks: &HooksConfig,
    (credentials, is_of_unit): (Option<&Path>, bool),
    used: SecretUse,
) -> Option<Check> {
    let url = hooks.webhook.as_ref()?;
    // systemd gives credentials to the daemon, and none to what a reload runs.
    let is_hidden = used == SecretUse::Reload && is_of_unit && hooks.webhook_secret_file.is_none();
    let unreadable = |found: String, is_daemons: bool| {
        if is_hidden && is_daemons {
            let advice = "a reload does not need it if the unit gives the daemon the credential webhook-secret; to check that \
                          secret: sudo callsheet doctor";
            return Check::advice("hook", found, advice);
        }
        let advice = "set hooks.webhook_secret_file to a file with whsec_ and base64, readable by this user; a unit \
                      uses the credential webhook-secret";
        let check = Check::wrong("hook", Exit::Usage, found, advice);
        check.unless_served(used == SecretUse::Running && is_daemons)
    };
    let secret = match hooks.secret(credentials) {
        Ok(secret) => secret,
        Err(error) => return Some(unreadable(error.to_string(), configuration::is_denied(&error))),
    };
    Some(match daemon::check_hooks(hooks, secret.as_ref()) {
        Ok(()) => {
            let host = url.host_str().unwrap_or_default();
            let found = format!("{host} is notified when a batch is done; the signing secret is set");
            match &hooks.webhook_secret_file {
                Some(path) => {
                    configuration::secret_file("hook", format!("{found} in {}", path.display()), path)
                }
                None => Check::good("hook", found),
            }
        }
        Err(error) => unreadable(error.to_string(), secret.is_none()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cli::doctor::Level;
    use crate::ingest::inbox::tests::without_roots_rights;

    #[test]
    fn a_secret_that_only_the_units_daemon_gets_is_in_the_way_of_no_reload() {
        without_roots_rights(|| {
            let dir = tempfile::tempdir().unwrap();
            let secret = dir.path().join("webhook-secret");
            let hooks = HooksConfig {
                webhook: Some("https://hooks.example/x".parse().unwrap()),
                ..HooksConfig::default()
            };
            let level = |hooks: &HooksConfig, is_of_unit, used| {
                webhook(hooks, (Some(dir.path()), is_of_unit), used).unwrap().level
            };
            let levels = |is_of_unit| {
                [SecretUse::Start, SecretUse::Running, SecretUse::Reload]
                    .map(|used| level(&hooks, is_of_unit, used))
            };
            // Nothing where the unit gets it from elsewhere, then a file that only root can read.
            let is_not_shown = || {
                assert_eq!(levels(true), [Level::Wrong, Level::Advice, Level::Advice]);
                assert_eq!(levels(false), [Level::Wrong, Level::Advice, Level::Wrong]);
            };
            is_not_shown();
            fs::write(&secret, "whsec_short").unwrap();
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
            is_not_shown();
            // A reload reads a file that the configuration names.
            let named = HooksConfig { webhook_secret_file: Some(secret.clone()), ..hooks.clone() };
            assert_eq!(level(&named, true, SecretUse::Reload), Level::Wrong);
            // One that can be read is looked at.
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(levels(true), [Level::Wrong; 3]);
            fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
            assert_eq!(levels(true), [Level::Good; 3]);
        });
    }
}
