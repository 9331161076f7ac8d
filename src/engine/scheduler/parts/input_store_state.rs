//! Whether the object store takes files that jobs need as inputs. While it does not, such jobs wait in the queue and keep no
//! slots of others; one of them at a time asks it again.

use crate::domain::time::{Millis, Tick};
use crate::engine::scheduler::parts::output_store_state::STORE_FAULTS_MAX;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct InputStoreState {
    down: Option<Down>,
}

#[derive(Debug)]
struct Down {
    /// Faults in a row.
    faults: u32,
    next: Next,
}

/// Who asks it next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nobody before this instant.
    At(Tick),
    /// The next job that has files.
    Anybody,
    /// Nobody: a job asks it now.
    Asked,
}

impl InputStoreState {
    /// Whether it refused the last file.
    pub fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Whether it refused files so often in a row that it is not to be waited for.
    pub fn is_given_up(&self) -> bool {
        self.faults() >= STORE_FAULTS_MAX
    }

    /// When a job may ask it again, where that is to come.
    pub fn retry_at(&self) -> Option<Tick> {
        match self.down.as_ref()?.next {
            Next::At(at) => Some(at),
            Next::Anybody | Next::Asked => None,
        }
    }

    /// Time goes on: from the instant of [`InputStoreState::retry_at`] on there is none to come.
    pub fn pass_time(&mut self, now: Tick) {
        if let Some(down) = &mut self.down
            && matches!(down.next, Next::At(at) if at <= now)
        {
            down.next = Next::Anybody;
        }
    }

    /// How many jobs with files may be let out now.
    pub fn room(&self, now: Tick) -> usize {
        match self.down.as_ref().map(|down| down.next) {
            None => usize::MAX,
            Some(Next::At(at)) => usize::from(at <= now),
            Some(Next::Anybody) => 1,
            Some(Next::Asked) => 0,
        }
    }

    /// A job with files was let out.
    pub fn let_out(&mut self) {
        if let Some(down) = &mut self.down {
            down.next = Next::Asked;
        }
    }

    /// It has the files of a job. True: it was down.
    pub fn took(&mut self) -> bool {
        self.down.take().is_some()
    }

    /// Faults in a row.
    pub fn faults(&self) -> u32 {
        self.down.as_ref().map_or(0, |down| down.faults)
    }

    /// It refused a file; it is asked again after `wait`. True: it was thought to take files.
    pub fn refused(&mut self, wait: Millis, now: Tick) -> bool {
        let faults = self.faults().saturating_add(1);
        self.down.replace(Down { faults, next: Next::At(now.after(wait)) }).is_none()
    }

    /// The job that asked ended otherwise: another one may ask.
    pub fn not_asked(&mut self) {
        if let Some(down) = &mut self.down
            && down.next == Next::Asked
        {
            down.next = Next::Anybody;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_job_at_a_time_asks_a_store_that_is_down() {
        let mut store = InputStoreState::default();
        assert_eq!(store.room(Tick(0)), usize::MAX);
        assert!(store.refused(Millis(100), Tick(0)), "that is new");
        assert_eq!((store.room(Tick(99)), store.room(Tick(100)), store.retry_at()), (0, 1, Some(Tick(100))));
        store.let_out();
        assert_eq!((store.room(Tick(200)), store.retry_at()), (0, None), "it is being asked");
        assert!(!store.refused(Millis(100), Tick(200)));
        assert_eq!((store.faults(), store.retry_at()), (2, Some(Tick(300))));
        store.let_out();
        store.not_asked();
        assert_eq!(store.room(Tick(400)), 1, "the job ended for another reason");
        assert!(!store.refused(Millis(100), Tick(400)) && store.retry_at() == Some(Tick(500)));
        store.pass_time(Tick(500));
        assert_eq!(
            (store.retry_at(), store.room(Tick(500))),
            (None, 1),
            "nobody has files, and nobody is woken"
        );
        assert!(store.took() && !store.took() && !store.is_down());
    }
}
