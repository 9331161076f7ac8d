//! The client under `strace`.
#![allow(clippy::print_stdout, reason = "a test that proves nothing says so")]

use std::path::Path;
use std::process::Command;

use super::TestEnv;

/// The client with these arguments under `strace` with those options, which follows all threads and writes to `report`. To
/// start it fails where `strace` is missing.
pub fn strace<'a>(
    env: &TestEnv,
    options: &[&str],
    report: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Command {
    let client = env.command(arguments);
    let mut command = Command::new("strace");
    command.args(options).args(["-f", "-o"]).arg(report).arg(client.get_program()).args(client.get_args());
    command.current_dir(env.path("").canonicalize().unwrap()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// Whether there is one; says so where there is none.
pub fn has_strace() -> bool {
    let found = Command::new("strace").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("strace is missing: system calls were not looked at, nothing was proven");
    }
    found
}
