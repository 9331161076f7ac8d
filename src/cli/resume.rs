//! `callsheet resume`.

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::name_arguments::BatchArgument;
use crate::cli::terminal::say;
use crate::cli::{client, outcome_json};
use crate::domain::exit_code::Exit;
use crate::server::protocol::{Request, ResumeRequest};

pub(super) async fn resume(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let request = ResumeRequest { batch: command.batch.clone() };
    client::with(global, ResumeRequest::METHOD, async |client| {
        let outcomes = outcome_json::print(client.call(&request).await?, global)?;
        if outcomes.is_empty() {
            say!("no unfinished batch to resume");
        }
        for outcome in outcomes {
            match outcome.result.refused {
                Some(refused) => say!("{}: {refused}", outcome.batch),
                None => {
                    let next = client.next_step(&outcome.batch).await?;
                    let resumed = if outcome.result.was_paused {
                        "resumed"
                    } else {
                        "was not paused; the balance and the prices are checked again"
                    };
                    say!("{}: {resumed}; {next}", outcome.batch);
                }
            }
        }
        Ok(Exit::Success)
    })
    .await
}
