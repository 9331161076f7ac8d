//! `callsheet budget`: the most a batch may spend, whatever became of its manifest.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::terminal::say;
use crate::cli::{client, written};
use crate::domain::budget::BudgetSetting;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::server::protocol::BudgetRequest;

/// What `budget` takes.
#[derive(Debug, Args)]
pub(super) struct BudgetCommand {
    /// Name of the batch
    #[arg(value_name = "BATCH")]
    pub(super) batch: BatchName,
    /// Budget in credits, or none for the default
    #[arg(value_name = "CREDITS|none", allow_negative_numbers = true)]
    pub(super) budget: BudgetSetting,
}

pub(super) async fn run(command: &BudgetCommand, global: &Global) -> Result<Exit, Failure> {
    let request = BudgetRequest { batch: command.batch.clone(), budget: command.budget };
    let set = client::call(global, &request).await?;
    if global.json {
        written(writeln!(anstream::stdout(), "{:#}", json!(set)))?;
    }
    let change = match set.before_credits == set.budget_credits {
        true => format!("{}", set.budget_credits),
        false => format!("{} -> {}", set.before_credits, set.budget_credits),
    };
    let default = if set.is_default { " (the planned cost)" } else { "" };
    let left = set.budget_credits.saturating_sub(set.committed_credits);
    let committed = set.committed_credits;
    say!("{}: budget {change} credits{default}; {committed} spent or held, {left} left", set.batch);
    Ok(Exit::Success)
}
