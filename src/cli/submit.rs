//! `callsheet submit`: manifests for the running daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cli::absent_rows::{self, AbsentLine};
use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::end_of_batches::{done_exit, has_nothing, nothing_exit};
use crate::cli::examples;
use crate::cli::failure::{Failure, FileProblem};
use crate::cli::follow::{Follower, report_interrupted};
use crate::cli::global_flags::Global;
use crate::cli::interrupt::Interrupts;
use crate::cli::invocation::Invocation;
use crate::cli::manifest_arguments::ManifestArguments;
use crate::cli::manifest_input::{self, ManifestInput};
use crate::cli::next_steps::{self, BatchEnd};
use crate::cli::progress::Progress;
use crate::cli::terminal::{self, say};
use crate::cli::{printable, service_target, summary};
use crate::client::{Client, ClientError};
use crate::clock::Clock;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job_state::JobState;
use crate::domain::parked_reason::Parked;
use crate::ingest::receipt::Receipt;
use crate::server::protocol::{BatchState, BatchStatus, Refusal, StatusRequest, Submission};

/// What `submit` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::SUBMIT))]
pub(super) struct SubmitCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson, or - for standard input
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// Wait until the batches are done, and exit as `run` does
    #[arg(long)]
    pub(super) wait: bool,
}

/// Between two looks at how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn run(command: &SubmitCommand, global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    let daemon = daemon_discovery::require_daemon(global, &config).await?;
    let manifests = manifest_input::open_all(&command.manifests, &command.terms, &config).await?;
    submit(&daemon, &manifests, command.wait, global).await
}

/// Hands manifests to a daemon and, when asked to, follows them to the end.
pub(super) async fn submit(
    daemon: &DaemonConnection,
    manifests: &[ManifestInput],
    wait: bool,
    global: &Global,
) -> Result<Exit, Failure> {
    let DaemonConnection { client, health, .. } = daemon;
    daemon.must_take_manifests()?;
    if !wait {
        let receipts = submit_all(client, manifests, global).await?;
        let statuses = look(client, &receipts, &BTreeMap::new()).await?;
        let exit = exit_of(&receipts, &statuses, wait);
        if global.json {
            print_report(&receipts, &statuses, &health.output, exit)?;
        }
        return Ok(exit);
    }
    let mut interrupts = Interrupts::listen();
    let receipts = tokio::select! {
        receipts = submit_all(client, manifests, global) => receipts?,
        () = interrupts.recv() => {
            say!(
                "interrupted: the daemon continues with the submitted manifests; repeat the command to submit the \
                 rest, nothing is bought twice"
            );
            return Ok(Exit::Interrupted);
        }
    };
    let batches = batches_of(&receipts);
    let follower = Follower::new(daemon);
    let mut progress = Progress::begin(Clock::start(), BTreeSet::new());
    let followed = tokio::select! {
        statuses = follow(&follower, &receipts, &mut progress) => Some(statuses),
        () = interrupts.recv() => None,
    };
    let waited = progress.end();
    let statuses = match followed {
        Some(statuses) => statuses?,
        None => {
            let name = batches.first().filter(|_| batches.len() == 1).map_or("BATCH", BatchName::as_str);
            return Ok(report_interrupted(health.process, name));
        }
    };
    let exit = exit_of(&receipts, &statuses, wait);
    let printed = match global.json {
        true => print_report(&receipts, &statuses, &health.output, exit),
        false => summary::files(&statuses, &health.output),
    };
    if !global.json {
        summary::elapsed(waited);
        say_what_parks(&statuses);
        summary::above_plan(&statuses);
        summary::waiting_for_review(&statuses);
        summary::earlier_attempts_in_doubt(&statuses);
        summary::parts(&receipts);
        let mut ends = Vec::with_capacity(statuses.len());
        for status in &statuses {
            ends.push(BatchEnd::ask(client, status, &receipts, &health.output).await);
        }
        let handed_in = manifests.first().map(|manifest| &manifest.submission);
        next_steps::say(&ends, &Invocation::of("submit", global).on_terms(handed_in));
    }
    printed.map(|()| exit)
}

/// Submits manifests one after the other, and says what was read in each.
pub(super) async fn submit_all(
    client: &Client,
    manifests: &[ManifestInput],
    global: &Global,
) -> Result<Vec<Receipt>, Failure> {
    let mut receipts = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        let files = client.hand_over(&manifest.files).await?;
        let submission = Submission { files, ..manifest.submission.clone() };
        let mut receipt = client.submit(&manifest.path, &submission).await?;
        receipt.file.clone_from(&manifest.shown);
        // With --json, problems are an error, which is said at the end.
        if !global.json || !receipt.has_problems() {
            summary::receipt(&receipt);
        }
        receipts.push(receipt);
    }
    if !global.json {
        let shown: Vec<&Receipt> = receipts.iter().collect();
        for line in absent_rows::lines(&shown, &Invocation::of("submit", global)) {
            match line {
                AbsentLine::Text(text) => say!("{}", printable(&text)),
                AbsentLine::Command(command) => terminal::print_command(&command),
            }
        }
    }
    Ok(receipts)
}

/// With `--json`: prints the report, and says what is wrong with manifests, also where stdout cannot be written to.
pub(super) fn print_report(
    receipts: &[Receipt],
    batches: &[BatchStatus],
    output: &Path,
    exit: Exit,
) -> Result<(), Failure> {
    let printed = summary::json(receipts, batches, output, exit.code());
    report_problems(receipts, exit);
    printed
}

