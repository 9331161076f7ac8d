//! `callsheet cancel`: drops what is not sent yet.

use anstream::eprintln;

use crate::cli::arguments::{Global, NameArgument};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{client, outcome_json, printable};

pub(super) async fn run(command: &NameArgument, global: &Global) -> Result<Exit, Failure> {
    let client = client::open(global).await?;
    for outcome in outcome_json::print(client.cancel(&command.name).await?, global)? {
        let granted = outcome.granted;
        eprintln!("{}: {} canceled before they were sent", outcome.batch, granted.jobs);
        if granted.in_flight > 0 {
            eprintln!(
                "{} are at the service already: it has no way to recall them, so they are charged and collected",
                granted.in_flight
            );
        }
        if granted.may_have_been_sent > 0 {
            eprintln!(
                "{} may have been sent before the state was rebuilt or imported, so that they are not dropped: they wait, \
                 and nothing is sent for them while their batch is paused; callsheet resume {} asks for their tasks under \
                 the same keys, which buys those that the service does not know; callsheet resolve JOB ends one: \
                 --charged N, as the account shows it, or --not-charged",
                granted.may_have_been_sent, outcome.batch
            );
        }
        if let Some(refused) = granted.refused {
            eprintln!("{}", printable(&format!("{}: {refused}", command.name)));
        }
    }
    Ok(Exit::Success)
}
