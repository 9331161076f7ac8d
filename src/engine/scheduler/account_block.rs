//! What the account refuses (money rules 6 and 7): a key (401), credits (402), allowances; and what is known of its
//! balance.
//!
//! A refused key keeps everything. Want of credits keeps what the balance does not cover, job by job; what a plan
//! allowance may cover is tried all the same (see [`crate::domain::allowances`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::admission::{Admission, AllowancePool, Parked};
use crate::domain::allowances::{AccountBlock, AllowanceUse, Trial};
use crate::domain::credits::Credits;
use crate::domain::ids::JobKey;
use crate::domain::job::{Order, State};
use crate::domain::ledger::Movement;
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Now, Tick};
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{Effect, Scheduler, job_log};

/// Between two questions for the balance while it keeps something: sooner at first.
const BALANCE_WAITS_SECS: [u64; 6] = [0, 5, 10, 20, 40, 60];
/// Between two questions while requests in flight settle.
const SETTLING_WAIT: Millis = Millis::from_secs(1);
/// Questions in a row without an answer after which nothing is expected any more.
const UNANSWERED_MAX: u32 = 3;

/// The account, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct AccountState {
    /// What is durable of it.
    pub(super) block: AccountBlock,
    /// It changed in this step.
    pub(super) has_changed: bool,
    /// The key was refused; the balance is asked for at this time, to find out whether it works again.
    key_refused: Option<Tick>,
    known: Option<KnownBalance>,
    /// A question for the balance is under way.
    pub(super) is_asking: bool,
    /// What had been charged in all when it left.
    charged_when_asked: Credits,
    /// When the last question left.
    asked: Option<Tick>,
    /// Questions since something was bought, or since an owner asked to go on.
    tries: usize,
    /// Questions in a row that were not answered.
    unanswered: u32,
    wanted: Option<BalanceNeed>,
    /// POSTs under way of jobs that an allowance may cover, by pool.
    covered: BTreeMap<String, BTreeSet<JobKey>>,
    /// Jobs whose POST is not sent again for want of credits.
    pub(super) blocked: BTreeSet<JobKey>,
}

/// An answer for the balance.
#[derive(Debug, Clone, Copy)]
struct KnownBalance {
    balance: Credits,
    at: Tick,
    /// What was held when it came, and may be in it already or not: taken off twice at worst, never forgotten.
    unsure: Credits,
    /// What was sent or charged since the question left.
    sent: Credits,
    /// Something was given back since, or what was unsure has been settled: another answer may show more.
    may_be_more: bool,
}

impl KnownBalance {
    /// What may still be sent.
    fn left(self) -> Credits {
        self.balance.saturating_sub(self.unsure + self.sent)
    }
}

/// Why the balance is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BalanceNeed {
    /// What is known is too old.
    Fresh,
    /// There may be more by now than what is known.
    Settled,
    /// Nothing is known.
    Any,
    /// What is known keeps something.
    More,
}

impl Scheduler {
    /// Takes up what was refused before: a restart is not a special path.
    pub fn set_account_block(&mut self, block: AccountBlock) {
        self.account.block = block;
    }

    pub(super) fn block_for_key(&mut self, now: Now) {
        if self.account.key_refused.is_none() {
            job_log::queue_parked(Parked::Key);
            self.account.key_refused = Some(now.tick.after(self.settings.balance_interval));
        }
    }

    /// A task failed for want of a key that works: what a 401 would say of the account. The balance is asked for at
    /// once, since the fault may be the task's alone: then nothing waits for long.
    pub(super) fn suspect_key(&mut self, now: Now) {
        if self.account.key_refused.is_none() {
            self.block_for_key(now);
            self.account.key_refused = Some(now.tick);
        }
    }

    /// A POST was answered 402, or a task failed for want of credits. The balance is asked for at once, and then
    /// ever more slowly: not at once again where it seemed to cover what was refused.
    pub(super) fn out_of_credits(&mut self, need: Credits, allowance: Option<&AllowanceUse>, now: Now) {
        let account = &mut self.account;
        if account.block.out_of_credits.is_none() {
            job_log::queue_parked(Parked::Credits);
            (account.known, account.asked, account.tries) = (None, None, 0);
        } else if account.known.is_some_and(|known| known.balance >= need) {
            account.known = None;
        }
        account.block.refuse(need, allowance, now.wall);
        account.has_changed = true;
        if account.wanted.is_none() {
            account.wanted = Some(BalanceNeed::Any);
        }
    }

