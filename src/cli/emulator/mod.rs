//! The emulator: started for a command that works offline, and served by `callsheet emulator`. A build without the
//! feature `emulator` has `no_emulator.rs` in its place.

pub(super) mod arguments;

use std::io::{self, Write};
use std::path::PathBuf;

pub(super) use callsheet_emulator::{DEFAULT_API_KEY, Emulator};
use callsheet_emulator::{FaultPlan, Options, Plan, StartError};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::arguments::{EmulatorCommand, PlanName};
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::log;
use crate::cli::terminal::print_line;
use crate::domain::exit_code::Exit;

/// Credits on the account of a command that works offline.
const CREDITS: u64 = 1_000_000_000;

/// Starts it for a command: with what earlier commands left in `state_dir`, or with a new account that leaves no trace.
pub(super) async fn start(speed: f64, state_dir: Option<PathBuf>) -> Result<Emulator, Failure> {
    let options = Options { speed, credits: CREDITS, state_dir, ..Options::default() };
    callsheet_emulator::start(options)
        .await
        .map_err(|error| Failure::new(Exit::Disk, format!("failed to start the emulator: {error}")))
}

/// `callsheet emulator`: the whole service, until a signal ends it.
pub(super) async fn run(command: &EmulatorCommand, global: &Global) -> Result<Exit, Failure> {
    // From here on a signal is an orderly end, however early it comes.
    let mut ends = Ends::new()?;
    let running =
        callsheet_emulator::start(options(command)?).await.map_err(|error| explain(&error, command))?;
    introduce(&running, &command.api_key);
    if global.json {
        announce(&running, &command.api_key)
            .map_err(|error| Failure::new(Exit::Disk, format!("failed to write to stdout: {error}")))?;
    }
    tokio::select! {
        () = running.wait() => return Err(Failure::new(Exit::Unreachable, "the emulator stopped unexpectedly")),
        () = ends.wait() => {}
    }
    running.stop().await;
    log::say_last(|| print_line("the emulator has stopped"));
    Ok(Exit::Success)
}

fn options(command: &EmulatorCommand) -> Result<Options, Failure> {
    Ok(Options {
        listen: command.listen,
        media_listen: command.media_listen,
        media_url: command.media_url.clone(),
        api_key: command.api_key.clone(),
        credits: command.credits,
        plan: match command.plan {
            PlanName::None => Plan::None,
            PlanName::Pro => Plan::Pro,
            PlanName::Ultra => Plan::Ultra,
        },
        speed: command.speed,
        state_dir: command.emulator_state.clone(),
        faults: command.faults.as_deref().map(faults).transpose()?,
        catalog: command.catalog.clone(),
        seed: command.seed,
        manual_clock: command.manual_clock,
    })
}

/// A ready plan by its name, or one from a file.
fn faults(name: &str) -> Result<FaultPlan, Failure> {
    FaultPlan::load(name).map_err(|error| {
        Failure::new(Exit::Usage, format!("failed to read the fault plan: {error}"))
            .hint("--faults takes calm, flaky-network, storm, or a file; --help shows one")
    })
}

/// The signals that end it.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> Result<Ends, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Exit::Disk, format!("failed to listen for signals: {error}")))
        };
        Ok(Ends { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// For people.
fn introduce(running: &Emulator, api_key: &str) {
    let base_url = running.base_url();
    print_line(&format!("the emulator listens on {base_url}"));
    print_line(&format!("  results come from {}", running.media_url()));
    print_line(&format!("  the API key is {api_key}"));
    print_line("try it:");
    print_line(&format!("  curl {base_url}/api/v1/credits -H 'Authorization: Bearer {api_key}'"));
    print_line(&format!("  CALLSHEET_API_KEY={api_key} callsheet run MANIFEST --base-url {base_url}"));
    print_line(&format!("the audit is at {base_url}/emulator/audit; Ctrl-C ends it"));
}

/// For scripts: one line, once it is ready.
fn announce(running: &Emulator, api_key: &str) -> io::Result<()> {
    let ready = json!({"base_url": running.base_url(), "media_url": running.media_url(), "api_key": api_key});
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{ready}")?;
    stdout.flush()
}

/// Why it did not start, and what to do about it.
fn explain(error: &StartError, command: &EmulatorCommand) -> Failure {
    let exit = match error {
        StartError::State { .. } | StartError::Damaged { .. } => Exit::Disk,
        _ => Exit::Usage,
    };
    let hint = match error {
        StartError::Listen { address, source } => {
            let flag = if *address == command.listen { "--listen" } else { "--media-listen" };
            let free = std::net::SocketAddr::new(address.ip(), 0);
            Some(if source.kind() == io::ErrorKind::AddrInUse {
                format!("the address is in use; choose another with {flag}, or {flag} {free} for a free port")
            } else {
                format!("choose an address of this machine with {flag}")
            })
        }
        StartError::StateInUse { .. } => {
            Some(String::from("stop that emulator, or choose another directory with --emulator-state"))
        }
        StartError::Damaged { .. } => {
            Some(String::from("move the directory away, or choose another with --emulator-state"))
        }
        StartError::Catalog { .. } => Some(String::from(
            "a recorded catalog is an object with any of video, image, music and voices, each as the service \
             answered it",
        )),
        _ => None,
    };
    let failure = Failure::new(exit, format!("failed to start: {error}"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
