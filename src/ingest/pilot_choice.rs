//! The rows of a manifest that are done first, chosen once it is known which of its rows are new.

use std::collections::HashSet;

use crate::domain::ids::Fingerprint;
use crate::domain::pilot::{Pilot, PilotChooser, PilotRows, RowPlace};
use crate::domain::row_verdict::JobStanding;
use crate::ingest::receipt::Receipt;
use crate::store::StoreError;
use crate::store::staging::{RowRequest, RowWithVerdict, StagedManifest, Verdict};

/// What comes of a manifest in a batch that has a pilot, or gets one.
#[derive(Debug)]
pub(super) struct PilotPlan {
    /// The pilot of the batch with this manifest.
    pub(super) pilot: Pilot,
    /// Its rows in this manifest.
    pub(super) rows: HashSet<Fingerprint>,
}

/// Which rows are asked for, and what there is already.
#[derive(Debug, Clone, Copy)]
pub(super) struct PilotTerms<'a> {
    /// What the command asks for.
    pub(super) asked: Option<PilotRows>,
    /// The pilot that the batch has.
    pub(super) standing: Option<Pilot>,
    /// Where its rows lie: the byte of the first one and the byte after the last one of each part.
    pub(super) standing_rows: &'a [(u64, u64)],
    /// Rows of the manifest may take outputs of others.
    pub(super) has_references: bool,
}

/// Chooses among the new rows. Nothing where the batch has no pilot afterwards: none is asked for, or nothing would wait for
/// its end.
///
/// # Errors
/// When the rows cannot be read.
pub(super) fn choose(
    staged: &StagedManifest,
    terms: PilotTerms<'_>,
    receipt: &Receipt,
) -> Result<Option<PilotPlan>, StoreError> {
    let PilotTerms { asked, standing, standing_rows, has_references } = terms;
    let is_of_rest = |at: u64| standing_rows.iter().all(|(from, end)| at < *from || at >= *end);
    if asked.is_none() && standing.is_none() {
        return Ok(None);
    }
    let rows = match asked {
        Some(asked) => chosen(staged, asked, has_references)?,
        None => HashSet::new(),
    };
    // What was accepted without a pilot and was not sent yet waits as well.
    let mut pilot = standing.unwrap_or(Pilot {
        rest_jobs: receipt.waiting,
        rest_credits: receipt.total_credits.saturating_sub(receipt.price),
        ..Pilot::default()
    });
    let mut all = staged.rows()?;
    while let Some(found) = all.next_row()? {
        let jobs = new_jobs(&found);
        let RowRequest::Order(order) = &found.row.wanted else { continue };
        if jobs > 0 {
            let credits = order.hold.unwrap_or_default().times(jobs);
            pilot.count(rows.contains(&found.row.fingerprint), jobs, credits);
        }
        for change in found.changes.iter().filter(|_| standing.is_some()) {
            if change.was_wanted && change.standing == JobStanding::Waiting && is_of_rest(change.before) {
                let before = found.replaces.as_ref().and_then(|(before, _)| before.order.hold());
                pilot.change_waiting(false, before.unwrap_or_default());
            }
            // A version that waits, and that the manifest goes back to.
            let goes_back = |(_, at)| !change.is_dropped && is_of_rest(at);
            if change.back_to.is_some_and(goes_back) && waits(&found, change.variation) {
                pilot.change_waiting(true, order.hold.unwrap_or_default());
            }
        }
    }
    Ok(Some(PilotPlan { pilot, rows }).filter(|plan| plan.pilot.rest_jobs > 0 || standing.is_some()))
}

fn chosen(
    staged: &StagedManifest,
    asked: PilotRows,
    has_references: bool,
) -> Result<HashSet<Fingerprint>, StoreError> {
    let mut chooser = PilotChooser::new(asked);
    let mut rows = staged.rows()?;
    while let Some(found) = rows.next_row()? {
        let jobs = new_jobs(&found);
        let RowRequest::Order(order) = found.row.wanted else { continue };
        let parents = match has_references {
            true => order.order()?.inputs.iter().map(|input| input.fingerprint).collect(),
            false => Vec::new(),
        };
        let place = RowPlace { line: found.row.line, cell: found.row.cell };
        chooser.look_at(found.row.fingerprint, place, jobs > 0, parents);
    }
    Ok(chooser.finish())
}

/// Whether the job that the batch has of a variation waits in the queue, or does so once it is wanted again.
fn waits(found: &RowWithVerdict, variation: u32) -> bool {
    let Verdict::Wanted { first, .. } = found.verdict else { return false };
    let index = variation.checked_sub(first).and_then(|index| usize::try_from(index).ok());
    let known = index.and_then(|index| found.known.get(index)?.as_ref());
    known.is_some_and(|known| known.standing == JobStanding::Waiting)
}

/// How many jobs of a row the batch does not have yet.
pub(super) fn new_jobs(found: &RowWithVerdict) -> u32 {
    u32::try_from(found.new_variations().count()).unwrap_or(u32::MAX)
}
