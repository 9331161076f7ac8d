//! The segments of a batch's rows, from the rows themselves.

use crate::domain::job::Order;
use crate::domain::queue_class::{Census, Grain, QueueClass};
use crate::store::Segment;

/// Neighbouring rows that are alike: what intake made a segment of, or a part of one.
#[derive(Default)]
pub(super) struct SegmentBuilder {
    /// By priority alone.
    mixed: Vec<Segment>,
    /// By class, with the names of the class at each grain; nothing once there are too many.
    alike: Vec<(Segment, [QueueClass; Grain::ALL.len()])>,
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
        let classes = Grain::ALL.map(|grain| grain.class_of(order));
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
        let grain = self.census.grain();
        let place = Grain::ALL.iter().position(|other| *other == grain).unwrap_or_default();
        let named = |(segment, classes): (Segment, [QueueClass; Grain::ALL.len()])| Segment {
            class: classes[place],
            ..segment
        };
        self.alike.into_iter().map(named).collect()
    }
}
