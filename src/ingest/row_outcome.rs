//! What becomes of a row: the jobs that it wants, and where those stand that its batch has already.

use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::{Fingerprint, JobId, Seq};
use crate::domain::job::Order;
use crate::domain::job_label::label;
use crate::domain::row_changes::FieldChange;
use crate::domain::row_verdict::{JobStanding, RowVerdict};
use crate::store::StoreError;
use crate::store::staging::{AcceptedTerms, AllowanceDraw, ExistingJob, KnownJob, Staging};

/// What becomes of a row.
#[derive(Debug)]
pub enum Outcome {
    /// It wants jobs.
    Jobs(Box<Jobs>),
    /// It could not be sent today, but the batch has all of it from a day when it could.
    Kept {
        id: Option<String>,
        /// Where its jobs stand.
        known: Vec<Option<KnownJob>>,
        /// Why it could not be sent today.
        problems: Vec<Diagnostic>,
    },
    /// It wants nothing that can be sent.
    Invalid {
        /// Its `id`, where it could be read.
        id: Option<String>,
        /// Where those of its jobs stand that the batch has all the same.
        known: Vec<Option<KnownJob>>,
        /// Everything that is wrong with it.
        problems: Vec<Diagnostic>,
    },
}

/// The jobs of a row: as many as its `count`.
#[derive(Debug)]
pub struct Jobs {
    /// What each of them is.
    pub order: Order,
    /// The plan allowance that each would draw from.
    pub draws: Option<AllowanceDraw>,
    pub(super) id: Option<String>,
    pub(super) fingerprint: Fingerprint,
    pub(super) first: u32,
    pub(super) count: u32,
    /// As in [`RowWithVerdict`](crate::store::staging::RowWithVerdict).
    pub(super) known: Vec<Option<KnownJob>>,
    pub(super) changed: Vec<FieldChange>,
    /// Where the job stands of the row of the same `id` that the batch has, if that asks for something else.
    pub(super) before: Option<JobStanding>,
    /// What may have been charged for other versions of it that a state that is gone may have sent.
    pub(super) perhaps_charged: Credits,
    /// How many further variations another version of the row has that are not wanted any more.
    pub(super) dropped: usize,
}

/// One job of a row, as a plan shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedJob {
    pub job: JobId,
    /// What it is called.
    pub label: String,
    /// What becomes of it.
    pub verdict: RowVerdict,
    /// What is still to be spent for one that is new, changed or waiting; what is set aside or charged for one that is
    /// running or in doubt; what `retry` would cost for one that failed.
    pub credits: Credits,
    /// An earlier manifest of the same plan wants it, too, and it is counted there.
    pub is_counted: bool,
}

impl Jobs {
    /// How many of them the batch does not have.
    pub fn new_count(&self) -> u32 {
        self.count - self.known_count()
    }

    fn known_count(&self) -> u32 {
        // Never more than `count`.
        u32::try_from(self.known.iter().flatten().count()).unwrap_or(u32::MAX).min(self.count)
    }

    /// In what the row differs from the row of the same `id` that the batch has; nothing where it has none.
    pub fn changed(&self) -> &[FieldChange] {
        &self.changed
    }

    fn known_at(&self, index: u32) -> Option<&KnownJob> {
        self.known.get(index as usize)?.as_ref()
    }

    pub fn each(&self) -> impl Iterator<Item = PlannedJob> + '_ {
        (0..self.count).map(|index| {
            let variation = self.first + index;
            let job = JobId::derive(self.fingerprint, variation);
            let label = label(self.id.as_deref(), variation, || self.order.text(), job);
            let price = self.order.hold().unwrap_or_default();
            match self.known_at(index) {
                Some(known) => {
                    let (verdict, credits) = priced(known, price);
                    PlannedJob { job, label, verdict, credits, is_counted: known.is_counted }
                }
                None => {
                    let is_changed = !self.changed.is_empty();
                    let verdict = if is_changed { RowVerdict::Changed } else { RowVerdict::New };
                    PlannedJob { job, label, verdict, credits: price, is_counted: false }
                }
            }
        })
    }

    /// The first of them that waits and was accepted with other terms than the row has: its place among them, and those
    /// terms. Another limit or review comes before another priority, which may be that of all rows.
    pub(super) fn other_terms(&self) -> Option<(usize, AcceptedTerms)> {
        let terms = AcceptedTerms::of(&self.order).rounded();
        let waiting = || {
            let known = self.known.iter().take(self.count as usize).enumerate();
            let known = known.filter_map(|(place, known)| Some((place, (*known)?)));
            known.filter(|(_, known)| known.standing.waits()).map(|(place, known)| (place, known.terms))
        };
        let is_other = |(_, known): &(usize, AcceptedTerms)| {
            AcceptedTerms { priority: terms.priority, ..*known } != terms
        };
        waiting().find(is_other).or_else(|| waiting().find(|(_, known)| *known != terms))
    }

    /// Stages them as they would be once they were accepted: they are counted here.
    pub(super) fn note_in(&self, staging: &mut Staging) -> Result<(), StoreError> {
        for index in 0..self.count {
            let known = self.known_at(index);
            staging.note_existing(&ExistingJob {
                fingerprint: self.fingerprint,
                variation: self.first + index,
                seq: Seq(0),
                is_superseded: false,
                standing: known.map_or(JobStanding::Waiting, |known| known.standing),
                credits: self.order.hold().unwrap_or_default(),
                is_counted: true,
                unspent: Credits::ZERO,
                terms: known.map_or(AcceptedTerms::of(&self.order), |known| known.terms),
                row: None,
            })?;
        }
        Ok(())
    }
}

/// What becomes of a job that the batch has, and the credits that belong to that. `price` is today's, for one whose row
/// can be sent.
fn priced(known: &KnownJob, price: Credits) -> (RowVerdict, Credits) {
    let credits = match known.standing {
        JobStanding::Done | JobStanding::FailedForGood => Credits::ZERO,
        JobStanding::Waiting
        | JobStanding::PerhapsSent
        | JobStanding::Running
        | JobStanding::InDoubt
        | JobStanding::Failed
        | JobStanding::Canceled
        | JobStanding::Expired => known.credits.unwrap_or(price),
    };
    (known.standing.into(), credits)
}

/// The jobs of a row that cannot be sent today and that the batch has, as a plan shows them.
pub fn kept(known: &[Option<KnownJob>]) -> impl Iterator<Item = (RowVerdict, Credits, bool)> + '_ {
    known.iter().flatten().map(|known| {
        let (verdict, credits) = priced(known, Credits::ZERO);
        (verdict, credits, known.is_counted)
    })
}
