//! What waits after the service refused something for want of credits (402): what the balance does not cover, job by job. What
//! a plan allowance may cover is tried all the same (see [`crate::domain::out_of_credits`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::admission::AllowancePool;
use crate::domain::credits::Credits;
use crate::domain::ids::JobKey;
use crate::domain::ledger::Movement;
use crate::domain::out_of_credits::{AccountBlock, AllowanceUse, Trial};
use crate::domain::parked_reason::Parked;
use crate::domain::time::Timestamp;
use crate::engine::scheduler::job_log;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct OutOfCreditsWait {
    /// What is durable of it.
    block: AccountBlock,
    /// It changed in this step.
    has_changed: bool,
    /// POSTs under way of jobs that an allowance may cover, by pool.
    covered: BTreeMap<String, BTreeSet<JobKey>>,
    /// Jobs whose POST is not sent again for want of credits.
    blocked: BTreeSet<JobKey>,
}

impl OutOfCreditsWait {
    /// Takes up what was refused before.
    pub fn set_block(&mut self, block: AccountBlock) {
        self.block = block;
    }

    /// What is durable of it, where that changed since it was last asked for.
    pub fn take_changed_block(&mut self) -> Option<AccountBlock> {
        std::mem::take(&mut self.has_changed).then(|| self.block.clone())
    }

    /// Whether the service refused something, and no balance since covers everything.
    pub fn is_in_force(&self) -> bool {
        self.block.out_of_credits.is_some()
    }

    /// A job of this price was refused, although `allowance` might have covered it, where there is one. True: nothing had
    /// been refused before.
    pub fn refuse(&mut self, need: Credits, allowance: Option<&AllowanceUse>, now: Timestamp) -> bool {
        let is_first = !self.is_in_force();
        if is_first {
            job_log::queue_parked(Parked::Credits);
        }
        self.block.refuse(need, allowance, now);
        self.has_changed = true;
        is_first
    }

    /// The balance was told, less what it may not know yet: with as much as `slots` jobs can cost, the wait is over.
    pub fn record_balance(&mut self, left: Credits, slots: u32) {
        if !self.is_in_force() {
            return;
        }
        self.block.record_balance(left, slots);
        if !self.is_in_force() {
            self.has_changed = true;
            job_log::queue_unparked(Parked::Credits);
        }
    }

    /// A job has moved, and a POST of it is under way, or is not: keeps count of those that an allowance may cover, of
    /// `pool` for this one.
    pub fn job_moved(
        &mut self,
        key: JobKey,
        pool: Option<String>,
        is_submitting: bool,
        movements: &[Movement],
    ) {
        if !is_submitting {
            self.blocked.remove(&key);
        }
        if let Some(pool) = pool {
            let is_waived =
                |moved: &Movement| matches!(moved, Movement::Refund { waived, .. } if !waived.is_zero());
            if movements.iter().any(is_waived) {
                self.has_changed |= self.block.give_back(&pool);
            }
            let covered = self.covered.entry(pool).or_default();
            if is_submitting {
                covered.insert(key)
            } else {
                covered.remove(&key)
            };
        }
    }

    /// Jobs whose POST is not sent again for want of credits.
    pub fn blocked(&self) -> &BTreeSet<JobKey> {
        &self.blocked
    }

    /// Lets them all try anew.
    pub fn take_blocked(&mut self) -> BTreeSet<JobKey> {
        std::mem::take(&mut self.blocked)
    }

    /// The POST of a job is sent again: the balance covers it.
    pub fn unblock(&mut self, key: &JobKey) {
        self.blocked.remove(key);
    }

    /// Whether the POST of a job that the balance does not cover may be sent again, since its allowance may cover it.
    /// `is_busy` tells whether a job's POST is under way just now.
    pub fn may_try(
        &mut self,
        key: JobKey,
        allowance: Option<AllowanceUse>,
        is_busy: impl Fn(&JobKey) -> bool,
        now: Timestamp,
    ) -> bool {
        let is_free = self.may_be_free(&key, allowance, is_busy, now);
        if is_free {
            self.blocked.remove(&key);
        } else {
            self.blocked.insert(key);
        }
        is_free
    }

    /// Whether the allowance of a job may cover it. `is_busy` is that of [`OutOfCreditsWait::may_try`].
    pub fn may_be_free(
        &self,
        key: &JobKey,
        allowance: Option<AllowanceUse>,
        is_busy: impl Fn(&JobKey) -> bool,
        now: Timestamp,
    ) -> bool {
        allowance.is_some_and(|AllowanceUse { pool, units }| {
            let mut others = self.covered.get(&pool).into_iter().flatten().filter(|other| *other != key);
            self.block.trial(&pool, now).lets(units, others.any(is_busy))
        })
    }

    /// Whether an allowance refused something.
    pub fn lacks_allowance(&self) -> bool {
        !self.block.pools.is_empty()
    }

    /// The allowances that refused something, as admission sees them.
    pub fn pools(&self, now: Timestamp) -> BTreeMap<String, AllowancePool> {
        let refused = self.block.pools.keys().map(|pool| (pool, self.block.trial(pool, now)));
        let refused = refused.filter(|(_, trial)| *trial != Trial::Freely);
        let is_tried = |pool: &String| {
            let covered = self.covered.get(pool).into_iter().flatten();
            covered.filter(|key| !self.blocked.contains(key)).count() > 0
        };
        refused
            .map(|(pool, trial)| (pool.clone(), AllowancePool { trial, is_tried: is_tried(pool) }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Seq};

    fn key(seq: u32) -> JobKey {
        JobKey { batch: BatchNo(1), seq: Seq(seq) }
    }

    #[test]
    fn an_allowance_that_refused_something_is_tried_by_one_job_at_a_time() {
        let images = || Some(AllowanceUse { pool: "images".to_owned(), units: 1 });
        let mut wait = OutOfCreditsWait::default();
        let fifteen = AllowanceUse { pool: "images".to_owned(), units: 15 };
        assert!(wait.refuse(Credits(10), Some(&fifteen), Timestamp(0)));
        assert!(!wait.refuse(Credits(10), None, Timestamp(0)), "not the first");
        for seq in [0, 1] {
            wait.job_moved(key(seq), Some("images".to_owned()), true, &[]);
        }
        assert!(!wait.may_try(key(0), None, |_| false, Timestamp(0)), "nothing may cover it");
        assert!(wait.may_try(key(0), images(), |_| false, Timestamp(0)));
        assert!(!wait.may_try(key(1), images(), |_| true, Timestamp(0)));
        assert_eq!(wait.blocked(), &BTreeSet::from([key(1)]));
        assert!(wait.pools(Timestamp(0))["images"].is_tried);
        wait.record_balance(Credits(10), 1);
        assert_eq!((wait.is_in_force(), wait.take_blocked()), (false, BTreeSet::from([key(1)])));
    }
}
