//! `callsheet run`: manifests in, finished files out, exit.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytesize::ByteSize;
use clap::Args;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::Service;
use crate::cli::build;
use crate::cli::daemon_discovery;
use crate::cli::end_of_batches;
use crate::cli::examples;
use crate::cli::failure::Failure;
use crate::cli::global_flags::EmulatorArguments;
use crate::cli::global_flags::Global;
use crate::cli::interrupt::{InFlight, Interrupts, SharedInFlight, stop_at_signals};
use crate::cli::invocation::Invocation;
use crate::cli::manifest_arguments::ManifestArguments;
use crate::cli::manifest_input::{self, ManifestInput};
use crate::cli::next_steps::{self, BatchEnd, FailedJob, NAMED_MAX};
use crate::cli::progress::Progress;
use crate::cli::service_contact;
use crate::cli::service_target::{self, ServiceTarget};
use crate::cli::submit;
use crate::cli::summary;
use crate::cli::terminal::{self, say};
use crate::cli::{printable, printable_path};
use crate::client::InProcess;
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::parked_reason::Parked;
use crate::domain::quote::Catalog;
use crate::domain::shell_word::job_argument;
use crate::domain::time::{Millis, Tick};
use crate::engine::gallery::Standing;
use crate::engine::scheduler::{BatchOverview, Standstill};
use crate::engine::upload_limit::Uploads;
use crate::engine::{self, Engine, EngineError, Mode, Scope, Stop};
use crate::ingest::catalog_refresh::{self, JustReadCatalogs};
use crate::ingest::ingest_handle;
use crate::ingest::receipt::Receipt;
use crate::metrics::Metrics;
use crate::output::publish::{OutputDir, is_disk_full};
use crate::output::report::{Listed, Report, Waiting};
use crate::pages::gallery_index::OPEN_MAX;
use crate::server::access::TcpAccess;
use crate::server::app::{App, AppParts};
use crate::server::listener::{self, ServedSocket};
use crate::server::protocol::BatchStatus;
use crate::store::{BatchRecord, Store};

/// What `run` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::RUN))]
pub(super) struct RunCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson, or - for standard input
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) emulator: EmulatorArguments,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// Use a state that was created for another service
    #[arg(long)]
    pub(super) adopt_state: bool,
    /// Serve the live page while the run lasts, on a free port of this machine or at ADDRESS
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    pub(super) page: Option<SocketAddr>,
}

pub(super) async fn run(command: &RunCommand, global: &Global) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let config = service_target::config(global)?;
    let manifests = manifest_input::open_all(&command.manifests, &command.terms, &config).await?;
    if let Some(daemon) = daemon_discovery::find_daemon(global, &config, global.emulator).await? {
        daemon.must_take_manifests()?;
        // What the file names counts, too: without a daemon the state would refuse another service.
        if let Some(url) = config.service.base_url.as_ref().filter(|_| !global.emulator) {
            daemon_discovery::check_service_matches(&daemon, &service_target::identity_of(url))?;
        }
        say!("a daemon runs on this state: submitting to it and following its progress");
        if command.page.is_some() {
            say!(
                "note: --page has no effect here, since the daemon does the work; for its page, set control.http"
            );
        }
        return submit::submit(&daemon, &manifests, true, global).await;
    }
    let chosen = service_target::select(&config, global, &command.emulator).await?;
    let outcome = run_against(&chosen, &manifests, command, global, &config, clock).await;
    if let Some(emulator) = chosen.emulator {
        emulator.stop().await;
    }
    outcome
}

