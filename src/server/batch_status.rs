//! A batch in numbers, as `status` tells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::budget::BudgetShortage;
use crate::domain::default_fields::is_default;
use crate::domain::ids::BatchName;
use crate::domain::job_state::JobState;
use crate::domain::parked_reason::Parked;
use crate::domain::pilot::Pilot;
use crate::domain::request::Kind;
use crate::domain::row_versions::REPLACED;
use crate::engine::scheduler::{BatchOverview, LastFailure};
use crate::store::{BatchRecord, KindCounts, Pause};

fn is_none(number: &u32) -> bool {
    *number == 0
}

/// A batch in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStatus {
    /// Its name.
    pub name: BatchName,
    /// Whether it moves.
    pub state: BatchState,
    /// What keeps its queued jobs from being sent.
    pub parked_by: Option<Parked>,
    /// Why the program paused it by itself, as people read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
    /// Accepted jobs.
    pub jobs: u32,
    /// Sum of the prices of all jobs.
    pub planned_credits: u64,
    /// The most it may spend.
    pub budget_credits: u64,
    /// What the cheapest of the jobs that wait next needs, where the batch's budget or the balance parks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_credits: Option<u64>,
    /// What is left of the account's balance, as far as it is known, where it parks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance_credits: Option<u64>,
    /// The service refuses them for want of credits (402), although `balance_credits` covers the next one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub refused_although_covered: bool,
    /// What is missing, where a budget parks them that is not the batch's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_shortage: Option<BudgetShortage>,
    /// Jobs of all batches whose outputs wait for a result host that is not available, where that parks them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub outputs_waiting: u32,
    /// Set aside at this moment.
    pub held_credits: u64,
    /// Charged and not given back: refunds are taken off already.
    pub charged_credits: u64,
    /// Covered by a plan allowance.
    pub waived_credits: u64,
    /// Given back by the service, of all that was ever charged.
    pub refunded_credits: u64,
    /// The most that may have been charged for jobs that a state which is gone may have sent: it counts against the
    /// budget of the batch and those of the configuration until they are looked up, after the batch is resumed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub may_be_charged_credits: u64,
    /// The part of it that counts against the budget of the batch when the job that waits next is sent: nothing where that may
    /// have been sent itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub beside_credits: u64,
    /// Jobs of those that are submitting or running that are overdue: they are watched, and nothing waits for them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub overdue: u32,
    /// Queued jobs of which a task of an earlier attempt is still running: it is watched, and its outputs are downloaded in
    /// the place of another attempt if it succeeds first.
    #[serde(default, skip_serializing_if = "is_none")]
    pub watched: u32,
    /// Rows of the last manifest that were refused: its receipt says why.
    #[serde(default, skip_serializing_if = "is_none")]
    pub refused_rows: u32,
    /// Jobs whose outputs wait for a person's decision.
    #[serde(default, skip_serializing_if = "is_none")]
    pub waiting_for_review: u32,
    /// Jobs of each kind, in the order of the kinds' names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindStatus>,
    /// What of it is done first and what waits until a person continues, while it has a pilot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Pilot>,
    /// Jobs that failed last since the process that works on them began, the last one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_failures: Vec<LastFailure>,
    /// Jobs by state; states without jobs are left out.
    #[serde(flatten)]
    pub states: BTreeMap<String, u32>,
}

/// The jobs of one kind, of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindStatus {
    /// What they generate.
    pub kind: String,
    /// Accepted ones.
    pub jobs: u32,
    /// Those that have ended, in whatever way.
    pub ended: u32,
}

impl KindStatus {
    fn new(kind: Kind, counts: &KindCounts) -> KindStatus {
        KindStatus { kind: kind.to_string(), jobs: counts.rows, ended: counts.ended.all() }
    }
}

/// Whether a batch moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// It moves.
    Active,
    /// Something that lifts by itself or by an owner's doing keeps it.
    Parked,
    /// Nothing more of it is sent until somebody resumes it.
    Paused,
    /// Every job has ended, and outputs wait for a person's decision.
    Review,
    /// Every job has ended.
    Done,
}

impl BatchState {
    /// The name in everything shown.
    pub fn name(self) -> &'static str {
        match self {
            BatchState::Active => "active",
            BatchState::Parked => "parked",
            BatchState::Paused => "paused",
            BatchState::Review => "review",
            BatchState::Done => "done",
        }
    }
}

