//! Every command of the README and of `docs/` runs: each page's `sh` blocks in order, in one shell and in a folder of its
//! own with the program first in `PATH`.
//!
//! - A fence with a second word, such as <code>```csv spring.csv</code>, is written to that file when its turn comes.
//! - A `text` block right after a `sh` block is what its commands print, stdout and stderr; `...` stands for anything.
//! - `<!-- not run: REASON -->` before a block lets it be; what begins with `callsheet` in it is parsed all the same, and so
//!   is every command in backticks.
//! - `docs/emulator.md` has transcripts, which `tests/emulator/docs.rs` runs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod page;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::own_address::own_address;

use self::page::{Block, blocks, inline_commands, is_as_expected};

const PROGRAM: &str = env!("CARGO_BIN_EXE_callsheet");
/// The address of the emulator in the pages.
const PAGE_ADDRESS: &str = "127.0.0.1:8787";
/// The most blocks of all pages that may be left out.
const MOST_NOT_RUN: usize = 8;
/// The longest that one page may take, in seconds.
const PAGE_SECONDS: &str = "150";

/// Stands for the time that a person takes: what follows a service in the background begins when it listens.
const WAIT_FOR_DAEMON: &str = r#"until for socket in state/callsheet.sock state/*/callsheet.sock; do
    curl -sf --unix-socket "$socket" http://callsheet/v1/health >>waited 2>&1 && break; done; do kill -0 $!; sleep 0.05; done"#;
const WAIT_FOR_EMULATOR: &str = "until curl -sf http://127.0.0.1:8787/openapi.json >>waited 2>&1; do kill -0 $!; sleep 0.05; done; kill -0 $!";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The README and everything below `docs/` and `jobs/`, by path.
fn pages() -> Vec<(String, String)> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let top = repository();
    let mut found = vec![top.join("README.md")];
    collect(&top.join("docs"), &mut found);
    collect(&top.join("jobs"), &mut found);
    found.sort();
    let name = |path: &PathBuf| path.strip_prefix(&top).unwrap().to_string_lossy().into_owned();
    found.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A command without its comment, if it goes on in the background.
fn in_background(line: &str) -> Option<&str> {
    let command = line.split(" #").next().unwrap_or(line).trim_end();
    command.ends_with('&').then_some(command).filter(|command| !command.ends_with("&&"))
}

