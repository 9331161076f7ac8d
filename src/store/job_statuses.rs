//! Where the jobs of a batch stand, from its outcomes and what is known of its open jobs.

use std::collections::HashMap;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchNo, Fingerprint, JobId, Seq};
use crate::domain::job::Books;
use crate::domain::job_state::JobState;
use crate::domain::row_verdict::JobStanding;
use crate::domain::row_versions::RowVersions;
use crate::store::spool::Lines;
use crate::store::staging::{AcceptedTerms, ExistingJob, ExistingRow, Staging};
use crate::store::{BatchRecord, JobRecord, Store, StoreError, db_keys};

/// A job that has begun and not ended, as far as a plan needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenJobStatus {
    /// Which job.
    pub job: JobId,
    /// Where it stands.
    pub standing: JobStanding,
    /// What is set aside or charged for it.
    pub credits: Credits,
    /// The part of it that is set aside.
    #[serde(default)]
    pub held: Credits,
    /// The takes that its inputs are, as [`Job::made_of`](crate::domain::job::Job::made_of) tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_of: Vec<u32>,
    /// The most that it may cost, where its owner said so since it was accepted; in credits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_credits: Option<Credits>,
}

impl OpenJobStatus {
    /// From its record.
    pub(super) fn of(record: &JobRecord) -> OpenJobStatus {
        let books = record.job.all_books();
        let credits = books.held + books.charged;
        OpenJobStatus {
            job: record.id,
            standing: JobStanding::of_job(&record.job),
            credits,
            held: books.held,
            made_of: record.job.made_of(),
            max_credits: record.job.max_credits(),
        }
    }
}

/// The part of an accepted row that tells which job it is.
#[derive(Deserialize)]
struct AcceptedRow {
    seq: Seq,
    id: JobId,
    fingerprint: Fingerprint,
    variation: u32,
    label: String,
    order: AcceptedPrice,
}

#[derive(Deserialize)]
struct AcceptedPrice {
    #[serde(default)]
    price: Option<Credits>,
    #[serde(default)]
    bound: Option<Credits>,
    #[serde(default)]
    max_credits: Option<Credits>,
    #[serde(default)]
    review: bool,
    #[serde(default)]
    priority: i8,
}

/// The part of an outcome that tells where its job stands.
#[derive(Deserialize)]
pub(super) struct EndedOutcome {
    seq: Seq,
    #[serde(default)]
    attempts: Vec<EndedAttempt>,
    #[serde(default)]
    kept: Option<AttemptNo>,
    // A record of format 1 has these of its present attempt alone.
    #[serde(default)]
    state: Option<JobState>,
    #[serde(default)]
    books: Books,
    #[serde(default)]
    fault: Option<FaultCode>,
}

/// The part of an attempt that tells where it stands.
#[derive(Deserialize)]
struct EndedAttempt {
    no: AttemptNo,
    state: JobState,
    books: Books,
    #[serde(default)]
    fault: Option<FaultCode>,
    #[serde(default)]
    inputs: Vec<IgnoredAny>,
}

/// What decides where a job stands.
struct PresentAttempt<'a> {
    state: JobState,
    books: Books,
    code: Option<&'a str>,
    has_inputs: bool,
}

impl PresentAttempt<'_> {
    fn standing(&self) -> JobStanding {
        JobStanding::of(self.state, self.books.charged, self.code, self.has_inputs)
    }
}

impl EndedOutcome {
    /// What is set aside and charged for all its attempts.
    fn committed(&self) -> Credits {
        let attempts = self.attempts.iter().map(|attempt| attempt.books);
        let all = attempts.chain(self.attempts.is_empty().then_some(self.books));
        all.fold(Credits::ZERO, |sum, books| sum + books.held + books.charged)
    }

