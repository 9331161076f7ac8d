//! Manifests that were planned on a page, for as long as they may be submitted as they are.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::domain::credits::Credits;
use crate::domain::time::{Millis, Tick};
use crate::server::protocol::Submission;

/// Planned manifests that are kept together, in bytes.
const KEPT_MAX_BYTES: usize = 16 << 20;
/// How long a planned manifest is kept.
const KEPT_FOR: Millis = Millis::from_secs(15 * 60);

/// A manifest that was planned.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) key: String,
    pub(super) at: Tick,
    pub(super) submission: Submission,
    pub(super) manifest: String,
    /// What it was to cost at most, with the jobs that waited.
    pub(super) total: Credits,
    /// What of that was for new and changed jobs.
    pub(super) price: Credits,
}

/// The manifests that were planned in the last quarter of an hour.
#[derive(Debug, Default)]
pub(super) struct PlannedManifests(Mutex<VecDeque<Planned>>);

impl PlannedManifests {
    pub(super) fn keep(&self, planned: Planned) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = planned.at;
        all.push_front(planned);
        let mut bytes = 0;
        all.retain(|one| {
            bytes += one.manifest.len();
            bytes <= KEPT_MAX_BYTES && now.since(one.at) < KEPT_FOR
        });
    }

    /// Takes one out: it is submitted once.
    pub(super) fn take(&self, key: &str, now: Tick) -> Option<Planned> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|one| one.key == key)?;
        all.remove(at).filter(|one| now.since(one.at) < KEPT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_manifests_are_kept_for_a_while_and_never_too_many() {
        let all = PlannedManifests::default();
        let planned = |key: &str, at: u64, bytes: usize| Planned {
            key: key.to_owned(),
            at: Tick(at),
            submission: Submission::default(),
            manifest: "x".repeat(bytes),
            total: Credits(1),
            price: Credits(1),
        };
        all.keep(planned("old", 0, 10));
        assert!(all.take("old", Tick(KEPT_FOR.0)).is_none(), "it is too old");
        for n in 0..6 {
            all.keep(planned(&n.to_string(), n, KEPT_MAX_BYTES / 4));
        }
        assert!(all.take("1", Tick(10)).is_none() && all.take("2", Tick(10)).is_some());
        assert!(all.take("2", Tick(10)).is_none(), "it is submitted once");
    }
}
