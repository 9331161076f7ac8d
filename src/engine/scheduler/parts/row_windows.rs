//! Rows of a batch that wait in memory for their turn: one short window for each class of its queue.
//!
//! Rows of a class leave in the order of the manifest, and no class waits for another. What a step looks at is
//! bounded by the number of windows and their length, whatever waits behind them in the spool.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::domain::ids::Seq;
use crate::domain::queue_class::QueueClass;
use crate::engine::scheduler::SpooledRow;
use crate::store::Segment;

/// Rows of a window, at most.
pub const WINDOW_ROWS_MAX: usize = 64;
/// Rows of a window, at least, however many there are.
const WINDOW_ROWS_MIN: usize = 2;
/// Rows of all windows of a batch, unless there are too many windows for that.
const BATCH_ROWS: usize = 256;
/// Windows of a batch, at most, unless it has more priorities: classes beyond share one.
const WINDOWS_MAX: usize = 256;

/// The next rows of one class.
#[derive(Debug)]
pub struct RowWindow {
    class: QueueClass,
    /// Places of its segments in the batch's record, in order; the rows are of the first.
    segments: VecDeque<usize>,
    pub rows: VecDeque<SpooledRow>,
    pub loading: bool,
}

/// Empty windows for all that waits.
pub fn windows_of(segments: &[Segment]) -> Vec<RowWindow> {
    let mut places: BTreeMap<(Reverse<i8>, QueueClass), usize> = BTreeMap::new();
    let mut windows: Vec<RowWindow> = Vec::new();
    for (index, segment) in segments.iter().enumerate().filter(|(_, segment)| !segment.is_through()) {
        let priority = segment.priority;
        let place = places.get(&(Reverse(priority), segment.class)).copied().unwrap_or_else(|| {
            let class = if windows.len() < WINDOWS_MAX { segment.class } else { QueueClass::MIXED };
            *places.entry((Reverse(priority), class)).or_insert_with(|| {
                let (segments, rows) = (VecDeque::new(), VecDeque::new());
                windows.push(RowWindow { class, segments, rows, loading: false });
                windows.len() - 1
            })
        });
        windows[place].segments.push_back(index);
    }
    windows
}

/// How many rows each of so many windows should hold.
pub fn window_rows(windows: usize) -> usize {
    (BATCH_ROWS / windows.max(1)).clamp(WINDOW_ROWS_MIN, WINDOW_ROWS_MAX)
}

impl RowWindow {
    /// Whether its rows need not have anything in common.
    pub fn is_mixed(&self) -> bool {
        self.class.is_mixed()
    }

    /// Goes on to the next segment where one is through; false when none is left.
    pub fn advance(&mut self, segments: &[Segment]) -> bool {
        while let Some(index) = self.segments.front()
            && segments.get(*index).is_none_or(Segment::is_through)
        {
            self.segments.pop_front();
        }
        !self.segments.is_empty()
    }

    /// From which byte to which its next rows are to be read; nothing at the end of its segment.
    pub fn unread(&self, segments: &[Segment]) -> Option<(u64, u64)> {
        let mut own = self.segments.iter().filter_map(|index| segments.get(*index));
        let segment = own.find(|segment| !segment.is_through())?;
        let from = self.rows.back().map_or(segment.cursor, |row| row.end);
        (from < segment.end).then_some((from, segment.end))
    }

    /// Whether it has the row of this job.
    pub fn holds(&self, seq: Seq) -> bool {
        self.rows.iter().any(|row| row.spec.seq == seq)
    }

    /// Takes its first row out of the queue for good.
    pub fn pop(&mut self, segments: &mut [Segment]) -> Option<SpooledRow> {
        let row = self.rows.pop_front()?;
        if let Some(segment) = self.segments.front().and_then(|index| segments.get_mut(*index)) {
            segment.cursor = row.end;
        }
        Some(row)
    }
}
