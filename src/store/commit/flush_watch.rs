//! A flush of the database that waits for a write that failed.
//!
//! sled 0.34 writes a full buffer on a thread of its own. Where the disk refuses that write, the error is noted, but whatever
//! waits for the buffer is not woken up in one of the two places that do so (`exit_reservation`): the flush, and the
//! process, would wait for ever. Each later flush finds the error, returns it, and wakes up all that wait. So while one takes
//! long, another is begun beside it.

use std::fmt;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a flush may take until another is begun beside it, and each after that twice as long as the one before: a disk
/// that is slow has no more than a few at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Begins another flush.
type Again = Arc<dyn Fn() + Send + Sync>;

/// Looks after the flushes of one database, of which there is one at a time. Its thread is started by the first.
#[derive(Debug, Default)]
pub(super) struct FlushWatch {
    watched: Arc<(Mutex<Watched>, Condvar)>,
}

#[derive(Default)]
struct Watched {
    /// What begins another flush, while one is under way.
    again: Option<Again>,
    /// How many flushes have begun.
    begun: u64,
    thread: Thread,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("begun", &self.begun)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

/// What the thread does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Thread {
    #[default]
    None,
    /// It looks at times.
    Looking,
    /// It waits for the next flush to begin.
    Asleep,
    /// It ends, or has ended.
    Ended,
}

impl FlushWatch {
    /// Does a flush, beside which `again` begins another one whenever it takes long.
    pub(super) fn flush<T>(&self, again: impl Fn() + Send + Sync + 'static, flush: impl FnOnce() -> T) -> T {
        self.begin(Arc::new(again));
        let flushed = flush();
        self.lock().again = None;
        flushed
    }

    fn begin(&self, again: Again) {
        let mut watched = self.lock();
        watched.again = Some(again);
        watched.begun += 1;
        match watched.thread {
            Thread::None => {
                let shared = Arc::clone(&self.watched);
                let started =
                    thread::Builder::new().name("flush-watch".to_owned()).spawn(move || look_after(&shared));
                // Without one, flushes are not looked after.
                watched.thread = started.map_or(Thread::None, |_| Thread::Looking);
            }
            Thread::Asleep => {
                watched.thread = Thread::Looking;
                self.watched.1.notify_one();
            }
            Thread::Looking | Thread::Ended => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        lock(&self.watched.0)
    }
}

impl Drop for FlushWatch {
    fn drop(&mut self) {
        self.lock().thread = Thread::Ended;
        self.watched.1.notify_one();
    }
}

/// Nothing that holds it panics half-way.
fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look_after((watched, changed): &(Mutex<Watched>, Condvar)) {
    let mut patience = PATIENCE;
    // The flush that was under way at the last look.
    let mut seen = None;
    let mut watched = lock(watched);
    while watched.thread != Thread::Ended {
        let now = watched.again.is_some().then_some(watched.begun);
        if now.is_some() && mem::replace(&mut seen, now) == now {
            watched.again.clone().into_iter().for_each(flush_beside);
            patience *= 2;
        } else {
            patience = PATIENCE;
        }
        watched = if now.is_none() {
            seen = None;
            watched.thread = Thread::Asleep;
            changed.wait(watched).unwrap_or_else(PoisonError::into_inner)
        } else {
            changed.wait_timeout(watched, patience).unwrap_or_else(PoisonError::into_inner).0
        };
    }
}

/// Begins another flush, whose outcome is the first one's to tell.
fn flush_beside(again: Again) {
    let _ = thread::Builder::new().name("flush-beside".to_owned()).spawn(move || again());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// As of sled: the first waits until another one wakes it up.
    #[test]
    fn a_flush_that_nobody_wakes_up_is_woken_up_by_another() {
        let watch = FlushWatch::default();
        for _ in 0..2 {
            let (wake, woken) = mpsc::channel();
            let again = move || {
                let _ = wake.send(());
            };
            assert_eq!(watch.flush(again, || woken.recv()), Ok(()));
        }
        let beside = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&beside);
        (0..1000).for_each(|_| {
            let counted = Arc::clone(&counted);
            watch.flush(move || *lock_count(&counted) += 1, || ());
        });
        assert_eq!(*lock_count(&beside), 0, "those that end have no other beside them");
    }

    fn lock_count(count: &Mutex<u32>) -> MutexGuard<'_, u32> {
        count.lock().unwrap()
    }
}
