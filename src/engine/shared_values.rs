//! Values of which most are alike, such as the terms of the rows of a manifest: mostly in memory once, however many have them.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// So many different values are remembered at most: some are as large as a service makes them. If there are more, it begins anew,
/// and some are in memory more than once.
const REMEMBERED_MAX: usize = 256;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct SharedValues<T>(HashSet<Arc<T>, RandomState>);

impl<T> Default for SharedValues<T> {
    fn default() -> SharedValues<T> {
        SharedValues(HashSet::default())
    }
}

impl<T: Eq + Hash> SharedValues<T> {
    /// Puts the value that is remembered in the place of its equal.
    pub(super) fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.0.get(value) {
            value.clone_from(known);
            return;
        }
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_in_memory_once() {
        let mut values = SharedValues::default();
        let mut shared = |text: &str| {
            let mut value = Arc::new(text.to_owned());
            values.share(&mut value);
            value
        };
        let first = shared("a fox");
        assert!(Arc::ptr_eq(&first, &shared("a fox")));
        assert_eq!(*shared("a gull"), "a gull");
        for other in 0..REMEMBERED_MAX {
            shared(&other.to_string());
        }
        let again = shared("a fox");
        assert_eq!(again, first, "the same value, however many there were in between");
        assert!(Arc::ptr_eq(&again, &shared("a fox")));
    }
}
