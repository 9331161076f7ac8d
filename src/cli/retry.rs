//! `callsheet retry`: new attempts for failed jobs.

use anstream::eprintln;

use crate::cli::arguments::{Global, NameArgument};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::printable;
use crate::cli::state::{self, Named};
use crate::clock::Clock;
use crate::engine::by_hand;

/// Jobs named one by one.
const SHOWN_MAX: usize = 20;

pub(super) fn run(command: &NameArgument, global: &Global) -> Result<Exit, Failure> {
    let store = state::open(global)?;
    let (batch, label) = match state::named(&store, &command.name)? {
        Named::Batch(batch) => (batch, None),
        Named::Job(batch, spec) => (batch, Some(spec.label)),
    };
    let outcome = by_hand::retry(&store, &batch, label.as_deref(), Clock::start())?;
    eprintln!(
        "{}: {} queued again, each under a new key; the next run sends them",
        batch.name, outcome.queued
    );
    list(&outcome.hopeless, "would be refused again unchanged: change their rows and run the manifest again");
    list(&outcome.paid, "are paid for and only were not downloaded: callsheet download fetches them");
    Ok(Exit::Success)
}

fn list(labels: &[String], why: &str) {
    if labels.is_empty() {
        return;
    }
    let shown: Vec<String> = labels.iter().take(SHOWN_MAX).map(|label| printable(label)).collect();
    let more = labels.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    eprintln!("{} {why}: {}{more}", labels.len(), shown.join(", "));
}
