//! What the live pages show, made of the same answers that commands get.

use crate::domain::credits::Credits;
use crate::domain::job::State;
use crate::domain::job_state::JobState;
use crate::domain::ledger::Totals;
use crate::domain::parked_reason::Parked;
use crate::domain::remedy::{Remedy, remedy};
use crate::domain::row_versions::REPLACED;
use crate::domain::schedule::Schedule;
use crate::domain::time::Timestamp;
use crate::engine::job_page::ListedJob;
use crate::engine::scheduler::AccountOverview;
use crate::pages::document::in_address;
use crate::pages::live_batch::{ANOTHER_TAKE, HistoryRow, JobRow, JobView};
use crate::pages::live_budget_bar::BudgetView;
use crate::pages::live_document::DayCredits;
use crate::pages::live_overview::{BatchCredits, BatchView, Now, OverviewView, ParkedView, ScheduleView};
use crate::server::job_facts::{job_facts, kind_and_model};
use crate::server::protocol::{BatchState, BatchStatus, Explanation, Schedules};

/// Everything on the overview.
pub(super) fn overview(
    batches: &[BatchStatus],
    not_listed: u64,
    account: &AccountOverview,
    days: Vec<DayCredits>,
    schedules: Vec<ScheduleView>,
) -> OverviewView {
    let sum = |of: fn(&BatchStatus) -> u64| batches.iter().map(of).sum();
    let now = Now {
        in_flight: sum(|batch| u64::from(in_flight(batch))),
        in_flight_limit: account.in_flight_limit,
        waiting: sum(|batch| u64::from(batch.in_state(JobState::Queued))),
        oldest: account.queue_age,
        held: account.total.held.0,
        spent_today: account.day.spent.0,
        balance: account.balance.map(|balance| balance.0),
        min_balance: account.min_balance.map(|least| least.0),
    };
    let budget = |name: &str, totals: Totals, limit: Option<Credits>| BudgetView {
        name: name.to_owned(),
        held: totals.held.0,
        spent: totals.spent.0,
        perhaps: account.may_be_charged.0,
        limit: limit.map(|limit| limit.0),
    };
    let mut budgets = vec![
        budget("Today (budget.per_day)", account.day, account.day_limit),
        budget("In total (budget.total)", account.total, account.total_limit),
    ];
    budgets.extend(account.groups.iter().map(|group| {
        let name = if group.is_of_day { format!("{}, today", group.name) } else { group.name.clone() };
        budget(&name, group.totals, Some(group.limit))
    }));
    OverviewView {
        now,
        parked: batches.iter().filter_map(parked).collect(),
        budgets,
        more_budgets: account.more_groups,
        days,
        day_limit: account.day_limit.map(|limit| limit.0),
        batches: batches.iter().rev().map(batch_view).collect(),
        not_listed,
        schedules,
    }
}

fn in_flight(batch: &BatchStatus) -> u32 {
    JobState::ALL.iter().filter(|state| state.is_moving()).map(|state| batch.in_state(*state)).sum()
}

/// A batch in numbers.
pub(super) fn batch_view(batch: &BatchStatus) -> BatchView {
    let replaced = batch.states.get(REPLACED).copied().unwrap_or_default();
    let states = JobState::ALL.iter().map(|state| (state.name().to_owned(), batch.in_state(*state)));
    BatchView {
        name: batch.name.to_string(),
        state: batch.state.name(),
        jobs: batch.jobs,
        succeeded: batch.in_state(JobState::Succeeded),
        failed: batch.in_state(JobState::Failed),
        in_doubt: batch.in_state(JobState::InDoubt),
        dropped: batch.in_state(JobState::Canceled) + batch.in_state(JobState::Expired) + replaced,
        in_flight: in_flight(batch),
        waiting: batch.in_state(JobState::Queued),
        budget: BatchCredits {
            planned: batch.planned_credits,
            limit: batch.budget_credits,
            held: batch.held_credits,
            spent: batch.charged_credits,
            perhaps: batch.may_be_charged_credits,
            waived: batch.waived_credits,
            refunded: batch.refunded_credits,
        },
        states: states.filter(|(_, n)| *n > 0).collect(),
        refused_rows: batch.refused_rows,
        unreviewed: batch.waiting_for_review,
    }
}

