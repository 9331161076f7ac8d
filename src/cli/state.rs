//! `callsheet state`: export, import, verify, rebuild.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::Subcommand;
use serde_json::json;

use crate::cli::daemon_discovery;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::invocation::{STDIN, uses_emulated_state};
use crate::cli::new_file::NewFile;
use crate::cli::next_steps::NAMED_MAX;
use crate::cli::service_target::PresentState;
use crate::cli::terminal::say;
use crate::cli::{client, printable, printable_path, service_target, written};
use crate::clock::Clock;
use crate::domain::budget_group::GroupKey;
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job::JobSpec;
use crate::domain::plural::counted;
use crate::output::file_names::Layout;
use crate::output::publish::OutputDir;
use crate::pages::decoder_process;
use crate::recovery::import::import as import_state;
use crate::recovery::rebuild::rebuild as rebuild_state;
use crate::server::protocol::{ExportRequest, ProcessKind, Request};
use crate::store::dump::DumpError;
use crate::store::{Store, StoreError, child_reader};

/// What is done to a whole state.
#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// Export the state as JSON Lines
    ///
    /// Exports batches, rows, outcomes, open jobs and totals, from which `callsheet state import` restores the state.
    /// Works beside a running daemon or `run`. Messages of hooks that are not delivered, what was charged above the
    /// catalog, and up to when schedules were handled are not part of it; it says how to carry these along.
    Export(StateExport),
    /// Create a state from an export, in the empty directory given by --state
    ///
    /// Unfinished batches are paused, since their keys may have been used after the export. After callsheet resume
    /// each job continues under its old key.
    Import(StateImport),
    /// Check the state for inconsistencies
    Verify,
    /// Rebuild a damaged database from all readable data
    ///
    /// Reads the accepted rows and outcomes beside the database, readable records of the database, the sidecars in the
    /// output directory and, if given, an export. Moves the damaged database to `aside` in the state directory and
    /// deletes nothing. Unfinished batches are paused: after `callsheet resume`, a key that was used before returns its
    /// task, but a key that was never used buys the job.
    Rebuild(StateRebuild),
}

/// What `state export` takes.
#[derive(Debug, Args)]
pub(super) struct StateExport {
    /// File to create; must not exist [default: standard output]
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// What `state import` takes.
#[derive(Debug, Args)]
pub(super) struct StateImport {
    /// Export file, or - for standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// What `state rebuild` takes.
#[derive(Debug, Args)]
pub(super) struct StateRebuild {
    /// An export of this state, of any age
    #[arg(long, value_name = "FILE")]
    pub(super) export: Option<PathBuf>,
}

/// Most faults that `--json` lists; otherwise they are printed as they are found.
const FAULTS_MAX: usize = 1000;

pub(super) async fn run(command: &StateCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        StateCommand::Export(command) => export(command, global).await,
        StateCommand::Import(command) => import(command, global),
        StateCommand::Verify => verify(global).await,
        StateCommand::Rebuild(command) => rebuild(command, global),
    }
}

/// The child's part of trying a database out, when this process is the child.
pub(super) fn try_database() -> Option<Exit> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != child_reader::ARGUMENT) {
        if let Ok(program) = std::env::current_exe() {
            child_reader::use_program(program);
        }
        return None;
    }
    let code = child_reader::child(arguments);
    std::process::exit(i32::from(code));
}

/// The child's part of looking into outputs, when this process is that child. Returns whether it was.
pub(super) fn find_media_facts() -> bool {
    if std::env::args_os().nth(1).is_some_and(|first| first == decoder_process::ARGUMENT) {
        decoder_process::serve();
        return true;
    }
    if let Ok(program) = std::env::current_exe() {
        decoder_process::use_program(program);
    }
    false
}

fn dir(global: &Global) -> Result<PathBuf, Failure> {
    Ok(service_target::state_dir(&service_target::config(global)?, global.emulator))
}

/// Writes the whole state as the control API gives it. The inner result is what writing came to, and where that state lies.
async fn write_export(global: &Global, out: impl Write) -> Result<std::io::Result<PathBuf>, Failure> {
    let mut out = BufWriter::new(out);
    let (mut failed, mut served) = (None, None);
    let sent = client::with(global, ExportRequest::METHOD, async |client| {
        served = client.served_state();
        let mut write = |line: &[u8]| {
            out.write_all(line).map_err(|error| {
                let kind = error.kind();
                failed = Some(error);
                kind.into()
            })
        };
        client.lines(&ExportRequest {}, &mut write).await
    })
    .await;
    if let Some(error) = failed {
        return Ok(Err(error));
    }
    sent?;
    // A state that was found without being named is the emulator's.
    let config = service_target::config(global)?;
    let own = || service_target::state_dir(&config, uses_emulated_state(global));
    let state = served.unwrap_or_else(own);
    Ok(out.flush().map(|()| state))
}