    /// The attempt that decides where the job stands.
    fn present(&self, path: &Path) -> Result<PresentAttempt<'_>, StoreError> {
        let kept = self.attempts.iter().find(|attempt| Some(attempt.no) == self.kept);
        let (state, books, fault, has_inputs) = match kept.or(self.attempts.last()) {
            Some(attempt) => (attempt.state, attempt.books, &attempt.fault, !attempt.inputs.is_empty()),
            None => {
                let damaged = || StoreError::Damaged {
                    dir: path.to_owned(),
                    what: format!("the outcome of job {}", self.seq.0),
                    detail: "it has no state".to_owned(),
                };
                (self.state.ok_or_else(damaged)?, self.books, &self.fault, false)
            }
        };
        let code = fault.as_ref().map(|fault| fault.code.as_str());
        Ok(PresentAttempt { state, books, code, has_inputs })
    }
}

#[derive(Deserialize)]
struct FaultCode {
    code: String,
}

/// Where the jobs of one batch stand. Memory: five bytes a job, and what is open or in doubt.
#[derive(Debug, Default)]
pub(super) struct JobStatuses {
    /// By the number of the job.
    ended: Vec<Option<JobStanding>>,
    /// What is set aside and charged for all attempts of each of them; what passes the type is cut off.
    committed: Vec<u32>,
    /// What counts for jobs in doubt.
    in_doubt: HashMap<Seq, Books>,
}

impl JobStatuses {
    /// Reads the outcomes of a batch, up to so many bytes. Seen from outside, the last line may be one that is being
    /// written at this moment.
    pub(super) fn read(path: &Path, bytes: u64, is_outside: bool) -> Result<JobStatuses, StoreError> {
        let mut job_statuses = JobStatuses::default();
        let mut lines = Lines::open(path, 0, bytes)?;
        loop {
            let outcome = match lines.next_line::<EndedOutcome>() {
                Ok(Some((_, outcome))) => outcome,
                Ok(None) => return Ok(job_statuses),
                Err(StoreError::Damaged { .. }) if is_outside && lines.at() >= bytes => {
                    return Ok(job_statuses);
                }
                Err(error) => return Err(error),
            };
            let present = outcome.present(path)?;
            let standing = present.standing();
            let index = outcome.seq.0 as usize;
            if job_statuses.ended.len() <= index {
                job_statuses.ended.resize(index + 1, None);
                job_statuses.committed.resize(index + 1, 0);
            }
            job_statuses.ended[index] = Some(standing);
            job_statuses.committed[index] = u32::try_from(outcome.committed().0).unwrap_or(u32::MAX);
            match standing {
                JobStanding::InDoubt => drop(job_statuses.in_doubt.insert(outcome.seq, present.books)),
                _ => drop(job_statuses.in_doubt.remove(&outcome.seq)),
            }
        }
    }

    /// Whether some job has not succeeded, of so many.
    pub(super) fn has_unfinished(&self, rows: u32) -> bool {
        let done = self.ended.iter().filter(|standing| **standing == Some(JobStanding::Done)).count();
        done < rows as usize
    }
}

/// What was found out of the jobs of a batch.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NotedJobs {
    /// Only a look into the database could tell of some of them whether they were sent.
    pub(super) is_unclear: bool,
    /// What is set aside and charged for all of them.
    pub(super) committed: Credits,
}

/// The accepted rows of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedRows<'a> {
    /// Their file.
    pub(super) path: &'a Path,
    /// How many bytes of it count.
    pub(super) bytes: u64,
    /// So many of them may have been sent by a state that is gone, if they have not begun.
    pub(super) rebuilt: u32,
}

