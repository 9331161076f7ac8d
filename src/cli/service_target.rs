//! The target of a command: the service, and the directories of its state and outputs.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::api::{Service, ServiceOptions};
use crate::cli::emulator::{self, DEFAULT_API_KEY, Emulator};
use crate::cli::failure::Failure;
use crate::cli::global_flags::{EmulatorArguments, Global};
use crate::cli::invocation;
use crate::cli::log;
use crate::cli::printable;
use crate::cli::terminal::say;
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::exit_code::Exit;
use crate::domain::plural::counted;
use crate::domain::time::Millis;
use crate::ingest::catalog_refresh::{self, CatalogError, Catalogs};
use crate::ingest::newer_catalog::CATALOG_RECENT;
use crate::store::{EMULATOR_IDENTITY, Store};

/// What the emulator's own directories are called, below those that the configuration names.
const EMULATOR: &str = "emulator";
/// Default state directory with the emulator.
const EMULATOR_STATE: &str = "state/emulator";
/// In the folder of an emulator that a command runs: its address.
const EMULATOR_ADDRESS: &str = "address";

/// The service and directories of a command.
pub(super) struct ServiceTarget {
    pub(super) options: ServiceOptions,
    /// The service that the state must belong to.
    pub(super) identity: String,
    pub(super) state: PathBuf,
    pub(super) output: PathBuf,
    /// Runs as long as the command.
    pub(super) emulator: Option<Emulator>,
    /// How many times faster than real time it works: 1 but for such an emulator.
    pub(super) speed: f64,
}

impl ServiceTarget {
    /// Whether it is the emulator, of this command or of another.
    pub(super) fn is_emulated(&self) -> bool {
        self.identity == EMULATOR_IDENTITY
    }
}

pub(super) fn state_dir(config: &Config, is_emulated: bool) -> PathBuf {
    let usual = if is_emulated { EMULATOR_STATE } else { "state" };
    config.paths.state.clone().unwrap_or_else(|| PathBuf::from(usual))
}

pub(super) fn output_dir(config: &Config, is_emulated: bool) -> PathBuf {
    let usual = if is_emulated { "output/emulator" } else { "output" };
    config.paths.output.clone().unwrap_or_else(|| PathBuf::from(usual))
}

/// The state of a command that looks or tidies up.
#[derive(Debug)]
pub(super) struct PresentState {
    pub(super) dir: PathBuf,
    /// It is the one that is kept beside the emulator's.
    pub(super) is_emulated: bool,
    /// Where its outputs are.
    pub(super) output: PathBuf,
}

impl PresentState {
    /// The state that the flags name; where they name none, the only one that exists, which is then said on stderr.
    /// Not for commands that may buy: those use the service that is named.
    pub(super) fn find(global: &Global, config: &Config) -> PresentState {
        let names_one = global.emulator || config.paths.state.is_some();
        // A socket or a service means a daemon or a state of its own.
        let is_free = !names_one && global.socket.is_none() && global.base_url.is_none();
        let emulated = Path::new(EMULATOR_STATE);
        let is_emulated = is_free && Store::is_at(emulated) && !Store::is_at(&state_dir(config, false));
        if is_emulated {
            invocation::note_emulated_state();
            // With --json stderr is for errors, as JSON.
            if !global.json {
                say!("note: using {EMULATOR_STATE}, the only state here; --emulator selects it");
            }
        }
        let is_named = names_state_of_emulator(global);
        if is_named {
            invocation::note_emulated_state();
        }
        let is_emulated = global.emulator || is_emulated || is_named;
        let dir = state_dir(config, is_emulated);
        let output = match (&config.paths.output, is_emulated) {
            // The folder of the file is that of the service that the file names.
            (Some(configured), true) if !global.emulator && global.output.is_none() => {
                configured.join(EMULATOR)
            }
            (_, true) => output_dir(config, true),
            (_, false) => output_dir_of_state(config, &dir),
        };
        if !is_emulated && config.service.base_url.is_none() {
            let service = Store::service_at(&dir).filter(|service| service.starts_with("http"));
            service.into_iter().for_each(invocation::note_service_of_state);
        }
        PresentState { dir, is_emulated, output }
    }
}

pub(super) fn output_dir_of_state(config: &Config, state: &Path) -> PathBuf {
    output_dir(config, state == Path::new(EMULATOR_STATE))
}

/// Flags over file over default.
pub(super) fn config(global: &Global) -> Result<Config, Failure> {
    let mut config = Config::load(global.config.as_deref())?;
    if let Some(url) = &global.base_url {
        config.service.base_url = Some(url.clone());
    }
    config.service.base_url.as_ref().map_or(Ok(()), check_address)?;
    let paths = &mut config.paths;
    if global.emulator {
        // Those of the file are of the service that it names.
        for path in [&mut paths.state, &mut paths.output].into_iter().flatten() {
            path.push(EMULATOR);
        }
    }
    let flags = [
        (&global.state, &mut paths.state),
        (&global.output, &mut paths.output),
        (&global.jobs, &mut paths.jobs),
        (&global.socket, &mut paths.socket),
    ];
    for (flag, key) in flags {
        if flag.is_some() {
            key.clone_from(flag);
        }
    }
    log::follow(global, &config.log);
    Ok(config)
}

