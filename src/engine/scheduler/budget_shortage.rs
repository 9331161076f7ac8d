//! What is missing where a budget parks a batch.

use crate::domain::budget::{self, BudgetShortage};
use crate::domain::budget_group::GroupLimit;
use crate::domain::credits::Credits;
use crate::domain::ids::JobKey;
use crate::domain::job::Order;
use crate::domain::ledger::Totals;
use crate::domain::parked_reason::Parked;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::{OpenJob, Scheduler};

impl Scheduler {
    /// The jobs of a batch that wait next, with what is to be held for each.
    fn next_jobs<'a>(
        &'a self,
        active: &'a ActiveBatch,
    ) -> impl Iterator<Item = (JobKey, &'a Order, Credits)> + 'a {
        let batch = active.record().no;
        let queued = self.jobs.candidates(batch, 1);
        let queued = queued.map(|open: &OpenJob| (open.key(), &open.spec().order, open.job().max_credits()));
        let rows = active.rows().map(move |row| (JobKey { batch, seq: row.spec.seq }, &row.spec.order, None));
        queued
            .chain(rows)
            .filter_map(|(key, order, max)| Some((key, order, self.prices.hold_of(key, order, max)?)))
    }

    /// The smallest hold among the jobs of a batch that wait next, and what counts against its budget beside what is held and
    /// charged when that job is sent.
    pub(super) fn next_hold(&self, active: &ActiveBatch) -> Option<(Credits, Credits)> {
        let (key, _, hold) = self.next_jobs(active).min_by_key(|(.., hold)| *hold)?;
        let is_part = self.may_have_been_sent(&key);
        Some((hold, if is_part { Credits::ZERO } else { active.record().may_be_charged }))
    }

    /// What is missing for the next job of a batch that is parked by a budget that is not its own.
    pub(super) fn budget_shortage(&self, active: &ActiveBatch, parked: Parked) -> Option<BudgetShortage> {
        let limits = &self.settings.limits;
        let of = |setting: &str, totals: Totals, limit: Option<Credits>| {
            let limit = limit?;
            let short = self.next_jobs(active).map(|(key, _, needed)| {
                let totals = totals.with_may_be_charged(self.may_be_charged_beside(&key));
                BudgetShortage::of(setting.to_owned(), None, totals, limit, needed)
            });
            short.min_by_key(BudgetShortage::missing)
        };
        match parked {
            Parked::TotalBudget => of("budget.total", self.budgets.total(), limits.total),
            Parked::DayBudget => {
                let today = self.budgets.latest_day()?;
                of("budget.per_day", self.budgets.day(today), limits.per_day)
            }
            Parked::GroupBudget | Parked::GroupDayBudget => {
                let short = self.next_jobs(active).filter_map(|(key, order, needed)| {
                    self.group_shortage(active, (key, order), needed, parked == Parked::GroupDayBudget)
                });
                short.min_by_key(BudgetShortage::missing)
            }
            _ => None,
        }
    }

    /// What is missing of the budgets of its own groups for a job that waits; nothing where it fits into them.
    pub fn group_shortage_of(&self, key: JobKey, order: &Order) -> Option<(Parked, BudgetShortage)> {
        let active = self.batches.get(&key.batch)?;
        let max = self.jobs.get(&key).and_then(|open| open.job().max_credits());
        let needed = self.prices.hold_of(key, order, max)?;
        let short = |parked: Parked| {
            let shortage =
                self.group_shortage(active, (key, order), needed, parked == Parked::GroupDayBudget)?;
            Some((parked, shortage))
        };
        short(Parked::GroupBudget).or_else(|| short(Parked::GroupDayBudget))
    }

    /// What may be charged already beside a job: it is a part of that itself where it may have been sent.
    fn may_be_charged_beside(&self, key: &JobKey) -> Credits {
        if self.may_have_been_sent(key) { Credits::ZERO } else { self.may_be_charged() }
    }

    /// What is missing of the budget of a group for one job.
    fn group_shortage(
        &self,
        active: &ActiveBatch,
        (key, order): (JobKey, &Order),
        needed: Credits,
        is_of_day: bool,
    ) -> Option<BudgetShortage> {
        let (groups, origin) = (self.budgets.groups(), active.record().origin.as_ref());
        let today = self.budgets.latest_day().unwrap_or_default();
        let may_be_charged = self.may_be_charged_beside(&key);
        let short = |GroupLimit { group, total, per_day }: GroupLimit| {
            let found = groups.get(&group);
            let (totals, limit) =
                if is_of_day { (found.of_day(today), per_day) } else { (found.total, total) };
            let totals = totals.with_may_be_charged(may_be_charged);
            if budget::fits(totals, limit, needed) {
                return None;
            }
            let value = group.key.value_of(&order.meta, origin);
            let (setting, name) = group.key.setting_of(&group.value, value.as_deref(), is_of_day);
            Some(BudgetShortage::of(setting, Some(name), totals, limit?, needed))
        };
        let limits = groups.limits_of(&self.settings.group_limits, &order.meta, origin);
        limits.into_iter().filter_map(short).max_by_key(BudgetShortage::missing)
    }
}
