//! Whether a manifest adds the one take that it is there for, and nothing else.

use crate::domain::diagnostic::{Diagnostic, Position};
use crate::ingest::context::ExpectedTake;
use crate::ingest::pilot_choice;
use crate::store::StoreError;
use crate::store::staging::{StagedManifest, VariationChange};

/// Why nothing of it may be accepted; nothing where it adds that take alone.
///
/// # Errors
/// When the rows cannot be read.
pub(super) fn problem(
    staged: &StagedManifest,
    expected: ExpectedTake,
) -> Result<Option<Diagnostic>, StoreError> {
    let (mut is_there, mut is_more) = (false, staged.goes_back());
    let mut rows = staged.rows()?;
    while let Some(found) = rows.next_row()? {
        let is_row = found.row.fingerprint == expected.fingerprint;
        let was_dropped = |change: &VariationChange| change.variation == expected.take && !change.is_dropped;
        if is_row && found.changes.iter().any(|change| was_dropped(change) && change.back_to.is_some()) {
            let take = expected.take;
            let message = format!("take {take} was dropped before it was sent, when the row was edited");
            let hint = format!("submit the manifest again with count {take} in the row");
            return Ok(Some(Diagnostic::at(Position::line(1), message).hint(hint)));
        }
        let jobs = pilot_choice::new_jobs(&found);
        if jobs == 0 {
            continue;
        }
        let is_take = found.new_variations().all(|variation| variation == expected.take);
        let is_expected = is_row && is_take && jobs == 1;
        is_more |= is_there || !is_expected;
        is_there |= is_expected;
    }
    if is_there && !is_more {
        return Ok(None);
    }
    // It is another row as soon as another take of a row is chosen of which it is made.
    let message = "it is made of other rows, of which other takes are chosen by now";
    Ok(Some(Diagnostic::at(Position::line(1), message).hint("submit the manifest again first")))
}
