//! What comes of a row, on its way from the thread that validated it to the draft.

use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::Fingerprint;
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
    /// It is not in the part that is handed in.
    LeftOut(LeftOut),
}

/// What counts of a row that is not in the part of the manifest that is handed in.
pub(super) enum LeftOut {
    /// Its `id` and its line.
    Label(String, u64),
    /// Without an `id`: who it is, and how many variations it wants. Rows of the part that want the same are told apart by
    /// how many come before them.
    Occurrence(Fingerprint, u32),
    Nothing,
}

/// A row that is not in the part that is handed in.
pub(super) struct LeftOutRow {
    pub read: ReadRow,
    /// A row without an `id` may come after it that is in the part.
    pub is_counted: bool,
}

impl RowResult {
    /// Of a row; an error is one that is not in the part. `left_out` identifies those.
    pub(super) fn of(
        chosen: &mut Result<ReadRow, LeftOutRow>,
        validator: &RowValidator<'_>,
        left_out: &RowValidator<'_>,
        cache: &mut ValidationCache<'_>,
    ) -> RowResult {
        match chosen {
            Ok(read) => RowResult::validated(validator.validate_row(read, cache)),
            Err(LeftOutRow { read: ReadRow::Good(row), is_counted }) => {
                RowResult::LeftOut(match row.id.take() {
                    Some(id) => LeftOut::Label(id, row.position.line),
                    None if *is_counted => match left_out.occurrence(row) {
                        Some(fingerprint) => LeftOut::Occurrence(fingerprint, row.count),
                        None => LeftOut::Nothing,
                    },
                    None => LeftOut::Nothing,
                })
            }
            Err(LeftOutRow { read: ReadRow::Bad(_) | ReadRow::Unreadable(_), .. }) => {
                RowResult::LeftOut(LeftOut::Nothing)
            }
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
