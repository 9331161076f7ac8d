//! `callsheet resume`.

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::name_arguments::BatchArgument;
use crate::cli::terminal::say;
use crate::cli::{batch_outcomes, client};
use crate::domain::exit_code::Exit;
use crate::domain::plural::counted;
use crate::server::protocol::{Request, ResumeRequest};

pub(super) async fn resume(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let request = ResumeRequest { batch: command.batch.clone() };
    client::with(global, ResumeRequest::METHOD, async |client| {
        let outcomes = batch_outcomes::print(client.call(&request).await?, global)?;
        if outcomes.is_empty() {
            say!("no unfinished batch to resume");
        }
        let exit = batch_outcomes::exit_of_each(&outcomes);
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
                    let canceled = u64::from(outcome.result.canceled_go_on);
                    if canceled > 0 {
                        say!(
                            "{}: {} may have been sent before the state was rebuilt or imported and go on: a key that was used \
                             returns its task, a key that was not used buys; to stop that: callsheet pause {}",
                            outcome.batch,
                            counted(canceled, "canceled job"),
                            outcome.batch
                        );
                    }
                }
            }
        }
        Ok(exit)
    })
    .await
}
