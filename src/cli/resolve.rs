//! `callsheet resolve`: what a person found out about a job in doubt.

use crate::cli::arguments::{Global, ResolveCommand};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::terminal::say;
use crate::cli::{client, outcome_json, printable};
use crate::control::protocol::ResolveRequest;

pub(super) async fn run(command: &ResolveCommand, global: &Global) -> Result<Exit, Failure> {
    let charged = command.charged.unwrap_or_default();
    let (name, attempt, above_hold) = (command.job.clone(), command.attempt, command.above_hold);
    let request = ResolveRequest { name, charged, attempt, above_hold };
    for outcome in outcome_json::print(client::call(global, &request).await?, global)? {
        if let Some(refused) = outcome.granted.refused {
            return Err(Failure::new(Exit::Usage, format!("{}: {refused}", command.job)));
        }
        let next = match charged {
            0 => "it holds no credits any more; callsheet retry queues it again under the same key",
            _ => "its charge is recorded",
        };
        say!("{}: no longer in doubt; {next}", printable(&command.job));
    }
    Ok(Exit::Success)
}