async fn run_against(
    chosen: &ServiceTarget,
    manifests: &[ManifestInput],
    command: &RunCommand,
    global: &Global,
    config: &Config,
    clock: Clock,
) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen();
    let prepared = tokio::select! {
        prepared = Box::pin(prepare(chosen, manifests, command, global, config, clock)) => prepared?,
        () = interrupts.recv() => {
            say!("interrupted before this run sent a job; repeat the command to resume");
            return Ok(Exit::Interrupted);
        }
    };
    let Prepared { store, service, mut app, only, receipts, listening, page } = match prepared {
        Ok(prepared) => *prepared,
        Err(exit) => return Ok(exit),
    };
    let output_dir = app.state.output_dir();
    let (standstill, elapsed) = drive(&mut app.engine, clock, only.clone(), interrupts).await?;
    drop(listening);
    if let Some(page) = page {
        page.abort();
    }
    let batches = batches_as_they_stand(&app.engine, &store, &only)?;
    let overview: Vec<BatchStatus> = statuses(&app.engine, &batches);
    let exit = exit_of(standstill, &receipts, &overview);
    let results = write_all_results(&store, output_dir, batches.clone());
    let galleries = finish_galleries(&app, &batches);
    // Where there is little room it is for the results.
    let ((written, unwritten), ()) = match app.engine.scheduler().disk_is_low() {
        true => (results.await, galleries.await),
        false => tokio::join!(results, galleries),
    };
    // How the run ended is told all the same; the next one writes them.
    let exit = unwritten.map_or(exit, |failure| failure.report(global.json));
    let mut parked = Vec::new();
    for reason in parked_reasons(standstill, &overview) {
        parked.push((reason, numbers(reason, &service, config, chosen, written.waiting).await));
    }
    let printed = print_how_it_ended(&overview, global, &receipts, chosen, exit);
    say_how_it_ended(standstill, &parked, &overview);
    if !global.json {
        if overview.iter().any(|batch| batch.jobs > 0) {
            summary::elapsed(elapsed);
        }
        let handed_in = manifests.first().map(|manifest| &manifest.submission);
        let invocation = Invocation::of("run", global).on_terms(handed_in);
        say_what_next(&written, &overview, &receipts, &invocation);
    }
    summary::parts(&receipts);
    printed.map(|()| exit)
}

/// A run before its first step.
struct Prepared {
    store: Arc<Store>,
    service: Service,
    app: App,
    /// The batches that it works on.
    only: BTreeSet<BatchNo>,
    receipts: Vec<Receipt>,
    listening: Option<ServedSocket>,
    page: Option<tokio::task::JoinHandle<()>>,
}

/// Does what comes before the first step, and sends no job. Returns the exit code where nothing is to be done.
async fn prepare(
    chosen: &ServiceTarget,
    manifests: &[ManifestInput],
    command: &RunCommand,
    global: &Global,
    config: &Config,
    clock: Clock,
) -> Result<Result<Box<Prepared>, Exit>, Failure> {
    // An address that is taken is said before anything is accepted.
    let page = bind_page(command.page, config).await?;
    let store = Arc::new(Store::open(&chosen.state, &chosen.identity, command.adopt_state)?);
    let service = Service::new(chosen.options.clone())?;
    let mut parts = build::app_parts(config, &chosen.output, Some((service.clone(), chosen)))?;
    let uploads = Uploads::new(config.limits.uploads, Metrics::new());
    parts.inputs = build::input_store(config, &uploads, Some(&chosen.state))?;
    let backoff = parts.settings.backoff;
    if command.adopt_state {
        service_contact::adopt(&store, (&service, chosen.identity.as_str()), backoff).await?;
    }
    let Submitted { receipts, just_read } = submit_all(&store, &parts, manifests, global, clock).await?;
    if end_of_batches::has_nothing(&receipts) {
        let exit = end_of_batches::nothing_exit(&receipts);
        if global.json {
            submit::print_report(&receipts, &[], &chosen.output, exit)?;
        }
        return Ok(Err(exit));
    }
    let mut only = BTreeSet::new();
    for receipt in &receipts {
        let Some(name) = &receipt.batch else { continue };
        let Some(batch) = store.batch_named(name)? else { continue };
        summary::continued_besides(receipt, &batch);
        only.insert(batch.no);
    }
    let mut deps = build::engine_deps(service.clone(), chosen, config, &parts)?;
    if let Some((catalog, asked)) = just_read
        && let Some(source) = deps.catalogs.take()
    {
        deps.catalogs = Some(Arc::new(JustReadCatalogs::new(catalog, asked, source, clock)));
    }
    let mode = Mode::Paying(Box::new(deps));
    let app = App::new(store.clone(), mode, &Scope::Only(only.clone()), parts, clock)?;
    app.engine.show_gauges();
    let listening = listen(&app, &daemon_discovery::socket(config, &chosen.state)).await;
    let page = page.map(|page| serve_page(&app, page));
    if app.engine.scheduler().batches().any(|batch| !batch.has_ended()) {
        service_contact::reach(&service, backoff).await?;
    }
    check_folders(&app).await?;
    Ok(Ok(Box::new(Prepared { store, service, app, only, receipts, listening, page })))
}

/// Refuses to begin where outputs could not be written, unless it is room that is missing: that is waited for.
async fn check_folders(app: &App) -> Result<(), Failure> {
    let unfinished = app.engine.scheduler().batches().filter(|batch| !batch.is_done());
    let names: Vec<BatchName> = unfinished.map(|batch| batch.name.clone()).collect();
    let output_dir = app.state.output_dir();
    let check = move || {
        for name in names {
            match output_dir.prepare(&name) {
                Err(source) if !is_disk_full(&source) => {
                    return Err(EngineError::Output { path: output_dir.batch_dir(&name), source });
                }
                _ => {}
            }
        }
        Ok(())
    };
    Ok(engine::blocking(check).await?)
}

