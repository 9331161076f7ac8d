//! The segments of a batch's rows, from the rows themselves.

use crate::domain::budget_group::GroupKey;
use crate::domain::job::Order;
use crate::domain::queue_class::{Census, Classes, GroupHash};
use crate::store::Segment;

/// Neighbouring rows that are alike: what `ingest` made a segment of, or a part of one.
#[derive(Default)]
pub(super) struct SegmentBuilder<'a> {
    /// What groups have budgets by: rows of several groups are not alike.
    group_keys: &'a [GroupKey],
    /// By priority alone.
    mixed: Vec<Segment>,
    /// By class; nothing once there are too many.
    alike: Vec<(Segment, Classes)>,
    are_too_many: bool,
    census: Census,
    /// Where the rows of a pilot lie.
    pilot_rows: Vec<(u64, u64)>,
    /// Where the rows begin that came in since the state was rebuilt or imported.
    since_rebuilt: u64,
}

/// Most runs that are told apart. Versions that did not sort rows by class left as many as there are rows.
const RUNS_MAX: usize = 512;

impl SegmentBuilder<'_> {
    /// One for a batch the rows of whose pilot lie there, by byte, in their order, and those that came in since the state was
    /// rebuilt or imported from byte `since_rebuilt` on, where groups have budgets by these keys.
    pub(super) fn new(
        pilot_rows: Vec<(u64, u64)>,
        since_rebuilt: u64,
        group_keys: &[GroupKey],
    ) -> SegmentBuilder<'_> {
        SegmentBuilder { pilot_rows, since_rebuilt, group_keys, ..SegmentBuilder::default() }
    }

    fn is_of_pilot(&self, at: u64) -> bool {
        let part = self.pilot_rows.get(self.pilot_rows.partition_point(|(_, end)| *end <= at));
        part.is_some_and(|(from, _)| *from <= at)
    }

    /// Adds the row from byte `at` to byte `end`.
    pub(super) fn add(&mut self, order: &Order, at: u64, end: u64) {
        let priority = order.priority;
        let row = Segment { pilot: self.is_of_pilot(at), ..Segment::mixed(priority, at, end) };
        let joins = |last: &Segment| {
            (last.priority, last.pilot) == (row.priority, row.pilot) && at != self.since_rebuilt
        };
        match self.mixed.last_mut() {
            Some(last) if joins(last) => last.end = end,
            _ => self.mixed.push(row),
        }
        if self.are_too_many {
            return;
        }
        let classes = Classes::of(order, GroupHash::of(self.group_keys, &order.meta));
        self.census.add(priority, classes);
        match self.alike.last_mut() {
            Some((last, of_last)) if joins(last) && *of_last == classes => last.end = end,
            _ => self.alike.push((row, classes)),
        }
        self.are_too_many = self.alike.len() > RUNS_MAX;
    }

    /// The segments of all rows, with their cursors at their first bytes.
    pub(super) fn segments(self) -> Vec<Segment> {
        if self.are_too_many {
            return self.mixed;
        }
        let division = self.census.division();
        let named =
            |(segment, classes): (Segment, Classes)| Segment { class: division.of(&classes), ..segment };
        self.alike.into_iter().map(named).collect()
    }
}
