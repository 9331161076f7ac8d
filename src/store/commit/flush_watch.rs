//! A flush of the database that waits for a write that failed.
//!
//! sled 0.34 writes a full buffer on a thread of its own. Where the disk refuses that write, the error is noted, but whatever
//! waits for the buffer is not woken up in one of the two places that do so (`exit_reservation`): the flush, and the
//! process, would wait for ever. Each later flush finds the error, returns it, and wakes up all that wait. So while one takes
//! long, another is begun beside it.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a flush may take until another is begun beside it, and each after that twice as long as the one before: a disk
/// that is slow has no more than a few at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks after the flushes of one database, of which there is one at a time. Its thread is started by the first.
#[derive(Debug, Default)]
pub(super) struct FlushWatch {
    watched: Arc<(Mutex<Watched>, Condvar)>,
}

#[derive(Debug, Default)]
struct Watched {
    /// The database while it is flushed.
    flushing: Option<sled::Db>,
    /// How many flushes have begun.
    begun: u64,
    thread: Thread,
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
    /// Waits until all that the database was given is written, as sled understands it.
    pub(super) fn flush(&self, db: &sled::Db) -> sled::Result<()> {
        self.begin(db);
        let flushed = db.flush();
        self.lock().flushing = None;
        flushed.map(drop)
    }

    fn begin(&self, db: &sled::Db) {
        let mut watched = self.lock();
        watched.flushing = Some(db.clone());
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
        let now = watched.flushing.is_some().then_some(watched.begun);
        if now.is_some() && mem::replace(&mut seen, now) == now {
            watched.flushing.clone().into_iter().for_each(flush_beside);
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
fn flush_beside(db: sled::Db) {
    let _ = thread::Builder::new().name("flush-beside".to_owned()).spawn(move || db.flush());
}
