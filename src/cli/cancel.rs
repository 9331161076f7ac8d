//! `callsheet cancel`: drops what is not sent yet.

use std::sync::Arc;

use anstream::eprintln;

use crate::cli::arguments::{BatchNameArgument, Global};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{service, state, wiring};
use crate::clock::Clock;
use crate::engine::by_hand;

pub(super) fn run(command: &BatchNameArgument, global: &Global) -> Result<Exit, Failure> {
    let config = service::config(global)?;
    let store = Arc::new(state::open(global)?);
    let batch = state::batch(&store, command.batch.as_str())?;
    let canceled = by_hand::cancel(&store, &batch, wiring::settings(&config), Clock::start())?;
    let in_flight = by_hand::in_flight(&store, batch.no)?;
    eprintln!("{}: {canceled} canceled before they were sent", batch.name);
    if in_flight > 0 {
        eprintln!(
            "{in_flight} are at the service already: it has no way to recall them, so they are charged and collected"
        );
    }
    Ok(Exit::Success)
}
