//! One line of a plan: a job, or a row that is not valid.

use std::io;
use std::path::Path;

use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, JobId};
use crate::domain::job::Order;
use crate::domain::problem::Problem;
use crate::intake::{JudgedRow, Outcome};
use crate::store::draft::Draw;

/// What would become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    New,
    Have,
    Invalid,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::New => "new",
            Verdict::Have => "have",
            Verdict::Invalid => "invalid",
        }
    }
}

/// A line of the plan. A row with a `count` has a line for each of its jobs.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) file: &'a Path,
    pub(super) batch: Option<&'a BatchName>,
    pub(super) line: u64,
    pub(super) id: Option<&'a str>,
    /// Who it is, where it could be sent.
    pub(super) job: Option<JobId>,
    pub(super) verdict: Verdict,
    /// What it is, where that could be told.
    pub(super) order: Option<&'a Order>,
    pub(super) draws: Option<&'a Draw>,
    pub(super) problems: &'a [Problem],
}

impl Entry<'_> {
    /// What it may cost: its price, or what its row allows.
    pub(super) fn hold(&self) -> Credits {
        self.order.and_then(Order::hold).unwrap_or_default()
    }

    /// What it is called on a screen.
    pub(super) fn name(&self) -> &str {
        self.id.unwrap_or("-")
    }
}

/// Shows the lines of a row.
pub(super) fn each(
    file: &Path,
    batch: Option<&BatchName>,
    row: &JudgedRow,
    mut see: impl FnMut(&Entry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let blank = Entry {
        file,
        batch,
        line: row.line,
        id: None,
        job: None,
        verdict: Verdict::Invalid,
        order: None,
        draws: None,
        problems: &[],
    };
    match &row.outcome {
        Outcome::Jobs(jobs) => {
            for (job, label, is_new) in jobs.labels() {
                see(&Entry {
                    id: Some(&label),
                    job: Some(job),
                    verdict: if is_new { Verdict::New } else { Verdict::Have },
                    order: Some(&jobs.order),
                    draws: jobs.draws.as_ref(),
                    ..blank
                })?;
            }
        }
        Outcome::Kept { id, count } => {
            for _ in 0..*count {
                see(&Entry { id: id.as_deref(), verdict: Verdict::Have, ..blank })?;
            }
        }
        Outcome::Invalid { id, known, problems } => {
            for _ in 0..*known {
                see(&Entry { id: id.as_deref(), verdict: Verdict::Have, ..blank })?;
            }
            see(&Entry { id: id.as_deref(), problems, ..blank })?;
        }
    }
    Ok(())
}