/// What became of manifests.
struct Submitted {
    receipts: Vec<Receipt>,
    /// The catalogs that they were validated by, and when these were asked for; nothing where some were stored before.
    just_read: Option<(Arc<Catalog>, Tick)>,
}

/// Submits the manifests to an engine in this process that sends nothing yet. What is good of them is durable
/// afterwards.
async fn submit_all(
    store: &Arc<Store>,
    parts: &AppParts,
    manifests: &[ManifestInput],
    global: &Global,
    clock: Clock,
) -> Result<Submitted, Failure> {
    ingest_handle::sweep_incoming(store.dir()).map_err(|error| {
        let incoming = store.dir().join("incoming");
        Failure::new(Exit::Disk, format!("failed to use {}: {error}", incoming.display()))
    })?;
    let service = parts.ingest.service.as_ref().map(|service| (service, parts.ingest.identity.as_str()));
    let asked = clock.now().tick;
    let catalogs = catalog_refresh::load(service, store.dir(), &clock).await?;
    service_target::warn_if_stale(&catalogs, &clock);
    let nothing_yet = Scope::Only(BTreeSet::new());
    let app = App::new(store.clone(), Mode::Offline, &nothing_yet, parts.clone(), clock)?;
    let ingest = app.state.ingest.clone();
    let just_fetched = catalogs.just_fetched;
    let catalog = ingest.use_catalog(catalogs);
    let engine = InProcess::begin(app);
    let receipts = submit::submit_all(engine.client(), manifests, global).await;
    // An engine that ended by itself says why.
    engine.end().await?;
    let just_read = (just_fetched && ingest.still_uses(&catalog)).then_some((catalog, asked));
    Ok(Submitted { receipts: receipts?, just_read })
}

/// Listens for questions and for its owner's commands while the run lasts. A run works without them, too.
async fn listen(app: &App, socket: &Path) -> Option<ServedSocket> {
    match listener::listen(socket).await {
        Ok((listener, guard)) => Some(ServedSocket::begin(listener, guard, app.router_without_manifests())),
        Err(error) => {
            tracing::info!(socket = %socket.display(), %error, "failed to listen on the control socket; other commands cannot reach this run");
            None
        }
    }
}

/// Where the live page is to be served, and the token of who may see it.
struct BoundPage {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<SecretString>,
}

/// Listens where the live page is to be served, where it is asked for.
async fn bind_page(address: Option<SocketAddr>, config: &Config) -> Result<Option<BoundPage>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let token = config.control.token()?;
    let bound = listener::listen_tcp(address, token.as_ref()).await;
    let listener = bound.map_err(|error| {
        Failure::new(Exit::Usage, format!("failed to serve the page on {address}: {error}"))
            .hint("give a free port of this machine as --page=127.0.0.1:8080, or --page alone")
    })?;
    let address = listener.local_addr().unwrap_or(address);
    Ok(Some(BoundPage { listener, address, token }))
}

/// Serves the live page, and says where.
fn serve_page(app: &App, page: BoundPage) -> tokio::task::JoinHandle<()> {
    let BoundPage { listener, address, token } = page;
    say!("page: http://{address}/");
    let access = Arc::new(TcpAccess::new(token));
    tokio::spawn(listener::serve_tcp(listener, app.router_without_manifests(), access))
}

/// Runs the engine with progress, until it stands still or a signal stops it. Signals are waited for until the process
/// ends, so that a second one ends it in whatever follows.
async fn drive(
    engine: &mut Engine,
    clock: Clock,
    only: BTreeSet<BatchNo>,
    interrupts: Interrupts,
) -> Result<(Standstill, Millis), Failure> {
    let (stop_sender, stop) = watch::channel(Stop::AtStandstill);
    let mut progress = Progress::begin(clock, only);
    let in_flight = SharedInFlight::default();
    tokio::spawn(stop_at_signals(interrupts, stop_sender, in_flight.clone()));
    let mut said = false;
    let asked = stop.clone();
    let outcome = engine
        .run(stop, |view| {
            progress.observe(view);
            if asked.borrow().is_stopping() {
                let found = InFlight::of(view.scheduler);
                in_flight.set(found);
                if !said {
                    progress.say(&found.stopping());
                }
                said = true;
            }
        })
        .await;
    in_flight.set(InFlight::default());
    let elapsed = progress.end();
    Ok((outcome?, elapsed))
}

