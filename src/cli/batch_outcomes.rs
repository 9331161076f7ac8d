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

/// How a command ends whose outcomes are printed: it has failed where a batch, or the job that was named, refused it.
///
/// # Errors
/// [`Exit::Usage`] with the reasons.
pub(super) fn exit(outcomes: &[BatchOutcome], named: Option<&str>) -> Result<Exit, Failure> {
    let refused = outcomes.iter().filter_map(|BatchOutcome { batch, result }| {
        let name = named.unwrap_or(batch.as_str());
        result.refused.as_ref().map(|why| format!("{name}: {why}"))
    });
    match refused.collect::<Vec<_>>() {
        refused if refused.is_empty() => Ok(Exit::Success),
        refused => Err(Failure::new(Exit::Usage, refused.join("; "))),
    }
}
