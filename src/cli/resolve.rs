//! `callsheet resolve`: what a person found out about a job in doubt.

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::terminal::say;
use crate::cli::{batch_outcomes, client, printable};
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::shell_word::shell_word;
use crate::server::protocol::ResolveRequest;

/// What `resolve` takes.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("found").required(true))]
pub(super) struct ResolveCommand {
    /// Label of the job, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "JOB")]
    pub(super) job: String,
    /// The job was charged this many credits
    #[arg(long, value_name = "CREDITS", value_parser = Credits::amount, group = "found")]
    pub(super) charged: Option<u64>,
    /// The job was not charged
    #[arg(long, group = "found")]
    pub(super) not_charged: bool,
    /// Number of the attempt, where several are in doubt, or the task of an earlier one is still watched
    #[arg(long, value_name = "N")]
    pub(super) attempt: Option<u32>,
    /// Accept a charge above the credits held for the job
    #[arg(long, requires = "charged")]
    pub(super) above_hold: bool,
}

pub(super) async fn run(command: &ResolveCommand, global: &Global) -> Result<Exit, Failure> {
    let charged = command.charged.unwrap_or_default();
    let (name, attempt, above_hold) = (command.job.clone(), command.attempt, command.above_hold);
    let request = ResolveRequest { name, charged, attempt, above_hold };
    let outcomes = batch_outcomes::print(client::call(global, &request).await?, global)?;
    if outcomes.iter().any(|outcome| outcome.result.refused.is_none()) {
        let job = printable(&command.job);
        let other = outcomes.iter().find_map(|outcome| outcome.result.one_of_several);
        let has_task = outcomes.iter().any(|outcome| outcome.result.has_task);
        match (charged, other) {
            // Another attempt was made since.
            (0, Some(no)) => say!(
                "{job}: attempt {no} not charged, as you say; to see what follows: callsheet explain {}",
                shell_word(&command.job)
            ),
            (0, None) => say!(
                "{job}: not charged, as you say; it holds no credits any more; to queue it again: callsheet retry {}",
                shell_word(&command.job)
            ),
            // An earlier one gives no outputs.
            (_, Some(no)) => {
                say!("{job}: a charge of {} is recorded for attempt {no}", Credits(charged));
            }
            (_, None) if has_task => say!(
                "{job}: a charge of {} is recorded; if its task has succeeded at the service, this fetches its outputs, free of \
                 charge: callsheet download {}",
                Credits(charged),
                shell_word(&command.job)
            ),
            (_, None) => say!(
                "{job}: a charge of {} is recorded; no task of it is known, so its outputs cannot be downloaded; to see what \
                 can be done: callsheet explain {}",
                Credits(charged),
                shell_word(&command.job)
            ),
        }
    }
    batch_outcomes::exit(&outcomes, &command.job)
}
