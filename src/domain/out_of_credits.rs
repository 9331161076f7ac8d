//! What the account refused to pay for: credits that ran out (402), and plan allowances that are used up.
//!
//! The service tells the balance and nothing of what is left of an allowance. So an allowance is found out by trying:
//! a refusal of what it may cover says that it is used up, until the next UTC day or until a task that drew on it
//! fails and gives its part back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::time::{Millis, Timestamp};
use crate::domain::utc_day::DAY_MS;

/// A refusal so soon after midnight may have come of clocks that disagree: the allowance is tried again afterwards.
const MIDNIGHT_DOUBT: Millis = Millis::from_secs(600);

/// What a job would draw from a plan allowance.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AllowanceUse {
    /// Which allowance: models with the same pool share it.
    pub pool: String,
    /// How much of it.
    pub units: u64,
}

/// What was refused, and holds until something lifts it. Durable, so that a restart asks for nothing twice.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountBlock {
    /// What must be paid waits for the balance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_credits: Option<OutOfCredits>,
    /// Allowances that refused something, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, PoolBlock>,
}

/// A 402, and no balance since that covers everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfCredits {
    /// When it first was answered.
    pub since: Timestamp,
    /// The dearest job that was refused.
    pub need: Credits,
}

/// An allowance that refused something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolBlock {
    /// When it did last.
    pub refused: Timestamp,
    /// The least that it refused; nothing where a part was given back since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
}

impl PoolBlock {
    /// Whether the refusal still says something: an allowance is new each UTC day.
    fn is_in_force(&self, now: Timestamp) -> bool {
        let into_the_day = Millis(self.refused.0.rem_euclid(DAY_MS).unsigned_abs());
        let is_doubtful = into_the_day < MIDNIGHT_DOUBT && now >= self.refused.after(MIDNIGHT_DOUBT);
        self.refused.utc_day() == now.utc_day() && !is_doubtful
    }
}

/// How jobs that an allowance may cover are sent while the balance does not cover them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// As if they were paid for: nothing of the allowance was ever refused.
    Freely,
    /// One at a time, and only what needs less than this.
    OneAtATime {
        /// The least that was refused today; nothing where that is another day, or a part was given back since.
        below: Option<u64>,
    },
}

impl AccountBlock {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == AccountBlock::default()
    }

    /// A job of this price was answered 402, although `allowance` might have covered it, where there is one.
    pub fn refuse(&mut self, need: Credits, allowance: Option<&AllowanceUse>, now: Timestamp) {
        let block = self.out_of_credits.get_or_insert(OutOfCredits { since: now, need });
        block.need = block.need.max(need);
        if let Some(AllowanceUse { pool, units }) = allowance {
            let before =
                self.pools.get(pool).filter(|pool| pool.is_in_force(now)).and_then(|pool| pool.units);
            let units = before.map_or(*units, |before| before.min(*units));
            self.pools.insert(pool.clone(), PoolBlock { refused: now, units: Some(units) });
        }
    }

    /// A task gave back what it had drawn from a pool. Whether that changes anything.
    pub fn give_back(&mut self, pool: &str) -> bool {
        self.pools.get_mut(pool).is_some_and(|pool| pool.units.take().is_some())
    }

    /// Records a balance that the service told, less holds that it may not include. With as much as `slots` jobs of the dearest
    /// kind that was refused can cost, the account is no longer short of credits.
    pub fn record_balance(&mut self, left: Credits, slots: u32) {
        let most = |need: Credits| Credits(need.0.saturating_mul(u64::from(slots.max(1))));
        self.out_of_credits = self.out_of_credits.filter(|block| left < most(block.need));
    }

    /// How jobs of a pool are tried.
    pub fn trial(&self, pool: &str, now: Timestamp) -> Trial {
        match self.pools.get(pool) {
            None => Trial::Freely,
            Some(pool) => Trial::OneAtATime { below: pool.units.filter(|_| pool.is_in_force(now)) },
        }
    }
}

impl Trial {
    /// Whether so much may be tried; `is_tried`: something else of the pool waits for its answer.
    pub fn lets(self, units: u64, is_tried: bool) -> bool {
        match self {
            Trial::Freely => true,
            Trial::OneAtATime { .. } => !is_tried && self.fits(units),
        }
    }

