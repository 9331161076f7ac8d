//! A job that has begun and not ended, with what this process knows of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::ids::AttemptNo;
use crate::domain::job::JobSpec;
use crate::domain::time::Tick;
use crate::engine::scheduler::parts::job_counts::CountedAs;
use crate::store::JobRecord;

/// What this process knows of the task of a superseded attempt, which is watched.
#[derive(Debug, Default, Clone, Copy)]
pub struct TaskWatch {
    /// It is being read.
    pub busy: bool,
    /// It was read since the start.
    pub seen: bool,
    /// Readings in a row that did not find it.
    pub faults: u32,
}

/// A job that has begun.
#[derive(Debug)]
pub struct OpenJob {
    pub record: JobRecord,
    pub spec: Arc<JobSpec>,
    /// An effect of it is under way.
    pub busy: bool,
    /// A timer is set for what it wants next.
    pub is_timed: bool,
    /// Faults in a row, of whatever is being tried.
    pub faults: u32,
    /// Downloads in a row that failed; fresh links alone are no progress.
    pub fetch_faults: u32,
    /// How often its download gave its slot up to another.
    pub slow_rounds: u32,
    /// Since when this process has had its present attempt in flight.
    pub in_flight_since: Option<Tick>,
    /// When its present task was first seen by this process.
    pub task_since: Option<Tick>,
    /// When the first answer to its POST showed the task running: only then it is known how long it has run.
    pub task_created: Option<Tick>,
    /// When its task was last seen running.
    pub last_running: Option<Tick>,
    /// Tasks of other attempts that are watched beside it.
    pub watches: BTreeMap<AttemptNo, TaskWatch>,
    /// What it was last counted as.
    pub counted: Option<CountedAs>,
}

impl OpenJob {
    pub fn new(record: JobRecord, spec: Arc<JobSpec>) -> OpenJob {
        OpenJob {
            record,
            spec,
            busy: false,
            is_timed: false,
            faults: 0,
            fetch_faults: 0,
            slow_rounds: 0,
            in_flight_since: None,
            task_since: None,
            task_created: None,
            last_running: None,
            watches: BTreeMap::new(),
            counted: None,
        }
    }
}
