//! The state on a disk that fills up in the middle of a run.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;

use crate::support::collect_outputs::Outputs;
use crate::support::disk::Disk;
use crate::support::{TestEnv, manifests, until};

const RUN: [&str; 5] = ["run", "--json", "--state", "disk/state", "batch.csv"];

fn torn_snapshots(state: &Path) -> usize {
    let entries = fs::read_dir(state.join("db")).unwrap();
    entries
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".generating"))
        .count()
}

#[test]
fn a_disk_that_fills_up_costs_nothing_and_loses_nothing() {
    const JOBS: usize = 120;
    let env = TestEnv::with(callsheet_emulator::Options { speed: 60.0, ..Default::default() });
    let Some(disk) = Disk::in_memory(env.path("disk"), "size=16m") else { return };
    let state = env.path("disk/state");
    env.write("batch.csv", manifests::manifest("image", JOBS));
    let running = env.start(RUN);
    until("a few jobs at the service", || env.audit().tasks.len() > 8);
    assert!(state.join("reserve").exists());
    disk.fill();
    let outcome = running.end();
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    outcome.exited(6).says("the state's disk is full");
    assert!(!state.join("reserve").exists(), "it was used up for the last words");
    let sent = env.audit().tasks.len();
    assert!(sent < JOBS, "it stopped sending");

    disk.fill();
    for command in
        [&RUN[..], &["status", "--state", "disk/state"], &["state", "verify", "--state", "disk/state"]]
    {
        env.run(command.iter().copied()).exited(6).says("is full").says("free disk space");
    }
    assert_eq!(torn_snapshots(&state), 0, "the database was not touched");
    assert_eq!(env.audit().tasks.len(), sent);

    disk.clear();
    env.run(["state", "verify", "--state", "disk/state"]).exited(0).says("all fits");
    env.run(RUN).exited(0);
    assert!(state.join("reserve").exists(), "it is set aside again");
    env.audit().each_paid_once(JOBS);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", JOBS));
}

#[test]
fn a_disk_that_is_full_from_the_beginning_is_refused_before_anything_is_made() {
    let env = TestEnv::new();
    let Some(disk) = Disk::in_memory(env.path("disk"), "size=16m") else { return };
    env.write("batch.csv", manifests::manifest("image", 1));
    disk.fill();
    env.run(RUN).exited(6);
    assert_eq!(env.audit().totals.tasks, 0);
    disk.clear();
    env.run(RUN).exited(0);
    env.audit().each_paid_once(1);
}
