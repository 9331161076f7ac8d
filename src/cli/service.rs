//! Which service a command talks to, and where its state and outputs lie.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::api::ServiceOptions;
use crate::cli::arguments::Global;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::config::Config;
use crate::emulator::{self, DEFAULT_API_KEY, Emulator};

/// What a state that was begun with the emulator says it belongs to.
const EMULATOR_IDENTITY: &str = "the emulator";
/// Credits on the emulator's account.
const EMULATOR_CREDITS: u64 = 1_000_000_000;

/// The service of a command.
pub(super) struct Chosen {
    pub(super) options: ServiceOptions,
    /// What the state must belong to.
    pub(super) identity: String,
    pub(super) state: PathBuf,
    pub(super) output: PathBuf,
    /// Runs as long as the command does.
    pub(super) emulator: Option<Emulator>,
}

/// Flags over file over default.
pub(super) fn config(global: &Global) -> Result<Config, Failure> {
    let mut config = Config::load(global.config.as_deref())?;
    if let Some(url) = &global.base_url {
        config.service.base_url = Some(url.clone());
    }
    for (flag, key) in [(&global.state, &mut config.paths.state), (&global.output, &mut config.paths.output)]
    {
        if flag.is_some() {
            key.clone_from(flag);
        }
    }
    Ok(config)
}

/// The emulator, started for this command.
pub(super) async fn emulated(config: &Config, speed: f64) -> Result<Chosen, Failure> {
    let state = config.paths.state.clone().unwrap_or_else(|| PathBuf::from("state/emulator"));
    let output = config.paths.output.clone().unwrap_or_else(|| PathBuf::from("output/emulator"));
    // Beside the client's own state, so that a resumed run meets the tasks it left.
    let options = emulator::Options {
        speed,
        credits: EMULATOR_CREDITS,
        state_dir: Some(beside(&state)),
        ..emulator::Options::default()
    };
    let running = emulator::start(options)
        .await
        .map_err(|error| Failure::new(Exit::Disk, format!("failed to start the emulator: {error}")))?;
    let base_url = running.base_url();
    let base_url = base_url.parse().map_err(|error| {
        Failure::new(Exit::Unreachable, format!("the emulator is at {base_url}: {error}"))
    })?;
    let options = service_options(config, base_url, Some(SecretString::from(DEFAULT_API_KEY)));
    Ok(Chosen { options, identity: EMULATOR_IDENTITY.to_owned(), state, output, emulator: Some(running) })
}

/// `state/emulator` keeps the emulator's own state in `state/emulator-service`.
fn beside(state: &Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_os_string();
    name.push("-service");
    state.with_file_name(name)
}

/// The configured service. It is never guessed.
pub(super) fn configured(config: &Config) -> Result<Chosen, Failure> {
    let Some(base_url) = config.service.base_url.clone() else {
        return Err(Failure::new(Exit::Usage, "no service is configured").hint(
            "try it offline with --emulator; or give --base-url URL and CALLSHEET_API_KEY, or service.base_url \
             in callsheet.toml",
        ));
    };
    if !matches!(base_url.scheme(), "http" | "https") || base_url.cannot_be_a_base() {
        let message = format!("{base_url} is not an http(s) address");
        return Err(Failure::new(Exit::Usage, message).hint("give the service's base address in --base-url"));
    }
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let key = config.api_key(std::env::var("CALLSHEET_API_KEY").ok(), credentials)?;
    let Some(key) = key else {
        return Err(Failure::new(Exit::Unauthorised, "no API key is given")
            .hint("set CALLSHEET_API_KEY, or service.api_key_file in callsheet.toml"));
    };
    let identity = base_url.as_str().trim_end_matches('/').to_owned();
    let state = config.paths.state.clone().unwrap_or_else(|| PathBuf::from("state"));
    let output = config.paths.output.clone().unwrap_or_else(|| PathBuf::from("output"));
    Ok(Chosen {
        options: service_options(config, base_url, Some(key)),
        identity,
        state,
        output,
        emulator: None,
    })
}

fn service_options(config: &Config, base_url: url::Url, api_key: Option<SecretString>) -> ServiceOptions {
    let wait = |span: crate::config::Span| std::time::Duration::from_millis(span.0.0);
    ServiceOptions {
        base_url,
        api_key,
        connect_timeout: wait(config.service.connect_timeout),
        request_timeout: wait(config.service.request_timeout),
        render_timeout: wait(config.service.render_timeout),
    }
}
