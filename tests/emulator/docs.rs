//! The transcripts of `docs/emulator.md`, run as written against the real program with the real `curl`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::emulator::process::Running;

/// The address the page is written for.
const PAGE_ADDRESS: &str = "http://127.0.0.1:8787";

/// A command of the page and what it is said to answer.
#[derive(Debug, Default, PartialEq)]
struct Exchange {
    line: usize,
    command: String,
    expected: String,
}

/// A fenced block: the words after the fence, the number of its first line, and its lines.
struct Block<'a> {
    info: &'a str,
    first: usize,
    lines: Vec<&'a str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            blocks.push(Block { info, first: number + 1, lines: inside });
        }
    }
    blocks
}

/// `$ ` begins a command, a backslash at the end of its line continues it, the rest is its answer.
fn exchanges(block: &Block<'_>) -> Vec<Exchange> {
    let mut out: Vec<Exchange> = Vec::new();
    let mut continues = false;
    for (line, text) in (block.first..).zip(&block.lines) {
        if let Some(command) = text.strip_prefix("$ ") {
            out.push(Exchange { line, command: command.to_owned(), expected: String::new() });
            continues = command.ends_with('\\');
        } else if let Some(last) = out.last_mut() {
            if continues {
                write!(last.command, "\n{text}").unwrap();
                continues = text.ends_with('\\');
            } else {
                writeln!(last.expected, "{text}").unwrap();
            }
        }
    }
    out
}

/// Whether a text is as expected, where `...` stands for anything.
fn is_as_expected(found: &str, expected: &str) -> bool {
    let mut pieces = expected.trim_end().split("...");
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = found.trim_end().strip_prefix(first) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Runs the commands in one shell; returns what each wrote.
fn run(commands: &[Exchange], folder: &Path, address: &str) -> Vec<String> {
    let mut script = String::new();
    for (n, exchange) in commands.iter().enumerate() {
        let command = exchange.command.replace(PAGE_ADDRESS, address);
        writeln!(script, "{{\n{command}\n}} > out-{n} 2>&1 < /dev/null").unwrap();
    }
    std::fs::write(folder.join("page.sh"), script).unwrap();
    let status = Command::new("timeout")
        .args(["120", "bash", "page.sh"])
        .current_dir(folder)
        .env("no_proxy", "127.0.0.1")
        .status()
        .unwrap();
    assert!(status.success(), "the page's commands ended with {status}");
    let read =
        |n| String::from_utf8_lossy(&std::fs::read(folder.join(format!("out-{n}"))).unwrap()).into_owned();
    (0..commands.len()).map(read).collect()
}

#[test]
fn every_transcript_of_the_page_is_true() {
    let page = include_str!("../../docs/emulator.md");
    let folder = tempfile::tempdir().unwrap();
    let mut commands = Vec::new();
    for block in blocks(page) {
        if let Some(name) = block.info.strip_prefix("toml ") {
            std::fs::write(folder.path().join(name), block.lines.join("\n")).unwrap();
        } else if block.info == "console" {
            commands.extend(exchanges(&block));
        }
    }
    assert!(commands.len() > 25, "only {} commands were found", commands.len());

    let emulator = Running::start(&["--speed", "20"]);
    let answers = run(&commands, folder.path(), &emulator.base_url);
    let mut wrong = Vec::new();
    for (exchange, found) in commands.iter().zip(answers) {
        let expected = exchange.expected.replace(PAGE_ADDRESS, &emulator.base_url);
        if !is_as_expected(&found, &expected) {
            wrong.push(format!(
                "line {}: {}\n  expected {expected}  found    {found}",
                exchange.line, exchange.command
            ));
        }
    }
    assert!(wrong.is_empty(), "docs/emulator.md\n{}", wrong.join("\n"));
}

#[test]
fn three_dots_stand_for_anything() {
    for (found, expected) in
        [("a\n", "a"), ("abc", "a...c"), ("abc", "..."), ("a1b2c", "a...b...c"), ("", "")]
    {
        assert!(is_as_expected(found, expected), "{found:?} {expected:?}");
    }
    for (found, expected) in [("ab", "a"), ("abc", "a...d"), ("cba", "a...c"), ("x", "")] {
        assert!(!is_as_expected(found, expected), "{found:?} {expected:?}");
    }
}

#[test]
fn a_command_goes_on_after_a_backslash() {
    let block = Block { info: "console", first: 7, lines: vec!["$ curl \\", "  x", "one", "two", "$ next"] };
    let command = |line, command: &str, expected: &str| Exchange {
        line,
        command: command.to_owned(),
        expected: expected.to_owned(),
    };
    assert_eq!(exchanges(&block), [command(7, "curl \\\n  x", "one\ntwo\n"), command(11, "next", "")]);
}
