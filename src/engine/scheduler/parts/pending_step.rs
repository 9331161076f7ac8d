//! The step that is being put together: what changed, what has ended, and what is to begin: downloads at once, everything else
//! when the step is durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::ids::{BatchNo, JobKey};
use crate::domain::job::JobSpec;
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::time::{Tick, Timestamp};
use crate::domain::utc_day::UtcDay;
use crate::engine::scheduler::messages::{Effect, Step};
use crate::engine::scheduler::parts::active_batches::ActiveBatches;
use crate::engine::scheduler::parts::budget_totals::BudgetTotals;
use crate::engine::scheduler::parts::open_jobs::OpenJobs;
use crate::store::{Change, JobRecord};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct PendingStep {
    effects: Vec<Effect>,
    wake: Option<Tick>,
    ended: Vec<(Arc<JobSpec>, JobRecord)>,
    changed_outcomes: Vec<JobRecord>,
    changed_jobs: BTreeSet<JobKey>,
    changed_batches: BTreeSet<BatchNo>,
    changed_days: BTreeSet<UtcDay>,
    are_totals_changed: bool,
    are_groups_new: bool,
}

impl PendingStep {
    /// An open job is to be made durable as it will stand at the end of the step.
    pub fn job_changed(&mut self, key: JobKey) {
        self.changed_jobs.insert(key);
    }

    /// How many jobs are to be made durable so far.
    pub fn changed_jobs(&self) -> usize {
        self.changed_jobs.len() + self.ended.len() + self.changed_outcomes.len()
    }

    /// A batch is to be made durable as it will stand at the end of the step.
    pub fn batch_changed(&mut self, no: BatchNo) {
        self.changed_batches.insert(no);
    }

    /// Whether a batch is to be made durable.
    pub fn has_changed_batch(&self, no: BatchNo) -> bool {
        self.changed_batches.contains(&no)
    }

    /// The totals of the whole are to be made durable, and those of groups with them.
    pub fn totals_changed(&mut self) {
        self.are_totals_changed = true;
    }

    /// The totals of groups were counted anew.
    pub fn groups_are_new(&mut self) {
        self.are_groups_new = true;
    }

    /// A day's totals are to be made durable.
    pub fn day_changed(&mut self, day: UtcDay) {
        self.changed_days.insert(day);
    }

    /// A job has ended.
    pub fn job_ended(&mut self, spec: Arc<JobSpec>, record: JobRecord) {
        self.changed_jobs.remove(&record.key);
        self.ended.push((spec, record));
    }

    /// A job that had ended stands otherwise now, and is still over.
    pub fn outcome_changed(&mut self, record: JobRecord) {
        self.changed_outcomes.push(record);
    }

    /// Jobs of a batch that have ended in this step, or stand otherwise since they did: nothing on disk says so yet.
    pub fn ended_of(&self, no: BatchNo) -> impl Iterator<Item = JobKey> {
        let ended = self.ended.iter().map(|(_, record)| record.key);
        let changed = self.changed_outcomes.iter().map(|record| record.key);
        ended.chain(changed).filter(move |key| key.batch == no)
    }

    /// Something is to begin: see the module's documentation.
    pub fn begin(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The next step is due at once.
    pub fn wake_at(&mut self, at: Tick) {
        self.wake = Some(at);
    }

    /// Takes out what is to begin.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The step, with everything that changed as it stands now. `next_due` is when the next one is due, where nothing
    /// is at once.
    pub fn finish(
        &mut self,
        jobs: &OpenJobs,
        batches: &mut ActiveBatches,
        budgets: &BudgetTotals,
        account: Option<AccountBlock>,
        (next_due, now): (Option<Tick>, Timestamp),
    ) -> Step {
        let pending = std::mem::take(self);
        let mut changes = Vec::new();
        let open = pending.changed_jobs.iter().filter_map(|key| jobs.get(key));
        changes.extend(open.map(|open| Change::Open(open.record().clone())));
        changes.extend(pending.ended.iter().map(|(_, record)| Change::End(record.clone())));
        changes.extend(pending.changed_outcomes.iter().cloned().map(Change::End));
        for no in &pending.changed_batches {
            let Some(active) = batches.get_mut(no) else { continue };
            active.note_standing(jobs.counts().sent_and_open_of(*no), now);
            changes.push(Change::Batch(Box::new(active.record().clone())));
        }
        if pending.are_totals_changed {
            changes.push(Change::Total(budgets.total()));
        }
        // With every change of the totals: otherwise they are counted anew.
        if (pending.are_totals_changed || pending.are_groups_new) && !budgets.groups().is_empty() {
            changes.push(Change::Groups(Box::new(budgets.groups().clone())));
        }
        changes.extend(pending.changed_days.iter().map(|day| Change::Day(*day, budgets.day(*day))));
        changes.extend(account.map(Change::Account));
        let wake = pending.wake.or(next_due);
        let PendingStep { effects, ended, changed_outcomes, .. } = pending;
        Step { changes, effects, wake, ended, changed_outcomes }
    }
}
