//! The circuit breaker of what the account refuses (money rules 6 and 7), and what is known of the account's balance: a
//! key (401, `api_key_refusal.rs`), which keeps everything, or credits (402, `out_of_credits_wait.rs`), which keeps what the
//! balance does not cover.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::admission::{Admission, AllowancePool};
use crate::domain::balance_check_interval::{BalanceNeed, after, next_check};
use crate::domain::credits::Credits;
use crate::domain::ids::JobKey;
use crate::domain::job::{Order, State};
use crate::domain::ledger::Movement;
use crate::domain::out_of_credits::{AccountBlock, AllowanceUse};
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::engine::scheduler::messages::{NoBalance, Settings};
use crate::engine::scheduler::parts::api_key_refusal::{ApiKeyRefusal, Call};
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::parts::out_of_credits_wait::OutOfCreditsWait;

/// Questions in a row without an answer after which nothing is expected any more.
const UNANSWERED_MAX: u32 = 3;
/// Refusals in a row, each after an answer for a balance that covers what was refused, after which the next such answer
/// is expected to change nothing.
const REFUSED_MAX: u32 = 4;

/// The account, as far as it is known.
#[derive(Debug, Default)]
pub struct AccountState {
    settings: AccountSettings,
    out_of_credits: OutOfCreditsWait,
    api_key: ApiKeyRefusal,
    known: Option<KnownBalance>,
    /// A question for the balance is under way.
    is_asking: bool,
    /// What had been charged in all when it left.
    charged_when_asked: Credits,
    /// When the last question left.
    asked: Option<Tick>,
    /// Questions since something was bought, or since an owner asked to go on.
    tries: usize,
    /// Something was refused for want of credits, and nothing was bought since, whatever the balance said.
    is_still_refused: bool,
    /// How often in a row something was refused that the balance covers.
    refused_covered: u32,
    /// The last balance that covered what was refused then.
    refused_balance: Option<Credits>,
    /// Questions in a row that were not answered.
    unanswered: u32,
    wanted: Option<BalanceNeed>,
}

/// What is configured of it.
#[derive(Debug, Default, Clone, Copy)]
struct AccountSettings {
    /// Between two questions for the balance that nothing waits for.
    balance_interval: Millis,
    /// Whether the account's plan may have allowances.
    has_allowances: bool,
    /// Whether something must stay on the account.
    has_min_balance: bool,
    /// Jobs that may be in flight at once.
    slots: u32,
}

/// What an answer for the balance changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BalanceNews {
    /// What waited may cost another price by now.
    pub renews_prices: bool,
    /// Jobs whose POST was not sent again for want of credits: each tries anew.
    pub unblocked: BTreeSet<JobKey>,
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

impl AccountState {
    /// An account of which nothing is known.
    pub fn new(settings: &Settings) -> AccountState {
        AccountState { settings: AccountSettings::of(settings), ..AccountState::default() }
    }

