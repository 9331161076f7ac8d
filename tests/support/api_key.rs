//! A key that is found wherever it is, and the search for it: in everything that every test's client wrote or said.

#![allow(dead_code, unreachable_pub, reason = "every test program uses another part of it")]

use std::fs;
use std::path::{Path, PathBuf};

use memchr::memmem;

/// The API key of every test, with characters that JSON may write in more than one way.
pub const KEY: &str = "sk/live+5e9b1d7c3f2a48068e4d";
/// The same, as HTTP's basic scheme would carry it.
pub const KEY_IN_BASE64: &str = "c2svbGl2ZSs1ZTliMWQ3YzNmMmE0ODA2OGU0ZA";
/// Spellings of it that JSON allows; the last is for JSON text within JSON text.
pub const KEY_IN_JSON: [&str; 4] = [
    "sk\\/live+5e9b1d7c3f2a48068e4d",
    "sk\\u002Flive\\u002b5e9b1d7c3f2a48068e4d",
    "\\u0073k/live\\u002B5e9b1d7c3f2a48068e\\u0034d",
    "sk\\\\\\/live\\\\u002B5e9b1d7c3f2a48068e4d",
];

/// Whether the key stands in these bytes, however JSON may write it.
pub fn holds_key(bytes: &[u8]) -> bool {
    let holds =
        |bytes: &[u8]| [KEY, KEY_IN_BASE64].iter().any(|what| memmem::find(bytes, what.as_bytes()).is_some());
    holds(bytes) || (bytes.contains(&b'\\') && holds(&without_escapes(bytes)))
}

/// Every `\uXXXX` as the character that it means (of those beyond ASCII, something else), and no other backslash.
fn without_escapes(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    // What stands between backslashes is copied as a whole: tests are not built for speed.
    while let Some(at) = memchr::memchr(b'\\', rest) {
        plain.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.get(..5).and_then(|code| code.strip_prefix(b"u"));
        let code = digits.and_then(|digits| u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        if let Some(code) = code {
            plain.push(u8::try_from(code).unwrap_or(0));
            rest = &rest[5..];
        }
    }
    plain.extend_from_slice(rest);
    plain
}

/// Every file below a folder. What vanishes meanwhile, or may not be read, is left out.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = |path: PathBuf| {
        let meta = path.symlink_metadata().ok();
        match meta.map(|meta| meta.file_type()) {
            Some(kind) if kind.is_dir() => files(&path),
            Some(kind) if kind.is_file() => vec![path],
            _ => Vec::new(),
        }
    };
    entries.flat_map(below).collect()
}

/// The files below a folder that the key stands in, by content or by name.
pub fn files_with_key(dir: &Path) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        holds_key(path.as_os_str().as_encoded_bytes()) || fs::read(path).is_ok_and(|bytes| holds_key(&bytes))
    };
    files(dir).into_iter().filter(holds).collect()
}

/// The client was not heard to say the key, and left it nowhere below a folder.
#[track_caller]
pub fn key_is_nowhere(dir: &Path, said: &[&[u8]]) {
    assert!(!said.iter().any(|said| holds_key(said)), "the API key is said");
    let found = files_with_key(dir);
    assert!(found.is_empty(), "the API key is in {found:?}");
}
