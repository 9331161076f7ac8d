//! What in an inbox is nobody's manifest, by its name alone.
//!
//! Only names with a manifest's ending are taken. Programs put copies beside a manifest that are written, saved or
//! uploaded (`spring.csv.filepart`, `spring.csv.bak`): each would be bought as a batch of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How a receipt's name ends.
pub(super) const RECEIPT_ENDING: &str = ".receipt.json";
/// Endings of names that a writer uses until it is done, in small letters.
const UNFINISHED_ENDINGS: [&[u8]; 3] = [b".tmp", b".part", b"~"];

/// Endings of manifests, in small letters.
const MANIFEST_ENDINGS: [&str; 6] = ["csv", "tsv", "txt", "json", "jsonl", "ndjson"];

/// Whether a name has the ending of a manifest.
pub(super) fn has_manifest_ending(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().map(OsStr::to_ascii_lowercase);
    ending.is_some_and(|ending| MANIFEST_ENDINGS.iter().any(|known| ending == *known))
}

/// What is said of a file whose ending is another one.
pub(super) fn other_ending_report(path: &Path) -> String {
    let endings = MANIFEST_ENDINGS.map(|ending| format!(".{ending}")).join(", ");
    format!(
        "{} is ignored: only manifests are taken here, and its name ends with none of {endings}; if it is one, rename it",
        path.display()
    )
}

/// Whether a name is left alone without a word: dotfiles, `*.tmp`, `*.part`, `*~`; what editors and office programs save by
/// themselves (`#m.csv#`, `~$m.csv`), which would be read as a batch of its own; and receipts that came back with a
/// corrected manifest.
pub(super) fn is_left_alone(name: &OsStr) -> bool {
    let name = name.as_bytes().to_ascii_lowercase();
    name.starts_with(b".")
        || name.starts_with(b"~$")
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
        for name in names.into_iter().chain(["#m.csv#", "m.csv.receipt.json", ".", "~", "~$m.csv"]) {
            assert!(is_left_alone(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn everything_else_that_ends_as_a_manifest_is_one() {
        let is_manifest = |name: &OsStr| !is_left_alone(name) && has_manifest_ending(name);
        let names = ["m.csv", "M.TSV", "m.txt", "m.json", "m.jsonl", "m.NDJSON", "part.csv", "m.tmp.csv"];
        for name in names.into_iter().chain(["~m.csv", "#1.csv", "receipt.json", "m\n.csv"]) {
            assert!(is_manifest(OsStr::new(name)), "{name}");
        }
        assert!(is_manifest(OsStr::from_bytes(b"\xFF.csv")));
    }

    #[test]
    fn copies_that_programs_make_beside_a_manifest_are_none() {
        let endings = [
            "filepart",
            "crdownload",
            "partial",
            "swp",
            "bak",
            "upload",
            "lock",
            "download",
            "!ut",
            "aB3dEf",
        ];
        let copies = endings.map(|ending| format!("spring.csv.{ending}"));
        let others =
            ["Thumbs.db", "desktop.ini", "README", "4913", "m", "tmp", "csv", "m.csv."].map(str::to_owned);
        for name in copies.into_iter().chain(others) {
            assert!(!has_manifest_ending(OsStr::new(&name)), "{name}");
        }
        let report = other_ending_report(Path::new("inbox/spring.csv.bak"));
        assert!(
            report.contains("inbox/spring.csv.bak is ignored") && report.contains(".csv, .tsv, .txt"),
            "{report}"
        );
    }
}
