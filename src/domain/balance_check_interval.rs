//! When the balance is asked for next: at once where something was refused, ever more slowly while nothing changes.

use crate::domain::time::{Millis, Tick};

/// Between two questions while the key is refused, and while a balance that must stay is watched.
pub const BALANCE_CHECK_INTERVAL: Millis = Millis::from_secs(60);
/// Between two questions while the balance keeps something: sooner at first.
const SHORT_WAITS_SECS: [u64; 6] = [0, 5, 10, 20, 40, 60];
/// Between two questions while requests in flight settle.
const SETTLING_WAIT: Millis = Millis::from_secs(1);

/// Why the balance is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BalanceNeed {
    /// What is known is too old.
    Fresh,
    /// There may be more by now than what is known.
    Settled,
    /// Nothing is known.
    Any,
    /// What is known keeps something.
    More,
}

/// The earliest time of the next question, where the last one left at `asked` and `tries` of them have changed nothing.
pub fn next_check(need: BalanceNeed, asked: Option<Tick>, tries: usize) -> Tick {
    match need {
        BalanceNeed::Fresh => Tick(0),
        BalanceNeed::Settled => after(asked, SETTLING_WAIT),
        BalanceNeed::Any | BalanceNeed::More => {
            let wait = SHORT_WAITS_SECS.get(tries).or(SHORT_WAITS_SECS.last());
            after(asked, Millis::from_secs(wait.copied().unwrap_or_default()))
        }
    }
}

/// A wait after the last question; at once where there was none.
pub fn after(asked: Option<Tick>, wait: Millis) -> Tick {
    asked.map_or(Tick(0), |asked| asked.after(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_jobs_is_asked_for_ever_more_slowly_and_never_less_than_once_a_minute() {
        let asked = Some(Tick(1_000));
        let waits: Vec<u64> =
            (0..8).map(|tries| next_check(BalanceNeed::More, asked, tries).0 - 1_000).collect();
        assert_eq!(waits, [0, 5_000, 10_000, 20_000, 40_000, 60_000, 60_000, 60_000]);
        assert_eq!(next_check(BalanceNeed::More, None, 7), Tick(0));
        assert_eq!(next_check(BalanceNeed::Settled, asked, 7), Tick(2_000));
        assert_eq!(next_check(BalanceNeed::Fresh, asked, 7), Tick(0));
    }
}
