//! A batch in memory, with the rows of it that wait next.

use crate::domain::admission::Parked;
use crate::domain::time::{Now, Timestamp};
use crate::engine::scheduler::parts::row_windows::RowWindow;
use crate::store::BatchRecord;

/// A batch in memory, with the rows of it that wait next.
#[derive(Debug)]
pub struct ActiveBatch {
    pub record: BatchRecord,
    /// The next rows of each class.
    pub windows: Vec<RowWindow>,
    pub parked: Option<Parked>,
    /// What the log last said keeps it from sending.
    pub logged_parked: Option<Parked>,
}

impl ActiveBatch {
    /// When what is not sent yet expires.
    pub fn expires(&self) -> Option<Timestamp> {
        self.record.expires()
    }

    /// Whether what was never sent of it is not to be sent any more.
    pub fn has_expired(&self, now: Now) -> bool {
        self.expires().is_some_and(|at| at <= now.wall)
    }

    /// Whether some rows have not begun.
    pub fn has_rows(&self) -> bool {
        self.record.segments.iter().any(|segment| !segment.is_through())
    }

    /// Whether rows are being read.
    pub fn is_loading(&self) -> bool {
        self.windows.iter().any(|window| window.loading)
    }
}