/// Why a batch does not move, and what lifts it; nothing for one that does.
pub(super) fn parked(batch: &BatchStatus) -> Option<ParkedView> {
    let parked = batch.parked_by.filter(|_| batch.state != BatchState::Done)?;
    let left = batch.left_credits();
    let waiting = batch.outputs_waiting;
    let needs = (waiting > 0).then(|| format!("the outputs of {waiting} jobs wait"));
    let needs =
        needs.or_else(|| match (&batch.budget_shortage, batch.needed_credits, batch.balance_credits) {
            (Some(shortage), ..) => Some(shortage.to_string()),
            (None, Some(needed), Some(balance)) => {
                Some(format!("the next job needs {needed} credits, the balance is {balance}"))
            }
            (None, Some(needed), None) => Some(format!(
                "the next job needs {needed} credits, {left} of {} are left",
                batch.budget_credits
            )),
            (None, None, _) => batch.pause_reason.clone(),
        });
    let to = |action: &str| format!("/batches/{}{action}", in_address(batch.name.as_str()));
    let lifts = match parked {
        Parked::BatchBudget => vec![(to("/budget"), "Raise the budget…".to_owned())],
        Parked::Paused => vec![(to("/resume"), "Resume…".to_owned())],
        // Of the rest one may be what a row of the pilot takes outputs of.
        Parked::Inputs if batch.pilot.is_none() => Vec::new(),
        Parked::Inputs | Parked::Pilot => vec![(to("/continue"), "Continue…".to_owned())],
        Parked::Credits => vec![(to("/resume"), "Credits were added: try again…".to_owned())],
        Parked::NoPrice | Parked::PerhapsSent => {
            vec![(to("?state=queued#jobs"), "Choose the job…".to_owned())]
        }
        _ => Vec::new(),
    };
    Some(ParkedView { batch: batch.name.to_string(), why: parked.explain_for(&batch.name), needs, lifts })
}

/// When schedules fire next.
pub(super) fn schedules(schedules: &Schedules, now: Timestamp) -> Vec<ScheduleView> {
    let view = |active: &crate::server::protocol::ActiveSchedule| {
        let schedule = Schedule::parse(&active.cron, Some(&active.timezone)).ok();
        let next = schedule.and_then(|schedule| {
            let at = schedule.next_after(now)?;
            Some((at, schedule.local(at)))
        });
        let (name, cron, timezone) = (active.name.clone(), active.cron.clone(), active.timezone.clone());
        ScheduleView { name, cron, timezone, next }
    };
    schedules.schedules.iter().map(view).collect()
}

/// A job of a list.
pub(super) fn job_row(listed: &ListedJob) -> JobRow {
    let ListedJob { spec, record, superseded } = listed;
    let (order, job) = (&spec.order, &record.job);
    let error = match job.state() {
        State::Failed { fault, .. } => Some(fault.to_string()),
        _ => None,
    };
    JobRow {
        id: spec.id.to_string(),
        label: spec.label.clone(),
        line: order.line,
        state: job.state().name().to_owned(),
        what: kind_and_model(spec, job),
        prompt: order.text(),
        credits: job.all_books().charged.0,
        error,
        superseded: *superseded,
    }
}

/// The whole story of a job.
pub(super) fn job_view(explanation: &Explanation) -> JobView {
    let Explanation { batch, spec, job, parked_by, superseded, next, .. } = explanation;
    let after = remedy(job);
    let acts = match job.state() {
        State::Queued if *parked_by == Some(Parked::NoPrice) => {
            vec![("retry", "Set its price limit…"), ("cancel", "Cancel…")]
        }
        State::Queued if *parked_by == Some(Parked::PerhapsSent) => {
            vec![("retry", "Set its price limit…"), ("resolve", "Record the charge…")]
        }
        State::Queued => vec![("cancel", "Cancel…")],
        State::Succeeded { .. } if *superseded => vec![("download", "Download again…")],
        State::Succeeded { .. } => vec![("download", "Download again…"), (ANOTHER_TAKE, "Another take…")],
        State::Failed { .. } if after == Some(Remedy::Download) => vec![("download", "Download again…")],
        // A retry leaves it out.
        State::Failed { .. } if !after.is_some_and(Remedy::is_retry) => Vec::new(),
        State::Failed { .. } | State::Canceled { .. } | State::Expired => vec![("retry", "Retry…")],
        State::InDoubt { .. } => vec![("resolve", "Record the charge…")],
        _ => Vec::new(),
    };
    let history = job.history().iter().map(|line| HistoryRow {
        at: line.at,
        attempt: line.attempt.0,
        what: line.what.to_string(),
        moved: line.movement.map(|movement| movement.to_string()),
    });
    JobView {
        id: spec.id.to_string(),
        batch: batch.to_string(),
        label: spec.label.clone(),
        state: job.state().name().to_owned(),
        prompt: spec.order.text(),
        facts: job_facts(explanation),
        history: history.collect(),
        next: next.clone(),
        acts,
    }
}
