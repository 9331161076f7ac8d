//! Faults on demand. `fault_plan` is the format and its checks, `active_faults` decides which rules strike a call.

mod active_faults;
mod fault_plan;

pub(crate) use self::active_faults::{ActiveFaults, Call};
pub(crate) use self::fault_plan::{Afterwards, AnswerBody, Break, Effect, Moment, RetryAfterForm, Target};
pub use self::fault_plan::{FaultPlan, READY_PLANS};
