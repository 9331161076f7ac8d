//! Small files at once: `cargo bench --bench sound_effects [-- JOBS [PAIRS]]`.
//!
//! Sound effects of 10 KB are submitted and downloaded, 64 in flight, every one durable before it counts. The limit is a
//! bare client without state, prices or checks: its files share one `syncfs` a group, or each has its own `fsync`, or none
//! is synced at all. The service is a process of its own and answers at once.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::bare_client::{self, Sync};
use support::service::Options;
use support::{RunFolders, Service, Usage, callsheet, measure, number, parts, print_ratios, sound_effects};

const IN_FLIGHT: usize = 64;
const SERVED: Options = Options { result_bytes: 10_000, image_seconds: 0 };

fn main() {
    if parts() {
        return;
    }
    let (jobs, pairs) = (number(0, 10_000), number(1, 5));
    let mut folders = RunFolders::new();
    // What the kinds of syncs cost, and the first run of all, which is not compared.
    let each = run(&mut folders, jobs, Some(Sync::Each));
    run(&mut folders, jobs, Some(Sync::Nothing));
    let (mut of_grouped, mut of_each, mut cpu_seconds) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        println!("pair {pair}");
        // Each is the first of every second pair.
        let mut order = [Some(Sync::Groups), None];
        order.rotate_left(pair % 2);
        let usages = order.map(|sync| (sync, run(&mut folders, jobs, sync)));
        let of = |wanted| usages.iter().find(|(sync, _)| *sync == wanted).unwrap().1;
        let (bare, ours) = (of(Some(Sync::Groups)), of(None));
        let (rate, cpu) = (ours.rate(jobs) / bare.rate(jobs), ours.cpu_seconds / bare.cpu_seconds);
        println!("  rate {rate:.2} of the bare client's, processor time {cpu:.2}");
        of_grouped.push(rate);
        of_each.push(ours.rate(jobs) / each.rate(jobs));
        cpu_seconds.push(ours.cpu_seconds * 1_000.0 / jobs as f64);
    }
    print_ratios("callsheet / bare client with grouped syncs", &mut of_grouped, "0.70");
    print_ratios("callsheet / bare client that syncs each file, once", &mut of_each, "none");
    print_ratios("CPU s per 1,000", &mut cpu_seconds, "0.45");
    print_system_calls(1_000);
}

/// The bare client that syncs so; without that, `callsheet`.
fn run(folders: &mut RunFolders, jobs: usize, sync: Option<Sync>) -> Usage {
    let folder = &folders.next();
    let service = Service::start(SERVED);
    if let Some(sync) = sync {
        let output = folder.join(format!("{sync:?}"));
        return bare_client::run(&service.base_url, jobs, IN_FLIGHT, &output, sync);
    }
    sound_effects(folder, jobs);
    let usage = measure(&mut callsheet(folder, &service.base_url, IN_FLIGHT, &["run", "gulls.csv"]));
    assert_eq!(usage.code, 0, "callsheet run failed");
    println!("callsheet: {}", usage.line(jobs, "jobs"));
    usage
}

/// What one job costs in system calls: of a run with this many, less a run with one.
fn print_system_calls(jobs: usize) {
    let count = |jobs: usize| {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::start(SERVED);
        sound_effects(folder.path(), jobs);
        let command = callsheet(folder.path(), &service.base_url, IN_FLIGHT, &["run", "gulls.csv"]);
        system_calls(&command, &folder.path().join("strace.txt"))
    };
    let (Some(one), Some(many)) = (count(1), count(jobs)) else {
        return println!("system calls were not counted: strace is missing");
    };
    let base = |name: &str| one.iter().find(|(known, _)| known == name).map_or(0, |(_, calls)| *calls);
    let mut rows: Vec<(f64, &str)> = (many.iter())
        .map(|(name, calls)| (calls.saturating_sub(base(name)) as f64 / jobs as f64, name.as_str()))
        .filter(|(calls, _)| *calls >= 0.05)
        .collect();
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    println!("system calls a job: {:.1}", rows.iter().map(|(calls, _)| calls).sum::<f64>());
    rows.iter().for_each(|(calls, name)| println!("  {calls:7.2}  {name}"));
}

/// System calls of a run of the same command, by strace; nothing where it is not installed. `-f` costs time: the run is
/// not the one that was timed.
fn system_calls(command: &Command, report: &Path) -> Option<Vec<(String, u64)>> {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-c", "-o"]).arg(report).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        traced.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        traced.env(name, value.unwrap_or_default());
    }
    let _ = traced.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    let text = std::fs::read_to_string(report).ok()?;
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let calls = cells.get(3)?.parse().ok()?;
        let name = cells.last().filter(|name| **name != "total")?;
        Some(((*name).to_owned(), calls))
    };
    Some(text.lines().filter_map(row).collect())
}
