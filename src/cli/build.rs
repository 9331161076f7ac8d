//! Builds the engine's parts from the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::{Service, install_tls_provider};
use crate::cli::failure::Failure;
use crate::cli::invocation;
use crate::cli::open_files_limit;
use crate::cli::service_target::{self, ServiceTarget};
use crate::clock::Clock;
use crate::config::{Config, InputsConfig};
use crate::domain::admission::Limits;
use crate::domain::balance_check_interval::BALANCE_CHECK_INTERVAL;
use crate::domain::batch_origin::{SharedSource, SourcePlace};
use crate::domain::exit_code::Exit;
use crate::domain::quote::AccountPlan;
use crate::domain::retry_delay::{Backoff, scale};
use crate::domain::slow_download::MinRate;
use crate::domain::time::Millis;
use crate::domain::url_policy::UrlPolicy;
use crate::engine::input_store::InputStore;
use crate::engine::output_store::OutputStore;
use crate::engine::scheduler::Settings;
use crate::engine::upload_limit::Uploads;
use crate::engine::{EngineDeps, RateLimit};
use crate::ingest::catalog_refresh::ServiceCatalogs;
use crate::ingest::ingest_handle::IngestDefaults;
use crate::ingest::input_files::InputRules;
use crate::metrics::Metrics;
use crate::object_storage::ObjectStorage;
use crate::output::publish::OutputDir;
use crate::server::app::AppParts;
use crate::store::Store;

/// Settings of the scheduler, for a service that works so many times faster than real time.
pub(super) fn scheduler_settings(config: &Config, speed: f64) -> Result<Settings, Failure> {
    Ok(Settings {
        limits: Limits {
            in_flight: config.limits.in_flight,
            in_flight_per_kind: config.limits.in_flight_per_kind.clone(),
            in_flight_per_model: config.limits.in_flight_per_model.clone(),
            total: config.budget.total,
            per_day: config.budget.per_day,
            min_balance: config.budget.min_balance,
        },
        group_limits: config.budget.groups(),
        requests_at_once: open_files_limit::requests_at_once(&config.limits),
        adaptive: config.limits.adaptive,
        rejections: config.limits.pause_after_rejections,
        downloads: config.limits.downloads,
        scratch_max: (!config.output.keep_local).then(|| config.output.scratch_max.as_u64()),
        poll_min: faster(config.poll.min.0, speed),
        poll_max: faster(config.poll.max.0, speed),
        submits_per_second: config.limits.submits_per_second,
        deadlines: config.deadlines.by_kind(),
        overdue_poll: config.deadlines.overdue_poll.0,
        watch_overdue_for: config.deadlines.watch_overdue_for.0,
        attempts: config.retry.attempts,
        backoff: Backoff { base: config.retry.base.0, max: config.retry.max.0 },
        balance_interval: BALANCE_CHECK_INTERVAL,
        has_allowances: config.service.plan != AccountPlan::None,
        rules: Some(Arc::new(config.rules()?)),
        seed: fastrand::u64(..),
    })
}

/// The shortest interval between two polls of a task, however fast the service is.
const POLL_MIN: Millis = Millis(50);

/// An interval between polls, where time passes so many times faster.
fn faster(interval: Millis, speed: f64) -> Millis {
    Millis(scale(interval.0, 1.0 / speed)).max(POLL_MIN.min(interval))
}

/// Which finished batches a state lists.
pub(super) fn list_finished(store: &Store, config: &Config, clock: Clock) {
    store.list_finished_since(clock.now().wall.before(config.retention.list_finished_for.map(|span| span.0)));
}

/// A warning if polls are more frequent than the service advises. Not given for a service on this machine, which is
/// an emulator or a test.
pub(super) fn poll_interval_warning(chosen: &ServiceTarget, config: &Config) -> Option<String> {
    config.poll.hasty().filter(|_| !chosen.options.is_loopback())
}

/// The engine's access to the service, disk and clock, beside the control API with these `parts`.
pub(super) fn engine_deps(
    service: Service,
    chosen: &ServiceTarget,
    config: &Config,
    parts: &AppParts,
) -> Result<EngineDeps, Failure> {
    if let Some(hasty) = poll_interval_warning(chosen, config) {
        tracing::warn!("{hasty}: it may slow down or refuse such a client");
    }
    let catalogs = ServiceCatalogs {
        service: service.clone(),
        identity: chosen.identity.clone(),
        state: chosen.state.clone(),
        clock: Clock::start(),
    };
    let transfers = Uploads::new(config.limits.uploads, Metrics::new());
    Ok(EngineDeps {
        catalogs: Some(Arc::new(catalogs)),
        downloads: service
            .downloads(UrlPolicy::new(&chosen.options.base_url, config.output.allow_hosts.clone()))?,
        service,
        output_dir: parts.output_dir.clone(),
        max_file_bytes: config.output.max_file.as_u64(),
        min_rate: MinRate {
            bytes_per_second: config.limits.min_download_rate.as_u64(),
            window: config.limits.slow_window.0,
        },
        min_free_bytes: config.output.min_free.as_u64(),
        inputs: checked_input_store(chosen, config, &transfers)?,
        outputs: output_store_of_engine(chosen, config, &transfers)?,
        // What an emulator makes is put nowhere, and stays.
        keeps_local: config.output.keep_local || chosen.is_emulated(),
        submits: RateLimit::per_second(config.limits.submits_per_second),
        polls: RateLimit::per_second(config.limits.polls_per_second),
        layout: parts.layout.clone(),
        metrics: transfers.metrics().clone(),
    })
}

