//! How often galleries are written during a run: at most every two seconds, and less often where writing takes long. One
//! that a disk refused is left alone for a while; the others are not.

use std::time::Duration;

use crate::domain::time::Millis;

/// Between two looks at what changed without a job that ended.
pub(super) const LOOK_INTERVAL: Millis = Millis::from_secs(10);
/// Between two times that a gallery is written while jobs end, at least.
const INTERVAL: Duration = Duration::from_secs(2);
/// So many times as long as writing took is waited before it is written again.
const REST: u32 = 25;
/// After a disk refused the gallery of a batch, until that one is tried again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// How long nothing is written after writing `took` so long.
pub(super) fn rest_after(took: Duration) -> Duration {
    INTERVAL.max(took * REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_galleries_are_written_less_often() {
        let rest = |took| rest_after(Duration::from_millis(took));
        assert_eq!(rest(10), INTERVAL);
        assert_eq!(rest(400), Duration::from_secs(10));
    }
}
