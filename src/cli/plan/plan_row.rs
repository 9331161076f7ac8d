//! One line of a plan: a job, or a row that is not valid.

use std::io;
use std::path::Path;

use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::{BatchName, JobId};
use crate::domain::job::Order;
use crate::domain::row_changes::FieldChange;
use crate::domain::row_verdict::RowVerdict;
use crate::ingest::{self, Outcome, ValidatedRow};
use crate::store::staging::{AllowanceDraw, KnownJob};

/// A line of the plan. A row with a `count` has a line for each of its jobs.
#[derive(Debug)]
pub(super) struct PlanRow<'a> {
    pub(super) file: &'a Path,
    pub(super) batch: Option<&'a BatchName>,
    pub(super) line: u64,
    pub(super) id: Option<&'a str>,
    /// Its identity, if it could be sent.
    pub(super) job: Option<JobId>,
    pub(super) verdict: RowVerdict,
    /// Its order, if the row could be read.
    pub(super) order: Option<&'a Order>,
    pub(super) draws: Option<&'a AllowanceDraw>,
    /// What is still to be spent for it, what is set aside or charged for it, or what `retry` would cost.
    pub(super) credits: Credits,
    /// An earlier manifest of the plan wants it, too, and it is counted there.
    pub(super) is_counted: bool,
    /// In what its row differs from the one of the same `id` that the batch has, or, where the batch has this one, too,
    /// from the one that was wanted until now.
    pub(super) changed: &'a [FieldChange],
    pub(super) problems: &'a [Diagnostic],
}

impl PlanRow<'_> {
    /// What is still to be spent for it, where it is not counted elsewhere.
    pub(super) fn to_be_spent(&self) -> Credits {
        if self.is_counted_here() && self.verdict.is_to_be_spent() { self.credits } else { Credits::ZERO }
    }

    pub(super) fn is_counted_here(&self) -> bool {
        !self.is_counted
    }

    /// What it is called on a screen.
    pub(super) fn name(&self) -> &str {
        self.id.unwrap_or("-")
    }
}

/// Calls `see` with the jobs of a row, or with the row that is not valid.
pub(super) fn for_each(
    file: &Path,
    batch: Option<&BatchName>,
    row: &ValidatedRow,
    mut see: impl FnMut(&PlanRow<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let blank = PlanRow {
        file,
        batch,
        line: row.line,
        id: None,
        job: None,
        verdict: RowVerdict::Invalid,
        order: None,
        draws: None,
        credits: Credits::ZERO,
        is_counted: false,
        changed: &[],
        problems: &[],
    };
    let see_kept = |id: &Option<String>,
                    known: &[Option<KnownJob>],
                    see: &mut dyn FnMut(&PlanRow<'_>) -> io::Result<()>| {
        ingest::kept(known).try_for_each(|(verdict, credits, is_counted)| {
            see(&PlanRow { id: id.as_deref(), verdict, credits, is_counted, ..blank })
        })
    };
    match &row.outcome {
        Outcome::Jobs(jobs) => jobs.each().try_for_each(|job| {
            see(&PlanRow {
                id: Some(&job.label),
                job: Some(job.job),
                verdict: job.verdict,
                order: Some(&jobs.order),
                draws: jobs.draws.as_ref(),
                credits: job.credits,
                is_counted: job.is_counted,
                changed: jobs.changed(),
                ..blank
            })
        }),
        Outcome::Kept { id, known, .. } => see_kept(id, known, &mut see),
        Outcome::Invalid { id, known, problems } => {
            see_kept(id, known, &mut see)?;
            see(&PlanRow { id: id.as_deref(), problems, ..blank })
        }
    }
}
