//! `callsheet status`: every batch in numbers.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use bytesize::ByteSize;
use clap::Args;

use crate::cli::client::{self, StateClient};
use crate::cli::daemon_discovery::DaemonConnection;
use crate::cli::failure::Failure;
use crate::cli::follow::{Follower, report_interrupted};
use crate::cli::global_flags::Global;
use crate::cli::interrupt::Interrupts;
use crate::cli::invocation::Invocation;
use crate::cli::next_steps::{self, BatchEnd};
use crate::cli::progress::{LINE_INTERVAL, PaceMeter};
use crate::cli::progress_lines::Figures;
use crate::cli::terminal::say;
use crate::cli::{summary, terminal, written};
use crate::client::Client;
use crate::clock::Clock;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::parked_reason::Parked;
use crate::domain::time::Tick;
use crate::server::protocol::{
    BatchState, BatchStatus, ProcessKind, Request, StatusRequest, TransferTotals, Transfers,
};

/// Shows every batch in numbers.
#[derive(Debug, Args)]
pub(super) struct StatusCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
    /// List every finished batch, as far back as retention.list_finished_for; otherwise the 20 that finished last
    #[arg(long, conflicts_with = "batch")]
    pub(super) all: bool,
    /// Show the status as it changes, with bars, rate and last failures, until the batch is done
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
            () = terminal::until_unread(std::io::stdout()) => Ok(Exit::Success),
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
    let mut watching = Watching::begin();
    loop {
        let status = match client {
            // A daemon that is restarted is waited for; of a run that ends the state tells how it ended.
            StateClient::Daemon(daemon, _)
                if command.watch && daemon.health.process == ProcessKind::Daemon =>
            {
                Follower::new(daemon).ask(async |client: &Client| client.call(&request).await).await?
            }
            client => client.call(&request).await?,
        };
        match (command.watch, global.json) {
            (true, true) => watching.show_changed(serde_json::to_string(&status).unwrap_or_default())?,
            (true, false) => watching.show(&status.batches)?,
            (false, true) => print(&serde_json::to_string_pretty(&status).unwrap_or_default())?,
            (false, false) => print(&table(&status.batches))?,
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
                for parked in parked {
                    say!("{}: {}", parked.name(), summary::why_parked(parked, &status.batches));
                }
                summary::why_paused(&status.batches);
                summary::may_be_charged(&status.batches);
                summary::overdue(&status.batches);
                summary::in_doubt(&status.batches);
                summary::earlier_attempts_in_doubt(&status.batches);
                summary::short_of_credits(&status.batches, client.process().is_some());
                if let Some(waiting) =
                    status.batches.iter().map(|batch| batch.outputs_waiting).max().filter(|n| *n > 0)
                {
                    say!("{}: the outputs of {waiting} jobs wait", Parked::ResultHost.name());
                }
                status.transfers.iter().for_each(say_transfers);
                for batch in status.batches.iter().filter(|batch| batch.refused_rows > 0) {
                    let (name, refused) = (&batch.name, batch.refused_rows);
                    let were = if refused == 1 {
                        "row of its last manifest was"
                    } else {
                        "rows of its last manifest were"
                    };
                    say!("{name}: {refused} {were} rejected; callsheet plan MANIFEST shows why");
                }
            }
            return Ok(Exit::Success);
        }
        if command.batch.is_some() && status.batches.iter().all(has_ended) {
            if let StateClient::Daemon(daemon, _) = client
                && client.process().is_some()
                && !global.json
            {
                say_what_next(&status.batches, daemon, global).await;
            }
            return Ok(Exit::Success);
        }
        if client.process().is_none() {
            say!("the run has ended, so nothing changes any more");
            return Ok(Exit::Success);
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// What uploads take beside downloads.
fn say_transfers(transfers: &Transfers) {
    for (what, moved) in [("downloads", transfers.downloads), ("uploads", transfers.uploads)] {
        let TransferTotals { files, failed, bytes, busy_ms } = moved;
        let span = humantime::format_duration(Duration::from_millis(busy_ms / 100 * 100));
        let failed = if failed > 0 { format!(", {failed} requests failed") } else { String::new() };
        say!("{what}: {files} files, {} in {span}{failed}", ByteSize(bytes));
    }
}

/// Whether nothing of a batch moves by itself any more.
fn has_ended(batch: &BatchStatus) -> bool {
    matches!(batch.state, BatchState::Done | BatchState::Review)
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

/// What a command that watches has shown.
struct Watching {
    clock: Clock,
    meter: PaceMeter,
    /// The text that was shown last, and when.
    shown: String,
    at: Option<Tick>,
}

impl Watching {
    fn begin() -> Watching {
        let clock = Clock::start();
        let meter = PaceMeter::begin(clock.now().tick);
        Watching { clock, meter, shown: String::new(), at: None }
    }

    /// Prints what differs from what was printed last.
    fn show_changed(&mut self, text: String) -> Result<(), Failure> {
        if text != self.shown {
            while_read(put_line(&text))?;
            self.shown = text;
        }
        Ok(())
    }

    /// Shows the batches: on a terminal a table and bars in the place of those before, elsewhere the table once and a
    /// line now and then, and the table again when all are done.
    fn show(&mut self, batches: &[BatchStatus]) -> Result<(), Failure> {
        let now = self.clock.now().tick;
        let unfinished: Vec<_> = batches.iter().filter(|batch| !has_ended(batch)).cloned().collect();
        // Of those that are done, too: one that ends meanwhile is part of the pace.
        let pace = self.meter.measure(Figures::of(batches).ended(), now);
        let figures = Figures::of(&unfinished);
        if terminal::can_redraw(std::io::stdout()) {
            let columns = terminal::columns(std::io::stdout()).unwrap_or(1);
            let mut lines = summary::states(batches).lines(Some(columns));
            if !unfinished.is_empty() {
                lines.push(String::new());
                lines.extend(figures.lines(pace, None, columns, terminal::rows(std::io::stdout())));
            }
            return self.redraw(&lines);
        }
        let is_due = self.at.is_none_or(|at| now.since(at) >= LINE_INTERVAL);
        let text = match (self.at.is_none(), unfinished.is_empty()) {
            (true, _) | (_, true) => table(batches),
            (false, false) if is_due => figures.log_line(pace, None),
            (false, false) => return Ok(()),
        };
        self.at = Some(now);
        self.show_changed(text)
    }

    /// Draws over what was drawn before, without a moment in which nothing is there.
    fn redraw(&mut self, lines: &[String]) -> Result<(), Failure> {
        let text = lines.join("\x1b[K\n");
        if text != self.shown {
            let begin = if self.shown.is_empty() { "\x1b[H\x1b[2J" } else { "\x1b[H" };
            let put = terminal::put(std::io::stdout().lock(), &format!("{begin}{text}\x1b[K\x1b[J\n"));
            while_read(put)?;
            self.shown = text;
        }
        Ok(())
    }
}

fn table(batches: &[BatchStatus]) -> String {
    summary::states(batches).lines(terminal::columns(std::io::stdout())).join("\n")
}

fn print(text: &str) -> Result<(), Failure> {
    written(put_line(text))
}

fn put_line(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// What came of writing something that is written again and again: once nobody reads it, the command ends.
fn while_read(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::quiet()),
        outcome => written(outcome),
    }
}
