//! The jobs of what was named: all of a batch, or one of it, which costs no look at the others.

use crate::domain::job::JobSpec;
use crate::engine::job_iter::JobIter;
use crate::engine::name_lookup::{NamedJob, Target};
use crate::store::{JobRecord, Store, StoreError};

/// See the module's documentation.
#[derive(Debug)]
pub(super) enum TargetJobs {
    Batch(Box<JobIter>),
    Job(Option<Box<(JobSpec, JobRecord)>>),
}

impl TargetJobs {
    /// Begins at the first. Each is told as it stands now, however it was when it was named.
    pub(super) fn open(store: &Store, target: &Target) -> Result<TargetJobs, StoreError> {
        match target {
            Target::Batch(batch) => Ok(TargetJobs::Batch(Box::new(JobIter::open(store, batch)?))),
            Target::Job(named) => {
                let NamedJob { batch, spec, record, .. } = &**named;
                let record = store.job_at(batch, record.row_at, spec)?;
                Ok(TargetJobs::Job(Some(Box::new((spec.clone(), record)))))
            }
        }
    }

    /// The next job, in manifest order; nothing at the end.
    pub(super) fn next_job(&mut self) -> Result<Option<(JobSpec, JobRecord)>, StoreError> {
        match self {
            TargetJobs::Batch(jobs) => jobs.next_job(),
            TargetJobs::Job(job) => Ok(job.take().map(|job| *job)),
        }
    }
}
