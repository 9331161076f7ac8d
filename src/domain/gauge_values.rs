//! The numbers of the whole: what the scheduler tells a monitoring system, whichever that is.

use std::collections::BTreeMap;

use crate::domain::credits::Credits;
use crate::domain::job_state::JobState;
use crate::domain::parked_reason::Parked;
use crate::domain::request::Kind;
use crate::domain::time::Millis;

/// Everything at one moment, as only a look at the whole can tell.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Gauges {
    /// Jobs by state and by kind, where it is known.
    pub jobs: BTreeMap<(JobState, Option<Kind>), u64>,
    /// Credits set aside for POSTs whose charge is not known yet.
    pub held: Credits,
    /// Credits charged so far, whether refunded later or not.
    pub charged: Credits,
    /// Credits charged once and given back.
    pub refunded: Credits,
    /// What `budget.total` has room for, where it is set.
    pub room_total: Option<Credits>,
    /// What `budget.per_day` has room for today, where it is set.
    pub room_day: Option<Credits>,
    /// What the balance has above `budget.min_balance`, where that is set and the balance known.
    pub room_min_balance: Option<Credits>,
    /// How many jobs may be in flight, as learned so far.
    pub in_flight_limit: u32,
    /// How long the oldest queue of unsent jobs has waited; nothing when none waits.
    pub queue_age: Millis,
    /// Jobs whose outputs wait for a person's decision.
    pub unreviewed: u64,
    /// Batches with unsent jobs that are not sent, by reason.
    pub parked: BTreeMap<Parked, u64>,
}