/// Tells a draft of the rows of one batch, and where their jobs stand.
pub(super) fn note(
    draft: &mut Staging,
    rows: AcceptedRows<'_>,
    versions: &RowVersions,
    job_statuses: &JobStatuses,
    open: &HashMap<JobId, OpenJobStatus>,
    is_comparable: bool,
    is_outside: bool,
) -> Result<NotedJobs, StoreError> {
    let AcceptedRows { path, bytes, rebuilt } = rows;
    let is_comparable = is_comparable && draft.note_rows_of(path);
    let mut lines = Lines::open(path, 0, bytes)?;
    let mut noted = NotedJobs::default();
    loop {
        let (at, row) = match lines.next_line::<AcceptedRow>() {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(noted),
            Err(StoreError::Damaged { .. }) if is_outside && lines.at() >= bytes => return Ok(noted),
            Err(error) => return Err(error),
        };
        let ended = job_statuses.ended.get(row.seq.0 as usize).copied().flatten();
        let price = row.order.price.or(row.order.bound).or(row.order.max_credits).unwrap_or_default();
        let (standing, credits, held) = match (open.get(&row.id), ended) {
            (None, None) if row.seq.0 < rebuilt => (JobStanding::PerhapsSent, price, price),
            (None, None) => (JobStanding::Waiting, price, price),
            (Some(open), _) if open.standing.waits() => (open.standing, price, price),
            (Some(open), _) => (open.standing, open.credits, open.held),
            (None, Some(JobStanding::InDoubt)) => {
                let Books { held, charged, .. } =
                    job_statuses.in_doubt.get(&row.seq).copied().unwrap_or_default();
                (JobStanding::InDoubt, held + charged, held)
            }
            (None, Some(JobStanding::Waiting)) => (JobStanding::Waiting, price, price),
            (None, Some(ended)) => (ended, price, Credits::ZERO),
        };
        // An `id` that ends in the identity that it leads to is not to be found.
        let has_id = !row.label.ends_with(&format!("-{}", row.id.short()));
        noted.is_unclear |= standing.waits() && ended.is_none();
        let ended_with = || job_statuses.committed.get(row.seq.0 as usize).copied().unwrap_or_default();
        noted.committed = noted.committed
            + match open.get(&row.id) {
                // What is held for one that waits is a part of its price, which is still to be spent.
                Some(open) if open.standing.waits() => open.credits.saturating_sub(open.held),
                Some(open) => open.credits,
                None => Credits(u64::from(ended_with())),
            };
        let changed_limit = open.get(&row.id).and_then(|open| open.max_credits);
        let AcceptedPrice { max_credits, review, priority, .. } = row.order;
        let terms = AcceptedTerms { max_credits: changed_limit.or(max_credits), review, priority };
        draft.note_existing(&ExistingJob {
            fingerprint: row.fingerprint,
            variation: row.variation,
            seq: row.seq,
            is_superseded: versions.is_superseded(row.seq),
            standing,
            credits,
            is_counted: false,
            unspent: held,
            terms,
            row: is_comparable.then_some(ExistingRow { label: &row.label, has_id, at }),
        })?;
    }
}

impl Store {
    /// Every job that has begun and not ended, as far as a plan needs it.
    ///
    /// # Errors
    /// What the database says.
    pub fn open_now(&self) -> Result<Vec<OpenJobStatus>, StoreError> {
        self.database()?.scan_as([db_keys::JOB], |record| OpenJobStatus::of(&record))
    }

    /// Tells a draft which jobs a batch has, and where they stand.
    ///
    /// # Errors
    /// What the state says.
    pub fn note_jobs_of(&self, batch: &BatchRecord, draft: &mut Staging) -> Result<(), StoreError> {
        // Open jobs first: one that ends meanwhile is then seen as it was.
        let open = self.open_of(batch.no)?;
        let spool = self.spool(batch.no);
        let job_statuses = JobStatuses::read(&spool.outcomes_path(), self.outcomes_bytes(batch)?, false)?;
        let rows = spool.rows_path();
        let versions = self.row_versions(batch)?;
        let rows = AcceptedRows { path: &rows, bytes: batch.spool_bytes, rebuilt: batch.rebuilt_rows };
        note(draft, rows, &versions, &job_statuses, &open, true, false).map(drop)
    }

    /// Tells of the fingerprint of every row of a batch.
    ///
    /// # Errors
    /// What the state says.
    pub fn fingerprints_of(
        &self,
        batch: &BatchRecord,
        tell: &mut dyn FnMut(Fingerprint),
    ) -> Result<(), StoreError> {
        let mut lines = Lines::open(&self.spool(batch.no).rows_path(), 0, batch.spool_bytes)?;
        while let Some((_, row)) = lines.next_line::<AcceptedRow>()? {
            tell(row.fingerprint);
        }
        Ok(())
    }

    pub(super) fn open_of(&self, no: BatchNo) -> Result<HashMap<JobId, OpenJobStatus>, StoreError> {
        let status = |record: JobRecord| (record.id, OpenJobStatus::of(&record));
        Ok(self.database()?.scan_as(db_keys::jobs_of(no), status)?.into_iter().collect())
    }
}
