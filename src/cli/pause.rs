//! `callsheet pause` and `callsheet resume`.

use anstream::eprintln;

use crate::cli::arguments::{BatchArgument, Global};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::state;
use crate::engine::by_hand;

pub(super) fn pause(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let store = state::open(global)?;
    for batch in state::batches(&store, command.batch.as_ref())? {
        by_hand::pause(&store, &batch)?;
        let in_flight = by_hand::in_flight(&store, batch.no)?;
        eprintln!("{}: paused; {in_flight} at the service go on and are collected", batch.name);
    }
    Ok(Exit::Success)
}

pub(super) fn resume(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let store = state::open(global)?;
    for batch in state::batches(&store, command.batch.as_ref())? {
        by_hand::resume(&store, &batch)?;
        eprintln!("{}: goes on with the next run", batch.name);
    }
    Ok(Exit::Success)
}
