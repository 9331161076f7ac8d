//! `callsheet outputs`: outputs on disk and in the object store of `output.store`.

use std::io::Write;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::service_target::{self, PresentState};
use crate::cli::terminal::say;
use crate::cli::{build, daemon_discovery, printable, written};
use crate::client::InProcess;
use crate::clock::Clock;
use crate::domain::exit_code::Exit;
use crate::engine::output_sync::RefusedOutputs;
use crate::engine::upload_limit::Uploads;
use crate::engine::{self, Mode, Scope};
use crate::metrics::Metrics;
use crate::server::app::App;
use crate::server::protocol::{SyncOutputsRequest, SyncedOutputs};
use crate::store::Store;

/// What `outputs` takes.
#[derive(Debug, Args)]
pub(super) struct OutputsCommand {
    #[command(subcommand)]
    command: OutputsAction,
}

#[derive(Debug, Subcommand)]
enum OutputsAction {
    /// Upload outputs that are only on disk, and download outputs that are only in the object store
    ///
    /// Compares every output of the batch by its hash. Nothing is bought, and no request is sent to the service.
    /// Objects that callsheet did not write are never replaced.
    Sync(SyncCommand),
}

#[derive(Debug, Args)]
struct SyncCommand {
    /// Name of a batch, or a job: its label, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "BATCH|JOB")]
    name: String,
}

pub(super) async fn run(command: &OutputsCommand, global: &Global) -> Result<Exit, Failure> {
    let OutputsAction::Sync(SyncCommand { name }) = &command.command;
    let synced = sync(&SyncOutputsRequest { name: name.clone() }, global).await?;
    if global.json {
        written(writeln!(anstream::stdout(), "{:#}", json!(synced)))?;
    }
    let SyncedOutputs { batch, jobs, uploaded, restored, missing, missing_jobs, refused, stopped } = &synced;
    say!(
        "{batch}: outputs of {jobs} jobs are on disk and in the object store; {uploaded} uploaded, {restored} restored"
    );
    if *missing > 0 {
        let named = some_of(missing_jobs, *missing);
        say!("{batch}: {missing} have outputs in neither: {named}; to fetch them from the service:");
        say!("    callsheet download {batch}");
    }
    if let Some(RefusedOutputs { jobs, named, why }) = refused {
        say!("{batch}: {jobs} were refused: {}; the first: {}", some_of(named, *jobs), printable(why));
    }
    if let Some(why) = stopped {
        say!("{batch}: stopped: {why}; repeat the command to continue");
        return Ok(Exit::Unreachable);
    }
    Ok(if *missing > 0 || refused.is_some() { Exit::SomeFailed } else { Exit::Success })
}

/// Labels of jobs; more than these are not named.
fn some_of(labels: &[String], all: u32) -> String {
    let named = labels.iter().map(|label| printable(label)).collect::<Vec<_>>().join(", ");
    let more = if all as usize > labels.len() { ", ..." } else { "" };
    format!("{named}{more}")
}

/// Asks the daemon, or an engine in this process that sends nothing.
async fn sync(request: &SyncOutputsRequest, global: &Global) -> Result<SyncedOutputs, Failure> {
    let config = service_target::config(global)?;
    let state = PresentState::find(global, &config);
    if let Some(daemon) = daemon_discovery::find_daemon(global, &config, state.is_emulated).await? {
        return Ok(daemon.client.without_time_limit()?.call(request).await?);
    }
    let (store, clock) = (Arc::new(Store::open_existing(&state.dir)?), Clock::start());
    let mut parts = build::app_parts(&config, &state.output, None)?;
    let output_dir = parts.output_dir.clone();
    let uploads = Uploads::new(config.limits.uploads, Metrics::new());
    parts.outputs = build::output_store(&config, &uploads, (&state.dir, output_dir.root()))?;
    let app = App::new(store.clone(), Mode::Offline, &Scope::All, parts, clock)?;
    let engine = InProcess::begin(app);
    let synced = engine.client().call(request).await;
    engine.end().await?;
    let synced = synced?;
    // They name the objects.
    if let Some(batch) = store.batch_named(&synced.batch)? {
        engine::write_results(&store, &output_dir, &batch)?;
    }
    Ok(synced)
}
