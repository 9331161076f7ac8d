//! `callsheet credits`: the balance of the account.

use anstream::println;

use crate::cli::arguments::{CreditsCommand, Global};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::service::{self, Asked};
use crate::domain::credits::Credits;

pub(super) async fn run(command: &CreditsCommand, global: &Global) -> Result<Exit, Failure> {
    let config = service::config(global)?;
    let asked = service::asked(&config, &command.source).await?;
    let balance = balance(&asked).await;
    asked.end().await;
    let balance = balance?;
    if global.json {
        println!("{}", serde_json::json!({"balance_credits": balance}));
    } else {
        println!("{balance}");
    }
    Ok(Exit::Success)
}

async fn balance(asked: &Asked) -> Result<Credits, Failure> {
    let Some((service, _)) = asked.service() else { return Err(service::not_configured()) };
    if !asked.has_key {
        return Err(service::no_key());
    }
    Ok(service.credits().await?)
}
