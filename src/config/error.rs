//! Why a configuration cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use crate::domain::diagnostic::Diagnostic;

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file is not valid: everything that is wrong with it.
    #[error("{}", listed(.path, .problems))]
    Invalid { path: PathBuf, problems: Vec<Diagnostic> },
    /// A value is out of its range.
    #[error("{key}: {message}")]
    Value {
        key: &'static str,
        /// What was found, and what would be accepted.
        message: String,
    },
}

/// `callsheet.toml:2: limits.in_flight: ...`, a line for each.
fn listed(path: &Path, problems: &[Diagnostic]) -> String {
    let each = problems.iter().map(|problem| format!("{}:{problem}", path.display()));
    each.collect::<Vec<_>>().join("\n")
}
