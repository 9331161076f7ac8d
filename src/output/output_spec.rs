//! Whose outputs are published, and under which names.

use crate::domain::ids::BatchName;
use crate::domain::job::{Job, JobSpec};
use crate::output::file_names::Layout;

/// A job whose outputs are published.
#[derive(Debug, Clone, Copy)]
pub struct OutputSpec<'a> {
    pub batch: &'a BatchName,
    /// Layout of the names of its files.
    pub layout: &'a Layout,
    /// The job as it was accepted.
    pub spec: &'a JobSpec,
    /// The job as it stands.
    pub job: &'a Job,
}
