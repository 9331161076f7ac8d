//! What came of a command for each batch: printed as JSON, and the exit code.

use std::io::Write;

use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::written;
use crate::domain::exit_code::Exit;
use crate::server::protocol::{BatchOutcome, BatchOutcomes};

/// Prints the outcomes with `--json`, as the daemon would answer, and returns them for printing as text.
pub(super) fn print(outcomes: BatchOutcomes, global: &Global) -> Result<Vec<BatchOutcome>, Failure> {
    if global.json {
        written(writeln!(anstream::stdout(), "{:#}", json!(outcomes)))?;
    }
    Ok(outcomes.batches)
}

/// How a command ends that reports for each batch why nothing was to be done: it has failed where a batch was left alone.
pub(super) fn exit_of_each(outcomes: &[BatchOutcome]) -> Exit {
    if outcomes.iter().any(|outcome| outcome.result.left_alone) { Exit::Usage } else { Exit::Success }
}

/// How a command ends whose outcomes are printed: it has failed where what it names refused it.
///
/// # Errors
/// [`Exit::Usage`] with the reason.
pub(super) fn exit(outcomes: &[BatchOutcome], named: &str) -> Result<Exit, Failure> {
    match outcomes.iter().find_map(|outcome| outcome.result.refused.as_ref()) {
        Some(why) => Err(Failure::new(Exit::Usage, format!("{named}: {why}"))),
        None => Ok(Exit::Success),
    }
}
