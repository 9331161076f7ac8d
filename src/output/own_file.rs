//! Which of the files that lie in a folder of outputs are ours: results are written again and again, and must not replace what
//! somebody else put there under one of their names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;

use crate::file_system::rename;

/// Bytes of a file by which it is told whose it is.
const HEAD_BYTES: u64 = 512;
/// Other names that are tried.
const NAMES_MAX: u32 = 1_000;

/// A file that we write into folders of outputs beside the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnFile {
    ResultsJsonl,
    ResultsCsv,
    Report,
    Decisions,
    /// A page of a gallery, or the list of batches.
    Page,
}

impl OwnFile {
    /// Its name in the folder of a batch.
    pub const fn name(self) -> &'static str {
        match self {
            OwnFile::ResultsJsonl => "results.jsonl",
            OwnFile::ResultsCsv => "results.csv",
            OwnFile::Report => "report.json",
            OwnFile::Decisions => "decisions.csv",
            OwnFile::Page => "index.html",
        }
    }

    /// Where it is written in the folder of a batch until it is complete.
    pub(super) fn draft(self, dir: &Path) -> PathBuf {
        dir.join(format!(".{}.draft", self.name()))
    }

    /// Whether a file that begins so is one of ours, or what a power cut left of it. A table that was saved by a spreadsheet
    /// may have other separators and quotes.
    fn begins(self, head: &[u8]) -> bool {
        if head.iter().all(|byte| *byte == 0) {
            return true;
        }
        let text = String::from_utf8_lossy(head);
        let is_table = |names: [&str; 3]| {
            let line = text.trim_start_matches('\u{feff}').lines().next().unwrap_or_default();
            let mut cells = line.split([',', ';', '\t']).map(|cell| cell.trim_matches('"'));
            names.into_iter().all(|name| cells.next() == Some(name))
        };
        match self {
            OwnFile::ResultsJsonl => text.starts_with("{\"id\":") && text.contains("\"batch\":"),
            OwnFile::ResultsCsv => is_table(["id", "batch", "state"]),
            OwnFile::Report => text.starts_with("{\n  \"batch\": "),
            OwnFile::Decisions => is_table(["job", "take", "file"]),
            OwnFile::Page => text.starts_with("<!DOCTYPE html><html lang=\"en\" data-page=\""),
        }
    }

    /// Whether its place is free for it: nothing lies there, or one of ours. A link in the place of results is replaced, and what
    /// it leads to stays; a page is looked at through it. A folder refuses what is written there.
    ///
    /// # Errors
    /// What the disk says.
    pub fn is_free(self, path: &Path) -> io::Result<bool> {
        let found = match self {
            OwnFile::Page => path.metadata(),
            _ => path.symlink_metadata(),
        };
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
            Ok(found) if !found.is_file() => return Ok(true),
            Ok(_) => {}
        }
        let mut head = Vec::new();
        File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
        Ok(self.begins(&head))
    }

    /// Gives a draft its name in the folder of a batch. Something of somebody else that has it is renamed.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn put(self, dir: &Path) -> io::Result<()> {
        let path = dir.join(self.name());
        if !self.is_free(&path)? {
            let kept = keep(&path)?;
            tracing::warn!(
                file = %path.display(),
                kept = %kept.display(),
                "this file was there before and is not callsheet's: it was renamed, and ours has its name"
            );
        }
        fs::rename(self.draft(dir), path)
    }
}

/// Renames a file to a name that is free, beside it: `results.kept.csv`.
fn keep(path: &Path) -> io::Result<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    for n in 1..=NAMES_MAX {
        let number = if n == 1 { String::new() } else { format!("-{n}") };
        let kept = path.with_file_name(format!("{stem}.kept{number}.{ending}"));
        match rename(path, &kept, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(kept),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &Path, file: OwnFile, ours: &str) -> String {
        fs::write(file.draft(dir), ours).unwrap();
        file.put(dir).unwrap();
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.join(" ")
    }

    #[test]
    fn a_file_of_somebody_else_is_kept_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let ours = "id,batch,state,late\n";
        fs::write(dir.join("results.csv"), "name,score\nada,7\n").unwrap();
        assert_eq!(put(dir, OwnFile::ResultsCsv, ours), "results.csv results.kept.csv");
        assert_eq!(fs::read_to_string(dir.join("results.kept.csv")).unwrap(), "name,score\nada,7\n");
        // Ours is replaced, also what a spreadsheet made of it, or a power cut.
        for before in [ours, "\u{feff}\"id\";\"batch\";\"state\"\r\n", "", "\0\0\0"] {
            fs::write(dir.join("results.csv"), before).unwrap();
            assert_eq!(put(dir, OwnFile::ResultsCsv, ours), "results.csv results.kept.csv", "{before:?}");
        }
        // As often as somebody does it again.
        fs::write(dir.join("results.csv"), "name,score\nada,8\n").unwrap();
        assert_eq!(put(dir, OwnFile::ResultsCsv, ours), "results.csv results.kept-2.csv results.kept.csv");
        // A link is replaced, and not what it leads to.
        std::os::unix::fs::symlink("results.kept.csv", dir.join("report.json")).unwrap();
        assert_eq!(
            put(dir, OwnFile::Report, "{\n  \"batch\": \"b\"\n}\n"),
            "report.json results.csv results.kept-2.csv results.kept.csv"
        );
        assert_eq!(fs::read_to_string(dir.join("results.kept.csv")).unwrap(), "name,score\nada,7\n");
        // A page is somebody's also where a link leads to it.
        std::os::unix::fs::symlink("results.kept.csv", dir.join("index.html")).unwrap();
        assert!(!OwnFile::Page.is_free(&dir.join("index.html")).unwrap());
        assert!(OwnFile::Page.is_free(&dir.join("none.html")).unwrap());
    }
}