impl BatchStatus {
    /// From what the engine shows and the state holds.
    pub fn new(record: &BatchRecord, overview: &BatchOverview) -> BatchStatus {
        let parked = overview.parked;
        let state = match (record.is_done(), parked) {
            (true, _) => BatchState::Done,
            (false, _) if record.waits_for_review() => BatchState::Review,
            (false, _) if record.paused.is_some() => BatchState::Paused,
            (false, Some(_)) => BatchState::Parked,
            (false, None) => BatchState::Active,
        };
        BatchStatus {
            name: record.name.clone(),
            state,
            parked_by: parked.filter(|_| !matches!(state, BatchState::Done | BatchState::Review)),
            pause_reason: record
                .paused
                .filter(|_| state == BatchState::Paused)
                .and_then(Pause::reason)
                .map(str::to_owned),
            jobs: overview.rows,
            planned_credits: overview.planned.0,
            budget_credits: record.budget().0,
            needed_credits: overview.needs.filter(|_| state == BatchState::Parked).map(|needs| needs.0),
            balance_credits: overview
                .balance
                .filter(|_| state == BatchState::Parked)
                .map(|balance| balance.0),
            refused_although_covered: overview.is_refused && state == BatchState::Parked,
            budget_shortage: overview.shortage.clone().filter(|_| state == BatchState::Parked),
            outputs_waiting: if state == BatchState::Parked { overview.unfetched } else { 0 },
            held_credits: overview.totals.held.0,
            charged_credits: overview.totals.spent.0,
            waived_credits: overview.totals.waived.0,
            refunded_credits: overview.totals.refunded.0,
            may_be_charged_credits: record.may_be_charged.0,
            beside_credits: overview.beside.0,
            overdue: overview.overdue,
            watched: overview.watched,
            refused_rows: record.refused_rows,
            waiting_for_review: record.unreviewed,
            pilot: record.pilot.filter(|_| !matches!(state, BatchState::Done | BatchState::Review)),
            kinds: record.kinds.iter().map(|(kind, counts)| KindStatus::new(*kind, counts)).collect(),
            last_failures: overview.last_failures.clone(),
            states: states_of(record, overview),
        }
    }

    /// The same where it is told whether an engine works on the state: without one nothing moves.
    #[must_use]
    pub fn with_process(self, is_worked_on: bool) -> BatchStatus {
        match self.state {
            BatchState::Active if !is_worked_on => {
                BatchStatus { state: BatchState::Parked, parked_by: Some(Parked::NoProcess), ..self }
            }
            _ => self,
        }
    }

    /// The budgets with which a batch that waits for a larger one could go on: for its next job, and for all of it. Jobs that
    /// wait may cost more than was planned: each is taken to cost what the next one needs, and none less than was planned.
    /// In credits; nothing where no job waits.
    pub fn larger_budgets(&self) -> Option<(u64, u64)> {
        let (needed, committed) = (self.needed_credits?, self.committed_credits());
        let waiting = u64::from(self.in_state(JobState::Queued));
        let next = committed.saturating_add(needed);
        let all = committed.saturating_add(needed.saturating_mul(waiting));
        Some((next, all.max(self.planned_credits).max(next)))
    }

    /// What is held for earlier attempts in doubt of jobs that have ended otherwise, in credits, once all jobs have ended and
    /// none is in doubt itself.
    pub fn held_for_earlier_attempts(&self) -> u64 {
        let has_ended = matches!(self.state, BatchState::Done | BatchState::Review);
        if has_ended && self.in_state(JobState::InDoubt) == 0 { self.held_credits } else { 0 }
    }

    /// What counts against its budget when its next job is sent, in credits.
    pub fn committed_credits(&self) -> u64 {
        self.held_credits + self.charged_credits + self.beside_credits
    }

    /// What is left of its budget, in credits.
    pub fn left_credits(&self) -> u64 {
        self.budget_credits.saturating_sub(self.committed_credits())
    }

    /// Jobs in a state.
    pub fn in_state(&self, state: JobState) -> u32 {
        self.states.get(state.name()).copied().unwrap_or_default()
    }

    /// `3 running, 5 succeeded (2 waiting for review)`, in the order of a job's life.
    pub fn states_text(&self) -> String {
        let replaced = self.states.get(REPLACED).copied().unwrap_or_default();
        let known = JobState::ALL.map(|state| (self.in_state(state), state.name()));
        let known = [known.as_slice(), &[(replaced, REPLACED)]].concat();
        let known = known.iter().filter(|(n, _)| *n > 0);
        let text = known.map(|(n, name)| format!("{n} {name}")).collect::<Vec<_>>().join(", ");
        match self.waiting_for_review {
            0 => text,
            waiting => format!("{text} ({waiting} waiting for review)"),
        }
    }
}

/// How many jobs are in each state. Those that were never sent, since a newer version of their rows came first, are
/// counted as `replaced`, apart from what was canceled.
fn states_of(record: &BatchRecord, overview: &BatchOverview) -> BTreeMap<String, u32> {
    let replaced = record.ended.replaced;
    let counted = overview.states.into_iter().map(|(state, n)| match state {
        JobState::Canceled => (state.name(), n.saturating_sub(replaced)),
        _ => (state.name(), n),
    });
    let counted = counted.chain([(REPLACED, replaced)]).filter(|(_, n)| *n > 0);
    counted.map(|(state, n)| (state.to_owned(), n)).collect()
}

/// Downloads beside uploads, since the process began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    /// Results of the service.
    pub downloads: TransferTotals,
    /// Files and outputs that were put into object stores.
    pub uploads: TransferTotals,
}

/// Files that were transferred.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferTotals {
    pub files: u64,
    /// Requests that did not end well.
    pub failed: u64,
    pub bytes: u64,
    /// Time that the transfers took, each counted by itself, in milliseconds.
    pub busy_ms: u64,
}
