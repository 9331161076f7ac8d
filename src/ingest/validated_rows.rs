//! The rows of a manifest that was validated, one after the other.

use crate::domain::credits::Credits;
use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::row_changes;
use crate::domain::row_verdict::JobStanding;
use crate::ingest::receipt::is_missed_deadline;
use crate::ingest::row_outcome::{Jobs, Outcome};
use crate::store::StoreError;
use crate::store::staging::{KnownJob, RowRequest, RowWithVerdict, StagedRow, StagedRows, Verdict};

/// One row of a validated manifest.
#[derive(Debug)]
pub struct ValidatedRow {
    /// Its line of the manifest.
    pub line: u64,
    /// Its jobs, or what is wrong with it.
    pub outcome: Outcome,
}

/// The rows of a validated manifest, one after the other.
#[derive(Debug)]
pub struct Rows<'a> {
    pub(super) rows: StagedRows<'a>,
    /// Of the whole file: told in place of its rows, once.
    pub(super) refusal: Option<&'a Diagnostic>,
    pub(super) expired: Option<&'a Diagnostic>,
}

impl Rows<'_> {
    /// The next row; nothing at the end.
    ///
    /// # Errors
    /// When the file that holds them cannot be read.
    pub fn next_row(&mut self) -> Result<Option<ValidatedRow>, StoreError> {
        let Some(found) = self.rows.next_row()? else { return Ok(None) };
        if let Some(refusal) = self.refusal {
            while self.rows.next_row()?.is_some() {}
            let outcome = Outcome::Invalid { id: None, known: Vec::new(), problems: vec![refusal.clone()] };
            return Ok(Some(ValidatedRow { line: refusal.line(), outcome }));
        }
        Ok(Some(ValidatedRow { line: found.row.line, outcome: self.in_time(outcome(found)?) }))
    }

    /// What is there already of a batch whose time is over stays; nothing is added to it.
    pub(super) fn in_time(&self, outcome: Outcome) -> Outcome {
        match (outcome, self.expired) {
            (Outcome::Jobs(jobs), Some(expired)) if jobs.new_count() > 0 => {
                let problems = vec![expired.clone().positioned(Position::line(jobs.order.line))];
                Outcome::Invalid { id: jobs.id, known: jobs.known, problems }
            }
            (outcome, _) => outcome,
        }
    }
}

/// No retry takes up jobs that expired and whose deadline has passed.
fn without_retry(mut known: Vec<Option<KnownJob>>, problems: &[Diagnostic]) -> Vec<Option<KnownJob>> {
    if problems.iter().any(is_missed_deadline) {
        let expired = known.iter_mut().flatten().filter(|known| known.standing == JobStanding::Expired);
        expired.for_each(|known| known.standing = JobStanding::FailedForGood);
    }
    known
}

/// A job that waits costs what its row does today, where its owner allowed that since it was accepted.
fn at_present_price(mut known: Vec<Option<KnownJob>>, problems: &[Diagnostic]) -> Vec<Option<KnownJob>> {
    if let [Diagnostic { price: Some(price), .. }] = problems {
        let is_allowed = |job: &KnownJob| job.terms.max_credits.is_some_and(|most| *price <= most);
        let waiting = known.iter_mut().flatten().filter(|job| job.standing.waits() && is_allowed(job));
        waiting.for_each(|job| job.credits = Some(*price));
    }
    known
}

/// What becomes of a row.
///
/// # Errors
/// When its order cannot be read.
pub(super) fn outcome(found: RowWithVerdict) -> Result<Outcome, StoreError> {
    let RowWithVerdict { row, verdict, known, replaces, changes } = found;
    let dropped = changes.iter().filter(|change| change.is_dropped).count();
    let StagedRow { fingerprint, label: id, count, line, draws, wanted, .. } = row;
    let first = match verdict {
        Verdict::Wanted { first, .. } => first,
        Verdict::RepeatedId { first_line } => {
            let message = format!("is already used at line {first_line}; an id names one row");
            let problem = Diagnostic::at(Position::line(line), message).in_field("id");
            return Ok(Outcome::Invalid { id, known, problems: vec![problem] });
        }
        Verdict::Unread => 1,
    };
    Ok(match wanted {
        RowRequest::Order(order) => {
            let order = order.order()?;
            let before = replaces.as_ref().map(|(_, standing)| *standing);
            let perhaps_charged = match &replaces {
                Some((before, JobStanding::PerhapsSent)) => {
                    let replaced = changes.iter().filter(|change| change.was_wanted).count();
                    let replaced = u32::try_from(replaced).unwrap_or(u32::MAX);
                    before.order.hold().unwrap_or_default().times(replaced)
                }
                _ => Credits::ZERO,
            };
            let changed = replaces.map(|(before, _)| row_changes::differences(&before.order, &order));
            let changed = changed.unwrap_or_default();
            Outcome::Jobs(Box::new(Jobs {
                order,
                draws,
                id,
                fingerprint,
                first,
                count,
                known,
                changed,
                before,
                perhaps_charged,
                dropped,
            }))
        }
        RowRequest::Invalid(problems) if known.iter().flatten().count() == count as usize => {
            let known = at_present_price(without_retry(known, &problems), &problems);
            Outcome::Kept { id, known, problems }
        }
        RowRequest::Invalid(problems) => Outcome::Invalid { id, known, problems },
    })
}