    /// Takes other settings over. Another key, another plan: what was refused may not be any more.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.settings = AccountSettings::of(settings);
        self.ask_soon();
    }

    /// Takes up what was refused before.
    pub fn set_block(&mut self, block: AccountBlock) {
        self.out_of_credits.set_block(block);
    }

    /// What is durable of it, where that changed since it was last asked for.
    pub fn take_changed_block(&mut self) -> Option<AccountBlock> {
        self.out_of_credits.take_changed_block()
    }

    /// Whether the service refused something for want of credits (402).
    pub fn is_out_of_credits(&self) -> bool {
        self.out_of_credits.is_in_force()
    }

    /// Whether the service refuses the key (401).
    pub fn key_is_refused(&self) -> bool {
        self.api_key.is_refused()
    }

    /// Whether the key lets a call be made now.
    pub fn key_lets(&self, call: Call) -> bool {
        self.api_key.lets(call)
    }

    /// Whether a question for the balance is under way.
    pub fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Jobs whose POST is not sent again for want of credits.
    pub fn blocked(&self) -> &BTreeSet<JobKey> {
        self.out_of_credits.blocked()
    }

    /// The question for the balance was answered 401.
    fn block_for_key(&mut self, now: Tick) {
        self.api_key.refuse(now, self.settings.balance_interval);
    }

    /// A call was answered 401, or a task failed for want of a key that works. The balance is asked for at once, since the
    /// fault may be the answer's alone, or the task's: then nothing waits for long.
    pub fn suspect_key(&mut self, call: Call, now: Tick) {
        self.api_key.suspect(call, now);
    }

    /// Whether the key was refused, and the balance, which was not told since, may show that it works.
    pub fn key_is_doubtful(&self) -> bool {
        self.api_key.is_doubtful() && self.unanswered < UNANSWERED_MAX
    }

    /// A task was read.
    pub fn task_was_read(&mut self) {
        self.api_key.allowed(Call::ReadTask);
    }

    /// A POST was answered 402, or a task failed for want of credits. The balance is asked for at once, and then
    /// ever more slowly: not at once again where it seemed to cover what was refused, and was refused again.
    pub fn refuse_credits(&mut self, need: Credits, allowance: Option<&AllowanceUse>, now: Now) {
        let is_new = self.out_of_credits.refuse(need, allowance, now.wall);
        if is_new && !self.is_still_refused {
            (self.known, self.asked, self.tries) = (None, None, 0);
        } else if is_new || self.known.is_some_and(|known| known.balance >= need) {
            self.refused_balance = self.known.take().map(|known| known.balance).or(self.refused_balance);
            self.refused_covered = self.refused_covered.saturating_add(1);
        }
        self.is_still_refused = true;
        if self.wanted.is_none() {
            self.wanted = Some(BalanceNeed::Any);
        }
    }

    /// The allowance that may cover an order, where the account's plan may have any.
    pub fn allowance_of(&self, order: &Order) -> Option<AllowanceUse> {
        if self.settings.has_allowances { order.allowance() } else { None }
    }

    /// A job has moved, and a POST of it is under way, or is not: keeps count of those that an allowance may cover.
    pub fn job_moved(&mut self, open: &OpenJob, movements: &[Movement]) {
        let pool = self.allowance_of(&open.spec().order).map(|of| of.pool);
        let is_submitting = matches!(open.job().state(), State::Submitting { .. });
        self.out_of_credits.job_moved(open.key(), pool, is_submitting, movements);
        if let Some(known) = &mut self.known {
            known.may_be_more |= movements.iter().any(|moved| match moved {
                Movement::Hold(_) => false,
                Movement::Settle { held, spent, .. } => spent < held || !known.unsure.is_zero(),
                _ => true,
            });
        }
    }

    /// A creating POST made a task: somebody pays, or an allowance covers it.
    pub fn post_was_taken(&mut self) {
        self.api_key.allowed(Call::Post);
        self.tries = self.tries.min(1);
        self.forget_refusals();
    }

    fn forget_refusals(&mut self) {
        (self.is_still_refused, self.refused_covered, self.refused_balance) = (false, 0, None);
    }

    /// Something was let out of the queue.
    pub fn spend(&mut self, hold: Credits) {
        if let Some(known) = &mut self.known {
            known.sent = known.sent + hold;
        }
    }

    /// The question for the balance was answered, or was not. `charged` is everything that was ever charged, and `held`
    /// what is held for jobs that were sent: either may be in the answer already or not.
    pub fn balance_answered(
        &mut self,
        answer: Result<Credits, NoBalance>,
        (charged, held): (Credits, Credits),
        now: Tick,
    ) -> BalanceNews {
        let sent = charged.saturating_sub(self.charged_when_asked);
        self.is_asking = false;
        // What is waited for next counts from here, however long this took.
        self.asked = Some(now);
        let balance = match answer {
            Ok(balance) => balance,
            Err(why) => {
                self.unanswered = self.unanswered.saturating_add(1);
                self.known = None;
                if why == NoBalance::Unauthorised {
                    self.block_for_key(now);
                }
                let soon = next_check(BalanceNeed::Any, Some(now), self.unanswered as usize);
                let later = now.after(self.settings.balance_interval);
                self.api_key.check_at(if self.key_is_doubtful() { soon } else { later });
                return BalanceNews::default();
            }
        };
        let mut news = BalanceNews::default();
        let was_out = self.out_of_credits.is_in_force();
        self.unanswered = 0;
        self.tries = self.tries.max(1);
        news.renews_prices = self.api_key.accept();
        let known = KnownBalance { balance, at: now, unsure: held, sent, may_be_more: false };
        let before = self.known.replace(known).map(KnownBalance::left);
        self.out_of_credits.record_balance(known.left(), self.settings.slots);
        news.renews_prices |= was_out && before.is_none_or(|before| known.left() > before);
        news.unblocked = self.out_of_credits.take_blocked();
        news
    }

    /// An owner wants to go on: what keeps the queue is looked at anew, now.
    pub fn ask_soon(&mut self) {
        (self.asked, self.tries, self.unanswered) = (None, 0, 0);
        self.forget_refusals();
        if self.wanted.is_some() {
            self.wanted = Some(BalanceNeed::Any);
        }
        self.api_key.check_at(Tick(0));
    }

    /// What admission says of the balance, or nothing where it decided nothing.
    pub fn note_need(&mut self, decision: Option<&Admission>) {
        let is_stale = decision.is_some_and(|decision| decision.is_stale);
        let is_short = decision.is_some_and(|decision| decision.is_short) || !self.blocked().is_empty();
        self.wanted = match self.known {
            None if is_stale || is_short => Some(BalanceNeed::Any),
            Some(_) if is_stale => Some(BalanceNeed::Fresh),
            Some(known) if is_short && known.may_be_more => Some(BalanceNeed::Settled),
            Some(_) if is_short => Some(BalanceNeed::More),
            _ => None,
        };
    }

    /// Whether the balance is to be asked for now: then it is being asked for. `charged` is everything that was ever
    /// charged.
    pub fn ask_when_due(&mut self, charged: Credits, now: Tick) -> bool {
        if self.balance_due().is_none_or(|at| at > now) || !self.key_lets(Call::ReadBalance) {
            return false;
        }
        self.charged_when_asked = charged;
        self.is_asking = true;
        self.asked = Some(now);
        self.tries = self.tries.saturating_add(1);
        self.api_key.check_at(now);
        true
    }

    /// When the balance is asked for next; nothing while a question is under way.
    pub fn balance_due(&self) -> Option<Tick> {
        if self.is_asking {
            return None;
        }
        let wanted = self.wanted.map(|need| next_check(need, self.asked, self.tries));
        let watched =
            self.settings.has_min_balance.then(|| after(self.asked, self.settings.balance_interval));
        self.api_key.next_check().or_else(|| [wanted, watched].into_iter().flatten().min())
    }

    /// Whether the next answer for the balance may let something out.
    pub fn waits_for_balance(&self) -> bool {
        match self.wanted {
            Some(BalanceNeed::Fresh | BalanceNeed::Settled) => true,
            Some(BalanceNeed::Any) => self.unanswered < UNANSWERED_MAX && self.refused_covered < REFUSED_MAX,
            Some(BalanceNeed::More) | None => false,
        }
    }

    /// Whether a new UTC day lets something out.
    pub fn waits_for_allowance(&self) -> bool {
        self.wanted.is_some() && self.out_of_credits.lacks_allowance()
    }

    /// The balance as the service told it last, in credits, where that still counts.
    pub fn last_balance(&self) -> Option<Credits> {
        self.known.map(|known| known.balance)
    }

    /// The balance that covers what the service refused last for want of credits, in credits; nothing where it covers
    /// nothing that was refused, or another answer has come since.
    pub fn refused_balance(&self) -> Option<Credits> {
        self.refused_balance.filter(|_| self.known.is_none())
    }

    /// What is known of the balance, less everything that may have been sent against it, in credits.
    pub fn left(&self) -> Option<Credits> {
        self.known.map(KnownBalance::left)
    }

    /// The same, and how long ago the service told it.
    pub fn balance_left(&self, now: Tick) -> (Option<Credits>, Millis) {
        (self.left(), self.known.map_or(Millis(0), |known| now.since(known.at)))
    }

    /// The allowances that refused something, as admission sees them.
    pub fn pools(&self, now: Timestamp) -> BTreeMap<String, AllowancePool> {
        self.out_of_credits.pools(now)
    }

    /// Whether the POST of a job for which `hold` is set aside may be sent again. What the balance must cover is counted
    /// at once. `is_busy` tells whether a job's POST is under way just now.
    pub fn may_post_again(
        &mut self,
        (key, order, hold): (JobKey, &Order, Credits),
        is_busy: impl Fn(&JobKey) -> bool,
        now: Timestamp,
    ) -> bool {
        if !self.key_lets(Call::Post) {
            return false;
        }
        if !self.is_out_of_credits() {
            return true;
        }
        if let Some(known) = &mut self.known
            && known.balance >= known.sent + hold
        {
            known.sent = known.sent + hold;
            self.out_of_credits.unblock(&key);
            return true;
        }
        let allowance = self.allowance_of(order);
        self.out_of_credits.may_try(key, allowance, is_busy, now)
    }

    /// Whether the POST of a job may be sent again whose answer was lost: nothing is counted for it, since what it holds counts
    /// against the balance already.
    pub fn may_ask_for_task(&mut self, key: &JobKey) -> bool {
        let may_ask = self.key_lets(Call::Post);
        if may_ask {
            self.out_of_credits.unblock(key);
        }
        may_ask
    }

    /// Whether a job may still be sent that was let out and of which nothing was sent: its hold is among what counts
    /// against the balance. `is_busy` is that of [`AccountState::may_post_again`].
    pub fn still_lets(
        &self,
        (key, order): (&JobKey, &Order),
        is_busy: impl Fn(&JobKey) -> bool,
        now: Timestamp,
    ) -> bool {
        let is_covered = || self.known.is_some_and(|known| known.balance >= known.sent);
        let is_free = || self.out_of_credits.may_be_free(key, self.allowance_of(order), is_busy, now);
        self.key_lets(Call::Post) && (!self.is_out_of_credits() || is_covered() || is_free())
    }
}

