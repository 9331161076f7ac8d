//! The command line: one file per command, and what they share.

mod absent_rows;
mod another_take;
mod batch_outcomes;
mod budget;
mod build;
mod cancel;
mod client;
mod command_line;
mod completions;
mod continue_pilot;
mod credits;
mod daemon;
mod daemon_discovery;
mod doctor;
mod download;
#[cfg(feature = "emulator")]
mod emulator;
#[cfg(not(feature = "emulator"))]
#[path = "no_emulator.rs"]
mod emulator;
mod end_of_batches;
mod environment_flags;
mod examples;
mod explain;
mod failure;
mod follow;
mod global_flags;
mod group_budgets;
mod init;
mod interrupt;
mod invocation;
mod jobs;
mod ledger;
mod live_line;
mod log;
mod man;
mod manifest_arguments;
mod manifest_input;
mod models;
mod name_arguments;
mod new_file;
mod next_steps;
mod open;
mod open_files_limit;
mod outputs;
mod pause;
mod plan;
mod progress;
mod progress_lines;
mod report;
mod resolve;
mod resume;
mod retry;
mod retry_edited;
mod review;
mod review_decisions;
mod review_import;
mod run;
mod schedule;
mod schema;
mod service_contact;
mod service_target;
mod speed_factor;
mod state;
mod status;
mod submit;
mod summary;
mod table;
mod tasks;
mod terminal;
mod voices;

use std::pin::Pin;
use std::time::Duration;

use clap::CommandFactory;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::cli::command_line::{Arguments, Command};
use crate::cli::failure::Failure;
use crate::cli::log::LogProfile;
pub use crate::domain::exit_code::Exit;

