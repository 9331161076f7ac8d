//! The configuration file and the key.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use crate::cli::daemon;
use crate::cli::doctor::Check;
use crate::cli::global_flags::Global;
use crate::cli::service_target;
use crate::config::{Config, ConfigError};
use crate::domain::exit_code::Exit;
use crate::domain::shell_word::path_word;

/// The configuration of an installed service, and the key that its unit hands over.
const INSTALLED: &str = "/etc/callsheet/callsheet.toml";
const UNIT_KEY: &str = "/etc/callsheet/api-key";

/// Which file is read. That it is valid is known already.
pub(super) fn file(global: &Global) -> Check {
    match Config::place(global.config.as_deref()) {
        Some(path) => Check::good("config", format!("{} is valid", path.display())),
        None => Check::good("config", "no configuration file; using defaults, environment and flags"),
    }
}

/// What a daemon would refuse at a reload although the file is valid.
pub(super) async fn reload(config: &Config, global: &Global) -> Option<Check> {
    let (exit, message, hint) = daemon::check_reload(config, global).await.err()?.into_parts();
    Some(Check::wrong("config", exit, message, hint.unwrap_or_default()))
}

/// Where the key is from.
enum Source {
    Environment,
    File(PathBuf),
}

/// The key, and what there is to say of it; never the key itself.
pub(super) fn key(
    config: &Config,
    global: &Global,
    is_emulated: bool,
    is_served: bool,
) -> (Option<SecretString>, Check) {
    if is_emulated {
        return (None, Check::good("key", "the emulator's own"));
    }
    let environment = std::env::var("CALLSHEET_API_KEY").ok().filter(|key| !key.trim().is_empty());
    let Some(source) = source(config, global, environment.is_some()) else {
        let advice = "set CALLSHEET_API_KEY, or service.api_key_file; for the unit: install -m 600 /dev/stdin \
                      /etc/callsheet/api-key";
        let check = Check::wrong("key", Exit::Unauthorised, "no API key is set", advice);
        return (None, check.unless_served(is_served));
    };
    match source {
        Source::Environment => {
            let key = environment.map(|key| SecretString::from(key.trim()));
            (key, Check::good("key", "from the environment, CALLSHEET_API_KEY"))
        }
        Source::File(path) => key_in(&path, is_served),
    }
}

/// Whether it is the unit's configuration that is looked at.
pub(super) fn is_installed(global: &Global) -> bool {
    Config::place(global.config.as_deref()).is_some_and(|path| path == Path::new(INSTALLED))
}

/// Whether a file is there that this user may not read, as those of a service often are.
pub(super) fn is_denied(error: &ConfigError) -> bool {
    matches!(error, ConfigError::Unreadable { source, .. } if source.kind() == ErrorKind::PermissionDenied)
}

/// The token of `control.http`, which nobody gets in without.
pub(super) fn token(config: &Config, is_served: bool) -> Option<Check> {
    let path = config.control.token_file.as_ref()?;
    let at = path.display();
    Some(match config.control.token() {
        Ok(_) => secret_file("control", format!("the token for control.http is in {at}"), path),
        Err(error) => {
            let advice = format!("write a token into {at}, readable by this user: openssl rand -hex 32");
            let check = Check::wrong("control", Exit::Usage, error.to_string(), advice);
            check.unless_served(is_served && is_denied(&error))
        }
    })
}

/// In the order in which commands look for it.
fn source(config: &Config, global: &Global, is_in_environment: bool) -> Option<Source> {
    if is_in_environment {
        return Some(Source::Environment);
    }
    let credential =
        service_target::credentials().map(|dir| dir.join("api-key")).filter(|path| path.exists());
    // What the unit would be given, where it is the unit's configuration that is looked at.
    let is_installed = global.base_url.is_none() && is_installed(global);
    let of_unit = Some(PathBuf::from(UNIT_KEY)).filter(|path| is_installed && path.exists());
    config.service.api_key_file.clone().or(credential).or(of_unit).map(Source::File)
}

fn key_in(path: &Path, is_served: bool) -> (Option<SecretString>, Check) {
    let at = path.display();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let advice = format!("make {at} readable by this user, or run callsheet doctor as root");
            let found = format!("failed to read {at}: {error}");
            let check = Check::wrong("key", Exit::Unauthorised, found, advice);
            let is_denied = error.kind() == ErrorKind::PermissionDenied;
            return (None, check.unless_served(is_served && is_denied));
        }
    };
    let key = SecretString::from(text.trim());
    if key.expose_secret().is_empty() {
        let found = format!("{at} is empty");
        return (None, Check::wrong("key", Exit::Unauthorised, found, "write the API key into it"));
    }
    (Some(key), secret_file("key", format!("from {at}"), path))
}

/// A secret that was `found` in a file: fine, unless others can read or change it.
pub(super) fn secret_file(check: &'static str, found: String, path: &Path) -> Check {
    let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
    match mode & 0o007 {
        0 => Check::good(check, found),
        _ => Check::advice(
            check,
            format!("{found}, which every user can read"),
            format!("chmod o= {}", path_word(path)),
        ),
    }
}
