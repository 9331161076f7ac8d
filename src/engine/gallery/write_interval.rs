//! How often galleries are written during a run: at most every two seconds, and less often where writing takes long.

use std::time::Duration;

use crate::domain::time::Millis;

/// Between two looks at what changed without a job that ended.
pub(super) const LOOK_INTERVAL: Millis = Millis::from_secs(10);
/// Between two times that a gallery is written while jobs end, at least.
const INTERVAL: Duration = Duration::from_secs(2);
/// So many times as long as writing took is waited before it is written again.
const REST: u32 = 25;
/// After a disk refused.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// How long nothing is written after writing `took` so long, or was refused.
pub(super) fn rest_after(took: Duration, is_written: bool) -> Duration {
    if is_written { INTERVAL.max(took * REST) } else { RETRY_INTERVAL }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_galleries_are_written_less_often_and_a_full_disk_is_left_alone() {
        let rest = |took, is_written| rest_after(Duration::from_millis(took), is_written);
        assert_eq!(rest(10, true), INTERVAL);
        assert_eq!(rest(400, true), Duration::from_secs(10));
        assert_eq!(rest(10, false), RETRY_INTERVAL);
    }
}
