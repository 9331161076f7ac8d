//! Refunds: a task that fails or is canceled gives back what it took, in the moment of its end.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::tasks::{Ending, Task};

impl Task {
    /// When the credits go back, if they will.
    fn refund_due_ms(&self) -> Option<i64> {
        match self.ending {
            Ending::Failed { .. } | Ending::Canceled => Some(self.timing.ends_ms()),
            Ending::Success | Ending::Never => None,
        }
    }
}

/// Refunds to come, soonest first.
#[derive(Debug, Default)]
pub(crate) struct DueRefunds(BTreeSet<(i64, Uuid)>);

impl DueRefunds {
    /// Notes the refund of a task, if it will get one.
    pub(crate) fn expect(&mut self, task: &Task) {
        self.0.extend(task.refund_due_ms().map(|due_ms| (due_ms, task.id)));
    }

    /// Forgets the refund of a task, whose end is about to be another.
    pub(crate) fn withdraw(&mut self, task: &Task) {
        if let Some(due_ms) = task.refund_due_ms() {
            self.0.remove(&(due_ms, task.id));
        }
    }

    /// A task whose refund is due, which is not expected any more.
    pub(crate) fn next_due(&mut self, now_ms: i64) -> Option<Uuid> {
        self.0.first().filter(|(due_ms, _)| *due_ms <= now_ms)?;
        self.0.pop_first().map(|(_, id)| id)
    }
}
