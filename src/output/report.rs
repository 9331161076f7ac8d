//! `report.json`: planned and charged credits of a batch, and jobs that need attention.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::domain::charge_drift;
use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::ids::BatchName;
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::job_state::JobState;
use crate::domain::ledger::{Movement, Totals};
use crate::domain::remedy::{Remedy, missed_its_deadline, remedy};
use crate::domain::review::Verdict;
use crate::domain::task::Fault;
use crate::output::own_file::OwnFile;
use crate::output::publish::create;

/// Most jobs that are listed; the rest are counted.
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
    states: BTreeMap<JobState, u32>,
    /// Jobs without outputs of versions of rows in whose place others are wanted; no state counts them.
    #[serde(skip_serializing_if = "is_default")]
    replaced: u32,
    late: u32,
}

impl Sums {
    fn add(&mut self, spec: &JobSpec, job: &Job, refunded: Credits, is_replaced: bool) {
        self.jobs += 1;
        self.planned_credits = self.planned_credits + spec.order.hold().unwrap_or_default();
        let books = job.all_books();
        self.held_credits = self.held_credits + books.held;
        self.charged_credits = self.charged_credits + books.charged;
        self.waived_credits = self.waived_credits + books.waived;
        self.refunded_credits = self.refunded_credits + refunded;
        if is_replaced {
            self.replaced += 1;
        } else {
            *self.states.entry(job.state().job_state()).or_default() += 1;
        }
        self.late += u32::from(job.is_late());
    }
}

/// Credits that waiting jobs need, at the prices at which they were accepted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// How many there are.
    pub jobs: u32,
    /// Credits that the cheapest of them needs.
    pub least_credits: Credits,
    /// Credits that all of them need.
    pub credits: Credits,
}

impl Waiting {
    fn add(&mut self, credits: Credits) {
        self.least_credits = if self.jobs == 0 { credits } else { self.least_credits.min(credits) };
        self.jobs += 1;
        self.credits = self.credits + credits;
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Waiting) -> Waiting {
        match (self.jobs, other.jobs) {
            (0, _) => other,
            (_, 0) => self,
            _ => Waiting {
                jobs: self.jobs + other.jobs,
                least_credits: self.least_credits.min(other.least_credits),
                credits: self.credits + other.credits,
            },
        }
    }
}

/// A job that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The job's label.
    pub id: String,
    /// Its line in the manifest.
    pub line: u64,
    pub reason: String,
    /// The code of what it failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What helps, where it failed.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
}

/// An attempt in doubt beside the one that its job goes by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedAttempt {
    /// The job's label.
    pub id: String,
    /// Its line in the manifest.
    pub line: u64,
    /// The number that resolves it.
    pub attempt: u32,
    /// What is held for it.
    pub held_credits: Credits,
    /// What it was charged as it was sent, which counts as spent; whether the service gives it back is not known.
    pub charged_credits: Credits,
}

/// The report of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    batch: BatchName,
    /// Rows of the last manifest that were refused: its receipt says why.
    refused_rows: u32,
    /// Outputs that are paid for, were downloaded, and are neither on disk any more nor in the object store.
    missing_files: u32,
    /// Jobs that expired and whose own deadline, an instant, had passed: another attempt would expire, too.
    #[serde(skip)]
    past_deadline: u32,
    /// The first job that waits and takes outputs of other rows.
    #[serde(skip)]
    waits_for_rows: Option<String>,
    waiting: Waiting,
    total: Sums,
    by_kind: BTreeMap<&'static str, Sums>,
    by_model: BTreeMap<String, Sums>,
    failed: Vec<Listed>,
    in_doubt: Vec<Listed>,
    /// Earlier attempts in doubt of jobs that have ended otherwise, each with the number that resolves it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    in_doubt_attempts: Vec<ListedAttempt>,
    late: Vec<Listed>,
    /// Superseded tasks, and what was charged for them.
    resubmitted: Vec<Listed>,
    /// Jobs that were charged or made otherwise than planned.
    drift: Vec<Listed>,
    /// What jobs cost above the prices at which they were accepted, as those in force were higher when they were sent.
    #[serde(skip_serializing_if = "is_default")]
    price_rise_credits: Credits,
    /// How many outputs of wanted rows were decided about, and how.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    decisions: BTreeMap<Verdict, u32>,
}

