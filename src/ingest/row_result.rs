//! What comes of a row, on its way from the thread that validated it to the draft.

use crate::domain::diagnostic::Diagnostic;
use crate::domain::manifest::row::ReadRow;
use crate::ingest::row_validator::{RowValidation, RowValidator, ValidateStep};
use crate::ingest::validation_cache::ValidationCache;
use crate::store::StoreError;
use crate::store::staging::EncodedRow;

/// What comes of a row, for the draft.
pub(super) enum RowResult {
    Row(Result<EncodedRow, StoreError>, Vec<Diagnostic>),
    Unread {
        line: u64,
        id: Option<String>,
        problems: Vec<Diagnostic>,
        notes: Vec<Diagnostic>,
        is_row: bool,
    },
    /// It is not in the part that is handed in: its `id` and its line, where it has an `id`.
    LeftOut(Option<(String, u64)>),
}

impl RowResult {
    /// Of a row; an error is one that is not in the part.
    pub(super) fn of(
        chosen: &mut Result<ReadRow, ReadRow>,
        validator: &RowValidator<'_>,
        cache: &mut ValidationCache<'_>,
    ) -> RowResult {
        match chosen {
            Ok(read) => RowResult::validated(validator.validate_row(read, cache)),
            Err(ReadRow::Good(row)) => {
                let line = row.position.line;
                RowResult::LeftOut(row.id.take().map(|id| (id, line)))
            }
            Err(ReadRow::Bad(_) | ReadRow::Unreadable(_)) => RowResult::LeftOut(None),
        }
    }

    fn validated(RowValidation { step, notes, is_row }: RowValidation) -> RowResult {
        match step {
            ValidateStep::Row(row) => RowResult::Row(EncodedRow::new(row), notes),
            ValidateStep::Unread(line, id, problems) => {
                RowResult::Unread { line, id, problems, notes, is_row }
            }
        }
    }
}
