//! `callsheet schedule`: what fires by itself, when next, and one run out of turn.

use std::io::{self, Write};

use comfy_table::Table;
use serde::Serialize;

use crate::cli::arguments::{Global, ScheduleCommand, ScheduleNameArgument, ScheduleNextCommand};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::rendezvous::{self, Met};
use crate::cli::{printable, service, summary, table, written};
use crate::clock::Clock;
use crate::config::{Config, ScheduleConfig};
use crate::control::protocol::Submitted;
use crate::domain::ids::{BadBatchName, BatchName};
use crate::domain::schedule::{Schedule, ScheduleError, name};
use crate::domain::time::Timestamp;
use crate::store::schedules::{self, LastRun, Records};

/// A schedule in the list.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    cron: &'a str,
    timezone: &'a str,
    #[serde(flatten)]
    next: Option<Instant>,
    last_run: Option<&'a LastRun>,
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
    let config = service::config(global)?;
    match command {
        ScheduleCommand::List => list(&config, global),
        ScheduleCommand::Next(command) => next(&config, command, global),
        ScheduleCommand::Run(command) => run_now(&config, command, global).await,
    }
}

fn list(config: &Config, global: &Global) -> Result<Exit, Failure> {
    let now = Clock::start().now().wall;
    let records = records(config);
    let schedules = config.schedule.iter().map(ScheduleConfig::schedule).collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<Listed<'_>> = config
        .schedule
        .iter()
        .zip(&schedules)
        .map(|(config, schedule)| listed(&config.name, schedule, &records, now))
        .collect();
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if global.json {
        written(json(&mut out, &serde_json::json!({ "schedules": rows })))?;
    } else {
        written(list_table(&mut out, &rows))?;
    }
    Ok(Exit::Success)
}

/// What is kept in the state. That it cannot be read is worth a word, and no reason not to list.
fn records(config: &Config) -> Records {
    schedules::read(&service::state_dir(config, false)).unwrap_or_else(|error| {
        anstream::eprintln!("warning: last runs are not shown: {error}");
        Records::new()
    })
}

fn listed<'a>(name: &'a str, schedule: &'a Schedule, records: &'a Records, now: Timestamp) -> Listed<'a> {
    let record = records.get(name);
    // What was handled does not fire again when the clock is set back.
    let known = record.map(|record| &record.handled).filter(|handled| handled.by == schedule.source());
    let after = known.map_or(now, |handled| handled.up_to.max(now));
    let next = schedule.next_after(after);
    Listed {
        name,
        cron: schedule.cron(),
        timezone: schedule.timezone(),
        next: next.map(|at| Instant { next: utc(at), next_local: schedule.local(at) }),
        last_run: record.and_then(|record| record.last_run.as_ref()),
    }
}

/// `2026-11-21T02:00:00Z`: fires lie on whole seconds.
fn utc(at: Timestamp) -> String {
    at.to_string().replace(".000Z", "Z")
}

fn list_table(out: &mut impl Write, rows: &[Listed<'_>]) -> io::Result<()> {
    if rows.is_empty() {
        writeln!(out, "no schedules; [[schedule]] in callsheet.toml makes one")?;
        return out.flush();
    }
    let mut table = table::with_headings(["name", "cron", "time zone", "next", "in UTC", "last run"]);
    for row in rows {
        let (local, next) =
            row.next.as_ref().map_or(("never", "-"), |next| (next.next_local.as_str(), next.next.as_str()));
        let last = row.last_run.map_or("-", |run| run.batch.as_str());
        table.add_row([row.name, row.cron, row.timezone, local, next, last].map(printable));
    }
    lines(out, &table)
}

fn next(config: &Config, command: &ScheduleNextCommand, global: &Global) -> Result<Exit, Failure> {
    let found = find(config, &command.name)?;
    let schedule = found.schedule()?;
    let now = Clock::start().now().wall;
    let fire = |at| -> Result<Fire, BadBatchName> {
        Ok(Fire {
            at: utc(at),
            local: schedule.local(at),
            offset: schedule.offset(at),
            batch: name::of_run(&found.name, at)?,
            n: schedule.occasion(at).n,
        })
    };
    let fires =
        schedule.fires_after(now).take(usize::from(command.number)).map(fire).collect::<Result<Vec<_>, _>>();
    let fires = fires.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if global.json {
        let (name, cron, timezone) = (&found.name, schedule.cron(), schedule.timezone());
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

/// Without the blanks that fill up the lines of a table.
fn lines(out: &mut impl Write, table: &Table) -> io::Result<()> {
    table.to_string().lines().try_for_each(|line| writeln!(out, "{}", line.trim()))?;
    out.flush()
}

fn json(out: &mut impl Write, value: &serde_json::Value) -> io::Result<()> {
    writeln!(out, "{value:#}")?;
    out.flush()
}

fn find<'a>(config: &'a Config, name: &str) -> Result<&'a ScheduleConfig, Failure> {
    config.schedule.iter().find(|schedule| schedule.name == name).ok_or_else(|| {
        let known: Vec<&str> = config.schedule.iter().map(|schedule| schedule.name.as_str()).collect();
        let known = match known.as_slice() {
            [] => "there is none; [[schedule]] in callsheet.toml makes one".to_owned(),
            known => format!("there are {}", known.join(", ")),
        };
        Failure::new(Exit::Usage, format!("no schedule is called {name}; {known}"))
    })
}

/// By the running daemon: a run is only worth something to an engine that works on it.
async fn run_now(config: &Config, command: &ScheduleNameArgument, global: &Global) -> Result<Exit, Failure> {
    let Met { client, .. } = rendezvous::needed(global, config).await?;
    // A name is part of an address here.
    if name::check(&command.name).is_err() {
        find(config, &command.name)?;
    }
    let route = format!("/v1/schedules/{}/run", command.name);
    let receipt: Submitted = client.post(&route, &serde_json::json!({})).await?;
    summary::receipt(&receipt);
    if global.json {
        written(json(&mut io::stdout().lock(), &serde_json::json!(receipt)))?;
    }
    let nothing = receipt.new == 0 && receipt.have == 0;
    Ok(if nothing || receipt.has_problems() { Exit::Usage } else { Exit::Success })
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Failure {
        Failure::new(Exit::Usage, format!("schedule.{}: {}", error.key, error.message))
    }
}