impl Report {
    /// A report with no jobs in it yet, of a batch so many rows of whose last manifest were refused.
    pub fn new(batch: &BatchName, refused_rows: u32) -> Report {
        Report {
            batch: batch.clone(),
            refused_rows,
            missing_files: 0,
            past_deadline: 0,
            waits_for_rows: None,
            waiting: Waiting::default(),
            total: Sums::default(),
            by_kind: BTreeMap::new(),
            by_model: BTreeMap::new(),
            failed: Vec::new(),
            in_doubt: Vec::new(),
            in_doubt_attempts: Vec::new(),
            late: Vec::new(),
            resubmitted: Vec::new(),
            drift: Vec::new(),
            price_rise_credits: Credits::ZERO,
            decisions: BTreeMap::new(),
        }
    }

    /// Adds a job whose outputs lie in `dir`, as far as they are there; `is_superseded` where another version of its row
    /// is wanted.
    pub fn add(&mut self, dir: &Path, spec: &JobSpec, job: &Job, is_superseded: bool) {
        if let State::Succeeded { files, .. } = job.state() {
            // What is in the object store is not missing.
            let is_missing = |file: &&OutputFile| {
                file.object.is_none() && dir.join(&file.path).symlink_metadata().is_err()
            };
            let missing = files.iter().filter(is_missing);
            let missing = u32::try_from(missing.count()).unwrap_or(u32::MAX);
            self.missing_files = self.missing_files.saturating_add(missing);
        }
        let refunded = refunded(job);
        let is_undone = matches!(job.state(), State::Failed { .. } | State::Canceled { .. } | State::Expired);
        let is_replaced = is_undone && (is_superseded || job.state().is_replaced());
        let kind = spec.order.kind.name();
        self.total.add(spec, job, refunded, is_replaced);
        self.by_kind.entry(kind).or_default().add(spec, job, refunded, is_replaced);
        let model = spec.order.model.clone().unwrap_or_else(|| kind.to_owned());
        self.by_model.entry(model).or_default().add(spec, job, refunded, is_replaced);
        if job.is_over()
            && let Some(doubt) = job.doubt_beside()
        {
            let id = if is_superseded { spec.id.to_string() } else { spec.label.clone() };
            let (line, attempt, books) = (spec.order.line, doubt.no().0, doubt.books());
            let (held_credits, charged_credits) = (books.held, books.charged);
            if self.in_doubt_attempts.len() < LISTED_MAX {
                self.in_doubt_attempts.push(ListedAttempt {
                    id,
                    line,
                    attempt,
                    held_credits,
                    charged_credits,
                });
            }
        }
        match job.state() {
            _ if is_replaced => {}
            State::Failed { fault, .. } => list_fault(&mut self.failed, spec, job, fault),
            // Its label means the version that is wanted.
            State::InDoubt { fault, .. } if is_superseded => {
                let named = JobSpec { label: spec.id.to_string(), ..spec.clone() };
                list_fault(&mut self.in_doubt, &named, job, fault);
            }
            State::InDoubt { fault, .. } => list_fault(&mut self.in_doubt, spec, job, fault),
            State::Queued => {
                self.waiting.add(spec.order.hold().unwrap_or_default());
                if self.waits_for_rows.is_none() && !spec.order.inputs.is_empty() && !is_superseded {
                    self.waits_for_rows = Some(spec.label.clone());
                }
            }
            State::Expired => self.past_deadline += u32::from(missed_its_deadline(&spec.order, job)),
            _ => {}
        }
        if let Some(decision) = job.decision().filter(|_| !is_superseded) {
            *self.decisions.entry(decision.verdict).or_default() += 1;
        }
        if job.is_late() {
            list(&mut self.late, spec, "finished after its deadline".to_owned());
        }
        for other in job.resubmitted_attempts() {
            let (attempt, books) = (other.no().0, other.books());
            let what = match other.task() {
                Some(task) => format!("task {task} of attempt {attempt}: {} charged", books.charged),
                None if other.is_in_doubt() => {
                    format!("attempt {attempt}, of which no task is known: in doubt, {} held", books.held)
                }
                None => format!("attempt {attempt}, of which no task is known: {} charged", books.charged),
            };
            list(&mut self.resubmitted, spec, what);
        }
        if let (Some(accepted), Some(in_force)) = (spec.order.price, job.price(&spec.order))
            && !job.all_books().charged.is_zero()
        {
            let rise = Credits(in_force.0.saturating_sub(accepted.0));
            self.price_rise_credits = self.price_rise_credits + rise;
        }
        for drift in charge_drift::of(&spec.order, job) {
            list(&mut self.drift, spec, drift.to_string());
        }
    }

