//! A daemon that reads its configuration anew: what it takes over, what it refuses, and what it says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;

use rustix::process::Signal;

use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

/// A daemon that needs no configuration file to find its service.
fn daemon_with_flags(env: &TestEnv) -> Running {
    let mut command = env.command(["daemon", "--log-level", "info", "--base-url"]);
    command.arg(env.base_url());
    let daemon = Running::start(command);
    daemon.says("ready");
    daemon
}

#[test]
fn a_configuration_file_that_is_missing_at_a_reload_lifts_no_budget() {
    let env = TestEnv::new();
    env.configure("[budget]\ntotal = 16");
    env.write("batch.csv", manifests::manifest("image", 4));
    let daemon = daemon_with_flags(&env);
    let mut submit = env.command(["submit", "batch.csv", "--wait", "--base-url"]);
    submit.arg(env.base_url());
    Running::start(submit).end().exited(4);
    let spent = env.audit().totals.charges;
    assert!(spent > 0 && spent < 4 * 8, "{spent}");

    fs::remove_file(env.path("callsheet.toml")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.says("callsheet.toml, which the configuration was loaded from, is missing");
    assert!(!daemon.said().contains("configuration reloaded"), "{}", daemon.said());
    let status = env.run(["status", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["parked_by"], "total_budget");
    assert_eq!(env.audit().totals.charges, spent);

    // A limit that is taken out of the file is meant to go, and that is said.
    env.configure("[budget]\nper_batch = 500");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    assert!(daemon.said().contains("lifts limits that were set before: budget.total"), "{}", daemon.said());
    until("the rest", || env.path("output/batch/report.json").exists());
    daemon.stop();
    env.audit().each_paid_once(4);
}

#[test]
fn a_daemon_without_a_configuration_file_takes_one_over_and_keeps_to_it() {
    let env = TestEnv::new();
    fs::remove_file(env.path("callsheet.toml")).unwrap();
    let daemon = daemon_with_flags(&env);
    env.configure("[budget]\ntotal = 16");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    fs::remove_file(env.path("callsheet.toml")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.says("callsheet.toml, which the configuration was loaded from, is missing");
    daemon.stop();
}
