//! What a page shows of the whole: budgets, the balance and the queue.

use std::cmp::Reverse;

use crate::domain::budget_group::LimitedGroup;
use crate::domain::credits::Credits;
use crate::domain::ledger::Totals;
use crate::domain::time::{Millis, Now};
use crate::engine::scheduler::Scheduler;

/// Groups with limits that are told of, those first that have used most of theirs.
const GROUPS_MAX: usize = 24;

/// The whole at one moment, from memory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct AccountOverview {
    /// What the whole state has held and spent.
    pub total: Totals,
    /// `budget.total`.
    pub total_limit: Option<Credits>,
    /// What the present UTC day has held and spent.
    pub day: Totals,
    /// What jobs may have been charged that a state which is gone may have sent: it counts against the limits.
    pub may_be_charged: Credits,
    /// `budget.per_day`.
    pub day_limit: Option<Credits>,
    /// Groups of rows that have a limit.
    pub groups: Vec<LimitedGroup>,
    /// How many more have one.
    pub more_groups: usize,
    /// The balance as the service told it last.
    pub balance: Option<Credits>,
    /// `budget.min_balance`.
    pub min_balance: Option<Credits>,
    /// How long the oldest queue of unsent jobs has waited; zero when none waits.
    pub queue_age: Millis,
    /// How many jobs may be in flight at present.
    pub in_flight_limit: u32,
}

impl Scheduler {
    /// The whole at this moment. Looks at every unfinished batch and every group that has a limit, and at no job.
    pub fn account_overview(&self, now: Now) -> AccountOverview {
        let limits = &self.settings.limits;
        let today = now.wall.utc_day();
        let mut groups = self.budgets.groups().limited(&self.settings.group_limits, today);
        let used = |group: &LimitedGroup| match group.limit.0 {
            0 => u64::MAX,
            limit => group.totals.committed().0.saturating_mul(1000) / limit,
        };
        groups.sort_by_key(|group| Reverse(used(group)));
        let more_groups = groups.len().saturating_sub(GROUPS_MAX);
        groups.truncate(GROUPS_MAX);
        AccountOverview {
            total: self.budgets.total(),
            total_limit: limits.total,
            day: self.budgets.day(today),
            may_be_charged: self.may_be_charged(),
            day_limit: limits.per_day,
            groups,
            more_groups,
            balance: self.account.last_balance(),
            min_balance: limits.min_balance,
            queue_age: self.queue_age(now),
            in_flight_limit: self.present_limit(),
        }
    }
}
