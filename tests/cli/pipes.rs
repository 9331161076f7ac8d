//! Readers that go away before a command has printed everything.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{TestEnv, case_share};

/// Whether the thread that makes the lines still has some when the command ends is a matter of chance.
const TRIES: usize = 40;

#[test]
fn a_list_whose_reader_goes_away_ends_quietly() {
    let env = TestEnv::new();
    let row = |n: u32| format!("gull-{n},sound-effect,a gull no {n} {}\n", "over the harbour ".repeat(12));
    let rows: String = (0..400).map(row).collect();
    env.write("many.csv", format!("id,kind,prompt\n{rows}"));
    env.run(["run", "many.csv"]).exited(0);
    for n in 1..=TRIES / case_share::one_of() {
        let mut command = env.command(["jobs", "many"]);
        let mut listing =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(listing.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let ended = listing.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success() && said.is_empty(), "try {n}: {}\n{said}", ended.status);
    }
}