/// The shell script of a page. What block N says goes to `said/N`, and `said/at` has the number of the present one.
fn script(blocks: &[Block<'_>]) -> String {
    let mut script = "set -eu\ntrap 'exec >>said/end 2>&1; kill $(jobs -p) || true; wait' EXIT\n".to_owned();
    for (n, block) in blocks.iter().enumerate() {
        if let Some(name) = block.file {
            let text = block.lines.join("\n");
            let folder = Path::new(name).parent().filter(|folder| *folder != Path::new(""));
            if let Some(folder) = folder {
                writeln!(script, "mkdir -p '{}'", folder.display()).unwrap();
            }
            writeln!(script, "cat >'{name}' <<'END OF THE FILE'\n{text}\nEND OF THE FILE").unwrap();
        } else if block.is_run() {
            writeln!(script, "echo {n} >said/at; exec >said/{n} 2>&1 </dev/null").unwrap();
            for line in &block.lines {
                writeln!(script, "{line}").unwrap();
                let command = in_background(line).unwrap_or_default();
                if command.contains("callsheet daemon") {
                    writeln!(script, "{WAIT_FOR_DAEMON}").unwrap();
                } else if command.contains("callsheet emulator") {
                    writeln!(script, "{WAIT_FOR_EMULATOR}").unwrap();
                }
            }
        }
    }
    script
}

/// Runs a page in a fresh folder with the sample manifests; `Err` says what is wrong.
fn run_page(name: &str, text: &str) -> Result<(), String> {
    let blocks = blocks(text);
    if !blocks.iter().any(Block::is_run) {
        return Ok(());
    }
    let folder = tempfile::tempdir().unwrap();
    let address = own_address();
    copy_tree(&repository().join("jobs"), &folder.path().join("jobs"));
    fs::create_dir(folder.path().join("said")).unwrap();
    fs::write(
        folder.path().join("said/page.sh"),
        script(&blocks).replace(PAGE_ADDRESS, &address.to_string()),
    )
    .unwrap();
    let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("timeout");
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("CALLSHEET_")) {
        shell.env_remove(variable);
    }
    let status = shell
        .args(["-k", "10", PAGE_SECONDS, "bash", "said/page.sh"])
        .current_dir(folder.path())
        .envs([
            ("PATH", path.as_str()),
            ("BROWSER", "true"),
            ("no_proxy", &format!("127.0.0.1,{}", address.ip())),
            ("TZ", "UTC"),
        ])
        .envs([
            ("HOME", folder.path().as_os_str()),
            ("CALLSHEET_EMULATOR_LISTEN", address.to_string().as_ref()),
        ])
        .output()
        .unwrap();
    let read = |name: String| fs::read_to_string(folder.path().join("said").join(name)).unwrap_or_default();
    if !status.status.success() {
        let at: usize = read("at".to_owned()).trim().parse().unwrap_or_default();
        let shell = String::from_utf8_lossy(&status.stderr).into_owned();
        let said = read(at.to_string());
        return Err(format!(
            "{name}:{}: the block ended with {}\n{said}{shell}",
            blocks[at].first, status.status
        ));
    }
    let mut wrong = String::new();
    for (n, pair) in blocks.windows(2).enumerate() {
        if pair[0].is_run() && pair[1].is_output() {
            let (found, expected) = (read(n.to_string()), pair[1].lines.join("\n"));
            if !is_as_expected(&found, &expected.replace(PAGE_ADDRESS, &address.to_string())) {
                writeln!(wrong, "{name}:{}: expected\n{expected}\nfound\n{found}", pair[1].first).unwrap();
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// They wait more than they work, so all of them run at once.
#[test]
fn every_block_of_commands_runs_and_prints_what_its_page_says() {
    let pages = pages();
    assert!(pages.len() > 8, "only {} pages were found", pages.len());
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = pages.iter().map(|(name, text)| scope.spawn(|| run_page(name, text))).collect();
        runs.into_iter().filter_map(|run| run.join().unwrap().err()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn few_blocks_are_left_out_and_each_says_why() {
    let mut left_out = Vec::new();
    for (name, text) in pages() {
        for block in blocks(&text) {
            let unmarked = block.language.is_empty() || ["bash", "shell"].contains(&block.language);
            assert!(!unmarked, "{name}:{}: say what the block is: sh, text, toml, ...", block.first);
            if let Some(reason) = block.not_run {
                assert!(block.language == "sh", "{name}:{}: nothing would run this block", block.first);
                left_out.push(format!("{name}:{}: {reason}", block.first));
            }
        }
    }
    println!("not run:\n{}", left_out.join("\n"));
    assert!(left_out.len() <= MOST_NOT_RUN, "{left_out:#?}");
    assert!(left_out.iter().all(|line| line.split_once(": ").is_some_and(|(_, reason)| reason.len() > 15)));
}

/// `--help` after a command stops it before it does anything, and after its subcommand and flags were understood.
#[test]
fn every_command_in_a_sentence_or_a_table_is_one_that_the_program_has() {
    let mut commands = BTreeSet::new();
    for (name, text) in pages() {
        for command in inline_commands(&text) {
            commands.insert((command, name.clone()));
        }
        for block in blocks(&text).iter().filter(|block| block.not_run.is_some()) {
            let lines = block.lines.iter().filter(|line| line.starts_with("callsheet "));
            commands.extend(lines.map(|line| (line.split(" #").next().unwrap().to_owned(), name.clone())));
        }
    }
    assert!(commands.len() > 30, "only {} commands were found", commands.len());
    let mut wrong = String::new();
    for (command, page) in commands {
        let plain: String = command.chars().filter(|c| !"[]".contains(*c)).collect();
        let words = plain.replace("\\|", "|").replace("...", "");
        let first = |word: &str| word.split('|').next().unwrap_or_default().to_owned();
        let number = |word: String| if word == "N" { "1".to_owned() } else { word };
        let arguments = words.split_whitespace().skip(1).map(first).map(number);
        let ended = Command::new(PROGRAM).args(arguments).arg("--help").output().unwrap();
        if !ended.status.success() {
            writeln!(wrong, "{page}: `{command}`: {}", String::from_utf8_lossy(&ended.stderr)).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn only_what_ends_in_one_ampersand_is_in_the_background() {
    assert_eq!(in_background("callsheet daemon --emulator &   # or"), Some("callsheet daemon --emulator &"));
    assert_eq!((in_background("a &&"), in_background("a # b &")), (None, None));
}
