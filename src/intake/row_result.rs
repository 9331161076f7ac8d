//! What comes of a row, on its way from the thread that judged it to the draft.

use crate::domain::diagnostic::Diagnostic;
use crate::intake::row_validator::{JudgedRow, ValidateStep};
use crate::store::StoreError;
use crate::store::staging::EncodedRow;

/// What comes of a row, for the draft.
pub(super) enum RowResult {
    Row(Result<EncodedRow, StoreError>, Vec<Diagnostic>),
    Unread {
        line: u64,
        problems: Vec<Diagnostic>,
        notes: Vec<Diagnostic>,
        is_row: bool,
    },
    /// It is not in the part that is handed in: its `id` and its line, where it has an `id`.
    LeftOut(Option<(String, u64)>),
}

impl RowResult {
    pub(super) fn of(JudgedRow { step, notes, is_row }: JudgedRow) -> RowResult {
        match step {
            ValidateStep::Row(row) => RowResult::Row(EncodedRow::new(row), notes),
            ValidateStep::Unread(line, problems) => RowResult::Unread { line, problems, notes, is_row },
        }
    }
}