async fn export(command: &StateExport, global: &Global) -> Result<Exit, Failure> {
    let Some(path) = command.file.as_ref().filter(|path| path.as_os_str() != "-") else {
        match write_export(global, std::io::stdout()).await? {
            Ok(state) => say_left_out(&state),
            Err(error) => written(Err(error))?,
        }
        return Ok(Exit::Success);
    };
    let file = NewFile::begin(path)?;
    let state = write_export(global, file.as_file()).await?.map_err(|error| file.refused(&error))?;
    file.finish()?;
    say!("{}: exported", printable_path(path));
    say_left_out(&state);
    Ok(Exit::Success)
}

/// Says what a state in `dir` keeps beside what an export carries, where it lies here.
fn say_left_out(dir: &Path) {
    let is_message = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|ext| ext == "json");
    let mut messages = dir.join("hooks").read_dir().into_iter().flatten().flatten();
    let messages = messages.any(|entry| is_message(&entry));
    let (prices, schedules) = (dir.join("surcharges.json").exists(), dir.join("schedules.json").exists());
    let what = [
        (messages, "messages of hooks that are not delivered yet", "hooks"),
        (prices, "what was charged above the catalog", "surcharges.json"),
        (schedules, "up to when schedules were handled", "schedules.json"),
    ];
    for (_, what, name) in what.into_iter().filter(|(is_there, ..)| *is_there) {
        let path = dir.join(name);
        say!(
            "not part of the export: {what}; to carry it along, copy {} into the state directory after the import",
            printable_path(&path)
        );
    }
}

fn import(command: &StateImport, global: &Global) -> Result<Exit, Failure> {
    let (dir, now) = (dir(global)?, Clock::start().now().wall);
    let unreadable =
        |error| Failure::new(Exit::Usage, format!("failed to read {}: {error}", command.file.display()));
    let imported = if command.file.as_os_str() == "-" {
        import_state(std::io::stdin().lock(), &dir, now)
            .map_err(|error| of_export(error, Path::new(STDIN)))?
    } else {
        let export = File::open(&command.file).map_err(unreadable)?;
        import_state(export, &dir, now).map_err(|error| of_export(error, &command.file))?
    };
    if global.json {
        print(&json!(imported))?;
    }
    say!(
        "{}: {} with {}, of which {} are open; the state belongs to {}",
        printable_path(&dir),
        counted(imported.batches as u64, "batch"),
        counted(imported.rows, "job"),
        imported.open,
        printable(&imported.service)
    );
    say_paused(imported.paused, &imported.paused_by_owner, "before the export");
    for batch in &imported.without_files {
        say!(
            "{batch}: rows of it take files of the machine that the export was made on, which it does not carry. Before callsheet \
             resume {batch}, submit its manifest again where these files are: what finds no file is in doubt"
        );
    }
    Ok(Exit::Success)
}

/// The failure of what reads an export, with the name of its file.
fn of_export(error: DumpError, file: &Path) -> Failure {
    let message = match &error {
        DumpError::Io(_) | DumpError::Line { .. } | DumpError::OtherState { .. } => {
            Some(format!("{}: {error}", file.display()))
        }
        DumpError::Store(_) | DumpError::NotEmpty { .. } => None,
    };
    let failure = Failure::from(error);
    match message {
        Some(message) => failure.message(message),
        None => failure,
    }
}

