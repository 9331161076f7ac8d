//! What a daemon tells systemd.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::net::UnixDatagram;

use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

/// Systemd's end of a service's notifications.
struct Systemd {
    socket: UnixDatagram,
    told: Vec<String>,
}

impl Systemd {
    fn new(env: &TestEnv) -> Systemd {
        let socket = UnixDatagram::bind(env.path("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Systemd { socket, told: Vec::new() }
    }

    fn daemon(&self, env: &TestEnv) -> Running {
        let mut command = env.command(["daemon", "--log-level", "info"]);
        command.env("NOTIFY_SOCKET", env.path("notify")).env("WATCHDOG_USEC", "200000");
        Running::start(command)
    }

    /// Whether it was told this so far.
    fn hears(&mut self, what: &str) -> bool {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.told.extend(String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned));
        }
        self.told.iter().any(|line| line.starts_with(what))
    }
}

#[test]
fn systemd_is_told_that_a_daemon_is_ready_once_the_outputs_of_unfinished_batches_are_prepared() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv", "--budget", "10"]).exited(4);
    // What is found while outputs are prepared is said before it is ready: somebody put a file where they go.
    fs::rename(env.path("output/batch"), env.path("elsewhere")).unwrap();
    env.write("output/batch", "in the way");
    let mut systemd = Systemd::new(&env);
    let daemon = systemd.daemon(&env);
    until("systemd to be told that it is ready", || systemd.hears("READY=1"));
    until("the watchdog to be told that it is alive", || systemd.hears("WATCHDOG=1"));
    let said = daemon.stop().stderr;
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text}: {said}"));
    assert!(at("its output directory cannot be written to") < at("ready"), "{said}");
    let first = |text: &str| systemd.told.iter().position(|told| told.contains(text));
    assert!(first("EXTEND_TIMEOUT_USEC=") < first("READY=1"), "{:?}", systemd.told);
    assert!(systemd.hears("STOPPING=1"), "{:?}", systemd.told);
}

#[test]
fn systemd_is_told_that_a_state_is_being_loaded_before_it_is_opened() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    // A state that is refused when it is opened: another service's.
    let elsewhere = TestEnv::new();
    env.configure_for(&elsewhere.base_url(), "", "");
    let mut systemd = Systemd::new(&env);
    systemd.daemon(&env).end().exited(2).says("not to http");
    assert!(systemd.hears("STATUS=loading the state"), "{:?}", systemd.told);
}
