//! `callsheet doctor`: looks at everything that a run needs, and says of each what was found and what to do.
//!
//! Nothing that is looked at is changed: the state's database is tried out on a copy, catalogs that are read are not
//! kept, no hook is called, and no request charges.

mod clock;
mod configuration;
mod daemon;
mod directories;
mod hooks;
mod network;
mod schedules;

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use crate::cli::doctor::daemon::Daemon;
use crate::cli::doctor::hooks::SecretUse;
use crate::cli::examples;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::invocation::with_typed_commands;
use crate::cli::{daemon_discovery, printable, service_target, written};
use crate::clock::Clock;
use crate::domain::exit_code::Exit;

/// What `doctor` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR)]
pub(in crate::cli) struct DoctorCommand {
    /// Check only what a reload of the running daemon takes over: the configuration file and the secrets that it names
    #[arg(long)]
    pub(in crate::cli) config_only: bool,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Good,
    /// It works, and could be better.
    Advice,
    Wrong,
}

/// What was found about one thing.
#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

impl Check {
    fn good(check: &'static str, found: impl Into<String>) -> Check {
        Check { check, level: Level::Good, found: found.into(), todo: None, exit: Exit::Success }
    }

    fn advice(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check { level: Level::Advice, todo: Some(todo.into()), ..Check::good(check, found) }
    }

    fn wrong(check: &'static str, exit: Exit, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check { level: Level::Wrong, exit, ..Check::advice(check, found, todo) }
    }

    /// What this user may not do is in nobody's way where a daemon does it, with rights of its own.
    fn unless_served(self, is_served: bool) -> Check {
        match self.level {
            Level::Wrong if is_served => Check {
                level: Level::Advice,
                exit: Exit::Success,
                todo: Some("not needed: the daemon runs as another user".to_owned()),
                ..self
            },
            _ => self,
        }
    }

    /// One for each line of what another command would have ended with.
    fn each_failed(check: &'static str, failure: Failure) -> Vec<Check> {
        let (exit, message, hint) = failure.into_parts();
        let mut checks: Vec<Check> =
            message.lines().map(|line| Check::wrong(check, exit, line, "")).collect();
        checks.iter_mut().for_each(|check| check.todo = None);
        if let Some(last) = checks.last_mut() {
            last.todo = hint;
        }
        checks
    }

    /// What another command would have ended with.
    fn failed(check: &'static str, failure: Failure) -> Check {
        let (exit, message, hint) = failure.into_parts();
        let wrong = Check::wrong(check, exit, message, "");
        Check { todo: hint, ..wrong }
    }
}

pub(super) async fn run(command: &DoctorCommand, global: &Global) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let config = match service_target::config(global) {
        Ok(config) => config,
        Err(failure) => {
            let failure = failure.hint("fix this first; later checks were skipped");
            return report(&Check::each_failed("config", failure), global);
        }
    };
    let mut checks = vec![configuration::file(global)];
    if command.config_only {
        checks.extend(hooks::all(&config, global, SecretUse::Reload));
        checks.extend(configuration::token(&config, false));
        checks.extend(configuration::reload(&config, global).await);
        return report(&checks, global);
    }
    let is_emulated = global.emulator;
    let state = service_target::state_dir(&config, is_emulated);
    let daemon = Daemon::at(daemon_discovery::socket(&config, &state)).await;
    let is_served = daemon.answers();
    let (key, about_key) = configuration::key(&config, global, is_emulated, is_served);
    let chosen = match is_emulated {
        true => service_target::emulator_read_only(&config).await.map(Some),
        false => service_target::target_with_key(&config, key),
    };
    checks.push(about_key);
    let mut chosen = match chosen {
        Ok(chosen) => chosen,
        Err(failure) => {
            checks.push(Check::failed("service", failure));
            None
        }
    };
    let emulator = chosen.as_mut().and_then(|chosen| chosen.emulator.take());
    match &chosen {
        Some(chosen) => checks.extend(network::all(chosen, &config, &clock).await),
        None if checks.iter().any(|check| check.check == "service") => {}
        None => checks.push(Check::failed("service", service_target::not_configured())),
    }
    checks.extend(
        network::object_stores(&config, (&state, &service_target::output_dir(&config, is_emulated))).await,
    );
    if let Some(emulator) = emulator {
        emulator.stop().await;
    }
    let has_other_rights = is_served && daemon.is_of_another_user();
    checks.extend(directories::all(&config, &state, chosen.as_ref(), has_other_rights));
    checks.extend(schedules::all(&config, &state, clock.now().wall, is_served));
    let used = if is_served { SecretUse::Running } else { SecretUse::Start };
    checks.extend(hooks::all(&config, global, used));
    checks.extend(configuration::token(&config, is_served));
    checks.extend(daemon.checks(chosen.as_ref()));
    report(&checks, global)
}

/// Says it all, and what it comes to.
fn report(checks: &[Check], global: &Global) -> Result<Exit, Failure> {
    let exit = worst(checks);
    let mut out = anstream::stdout().lock();
    written(match global.json {
        true => writeln!(out, "{}", serde_json::json!({ "checks": checks, "exit_code": exit.code() })),
        false => write_checks(checks, &mut out),
    })?;
    Ok(exit)
}

fn write_checks(checks: &[Check], out: &mut impl Write) -> io::Result<()> {
    for check in checks {
        let word = match check.level {
            Level::Good => "ok",
            Level::Advice => "advice",
            Level::Wrong => "WRONG",
        };
        writeln!(out, "{word:<7} {:<9} {}", check.check, printable(&check.found))?;
        if let Some(todo) = check.todo.as_ref().filter(|todo| !todo.is_empty()) {
            writeln!(out, "{:17} -> {}", "", with_typed_commands(&printable(todo)))?;
        }
    }
    match checks.iter().filter(|check| check.level == Level::Wrong).count() {
        0 => writeln!(out, "\nno problems found"),
        1 => writeln!(out, "\n1 problem found"),
        n => writeln!(out, "\n{n} problems found"),
    }
}

/// The first thing to fix decides the exit code.
fn worst(checks: &[Check]) -> Exit {
    let order = [Exit::Usage, Exit::Disk, Exit::Unreachable, Exit::Unauthorised, Exit::OutOfFunds];
    let is_found =
        |exit: &Exit| checks.iter().any(|check| check.level == Level::Wrong && check.exit == *exit);
    order.into_iter().find(is_found).unwrap_or(Exit::Success)
}