    /// The allowance that may cover an order, where the account's plan may have any.
    pub(super) fn allowance_of(&self, order: &Order) -> Option<AllowanceUse> {
        if self.settings.has_allowances { order.allowance() } else { None }
    }

    /// A job has moved: keeps count of the POSTs under way that an allowance may cover.
    pub(super) fn watch_allowance(&mut self, key: JobKey, movements: &[Movement]) {
        let Some(open) = self.jobs.get(&key) else { return };
        let is_submitting = matches!(open.job().state(), State::Submitting { .. });
        let pool = self.allowance_of(&open.spec().order).map(|of| of.pool);
        let account = &mut self.account;
        if !is_submitting {
            account.blocked.remove(&key);
        }
        if let Some(pool) = pool {
            let is_waived =
                |moved: &Movement| matches!(moved, Movement::Refund { waived, .. } if !waived.is_zero());
            if movements.iter().any(is_waived) {
                account.has_changed |= account.block.give_back(&pool);
            }
            let covered = account.covered.entry(pool).or_default();
            if is_submitting {
                covered.insert(key)
            } else {
                covered.remove(&key)
            };
        }
        if let Some(known) = &mut account.known {
            known.may_be_more |= movements.iter().any(|moved| match moved {
                Movement::Hold(_) => false,
                Movement::Settle { held, spent, .. } => spent < held || !known.unsure.is_zero(),
                _ => true,
            });
        }
    }

    /// A creating POST made a task: somebody pays, or an allowance covers it.
    pub(super) fn was_taken(&mut self) {
        self.account.tries = self.account.tries.min(1);
    }

    /// Something was let out of the queue.
    pub(super) fn spend(&mut self, hold: Credits) {
        if let Some(known) = &mut self.account.known {
            known.sent = known.sent + hold;
        }
    }

    pub(super) fn balance(&mut self, answer: &Result<Credits, Fault>, now: Now) {
        // What was charged since the question left may be in the answer already or not.
        let sent = self.budgets.charged().saturating_sub(self.account.charged_when_asked);
        // What is held for a job that waits in the queue, since its state was recovered, is taken off when it is sent.
        let waiting = self.jobs.counts().held_in_queue();
        let (unsure, slots) =
            (self.budgets.total().held.saturating_sub(waiting), self.settings.limits.in_flight);
        let account = &mut self.account;
        account.is_asking = false;
        // What is waited for next counts from here, however long this took.
        account.asked = Some(now.tick);
        let Ok(balance) = answer else {
            account.unanswered = account.unanswered.saturating_add(1);
            account.known = None;
            if account.key_refused.is_some() {
                account.key_refused = Some(now.tick.after(self.settings.balance_interval));
            }
            return;
        };
        let was_out = account.block.out_of_credits.is_some();
        account.unanswered = 0;
        account.tries = account.tries.max(1);
        if account.key_refused.take().is_some() {
            job_log::queue_unparked(Parked::Key);
            self.prices.renew();
        }
        let known = KnownBalance { balance: *balance, at: now.tick, unsure, sent, may_be_more: false };
        let before = account.known.replace(known).map(KnownBalance::left);
        if account.block.out_of_credits.is_some() {
            account.block.hear_balance(known.left(), slots);
            if account.block.out_of_credits.is_none() {
                account.has_changed = true;
                job_log::queue_unparked(Parked::Credits);
            }
        }
        // What waited for credits may cost another price by now.
        if was_out && before.is_none_or(|before| known.left() > before) {
            self.prices.renew();
        }
        for key in std::mem::take(&mut self.account.blocked) {
            self.schedule(key, now.tick);
        }
    }

    /// An owner wants to go on: what keeps the queue is looked at anew, now.
    pub(super) fn ask_balance_soon(&mut self) {
        let account = &mut self.account;
        (account.asked, account.tries, account.unanswered) = (None, 0, 0);
        if account.wanted.is_some() {
            account.wanted = Some(BalanceNeed::Any);
        }
        account.key_refused = account.key_refused.map(|_| Tick(0));
    }

    /// What admission says of the balance, or nothing where it decided nothing.
    pub(super) fn note_balance_need(&mut self, decision: Option<&Admission>) {
        let account = &mut self.account;
        let is_stale = decision.is_some_and(|decision| decision.is_stale);
        let is_short = decision.is_some_and(|decision| decision.is_short) || !account.blocked.is_empty();
        account.wanted = match account.known {
            None if is_stale || is_short => Some(BalanceNeed::Any),
            Some(_) if is_stale => Some(BalanceNeed::Fresh),
            Some(known) if is_short && known.may_be_more => Some(BalanceNeed::Settled),
            Some(_) if is_short => Some(BalanceNeed::More),
            _ => None,
        };
    }

