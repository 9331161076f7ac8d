//! Files that a manifest names beside itself: the tables of its matrix.
//!
//! Who may drop a manifest must not read any file of the machine by it: a daemon reads only what lies below the
//! folders that its configuration allows. What a person names on the command line the client reads, and hands over.

use std::fs;
use std::path::{Path, PathBuf};

use crate::domain::manifest::Limits;

/// Below which folders files may lie.
#[derive(Debug, Clone, Copy)]
pub enum Roots<'a> {
    /// Anywhere: a person named the manifest.
    Any,
    /// Below one of these.
    Below(&'a [PathBuf]),
}

impl Roots<'_> {
    /// The path to read a file by, with its links followed where only some folders are allowed.
    ///
    /// # Errors
    /// What is allowed, where it does not lie there. Without a word on what lies elsewhere.
    pub(super) fn path_of(self, path: &Path) -> Result<PathBuf, String> {
        let Roots::Below(roots) = self else { return Ok(path.to_owned()) };
        let found = path.canonicalize().ok();
        let is_below = |found: &PathBuf| {
            let mut roots = roots.iter().filter_map(|root| root.canonicalize().ok());
            roots.any(|root| found.starts_with(root))
        };
        found.filter(is_below).ok_or_else(|| {
            let allowed: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
            match allowed.is_empty() {
                true => "the configuration names no folder; a manifest that is handed in by `callsheet submit` brings \
                         its files"
                    .to_owned(),
                false => format!("allowed are files below {}", allowed.join(", ")),
            }
        })
    }
}

/// Reads the table `name` of a manifest in `folder`.
///
/// # Errors
/// Why it is not read, as a sentence.
pub fn read(folder: &Path, roots: Roots<'_>, name: &str) -> Result<Vec<u8>, String> {
    let path = folder.join(name);
    let path = roots.path_of(&path).map_err(|allowed| {
        format!("the table {name} is not a file below a folder of inputs.roots: {allowed}")
    })?;
    let failed = |error: std::io::Error| format!("failed to read the table {}: {error}", path.display());
    let meta = fs::metadata(&path).map_err(failed)?;
    if !meta.is_file() {
        return Err(format!("failed to read the table {}: it is not a file", path.display()));
    }
    let most = Limits::default().max_json_bytes;
    if meta.len() > most as u64 {
        return Err(format!("the table {} is larger than {} MiB", path.display(), most >> 20));
    }
    fs::read(&path).map_err(failed)
}
