//! `callsheet download`: outputs once more, without a creating POST.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::Args;

use crate::api::Service;
use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::retry::list;
use crate::cli::service_target::{self, PresentState, ServiceTarget};
use crate::cli::terminal::say;
use crate::cli::{batch_outcomes, build};
use crate::cli::{printable, printable_path};
use crate::client::Client;
use crate::client::InProcess;
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job::State;
use crate::domain::job_state::JobState;
use crate::domain::plural::counted;
use crate::domain::shell_word::shell_word;
use crate::domain::time::Timestamp;
use crate::engine::gallery::Standing;
use crate::engine::job_iter::JobIter;
use crate::engine::scheduler::{BatchOverview, CommandOutcome, Standstill};
use crate::engine::{self, Mode, Scope, Target};
use crate::server::app::App;
use crate::server::handlers::HandlerError;
use crate::server::protocol::{BatchOutcome, DownloadRequest, ExplainRequest, StatusRequest};
use crate::store::{BatchRecord, Store};

/// What `download` takes.
#[derive(Debug, Args)]
pub(super) struct DownloadCommand {
    /// Name of a batch, or a job: its label, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "BATCH|JOB")]
    pub(super) name: String,
}

/// Edited outputs that are named.
const EDITED_SHOWN: usize = 20;

pub(super) async fn run(command: &DownloadCommand, global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    let state = PresentState::find(global, &config);
    if let Some(DaemonConnection { client, health, .. }) =
        daemon_discovery::find_daemon(global, &config, state.is_emulated).await?
    {
        for outcome in request(&client, command, global).await? {
            match outcome.result.jobs {
                0 if !outcome.result.watched.is_empty() => {}
                0 if command.name != outcome.batch.as_str() => {
                    let job = client.call(&ExplainRequest { job: command.name.clone() }).await?.job;
                    say_nothing_of_job(&command.name, outcome.result.restored, job.state());
                }
                0 => {
                    let status = StatusRequest { batch: Some(outcome.batch.clone()), all: false };
                    let status = client.call(&status).await?;
                    let batch = status.batches.first();
                    let in_state = |state| batch.map_or(0, |batch| batch.in_state(state));
                    let unfinished =
                        [JobState::Queued, JobState::Submitting, JobState::Running, JobState::Fetching];
                    let unfinished: u32 = unfinished.into_iter().map(in_state).sum();
                    let in_doubt = in_state(JobState::InDoubt);
                    say_nothing_is_missing(&outcome.batch, outcome.result.restored, in_doubt, unfinished);
                }
                jobs => say!("{}: {} downloads {jobs} again", outcome.batch, health.process.name()),
            }
        }
        return Ok(Exit::Success);
    }
    let chosen = match state.is_emulated {
        true => {
            ServiceTarget { output: state.output, ..service_target::emulator_target(&config, 1.0).await? }
        }
        false => service_target::configured_target(&config)?,
    };
    let outcome = download(&chosen, command, &config, global).await;
    if let Some(emulator) = chosen.emulator {
        emulator.stop().await;
    }
    outcome
}

/// Has outputs downloaded again, and says which files are kept.
async fn request(
    client: &Client,
    command: &DownloadCommand,
    global: &Global,
) -> Result<Vec<BatchOutcome>, Failure> {
    // With an object store it may take as long as a sync.
    let patient = client.without_time_limit()?;
    let outcomes = patient.call(&DownloadRequest { name: command.name.clone() }).await?;
    let outcomes = batch_outcomes::print(outcomes, global)?;
    for BatchOutcome { batch, result } in outcomes.iter().filter(|outcome| outcome.result.restored > 0) {
        let jobs = counted(result.restored, "job");
        say!("{batch}: the outputs of {jobs} were restored from the object store");
    }
    outcomes.iter().for_each(say_what_stays);
    for BatchOutcome { result, .. } in &outcomes {
        list(
            &result.watched,
            "have ended, but the task of another attempt has not, and is watched: their outputs can be downloaded again once it \
             has ended. To end that now: callsheet resolve JOB --attempt N --charged N or --not-charged, as the account shows; \
             which attempt: callsheet explain JOB",
        );
    }
    batch_outcomes::exit(&outcomes, &command.name)?;
    Ok(outcomes)
}

/// The outputs of jobs that are not done, or in doubt, may be paid for, too.
fn say_nothing_is_missing(batch: &BatchName, restored: u32, in_doubt: u32, unfinished: u32) {
    if in_doubt == 0 && unfinished == 0 {
        let what = if restored == 0 { "nothing" } else { "nothing more" };
        say!("{batch}: {what} to download: all outputs of known tasks are on disk");
        return;
    }
    say!(
        "{batch}: the outputs of all jobs that succeeded are on disk; not finished: {unfinished}, in doubt: {in_doubt}; to \
         list these jobs: callsheet jobs {batch}"
    );
}

