//! A process may have few files open. Batches that are under way at once need no more of them than one does.

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
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 112 && exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    limited.current_dir(run.get_current_dir().unwrap()).env_clear();
    limited.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let outcome = Running::start(limited).end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for name in names {
        let path = format!("output/{}/results.jsonl", name.trim_end_matches(".csv"));
        let results = fs::read_to_string(env.path(&path)).unwrap();
        assert!(results.contains(r#""state":"succeeded""#), "{name}: {results}");
    }
}
