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

/// Reads the table `name` of a manifest in `folder`.
///
/// # Errors
/// Why it is not read, as a sentence.
pub fn read(folder: &Path, roots: Roots<'_>, name: &str) -> Result<Vec<u8>, String> {
    let path = folder.join(name);
    if let Roots::Below(roots) = roots {
        // Without a word on what lies elsewhere.
        let found = path.canonicalize().ok();
        let is_below = |root: &PathBuf| {
            let root = root.canonicalize().ok();
            found.as_ref().zip(root).is_some_and(|(found, root)| found.starts_with(root))
        };
        if !roots.iter().any(is_below) {
            let allowed: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
            let allowed = match allowed.is_empty() {
                true => "the configuration names no folder; a manifest that is handed in by `callsheet submit` brings its tables".to_owned(),
                false => format!("allowed are files below {}", allowed.join(", ")),
            };
            return Err(format!("the table {name} is not a file below a folder of inputs.roots: {allowed}"));
        }
    }
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
