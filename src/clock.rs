//! The only reader of the system's clocks.

use std::time::Instant;

use chrono::Utc;

use crate::domain::time::{Now, Tick, Timestamp};

/// Reads both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    /// A clock whose ticks count from now.
    pub fn start() -> Clock {
        Clock { began: Instant::now() }
    }

    /// Both clocks, read at once.
    pub fn now(&self) -> Now {
        let tick = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { wall: Timestamp(Utc::now().timestamp_millis()), tick: Tick(tick) }
    }

    /// How long ago this clock began, as finely as the system tells: for measuring what takes less than
    /// a tick.
    pub fn elapsed(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    /// How long until `tick`; nothing when it has passed.
    pub fn until(&self, tick: Tick) -> std::time::Duration {
        std::time::Duration::from_millis(tick.since(self.now().tick).0)
    }
}

/// Whole milliseconds, for log lines that machines sort by.
pub fn whole_ms(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
