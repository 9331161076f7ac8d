//! When a delivery that failed, to the webhook or to the command, is tried again, and when it is given up.

use crate::domain::retry_delay::Backoff;
use crate::domain::time::Millis;

/// Why a delivery failed.
pub(super) struct DeliveryError {
    pub(super) reason: String,
    /// How long the receiver asks to be left alone.
    pub(super) wait: Option<Millis>,
    /// It wants nothing of the kind any more.
    pub(super) is_final: bool,
}

/// Delays between tries, and their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySchedule {
    /// Delay between two tries; longer where the receiver asks for it.
    pub backoff: Backoff,
    /// Age at which a message is given up.
    pub give_up: Millis,
    /// Tries that a message gets of each process at least, however old it is: the machine may have been off.
    pub tries_min: u32,
}

impl Default for RetrySchedule {
    fn default() -> RetrySchedule {
        RetrySchedule {
            backoff: Backoff { base: Millis::from_secs(5), max: Millis::from_secs(3600) },
            give_up: Millis::from_secs(3 * 24 * 3600),
            // With the delays above the last one comes after about an hour.
            tries_min: 10,
        }
    }
}

impl RetrySchedule {
    /// How long to wait for the next try of a message of this age, after so many that failed, the last for `error`;
    /// nothing where it is given up. `draw` is evenly distributed over 0..1.
    pub(super) fn wait(&self, error: &DeliveryError, tries: u32, age: Millis, draw: f64) -> Option<Millis> {
        let is_old = age >= self.give_up && tries + 1 >= self.tries_min;
        (!error.is_final && !is_old).then(|| self.backoff.wait(tries, draw, error.wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_tried_for_three_days_unless_the_receiver_is_gone() {
        let schedule = RetrySchedule::default();
        let wait = |wait, is_final, tries, age| {
            let error = DeliveryError { reason: String::new(), wait, is_final };
            schedule.wait(&error, tries, Millis::from_secs(age), 0.5)
        };
        let day = 24 * 3600;
        assert!(wait(None, false, 0, 0).is_some_and(|wait| wait <= Millis::from_secs(5)));
        assert_eq!(wait(Some(Millis::from_secs(90)), false, 0, 3 * day), Some(Millis::from_secs(90)));
        assert!(wait(None, false, 9, 3 * day - 1).is_some());
        assert_eq!(wait(None, false, 9, 3 * day), None);
        assert_eq!(wait(None, true, 0, 0), None, "410");
        assert!(wait(None, false, 0, 9 * day).is_some(), "the machine was off meanwhile");
    }
}
