//! What a manifest gives for a field, as its format has it.

use serde_json::Value;

use super::messages::{named, quoted};

/// What a manifest gives for a field.
#[derive(Debug, Clone)]
pub(super) enum CellValue<'a> {
    /// A CSV cell: trimmed and not empty.
    Cell(&'a str),
    Json(Value),
}

impl CellValue<'_> {
    /// As a message names it.
    pub(super) fn named(&self) -> String {
        match self {
            CellValue::Cell(cell) => quoted(cell),
            CellValue::Json(value) => named(value),
        }
    }
}
