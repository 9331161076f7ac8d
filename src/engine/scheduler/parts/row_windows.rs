//! Rows of a batch that wait in memory for their turn: one short window for each class of its queue.
//!
//! Rows of a class leave in the order of the manifest, and no class waits for another. What a step looks at is
//! bounded by the number of windows and their length, whatever waits behind them in the spool.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::domain::ids::Seq;
use crate::domain::queue_class::QueueClass;
use crate::engine::scheduler::messages::SpooledRow;
use crate::store::{BatchRecord, Segment};

/// Rows of a window, at most.
const WINDOW_ROWS_MAX: usize = 64;
/// Rows of a window, at least, however many there are.
const WINDOW_ROWS_MIN: usize = 2;
/// Rows of all windows of a batch, unless there are too many windows for that.
const BATCH_ROWS: usize = 256;
/// Rows of all batches, unless there are too many batches for that.
const ROWS: usize = 32 * 1024;
/// Windows of a batch, at most, unless it has more priorities: classes beyond share one.
const WINDOWS_MAX: usize = 256;

/// The next rows of one class.
#[derive(Debug)]
pub struct RowWindow {
    class: QueueClass,
    /// Places of its segments in the batch's record, in order. Its rows are of them from the first on.
    segments: VecDeque<usize>,
    rows: VecDeque<SpooledRow>,
    is_loading: bool,
}

/// Empty windows for all that waits and may be sent.
pub fn windows_of(record: &BatchRecord) -> Vec<RowWindow> {
    let mut places: BTreeMap<(Reverse<i8>, QueueClass), usize> = BTreeMap::new();
    let mut windows: Vec<RowWindow> = Vec::new();
    let waiting = record.segments.iter().enumerate().filter(|(_, segment)| !segment.is_through());
    for (index, segment) in waiting.filter(|(_, segment)| record.may_send(segment)) {
        let priority = segment.priority;
        let place = places.get(&(Reverse(priority), segment.class)).copied().unwrap_or_else(|| {
            let class = if windows.len() < WINDOWS_MAX { segment.class } else { QueueClass::MIXED };
            *places.entry((Reverse(priority), class)).or_insert_with(|| {
                let (segments, rows) = (VecDeque::new(), VecDeque::new());
                windows.push(RowWindow { class, segments, rows, is_loading: false });
                windows.len() - 1
            })
        });
        windows[place].segments.push_back(index);
    }
    windows
}

