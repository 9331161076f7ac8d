//! One manifest of a batch at a time: the next one has to see the jobs of the one before. Manifests of other batches are
//! read beside it, however large it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::domain::ids::BatchName;

/// The batches that a manifest is read for. Cheap to clone.
#[derive(Debug, Default, Clone)]
pub struct BatchLocks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    held: Mutex<BTreeSet<BatchName>>,
    released: Condvar,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, BTreeSet<BatchName>> {
        // Nothing panics while it is held.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchLocks {
    /// Waits until no manifest is read for the batch of that name, and keeps others waiting until it is dropped. Blocks
    /// its thread.
    pub fn hold(&self, name: &BatchName) -> BatchLock {
        let mut held = self.0.held();
        while held.contains(name) {
            held = self.0.released.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.insert(name.clone());
        BatchLock { shared: self.0.clone(), name: name.clone() }
    }

    /// The same where no manifest is read for that batch; nothing where one is.
    pub fn try_hold(&self, name: &BatchName) -> Option<BatchLock> {
        let is_free = self.0.held().insert(name.clone());
        is_free.then(|| BatchLock { shared: self.0.clone(), name: name.clone() })
    }
}

/// A batch that is held.
#[derive(Debug)]
pub struct BatchLock {
    shared: Arc<Shared>,
    name: BatchName,
}

impl Drop for BatchLock {
    fn drop(&mut self) {
        self.shared.held().remove(&self.name);
        self.shared.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_held_by_one_and_others_are_free() {
        let locks = BatchLocks::default();
        let (one, other) = ("one".parse().unwrap(), "other".parse().unwrap());
        let first = locks.hold(&one);
        assert!(locks.try_hold(&one).is_none());
        assert!(locks.try_hold(&other).is_some());
        drop(locks.hold(&other));
        let (waits, name) = (locks.clone(), one);
        let second = std::thread::spawn(move || drop(waits.hold(&name)));
        drop(locks.hold(&other));
        drop(first);
        second.join().unwrap();
    }
}
