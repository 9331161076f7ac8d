//! `callsheet schedule`: what fires by itself, when next, and one run out of turn.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::Subcommand;
use serde::Serialize;

use crate::cli::daemon_discovery::{self, DaemonConnection};
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::service_target::PresentState;
use crate::cli::table::{self, Table};
use crate::cli::terminal::say;
use crate::cli::{end_of_batches, printable, service_target, submit, summary, written};
use crate::client::ClientError;
use crate::clock::Clock;
use crate::config::{Config, ScheduleConfig};
use crate::domain::exit_code::Exit;
use crate::domain::ids::{BadBatchName, BatchName};
use crate::domain::schedule::{Schedule, ScheduleError, name};
use crate::domain::time::Timestamp;
use crate::server::protocol::{ActiveSchedule, RunScheduleRequest, SchedulesRequest};
use crate::store::schedule_progress::{self, LastRun, LeftOutRun, ScheduleRecords};

/// What fires by itself: `[[schedule]]` in the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    /// List schedules with their next and last runs
    List,
    /// Show the next runs of a schedule, in its time zone and in UTC
    Next(ScheduleNextCommand),
    /// Run a schedule now
    Run(ScheduleNameArgument),
}

/// Works without a running daemon.
#[derive(Debug, Args)]
pub(super) struct ScheduleNextCommand {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// Number of runs
    #[arg(short, long, default_value_t = 10, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) number: u16,
}

/// The running daemon starts a batch of its own, named after the current time; later runs stay scheduled.
#[derive(Debug, Args)]
pub(super) struct ScheduleNameArgument {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
}

/// A schedule in the list.
#[derive(Serialize)]
struct CatalogEntry<'a> {
    name: &'a str,
    cron: &'a str,
    timezone: &'a str,
    #[serde(flatten)]
    next: Option<Instant>,
    last_run: Option<&'a LastRun>,
    left_out: Option<&'a LeftOutRun>,
}

/// When it fires, twice said.
#[derive(Serialize)]
struct Instant {
    /// In UTC.
    next: String,
    /// As the schedule's clock shows it.
    next_local: String,
}

/// One of the fires to come.
#[derive(Serialize)]
struct Fire {
    at: String,
    local: String,
    offset: String,
    batch: BatchName,
    n: u32,
}

pub(super) async fn run(command: &ScheduleCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        ScheduleCommand::List => list(&look(global).await?, global),
        ScheduleCommand::Next(command) => next(&look(global).await?, command, global),
        ScheduleCommand::Run(command) => run_now(&service_target::config(global)?, command, global).await,
    }
}

/// The schedules that are carried out, or would be.
struct InForce {
    /// With their names.
    schedules: Vec<(String, Schedule)>,
    /// The state.
    state: PathBuf,
}

/// The running daemon's schedules; where none runs, those of the configuration.
async fn look(global: &Global) -> Result<InForce, Failure> {
    let read = service_target::config(global);
    // A daemon runs on with what it has when a configuration is refused; it then is found where it usually is.
    let config = match &read {
        Ok(config) => config.clone(),
        Err(_) => at_its_usual_place(global),
    };
    let PresentState { dir: state, is_emulated, .. } = PresentState::find(global, &config);
    if let Some(DaemonConnection { client, health, .. }) =
        daemon_discovery::find_daemon(global, &config, is_emulated).await?
    {
        if let Err(failure) = read {
            let failure = printable(&failure.to_string());
            say!("warning: {failure}; showing the schedules of the daemon (process {})", health.pid);
        }
        let told = client.call(&SchedulesRequest {}).await?;
        let parse = |told: ActiveSchedule| -> Result<_, ScheduleError> {
            Ok((told.name, Schedule::parse(&told.cron, Some(&told.timezone))?))
        };
        let schedules = told.schedules.into_iter().map(parse).collect::<Result<_, _>>()?;
        // With --socket it may be any daemon's; one of an earlier version does not say where it works.
        let state = if health.state.as_os_str().is_empty() { state } else { health.state };
        return Ok(InForce { schedules, state });
    }
    let named = |config: &ScheduleConfig| Ok::<_, ScheduleError>((config.name.clone(), config.schedule()?));
    let schedules = read?.schedule.iter().map(named).collect::<Result<_, _>>()?;
    Ok(InForce { schedules, state })
}

/// What flags and environment say of the state and the socket, without a file.
fn at_its_usual_place(global: &Global) -> Config {
    let mut config = Config::default();
    config.paths.state.clone_from(&global.state);
    config.paths.socket.clone_from(&global.socket);
    config
}

fn list(in_force: &InForce, global: &Global) -> Result<Exit, Failure> {
    let now = Clock::start().now().wall;
    let records = records(&in_force.state);
    let rows: Vec<CatalogEntry<'_>> =
        in_force.schedules.iter().map(|(name, schedule)| listed(name, schedule, &records, now)).collect();
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if global.json {
        written(json(&mut out, &serde_json::json!({ "schedules": rows })))?;
    } else {
        written(list_table(&mut out, &rows))?;
    }
    Ok(Exit::Success)
}

/// What is kept in the state. That it cannot be read is worth a word, and no reason not to list.
fn records(state: &Path) -> ScheduleRecords {
    schedule_progress::read(state).unwrap_or_else(|error| {
        say!("warning: last runs are not shown: {}", printable(&error.to_string()));
        ScheduleRecords::new()
    })
}

