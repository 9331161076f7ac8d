//! The machine's clock beside the service's.

use crate::cli::doctor::Check;
use crate::cli::service_target;
use crate::domain::exit_code::Exit;
use crate::domain::time::{Millis, Timestamp};

/// A clock that differs by more is worth a word. The service tells the time to the second.
const SKEW_NOTED: Millis = Millis::from_secs(5);
/// By more, signed webhooks are refused by those who get them, and deadlines and schedules are off.
const SKEW_WRONG: Millis = Millis::from_secs(5 * 60);

/// Compares the date of an answer with when it was asked for and when it came.
pub(super) fn check(date: Timestamp, began: Timestamp, ended: Timestamp) -> Check {
    // The answer was dated at some time between the two, and its date is cut to the second.
    let (late, early) = (began.since(date.after(Millis::from_secs(1))), date.since(ended));
    let (by, how) = if late >= early { (late, "ahead of") } else { (early, "behind") };
    if by < SKEW_NOTED {
        return Check::good("clock", "within seconds of the service's clock");
    }
    let found = format!("this machine's clock is {} {how} the service's", service_target::format_age(by));
    let advice = "synchronize it: timedatectl set-ntp true";
    match by {
        by if by < SKEW_WRONG => Check::advice("clock", found, advice),
        _ => Check::wrong("clock", Exit::Usage, found, advice),
    }
}
