//! A run that is killed at the system calls that make its state, before anything is acknowledged: the same again comes to its
//! end, and buys once.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on should stop")]

use std::path::Path;

use crate::support::process::Running;
use crate::support::strace::{has_strace, strace};
use crate::support::{TestEnv, case_share, manifests};

/// Calls that make a state and take a manifest in, by the thread that does so, and how many of each there are about.
const CALLS: [(&str, usize); 5] =
    [("mkdir", 8), ("renameat", 3), ("ftruncate", 3), ("write", 14), ("fsync", 6)];

#[test]
fn a_run_that_is_killed_while_it_makes_its_state_is_repeated() {
    if !has_strace() {
        return;
    }
    let cases = CALLS.into_iter().flat_map(|(call, times)| (1..=times).map(move |nth| (call, nth)));
    let (mut kills, mut runs) = (0, 0);
    for (call, nth) in case_share::of_this_run(cases, 1) {
        let env = TestEnv::new();
        env.write("batch.csv", manifests::manifest("sound-effect", 1));
        let inject = format!("inject={call}:signal=KILL:when={nth}");
        let options = ["-e", &format!("trace={call}"), "-e", &inject];
        let killed = strace(&env, &options, Path::new("/dev/null"), ["run", "batch.csv"]);
        let killed = Running::start(killed).end();
        kills += usize::from(killed.signal == Some(9));
        runs += 1;
        env.run(["run", "batch.csv"]).exited(0);
        env.run(["state", "verify"]).exited(0).says("all fits");
        env.audit().each_paid_once(1);
    }
    println!("{kills} of {runs} runs were killed");
    assert!(kills * 4 >= runs * 3, "{kills} of {runs} runs were killed");
}
