//! Which version of an edited row is wanted.
//!
//! A row that keeps its `id` and asks for something else is another job of the same label: another version of the row.
//! The version of the manifest that came last is wanted, and takes the plain name; the others are superseded. A manifest
//! that asks for an earlier version again makes that one the wanted one.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::domain::ids::Seq;

/// The fault of a job that was never sent, since a newer version of its row came first.
pub const REPLACED: &str = "replaced";

/// A version that is wanted from now on, in the place of another of the same row and variation. Where the version that
/// is wanted has no such variation, its first one stands in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionChange {
    /// The job that is wanted.
    pub wanted: Seq,
    /// The job that was wanted before.
    pub instead_of: Seq,
    /// Where the row of the wanted job begins, in bytes, if it was accepted before: the manifest went back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_at: Option<u64>,
}

/// The versions of the edited rows of a batch: what all its changes come to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RowVersions {
    superseded: HashSet<Seq>,
    edited: HashSet<Seq>,
}

impl RowVersions {
    /// Takes the next change in.
    pub fn add(&mut self, change: VersionChange) {
        self.superseded.insert(change.instead_of);
        self.superseded.remove(&change.wanted);
        self.edited.extend([change.wanted, change.instead_of]);
    }

    /// Whether no row was edited.
    pub fn is_empty(&self) -> bool {
        self.edited.is_empty()
    }

    /// Whether another version of its row is wanted.
    pub fn is_superseded(&self, job: Seq) -> bool {
        self.superseded.contains(&job)
    }

    /// Every job of which another version of its row is wanted, in no order.
    pub fn superseded(&self) -> impl Iterator<Item = Seq> + '_ {
        self.superseded.iter().copied()
    }

    /// How many these are.
    pub fn count_superseded(&self) -> usize {
        self.superseded.len()
    }

    /// Whether its row has other versions.
    pub fn is_edited(&self, job: Seq) -> bool {
        self.edited.contains(&job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_asked_for_last_is_wanted() {
        let mut versions = RowVersions::default();
        let mut told = |wanted, instead_of| {
            versions.add(VersionChange { wanted: Seq(wanted), instead_of: Seq(instead_of), row_at: None });
            [0, 1, 2, 3].map(|seq| versions.is_superseded(Seq(seq)))
        };
        assert_eq!(told(2, 0), [true, false, false, false]);
        assert_eq!(told(3, 2), [true, false, true, false]);
        assert_eq!(told(0, 3), [false, false, true, true], "the first again");
        assert_eq!(told(0, 2), [false, false, true, true], "a further variation of another version");
        assert_eq!(told(2, 2), [false, false, false, true], "that one again, of which no version was wanted");
        assert!(versions.is_edited(Seq(0)) && versions.is_edited(Seq(3)) && !versions.is_edited(Seq(1)));
    }
}