/// Whether `--state` names a state that belongs to the emulator, and nothing else says which service is meant.
fn names_state_of_emulator(global: &Global) -> bool {
    let is_emulators = |state: &PathBuf| Store::service_at(state).is_some_and(|of| of == EMULATOR_IDENTITY);
    !global.emulator && global.base_url.is_none() && global.state.as_ref().is_some_and(is_emulators)
}

/// Refuses an address that no request could be made of. It is not shown: it may hold a password.
fn check_address(base_url: &url::Url) -> Result<(), Failure> {
    let has_user = !base_url.username().is_empty() || base_url.password().is_some();
    let has_rest = base_url.query().is_some() || base_url.fragment().is_some();
    let wrong = match (has_user, has_rest) {
        (false, false) => return Ok(()),
        (true, _) => "has a user name or password, which would be sent in the place of the API key",
        (false, true) => "has a ? or #, and the paths of requests cannot be added behind it",
    };
    Err(Failure::new(Exit::Usage, format!("the address of the service {wrong}")).hint(
        "give --base-url or service.base_url as https://media.example, and the key as CALLSHEET_API_KEY",
    ))
}

/// The service that a command works with, or the emulator in its place.
pub(super) async fn select(
    config: &Config,
    global: &Global,
    emulator: &EmulatorArguments,
) -> Result<ServiceTarget, Failure> {
    if global.emulator {
        emulator_target(config, emulator.emulator_speed).await
    } else {
        configured_target(config)
    }
}

/// The emulator, started for this command.
pub(super) async fn emulator_target(config: &Config, speed: f64) -> Result<ServiceTarget, Failure> {
    // Beside the client's own state, so that a resumed run meets the tasks it left.
    let kept = emulator_dir(&state_dir(config, true));
    let target = emulator_target_with(config, speed, Some(kept.clone())).await?;
    // Without it commands beside this one see a new account.
    let _ = std::fs::write(kept.join(EMULATOR_ADDRESS), target.options.base_url.as_str());
    Ok(target)
}

async fn emulator_target_with(
    config: &Config,
    speed: f64,
    kept: Option<PathBuf>,
) -> Result<ServiceTarget, Failure> {
    let running = emulator::start(speed, kept).await?;
    let base_url = running.base_url();
    let base_url = base_url.parse().map_err(|error| {
        Failure::new(Exit::Unreachable, format!("the emulator is at {base_url}: {error}"))
    })?;
    Ok(ServiceTarget { emulator: Some(running), speed, ..emulator_at(config, base_url) })
}

/// An emulator that another process runs.
fn emulator_at(config: &Config, base_url: url::Url) -> ServiceTarget {
    ServiceTarget {
        options: service_options(config, base_url, Some(SecretString::from(DEFAULT_API_KEY))),
        identity: EMULATOR_IDENTITY.to_owned(),
        state: state_dir(config, true),
        output: output_dir(config, true),
        emulator: None,
        speed: 1.0,
    }
}

/// Where the emulator is that keeps its state in `kept`, if it answers.
async fn running_emulator(kept: &Path) -> Option<url::Url> {
    let base_url: url::Url = std::fs::read_to_string(kept.join(EMULATOR_ADDRESS)).ok()?.parse().ok()?;
    let address = (base_url.host_str()?.to_owned(), base_url.port()?);
    tokio::net::TcpStream::connect(address).await.is_ok().then_some(base_url)
}

/// `state/emulator` keeps the emulator's own state in `state/emulator-service`.
fn emulator_dir(state: &Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_os_string();
    name.push("-service");
    state.with_file_name(name)
}

/// The configured service with its key. It is never guessed.
pub(super) fn configured_target(config: &Config) -> Result<ServiceTarget, Failure> {
    let Some(chosen) = named_target(config)? else { return Err(not_configured()) };
    if chosen.options.api_key.is_none() {
        return Err(no_key());
    }
    Ok(chosen)
}

pub(super) fn not_configured() -> Failure {
    Failure::new(Exit::Usage, "no service is configured").hint(
        "try it offline with --emulator; or give --base-url URL and CALLSHEET_API_KEY, or service.base_url in \
         callsheet.toml",
    )
}

pub(super) fn no_key() -> Failure {
    Failure::new(Exit::Unauthorised, "no API key is set")
        .hint("set CALLSHEET_API_KEY, or service.api_key_file in callsheet.toml")
}

/// The directory of systemd credentials.
pub(super) fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// The configured service, if there is one; its key, if there is one.
fn named_target(config: &Config) -> Result<Option<ServiceTarget>, Failure> {
    if config.service.base_url.is_none() {
        return Ok(None);
    }
    target_with_key(config, config.api_key(std::env::var("CALLSHEET_API_KEY").ok(), credentials())?)
}

