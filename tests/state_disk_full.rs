//! The state on a disk that fills up in the middle of a run.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod stage;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::stage::harvest::Harvest;
use self::stage::{Stage, scripts, until};

const RUN: [&str; 5] = ["run", "--json", "--state", "disk/state", "batch.csv"];

/// A small disk of its own.
struct Disk(PathBuf);

impl Disk {
    /// Nothing where the system lets nobody but root mount one, and this is somebody else.
    fn mount(path: PathBuf) -> Option<Disk> {
        fs::create_dir_all(&path).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&path).output();
        match mount {
            Ok(output) if output.status.success() => Some(Disk(path)),
            refused => {
                eprintln!("no disk could be mounted: {refused:?}");
                assert!(!rustix::process::geteuid().is_root(), "root can mount a disk");
                None
            }
        }
    }

    /// Writes until not one byte more fits.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.0.join("filler")).unwrap();
        let mut piece = 1024 * 1024;
        while piece > 0 {
            if file.write_all(&vec![7; piece]).is_err() {
                piece /= 2;
            }
        }
    }

    fn clear(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn torn_snapshots(state: &Path) -> usize {
    let entries = fs::read_dir(state.join("db")).unwrap();
    entries
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".generating"))
        .count()
}

#[test]
fn a_disk_that_fills_up_costs_nothing_and_loses_nothing() {
    const JOBS: usize = 120;
    let stage = Stage::with(callsheet::emulator::Options { speed: 60.0, ..Default::default() });
    let Some(disk) = Disk::mount(stage.path("disk")) else { return };
    let state = stage.path("disk/state");
    stage.write("batch.csv", scripts::manifest("image", JOBS));
    let running = stage.start(RUN);
    until("a few jobs at the service", || stage.audit().tasks.len() > 8);
    assert!(state.join("reserve").exists());
    disk.fill();
    let outcome = running.end();
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    outcome.exited(6).says("disk");
    assert!(!state.join("reserve").exists(), "it was used up for the last words");
    let sent = stage.audit().tasks.len();
    assert!(sent < JOBS, "it stopped sending");

    disk.fill();
    for command in
        [&RUN[..], &["status", "--state", "disk/state"], &["state", "verify", "--state", "disk/state"]]
    {
        stage.run(command.iter().copied()).exited(6).says("is full").says("make room");
    }
    assert_eq!(torn_snapshots(&state), 0, "the database was not touched");
    assert_eq!(stage.audit().tasks.len(), sent);

    disk.clear();
    stage.run(["state", "verify", "--state", "disk/state"]).exited(0).says("all fits");
    stage.run(RUN).exited(0);
    assert!(state.join("reserve").exists(), "it is set aside again");
    stage.audit().each_paid_once(JOBS);
    Harvest::of(&stage, "batch").is_complete(&scripts::ids("image", JOBS));
}

#[test]
fn a_disk_that_is_full_from_the_beginning_is_refused_before_anything_is_made() {
    let stage = Stage::new();
    let Some(disk) = Disk::mount(stage.path("disk")) else { return };
    stage.write("batch.csv", scripts::manifest("image", 1));
    disk.fill();
    stage.run(RUN).exited(6);
    assert_eq!(stage.audit().totals.tasks, 0);
    disk.clear();
    stage.run(RUN).exited(0);
    stage.audit().each_paid_once(1);
}
