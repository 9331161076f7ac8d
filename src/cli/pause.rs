//! `callsheet pause`.

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::name_arguments::BatchArgument;
use crate::cli::terminal::say;
use crate::cli::{batch_outcomes, client};
use crate::domain::exit_code::Exit;
use crate::server::protocol::PauseRequest;

pub(super) async fn pause(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let request = PauseRequest { batch: command.batch.clone() };
    let outcomes = batch_outcomes::print(client::call(global, &request).await?, global)?;
    if outcomes.is_empty() {
        say!("no unfinished batch to pause; batches that come later are not paused");
    }
    let exit = batch_outcomes::exit_of_each(&outcomes);
    for outcome in outcomes {
        let in_flight = outcome.result.in_flight;
        let paused = if outcome.result.was_paused { "was paused already" } else { "paused" };
        match outcome.result.refused {
            Some(refused) => say!("{}: {refused}", outcome.batch),
            None => {
                say!("{}: {paused}; {in_flight} in flight will finish and be downloaded", outcome.batch);
            }
        }
    }
    Ok(exit)
}