/// The same, with a given key.
pub(super) fn target_with_key(
    config: &Config,
    key: Option<SecretString>,
) -> Result<Option<ServiceTarget>, Failure> {
    let Some(base_url) = config.service.base_url.clone() else { return Ok(None) };
    if !matches!(base_url.scheme(), "http" | "https") || base_url.cannot_be_a_base() {
        let message = format!("{base_url} is not an http(s) address");
        return Err(Failure::new(Exit::Usage, message).hint("give the service's base address in --base-url"));
    }
    let identity = identity_of(&base_url);
    let (state, output) = (state_dir(config, false), output_dir(config, false));
    let options = service_options(config, base_url, key);
    Ok(Some(ServiceTarget { options, identity, state, output, emulator: None, speed: 1.0 }))
}

/// The identity of a service in a state.
pub(super) fn identity_of(base_url: &url::Url) -> String {
    base_url.as_str().trim_end_matches('/').to_owned()
}

/// Where a command that charges nothing gets its catalogs: from the service, or, if none is configured, from the
/// copy in the state.
pub(super) struct CatalogSource {
    /// With the name that its state belongs to.
    pub(super) service: Option<(Service, String)>,
    /// Whether there is a key, without which only the catalogs answer.
    pub(super) has_key: bool,
    pub(super) state: PathBuf,
    emulator: Option<Emulator>,
}

impl CatalogSource {
    /// The service as [`catalog_refresh::load`] takes it.
    pub(super) fn service(&self) -> Option<(&Service, &str)> {
        self.service.as_ref().map(|(service, identity)| (service, identity.as_str()))
    }

    /// The catalogs in force; says so when they are old.
    pub(super) async fn catalogs(&self, clock: &Clock) -> Result<Catalogs, Failure> {
        let loaded = catalog_refresh::load(self.service(), &self.state, clock).await;
        let catalogs = match loaded {
            Err(CatalogError::NoService) => return Err(not_configured()),
            other => other?,
        };
        warn_if_stale(&catalogs, clock);
        Ok(catalogs)
    }

    /// The catalogs read again, where rows are refused for what `used` do not list and these are not recent; nothing where
    /// they are, or no service is configured.
    pub(super) async fn newer_catalogs(
        &self,
        used: &Catalogs,
        clock: &Clock,
    ) -> Result<Option<Catalogs>, Failure> {
        // Those that are older than they should be were asked for just now, and not given.
        let was_asked = used.stale_because.is_some();
        let is_recent = catalog_refresh::is_younger(used.fetched, clock.now().wall, CATALOG_RECENT);
        let Some(service) = self.service().filter(|_| !is_recent && !was_asked) else { return Ok(None) };
        let read = catalog_refresh::load_within(CATALOG_RECENT, Some(service), &self.state, clock).await?;
        warn_if_stale(&read, clock);
        Ok(Some(read))
    }

    /// Stops what was started for it.
    pub(super) async fn end(self) {
        if let Some(emulator) = self.emulator {
            emulator.stop().await;
        }
    }
}

/// The catalog source of a command.
pub(super) async fn catalog_source(config: &Config, global: &Global) -> Result<CatalogSource, Failure> {
    let chosen =
        if global.emulator { Some(emulator_read_only(config).await?) } else { named_target(config)? };
    let Some(chosen) = chosen else {
        let state = state_dir(config, false);
        return Ok(CatalogSource { service: None, has_key: false, state, emulator: None });
    };
    let has_key = chosen.options.api_key.is_some();
    let service = Service::new(chosen.options)?;
    let (state, emulator) = (chosen.state, chosen.emulator);
    Ok(CatalogSource { service: Some((service, chosen.identity)), has_key, state, emulator })
}

/// The emulator for a command that charges nothing: with the account of earlier runs, if there is one; that of the process
/// that has it in use; and else with a new account that is not kept.
pub(super) async fn emulator_read_only(config: &Config) -> Result<ServiceTarget, Failure> {
    let kept = emulator_dir(&state_dir(config, true));
    if kept.is_dir() {
        if let Ok(chosen) = emulator_target_with(config, 1.0, Some(kept.clone())).await {
            return Ok(chosen);
        }
        if let Some(base_url) = running_emulator(&kept).await {
            return Ok(emulator_at(config, base_url));
        }
    }
    emulator_target_with(config, 1.0, None).await
}

/// Warns when catalogs are missing or stale, and says why.
pub(super) fn warn_if_stale(catalogs: &Catalogs, clock: &Clock) {
    for (part, why) in &catalogs.catalog.missing {
        let (part, why) = (part.name(), printable(why));
        say!("warning: no {part} catalog: {why}; rows that need it wait");
    }
    if let Some(reason) = &catalogs.stale_because {
        let age = clock.now().wall.since(catalogs.fetched);
        let (at, age, reason) = (catalogs.fetched, format_age(age), printable(reason));
        say!("warning: using the catalogs of {at}, which are {age} old: {reason}");
    }
}

/// `3 hours`, `2 days`: the largest unit is enough.
pub(super) fn format_age(age: Millis) -> String {
    let seconds = age.0 / 1000;
    let (n, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    counted(n, unit)
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
