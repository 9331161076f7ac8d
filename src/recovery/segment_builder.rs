//! The segments of a batch's rows, from the rows themselves.

use crate::domain::job::Order;
use crate::domain::queue_class::{Census, Classes, GroupHash};
use crate::store::Segment;

/// Neighbouring rows that are alike: what intake made a segment of, or a part of one.
#[derive(Default)]
pub(super) struct SegmentBuilder {
    /// By priority alone.
    mixed: Vec<Segment>,
    /// By class; nothing once there are too many. Which groups have budgets is not known here.
    alike: Vec<(Segment, Classes)>,
    are_too_many: bool,
    census: Census,
}

/// Most runs that are told apart. Versions that did not sort rows by class left as many as there are rows.
const RUNS_MAX: usize = 512;

impl SegmentBuilder {
    /// Adds the row from byte `at` to byte `end`.
    pub(super) fn add(&mut self, order: &Order, at: u64, end: u64) {
        let priority = order.priority;
        match self.mixed.last_mut() {
            Some(last) if last.priority == priority => last.end = end,
            _ => self.mixed.push(Segment::mixed(priority, at, end)),
        }
        if self.are_too_many {
            return;
        }
        self.census.count(order);
        let classes = Classes::of(order, GroupHash::default());
        match self.alike.last_mut() {
            Some((last, of_last)) if last.priority == priority && *of_last == classes => last.end = end,
            _ => self.alike.push((Segment::mixed(priority, at, end), classes)),
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