impl AccountSettings {
    fn of(settings: &Settings) -> AccountSettings {
        AccountSettings {
            balance_interval: settings.balance_interval,
            has_allowances: settings.has_allowances,
            has_min_balance: settings.limits.min_balance.is_some(),
            slots: settings.limits.in_flight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BatchNo, Seq};
    use crate::domain::request::Kind;
    use crate::engine::scheduler::tests::{settings, spec};

    const NOTHING: (Credits, Credits) = (Credits::ZERO, Credits::ZERO);
    const KEY: JobKey = JobKey { batch: BatchNo(1), seq: Seq(0) };

    fn at(ms: u64) -> Now {
        Now { wall: Timestamp(0).after(Millis(ms)), tick: Tick(ms) }
    }

    fn answer(account: &mut AccountState, credits: u64, at: u64) -> BalanceNews {
        account.balance_answered(Ok(Credits(credits)), NOTHING, Tick(at))
    }

    #[test]
    fn a_refused_key_lets_nothing_out_until_the_balance_is_told() {
        let (mut account, order) = (AccountState::new(&settings()), &spec(0, Kind::Video).order);
        account.block_for_key(Tick(0));
        assert!(account.key_is_refused());
        assert!(!account.may_post_again((KEY, order, Credits(1)), |_| false, Timestamp(0)));
        assert_eq!(account.balance_due(), Some(Tick(60_000)));
        assert!(!account.ask_when_due(Credits::ZERO, Tick(59_999)));
        assert!(account.ask_when_due(Credits::ZERO, Tick(60_000)));
        assert_eq!(account.balance_due(), None, "it is being asked for");
        let unanswered = Err(NoBalance::Unanswered);
        assert_eq!(account.balance_answered(unanswered, NOTHING, Tick(61_000)), BalanceNews::default());
        assert_eq!((account.key_is_refused(), account.balance_due()), (true, Some(Tick(121_000))));
        assert!(answer(&mut account, 5, 122_000).renews_prices, "what waited may cost another price");
        assert!(!account.key_is_refused());
    }

    #[test]
    fn a_402_blocks_what_the_balance_does_not_cover_and_asks_ever_more_slowly() {
        let (mut account, order) = (AccountState::new(&settings()), &spec(0, Kind::Video).order);
        account.refuse_credits(Credits(10), None, at(0));
        assert!(account.is_out_of_credits());
        assert!(account.take_changed_block().is_some() && account.take_changed_block().is_none());
        assert!(account.ask_when_due(Credits::ZERO, Tick(0)), "at once");
        answer(&mut account, 9, 10);
        assert!(!account.may_post_again((KEY, order, Credits(10)), |_| false, Timestamp(0)));
        assert_eq!(account.blocked().len(), 1);
        account.note_need(None);
        assert_eq!(account.balance_due(), Some(Tick(5_010)));
        assert!(!account.waits_for_balance(), "the same answer would change nothing");
        let news = answer(&mut account, 15, 6_000);
        assert_eq!(news, BalanceNews { renews_prices: true, unblocked: BTreeSet::from([KEY]) });
        assert!(account.may_post_again((KEY, order, Credits(10)), |_| false, Timestamp(0)));
        assert_eq!(
            account.balance_left(Tick(7_000)),
            (Some(Credits(5)), Millis(1_000)),
            "it is counted at once"
        );
    }

    #[test]
    fn what_may_or_may_not_be_in_an_answer_is_taken_off() {
        let mut account = AccountState::new(&settings());
        account.refuse_credits(Credits(10), None, at(0));
        account.ask_when_due(Credits(100), Tick(0));
        account.balance_answered(Ok(Credits(50)), (Credits(103), Credits(20)), Tick(5));
        assert_eq!(account.balance_left(Tick(5)).0, Some(Credits(27)));
        account.spend(Credits(7));
        assert_eq!(account.balance_left(Tick(5)).0, Some(Credits(20)));
        assert_eq!(account.last_balance(), Some(Credits(50)));
    }

    #[test]
    fn other_settings_and_an_owner_who_goes_on_ask_at_once() {
        let mut account = AccountState::new(&settings());
        account.block_for_key(Tick(5));
        account.reconfigure(&Settings { has_allowances: false, ..settings() });
        assert_eq!(account.balance_due(), Some(Tick(0)));
    }

    /// A POST is refused at that time: seconds until the balance is asked for, which then covers it many times.
    fn asked_after(account: &mut AccountState, at: &mut Tick) -> u64 {
        account.refuse_credits(Credits(10), None, Now { tick: *at, wall: Timestamp(0) });
        let due = account.balance_due().unwrap().max(*at);
        assert!(account.ask_when_due(Credits::ZERO, due));
        account.balance_answered(Ok(Credits(10_000)), (Credits::ZERO, Credits::ZERO), due);
        assert!(!account.is_out_of_credits(), "the balance covers it");
        let waited = due.since(*at).0 / 1_000;
        *at = due;
        waited
    }

    #[test]
    fn what_is_refused_although_the_balance_covers_it_is_sent_again_ever_more_slowly() {
        let settings = AccountSettings { slots: 16, ..AccountSettings::default() };
        let mut account = AccountState { settings, ..AccountState::default() };
        let mut at = Tick(1_000);
        let waits: Vec<u64> = (0..8).map(|_| asked_after(&mut account, &mut at)).collect();
        assert_eq!(waits, [0, 5, 10, 20, 40, 60, 60, 60]);
        account.refuse_credits(Credits(10), None, Now { tick: at, wall: Timestamp(0) });
        assert!(!account.waits_for_balance(), "nothing is expected of the next answer");
        assert_eq!(account.refused_balance(), Some(Credits(10_000)), "what covered it");
        answer(&mut account, 10_000, at.0);
        // Something is bought, or an owner asks to go on: that begins anew.
        account.post_was_taken();
        assert_eq!([0, 1].map(|_| asked_after(&mut account, &mut at)), [0, 5]);
        account.ask_soon();
        assert_eq!([0, 1].map(|_| asked_after(&mut account, &mut at)), [0, 5]);
    }
}
