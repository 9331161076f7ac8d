//! The account: credits and plan allowances (document: "Video cost", "POST /api/v1/images", "Limits").
//!
//! Pure: the day is an argument. Credits never go below zero, because a charge is offered first and made after.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The account's subscription, which decides its daily allowances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    /// No allowances.
    #[default]
    None,
    /// 25 images per UTC day.
    Pro,
    /// 100 images and 300 output seconds of `house-c1` per UTC day.
    Ultra,
}

/// The models of the Pro and Ultra allowance of images.
const IMAGE_MODELS: [&str; 5] = ["gi-2", "gi-2-5", "gi-2-5-alt", "ni-2", "x-imagine-image"];
/// The model of the Ultra allowance of video seconds.
const HOUSE: &str = "house-c1";

/// Whether an allowance may cover an image of this model, by its id in the document.
pub(crate) fn may_cover_image(model: &str) -> bool {
    IMAGE_MODELS.contains(&model)
}

/// Whether an allowance may cover a video of this model, by its id in the document.
pub(crate) fn may_cover_video(model: &str) -> bool {
    model == HOUSE
}

/// What an allowance is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pool {
    /// Output seconds of `house-c1`.
    HouseSeconds,
    /// Images of the listed models.
    Images,
}

impl Pool {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::HouseSeconds => "house-c1-seconds",
            Self::Images => "images",
        }
    }

    /// Units per UTC day under a plan.
    pub(crate) fn daily(self, plan: Plan) -> u64 {
        match (self, plan) {
            (Self::Images, Plan::Pro) => 25,
            (Self::Images, Plan::Ultra) => 100,
            (Self::HouseSeconds, Plan::Ultra) => 300,
            _ => 0,
        }
    }
}

/// Part of a day's allowance, used by one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Allowance {
    pub(crate) pool: Pool,
    /// The UTC day, as days since 1970.
    pub(crate) day: i64,
    pub(crate) units: u64,
}

/// How a price would be paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) charged_credits: u64,
    pub(crate) waived_credits: u64,
    pub(crate) allowance: Option<Allowance>,
}

/// Credits and what is used of each day's allowance.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) credits: u64,
    pub(crate) plan: Plan,
    /// While false every key is refused.
    pub(crate) key_revoked: bool,
    used: BTreeMap<(i64, Pool), u64>,
}

/// Days of allowance use kept in memory: a refund may come long after its day.
const DAYS_KEPT: usize = 800;

impl Account {
    /// How a price would be paid on a day, or `None` when the balance is too low.
    ///
    /// A request longer than what is left of the allowance is charged in full.
    pub(crate) fn cover(&self, price: u64, claim: Option<(Pool, u64)>, day: i64) -> Option<Cover> {
        if let Some((pool, units)) = claim {
            let used = self.used.get(&(day, pool)).copied().unwrap_or(0);
            if units > 0 && used.saturating_add(units) <= pool.daily(self.plan) {
                let allowance = Some(Allowance { pool, day, units });
                return Some(Cover { charged_credits: 0, waived_credits: price, allowance });
            }
        }
        (price <= self.credits).then_some(Cover {
            charged_credits: price,
            waived_credits: 0,
            allowance: None,
        })
    }

    /// Charges what [`Account::cover`] returned.
    pub(crate) fn take(&mut self, charged_credits: u64, allowance: Option<Allowance>) {
        self.credits = self.credits.saturating_sub(charged_credits);
        if let Some(slot) = allowance {
            let used = self.used.entry((slot.day, slot.pool)).or_default();
            *used = used.saturating_add(slot.units);
            while self.used.len() > DAYS_KEPT {
                self.used.pop_first();
            }
        }
    }

    /// Units of a day's allowance that another client of the account used.
    pub(crate) fn use_up(&mut self, pool: Pool, day: i64, units: u64) {
        let used = self.used.entry((day, pool)).or_default();
        *used = used.saturating_add(units);
    }

    /// Give it back after `failed` or `canceled`.
    pub(crate) fn give_back(&mut self, charged_credits: u64, allowance: Option<Allowance>) {
        self.credits = self.credits.saturating_add(charged_credits);
        if let Some(slot) = allowance
            && let Some(used) = self.used.get_mut(&(slot.day, slot.pool))
        {
            *used = used.saturating_sub(slot.units);
        }
    }

    /// Units used of a pool on a day.
    pub(crate) fn used(&self, pool: Pool, day: i64) -> u64 {
        self.used.get(&(day, pool)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(plan: Plan, credits: u64) -> Account {
        Account { credits, plan, ..Account::default() }
    }

    #[test]
    fn a_balance_lower_than_the_cost_is_refused_and_an_equal_one_is_not() {
        assert_eq!(account(Plan::None, 9).cover(10, None, 0), None);
        assert_eq!(account(Plan::None, 10).cover(10, None, 0).unwrap().charged_credits, 10);
    }

    #[test]
    fn allowances_are_25_and_100_images_and_300_seconds_a_day() {
        let daily = |plan| (Pool::Images.daily(plan), Pool::HouseSeconds.daily(plan));
        assert_eq!(daily(Plan::None), (0, 0));
        assert_eq!(daily(Plan::Pro), (25, 0));
        assert_eq!(daily(Plan::Ultra), (100, 300));
    }

    #[test]
    fn a_request_longer_than_the_remaining_allowance_is_charged_in_full() {
        let mut account = account(Plan::Ultra, 100);
        let first = account.cover(20, Some((Pool::HouseSeconds, 295)), 7).unwrap();
        assert_eq!((first.charged_credits, first.waived_credits), (0, 20));
        account.take(first.charged_credits, first.allowance);
        let longer = account.cover(12, Some((Pool::HouseSeconds, 6)), 7).unwrap();
        assert_eq!((longer.charged_credits, longer.waived_credits), (12, 0));
        let fits = account.cover(10, Some((Pool::HouseSeconds, 5)), 7).unwrap();
        assert_eq!(fits.waived_credits, 10);
        assert_eq!(account.cover(12, Some((Pool::HouseSeconds, 6)), 8).unwrap().waived_credits, 12);
    }

    #[test]
    fn a_failed_task_returns_its_slot_to_its_own_day() {
        let mut account = account(Plan::Pro, 0);
        let cover = account.cover(8, Some((Pool::Images, 1)), 3).unwrap();
        account.take(cover.charged_credits, cover.allowance);
        assert_eq!(account.used(Pool::Images, 3), 1);
        account.give_back(cover.charged_credits, cover.allowance);
        assert_eq!((account.used(Pool::Images, 3), account.credits), (0, 0));
    }
}
