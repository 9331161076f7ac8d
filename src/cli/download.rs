//! `callsheet download`: outputs once more, without a creating POST.

use std::collections::BTreeSet;
use std::sync::Arc;

use anstream::eprintln;

use crate::api::Service;
use crate::cli::arguments::{DownloadCommand, Global};
use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::service_target::{self, ServiceTarget};
use crate::cli::{build, outcome_json, submit};
use crate::cli::{printable, printable_path};
use crate::clock::Clock;
use crate::config::Config;
use crate::control::app::{App, InProcess};
use crate::control::handlers::HandlerError;
use crate::control::protocol::{BatchOutcome, DownloadRequest};
use crate::domain::job::State;
use crate::engine::scheduler::Standstill;
use crate::engine::{self, Mode, Scope};
use crate::store::{JobRecord, Store};

/// Edited outputs that are named.
const EDITED_SHOWN: usize = 20;

pub(super) async fn run(command: &DownloadCommand, global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    if let Some(DaemonConnection { client, health, .. }) =
        daemon_discovery::find_daemon(global, &config, command.source.emulator).await?
    {
        let outcomes = client.call(&DownloadRequest { name: command.name.clone() }).await?;
        for outcome in outcome_json::print(outcomes, global)? {
            say_what_stays(&outcome);
            match outcome.granted.jobs {
                0 => eprintln!("{}: all paid outputs are on disk", outcome.batch),
                jobs => eprintln!("{}: {} downloads {jobs} again", outcome.batch, health.process.name()),
            }
        }
        return Ok(Exit::Success);
    }
    let chosen = match command.source.emulator {
        true => service_target::emulator_target(&config, 1.0).await?,
        false => service_target::configured_target(&config)?,
    };
    let outcome = download(&chosen, command, &config, global).await;
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

async fn download(
    chosen: &ServiceTarget,
    command: &DownloadCommand,
    config: &Config,
    global: &Global,
) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let store = Arc::new(Store::open(&chosen.state, &chosen.identity, false)?);
    let service = Service::new(chosen.options.clone())?;
    let parts = build::app_parts(config, &chosen.output, Some((service.clone(), chosen)))?;
    let output_dir = parts.output_dir.clone();
    let named = engine::find_target(&store, &command.name).map_err(HandlerError::from);
    let batch = named.map_err(|error| Failure::from(error.refusal()))?.batch().clone();
    // Those that a run left behind, on a full disk for one.
    let waiting_now = || -> Result<usize, Failure> {
        let is_waiting = |record: &JobRecord| {
            record.key.batch == batch.no && matches!(record.job.state(), State::Fetching { .. })
        };
        Ok(store.open_jobs()?.iter().filter(|record| is_waiting(record)).count())
    };
    let waiting = waiting_now()?;
    let deps = build::engine_deps(service, chosen, config)?;
    let scope = Scope::Only(BTreeSet::from([batch.no]));
    let app = App::new(store.clone(), Mode::Free(Box::new(deps)), &scope, parts, clock)?;
    let engine = InProcess::begin(app);
    let outcomes = engine.client().call(&DownloadRequest { name: command.name.clone() }).await;
    let mut again = 0;
    let reported = outcomes.map_err(Failure::from).and_then(|outcomes| outcome_json::print(outcomes, global));
    if let Ok(outcomes) = &reported {
        outcomes.iter().for_each(say_what_stays);
        again = outcomes.iter().map(|outcome| outcome.granted.jobs).sum();
    }
    let standstill = engine.finish().await?;
    reported?;
    if again == 0 && waiting == 0 {
        eprintln!("{}: all paid outputs are on disk", batch.name);
        return Ok(Exit::Success);
    }
    if let Standstill::Parked(parked) = standstill {
        eprintln!("parked: {}", parked.explain());
        return Ok(submit::parked_exit(parked));
    }
    let waiting = waiting.saturating_sub(waiting_now()?);
    let batch = store.batch(batch.no)?.unwrap_or(batch);
    engine::write_results(&store, &output_dir, &batch)?;
    let is_open = |record: &JobRecord| record.key.batch == batch.no;
    let open = store.open_jobs()?.iter().filter(|record| is_open(record)).count();
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
