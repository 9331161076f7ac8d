//! `callsheet download`: outputs once more, without a creating POST.

use std::collections::BTreeSet;
use std::sync::Arc;

use anstream::eprintln;
use tokio::sync::watch;

use crate::api::Service;
use crate::cli::arguments::{DownloadCommand, Global};
use crate::cli::client::name_request;
use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::service_target::{self, ServiceTarget};
use crate::cli::{build, outcome_json, submit};
use crate::cli::{printable, printable_path};
use crate::clock::Clock;
use crate::config::Config;
use crate::control::handlers::HandlerError;
use crate::control::protocol::{BatchOutcome, BatchOutcomes};
use crate::domain::job::State;
use crate::engine::engine_client::EngineClient;
use crate::engine::scheduler::Standstill;
use crate::engine::{self, Engine, Stop, Until};
use crate::store::{JobRecord, Store};

/// Edited outputs that are named.
const EDITED_SHOWN: usize = 20;

pub(super) async fn run(command: &DownloadCommand, global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    if let Some(DaemonConnection { client, .. }) =
        daemon_discovery::find_daemon(global, &config, command.source.emulator).await?
    {
        let outcomes: BatchOutcomes = client.post("/v1/download", &name_request(&command.name)).await?;
        for outcome in outcome_json::print(outcomes, global)? {
            say_what_stays(&outcome);
            match outcome.granted.jobs {
                0 => eprintln!("{}: all paid outputs are on disk", outcome.batch),
                jobs => eprintln!("{}: the daemon downloads {jobs} again", outcome.batch),
            }
        }
        return Ok(Exit::Success);
    }
    let chosen = match command.source.emulator {
        true => service_target::emulator_target(&config, 1.0).await?,
        false => service_target::configured_target(&config)?,
    };
    let outcome = fetch(&chosen, command, &config, global).await;
    if let Some(emulator) = chosen.emulator {
        emulator.stop().await;
    }
    outcome
}

/// Names what a person edited: it is not overwritten.
fn say_what_stays(outcome: &BatchOutcome) {
    let edited = &outcome.granted.edited;
    for path in edited.iter().take(EDITED_SHOWN) {
        eprintln!(
            "{}: {} was edited: kept, and downloaded under another name",
            outcome.batch,
            printable(path)
        );
    }
    match edited.len().saturating_sub(EDITED_SHOWN) {
        0 => {}
        more => eprintln!("{}: {more} more were edited", outcome.batch),
    }
    if !edited.is_empty() {
        eprintln!("{}: see files[].edited in results.jsonl", outcome.batch);
    }
}

async fn fetch(
    chosen: &ServiceTarget,
    command: &DownloadCommand,
    config: &Config,
    global: &Global,
) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let store = Arc::new(Store::open(&chosen.state, &chosen.identity, false)?);
    let deps = build::engine_deps(Service::new(chosen.options.clone())?, chosen, config)?;
    let output_dir = deps.output_dir.clone();
    let desk = EngineClient::in_process(store.clone(), build::scheduler_settings(config)?, clock)?;
    let named = desk.find(&command.name).await.map_err(HandlerError::from)?;
    let batch = named.batch().clone();
    // Those that a run left behind, on a full disk for one.
    let is_waiting = |record: &JobRecord| {
        record.key.batch == batch.no && matches!(record.job.state(), State::Fetching { .. })
    };
    let waiting = store.open_jobs()?.iter().filter(|record| is_waiting(record)).count();
    let granted = desk.fetch_again(&named, output_dir.clone(), deps.layout.clone()).await?;
    let again = granted.jobs;
    let outcome = BatchOutcome { batch: batch.name.clone(), granted };
    say_what_stays(&outcome);
    outcome_json::print(BatchOutcomes { batches: vec![outcome] }, global)?;
    if again == 0 && waiting == 0 {
        eprintln!("{}: all paid outputs are on disk", batch.name);
        return Ok(Exit::Success);
    }
    let only = BTreeSet::from([batch.no]);
    let mut engine =
        Engine::new(store.clone(), deps, build::scheduler_settings(config)?, clock, Some(&only))?;
    engine.disable_sending();
    let (_keep, stop) = watch::channel(Stop::No);
    if let Standstill::Parked(parked) = engine.run(Until::Standstill, stop, |_| {}).await? {
        eprintln!("parked: {}", parked.explain());
        return Ok(submit::parked_exit(parked));
    }
    let waiting =
        waiting.saturating_sub(engine.scheduler().open_jobs().filter(|record| is_waiting(record)).count());
    let batch = engine.scheduler().batch(batch.no).cloned().unwrap_or(batch);
    engine::write_results(&store, &output_dir, &batch)?;
    let open = engine.scheduler().open_jobs().count();
    let dir = printable_path(&output_dir.batch_dir(&batch.name));
    match waiting {
        0 => eprintln!("{}: {again} downloaded again into {}", batch.name, dir),
        _ => eprintln!(
            "{}: {again} downloaded again and {waiting} pending downloaded into {}",
            batch.name, dir
        ),
    }
    Ok(if batch.ended.failed > 0 || open > 0 { Exit::SomeFailed } else { Exit::Success })
}
