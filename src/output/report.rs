//! `report.json`: what a batch was planned to cost, what it cost, and what stands out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::domain::credits::Credits;
use crate::domain::drift;
use crate::domain::ids::BatchName;
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::ledger::{Movement, Totals};
use crate::output::landing::create;
use crate::output::results;

/// Jobs that are named one by one; the rest are counted.
const LISTED_MAX: usize = 1_000;

/// Sums over some of a batch's jobs.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Sums {
    jobs: u32,
    planned_credits: Credits,
    held_credits: Credits,
    charged_credits: Credits,
    waived_credits: Credits,
    refunded_credits: Credits,
    states: BTreeMap<&'static str, u32>,
    late: u32,
}

impl Sums {
    fn add(&mut self, spec: &JobSpec, job: &Job, refunded: Credits) {
        self.jobs += 1;
        self.planned_credits = self.planned_credits + spec.order.hold().unwrap_or_default();
        let books = job.all_books();
        self.held_credits = self.held_credits + books.held;
        self.charged_credits = self.charged_credits + books.charged;
        self.waived_credits = self.waived_credits + books.waived;
        self.refunded_credits = self.refunded_credits + refunded;
        *self.states.entry(job.state.name()).or_default() += 1;
        self.late += u32::from(job.is_late());
    }
}

/// A job that a person may want to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Listed {
    id: String,
    line: u64,
    reason: String,
}

/// The report of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    batch: BatchName,
    total: Sums,
    by_kind: BTreeMap<&'static str, Sums>,
    by_model: BTreeMap<String, Sums>,
    failed: Vec<Listed>,
    in_doubt: Vec<Listed>,
    late: Vec<Listed>,
    /// Tasks that were resubmitted over, and what was charged for them.
    resubmitted: Vec<Listed>,
    /// Jobs that were charged or made otherwise than planned.
    drift: Vec<Listed>,
}

impl Report {
    /// A report with no jobs in it yet.
    pub fn new(batch: &BatchName) -> Report {
        Report {
            batch: batch.clone(),
            total: Sums::default(),
            by_kind: BTreeMap::new(),
            by_model: BTreeMap::new(),
            failed: Vec::new(),
            in_doubt: Vec::new(),
            late: Vec::new(),
            resubmitted: Vec::new(),
            drift: Vec::new(),
        }
    }

    /// Adds a job.
    pub fn add(&mut self, spec: &JobSpec, job: &Job) {
        let refunded = refunded(job);
        let kind = spec.order.kind.name();
        self.total.add(spec, job, refunded);
        self.by_kind.entry(kind).or_default().add(spec, job, refunded);
        let model = spec.order.model.clone().unwrap_or_else(|| kind.to_owned());
        self.by_model.entry(model).or_default().add(spec, job, refunded);
        match &job.state {
            State::Failed { fault, .. } => list(&mut self.failed, spec, fault.to_string()),
            State::InDoubt { fault, .. } => list(&mut self.in_doubt, spec, fault.to_string()),
            _ => {}
        }
        if job.is_late() {
            list(&mut self.late, spec, "finished after its deadline".to_owned());
        }
        for other in &job.superseded {
            let (task, attempt, charged) = (&other.task, other.attempt.0, other.books.charged);
            list(&mut self.resubmitted, spec, format!("task {task} of attempt {attempt}: {charged} charged"));
        }
        for drift in drift::of(&spec.order, job) {
            list(&mut self.drift, spec, drift.to_string());
        }
    }

    /// Jobs that failed or are in doubt, with their lines and reasons; of each the first thousand.
    pub fn troubled(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let listed = self.failed.iter().chain(&self.in_doubt);
        listed.map(|job| (job.id.as_str(), job.line, job.reason.as_str()))
    }

    /// Writes `report.json` into the batch's folder; it appears once it is complete.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let draft = results::draft(dir, "report.json");
        let mut file = create(&draft)?;
        serde_json::to_writer_pretty(&file, self)?;
        file.write_all(b"\n")?;
        file.sync_data()?;
        fs::rename(&draft, dir.join("report.json"))?;
        File::open(dir)?.sync_all()
    }
}

fn list(listed: &mut Vec<Listed>, spec: &JobSpec, reason: String) {
    if listed.len() < LISTED_MAX {
        listed.push(Listed { id: spec.label.clone(), line: spec.order.line, reason });
    }
}

/// What earlier attempts were charged and got back.
fn refunded(job: &Job) -> Credits {
    let mut totals = Totals::default();
    for movement in job.history.iter().filter_map(|line| line.movement) {
        // History is bounded: a line whose counterpart is gone counts for what it gave back.
        if totals.apply(movement).is_err()
            && let Movement::Refund { spent, .. } = movement
        {
            totals.refunded = totals.refunded + spent;
        }
    }
    totals.refunded
}
