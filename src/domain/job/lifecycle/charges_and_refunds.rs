//! What a job's attempts hold, were charged and got back (money rules 1 to 3): each change is a movement of the ledger, counted
//! on the UTC day of the attempt's POST.

use crate::domain::credits::Credits;
use crate::domain::job::attempt::{Attempt, Books};
use crate::domain::job::{Job, State};
use crate::domain::ledger::Movement;
use crate::domain::task::TaskReading;

use super::Change;

impl Job {
    /// Whether a person may record what its present attempt was charged although nothing ended it: it is overdue, and neither its
    /// request nor its task has come to an answer that tells.
    pub(in crate::domain::job) fn is_resolvable_while_overdue(&self) -> bool {
        let may_be_charged =
            matches!(self.state(), State::Submitting { may_have_run: true, .. } | State::Running { .. });
        self.overdue && may_be_charged
    }

    /// Whether a person may record what an attempt was charged whose task is watched beside the present one: that has ended,
    /// and nothing else comes of the job.
    pub(in crate::domain::job) fn is_resolvable_while_watched(&self, attempt: &Attempt) -> bool {
        attempt.no != self.attempt() && attempt.is_running() && self.state().is_final()
    }
}

impl Change {
    /// Books what an answer shows of a task. Until one says what was charged, what was held counts as spent.
    pub(super) fn settle(&mut self, reading: &TaskReading) {
        let Attempt { books: Books { held, charged, waived }, state, .. } = self.attempt();
        let (held, charged, waived) = (*held, *charged, *waived);
        // An adopted task is read while the hold still stands.
        let unsettled = matches!(state, State::Submitting { .. }) || !held.is_zero();
        if unsettled {
            let (spent, waived) = (reading.charged.unwrap_or(held), reading.waived.unwrap_or_default());
            self.attempt_mut().books = Books { held: Credits::ZERO, charged: spent, waived };
            let movement = Movement::Settle { held, spent, waived };
            self.note(&format!("task {} created", reading.id), Some(movement));
            return;
        }
        if let Some(to) = reading.charged.filter(|to| *to != charged) {
            self.attempt_mut().books.charged = to;
            let movement = Movement::Correct { from: charged, to };
            self.note("the task's record shows another charge than before", Some(movement));
        }
        self.correct_waived(reading.waived.unwrap_or(waived));
    }

    /// What an allowance covered may turn out otherwise than it was first told.
    fn correct_waived(&mut self, to: Credits) {
        let from = std::mem::replace(&mut self.attempt_mut().books.waived, to);
        if from == to {
            return;
        }
        let nothing = Credits::ZERO;
        if !from.is_zero() {
            let movement = Movement::Refund { spent: nothing, waived: from };
            let what = "the task's record shows that an allowance covered another part";
            self.note(what, Some(movement));
        }
        if !to.is_zero() {
            let movement = Movement::Settle { held: nothing, spent: nothing, waived: to };
            self.note("an allowance covered this part, by the task's record", Some(movement));
        }
    }

    /// A person knows whether it was sent by a state that is gone. What that was charged counts for today.
    pub(super) fn note_found_out(&mut self) {
        let today = self.at.utc_day();
        self.job.may_have_gone_on = false;
        let attempt = self.attempt_mut();
        attempt.may_have_been_sent = false;
        self.day = Some(*attempt.day.get_or_insert(today));
    }

    /// Books what a person found instead of what was feared.
    pub(super) fn resolve(&mut self, charged: Credits) {
        let books = Books { charged, ..Books::default() };
        let Books { held, charged: before, waived } = std::mem::replace(&mut self.attempt_mut().books, books);
        let nothing = Credits::ZERO;
        let movements = [
            (!held.is_zero() && charged.is_zero()).then_some(Movement::Release(held)),
            (!held.is_zero() && !charged.is_zero()).then_some(Movement::Settle {
                held,
                spent: charged,
                waived: nothing,
            }),
            (held.is_zero() && charged.is_zero() && !(before.is_zero() && waived.is_zero()))
                .then_some(Movement::Refund { spent: before, waived }),
            (held.is_zero() && !charged.is_zero() && charged != before)
                .then_some(Movement::Correct { from: before, to: charged }),
        ];
        for movement in movements.into_iter().flatten() {
            self.note("recorded with callsheet resolve", Some(movement));
        }
        if held.is_zero() && !charged.is_zero() {
            self.attempt_mut().books.waived = waived;
        }
    }

    pub(super) fn release(&mut self) {
        let held = std::mem::take(&mut self.attempt_mut().books.held);
        if !held.is_zero() {
            self.note("nothing was charged", Some(Movement::Release(held)));
        }
    }

    pub(super) fn refund(&mut self) {
        let Books { charged, waived, .. } = std::mem::take(&mut self.attempt_mut().books);
        if !charged.is_zero() || !waived.is_zero() {
            self.note("refunded by the service", Some(Movement::Refund { spent: charged, waived }));
        }
    }
}
