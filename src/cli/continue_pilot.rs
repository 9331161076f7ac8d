//! `callsheet continue`: what waits after the pilot of a batch is submitted.

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::terminal::say;
use crate::cli::{batch_outcomes, client};
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job_state::JobState;
use crate::domain::pilot::Pilot;
use crate::domain::plural::counted;
use crate::server::protocol::{BatchStatus, ContinueRequest, Request, StatusRequest};

#[derive(Debug, Args)]
pub(super) struct ContinueCommand {
    /// The batch
    batch: BatchName,
}

pub(super) async fn run(command: &ContinueCommand, global: &Global) -> Result<Exit, Failure> {
    let request = ContinueRequest { batch: command.batch.clone() };
    client::with(global, ContinueRequest::METHOD, async |client| {
        let asked = StatusRequest { batch: Some(command.batch.clone()), all: false };
        let before = client.call(&asked).await?.batches.into_iter().next();
        let pilot = before.and_then(|batch| batch.pilot).unwrap_or_default();
        let outcomes = batch_outcomes::print(client.call(&request).await?, global)?;
        let exit = batch_outcomes::exit_of_each(&outcomes);
        for outcome in outcomes {
            match outcome.result.refused {
                Some(refused) => say!("{}: {refused}", outcome.batch),
                None => {
                    let next = client.next_step(&outcome.batch).await?;
                    say!("{}: continued with {}; {next}", outcome.batch, rest(pilot));
                }
            }
        }
        Ok(exit)
    })
    .await
}

/// `3 jobs (24 credits)`: a pilot as it is planned.
pub(super) fn first(pilot: Pilot) -> String {
    format!("{} ({})", counted(pilot.jobs, "job"), pilot.planned_credits)
}

/// `97 jobs (776 credits)`: what waits for the end of a pilot.
pub(super) fn rest(pilot: Pilot) -> String {
    format!("{} ({})", counted(pilot.rest_jobs, "job"), pilot.rest_credits)
}

/// `the pilot of 3 jobs is done: 2 succeeded, 1 failed; 16 charged of 24 credits planned`.
pub(super) fn done(batch: &BatchStatus, pilot: Pilot) -> String {
    let ended =
        [JobState::Succeeded, JobState::Failed, JobState::Canceled, JobState::Expired, JobState::InDoubt];
    let ended = ended.map(|state| (batch.in_state(state), state.name()));
    let all: u32 = ended.iter().map(|(n, _)| n).sum();
    let ended: Vec<String> =
        ended.iter().filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} {name}")).collect();
    let (jobs, ended, charged) = (counted(pilot.jobs, "job"), ended.join(", "), batch.charged_credits);
    let planned = pilot.planned_credits;
    match pilot.jobs {
        0 => "no row of the manifest was new, so no pilot was run".to_owned(),
        _ if all == 0 => format!("the pilot of {jobs} is over: none of its rows is wanted any more"),
        // Others had ended before it.
        of_pilot if all > of_pilot => {
            format!(
                "the pilot of {jobs} ({planned}) is done; of the whole batch: {ended}; {charged} credits charged"
            )
        }
        _ => format!("the pilot of {jobs} is done: {ended}; {charged} charged of {planned} planned"),
    }
}
