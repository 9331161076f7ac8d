//! What a plan is compared with beside the budgets of its batches: the budget of the whole state and of a day, those of
//! groups of rows, and what must stay on the account.

use crate::cli::daemon_discovery;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::plan::totals::Totals;
use crate::config::Config;
use crate::domain::budget::{BudgetShortage, StateTotals};
use crate::domain::budget_group::{GroupLimits, GroupTotals};
use crate::domain::credits::Credits;
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;
use crate::server::protocol::{GroupTotalsRequest, TotalsRequest};
use crate::store::read_only::ReadOnlyState;

/// See the module's documentation.
pub(super) struct Budgets {
    /// `budget.total`.
    total: Option<Credits>,
    /// `budget.per_day`.
    pub(super) per_day: Option<Credits>,
    /// `budget.min_balance`.
    pub(super) min_balance: Option<Credits>,
    /// `budget.by`.
    groups: GroupLimits,
    /// What the state has held and spent, where that is known.
    spent: Option<StateTotals>,
    /// The same of groups.
    spent_by_group: Option<GroupTotals>,
    today: UtcDay,
}

impl Budgets {
    /// The limits of a configuration, and what a state has held and spent of them. A state is looked into only where
    /// something limits it.
    pub(super) async fn read(
        state: &ReadOnlyState,
        global: &Global,
        config: &Config,
        now: Timestamp,
    ) -> Result<Budgets, Failure> {
        let today = now.utc_day();
        let mut budgets = Budgets {
            total: config.budget.total,
            per_day: config.budget.per_day,
            min_balance: config.budget.min_balance,
            groups: config.budget.groups(),
            spent: None,
            spent_by_group: None,
            today,
        };
        if budgets.total.is_none() && budgets.per_day.is_none() && budgets.groups.is_empty() {
            return Ok(budgets);
        }
        if state.holder()?.is_none() {
            if let Some((spent, by_group)) = state.spent(today)? {
                (budgets.spent, budgets.spent_by_group) = (Some(spent), by_group);
            }
        } else if let Ok(Some(met)) = daemon_discovery::find_daemon(global, config, global.emulator).await {
            // An older daemon does not know the questions.
            budgets.spent = met.client.call(&TotalsRequest {}).await.ok();
            budgets.spent_by_group = met.client.call(&GroupTotalsRequest {}).await.unwrap_or_default();
        }
        Ok(budgets)
    }

    /// No sums yet, of the groups that have budgets.
    pub(super) fn no_sums(&self) -> GroupTotals {
        GroupTotals::of_keys(self.groups.keys())
    }

    /// Whether it is known what the state has held and spent.
    pub(super) fn are_known(&self) -> bool {
        self.spent.is_some()
    }

    /// The same of groups.
    pub(super) fn groups_are_known(&self) -> bool {
        self.spent_by_group.is_some()
    }

    /// What is missing of `budget.total` for what is planned.
    pub(super) fn total_shortage(&self, totals: &Totals) -> Option<BudgetShortage> {
        let spent = self.spent.unwrap_or_default();
        let spent = spent.total.with_may_be_charged(spent.may_be_charged);
        BudgetShortage::for_all("budget.total", spent, self.total?, totals.credits)
    }

    /// What is missing of `budget.per_day` to send all of it today.
    pub(super) fn day_shortage(&self, totals: &Totals) -> Option<BudgetShortage> {
        let spent = self.spent.unwrap_or_default();
        let spent = spent.day.with_may_be_charged(spent.may_be_charged);
        BudgetShortage::for_all("budget.per_day", spent, self.per_day?, totals.credits)
    }

    /// What is missing of the budgets of groups for what is planned.
    pub(super) fn group_shortages(&self, totals: &Totals) -> Vec<BudgetShortage> {
        let spent = self.spent_by_group.clone().unwrap_or_default();
        spent.shortages(&totals.by_group, &self.groups, self.today)
    }
}
