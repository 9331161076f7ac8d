//! The jobs of a manifest, counted by what becomes of them.

use crate::domain::batch_origin::Origin;
use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ledger::Totals;
use crate::domain::row_verdict::RowVerdict;
use crate::ingest::receipt::Receipt;
use crate::ingest::row_outcome::{Outcome, PlannedJob, kept};
use crate::ingest::validated_rows::{Rows, outcome};
use crate::store::StoreError;
use crate::store::staging::{
    AcceptedTerms, AskedJobs, KnownJob, RowRequest, RowWithVerdict, StagedManifest, Verdict,
};

/// Counts jobs by what becomes of them, and adds up their prices. `expired` says why none that is new is taken in.
///
/// # Errors
/// When the file that holds the rows cannot be read.
pub(super) fn count(
    staged: &StagedManifest,
    expired: Option<&Diagnostic>,
    origin: Option<&Origin>,
    receipt: &mut Receipt,
) -> Result<(), StoreError> {
    let is_plain = expired.is_none() && !receipt.file_refused && receipt.by_group.is_empty();
    if is_plain && staged.all_new().is_some_and(|jobs| receipt.count_new(jobs)) {
        return Ok(());
    }
    let mut rows = Rows { rows: staged.rows()?, refusal: None, expired };
    // A problem of the file has been counted.
    let mut file_rows = u32::from(receipt.file_refused);
    let mut perhaps_charged = Credits::ZERO;
    while let Some(found) = rows.rows.next_row()? {
        if is_plain && new_jobs(&found).is_some_and(|jobs| receipt.count_new(jobs)) {
            continue;
        }
        let line = found.row.line;
        match rows.in_time(outcome(found)?) {
            _ if file_rows > 0 => file_rows -= 1,
            Outcome::Jobs(jobs) => {
                perhaps_charged = perhaps_charged + jobs.perhaps_charged;
                for PlannedJob { verdict, credits, .. } in jobs.each() {
                    receipt.count(verdict, credits);
                    if verdict.is_to_be_spent() && !receipt.by_group.is_empty() {
                        let planned = Totals { held: credits, ..Totals::default() };
                        receipt.by_group.add(planned, None, &jobs.order.meta, origin);
                    }
                }
                if let Some((place, terms)) = jobs.other_terms()
                    && let Some(job) = jobs.each().nth(place)
                {
                    receipt.note_kept_terms(
                        line,
                        &job.label,
                        terms,
                        AcceptedTerms::of(&jobs.order).rounded(),
                    );
                }
                if let Some(first) = jobs.each().find(|job| job.verdict == RowVerdict::Changed) {
                    receipt.note_changed(line, &first.label, jobs.changed(), jobs.before);
                } else if !jobs.changed().is_empty()
                    && let Some(first) = jobs.each().next()
                {
                    receipt.note_back((line, &first.label), jobs.each().count(), jobs.changed(), jobs.before);
                }
                if let Some(first) = jobs.each().next().filter(|_| jobs.dropped > 0) {
                    receipt.note_dropped(line, &first.label, jobs.dropped);
                }
            }
            Outcome::Kept { id, known, problems } => {
                count_kept(receipt, &known);
                if let Some(waits) = known.iter().flatten().find(|known| known.standing.waits()) {
                    let label = id.unwrap_or_else(|| "its job".to_owned());
                    receipt.note_kept_limit(&label, waits.terms.max_credits, problems);
                }
            }
            Outcome::Invalid { known, problems, .. } => {
                count_kept(receipt, &known);
                receipt.refuse_row(problems);
            }
        }
    }
    if !perhaps_charged.is_zero() {
        receipt.note_perhaps_charged(perhaps_charged);
    }
    Ok(())
}

/// The jobs of a row, where all of them are new; nothing where that takes a look into its order.
fn new_jobs(found: &RowWithVerdict) -> Option<AskedJobs> {
    let RowRequest::Order(order) = &found.row.wanted else { return None };
    let is_new = matches!(found.verdict, Verdict::Wanted { have: 0, .. }) && found.replaces.is_none();
    is_new.then(|| AskedJobs::of(found.row.count, order.hold.unwrap_or_default()))
}

fn count_kept(receipt: &mut Receipt, known: &[Option<KnownJob>]) {
    kept(known).for_each(|(verdict, credits, _)| receipt.count(verdict, credits));
}
