//! Counting the jobs of a batch: how many of each kind it has, and how they ended.
//!
//! Rows that have not begun lie in the spool, and ended jobs in the outcomes: without these numbers only a
//! reading of both would tell.

use crate::domain::ids::Seq;
use crate::domain::job::State;
use crate::domain::request::Kind;
use crate::store::{BatchRecord, Ended, KindCounts};

impl BatchRecord {
    /// Counts a job that is accepted.
    pub fn count_accepted(&mut self, kind: Kind) {
        self.kinds.entry(kind).or_default().rows += 1;
    }

    /// Whether a failure with this code of a job of this kind counts among the rejections in a row, of which `in_row_max`
    /// pause it: a rejected prompt does. An endpoint that is missing fails all jobs of its kind, free of charge, and counts
    /// where no other kind has jobs left that may succeed.
    pub fn is_rejection(&self, code: &str, kind: Kind, in_row_max: u32) -> bool {
        code == "content_rejected" || code == "not_found" && !self.others_may_succeed(kind, in_row_max)
    }

    /// Whether jobs of another kind than this have not ended, and may succeed: one of that kind did, or fewer than
    /// `failures_max` have failed.
    fn others_may_succeed(&self, kind: Kind, failures_max: u32) -> bool {
        let mut others = self.kinds.iter().filter(|(other, _)| **other != kind).map(|(_, counts)| counts);
        others.any(|KindCounts { rows, ended }| {
            ended.all() < *rows && (ended.succeeded > 0 || ended.failed < failures_max)
        })
    }

    /// How its jobs ended, by kind; nothing stands for those that were accepted before kinds were counted.
    pub fn ended_by_kind(&self) -> impl Iterator<Item = (Option<Kind>, Ended)> + use<> {
        let rest = self.kinds.values().fold(self.ended, |rest, of_kind| rest.minus(of_kind.ended));
        let kinds = self.kinds.clone().into_iter().map(|(kind, of_kind)| (Some(kind), of_kind.ended));
        kinds.chain([(None, rest)]).filter(|(_, ended)| ended.all() > 0)
    }

    /// Counts a job that has ended; a state that is not final counts nowhere.
    pub fn count_ended(&mut self, (seq, kind): (Seq, Kind), state: &State, is_superseded: bool) {
        let before = self.ended.all();
        self.ended.count(state, is_superseded);
        if self.may_have_been_sent(seq) {
            let more = self.ended.all().saturating_sub(before);
            self.rebuilt_ended = self.rebuilt_ended.saturating_add(more);
        }
        // A batch that was accepted before kinds were counted has none of its own.
        if let Some(of_kind) = self.kinds.get_mut(&kind) {
            of_kind.ended.count(state, is_superseded);
        }
    }

    /// Counts one ended job less: it was taken up again.
    pub fn count_reopened(&mut self, (seq, kind): (Seq, Kind), state: &State, is_superseded: bool) {
        let before = self.ended.all();
        self.ended.reopen(state, is_superseded);
        if self.may_have_been_sent(seq) {
            let less = before.saturating_sub(self.ended.all());
            self.rebuilt_ended = self.rebuilt_ended.saturating_sub(less);
        }
        if let Some(of_kind) = self.kinds.get_mut(&kind) {
            of_kind.ended.reopen(state, is_superseded);
        }
    }

    /// Counts a job that has ended as that of a version that is superseded from now on, or is not any more.
    pub fn recount_ended(&mut self, kind: Kind, state: &State, is_superseded: bool) {
        self.ended.recount(state, is_superseded);
        if let Some(of_kind) = self.kinds.get_mut(&kind) {
            of_kind.ended.recount(state, is_superseded);
        }
    }
}
