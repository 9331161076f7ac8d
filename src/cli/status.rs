//! `callsheet status`: every batch in numbers.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;

use crate::cli::client::{self, StateClient};
use crate::cli::daemon_discovery::DaemonConnection;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::follow::{Follower, Interrupts, report_interrupted};
use crate::cli::global_flags::Global;
use crate::cli::next_steps::{self, BatchEnd, Invocation};
use crate::cli::terminal::say;
use crate::cli::{summary, terminal, written};
use crate::control::client::Client;
use crate::control::protocol::{BatchState, BatchStatus, ProcessKind, Request, StatusRequest};
use crate::domain::ids::BatchName;
use crate::domain::parked_reason::Parked;

/// Shows every batch in numbers.
#[derive(Debug, Args)]
pub(super) struct StatusCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
    /// List every finished batch, as far back as retention.list_finished_for; otherwise the 20 that finished last
    #[arg(long, conflicts_with = "batch")]
    pub(super) all: bool,
    /// Show the status again whenever it changes, until the batch is done
    #[arg(long)]
    pub(super) watch: bool,
}

/// Between two looks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(command: &StatusCommand, global: &Global) -> Result<Exit, Failure> {
    client::with(global, StatusRequest::METHOD, async |client| {
        if !command.watch {
            return show_until_done(command, global, client).await;
        }
        let Some(process) = client.process() else {
            return Err(Failure::new(Exit::Usage, "no daemon is running, so nothing changes")
                .hint("omit --watch, or start callsheet daemon"));
        };
        let mut interrupts = Interrupts::listen();
        tokio::select! {
            shown = show_until_done(command, global, client) => shown,
            () = interrupts.recv() => {
                Ok(report_interrupted(process, command.batch.as_ref().map_or("BATCH", BatchName::as_str)))
            }
        }
    })
    .await
}

/// Shows it once, or again and again with `--watch`.
async fn show_until_done(
    command: &StatusCommand,
    global: &Global,
    client: &StateClient,
) -> Result<Exit, Failure> {
    let request = StatusRequest { batch: command.batch.clone(), all: command.all };
    let mut shown = String::new();
    loop {
        let status = match client {
            StateClient::Daemon(daemon) if command.watch => {
                Follower::new(daemon).ask(async |client: &Client| client.call(&request).await).await?
            }
            client => client.call(&request).await?,
        };
        let text = if global.json {
            let text = if command.watch {
                serde_json::to_string(&status)
            } else {
                serde_json::to_string_pretty(&status)
            };
            text.unwrap_or_default()
        } else {
            summary::states(&status.batches).lines(terminal::columns(std::io::stdout())).join("\n")
        };
        if text != shown {
            show(&text, command.watch && !global.json)?;
            shown = text;
        }
        let parked: std::collections::BTreeSet<Parked> =
            status.batches.iter().filter_map(|batch| batch.parked_by).collect();
        if !command.watch {
            if !global.json && status.not_listed > 0 {
                let more = if command.all {
                    ""
                } else {
                    "; to list those of the last weeks: callsheet status --all"
                };
                say!("not listed: {} finished; give a name to see one{more}", status.not_listed);
            }
            if !global.json {
                parked.iter().for_each(|parked| say!("{}: {}", parked.name(), parked.explain()));
                summary::short_of_credits(&status.batches);
                for batch in status.batches.iter().filter(|batch| batch.refused_rows > 0) {
                    let (name, refused) = (&batch.name, batch.refused_rows);
                    say!(
                        "{name}: {refused} rows of its last manifest were rejected; callsheet plan shows why"
                    );
                }
            }
            return Ok(Exit::Success);
        }
        if command.batch.is_some() && status.batches.iter().all(|batch| batch.state == BatchState::Done) {
            if let StateClient::Daemon(daemon) = client
                && !global.json
            {
                say_what_next(&status.batches, daemon, global).await;
            }
            return Ok(Exit::Success);
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Says of batches that are done what can be done.
async fn say_what_next(batches: &[BatchStatus], daemon: &DaemonConnection, global: &Global) {
    let verb = match daemon.health.process {
        ProcessKind::Daemon => "submit",
        ProcessKind::Run => "run",
    };
    let mut ends = Vec::with_capacity(batches.len());
    for status in batches {
        ends.push(BatchEnd::ask(&daemon.client, status, &[], &daemon.health.output).await);
    }
    next_steps::say(&ends, &Invocation::of(verb, global));
}

/// Prints the picture; on a terminal in the place of the one before.
fn show(text: &str, watched: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let clear = if watched && std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    written(writeln!(out, "{clear}{text}").and_then(|()| out.flush()))
}
