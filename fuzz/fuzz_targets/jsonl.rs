//! See `jsonl` in `entries.rs`.
#![no_main]

#[allow(dead_code, reason = "every target enters at one place")]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::jsonl(data));