/// How long the end waits for what is still under way.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs the program with the process's arguments and says how it ended.
pub fn main() -> Exit {
    keep_memory_private();
    open_files_limit::raise();
    if let Some(code) = state::try_database() {
        return code;
    }
    if state::find_media_facts() {
        return Exit::Success;
    }
    let arguments = match environment_flags::parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let variable = environment_flags::variable_of(&error);
            let hint = variable.map(|name| format!("the value comes from the environment variable {name}"));
            // Help and version go to stdout and are no error.
            if error.use_stderr() && wants_json() {
                let failure = Failure::from(error);
                return match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
                .report(true);
            }
            let printed = error.print();
            if error.use_stderr() {
                if let Some(hint) = hint {
                    terminal::say!("hint: {hint}");
                }
                return Exit::Usage;
            }
            return match written(printed) {
                Ok(()) => Exit::Success,
                Err(failure) => failure.report(wants_json()),
            };
        }
    };
    match arguments.command {
        Command::Jobs(_) => invocation::note(&jobs::split_state(&arguments.global).0, command_names),
        _ => invocation::note(&arguments.global, command_names),
    }
    let profile = match arguments.command {
        Command::Daemon(_) => LogProfile::Daemon,
        #[cfg(feature = "emulator")]
        Command::Emulator(_) => LogProfile::Emulator,
        _ => LogProfile::Command,
    };
    if let Err(failure) = log::begin(&arguments.global, profile) {
        return failure.report(arguments.global.json);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return Failure::new(Exit::Disk, format!("failed to start: {error}"))
                .report(arguments.global.json);
        }
    };
    // Boxed, so that the commands are compiled once, and not for each place where the runtime polls them.
    let command: Pin<Box<dyn Future<Output = _>>> = Box::pin(async {
        match &arguments.command {
            Command::Run(command) => run::run(command, &arguments.global).await,
            Command::Plan(command) => plan::run(command, &arguments.global).await,
            Command::Daemon(command) => daemon::run(command, &arguments.global).await,
            Command::Submit(command) => submit::run(command, &arguments.global).await,
            Command::Status(command) => status::run(command, &arguments.global).await,
            Command::Jobs(command) => jobs::run(command, &arguments.global).await,
            Command::Open(command) => open::run(command, &arguments.global).await,
            Command::Explain(command) => explain::run(command, &arguments.global).await,
            Command::Pause(command) => pause::pause(command, &arguments.global).await,
            Command::Resume(command) => resume::resume(command, &arguments.global).await,
            Command::Continue(command) => continue_pilot::run(command, &arguments.global).await,
            Command::Cancel(command) => cancel::run(command, &arguments.global).await,
            Command::Resolve(command) => resolve::run(command, &arguments.global).await,
            Command::Budget(command) => budget::run(command, &arguments.global).await,
            Command::Review(command) => review::run(command, &arguments.global).await,
            Command::Retry(command) if !command.set.is_empty() => {
                retry_edited::run(command, &arguments.global).await
            }
            Command::Retry(command) => retry::run(command, &arguments.global).await,
            Command::Download(command) => download::run(command, &arguments.global).await,
            Command::Outputs(command) => outputs::run(command, &arguments.global).await,
            Command::Ledger(command) => ledger::run(command, &arguments.global).await,
            Command::Report(command) => report::run(command, &arguments.global).await,
            Command::Models(command) => models::run(command, &arguments.global).await,
            Command::Voices(command) => voices::run(command, &arguments.global).await,
            Command::Tasks(command) => tasks::run(command, &arguments.global).await,
            Command::Credits(_) => credits::run(&arguments.global).await,
            Command::Schedule(command) => schedule::run(command, &arguments.global).await,
            Command::State(command) => state::run(command, &arguments.global).await,
            Command::Init(command) => init::run(command, &arguments.global),
            Command::Schema => schema::run(),
            Command::Doctor(command) => doctor::run(command, &arguments.global).await,
            Command::Man(command) => man::run(command, Arguments::command()),
            Command::Completions(command) => completions::run(command, Arguments::command()),
            #[cfg(feature = "emulator")]
            Command::Emulator(command) => emulator::run(command, &arguments.global).await,
        }
    });
    let outcome = runtime.block_on(command);
    // What is still under way is safe to leave. It is given a moment all the same, so that the state is closed in order: the
    // next process then need not try it out first.
    runtime.shutdown_timeout(END_TIMEOUT);
    match outcome {
        Ok(exit) => {
            log::flush();
            exit
        }
        Err(failure) => {
            let (exit, is_json) = (failure.exit(), arguments.global.json);
            log::say_last(move || failure.report(is_json)).unwrap_or(exit)
        }
    }
}

/// Ends the process after a panic. `report` says on stderr what happened; where nobody reads that, the process ends all the
/// same.
pub fn abort_after(report: impl FnOnce()) -> ! {
    log::abort_after(report)
}

/// The names of all commands.
fn command_names() -> Vec<String> {
    Arguments::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Whether arguments that cannot be read ask for JSON.
fn wants_json() -> bool {
    // As BoolishValueParser reads it.
    let is_set = |value: std::ffi::OsString| {
        let value = value.to_str().map(str::to_ascii_lowercase);
        matches!(value.as_deref(), Some("1" | "y" | "yes" | "t" | "true" | "on"))
    };
    std::env::args_os().any(|argument| argument == "--json")
        || std::env::var_os("CALLSHEET_JSON").is_some_and(is_set)
}

/// The key lies in this process's memory: no image of it is left when it dies, and no other process of the same
/// user may look into it.
fn keep_memory_private() {
    // Where neither can be had (a filter of system calls), the unit's LimitCORE does it.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// What came of writing data to stdout. A reader that has seen enough and went away is no error.
fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Disk, format!("failed to write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// A path, safe for a terminal: a file's name may come from somebody else.
fn printable_path(path: &std::path::Path) -> String {
    printable(&path.display().to_string())
}

/// Text from outside, fit for a terminal: an escape sequence in a service's message is shown, not
/// obeyed, and so is a mark that turns the direction of what follows.
fn printable(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().flat_map(|c| if obeyed(c) { c.escape_default().collect() } else { vec![c] }).collect()
}
