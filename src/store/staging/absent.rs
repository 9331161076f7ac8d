//! Jobs of the batch whose rows a manifest does not have, or has in a form that is not valid: how many they are, and the
//! first of them.

use crate::domain::absent_rows::LISTED_MAX;
use crate::domain::credits::Credits;
use crate::domain::ids::Seq;
use crate::domain::row_verdict::JobStanding;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AbsentJob {
    pub(super) seq: Seq,
    /// The byte where its row begins.
    pub(super) at: u64,
    pub(super) standing: JobStanding,
    /// What it may still cost.
    pub(super) unspent: Credits,
    /// The manifest has its `id`, in a row that is not valid.
    pub(super) row_is_not_valid: bool,
}

impl AbsentJob {
    /// Those that wait come first, since they can be canceled; then those that are under way.
    fn order(&self) -> (u8, Seq) {
        let rank = match self.standing {
            JobStanding::Waiting | JobStanding::PerhapsSent => 0,
            JobStanding::Running | JobStanding::InDoubt => 1,
            _ => 2,
        };
        (rank, self.seq)
    }
}

/// What all of them come to. Bounded, however many they are.
#[derive(Debug, Default)]
pub(super) struct AbsentJobs {
    pub(super) count: u64,
    /// How many of them the manifest has in rows that are not valid.
    pub(super) not_valid: u64,
    /// What they may still cost together.
    pub(super) unspent: Credits,
    /// The first of them.
    pub(super) first: Vec<AbsentJob>,
}

impl AbsentJobs {
    /// Adds one, unless it was canceled or has expired: it is not wanted then. Of those whose row is not valid only those count that may
    /// still cost something: what has ended stays until the row is corrected.
    pub(super) fn add(&mut self, job: AbsentJob) {
        let is_over = job.order().0 > 1;
        let is_dropped = matches!(job.standing, JobStanding::Canceled | JobStanding::Expired);
        if is_dropped || job.row_is_not_valid && is_over {
            return;
        }
        self.count += 1;
        self.not_valid += u64::from(job.row_is_not_valid);
        self.unspent = self.unspent + job.unspent;
        let place = self.first.partition_point(|other| other.order() < job.order());
        if place < LISTED_MAX {
            self.first.insert(place, job);
            self.first.truncate(LISTED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_are_listed_first_and_canceled_ones_are_not() {
        let mut absent = AbsentJobs::default();
        for seq in 0..1_000_u32 {
            let standing = match seq {
                700 | 701 => JobStanding::Waiting,
                300 => JobStanding::Running,
                400 => JobStanding::Canceled,
                _ => JobStanding::Done,
            };
            let is_over = standing == JobStanding::Done;
            let unspent = if is_over { Credits::ZERO } else { Credits(4) };
            absent.add(AbsentJob { seq: Seq(seq), at: 0, standing, unspent, row_is_not_valid: false });
        }
        assert_eq!((absent.count, absent.unspent), (999, Credits(12)));
        let listed: Vec<u32> = absent.first.iter().map(|job| job.seq.0).collect();
        assert_eq!(listed, [700, 701, 300, 0, 1]);
    }
}
