//! `callsheet review another-take`: what another take of a row would cost, and buying it at that price.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::cli::client;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::terminal::say;
use crate::cli::{printable, written};
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::shell_word::shell_word;
use crate::ingest::another_take::AnotherTake;
use crate::server::protocol::{AnotherTakeRequest, BatchStatus, Request, StatusRequest};

#[derive(Debug, Args)]
pub(super) struct TakeArguments {
    /// Label of a job of the row, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "JOB")]
    pub(super) named: String,
    /// Number of the take to buy; a take that the batch already has is not bought again
    #[arg(long, value_name = "NUMBER", requires = "price")]
    pub(super) take: Option<u32>,
    /// Price that was shown, in credits; if the price has risen since, nothing is bought
    #[arg(long, value_name = "CREDITS", value_parser = Credits::amount, requires = "take")]
    pub(super) price: Option<u64>,
}

pub(super) async fn run(arguments: &TakeArguments, global: &Global) -> Result<Exit, Failure> {
    let TakeArguments { named, take, price } = arguments;
    let request = AnotherTakeRequest { job: named.clone(), take: *take, price_credits: *price };
    client::with(global, AnotherTakeRequest::METHOD, async |client| {
        let answer = client.call(&request).await?;
        if global.json {
            written(writeln!(anstream::stdout(), "{:#}", json!(answer)))?;
            return Ok(Exit::Success);
        }
        let AnotherTake { batch, take, id, .. } = &answer;
        let name = printable(&format!("{batch}/{id}"));
        let price = Credits(answer.price_credits.unwrap_or_default());
        if answer.already_there {
            say!("{name}: take {take} is there already; nothing was bought");
        } else if answer.accepted {
            let next = client.next_step(batch).await?;
            say!("{name}: take {take} accepted for {price} at most; {next}");
        } else {
            let job = shell_word(&printable(named));
            say!("{name}: take {take} of its row, for {price}; nothing is bought yet");
            if let Some(left) = answer.budget_left_credits.filter(|left| *left < price.0) {
                let asked = StatusRequest { batch: Some(batch.clone()), all: false };
                let status = client.call(&asked).await?.batches.into_iter().next();
                // What waits in the batch goes first.
                let before = |status: BatchStatus| {
                    let committed = status.held_credits + status.charged_credits;
                    status.planned_credits.max(committed + status.may_be_charged_credits)
                };
                let enough = status.map(|status| before(status) + price.0);
                let enough = enough.map_or_else(|| "N".to_owned(), |enough| enough.to_string());
                say!(
                    "the budget of {batch} has {} left: the take would wait until it is raised (callsheet budget {batch} \
                     {enough}, which covers what waits before it)",
                    Credits(left)
                );
            }
            say!("to buy it: callsheet review another-take {job} --take {take} --price {}", price.0);
        }
        Ok(Exit::Success)
    })
    .await
}
