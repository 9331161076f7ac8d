//! Resubmitting: another attempt while the overdue one's task is watched on, and paid for if it succeeds after all.
//!
//! Every attempt is read, timed and booked by the same code. What the present one alone does is here and in
//! [`Change::attempt_over`]: it decides where the job stands, and whether another attempt follows. The outputs of the
//! first to succeed are kept: it becomes the present one.

use crate::domain::ids::AttemptNo;
use crate::domain::job::lifecycle::{AttemptRules, Change, Event};
use crate::domain::job::{Attempt, Books, Job, State};
use crate::domain::retry_delay::{self, Prospect};
use crate::domain::task::Fault;

/// Whether an overdue job may be given another attempt: its owner did not cancel it, it has one left, its key keeps the
/// attempts apart, what its task was charged is known, nobody said that the same request would be refused again, and no
/// state that is gone may have resubmitted it already: what that sent would be asked for, and bought where it did not.
pub(super) fn may_resubmit(job: &Job, rules: AttemptRules) -> bool {
    let present = job.present();
    rules.keyed
        && !job.no_more_attempts
        && !job.may_have_gone_on
        && job.newest_attempt().0 < rules.attempts
        && present.books.held.is_zero()
        && present
            .rare
            .rejected
            .as_ref()
            .is_none_or(|fault| retry_delay::prospect(&fault.code) < Prospect::OnlyAsked)
        && present.is_running()
}

/// Whether an event can happen to an attempt beside the present one: its task is watched, and a person may find out
/// what it was charged.
pub(super) fn has_place_beside(attempt: &Attempt, event: &Event) -> bool {
    match event {
        Event::Read(_) | Event::TaskMissing(_) | Event::WatchExpired(_) => attempt.is_running(),
        Event::Resolve(charged) => attempt.is_resolvable(*charged) || attempt.is_running(),
        _ => false,
    }
}

impl Job {
    /// Whether its request waits for credits or for a key, though another attempt has succeeded.
    pub fn waits_unneeded(&self) -> bool {
        self.has_outputs_of_another_attempt()
            && matches!(self.state(), State::Submitting { may_have_run: true, fault: Some(fault), .. } if waits_for_owner(fault))
    }

    /// Its owner canceled it after it was submitted, and has not retried it since: its task is read and its outputs are
    /// downloaded, and nothing more is bought for it.
    pub fn has_no_more_attempts(&self) -> bool {
        self.no_more_attempts
    }

    /// The attempt beside the present one of which a person must record what it was charged; nothing where there is none.
    pub fn doubt_beside(&self) -> Option<&Attempt> {
        self.other_attempts().find(|other| other.is_in_doubt())
    }

    /// Whether the task of an attempt beside the present one has succeeded: its outputs wait until no request of the present
    /// one is on its way.
    pub fn has_outputs_of_another_attempt(&self) -> bool {
        self.other_attempts().any(|other| matches!(other.state, State::Fetching { .. }))
    }
}

/// Whether the answer to a request waits for the account's owner: for credits, or for a key.
fn waits_for_owner(fault: &Fault) -> bool {
    fault.is_want_of_credits() || matches!(fault.code.as_str(), "unauthorized" | "auth_required" | "http_401")
}

impl Change {
    /// The task is left to a slow watch, and the job queues for another attempt.
    pub(super) fn resubmit(&mut self) {
        let task = self.attempt().task().map(ToString::to_string).unwrap_or_default();
        self.note(
            &format!("overdue: retrying with a new key, charged as well; task {task} is still watched"),
            None,
        );
        let at = self.at;
        self.attempt_mut().rare.change(|rare| rare.watched_since = Some(at));
        self.begin_attempt();
        self.job.deadline_from = None;
    }

    /// Keeps the outputs of the first attempt that succeeded beside the present one, unless that came first. One
    /// whose charge is not known yet, or of which a request may be on its way, is waited for: it cannot be left out
    /// of the books; where that would have to wait for the account's owner, see [`Event::NotNeeded`].
    pub(super) fn keep_first_success(&mut self) {
        let present = self.job.present();
        let succeeded = |other: &&Attempt| matches!(other.state, State::Fetching { .. });
        let Some(found) = self.job.other_attempts().find(succeeded) else { return };
        let is_waited_for = match &present.state {
            State::Submitting { .. } | State::Fetching { .. } | State::Succeeded { .. } => true,
            State::Running { .. } => !present.books.held.is_zero(),
            State::InDoubt { task, fault } => task.is_none() && !waits_for_owner(fault),
            State::Queued => present.may_have_been_sent,
            State::Failed { .. } | State::Canceled { .. } | State::Expired => false,
        };
        if is_waited_for {
            return;
        }
        let (kept, displaced) = (found.no, present.no);
        let of_it = format!("of attempt {}", displaced.0);
        let other = match present.task() {
            Some(task) if present.is_running() => format!("task {task} {of_it} is watched to its end"),
            Some(task) => format!("nothing is kept of task {task} {of_it}"),
            None => format!("attempt {} is not needed", displaced.0),
        };
        self.displace(displaced);
        self.keep(kept, &other);
    }

    /// A request that may have made a task is not sent again to find out: that would wait for credits or for a key, maybe for
    /// days, and nobody needs what it makes.
    pub(super) fn doubt_unneeded(&mut self, last: &Fault) {
        let text = format!(
            "its request may have made a task, and another attempt has succeeded; the last answer: {last}"
        );
        self.doubt(Fault::new(&last.code, text), None);
    }

    /// An attempt is no longer the present one. One that made no task and has nothing in the books leaves no trace,
    /// and its number is used again.
    fn displace(&mut self, no: AttemptNo) {
        let at = self.at;
        self.job.attempts.retain_mut(|attempt| {
            if attempt.no == no && (attempt.task().is_some() || attempt.is_in_doubt()) {
                attempt.rare.change(|rare| rare.watched_since = Some(at));
            }
            attempt.no != no || attempt.task().is_some() || attempt.books != Books::default()
        });
    }

    /// An attempt is the present one from now on, since its task succeeded first.
    fn keep(&mut self, no: AttemptNo, other: &str) {
        let Some(index) = self.job.index_of(no) else { return };
        let newest = self.job.newest_attempt();
        self.job.rare.change(|rare| rare.kept = Some(no).filter(|no| *no != newest));
        self.index = index;
        let attempt = self.attempt_mut();
        attempt.rare.change(|rare| (rare.watched_since, rare.rejected) = (None, None));
        let State::Fetching { task, urls, .. } = &mut attempt.state else { return };
        // They may be old: its record is read for fresh ones.
        urls.clear();
        let what = format!("the outputs of task {task} are kept; {other}");
        self.note(&what, None);
        // Its deadline is long past; it gets no further attempt by itself.
        self.job.overdue = true;
    }
}
