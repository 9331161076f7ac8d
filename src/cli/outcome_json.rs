//! Prints the outcome of a command as JSON.

use std::io::Write;

use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::written;
use crate::server::protocol::{BatchOutcome, BatchOutcomes};

/// Prints the outcomes with `--json`, as the daemon would answer, and returns them for printing as text.
pub(super) fn print(outcomes: BatchOutcomes, global: &Global) -> Result<Vec<BatchOutcome>, Failure> {
    if global.json {
        written(writeln!(anstream::stdout(), "{:#}", json!(outcomes)))?;
    }
    Ok(outcomes.batches)
}
