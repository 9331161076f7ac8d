//! How long a job waits before it is tried again: backoff after faults, the poll interval of a task, and the jitter of
//! both from one seed.

use crate::domain::ids::AttemptNo;
use crate::domain::job::JobSpec;
use crate::domain::poll_interval::{Bounds, Observed, PollInterval};
use crate::domain::retry_delay::Backoff;
use crate::domain::time::{Millis, Tick};
use crate::engine::scheduler::messages::Settings;
use crate::engine::scheduler::parts::open_job::OpenJob;

/// See the module's documentation.
#[derive(Debug)]
pub struct WaitTimes {
    backoff: Backoff,
    bounds: Bounds,
    overdue_poll: Millis,
    poll_interval: PollInterval,
    random: fastrand::Rng,
}

impl WaitTimes {
    /// As configured; nothing is learned yet.
    pub fn new(settings: &Settings) -> WaitTimes {
        WaitTimes {
            backoff: settings.backoff,
            bounds: bounds(settings),
            overdue_poll: settings.overdue_poll,
            poll_interval: PollInterval::default(),
            random: fastrand::Rng::with_seed(settings.seed),
        }
    }

    /// Takes other settings over. What was learned stays, and the seed is that of the start.
    pub fn reconfigure(&mut self, settings: &Settings) {
        (self.backoff, self.bounds) = (settings.backoff, bounds(settings));
        self.overdue_poll = settings.overdue_poll;
    }

    /// The wait after a fault that `faults` others came before, in a row; at least as long as the service asked for.
    pub fn after_fault(&mut self, faults: u32, asked: Option<Millis>) -> Millis {
        self.backoff.wait(faults, self.random.f64(), asked)
    }

    /// The wait before the task of an attempt is read (again).
    pub fn until_poll_of(&mut self, open: &OpenJob, attempt: AttemptNo, now: Tick) -> Millis {
        // After a restart even an overdue task is looked at once, soon.
        let seen_for = open.seen_for(attempt, now);
        let is_late = open.job().is_overdue() || attempt != open.job().attempt();
        if is_late && seen_for.is_some() {
            return self.overdue_poll;
        }
        self.until_poll(open.spec(), seen_for, now)
    }

    /// The wait before a task is read that was seen for so long; nothing is said of one that was never read.
    fn until_poll(&mut self, spec: &JobSpec, seen_for: Option<Millis>, now: Tick) -> Millis {
        let is_first = seen_for == Some(Millis(0));
        let draw = self.random.f64();
        self.poll_interval.wait(interval_name(spec), (seen_for, is_first), self.bounds, draw, now)
    }

    /// A task succeeded, which was watched from its creation on.
    pub fn learn(&mut self, spec: &JobSpec, observed: Observed) {
        self.poll_interval.learn(interval_name(spec), observed, self.bounds);
    }
}

fn bounds(settings: &Settings) -> Bounds {
    Bounds { min: settings.poll_min, max: settings.poll_max }
}

/// The name under which it is learned how long a job's task takes.
fn interval_name(spec: &JobSpec) -> &str {
    spec.order.model.as_deref().unwrap_or(spec.order.kind.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::request::Kind;
    use crate::engine::scheduler::tests::{settings, spec};

    #[test]
    fn the_same_seed_waits_as_long_and_a_service_is_obeyed() {
        let mut waits = [WaitTimes::new(&settings()), WaitTimes::new(&settings())];
        let [first, second] = waits.each_mut().map(|waits| waits.after_fault(3, None));
        assert_eq!(first, second);
        let asked = Millis::from_secs(60);
        assert!(waits[0].after_fault(0, Some(asked)) >= asked);
    }

    #[test]
    fn polls_stay_within_the_bounds_that_are_in_force() {
        let (mut waits, spec) = (WaitTimes::new(&settings()), spec(0, Kind::Video));
        let wait = waits.until_poll(&spec, Some(Millis(1)), Tick(0));
        assert!((Millis(5_000)..=Millis(10_000)).contains(&wait), "{wait:?}");
        waits.reconfigure(&Settings { poll_min: Millis(100), poll_max: Millis(100), ..settings() });
        assert_eq!(waits.until_poll(&spec, Some(Millis(1)), Tick(0)), Millis(100));
    }

    #[test]
    fn a_task_is_read_sooner_where_its_like_usually_ends_sooner() {
        let (mut waits, spec) = (WaitTimes::new(&settings()), spec(0, Kind::Video));
        for start in 0..20 {
            let created = Tick(start * 10);
            waits.learn(
                &spec,
                Observed { created, last_running: Tick(created.0 + 5_900), ended: Tick(created.0 + 6_000) },
            );
        }
        let wait = waits.until_poll(&spec, Some(Millis(0)), Tick(6_200));
        assert!((Millis(5_000)..=Millis(6_000)).contains(&wait), "{wait:?}");
    }
}
