//! The service's side of the story: tasks, charges and refunds, as its own books show them.

use std::collections::BTreeSet;

use callsheet_emulator::Emulator;
use serde::Deserialize;

/// What the service saw.
#[derive(Debug, Deserialize)]
pub struct Audit {
    pub totals: Totals,
    pub tasks: Vec<Task>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Totals {
    pub tasks: u64,
    pub charges: u64,
    pub charged_credits: u64,
    pub waived_credits: u64,
    pub refunds: u64,
    pub refunded_credits: u64,
    pub without_key: u64,
    pub replays: u64,
    pub foreign_body_replays: u64,
    pub polls: u64,
    /// Sooner after the last one than the service advises.
    pub hasty_polls: u64,
    pub downloads: u64,
    pub refused_400: u64,
    pub refused_402: u64,
    pub unauthorized: u64,
    pub media_requests_with_key: u64,
    pub faults_struck: u64,
    pub balance: u64,
}

#[derive(Debug, Deserialize)]
pub struct Task {
    pub id: String,
    pub key: Option<String>,
    pub kind: String,
    pub prompt: String,
    pub status: String,
    pub charges: u64,
    pub charged_credits: u64,
    pub waived_credits: u64,
    pub refunds: u64,
    /// The POST that made it, and every one that was answered with it.
    pub posts: u64,
    /// Readings that found it ended.
    pub polls_after_end: u64,
    pub downloads: u64,
}

impl Task {
    /// The job and the attempt that its key was derived for; none without a key.
    pub fn job_and_attempt(&self) -> Option<(&str, u32)> {
        self.key.as_deref().map(job_and_attempt)
    }

    /// Charged and not given back.
    pub fn net_credits(&self) -> u64 {
        if self.refunds == 0 { self.charged_credits } else { 0 }
    }
}

/// The job and the attempt that a key was derived for.
#[track_caller]
pub fn job_and_attempt(key: &str) -> (&str, u32) {
    let (job, attempt) = key.strip_prefix("cs1-").unwrap().split_once('-').unwrap();
    (job, attempt.parse().unwrap())
}

impl Audit {
    pub fn read(emulator: &Emulator) -> Audit {
        serde_json::from_value(emulator.audit()).unwrap()
    }

    /// Creating POSTs that reached the service and were taken for what they were.
    pub fn posts(&self) -> u64 {
        self.tasks.iter().map(|task| task.posts).sum()
    }

    /// One task and one charge for each of so many jobs, nothing given back, no key used for two
    /// requests, and no key shown to the host of the results.
    #[track_caller]
    pub fn each_paid_once(&self, jobs: usize) {
        assert_eq!(self.tasks.len(), jobs, "one task a job: {:#?}", self.tasks);
        for task in &self.tasks {
            assert_eq!((task.charges, task.refunds), (1, 0), "one net charge a job: {task:#?}");
            assert_eq!(task.status, "success", "{task:#?}");
        }
        let keys: BTreeSet<&str> = self.tasks.iter().filter_map(|task| task.key.as_deref()).collect();
        assert_eq!(keys.len(), jobs, "every task has a key of its own");
        let Totals { refunded_credits, without_key, foreign_body_replays, media_requests_with_key, .. } =
            self.totals;
        assert_eq!(
            (refunded_credits, without_key, foreign_body_replays, media_requests_with_key),
            (0, 0, 0, 0)
        );
    }
}