    /// Whether so much may be tried in its turn.
    pub fn fits(self, units: u64) -> bool {
        match self {
            Trial::Freely | Trial::OneAtATime { below: None } => true,
            Trial::OneAtATime { below: Some(below) } => units < below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Millis = Millis(86_400_000);
    const NOON: Timestamp = Timestamp(20_000 * DAY_MS + DAY_MS / 2);

    fn images(units: u64) -> AllowanceUse {
        AllowanceUse { pool: "images".to_owned(), units }
    }

    /// What is tried of 1, 5 and 15 units, and how.
    fn tried(block: &AccountBlock, now: Timestamp) -> String {
        let trial = block.trial("images", now);
        let how = if trial == Trial::Freely { "freely" } else { "one at a time" };
        let fit: Vec<String> = [1, 5, 15]
            .into_iter()
            .filter(|units| trial.fits(*units))
            .map(|units| units.to_string())
            .collect();
        format!("{how}: {}", fit.join(" "))
    }

    #[test]
    fn a_pool_is_tried_freely_then_for_less_then_not_until_the_next_day() {
        let mut block = AccountBlock::default();
        block.refuse(Credits(30), None, NOON);
        assert_eq!(tried(&block, NOON), "freely: 1 5 15", "what must be paid was refused, and nothing else");
        block.refuse(Credits(10), Some(&images(15)), NOON);
        assert_eq!(tried(&block, NOON), "one at a time: 1 5");
        block.refuse(Credits(10), Some(&images(5)), NOON);
        assert_eq!(tried(&block, NOON), "one at a time: 1");
        block.refuse(Credits(10), Some(&images(1)), NOON);
        block.refuse(Credits(10), Some(&images(15)), NOON);
        assert_eq!(tried(&block, NOON), "one at a time: ");
        assert_eq!(block.trial("house-c1", NOON), Trial::Freely, "each pool is a world of its own");
        assert_eq!(tried(&block, NOON.after(Millis(DAY.0 / 2 - 1))), "one at a time: ");
        assert_eq!(tried(&block, NOON.after(Millis(DAY.0 / 2))), "one at a time: 1 5 15", "new each UTC day");
        assert_eq!(block.out_of_credits.map(|block| block.need), Some(Credits(30)));
    }

    #[test]
    fn what_a_failed_task_gives_back_is_tried_again_one_at_a_time() {
        let mut block = AccountBlock::default();
        block.refuse(Credits(10), Some(&images(1)), NOON);
        assert!(block.give_back("images"));
        assert!(!block.give_back("images"), "nothing changed");
        assert_eq!(tried(&block, NOON), "one at a time: 1 5 15");
        assert!(!block.trial("images", NOON).lets(1, true));
        assert!(!block.give_back("house-c1"));
    }

    #[test]
    fn a_refusal_right_after_midnight_does_not_cost_the_whole_day() {
        let mut block = AccountBlock::default();
        let early = Timestamp(20_000 * DAY_MS + 3_000);
        block.refuse(Credits(10), Some(&images(1)), early);
        assert_eq!(tried(&block, early.after(Millis(599_999))), "one at a time: ");
        assert_eq!(tried(&block, early.after(Millis(600_000))), "one at a time: 1 5 15");
    }

    #[test]
    fn there_is_no_want_of_credits_once_the_balance_covers_every_slot() {
        let mut block = AccountBlock::default();
        block.refuse(Credits(10), None, NOON);
        block.refuse(Credits(4), None, NOON);
        block.record_balance(Credits(39), 4);
        assert!(block.out_of_credits.is_some());
        block.record_balance(Credits(40), 4);
        assert!(block.is_empty());
    }

    #[test]
    fn it_reads_back_and_an_empty_one_says_nothing() {
        let mut block = AccountBlock::default();
        assert_eq!(serde_json::to_string(&block).unwrap(), "{}");
        block.refuse(Credits(10), Some(&images(1)), NOON);
        let text = serde_json::to_string(&block).unwrap();
        assert_eq!(serde_json::from_str::<AccountBlock>(&text).unwrap(), block);
    }
}
