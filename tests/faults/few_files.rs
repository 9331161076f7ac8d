//! A process may have few files open. Batches that are under way at once need no more of them than one does, and requests
//! are only as many as leave some to the state.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::process::Command;

use crate::support::process::Running;
use crate::support::{TestEnv, manifests};

/// More than may be open.
const BATCHES: usize = 120;

#[test]
fn many_batches_at_once_need_few_open_files() {
    let env = TestEnv::new();
    env.configure("[limits]\nin_flight = 4\n");
    let names: Vec<String> = (0..BATCHES).map(|n| format!("gulls-{n}.csv")).collect();
    names.iter().for_each(|name| drop(env.write(name, manifests::manifest("sound-effect", 2))));
    let run = env.command(["run"].into_iter().chain(names.iter().map(String::as_str)));
    let outcome = Running::start(limited(&run, 112)).end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for name in names {
        let path = format!("output/{}/results.jsonl", name.trim_end_matches(".csv"));
        let results = fs::read_to_string(env.path(&path)).unwrap();
        assert!(results.contains(r#""state":"succeeded""#), "{name}: {results}");
    }
}

#[test]
fn requests_that_take_long_leave_files_to_the_state() {
    let env = TestEnv::new();
    env.faults("[[rules]]\non = 'create'\neffect = { do = 'delay', ms = 300 }");
    env.configure("[limits]\nin_flight = 300\nadaptive = false\n");
    env.write("gulls.csv", manifests::manifest("sound-effect", 300));
    let outcome = Running::start(limited(&env.command(["run", "gulls.csv"]), 160)).end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let says = "this process may have only 160 files open: it sends at most 14 requests at once";
    assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
    env.audit().each_paid_once(300);
    assert_eq!(env.audit().posts(), 300, "no request failed for want of a file");
}

/// The command, with so many open files at most.
fn limited(command: &Command, files: u32) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.current_dir(command.get_current_dir().unwrap()).env_clear();
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}
