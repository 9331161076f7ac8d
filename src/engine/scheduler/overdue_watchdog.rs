//! The watchdog: how long the task of an overdue job, or of a superseded attempt, is watched before it is left to a
//! person.

use crate::domain::lifecycle::Event;
use crate::domain::task::Fault;
use crate::domain::time::Timestamp;
use crate::engine::scheduler::Scheduler;

impl Scheduler {
    /// When the watch ends that begins at `from`, the missed deadline: `deadlines.watch_overdue_for` later.
    pub(super) fn watch_end(&self, from: Timestamp) -> Timestamp {
        from.after(self.settings.watch_overdue_for)
    }
}

/// A task was watched to the end, or a request that may have made one was repeated as long: it is left to a person.
pub(super) fn expired(is_unanswered: bool) -> Event {
    let text = match is_unanswered {
        true => "no answer within deadlines.watch_overdue_for told whether its request made a task",
        false => "its task did not end within deadlines.watch_overdue_for",
    };
    Event::WatchExpired(Fault::new("deadline", text))
}