async fn verify(global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    let PresentState { dir, is_emulated, .. } = PresentState::find(global, &config);
    // The database and the files beside it are compared line by line, and a daemon adds to both meanwhile.
    if let Some(process) = daemon_discovery::find_daemon(global, &config, is_emulated).await? {
        let hint = match process.health.process {
            ProcessKind::Daemon => {
                "stop the daemon, verify, and start it again; it checks lengths and counts at every start"
            }
            ProcessKind::Run => "wait for the run to end, then verify",
        };
        return Err(Failure::new(Exit::Usage, process.describe()).hint(hint));
    }
    let mut faults = Vec::new();
    let outcome = Store::open_existing(&dir).and_then(|store| {
        store.verify(|fault| {
            if global.json {
                faults.extend((faults.len() < FAULTS_MAX).then_some(fault));
            } else {
                say!("fault: {}", printable(&fault.to_string()));
            }
        })
    });
    let checked = match outcome {
        Err(error @ StoreError::Damaged { .. }) => {
            if global.json {
                let fault = json!({ "place": "the state", "found": error.to_string() });
                print(&json!({ "sound": false, "faults": [fault] }))?;
            }
            // It keeps the state from being opened: more is not looked for.
            return Err(verified_damage(error));
        }
        other => other?,
    };
    let is_sound = checked.faults == 0;
    if global.json {
        print(&json!({ "sound": is_sound, "checked": checked, "faults": faults }))?;
    }
    say!(
        "{}: read {} with {}, {}, {} and {}, up to commit {}: {}",
        printable_path(&dir),
        counted(checked.batches, "batch"),
        counted(checked.rows, "row"),
        counted(checked.outcomes, "outcome"),
        counted(checked.open, "open job"),
        counted(checked.days, "day"),
        checked.commit,
        if is_sound { "all fits".to_owned() } else { format!("{} faults", checked.faults) }
    );
    if is_sound {
        return Ok(Exit::Success);
    }
    Err(verified_damage(StoreError::Damaged {
        dir,
        what: "the state".to_owned(),
        detail: format!("{} inconsistencies found", checked.faults),
    }))
}

/// The failure of a check that found damage: what comes next is not another check.
fn verified_damage(error: StoreError) -> Failure {
    let is_of_rows = error.is_of_rows();
    let failure = Failure::from(error);
    match is_of_rows {
        true => failure,
        false => failure.hint(
            "nothing was sent; callsheet state rebuild rebuilds the state, paused. No paid job is bought again",
        ),
    }
}

fn rebuild(command: &StateRebuild, global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    let state = PresentState::find(global, &config);
    let (output, dir, now) = (state.output, state.dir, Clock::start().now().wall);
    let (output_dir, default_layout) = (OutputDir::new(&output, config.output.options()), config.layout()?);
    let published = |batch: &BatchName, layout: Option<&str>, spec: &JobSpec| {
        output_dir.published_outputs(batch, &Layout::of_batch(layout, &default_layout), spec)
    };
    let export = command.export.as_deref();
    let group_keys: Vec<GroupKey> = config.budget.groups().keys().cloned().collect();
    let rebuilt = rebuild_state(&dir, export, &published, &group_keys, now);
    let rebuilt = rebuilt.map_err(|error| match export {
        Some(file) => of_export(error, file),
        None => error.into(),
    })?;
    if global.json {
        print(&json!(rebuilt))?;
    }
    for note in &rebuilt.notes {
        say!("note: {}", printable(note));
    }
    if let Some(aside) = &rebuilt.aside {
        say!("the old database was moved to {}", printable_path(aside));
    }
    say!(
        "{}: rebuilt {} with {}: {} have ended ({} of them known from their sidecars), {} are open",
        printable_path(&dir),
        counted(rebuilt.batches as u64, "batch"),
        counted(rebuilt.jobs, "job"),
        rebuilt.ended,
        rebuilt.from_sidecars,
        rebuilt.open
    );
    if rebuilt.may_be_charged_credits > Credits::ZERO {
        say!(
            "up to {} may have been charged for requests without a record: they count against budget.total, \
             budget.per_day and budget.by until their tasks are looked up, after callsheet resume, or callsheet retry where a \
             note says so",
            rebuilt.may_be_charged_credits
        );
    }
    say_paused(rebuilt.paused, &rebuilt.paused_by_owner, "before the loss");
    Ok(Exit::Success)
}

/// So many batches are paused; those that their owners had paused stay so where all are resumed.
fn say_paused(batches: usize, by_owner: &[String], when: &str) {
    let batches = batches - by_owner.len();
    if batches > 0 {
        say!(
            "paused: {}. A key that was used returns its task, but a key that was never \
             used buys the job. To continue: callsheet resume, then repeat the run",
            counted(batches as u64, "unfinished batch")
        );
    }
    if !by_owner.is_empty() {
        let names = by_owner.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = by_owner.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        say!(
            "paused by their owners {when}, and still: {}{more}. To continue one: callsheet resume BATCH",
            printable(&names)
        );
    }
}

fn print(value: &serde_json::Value) -> Result<(), Failure> {
    written(writeln!(std::io::stdout(), "{value:#}"))
}
