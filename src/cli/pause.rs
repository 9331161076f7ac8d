//! `callsheet pause` and `callsheet resume`.

use anstream::eprintln;

use crate::cli::access;
use crate::cli::arguments::{BatchArgument, Global};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

pub(super) async fn pause(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let access = access::open(global).await?;
    for outcome in access.pause(command.batch.as_ref()).await?.batches {
        let in_flight = outcome.granted.in_flight;
        eprintln!("{}: paused; {in_flight} at the service go on and are collected", outcome.batch);
    }
    Ok(Exit::Success)
}

pub(super) async fn resume(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let access = access::open(global).await?;
    let who = access.who_goes_on();
    for outcome in access.resume(command.batch.as_ref()).await?.batches {
        eprintln!("{}: {who} goes on with it", outcome.batch);
    }
    Ok(Exit::Success)
}
