//! Every entry of fuzzing, with what fuzzing found before and some thousands of broken texts that are the same on every
//! machine. With `CALLSHEET_FUZZ_SECONDS=60` it goes on for that long with other texts every time, as `.ci/run` does;
//! `.ci/fuzz` searches on, guided by what the code does.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on should stop and say why"
)]

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[allow(unreachable_pub, reason = "the entries are public for the targets")]
#[path = "../../fuzz/entries.rs"]
mod entries;

/// What shares the time of `CALLSHEET_FUZZ_SECONDS`.
const TARGETS: f64 = 7.0;
/// What breaks readers.
#[rustfmt::skip]
const PIECES: [&[u8]; 20] = [
    b"\"", b",", b"\n", b"\r", b"\0", b"{", b"}", b"[", b"]", b":", b"\\u", b"\xff", b"\xEF\xBB\xBF", b"\xed\xa0\x80",
    b"1e999", b"-1", b"18446744073709551616", b"\xff\xff\xff\xff", b"null", b"\x1b[",
];

/// A small generator of its own: the same numbers everywhere (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % end.max(1)
    }
}

fn broken(seed: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.below(6) {
        let (one, other) = (dice.below(bytes.len() + 1), dice.below(bytes.len() + 1));
        let (from, to) = (one.min(other), one.max(other));
        match dice.below(6) {
            0 => bytes.truncate(one),
            1 => drop(bytes.splice(one..one, PIECES[dice.below(PIECES.len())].iter().copied())),
            2 => drop(bytes.drain(from..to.min(from + 8))),
            3 if one < bytes.len() => bytes[one] = u8::try_from(dice.below(256)).unwrap(),
            4 if one < bytes.len() => bytes[one] ^= 1 << dice.below(8),
            _ => {
                let copy = bytes[from..to].to_vec();
                bytes.splice(one..one, copy);
            }
        }
        bytes.truncate(8192);
    }
    bytes
}

/// What a target is fed with: texts that are nearly right, since what is broken from them gets far into a reader, and
/// what fuzzing found worth keeping.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no seed", dir.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Feeds a target with every seed, and with what can be broken from them: `times` texts in all, the same on every
/// machine; or, where `CALLSHEET_FUZZ_SECONDS` says how long, others every time.
fn hammer(target: &str, times: usize, entry: fn(&[u8])) {
    let seeds = seeds(target);
    let mut fed = 0;
    let mut feed = |bytes: &[u8], from: &str| {
        let outcome = std::panic::catch_unwind(|| entry(bytes));
        assert!(outcome.is_ok(), "{target}, number {fed} from {from}: {}", bytes.escape_ascii());
        fed += 1;
    };
    seeds.iter().for_each(|seed| feed(seed, "the seeds"));
    match std::env::var("CALLSHEET_FUZZ_SECONDS") {
        Err(_) => {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
            (0..times).for_each(|n| feed(&broken(&seeds[n % seeds.len()], &mut dice), "the fixed number"));
        }
        Ok(seconds) => {
            let share = Duration::from_secs_f64(seconds.parse::<f64>().unwrap() / TARGETS);
            let number = RandomState::new().hash_one(target) | 1;
            let (mut dice, begun) = (Dice(number), Instant::now());
            while begun.elapsed() < share {
                feed(&broken(&seeds[dice.below(seeds.len())], &mut dice), &format!("number {number:#x}"));
            }
            eprintln!("{target}: {fed} executions in {:.1} s", begun.elapsed().as_secs_f64());
        }
    }
}

#[test]
fn manifests() {
    hammer("csv", 9_000, entries::csv);
    hammer("json", 9_000, entries::json);
    hammer("jsonl", 9_000, entries::jsonl);
}

#[test]
fn configurations() {
    hammer("config", 3_000, entries::config);
}

#[test]
fn the_control_protocol() {
    hammer("control", 20_000, entries::control);
}

#[test]
fn answers_of_the_service() {
    hammer("answers", 20_000, entries::answers);
}

#[test]
fn downloads() {
    hammer("outputs", 3_000, entries::outputs);
}
