//! Checks the configuration of hooks. Nothing is sent.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::fs::{Access, access};

use crate::cli::doctor::{Check, configuration};
use crate::cli::global_flags::Global;
use crate::cli::service_target;
use crate::config::Config;
use crate::daemon;
use crate::domain::exit_code::Exit;

/// Where the unit's credentials come from, under their own names.
const UNIT_CREDENTIALS: &str = "/etc/callsheet";

pub(super) fn all(config: &Config, global: &Global, is_served: bool) -> Vec<Check> {
    let command = config.hooks.batch_done.first().map(|program| command(program));
    command.into_iter().chain(webhook(config, global, is_served)).collect()
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

fn webhook(config: &Config, global: &Global, is_served: bool) -> Option<Check> {
    let url = config.hooks.webhook.as_ref()?;
    let of_unit = Some(PathBuf::from(UNIT_CREDENTIALS)).filter(|_| configuration::is_installed(global));
    let credentials = service_target::credentials().or(of_unit);
    let wrong = |found: String| {
        let advice = "set hooks.webhook_secret_file to a file with whsec_ and base64, readable by this user; a unit \
                      uses the credential webhook-secret";
        Check::wrong("hook", Exit::Usage, found, advice)
    };
    let secret = match config.hooks.secret(credentials.as_deref()) {
        Ok(secret) => secret,
        Err(error) => {
            let is_denied = configuration::is_denied(&error);
            return Some(wrong(error.to_string()).unless_served(is_served && is_denied));
        }
    };
    Some(match daemon::check_hooks(&config.hooks, secret.as_ref()) {
        Ok(()) => {
            let host = url.host_str().unwrap_or_default();
            let found = format!("{host} is notified when a batch is done; the signing secret is set");
            match &config.hooks.webhook_secret_file {
                Some(path) => {
                    configuration::secret_file("hook", format!("{found} in {}", path.display()), path)
                }
                None => Check::good("hook", found),
            }
        }
        // A running daemon may have been given a credential that is not shown here.
        Err(error) => wrong(error.to_string()).unless_served(is_served && secret.is_none()),
    })
}
