//! `callsheet retry`: new attempts for jobs that failed, were canceled or expired.

use anstream::eprintln;

use crate::cli::access;
use crate::cli::arguments::{Global, NameArgument};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::printable;

/// Jobs named one by one.
const SHOWN_MAX: usize = 20;

pub(super) async fn run(command: &NameArgument, global: &Global) -> Result<Exit, Failure> {
    let access = access::open(global).await?;
    let who = access.who_goes_on();
    for outcome in access.retry(&command.name).await?.batches {
        let granted = outcome.granted;
        eprintln!("{}: {} queued again, each under a new key; {who} sends them", outcome.batch, granted.jobs);
        list(
            &granted.hopeless,
            "would be refused again unchanged: change their rows and run the manifest again",
        );
        list(&granted.paid, "are paid for and only were not downloaded: callsheet download fetches them");
    }
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
