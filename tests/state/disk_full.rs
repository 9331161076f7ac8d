//! The state on a disk that fills up in the middle of a run.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;

use crate::support::collect_outputs::Outputs;
use crate::support::disk::Disk;
use crate::support::process::Running;
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

/// The copy of the database that a killed start left takes no room from the next one.
#[test]
fn a_copy_that_a_killed_start_left_is_removed_before_room_is_looked_for() {
    const MIB: u64 = 1024 * 1024;
    let env = TestEnv::new();
    let Some(disk) = Disk::in_memory(env.path("disk"), "size=24m") else { return };
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(RUN).exited(0);
    let copy = env.path("disk/state/.callsheet-try-killed");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("db"), vec![7; 8 << 20]).unwrap();
    disk.fill_but(MIB);
    assert!(disk.free_bytes() <= MIB);
    env.run(RUN).exited(0);
    assert!(!copy.exists());
}

/// A plan and a doctor look at a copy of the database, which lies beside other temporary files.
#[test]
fn a_temporary_directory_that_is_full_keeps_the_database_from_being_checked_and_nothing_else() {
    let env = TestEnv::new();
    let Some(disk) = Disk::in_memory(env.path("tmp"), "size=3m") else { return };
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    env.write("batch.csv", manifests::manifest("image", 3));
    let with_small_disk = |arguments: &[&str]| {
        let mut command = env.command(arguments.iter().copied());
        command.env("TMPDIR", disk.dir());
        Running::start(command).end()
    };
    let unchecked = "was not checked: no copy of it could be made in";
    with_small_disk(&["plan", "batch.csv"]).exited(0);
    let checked = with_small_disk(&["doctor"]);
    assert!(!format!("{checked:?}").contains(unchecked), "{checked:?}");
    disk.fill_but(1024 * 1024);
    let plan =
        with_small_disk(&["plan", "batch.csv"]).exited(0).says(unchecked).says("set TMPDIR to a directory");
    assert!(plan.stdout.contains("done: 2 jobs"), "{}", plan.stdout);
    let doctor = with_small_disk(&["doctor"]).exited(0);
    assert!(doctor.stdout.contains(unchecked), "{}", doctor.stdout);
    let copies = fs::read_dir(disk.dir()).unwrap().count();
    assert_eq!(copies, 1, "only what fills it");
}
