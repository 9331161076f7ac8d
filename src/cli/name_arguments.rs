//! Arguments that name a batch or a job.

use clap::Args;

use crate::domain::ids::BatchName;

/// A batch, or all of them.
#[derive(Debug, Args)]
pub(super) struct BatchArgument {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
}

/// A job.
#[derive(Debug, Args)]
pub(super) struct JobArgument {
    /// Label of the job, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "JOB")]
    pub(super) job: String,
}

/// A batch or a job.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name of a batch, or a job: its label, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "BATCH|JOB")]
    pub(super) name: String,
}
