//! When to read a task next: on the advised interval, and with what was learned of the model's pace.

use std::collections::{HashMap, VecDeque};

use crate::domain::retry::scale;
use crate::domain::time::Millis;

/// Durations remembered for a model.
const REMEMBERED: usize = 31;
/// Models remembered; a fleet of more learns nothing about the rest.
const MODELS_MAX: usize = 1_000;

/// How long tasks take, by model.
#[derive(Debug, Default)]
pub struct Pace {
    durations: HashMap<String, VecDeque<Millis>>,
}

impl Pace {
    /// A task of `model` ended `after` so long.
    pub fn learn(&mut self, model: &str, after: Millis) {
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
            durations.push_back(after);
        }
    }

    /// How long tasks of `model` usually take.
    pub fn median(&self, model: &str) -> Option<Millis> {
        let mut sorted: Vec<Millis> = self.durations.get(model)?.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    /// The wait before the next reading of a task of `model` that has run for `elapsed`.
    ///
    /// Within `min..=max`, drawn by `draw` (0..1), and earlier in it when the median falls there. The
    /// first reading (`first`) waits for nine tenths of the median, when that is longer: before that
    /// it cannot matter.
    pub fn wait(
        &self,
        model: &str,
        elapsed: Option<Millis>,
        first: bool,
        min: Millis,
        max: Millis,
        draw: f64,
    ) -> Millis {
        let drawn = Millis(min.0 + scale(max.0.saturating_sub(min.0), draw));
        let (Some(median), Some(elapsed)) = (self.median(model), elapsed) else { return drawn };
        let left = median.0.saturating_sub(elapsed.0);
        if first && median.0 / 10 * 9 > max.0 {
            return Millis(median.0 / 10 * 9);
        }
        if left > min.0 && left < drawn.0 { Millis(left) } else { drawn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Millis = Millis(5_000);
    const MAX: Millis = Millis(10_000);

    fn pace(secs: &[u64]) -> Pace {
        let mut pace = Pace::default();
        secs.iter().for_each(|secs| pace.learn("m", Millis::from_secs(*secs)));
        pace
    }

    fn wait(pace: &Pace, elapsed: u64, first: bool, draw: f64) -> u64 {
        pace.wait("m", Some(Millis::from_secs(elapsed)), first, MIN, MAX, draw).0
    }

    #[test]
    fn without_experience_it_is_the_advised_interval() {
        let pace = Pace::default();
        assert_eq!((wait(&pace, 0, true, 0.0), wait(&pace, 0, true, 1.0)), (5_000, 10_000));
    }

    #[test]
    fn the_first_reading_comes_when_it_can_matter() {
        assert_eq!(wait(&pace(&[100, 120, 900]), 0, true, 0.5), 108_000);
        assert_eq!(wait(&pace(&[4]), 0, true, 0.0), 5_000, "never before the interval");
    }

    #[test]
    fn later_readings_meet_the_median_inside_the_interval() {
        let pace = pace(&[60]);
        assert_eq!(wait(&pace, 53, false, 1.0), 7_000);
        assert_eq!(wait(&pace, 58, false, 1.0), 10_000, "never closer than the interval");
        assert_eq!(wait(&pace, 500, false, 0.2), 6_000);
    }

    #[test]
    fn memory_is_bounded_and_old_experience_fades() {
        let mut pace = pace(&[1; 100]);
        (0..40).for_each(|_| pace.learn("m", Millis(9_000)));
        assert_eq!(pace.median("m"), Some(Millis(9_000)));
        (0..5_000).for_each(|n| pace.learn(&n.to_string(), Millis(1)));
        assert!(pace.durations.len() <= MODELS_MAX);
    }
}
