//! `callsheet emulator`: the whole service, offline.

use anstream::eprintln;

use crate::cli::arguments::{EmulatorCommand, PlanName};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::emulator::{self, DEFAULT_API_KEY, Faults, Plan};

pub(super) async fn run(command: &EmulatorCommand) -> Result<Exit, Failure> {
    let faults = command.faults.as_deref().map(faults).transpose()?;
    let options = emulator::Options {
        listen: command.listen,
        media_listen: command.media_listen,
        credits: command.credits,
        plan: match command.plan {
            PlanName::None => Plan::None,
            PlanName::Pro => Plan::Pro,
            PlanName::Ultra => Plan::Ultra,
        },
        speed: command.speed,
        state_dir: command.emulator_state.clone(),
        faults,
        catalog: command.catalog.clone(),
        seed: command.seed,
        ..emulator::Options::default()
    };
    let failed = |error: emulator::StartError| Failure::new(Exit::Usage, format!("failed to start: {error}"));
    let running = emulator::start(options).await.map_err(failed)?;
    eprintln!("the emulator listens on {}", running.base_url());
    eprintln!("  results come from {}", running.media_url());
    eprintln!("  the API key is {DEFAULT_API_KEY}");
    eprintln!(
        "try it: CALLSHEET_API_KEY={DEFAULT_API_KEY} callsheet run MANIFEST --base-url {}",
        running.base_url()
    );
    tokio::select! {
        () = running.wait() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    running.stop().await;
    Ok(Exit::Success)
}

/// A ready plan by its name, or one from a file.
fn faults(name: &str) -> Result<Faults, Failure> {
    let wrong =
        |error: String| Failure::new(Exit::Usage, format!("failed to read the fault plan {name}: {error}"));
    if let Some(ready) = Faults::named(name) {
        return Ok(ready);
    }
    let text = std::fs::read_to_string(name).map_err(|error| wrong(error.to_string()).hint(READY_HINT))?;
    Faults::parse(&text).map_err(wrong)
}

const READY_HINT: &str = "calm, flaky-network and storm are built in";
