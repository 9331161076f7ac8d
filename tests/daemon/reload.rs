//! A daemon that reads its configuration anew: what it takes over, what it refuses, and what it says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, Mode, mkfifoat};
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
    assert_eq!(env.audit().totals.charges, 2);

    fs::remove_file(env.path("callsheet.toml")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.says("callsheet.toml, which the configuration was loaded from, is missing");
    assert!(!daemon.said().contains("configuration reloaded"), "{}", daemon.said());
    let status = env.run(["status", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["parked_by"], "total_budget");
    assert_eq!(env.audit().totals.charges, 2);

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

#[test]
fn a_reload_right_after_a_start_is_done_once_the_daemon_has_begun() {
    let env = TestEnv::new();
    let first = fs::read(env.path("callsheet.toml")).unwrap();
    // A process that reads a pipe waits until it is written. The configuration is read twice: for the log alone, and whole.
    let path = env.path("callsheet.toml");
    let pipe = |path: &Path| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    let opened = || fs::File::options().write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    pipe(&path);
    let daemon = env.start(["daemon", "--log-level", "info"]);
    let mut for_log = opened();
    let next = env.path("next.toml");
    pipe(&next);
    fs::rename(&next, &path).unwrap();
    for_log.write_all(&first).unwrap();
    drop(for_log);
    let mut whole = opened();
    fs::remove_file(&path).unwrap();
    env.configure("[budget]\ntotal = 8");
    daemon.signal(Signal::HUP);
    whole.write_all(&first).unwrap();
    drop(whole);
    daemon.says("configuration reloaded");
    env.write("batch.csv", manifests::manifest("image", 4));
    env.run(["submit", "batch.csv", "--wait"]).exited(4);
    daemon.stop();
    assert_eq!(env.audit().totals.charges, 1);
}

#[test]
fn a_configuration_that_the_daemon_refuses_fails_the_check_before_a_reload() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    let check = || env.run(["doctor", "--config-only", "--json"]);
    let finding = |code| {
        let report = check().exited(code).json();
        let checks = report["checks"].as_array().unwrap().iter();
        checks
            .filter(|check| check["level"] == "wrong")
            .map(|check| check["found"].to_string())
            .collect::<String>()
    };
    assert_eq!(finding(0), "");
    let elsewhere = TestEnv::new();
    let inbox = "[[inbox]]\npath = \"in\"\nname = ";
    let refused = [
        (
            "[paths]\noutput = \"elsewhere\"".to_owned(),
            "paths.output cannot change while the daemon runs; restart it",
        ),
        (
            format!(
                "[paths]\nstate = \"other\"\nsocket = \"{}\"",
                env.path("state/callsheet.sock").display()
            ),
            "paths.state cannot change while the daemon runs; restart it",
        ),
        (format!("{inbox}\"a\"\n{inbox}\"b\""), "in"),
        (
            format!("[output]\nstore = \"file://{}\"", env.path("output/store").display()),
            "must not be the output directory",
        ),
    ];
    let mut reloads = 0;
    let mut is_refused = |text: &str| {
        let found = finding(2);
        assert!(found.contains(text), "{text}: {found}");
        daemon.signal(Signal::HUP);
        reloads += 1;
        let refusals = || daemon.said().matches("the old one stays in force").count();
        until("the daemon to refuse it, too", || refusals() == reloads);
    };
    for (more, text) in &refused {
        env.configure(more);
        is_refused(text);
    }
    env.configure_for(&elsewhere.base_url(), "", "");
    is_refused("service.base_url cannot change while the daemon runs; restart it");
    fs::remove_file(env.path("callsheet.toml")).unwrap();
    is_refused("no service is configured");
    env.configure("[limits]\nin_flight = 3");
    assert_eq!(finding(0), "");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    daemon.stop();
}

#[test]
fn a_group_whose_spending_cannot_be_counted_keeps_the_old_budgets_and_the_daemon() {
    let env = TestEnv::new();
    env.write("old.csv", "id,kind,model,prompt\none,image,gi-2,a harbour\n");
    env.run(["run", "old.csv"]).exited(0);
    let record = env.path("state/spool/000001/finished");
    let mut bytes = fs::read(&record).unwrap();
    bytes[60] ^= 1;
    fs::write(&record, bytes).unwrap();
    let daemon = env.daemon("info");
    env.configure("[budget.by.\"meta.client\"]\ndefault = 100");
    daemon.signal(Signal::HUP);
    daemon.says("of the new configuration are not in force: ");
    env.write("new.csv", "id,kind,model,prompt\ntwo,image,gi-2,a pier\n");
    env.run(["submit", "new.csv", "--wait"]).exited(0);
    daemon.stop();
}

#[test]
fn the_upper_limit_of_an_inbox_changes_for_what_is_dropped_later() {
    let env = TestEnv::new();
    let configure = |budget: u32, more: &str| {
        env.configure(&format!("[[inbox]]\npath = \"acme\"\npolicy = {{ budget = {budget} }}\n{more}"));
    };
    configure(50, "");
    let daemon = env.daemon("info");
    until("the inbox", || env.path("acme").exists());
    let drop_in = |name: &str| {
        let draft = env.write("acme/.draft", manifests::manifest("image", 2));
        fs::rename(draft, env.path("acme").join(name)).unwrap();
    };
    drop_in("first.csv");
    until("the first", || env.path("output/acme--first/report.json").exists());
    configure(8, "");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    assert!(!daemon.said().contains("takes effect after a restart"), "{}", daemon.said());
    drop_in("second.csv");
    until("it to be filed", || env.path("acme/accepted/second.csv").exists());
    let reaches_its_limit_of_8 = |batch: &str| {
        let status = || env.status(batch);
        until("the limit to be reached", || {
            let status = status();
            status["parked_by"] == "batch_budget" && status["charged_credits"] == 8
        });
        assert_eq!(status()["budget_credits"], 8);
    };
    reaches_its_limit_of_8("acme--second");
    // A folder is watched from a start to the next, on the terms that it had last.
    env.configure("[[inbox]]\npath = \"beta\"");
    daemon.signal(Signal::HUP);
    daemon.says("changed, takes effect after a restart: inbox");
    drop_in("third.csv");
    until("it to be filed", || env.path("acme/accepted/third.csv").exists());
    reaches_its_limit_of_8("acme--third");
    env.configure("[[inbox]]\npath = \"acme\"\nsettle = \"3s\"");
    daemon.signal(Signal::HUP);
    daemon.says("lifts the upper limit that this inbox had");
    drop_in("fourth.csv");
    until("the fourth", || env.path("output/acme--fourth/report.json").exists());
    daemon.stop();
    env.audit().each_paid_once(6);
}
