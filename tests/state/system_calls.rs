//! What a job costs in system calls: counted, so that a busy machine changes little of it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use crate::support::process::Running;
use crate::support::strace::{has_strace, strace};
use crate::support::{TestEnv, manifests};

const JOBS: usize = 100;

/// System calls of a run with so many jobs, by name.
fn calls_of_a_run(jobs: usize) -> BTreeMap<String, usize> {
    let env = TestEnv::new();
    env.configure("[limits]\nin_flight = 64\nadaptive = false\ndownloads = 64");
    env.write("batch.csv", manifests::manifest("sound-effect", jobs));
    let notes = tempfile::tempdir().unwrap();
    let report = notes.path().join("calls");
    Running::start(strace(&env, &["-c"], &report, ["run", "batch.csv"])).end().exited(0);
    let text = std::fs::read_to_string(&report).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        Some((cells.last()?.to_string(), cells.get(3)?.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn a_job_costs_few_system_calls() {
    if !has_strace() {
        return;
    }
    let (one, many) = (calls_of_a_run(1), calls_of_a_run(JOBS + 1));
    let of_jobs = |name: &str| {
        let of = |calls: &BTreeMap<String, usize>| calls.get(name).copied().unwrap_or_default();
        of(&many).saturating_sub(of(&one))
    };
    // The most that JOBS jobs may cost, of calls that each job makes by itself: an output and a sidecar are each created and
    // written once, and the output is renamed. Sync calls are left out: how many share one is a matter of time. `openat` is called
    // twice for the gallery, and for folders to be synced up to five times a group: the faster the machine, the smaller the
    // groups.
    for (name, most) in [
        ("renameat2", JOBS + 20),
        ("mkdir", JOBS / 2),
        ("write", 20 * JOBS),
        ("open", 2 * JOBS + 20),
        ("openat", 7 * JOBS + 20),
    ] {
        let calls = of_jobs(name);
        println!("{name}: {:.1} a job", calls as f64 / JOBS as f64);
        assert!(calls <= most, "{name}: {calls} calls for {JOBS} jobs, at most {most} are expected");
    }
}
