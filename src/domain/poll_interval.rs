//! When to read a task next: on the advised interval, and sooner where tasks of its model usually end sooner.

use std::collections::{HashMap, VecDeque};

use crate::domain::retry_delay::scale;
use crate::domain::time::{Millis, Tick};

/// Durations remembered for a model.
const REMEMBERED: usize = 31;
/// How long each is remembered: a service that was slow is not slow for ever.
const REMEMBERED_FOR: Millis = Millis::from_secs(3_600);
/// Models remembered; a fleet of more learns nothing about the rest.
const MODELS_MAX: usize = 1_000;

/// The least and the most time between two readings of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub min: Millis,
    /// The most.
    pub max: Millis,
}

/// A task that was watched from its creation to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    pub created: Tick,
    /// When it was last seen running.
    pub last_running: Tick,
    /// When it was seen to have ended.
    pub ended: Tick,
}

/// How long tasks take, by model.
#[derive(Debug, Default)]
pub struct PollInterval {
    durations: HashMap<String, VecDeque<(Tick, Millis)>>,
}

impl PollInterval {
    /// A task of `model` ended. Nothing is learned where it was not looked at for so long that the silence, and not
    /// the task, may have taken the time: after an outage, a refused key, or readings that came late.
    pub fn learn(&mut self, model: &str, observed: Observed, bounds: Bounds) {
        let Observed { created, last_running, ended } = observed;
        let unseen = ended.since(last_running);
        if unseen.0 > bounds.max.0.saturating_add(bounds.min.0) || ended <= created {
            return;
        }
        if !self.durations.contains_key(model) {
            if self.durations.len() >= MODELS_MAX {
                return;
            }
            self.durations.insert(model.to_owned(), VecDeque::new());
        }
        if let Some(durations) = self.durations.get_mut(model) {
            if durations.len() >= REMEMBERED {
                durations.pop_front();
            }
            durations.push_back((ended, ended.since(created)));
        }
    }

    /// How long tasks of `model` usually take, by those that ended lately.
    pub fn median(&self, model: &str, now: Tick) -> Option<Millis> {
        let durations = self.durations.get(model)?.iter();
        let lately = durations.filter(|(ended, _)| now.since(*ended) <= REMEMBERED_FOR);
        let mut sorted: Vec<Millis> = lately.map(|(_, took)| *took).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    /// The wait before the next reading of a task of `model` that has run for `elapsed`.
    ///
    /// Always within `bounds`, drawn by `draw` (0..1), and earlier in them when the median falls there. The first
    /// reading (`is_first`) waits as long as the bounds allow where nine tenths of the median are longer: before
    /// that it cannot matter.
    pub fn wait(
        &self,
        model: &str,
        (elapsed, is_first): (Option<Millis>, bool),
        bounds: Bounds,
        draw: f64,
        now: Tick,
    ) -> Millis {
        let Bounds { min, max } = bounds;
        let drawn = Millis(min.0 + scale(max.0.saturating_sub(min.0), draw));
        let (Some(median), Some(elapsed)) = (self.median(model, now), elapsed) else { return drawn };
        let left = median.0.saturating_sub(elapsed.0);
        if is_first && median.0 / 10 * 9 > max.0 {
            return max;
        }
        if left > min.0 && left < drawn.0 { Millis(left) } else { drawn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: Millis(5_000), max: Millis(10_000) };

    /// A task that took so long and was read when it ended.
    fn took(secs: u64) -> Observed {
        let ended = Tick(secs * 1_000);
        Observed { created: Tick(0), last_running: ended, ended }
    }

    fn learned(secs: &[u64]) -> PollInterval {
        let mut interval = PollInterval::default();
        secs.iter().for_each(|secs| interval.learn("m", took(*secs), BOUNDS));
        interval
    }

    fn wait(interval: &PollInterval, elapsed: u64, is_first: bool, draw: f64) -> u64 {
        let elapsed = Some(Millis::from_secs(elapsed));
        interval.wait("m", (elapsed, is_first), BOUNDS, draw, Tick(1_000_000)).0
    }

    #[test]
    fn without_experience_it_is_the_advised_interval() {
        let interval = PollInterval::default();
        assert_eq!((wait(&interval, 0, true, 0.0), wait(&interval, 0, true, 1.0)), (5_000, 10_000));
    }

    #[test]
    fn no_wait_is_longer_than_the_interval_whatever_was_seen() {
        assert_eq!(wait(&learned(&[100, 120, 900]), 0, true, 0.0), 10_000);
        assert_eq!(wait(&learned(&[4]), 0, true, 0.0), 5_000, "never before the interval");
    }

    #[test]
    fn later_readings_meet_the_median_inside_the_interval() {
        let interval = learned(&[60]);
        assert_eq!(wait(&interval, 53, false, 1.0), 7_000);
        assert_eq!(wait(&interval, 58, false, 1.0), 10_000, "never closer than the interval");
        assert_eq!(wait(&interval, 500, false, 0.2), 6_000);
    }

    #[test]
    fn a_silence_before_the_end_teaches_nothing() {
        let mut interval = PollInterval::default();
        let after = |unseen: u64| Observed { last_running: Tick(0), ..took(unseen) };
        interval.learn("m", after(16), BOUNDS);
        assert_eq!(interval.median("m", Tick(0)), None, "nobody looked for longer than the interval");
        interval.learn("m", after(10), BOUNDS);
        assert_eq!(interval.median("m", Tick(0)), Some(Millis(10_000)));
    }

    #[test]
    fn memory_is_bounded_and_old_experience_fades() {
        let mut interval = learned(&[1; 100]);
        (0..40).for_each(|_| interval.learn("m", took(9), BOUNDS));
        assert_eq!(interval.median("m", Tick(9_000)), Some(Millis(9_000)));
        assert_eq!(interval.median("m", Tick(9_000).after(REMEMBERED_FOR)), Some(Millis(9_000)));
        assert_eq!(interval.median("m", Tick(9_001).after(REMEMBERED_FOR)), None);
        (0..5_000).for_each(|n| interval.learn(&n.to_string(), took(1), BOUNDS));
        assert!(interval.durations.len() <= MODELS_MAX);
    }
}