/// How many rows each of so many windows of a batch should hold, where there are so many batches.
pub fn window_rows(windows: usize, batches: usize) -> usize {
    let of_batch = BATCH_ROWS.min(ROWS / batches.max(1));
    (of_batch / windows.max(1)).clamp(WINDOW_ROWS_MIN, WINDOW_ROWS_MAX)
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

    /// From which byte to which its next rows are to be read; nothing where it has them all.
    pub fn unread(&self, segments: &[Segment]) -> Option<(u64, u64)> {
        let own = self.segments.iter().filter_map(|index| segments.get(*index));
        let read_to = self.rows.back().map_or(0, |row| row.end);
        let mut left = own.map(|segment| (segment.cursor.max(read_to), segment.end));
        left.find(|(from, end)| from < end)
    }

    /// Its rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &SpooledRow> {
        self.rows.iter()
    }

    /// Its first row.
    pub fn first(&self) -> Option<&SpooledRow> {
        self.rows.front()
    }

    /// The highest priority of its rows; nothing where it has none.
    pub fn priority(&self) -> Option<i8> {
        // Only those of a mixed one may differ.
        let rows = self.rows.iter().take(if self.is_mixed() { usize::MAX } else { 1 });
        rows.map(|row| row.spec.order.priority).max()
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether rows for it are being read.
    pub fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// Whether more of its rows are to be read, or it is to go on to its next segment or to leave.
    pub fn lacks_rows(&self, segments: &[Segment], most: usize) -> bool {
        let first = self.segments.front().and_then(|index| segments.get(*index));
        first.is_none_or(Segment::is_through) || self.has_room(most) && self.unread(segments).is_some()
    }

    fn has_room(&self, most: usize) -> bool {
        !self.is_loading && self.rows.len() <= most / 2
    }

    /// From which byte to which rows are read for it from now on; nothing while more than half of `most` are left.
    pub fn begin_loading(&mut self, segments: &[Segment], most: usize) -> Option<(u64, u64)> {
        if !self.has_room(most) {
            return None;
        }
        let place = self.unread(segments)?;
        self.is_loading = true;
        Some(place)
    }

    /// Takes in the rows that were read for it.
    pub fn add(&mut self, rows: Vec<SpooledRow>) {
        self.is_loading = false;
        self.rows.extend(rows);
    }

    /// Whether it has the row of this job.
    pub fn holds(&self, seq: Seq) -> bool {
        self.rows.iter().any(|row| row.spec.seq == seq)
    }

    /// Takes its first row out of the queue for good.
    pub fn pop(&mut self, segments: &mut [Segment]) -> Option<SpooledRow> {
        let row = self.rows.pop_front()?;
        // The one before may have been the last of its segment.
        self.advance(segments);
        if let Some(segment) = self.segments.front().and_then(|index| segments.get_mut(*index)) {
            segment.cursor = row.end;
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::BatchNo;
    use crate::domain::pilot::Pilot;
    use crate::domain::request::Kind;
    use crate::domain::time::Timestamp;
    use crate::engine::scheduler::tests::spec;

    fn of(segments: &[Segment]) -> BatchRecord {
        let record = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
        BatchRecord { segments: segments.to_vec(), ..record }
    }

    fn row(at: u64) -> SpooledRow {
        SpooledRow { at, end: at + 1, spec: spec(u32::try_from(at).unwrap(), Kind::Video) }
    }

    #[test]
    fn a_window_reads_on_where_its_rows_end_and_goes_to_the_next_segment_of_its_class() {
        let mut segments = vec![Segment::mixed(0, 0, 2), Segment::mixed(0, 2, 3)];
        let mut windows = windows_of(&of(&segments));
        let [window] = &mut windows[..] else { panic!("one class, one window") };
        assert_eq!(window.begin_loading(&segments, 4), Some((0, 2)));
        assert_eq!(window.begin_loading(&segments, 4), None, "it is being read");
        window.add(vec![row(0)]);
        assert_eq!(window.unread(&segments), Some((1, 2)));
        window.add(vec![row(1)]);
        assert!(window.holds(Seq(1)));
        assert_eq!(window.unread(&segments), Some((2, 3)), "of the next segment");
        window.add(vec![row(2)]);
        assert_eq!(window.unread(&segments), None);
        for (at, cursors) in [(0, [1, 2]), (1, [2, 2]), (2, [2, 3])] {
            assert!(window.advance(&segments));
            assert_eq!(window.pop(&mut segments).map(|row| row.at), Some(at));
            assert_eq!([segments[0].cursor, segments[1].cursor], cursors);
        }
        assert!(window.is_empty() && !window.advance(&segments), "nothing is left");
    }

    #[test]
    fn rows_of_several_segments_leave_one_after_the_other() {
        let mut segments = vec![Segment::mixed(0, 0, 1), Segment::mixed(5, 1, 2), Segment::mixed(0, 2, 4)];
        let mut windows = windows_of(&of(&segments));
        let window = &mut windows[0];
        window.add(vec![row(0), row(2)]);
        assert_eq!(window.unread(&segments), Some((3, 4)));
        window.add(vec![row(3)]);
        while window.pop(&mut segments).is_some() {}
        assert_eq!(segments.iter().map(|segment| segment.cursor).collect::<Vec<_>>(), [1, 1, 4]);
    }

    #[test]
    fn each_priority_has_its_window_and_more_windows_hold_fewer_rows() {
        let segments = [Segment::mixed(0, 0, 2), Segment::mixed(5, 2, 3)];
        assert_eq!(windows_of(&of(&segments)).len(), 2);
        let pilot = Segment { pilot: true, ..Segment::mixed(0, 3, 4) };
        let mut record = of(&[segments[0], segments[1], pilot]);
        record.pilot = Some(Pilot::default());
        let [window] = &windows_of(&record)[..] else { panic!("only the pilot's rows may be sent") };
        assert_eq!(window.unread(&record.segments), Some((3, 4)));
        record.pilot = None;
        assert_eq!(windows_of(&record).len(), 2);
        assert_eq!((window_rows(1, 1), window_rows(8, 128), window_rows(1_000, 1)), (64, 32, 2));
        assert_eq!((window_rows(1, 1_000), window_rows(1, 100_000)), (32, 2), "batches share what there is");
    }
}
