//! What in an inbox is nobody's manifest, by its name alone.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// How a receipt's name ends.
pub(super) const RECEIPT_ENDING: &str = ".receipt.json";
/// Endings of names that a writer uses until it is done, in small letters.
const UNFINISHED_ENDINGS: [&[u8]; 3] = [b".tmp", b".part", b"~"];

/// Whether a name is left alone: dotfiles, `*.tmp`, `*.part`, `*~`; what editors save by themselves
/// (`#m.csv#`), which would be read as a batch of its own; and receipts that came back with a corrected
/// manifest.
pub(super) fn is_left_alone(name: &OsStr) -> bool {
    let name = name.as_bytes().to_ascii_lowercase();
    name.starts_with(b".")
        || UNFINISHED_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || (name.starts_with(b"#") && name.ends_with(b"#"))
        || name.ends_with(RECEIPT_ENDING.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_and_private_names_are_left_alone() {
        let names = [".m.csv", ".m.csv.swp", "m.csv.tmp", "M.CSV.TMP", "m.csv.part", "m.csv~", "m.csv.~1~"];
        for name in names.into_iter().chain(["#m.csv#", "m.csv.receipt.json", ".", "~"]) {
            assert!(is_left_alone(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn everything_else_is_a_manifest() {
        for name in
            ["m.csv", "m", "tmp", "part.csv", "m.tmp.csv", "~m.csv", "#1.csv", "receipt.json", "m\n.csv"]
        {
            assert!(!is_left_alone(OsStr::new(name)), "{name}");
        }
        assert!(!is_left_alone(OsStr::from_bytes(b"\xFF.csv")));
    }
}