/// What holds for every manifest; nothing is taken in without a service.
pub(super) fn ingest_defaults(
    config: &Config,
    service: Option<(Service, &ServiceTarget)>,
) -> Result<IngestDefaults, Failure> {
    let configured = || config.service.base_url.as_ref().map(service_target::identity_of);
    let identity = service.as_ref().map(|(_, chosen)| chosen.identity.clone()).or_else(configured);
    Ok(IngestDefaults {
        service: service.map(|(service, _)| service),
        identity: identity.unwrap_or_default(),
        rules: config.rules()?,
        namespace: config.service.key_namespace.clone(),
        default_budget: config.budget.per_batch,
        plan: config.service.plan,
        group_limits: config.budget.groups(),
        inputs: input_rules(config),
        layout: config.layout()?,
    })
}

/// The environment, for what reads credentials of stores.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Where uploads of large files are noted that broke off.
fn unfinished_uploads(state: &Path) -> PathBuf {
    state.join("uploads")
}

/// Where files go that rows name. Large ones are continued where a state notes them.
pub(super) fn input_store(
    config: &Config,
    uploads: &Uploads,
    state: Option<&Path>,
) -> Result<Option<InputStore>, Failure> {
    let Some(url) = &config.inputs.store else { return Ok(None) };
    install_tls_provider();
    let storage = ObjectStorage::open("inputs.store", url, &environment, state.map(unfinished_uploads))
        .map_err(|bad| Failure::new(Exit::Usage, bad.to_string()).hint("see docs/inputs.md"))?;
    Ok(Some(InputStore::new(storage, config.deadlines.by_kind(), uploads.clone(), Clock::start())))
}

/// The same for an engine: where the store does not answer, that is said before a job needs it.
fn checked_input_store(
    chosen: &ServiceTarget,
    config: &Config,
    uploads: &Uploads,
) -> Result<Option<InputStore>, Failure> {
    let store = input_store(config, uploads, Some(&chosen.state))?;
    if let Some(store) = store.clone() {
        tokio::spawn(async move {
            match store.check().await {
                Ok(None) => {}
                Ok(Some(why)) => tracing::warn!("jobs that take files of this machine are refused: {why}"),
                Err(error) => {
                    tracing::warn!(%error, "jobs that take files of this machine wait for the object store");
                }
            }
        });
    }
    Ok(store)
}

/// Where outputs go besides.
pub(super) fn output_store(
    config: &Config,
    uploads: &Uploads,
    (state, output): (&Path, &Path),
) -> Result<Option<OutputStore>, Failure> {
    let Some(url) = &config.output.store else { return Ok(None) };
    install_tls_provider();
    let storage = ObjectStorage::open("output.store", url, &environment, Some(unfinished_uploads(state)))
        .map_err(|bad| Failure::new(Exit::Usage, bad.to_string()).hint("see docs/outputs.md"))?;
    if let Some(folder) = storage.folder() {
        let place =
            |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_default();
        let (folder, output) = (place(folder), place(output));
        if folder.starts_with(&output) || output.starts_with(&folder) {
            let text = format!(
                "output.store: {} must not be the output directory {}, nor above or below it",
                folder.display(),
                output.display()
            );
            return Err(Failure::new(Exit::Usage, text).hint("see docs/outputs.md"));
        }
    }
    Ok(Some(OutputStore::new(storage, uploads.clone())))
}

/// The same for an engine, which asks it before a job is sent. What an emulator makes is put nowhere.
fn output_store_of_engine(
    chosen: &ServiceTarget,
    config: &Config,
    uploads: &Uploads,
) -> Result<Option<OutputStore>, Failure> {
    if chosen.is_emulated() {
        return Ok(None);
    }
    output_store(config, uploads, (&chosen.state, &chosen.output))
}

/// Which files manifests may name, and whose batches.
pub(super) fn input_rules(config: &Config) -> InputRules {
    let InputsConfig { roots, shared_sources, store, max_file, .. } = &config.inputs;
    // Batches know their folder by its path without links.
    let shared = |SharedSource(place): &SharedSource| match place {
        SourcePlace::Folder(folder) => {
            let real = std::fs::canonicalize(folder).ok().and_then(|real| real.to_str().map(str::to_owned));
            SourcePlace::Folder(real.unwrap_or_else(|| folder.clone()))
        }
        other => other.clone(),
    };
    InputRules {
        roots: roots.clone(),
        max_bytes: max_file.as_u64(),
        has_store: store.is_some(),
        shared_sources: shared_sources.iter().map(shared).collect(),
    }
}

/// What an engine and its control API need. Without a service they take no manifests.
pub(super) fn app_parts(
    config: &Config,
    output: &Path,
    service: Option<(Service, &ServiceTarget)>,
) -> Result<AppParts, Failure> {
    let speed = service.as_ref().map_or(1.0, |(_, chosen)| chosen.speed);
    Ok(AppParts {
        outputs: None,
        inputs: None,
        command_flags: invocation::state_flags(),
        typed_commands: invocation::with_typed_commands_in_html,
        settings: scheduler_settings(config, speed)?,
        ingest: ingest_defaults(config, service)?,
        output_dir: OutputDir::new(output, config.output.options()),
        layout: config.layout()?,
    })
}
