//! What a job costs in system calls: counted, so that a busy machine changes little of it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::support::{TestEnv, manifests};

const JOBS: usize = 100;

/// System calls of a run with so many jobs, by name; nothing where `strace` is missing.
fn calls_of_a_run(jobs: usize) -> Option<BTreeMap<String, usize>> {
    let env = TestEnv::new();
    env.configure("[limits]\nin_flight = 64\nadaptive = false\ndownloads = 64");
    env.write("batch.csv", manifests::manifest("sound-effect", jobs));
    let notes = tempfile::tempdir().unwrap();
    let report = notes.path().join("calls");
    let client = env.command(["run", "batch.csv"]);
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&report).arg(client.get_program()).args(client.get_args());
    command.current_dir(env.path("")).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.ok()?.success(), "the run of {jobs} jobs failed");
    let text = std::fs::read_to_string(&report).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        Some((cells.last()?.to_string(), cells.get(3)?.parse().ok()?))
    };
    Some(text.lines().filter_map(row).collect())
}

#[test]
fn a_job_costs_few_system_calls() {
    let (Some(one), Some(many)) = (calls_of_a_run(1), calls_of_a_run(JOBS + 1)) else {
        println!("strace is missing: system calls were not counted, nothing was proven");
        return;
    };
    let of_jobs = |name: &str| {
        let of = |calls: &BTreeMap<String, usize>| calls.get(name).copied().unwrap_or_default();
        of(&many).saturating_sub(of(&one))
    };
    // The most that JOBS jobs may cost, of calls that each job makes by itself: an output and a sidecar are each created,
    // written and named once. Sync calls are left out: how many share one is a matter of time. `openat` is called
    // twice for the gallery, and for folders to be synced up to five times a group: the faster the machine, the smaller the
    // groups.
    for (name, most) in [
        ("renameat2", 2 * JOBS),
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