/// With `--json`: says on stderr what is wrong with manifests, as an error with every problem.
pub(super) fn report_problems<'a>(receipts: impl IntoIterator<Item = &'a Receipt>, exit: Exit) {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    let mut total = 0;
    for receipt in receipts.into_iter().filter(|receipt| receipt.has_problems()) {
        files.push(receipt.file.display().to_string());
        total += receipt.problems_total;
        let file = &receipt.file;
        let placed = |problem: &Diagnostic| FileProblem { file: file.clone(), problem: problem.clone() };
        problems.extend(receipt.problems.iter().map(placed));
    }
    if total > 0 {
        let what = if total == 1 { "problem" } else { "problems" };
        Failure::new(exit, format!("{total} {what} in {}", files.join(", ")))
            .hint("correct the rows and submit the manifest again; what is accepted already is not bought again")
            .problems(problems)
            .report(true);
    }
}

fn batches_of(receipts: &[Receipt]) -> BTreeSet<BatchName> {
    receipts.iter().filter_map(|receipt| receipt.batch.clone()).collect()
}

/// How the batches of manifests stand. A list leaves out those that finished before others, and they are asked for by
/// name: none may be missing from what the command ends with. Those that are known to be `done` are not asked for.
async fn look(
    client: &Client,
    receipts: &[Receipt],
    done: &BTreeMap<BatchName, BatchStatus>,
) -> Result<Vec<BatchStatus>, ClientError> {
    let batches = batches_of(receipts);
    let status = client.call(&StatusRequest::default()).await?;
    let mut found: Vec<BatchStatus> =
        status.batches.into_iter().filter(|batch| batches.contains(&batch.name)).collect();
    let listed: BTreeSet<BatchName> = found.iter().map(|batch| batch.name.clone()).collect();
    // Of a manifest with no valid row there may be no batch.
    let with_jobs = receipts.iter().filter(|receipt| !has_nothing(std::slice::from_ref(receipt)));
    let with_jobs: BTreeSet<&BatchName> = with_jobs.filter_map(|receipt| receipt.batch.as_ref()).collect();
    for name in with_jobs.into_iter().filter(|name| !listed.contains(*name)) {
        if let Some(known) = done.get(name) {
            found.push(known.clone());
            continue;
        }
        let request = StatusRequest { batch: Some(name.clone()), all: false };
        let batch = client.call(&request).await?.batches.into_iter().find(|batch| batch.name == *name);
        let unknown = || {
            let message =
                format!("the daemon does not say how batch {name} stands, which was submitted to it");
            Refusal::new(Exit::Unreachable, message)
                .hint(format!("nothing is lost; to see what became of it: callsheet status {name}"))
        };
        found.push(batch.ok_or_else(|| ClientError::Refused(unknown()))?);
    }
    Ok(found)
}

/// Looks until every batch is done, or something that only its owner can lift keeps it.
async fn follow(
    follower: &Follower<'_>,
    receipts: &[Receipt],
    progress: &mut Progress,
) -> Result<Vec<BatchStatus>, Failure> {
    let mut done = BTreeMap::new();
    loop {
        let mut statuses = follower.ask(async |client: &Client| look(client, receipts, &done).await).await?;
        progress.observe_statuses(&statuses);
        if statuses.iter().all(has_ended) {
            // Once more in full: one that was done may have been taken up again, and one that was paused resumed.
            done.clear();
            statuses = follower.ask(async |client: &Client| look(client, receipts, &done).await).await?;
            if statuses.iter().all(has_ended) {
                return Ok(statuses);
            }
        }
        let ended = statuses.into_iter().filter(|batch| batch.state == BatchState::Done);
        done.extend(ended.map(|batch| (batch.name.clone(), batch)));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn has_ended(batch: &BatchStatus) -> bool {
    let moving = JobState::ALL.into_iter().filter(|state| state.is_moving());
    // Overdue ones are watched, and nobody waits for them.
    let moves = moving.map(|state| batch.in_state(state)).sum::<u32>() > batch.overdue;
    match batch.state {
        BatchState::Done | BatchState::Review => true,
        BatchState::Active => batch.overdue > 0 && !moves && batch.in_state(JobState::Queued) == 0,
        // It is tried again by itself, and ends after a day.
        BatchState::Parked if batch.parked_by == Some(Parked::InputsUnavailable) => false,
        BatchState::Paused | BatchState::Parked => !moves,
    }
}

fn exit_of(receipts: &[Receipt], batches: &[BatchStatus], waited: bool) -> Exit {
    let parked = batches.iter().find_map(|batch| batch.parked_by);
    match parked {
        _ if has_nothing(receipts) => nothing_exit(receipts),
        Some(parked) if waited => parked.exit(),
        _ if waited => done_exit(receipts, batches),
        // What becomes of the jobs nobody waits for.
        _ => done_exit(receipts, &[]),
    }
}

fn say_what_parks(batches: &[BatchStatus]) {
    let parked: BTreeSet<Parked> = batches.iter().filter_map(|batch| batch.parked_by).collect();
    for parked in parked {
        say!("parked: {}; then the daemon continues", summary::why_parked(parked, batches));
    }
    summary::why_paused(batches);
    summary::overdue(batches);
}