/// What was written of the results.
#[derive(Debug, Default)]
struct Written {
    /// Of each batch its directory and its report.
    reports: Vec<(PathBuf, BatchName, Report)>,
    /// What jobs need that are not sent.
    waiting: Waiting,
}

/// Why nothing moves of what is left: of several batches each may have its own reason.
fn parked_reasons(standstill: Standstill, overview: &[BatchStatus]) -> BTreeSet<Parked> {
    let Standstill::Parked(parked) = standstill else { return BTreeSet::new() };
    overview.iter().filter_map(|batch| batch.parked_by).chain([parked]).collect()
}

/// What there is of what a run is parked for the want of, and what is needed.
async fn numbers(
    parked: Parked,
    service: &Service,
    config: &Config,
    chosen: &ServiceTarget,
    waiting: Waiting,
) -> String {
    match parked {
        Parked::Credits | Parked::MinBalance => {
            let Ok(balance) = service.credits().await else { return String::new() };
            let keep = config.budget.min_balance.filter(|_| parked == Parked::MinBalance);
            let keep = keep.map_or_else(String::new, |keep| format!(", of which {keep} must remain"));
            let Waiting { jobs, least_credits: Credits(least), credits: Credits(all) } = waiting;
            let needed = match jobs {
                // What was sent already waits.
                0 => return format!(" (the balance is {balance}{keep})"),
                1 => format!("1 waiting job needs {all}, as planned"),
                _ => format!(
                    "{jobs} waiting jobs need {least} for the cheapest and {all} together, as planned"
                ),
            };
            format!(" (the balance is {balance}{keep}; {needed})")
        }
        Parked::Disk => {
            let free = |path: &Path| {
                OutputDir::new(path, config.output.options())
                    .free_bytes()
                    .map(|free| ByteSize::b(free).to_string())
            };
            let not_known = || "not known".to_owned();
            let (output, state) = (free(&chosen.output), free(&chosen.state));
            let (output, state) = (output.unwrap_or_else(not_known), state.unwrap_or_else(not_known));
            format!(
                " (free: {output} for outputs, of which output.min_free keeps {}; {state} for the state)",
                config.output.min_free
            )
        }
        _ => String::new(),
    }
}

/// Writes the results of the run's batches, and says why the first of those that cannot be written is not.
async fn write_all_results(
    store: &Arc<Store>,
    output_dir: OutputDir,
    batches: Vec<BatchRecord>,
) -> (Written, Option<Failure>) {
    let (mut written, mut unwritten) = (Written::default(), None);
    for batch in batches {
        let (name, dir) = (batch.name.clone(), output_dir.batch_dir(&batch.name));
        let (store, output_dir) = (store.clone(), output_dir.clone());
        let write = move || engine::write_results(&store, &output_dir, &batch);
        match engine::blocking(write).await {
            Ok(report) => {
                written.waiting = written.waiting.and(report.waiting());
                written.reports.push((dir, name, report));
            }
            Err(error) => drop(unwritten.get_or_insert_with(|| Failure::from(error))),
        }
    }
    (written, unwritten)
}

/// Brings the galleries of the run's batches up to date.
async fn finish_galleries(app: &App, batches: &[BatchRecord]) {
    let scheduler = app.engine.scheduler();
    let standing = |record: &BatchRecord| match scheduler.batch_standing(record.no, OPEN_MAX) {
        Some((record, overview, open)) => Standing::new(record, &overview, open),
        None => Standing::new(record.clone(), &BatchOverview::of_finished(record), Vec::new()),
    };
    app.state.gallery.finish(batches.iter().map(standing).collect()).await;
}

