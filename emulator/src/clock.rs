//! The service's clock: the only reader of the system clock in the emulator.
//!
//! Service time is milliseconds since 1970 in UTC. On the automatic clock it is wall time plus what was added
//! by hand; on the manual clock it stands still until it is stepped.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat};
use tokio::sync::watch;

/// Where a manual clock begins: 2026-01-01T00:00:00Z.
const MANUAL_START_MS: i64 = 1_767_225_600_000;
const DAY_MS: i64 = 86_400_000;

/// A clock that can be stepped.
#[derive(Debug)]
pub(crate) struct Clock {
    manual: bool,
    /// Manual: the time itself. Automatic: what is added to wall time.
    base_ms: AtomicI64,
    stepped: watch::Sender<()>,
    closed: AtomicBool,
}

impl Clock {
    /// A clock that goes on from `base_ms` (see the field).
    pub(crate) fn new(manual: bool, base_ms: i64) -> Self {
        Self {
            manual,
            base_ms: AtomicI64::new(base_ms),
            stepped: watch::Sender::new(()),
            closed: AtomicBool::new(false),
        }
    }

    /// The base of a clock that nobody has stepped.
    pub(crate) fn first_base_ms(manual: bool) -> i64 {
        if manual { MANUAL_START_MS } else { 0 }
    }

    /// The base of a clock of the other kind that goes on from here. Time does not go back.
    pub(crate) fn base_for_the_other_kind(&self) -> i64 {
        if self.manual { self.now_ms().saturating_sub(wall_ms()).max(0) } else { self.now_ms() }
    }

    /// The present service time.
    pub(crate) fn now_ms(&self) -> i64 {
        let base = self.base_ms.load(Ordering::SeqCst);
        if self.manual { base } else { wall_ms().saturating_add(base) }
    }

    /// Step forwards; returns the new base, for the record log.
    pub(crate) fn advance(&self, by: Duration) -> i64 {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        let before = self.base_ms.load(Ordering::SeqCst);
        let after = before.saturating_add(by);
        self.base_ms.store(after, Ordering::SeqCst);
        self.stepped.send_replace(());
        after
    }

    /// Ends all waits for this clock.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.stepped.send_replace(());
    }

    /// Wait until service time reaches `target_ms`, however the clock gets there, or the clock is closed.
    pub(crate) async fn wait_until(&self, target_ms: i64) {
        let mut stepped = self.stepped.subscribe();
        loop {
            let left = target_ms.saturating_sub(self.now_ms());
            let Ok(left @ 1..) = u64::try_from(left) else { return };
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            if self.manual {
                if stepped.changed().await.is_err() {
                    return;
                }
            } else {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(left)) => {}
                    _ = stepped.changed() => {}
                }
            }
        }
    }

    /// Whether time moves only by hand.
    pub(crate) fn is_manual(&self) -> bool {
        self.manual
    }
}

/// Wall time, by which HTTP dates go.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A time in UTC, in a form of HTTP dates.
pub(crate) fn http_date(ms: i64, format: &str) -> String {
    DateTime::from_timestamp_millis(ms).unwrap_or_default().format(format).to_string()
}

/// The UTC day of a service time, as days since 1970.
pub(crate) fn utc_day(now_ms: i64) -> i64 {
    now_ms.div_euclid(DAY_MS)
}

/// ISO 8601 in UTC with milliseconds.
pub(crate) fn iso(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms).map_or_else(
        || String::from("1970-01-01T00:00:00.000Z"),
        |t| t.to_rfc3339_opts(SecondsFormat::Millis, true),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kind_of_clock_goes_on_from_the_same_time() {
        let manual = Clock::new(true, wall_ms() + 90_000);
        let automatic = Clock::new(false, manual.base_for_the_other_kind());
        assert!((automatic.now_ms() - manual.now_ms()).abs() < 10_000);
        let again = Clock::new(true, automatic.base_for_the_other_kind());
        assert!((again.now_ms() - automatic.now_ms()).abs() < 10_000);
        assert_eq!(Clock::new(true, MANUAL_START_MS).base_for_the_other_kind(), 0);
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_days_are_utc() {
        let clock = Clock::new(true, MANUAL_START_MS);
        assert_eq!(iso(clock.now_ms()), "2026-01-01T00:00:00.000Z");
        clock.advance(Duration::from_millis(86_399_999));
        assert_eq!(utc_day(clock.now_ms()), utc_day(MANUAL_START_MS));
        clock.advance(Duration::from_millis(1));
        assert_eq!(utc_day(clock.now_ms()), utc_day(MANUAL_START_MS) + 1);
    }
}