    pub(super) fn ask_balance_when_due(&mut self, now: Now) {
        if self.stopping || self.balance_due().is_none_or(|at| at > now.tick) {
            return;
        }
        self.account.charged_when_asked = self.budgets.charged();
        let account = &mut self.account;
        account.is_asking = true;
        account.asked = Some(now.tick);
        account.tries = account.tries.saturating_add(1);
        account.key_refused = account.key_refused.map(|_| now.tick);
        self.pending.begin(Effect::AskBalance);
    }

    /// When the balance is asked for next; nothing while a question is under way.
    pub(super) fn balance_due(&self) -> Option<Tick> {
        let account = &self.account;
        if account.is_asking {
            return None;
        }
        let after = |wait: Millis| account.asked.map_or(Tick(0), |asked| asked.after(wait));
        let wanted = account.wanted.map(|wanted| match wanted {
            BalanceNeed::Fresh => Tick(0),
            BalanceNeed::Settled => after(SETTLING_WAIT),
            BalanceNeed::Any | BalanceNeed::More => {
                let wait = BALANCE_WAITS_SECS
                    .get(account.tries)
                    .or(BALANCE_WAITS_SECS.last())
                    .copied()
                    .unwrap_or_default();
                after(Millis::from_secs(wait))
            }
        });
        let watched = self.settings.limits.min_balance.map(|_| after(self.settings.balance_interval));
        match account.key_refused {
            Some(at) => Some(at),
            None => [wanted, watched].into_iter().flatten().min(),
        }
    }

    pub(super) fn key_is_refused(&self) -> bool {
        self.account.key_refused.is_some()
    }

    /// Whether the next answer for the balance may let something out.
    pub(super) fn waits_for_balance(&self) -> bool {
        match self.account.wanted {
            Some(BalanceNeed::Fresh | BalanceNeed::Settled) => true,
            Some(BalanceNeed::Any) => self.account.unanswered < UNANSWERED_MAX,
            Some(BalanceNeed::More) | None => false,
        }
    }

    /// Whether a new UTC day lets something out.
    pub(super) fn waits_for_allowance(&self) -> bool {
        self.account.wanted.is_some() && !self.account.block.pools.is_empty()
    }

    /// The balance as the service told it last, where that still counts.
    pub(super) fn last_balance(&self) -> Option<Credits> {
        self.account.known.map(|known| known.balance)
    }

    /// What is known of the balance, less everything that may have been sent against it; and how long ago it came.
    pub(super) fn balance_left(&self, now: Now) -> (Option<Credits>, Millis) {
        let known = self.account.known;
        (known.map(KnownBalance::left), known.map_or(Millis(0), |known| now.tick.since(known.at)))
    }

    /// The allowances that refused something, as admission sees them.
    pub(super) fn pools(&self, now: Now) -> BTreeMap<String, AllowancePool> {
        let block = &self.account.block;
        let refused = block.pools.keys().map(|pool| (pool, block.trial(pool, now.wall)));
        let refused = refused.filter(|(_, trial)| *trial != Trial::Freely);
        let is_tried = |pool: &String| {
            let covered = self.account.covered.get(pool).into_iter().flatten();
            covered.filter(|key| !self.account.blocked.contains(key)).count() > 0
        };
        refused
            .map(|(pool, trial)| (pool.clone(), AllowancePool { trial, is_tried: is_tried(pool) }))
            .collect()
    }

    /// Whether a job's POST may be sent again. What the balance must cover is counted at once.
    pub(super) fn may_post_again(&mut self, key: JobKey, now: Now) -> bool {
        if self.key_is_refused() {
            return false;
        }
        let Some(open) = self.jobs.get(&key).filter(|_| self.account.block.out_of_credits.is_some()) else {
            return true;
        };
        let hold = open.job().books().held;
        let allowance = self.allowance_of(&open.spec().order);
        if let Some(known) = &mut self.account.known
            && known.balance >= known.sent + hold
        {
            known.sent = known.sent + hold;
            self.account.blocked.remove(&key);
            return true;
        }
        let is_free = allowance.is_some_and(|AllowanceUse { pool, units }| {
            let others = self.account.covered.get(&pool).into_iter().flatten().filter(|other| **other != key);
            let is_tried = others.filter_map(|other| self.jobs.get(other)).any(OpenJob::is_busy);
            self.account.block.trial(&pool, now.wall).lets(units, is_tried)
        });
        if is_free {
            self.account.blocked.remove(&key);
        } else {
            self.account.blocked.insert(key);
        }
        is_free
    }
}
