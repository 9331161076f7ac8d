//! `callsheet credits`: the balance of the account.

use std::io::Write;

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::service_target::{self, CatalogSource};
use crate::cli::written;
use crate::domain::credits::Credits;
use crate::domain::exit_code;
use crate::domain::exit_code::Exit;

/// What `credits` takes.
#[derive(Debug, Args)]
#[command(after_help = exit_code::HELP)]
pub(super) struct CreditsCommand {}

pub(super) async fn run(global: &Global) -> Result<Exit, Failure> {
    let config = service_target::config(global)?;
    let asked = service_target::catalog_source(&config, global).await?;
    let balance = balance(&asked).await;
    asked.end().await;
    let balance = balance?;
    let shown = match global.json {
        true => serde_json::json!({"balance_credits": balance}).to_string(),
        false => balance.to_string(),
    };
    written(writeln!(anstream::stdout(), "{shown}"))?;
    Ok(Exit::Success)
}

async fn balance(asked: &CatalogSource) -> Result<Credits, Failure> {
    let Some((service, _)) = asked.service() else { return Err(service_target::not_configured()) };
    if !asked.has_key {
        return Err(service_target::no_key());
    }
    Ok(service.credits().await?)
}