/// Says how each batch ended, what can be done, and where all reasons are.
fn say_what_next(written: &Written, overview: &[BatchStatus], receipts: &[Receipt], invocation: &Invocation) {
    for (_, name, report) in &written.reports {
        for (id, line, how) in report.drifted().take(NAMED_MAX) {
            say!("{name}/{} (line {line}): drift: {}", printable(id), printable(how));
        }
        match report.drifted().count().saturating_sub(NAMED_MAX) {
            0 => {}
            more => say!("{name}: and {more} more with a drift"),
        }
        if !report.price_rise().is_zero() {
            say!(
                "{name}: prices rose after its rows were accepted: its jobs cost {} more than planned. To limit what a \
                 job may cost, set max_credits in its row",
                report.price_rise()
            );
        }
    }
    let ends: Vec<BatchEnd<'_>> = overview.iter().map(|status| end_of(written, status, receipts)).collect();
    next_steps::say(&ends, invocation);
    for (_, name, report) in &written.reports {
        for doubt in report.in_doubt_attempts().iter().take(NAMED_MAX) {
            let (id, line, attempt) = (printable(&doubt.id), doubt.line, doubt.attempt.to_string());
            say!(
                "{name}/{id} (line {line}): its attempt {attempt} is in doubt, and {} count as spent; look up the charge in the \
                 account and record it, or --not-charged:",
                doubt.held_credits + doubt.charged_credits
            );
            let job = job_argument(name, &doubt.id);
            let words = ["resolve", &job, "--attempt", &attempt, "--charged", "N"];
            terminal::print_command(&invocation.command(&words));
        }
        match report.in_doubt_attempts().len().saturating_sub(NAMED_MAX) {
            0 => {}
            more => say!("{name}: and {more} more attempts in doubt: see in_doubt_attempts in report.json"),
        }
    }
    for (dir, _, report) in &written.reports {
        if !report.failed().is_empty() || !report.in_doubt().is_empty() {
            let dir = printable_path(dir);
            say!(
                "all errors are listed in {dir}/results.csv (error_code, error_message) and results.jsonl (error)"
            );
        }
    }
}

/// How a batch stands, as its report tells of it.
fn end_of<'a>(written: &Written, status: &'a BatchStatus, receipts: &'a [Receipt]) -> BatchEnd<'a> {
    let found = written.reports.iter().find(|(_, name, _)| *name == status.name);
    let report = found.map(|(.., report)| report);
    let troubles = |of: fn(&Report) -> &[Listed]| {
        report.map(of).unwrap_or_default().iter().map(FailedJob::of).collect::<Vec<_>>()
    };
    BatchEnd {
        status,
        manifest: next_steps::manifest_of(receipts, status),
        is_part: next_steps::is_part(receipts, status),
        failed: troubles(Report::failed),
        in_doubt: troubles(Report::in_doubt),
        missing_files: report.map(Report::missing_files).unwrap_or_default(),
        past_deadline: report.map(Report::past_deadline),
        waits_for_rows: report.and_then(Report::waits_for_rows).map(str::to_owned),
    }
}

/// The batches of the run, those that are done among them.
fn batches_as_they_stand(
    engine: &Engine,
    store: &Store,
    only: &BTreeSet<BatchNo>,
) -> Result<Vec<BatchRecord>, Failure> {
    let mut batches = Vec::with_capacity(only.len());
    for no in only {
        match engine.scheduler().batch(*no) {
            Some(batch) => batches.push(batch.clone()),
            None => batches.extend(store.batch(*no)?),
        }
    }
    Ok(batches)
}

/// They in numbers.
fn statuses(engine: &Engine, batches: &[BatchRecord]) -> Vec<BatchStatus> {
    let overviews = engine.scheduler().overview();
    let of = |record: &BatchRecord| {
        let overview = overviews.iter().find(|overview| overview.name == record.name).cloned();
        BatchStatus::new(record, &overview.unwrap_or_else(|| BatchOverview::of_finished(record)))
    };
    batches.iter().map(of).collect()
}

fn exit_of(standstill: Standstill, receipts: &[Receipt], batches: &[BatchStatus]) -> Exit {
    match standstill {
        Standstill::Stopped => Exit::Interrupted,
        Standstill::Parked(parked) => parked.exit(),
        Standstill::Overdue => match end_of_batches::done_exit(receipts, batches) {
            Exit::Success | Exit::SomeFailed => Exit::Unfinished,
            exit => exit,
        },
        Standstill::Done | Standstill::Review => end_of_batches::done_exit(receipts, batches),
    }
}

fn print_how_it_ended(
    overview: &[BatchStatus],
    global: &Global,
    receipts: &[Receipt],
    chosen: &ServiceTarget,
    exit: Exit,
) -> Result<(), Failure> {
    match global.json {
        true => submit::print_report(receipts, overview, &chosen.output, exit),
        false => summary::files(overview, &chosen.output),
    }
}

fn say_how_it_ended(standstill: Standstill, parked: &[(Parked, String)], overview: &[BatchStatus]) {
    match standstill {
        Standstill::Done | Standstill::Review => {}
        Standstill::Parked(_) => {
            for (parked, numbers) in parked {
                say!("parked: {}{numbers}", summary::why_parked(*parked, overview));
            }
            summary::why_paused(overview);
        }
        Standstill::Overdue => {
            say!(
                "not finished: the remaining tasks are overdue; repeat the command to keep watching them, or see what ends \
                 one: callsheet explain JOB"
            );
        }
        Standstill::Stopped => {
            say!("interrupted: the state is safe; repeat the command to resume");
        }
    }
    summary::waiting_for_review(overview);
}