    /// Jobs that failed; the first thousand.
    pub fn failed(&self) -> &[Listed] {
        &self.failed
    }

    /// Jobs in doubt; the first thousand.
    pub fn in_doubt(&self) -> &[Listed] {
        &self.in_doubt
    }

    /// Attempts in doubt of jobs that have ended otherwise; the first thousand.
    pub fn in_doubt_attempts(&self) -> &[ListedAttempt] {
        &self.in_doubt_attempts
    }

    /// Jobs that were charged or made otherwise than planned, with their lines and how; the first thousand.
    pub fn drifted(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        self.drift.iter().map(|job| (job.id.as_str(), job.line, job.reason.as_str()))
    }

    /// What jobs cost above the prices at which they were accepted.
    pub fn price_rise(&self) -> Credits {
        self.price_rise_credits
    }

    /// How many jobs of wanted rows were decided about, and how.
    pub fn decisions(&self) -> &BTreeMap<Verdict, u32> {
        &self.decisions
    }

    /// Credits that waiting jobs need.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// Jobs that expired and whose own deadline, an instant, had passed.
    pub fn past_deadline(&self) -> u32 {
        self.past_deadline
    }

    /// The label of the first job that waits and takes outputs of other rows.
    pub fn waits_for_rows(&self) -> Option<&str> {
        self.waits_for_rows.as_deref()
    }

    /// Outputs that are paid for, were downloaded and are not on disk any more.
    pub fn missing_files(&self) -> u32 {
        self.missing_files
    }

    /// Writes `report.json` into the batch's folder; it appears once it is complete.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let draft = OwnFile::Report.draft(dir);
        // In one piece: printed to a file it would take a call for each word.
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let mut file = create(&draft)?;
        file.write_all(&text)?;
        file.sync_data()?;
        OwnFile::Report.put(dir)?;
        File::open(dir)?.sync_all()
    }
}

fn list(listed: &mut Vec<Listed>, spec: &JobSpec, reason: String) {
    if listed.len() < LISTED_MAX {
        let (id, line) = (spec.label.clone(), spec.order.line);
        listed.push(Listed { id, line, reason, code: None, remedy: None });
    }
}

fn list_fault(listed: &mut Vec<Listed>, spec: &JobSpec, job: &Job, fault: &Fault) {
    list(listed, spec, fault.to_string());
    if let Some(last) = listed.last_mut().filter(|last| last.id == spec.label) {
        (last.code, last.remedy) = (Some(fault.code.clone()), remedy(job));
    }
}

/// What earlier attempts were charged and got back.
fn refunded(job: &Job) -> Credits {
    let mut totals = Totals::default();
    for movement in job.history().iter().filter_map(|line| line.movement) {
        // History is bounded: a line whose counterpart is gone counts for what it gave back.
        if totals.apply(movement).is_err()
            && let Movement::Refund { spent, .. } = movement
        {
            totals.refunded = totals.refunded + spent;
        }
    }
    totals.refunded
}
