//! What is held and spent against the budgets: of the whole state, of each UTC day, and of groups of rows.

use std::collections::BTreeMap;

use crate::domain::admission::Limits;
use crate::domain::batch_origin::Origin;
use crate::domain::budget;
use crate::domain::budget_group::{GroupLimit, GroupLimits, GroupTotals};
use crate::domain::credits::Credits;
use crate::domain::json_object::JsonObject;
use crate::domain::ledger::{Movement, OutOfBalance, Totals};
use crate::domain::utc_day::UtcDay;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct BudgetTotals {
    total: Totals,
    days: BTreeMap<UtcDay, Totals>,
    groups: GroupTotals,
}

impl BudgetTotals {
    /// Goes on from what the whole state has held and spent. Of the groups nothing is known.
    pub fn new(total: Totals, limits: &GroupLimits) -> BudgetTotals {
        let mut budgets =
            BudgetTotals { total, days: BTreeMap::new(), groups: GroupTotals::of_keys(limits.keys()) };
        budgets.groups.reserve(limits);
        budgets
    }

    /// Takes up what the groups have held and spent.
    pub fn set_groups(&mut self, groups: GroupTotals, limits: &GroupLimits) {
        self.groups = groups;
        self.groups.reserve(limits);
    }

    /// Other limits of groups are in force: values with a limit of their own have totals from now on.
    pub fn reserve_groups(&mut self, limits: &GroupLimits) {
        self.groups.reserve(limits);
    }

    /// What the groups have held and spent.
    pub fn groups(&self) -> &GroupTotals {
        &self.groups
    }

    /// The groups that a row counts for have totals from now on.
    pub fn take_up(&mut self, meta: &JsonObject, origin: Option<&Origin>) {
        self.groups.take_up(meta, origin);
    }

    /// Takes up a day as it was stored.
    pub fn set_day(&mut self, day: UtcDay, totals: Totals) {
        self.days.insert(day, totals);
    }

    /// Whether a day was taken up.
    pub fn has_day(&self, day: UtcDay) -> bool {
        self.days.contains_key(&day)
    }

    /// Whether so much more fits into every budget: of its batch, which has held and spent `batch`, of the state, of the day,
    /// and of the groups that it counts for.
    pub fn fit(
        &self,
        hold: Credits,
        (batch, budget): (Totals, Credits),
        limits: &Limits,
        groups: &[GroupLimit],
        today: UtcDay,
    ) -> bool {
        let fits = |totals, limit| budget::fits(totals, limit, hold);
        let fits_group = |GroupLimit { group, total, per_day }: &GroupLimit| {
            let books = self.groups.get(group);
            fits(books.total, *total) && fits(books.of_day(today), *per_day)
        };
        fits(batch, Some(budget))
            && fits(self.day(today), limits.per_day)
            && fits(self.total, limits.total)
            && groups.iter().all(fits_group)
    }

    /// What the whole state has held and spent.
    pub fn total(&self) -> Totals {
        self.total
    }

    /// What a day has held and spent; nothing, where it was not taken up.
    pub fn day(&self, day: UtcDay) -> Totals {
        self.days.get(&day).copied().unwrap_or_default()
    }

    /// The last day that was taken up or booked for.
    pub fn latest_day(&self) -> Option<UtcDay> {
        self.days.last_key_value().map(|(day, _)| *day)
    }

    /// Everything that was ever charged, in credits, given back or not.
    pub fn charged(&self) -> Credits {
        self.total.spent + self.total.refunded
    }

    /// Books a movement of a row against the whole, against its groups, and against the day of its POST where that is
    /// known.
    ///
    /// # Errors
    /// [`OutOfBalance`] when more would be taken out than is in it.
    pub fn apply(
        &mut self,
        movement: Movement,
        day: Option<UtcDay>,
        meta: &JsonObject,
        origin: Option<&Origin>,
    ) -> Result<(), OutOfBalance> {
        self.total.apply(movement)?;
        self.groups.apply(movement, day, meta, origin)?;
        match day {
            Some(day) => self.days.entry(day).or_default().apply(movement),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_movement_counts_for_the_whole_and_for_the_day_of_its_post() {
        let (monday, tuesday) = (UtcDay(1), UtcDay(2));
        let mut budgets =
            BudgetTotals::new(Totals { held: Credits(5), ..Totals::default() }, &GroupLimits::new());
        budgets.set_day(monday, Totals { held: Credits(5), ..Totals::default() });
        budgets.apply(Movement::Hold(Credits(10)), Some(tuesday), &JsonObject::default(), None).unwrap();
        let settle = Movement::Settle { held: Credits(5), spent: Credits(4), waived: Credits(0) };
        budgets.apply(settle, Some(monday), &JsonObject::default(), None).unwrap();
        assert_eq!((budgets.day(monday).held, budgets.day(monday).spent), (Credits(0), Credits(4)));
        assert_eq!((budgets.day(tuesday).held, budgets.total().held), (Credits(10), Credits(10)));
        assert_eq!(budgets.charged(), Credits(4));
    }

    #[test]
    fn what_was_refunded_was_charged_all_the_same() {
        let mut budgets =
            BudgetTotals::new(Totals { spent: Credits(9), ..Totals::default() }, &GroupLimits::new());
        budgets
            .apply(
                Movement::Refund { spent: Credits(9), waived: Credits(0) },
                None,
                &JsonObject::default(),
                None,
            )
            .unwrap();
        assert_eq!((budgets.total().spent, budgets.charged()), (Credits(0), Credits(9)));
    }

    #[test]
    fn a_day_that_does_not_balance_is_an_error() {
        let mut budgets =
            BudgetTotals::new(Totals { held: Credits(5), ..Totals::default() }, &GroupLimits::new());
        assert!(
            budgets
                .apply(Movement::Release(Credits(5)), Some(UtcDay(1)), &JsonObject::default(), None)
                .is_err()
        );
    }
}
