//! The gate that a 401 or 402 shuts for the whole queue (money rule 7).

use crate::domain::admission::Parked;
use crate::domain::credits::Credits;
use crate::domain::task::Fault;
use crate::domain::time::Now;
use crate::engine::conductor::journal;
use crate::engine::conductor::{Conductor, Effect, Gate};

impl Conductor {
    pub(super) fn shut(&mut self, parked: Parked, need: Credits, now: Now) {
        // A key that does not work is found first and lifted first: nothing can be asked without it.
        let keep = self.gate.filter(|gate| gate.parked == Parked::Key && parked == Parked::Credits);
        if keep.is_none() {
            if self.gate.is_none_or(|gate| gate.parked != parked) {
                journal::queue_parked(parked);
            }
            let ask_at = Some(now.tick.after(self.settings.balance_interval));
            self.gate = Some(Gate { parked, need, ask_at });
        }
    }

    pub(super) fn shut_for_key(&mut self, now: Now) {
        self.shut(Parked::Key, Credits::ZERO, now);
    }

    /// A task failed for want of credits, or of a key that works: what a 402 or a 401 would say of the account.
    /// The balance is asked for at once, since the fault may be the task's alone: then nothing waits for long.
    pub(super) fn doubt_account(&mut self, parked: Parked, need: Credits, now: Now) {
        // What is shut for this reason already, or for the greater one, has its question under way.
        if self.gate.is_some_and(|gate| gate.parked == parked || gate.parked == Parked::Key) {
            return;
        }
        self.shut(parked, need, now);
        if let Some(gate) = &mut self.gate {
            gate.ask_at = Some(now.tick);
        }
    }

    pub(super) fn balance(&mut self, answer: &Result<Credits, Fault>, now: Now) {
        self.asking_balance = false;
        if self.settings.limits.min_balance.is_some() {
            self.balance_due = Some(now.tick.after(self.settings.balance_interval));
            // What is held, and what was charged since the question left, may be in the answer already or not:
            // taken off twice at worst, never forgotten.
            let since = self.charged_in_all().saturating_sub(self.charged_when_asked);
            let unsure = self.total.held + since;
            self.balance = answer.as_ref().ok().map(|balance| balance.saturating_sub(unsure));
        }
        let Some(gate) = &mut self.gate else { return };
        let covered = match (answer, gate.parked) {
            (Ok(balance), Parked::Credits) => *balance >= gate.need,
            (Ok(_), _) => true,
            (Err(_), _) => false,
        };
        if covered {
            journal::queue_unparked(gate.parked);
            self.gate = None;
        } else {
            gate.ask_at = Some(now.tick.after(self.settings.balance_interval));
        }
    }

    pub(super) fn ask_balance_when_due(&mut self, now: Now) {
        if let Some(gate) = &mut self.gate
            && gate.ask_at.is_some_and(|at| at <= now.tick)
            && !self.stopping
        {
            gate.ask_at = None;
            self.asking_balance = true;
            self.charged_when_asked = self.charged_in_all();
            self.pending.turn.effects.push(Effect::AskBalance);
        }
        if self.balance_due.is_some_and(|at| at <= now.tick) && !self.stopping {
            self.balance_due = None;
            self.asking_balance = true;
            self.charged_when_asked = self.charged_in_all();
            self.pending.turn.effects.push(Effect::AskBalance);
        }
    }

    /// Everything that was ever charged, given back or not.
    fn charged_in_all(&self) -> Credits {
        self.total.spent + self.total.refunded
    }
}