/// The same of one job, called so.
fn say_nothing_of_job(name: &str, restored: u32, state: &State) {
    let (shown, typed) = (printable(name), shell_word(name));
    let what = if restored == 0 { "nothing" } else { "nothing more" };
    match state {
        State::Succeeded { .. } => say!("{shown}: {what} to download: its outputs are on disk"),
        State::InDoubt { .. } => say!(
            "{shown}: nothing to download: it is in doubt. Look up the charge in the account and record it first: callsheet \
             resolve {typed} --charged N, or --not-charged"
        ),
        state => say!(
            "{shown}: nothing to download: it is {}; to see what comes next: callsheet explain {typed}",
            state.name()
        ),
    }
}

/// Names what a person edited: it is not overwritten.
fn say_what_stays(outcome: &BatchOutcome) {
    let edited = &outcome.result.edited;
    for path in edited.iter().take(EDITED_SHOWN) {
        say!("{}: {} was edited: kept, and downloaded under another name", outcome.batch, printable(path));
    }
    match edited.len().saturating_sub(EDITED_SHOWN) {
        0 => {}
        more => say!("{}: {more} more were edited", outcome.batch),
    }
    if !edited.is_empty() {
        say!("{}: see files[].edited in results.jsonl", outcome.batch);
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
    let deps = build::engine_deps(service, chosen, config, &parts)?;
    let keeps_local = deps.keeps_local;
    let scope = Scope::Only(BTreeSet::from([batch.no]));
    let app = App::new(store.clone(), Mode::Free(Box::new(deps)), &scope, parts, clock)?;
    let (succeeded_before, began) = (batch.ended.succeeded, clock.now().wall);
    // Those that a run left behind, on a full disk for one.
    let overview = app.engine.scheduler().overview();
    let left: u32 = overview.iter().map(|batch| batch.states[JobState::Fetching]).sum();
    let gallery = app.state.gallery.clone();
    let engine = InProcess::begin(app);
    let outcomes = request(engine.client(), command, global).await;
    let standstill = engine.finish().await?;
    let outcomes = outcomes?;
    let sum = |count: fn(&CommandOutcome) -> u32| {
        outcomes.iter().map(|outcome| count(&outcome.result)).sum::<u32>()
    };
    let (again, had_failed) = (sum(|result| result.jobs), sum(|result| result.failed));
    let present = store.batch(batch.no)?.unwrap_or_else(|| batch.clone());
    if again == 0 && left == 0 && present.ended.succeeded == succeeded_before {
        let unfinished = present.rows.saturating_sub(present.ended.all());
        let restored = sum(|result| result.restored);
        // They name the objects in the store, and files that lie beside edited ones.
        engine::write_results(&store, &output_dir, &present)?;
        let named = engine::find_target(&store, &command.name).map_err(HandlerError::from);
        match named.map_err(|error| Failure::from(error.refusal()))? {
            _ if outcomes.iter().any(|outcome| !outcome.result.watched.is_empty()) => {}
            Target::Job(named) => say_nothing_of_job(&command.name, restored, named.record.job.state()),
            Target::Batch(_) => {
                say_nothing_is_missing(&batch.name, restored, present.ended.in_doubt, unfinished);
            }
        }
        return Ok(Exit::Success);
    }
    if let Standstill::Parked(parked) = standstill {
        say!("parked: {}", parked.explain_for(&batch.name));
        return Ok(parked.exit());
    }
    let batch = present;
    engine::write_results(&store, &output_dir, &batch)?;
    let open = store.open_jobs_of(batch.no)?;
    gallery
        .finish(vec![Standing::new(batch.clone(), &BatchOverview::of_finished(&batch), open.clone())])
        .await;
    let dir = printable_path(&output_dir.batch_dir(&batch.name));
    // Without those that had succeeded before and were not downloaded again.
    let others = succeeded_before.saturating_sub(again.saturating_sub(had_failed));
    let given_up = if again == 0 { 0 } else { given_up(&store, &batch, began)? };
    let downloaded = batch.ended.succeeded.saturating_sub(others + given_up);
    // Some that nobody knew to be done may have come besides.
    let wanted = downloaded.max(again + left);
    match keeps_local {
        true => say!("{}: {downloaded} of {wanted} downloaded into {dir}", batch.name),
        // What was not in the store any more came from the service, and is in the store now.
        false => {
            say!(
                "{}: {downloaded} of {wanted} downloaded into the object store; to copy them to {dir}:",
                batch.name
            );
            say!("    callsheet download {}", shell_word(&command.name));
        }
    }
    if downloaded >= wanted {
        return Ok(Exit::Success);
    }
    if given_up > 0 {
        say!(
            "{}: {given_up} could not be downloaded again, and keep the outputs that they had on record; to see why:",
            batch.name
        );
        say!("    callsheet explain {}/JOB", batch.name);
    }
    if downloaded + given_up < wanted {
        say!("to see why the others were not: callsheet jobs {}", batch.name);
    }
    Ok(Exit::SomeFailed)
}

/// Jobs of which a download was given up since, and which have succeeded with the outputs that they had before.
fn given_up(store: &Store, batch: &BatchRecord, since: Timestamp) -> Result<u32, Failure> {
    let mut jobs = JobIter::open(store, batch)?;
    let mut given_up = 0;
    while let Some((_, record)) = jobs.next_job()? {
        given_up += u32::from(record.job.gave_up_download_since(since));
    }
    Ok(given_up)
}
