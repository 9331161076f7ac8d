//! Schedules: when each fires next, and whether there is something to read then.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use crate::cli::doctor::Check;
use crate::config::{Config, ScheduleConfig};
use crate::domain::diagnostic::Diagnostic;
use crate::domain::exit_code::Exit;
use crate::domain::manifest::row::ReadRow;
use crate::domain::manifest::{self, Limits};
use crate::domain::schedule::catch_up::ON_TIME;
use crate::domain::shell_word::path_word;
use crate::domain::time::Timestamp;
use crate::ingest::table_files::{self, Roots};
use crate::output::file_names::Layout;
use crate::store::schedule_progress::{self, ScheduleRecords};

/// Rows that are read of a manifest: it may be of any length.
const ROWS_MAX: usize = 10_000;

pub(super) fn all(config: &Config, state: &Path, now: Timestamp, is_served: bool) -> Vec<Check> {
    // What cannot be read fires nothing that was handled.
    let records = schedule_progress::read(state).unwrap_or_default();
    let roots = &config.inputs.roots;
    let checks = config.schedule.iter().flat_map(|schedule| {
        let behind = clock_behind(schedule, &records, state, now);
        std::iter::once(one(schedule, roots, &records, now, is_served)).chain(behind)
    });
    checks.collect()
}

/// Whether the clock was set back behind what is handled.
fn clock_behind(
    config: &ScheduleConfig,
    records: &ScheduleRecords,
    state: &Path,
    now: Timestamp,
) -> Option<Check> {
    let name = &config.name;
    let up_to = schedule_progress::handled_up_to(records, name, &config.schedule().ok()?)?;
    if up_to.since(now) <= ON_TIME {
        return None;
    }
    let found = format!(
        "{name} is handled up to {up_to}, but it is {now}: no run starts before that time is reached"
    );
    let todo = format!(
        "check this machine's clock (timedatectl); if it is right now, stop the daemon and remove {}: schedules then begin \
         anew, and nothing is bought twice",
        state.join("schedules.json").display()
    );
    Some(Check::advice("schedule", found, todo))
}

fn one(
    config: &ScheduleConfig,
    input_roots: &[PathBuf],
    records: &ScheduleRecords,
    now: Timestamp,
    is_served: bool,
) -> Check {
    let next = config.schedule().ok().and_then(|schedule| {
        schedule.next_after(schedule_progress::fires_after(records, &config.name, &schedule, now))
    });
    let next = next.map_or_else(|| "never again".to_owned(), |at| at.to_string().replace(".000Z", "Z"));
    let (name, path) = (&config.name, &config.manifest);
    let said = |what: &str| format!("{name} fires next at {next}; {} {what}", path.display());
    let plan = format!("callsheet plan {} shows what is wrong with it", path_word(path));
    match read(path, input_roots) {
        Ok(rows) if rows.bad.is_empty() => Check::good("schedule", said("can be read")),
        Ok(rows) if rows.bad.len() < rows.read => {
            let some =
                format!("has {} rows of {} that are refused: {}", rows.bad.len(), rows.read, rows.bad[0]);
            Check::advice("schedule", said(&some), plan)
        }
        Ok(rows) => {
            let none = format!("has no row that is accepted: {}", rows.bad[0]);
            Check::wrong("schedule", Exit::Usage, said(&none), plan)
        }
        Err(Unread::Refused(problem)) => {
            Check::wrong("schedule", Exit::Usage, said(&format!("is refused: {problem}")), plan)
        }
        Err(Unread::Io(error)) => {
            let found = said(&format!("cannot be read: {error}"));
            let advice = "set schedule.manifest to a readable file";
            let check = Check::wrong("schedule", Exit::Usage, found, advice);
            check.unless_served(is_served && error.kind() == ErrorKind::PermissionDenied)
        }
    }
}

/// The beginning of a manifest.
#[derive(Default)]
struct Beginning {
    read: usize,
    /// What is wrong with each row that is.
    bad: Vec<String>,
}

enum Unread {
    Io(io::Error),
    Refused(String),
}

/// Reads as a plan does. What only the service's catalogs tell is not looked at.
fn read(path: &Path, input_roots: &[PathBuf]) -> Result<Beginning, Unread> {
    // A pipe would be waited for.
    if !fs::metadata(path).map_err(Unread::Io)?.is_file() {
        return Err(Unread::Io(io::Error::other("it is not a file")));
    }
    let file = File::open(path).map_err(Unread::Io)?;
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let first = |problems: &[Diagnostic]| problems.first().map(Diagnostic::to_string).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut read_table = |table: &str| table_files::read(folder, Roots::Below(input_roots), table);
    let manifest = manifest::open(&file_name, BufReader::new(file), &Limits::default(), &mut read_table)
        .map_err(|refused| Unread::Refused(first(&refused.problems)))?;
    if let Some(layout) = &manifest.header().policy.layout {
        Layout::parse(layout).map_err(|error| Unread::Refused(format!("policy.layout: {error}")))?;
    }
    let mut rows = Beginning::default();
    for row in manifest.take(ROWS_MAX) {
        rows.read += 1;
        match row {
            ReadRow::Good(_) => {}
            ReadRow::Bad(bad) => rows.bad.push(first(&bad.problems)),
            ReadRow::Unreadable(problem) => return Err(Unread::Refused(problem.to_string())),
        }
    }
    Ok(rows)
}
