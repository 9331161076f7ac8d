//! A disk that refuses a write or a sync, once or for good: the run ends by itself and says why, and the same again comes to
//! its end and buys once.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on should stop")]

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;

use crate::support::process::Running;
use crate::support::{TestEnv, case_share, manifests};

/// A call that fails from the `nth` on, so many times; 0 is for good.
type Case = (&'static str, Errno, usize, usize);

/// About as many calls as a run of two jobs makes of each.
fn cases() -> impl Iterator<Item = Case> {
    let all = |call, errno, most, times| (1..=most).map(move |nth| (call, errno, nth, times));
    all("pwrite", Errno::NOSPC, 14, 1)
        .chain(all("pwrite", Errno::IO, 14, 0))
        .chain(all("sync_file_range", Errno::IO, 10, 1))
        .chain(all("fdatasync", Errno::IO, 10, 0))
        .chain(all("fsync", Errno::IO, 29, 0))
        .chain(all("write", Errno::NOSPC, 32, 0))
}

/// What makes calls fail, built by the compiler that links this program; nothing where there is none.
fn failing_calls(env: &TestEnv) -> Option<PathBuf> {
    let built = env.path("failing_calls.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/failing_calls.c");
    let done =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&built).arg(source).arg("-ldl").status();
    done.ok()?.success().then_some(built)
}

#[test]
fn a_run_whose_disk_refuses_a_call_ends_by_itself_and_is_repeated() {
    let builder = TestEnv::new();
    let Some(failing_calls) = failing_calls(&builder) else {
        println!("cc is missing: no call was made to fail, nothing was proven");
        return;
    };
    let (mut refused, mut runs) = (0, 0);
    for (call, errno, nth, times) in case_share::of_this_run(cases(), 2) {
        let case = format!("{call} {} {nth} {times}", errno.raw_os_error());
        let env = TestEnv::new();
        env.write("batch.csv", manifests::manifest("sound-effect", 2));
        let mut run = env.command(["run", "batch.csv"]);
        run.env("LD_PRELOAD", &failing_calls).env("FAILING_CALL", &case);
        let ended = Running::start(run).end();
        // 6: the disk; 0: what failed was made again.
        assert!(matches!(ended.code, Some(0 | 6)), "{case}: {ended:?}");
        refused += usize::from(ended.code == Some(6));
        runs += 1;
        env.run(["run", "batch.csv"]).exited(0);
        env.run(["state", "verify"]).exited(0).says("all fits");
        env.audit().each_paid_once(2);
    }
    println!("{refused} of {runs} runs ended for their disk");
    assert!(refused * 2 >= runs, "{refused} of {runs} runs ended for their disk");
}
