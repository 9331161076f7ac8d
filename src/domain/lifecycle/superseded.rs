//! Resubmitting: another attempt while the overdue task is watched on, and paid for if it succeeds after all.
//!
//! The present attempt and the superseded tasks are told apart by attempt number alone. The outputs of the first
//! to succeed are kept: where that is a superseded task, it and the present attempt change places, so that
//! everything that is true of a job's present task stays true.

use crate::domain::ids::{AttemptNo, TaskId};
use crate::domain::job::{Books, Job, State, Superseded, WatchState};
use crate::domain::ledger::Movement;
use crate::domain::lifecycle::{AttemptRules, Change, Event};
use crate::domain::retry::{self, Prospect};
use crate::domain::task::{Fault, TaskReading, TaskStatus};

/// Whether an overdue job may be given another attempt: it has one left, its key keeps the attempts apart, what its
/// task was charged is known, and nobody said that the same request would be refused again.
pub(super) fn may_resubmit(job: &Job, terms: AttemptRules) -> bool {
    terms.keyed
        && job.newest_attempt().0 < terms.attempts
        && job.books.held.is_zero()
        && job.rejected.as_ref().is_none_or(|fault| retry::prospect(&fault.code) < Prospect::OnlyAsked)
        && matches!(job.state, State::Running { .. })
}

/// The superseded task that an event for `attempt` is about, if one is still watched.
pub(super) fn watched(job: &Job, attempt: AttemptNo) -> Option<usize> {
    job.superseded.iter().position(|other| other.attempt == attempt && other.watch == WatchState::Open)
}

impl Change {
    /// The task is left to a slow watch, and the job queues for another attempt.
    pub(super) fn supersede(&mut self, task: TaskId) {
        let why = format!("overdue: retrying with a new key, charged as well; task {task} is still watched");
        let Job { attempt, day, .. } = self.job;
        let books = std::mem::take(&mut self.job.books);
        let since = self.at;
        self.job.superseded.push(Superseded { attempt, task, books, day, since, watch: WatchState::Open });
        self.next_attempt(&why);
        self.job.deadline_from = None;
    }

    /// Something came of a superseded task. Returns whether the event has a place there.
    pub(super) fn superseded_event(&mut self, index: usize, event: Event) -> bool {
        self.day = self.job.superseded[index].day;
        match event {
            Event::Read(reading) => self.read_superseded(index, &reading),
            Event::TaskMissing(fault) | Event::WatchExpired(fault) => self.doubt_superseded(index, &fault),
            _ => return false,
        }
        true
    }

    fn read_superseded(&mut self, index: usize, reading: &TaskReading) {
        let Superseded { attempt, books, .. } = self.job.superseded[index].clone();
        let task = &reading.id;
        match &reading.status {
            TaskStatus::Failed | TaskStatus::Canceled => {
                let Books { charged: spent, waived, .. } = books;
                let movement = Movement::Refund { spent, waived };
                self.job.superseded[index].books = Books::default();
                self.job.superseded[index].watch = WatchState::Over;
                let word = if reading.status == TaskStatus::Failed {
                    "failed"
                } else {
                    "was canceled at the service"
                };
                let what = format!("task {task} {word} after its deadline, and was refunded by the service");
                self.note_for(attempt, &what, Some(movement));
            }
            status => {
                self.correct_superseded(index, reading);
                if *status == TaskStatus::Success {
                    self.job.superseded[index].watch = WatchState::Succeeded;
                    self.note_for(attempt, &format!("task {task} finished late; it is paid for"), None);
                }
            }
        }
    }

    fn correct_superseded(&mut self, index: usize, reading: &TaskReading) {
        let Superseded { attempt, ref mut books, .. } = self.job.superseded[index];
        let to = reading.charged;
        let from = std::mem::replace(&mut books.charged, to);
        let waived = std::mem::replace(&mut books.waived, reading.waived);
        if from != to {
            let what = "the task's record shows another charge than before";
            self.note_for(attempt, what, Some(Movement::Correct { from, to }));
        }
        self.note_waived(attempt, waived, reading.waived);
    }

    fn doubt_superseded(&mut self, index: usize, fault: &Fault) {
        let Superseded { attempt, ref task, ref mut watch, .. } = self.job.superseded[index];
        *watch = WatchState::InDoubt;
        let what = format!("task {task} is in doubt, its charge stays counted: {fault}");
        self.note_for(attempt, &what, None);
    }

    /// Keeps the outputs of a superseded task that succeeded, unless the present attempt came first. One whose
    /// charge is not known yet is waited for: it cannot be left out of the books.
    pub(super) fn collect_superseded(&mut self) {
        let found = self.job.superseded.iter().position(|other| other.watch == WatchState::Succeeded);
        let Some(index) = found else { return };
        let displaced = match &self.job.state {
            State::Submitting { .. } | State::Fetching { .. } | State::Succeeded { .. } => return,
            State::Running { .. } if !self.job.books.held.is_zero() => return,
            State::InDoubt { task: None, .. } => return,
            State::Running { task } => Some((task.clone(), WatchState::Open)),
            State::InDoubt { task: Some(task), .. } => Some((task.clone(), WatchState::InDoubt)),
            State::Failed { task: Some(task), .. } | State::Canceled { task: Some(task), .. } => {
                Some((task.clone(), WatchState::Over))
            }
            State::Queued
            | State::Failed { task: None, .. }
            | State::Canceled { task: None, .. }
            | State::Expired => None,
        };
        let kept = self.job.superseded.remove(index);
        let (attempt, since) = (self.job.attempt, self.at);
        let other = match &displaced {
            Some((task, WatchState::Open)) => {
                format!("task {task} of attempt {} is watched to its end", attempt.0)
            }
            Some((task, _)) => format!("nothing is kept of task {task} of attempt {}", attempt.0),
            None => format!("attempt {} is not needed", attempt.0),
        };
        if let Some((task, watch)) = displaced {
            let (books, day) = (self.job.books, self.job.day);
            self.job.superseded.push(Superseded { attempt, task, books, day, since, watch });
        }
        let Superseded { attempt, task, books, day, .. } = kept;
        let what = format!("the outputs of task {task} are kept; {other}");
        (self.job.attempt, self.job.books, self.job.day) = (attempt, books, day);
        (self.job.ran_model, self.job.ran_options, self.job.rejected) = (None, None, None);
        self.job.record = None;
        // Its deadline is long past; it gets no further attempt by itself.
        self.job.overdue = true;
        self.end(State::Fetching { task, urls: Vec::new() }, &what);
    }
}