fn listed<'a>(
    name: &'a str,
    schedule: &'a Schedule,
    records: &'a ScheduleRecords,
    now: Timestamp,
) -> CatalogEntry<'a> {
    let record = records.get(name);
    let next = schedule.next_after(schedule_progress::fires_after(records, name, schedule, now));
    CatalogEntry {
        name,
        cron: schedule.cron(),
        timezone: schedule.timezone(),
        next: next.map(|at| Instant { next: utc(at), next_local: schedule.local(at) }),
        last_run: record.and_then(|record| record.last_run.as_ref()),
        left_out: record.and_then(|record| record.left_out.as_ref()),
    }
}

/// `2026-11-21T02:00:00Z`: fires lie on whole seconds.
fn utc(at: Timestamp) -> String {
    at.to_string().replace(".000Z", "Z")
}

fn list_table(out: &mut impl Write, rows: &[CatalogEntry<'_>]) -> io::Result<()> {
    if rows.is_empty() {
        writeln!(out, "no schedules; add one as [[schedule]] in callsheet.toml")?;
        return out.flush();
    }
    let mut table = table::with_headings(["name", "cron", "time zone", "next", "in UTC", "last run"]);
    for row in rows {
        let (local, next) =
            row.next.as_ref().map_or(("never", "-"), |next| (next.next_local.as_str(), next.next.as_str()));
        let last = row.last_run.map_or("-", |run| run.batch.as_str());
        table.add_row([row.name, row.cron, row.timezone, local, next, last].map(printable));
    }
    table::print(out, &table)?;
    for row in rows {
        let Some(LeftOutRun { at, in_the_way }) = row.left_out else { continue };
        let (name, at) = (printable(row.name), utc(*at));
        writeln!(
            out,
            "{name}: the run of {at} was left out, because batch {in_the_way} had not ended; to see what that waits for: \
             callsheet status {in_the_way}"
        )?;
    }
    out.flush()
}

fn next(in_force: &InForce, command: &ScheduleNextCommand, global: &Global) -> Result<Exit, Failure> {
    let found = in_force.schedules.iter().find(|(name, _)| *name == command.name);
    let (name, schedule) = found
        .ok_or_else(|| not_found(&command.name, in_force.schedules.iter().map(|(name, _)| name.as_str())))?;
    let now = Clock::start().now().wall;
    let after = schedule_progress::fires_after(&records(&in_force.state), name, schedule, now);
    let fire = |at| -> Result<Fire, BadBatchName> {
        Ok(Fire {
            at: utc(at),
            local: schedule.local(at),
            offset: schedule.offset(at),
            batch: name::of_run(name, at)?,
            n: schedule.occasion(at).n,
        })
    };
    let fires = schedule
        .fires_after(after)
        .take(usize::from(command.number))
        .map(fire)
        .collect::<Result<Vec<_>, _>>();
    let fires = fires.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if global.json {
        let (cron, timezone) = (schedule.cron(), schedule.timezone());
        let object = serde_json::json!({"name": name, "cron": cron, "timezone": timezone, "fires": fires});
        written(json(&mut out, &object))?;
    } else {
        written(next_table(&mut out, &fires))?;
    }
    Ok(Exit::Success)
}

fn next_table(out: &mut impl Write, fires: &[Fire]) -> io::Result<()> {
    if fires.is_empty() {
        writeln!(out, "never again")?;
        return out.flush();
    }
    let mut table = table::with_headings(["fires", "zone", "in UTC", "batch", "n"]);
    for fire in fires {
        table.add_row([&fire.local, &fire.offset, &fire.at, fire.batch.as_str(), &fire.n.to_string()]);
    }
    lines(out, &table)
}

fn lines(out: &mut impl Write, table: &Table) -> io::Result<()> {
    table::print(out, table)?;
    out.flush()
}

fn json(out: &mut impl Write, value: &serde_json::Value) -> io::Result<()> {
    writeln!(out, "{value:#}")?;
    out.flush()
}

fn not_found<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let known = match known.collect::<Vec<_>>().as_slice() {
        [] => "there is none; add one as [[schedule]] in callsheet.toml".to_owned(),
        known => format!("there are {}", known.join(", ")),
    };
    Failure::new(Exit::Usage, format!("no schedule is called {name}; {known}"))
}

/// By the running daemon: a run is only worth something to an engine that works on it.
async fn run_now(config: &Config, command: &ScheduleNameArgument, global: &Global) -> Result<Exit, Failure> {
    let DaemonConnection { client, .. } = daemon_discovery::require_daemon(global, config).await?;
    // A name is part of an address here.
    if name::check(&command.name).is_err() {
        return Err(not_found(&command.name, config.schedule.iter().map(|schedule| schedule.name.as_str())));
    }
    let started = client.call(&RunScheduleRequest { name: command.name.clone() }).await;
    let receipt = started.map_err(|error| match error {
        // Another run would be bought, too.
        ClientError::ConnectionLost { .. } => Failure::from(error).hint(
            "a run may have started; before you repeat the command, look for its batch: callsheet schedule list",
        ),
        error => Failure::from(error),
    })?;
    // With --json, problems are an error, which is said at the end.
    if !global.json || !receipt.has_problems() {
        summary::receipt(&receipt);
    }
    let receipts = std::slice::from_ref(&receipt);
    let exit = match receipt.is_taken_in() {
        true => end_of_batches::done_exit(receipts, &[]),
        false => end_of_batches::nothing_exit(receipts),
    };
    if receipt.not_validated > 0 && receipt.is_taken_in() {
        say!(
            "the daemon tries the rows that wait again, for this run; do not repeat the command for them, since that starts \
             another run"
        );
    }
    if global.json {
        let printed = written(json(&mut io::stdout().lock(), &serde_json::json!(receipt)));
        submit::report_problems([&receipt], exit);
        printed?;
    }
    Ok(exit)
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Failure {
        Failure::new(Exit::Usage, format!("schedule.{}: {}", error.key, error.message))
    }
}
