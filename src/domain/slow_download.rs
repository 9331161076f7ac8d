//! Whether bytes come fast enough for the downloads that wait.

use crate::domain::time::{Millis, Tick};

/// The least that keeps a download its slot while others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes a second. At 0 nothing is slow.
    pub bytes_per_second: u64,
    /// The span that the rate is taken over.
    pub window: Millis,
}

impl MinRate {
    /// The fewest bytes of a window that is not slow.
    fn bytes_per_window(self) -> u64 {
        // At least one, so that silence is slow over the shortest of windows.
        let bytes = u128::from(self.bytes_per_second) * u128::from(self.window.0);
        u64::try_from(bytes.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

/// Bytes as they come, one window after the other.
#[derive(Debug, Clone, Copy)]
pub struct SlowDownload {
    min_rate: MinRate,
    began: Tick,
    bytes: u64,
    is_slow: bool,
}

impl SlowDownload {
    /// Begins to look at `now`. Nothing is slow before its first window is over.
    pub fn new(min_rate: MinRate, now: Tick) -> SlowDownload {
        SlowDownload { min_rate, began: now, bytes: 0, is_slow: false }
    }

    /// So many bytes came.
    pub fn took(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether the last whole window was slow.
    pub fn is_slow(&mut self, now: Tick) -> bool {
        if now.since(self.began) >= self.min_rate.window {
            self.is_slow = self.bytes < self.min_rate.bytes_per_window();
            (self.began, self.bytes) = (now, 0);
        }
        self.is_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: MinRate = MinRate { bytes_per_second: 1_000, window: Millis(10_000) };

    #[test]
    fn a_window_is_slow_by_what_came_in_it() {
        let mut slow_download = SlowDownload::new(FLOOR, Tick(0));
        assert!(!slow_download.is_slow(Tick(9_999)), "its first window is not over");
        slow_download.took(9_999);
        assert!(slow_download.is_slow(Tick(10_000)));
        slow_download.took(10_000);
        assert!(slow_download.is_slow(Tick(19_999)), "until the next one is over");
        assert!(!slow_download.is_slow(Tick(20_000)));
        assert!(slow_download.is_slow(Tick(30_000)), "silence");
    }

    #[test]
    fn without_a_floor_nothing_is_slow_and_no_floor_runs_over() {
        let none = MinRate { bytes_per_second: 0, window: Millis(1) };
        assert!(!SlowDownload::new(none, Tick(0)).is_slow(Tick(60_000)));
        let most = MinRate { bytes_per_second: u64::MAX, window: Millis(u64::MAX / 2) };
        assert!(SlowDownload::new(most, Tick(0)).is_slow(Tick(u64::MAX)));
        let least = MinRate { bytes_per_second: 1, window: Millis(1) };
        assert!(SlowDownload::new(least, Tick(0)).is_slow(Tick(1)));
    }
}
