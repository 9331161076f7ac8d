//! See `json` in `entries.rs`.
#![no_main]

#[allow(dead_code, reason = "every target enters at one place")]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::json(data));
