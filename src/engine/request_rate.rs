//! How fast requests may leave.

use std::num::NonZeroU32;
use std::sync::Arc;

use governor::{DefaultDirectRateLimiter, Quota};

/// At most so many a second, evenly; or no limit.
#[derive(Debug, Clone, Default)]
pub struct RateLimit {
    limiter: Option<Arc<DefaultDirectRateLimiter>>,
}

impl RateLimit {
    /// `rate` a second, one at a time; none for no limit.
    pub fn per_second(rate: Option<NonZeroU32>) -> RateLimit {
        // The burst would be a whole second's worth by default.
        let quota = rate.map(|rate| Quota::per_second(rate).allow_burst(NonZeroU32::MIN));
        RateLimit { limiter: quota.map(|quota| Arc::new(DefaultDirectRateLimiter::direct(quota))) }
    }

    /// Waits for the next free moment.
    pub(super) async fn wait(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.until_ready().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_no_more_than_its_share() {
        let clock = governor::clock::FakeRelativeClock::default();
        let quota = Quota::per_second(NonZeroU32::new(4).unwrap()).allow_burst(NonZeroU32::MIN);
        let limiter = governor::RateLimiter::direct_with_clock(quota, clock.clone());
        let mut sent = 0;
        for _ in 0..1_000 {
            sent += u32::from(limiter.check().is_ok());
            clock.advance(std::time::Duration::from_millis(1));
        }
        assert_eq!(sent, 4);
    }
}
