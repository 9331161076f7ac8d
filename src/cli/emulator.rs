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
    Faults::load(name).map_err(|error| {
        let message = format!("failed to read the fault plan {name}: {error}");
        Failure::new(Exit::Usage, message).hint("calm, flaky-network and storm are built in")
    })
}
