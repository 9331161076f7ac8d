//! Which runs of a schedule are due: a decision about instants, and nothing else.
//!
//! Four rules hold whatever the clock does:
//!
//! 1. Only what lies after `up_to` is ever due, and `up_to` never moves back. A clock that is set back meets
//!    instants that were handled, and nothing fires until it has passed them.
//! 2. A schedule that is seen for the first time, or whose expression or zone was edited, begins now. It
//!    catches up with nothing, so neither an edit nor a lost record fires anything.
//! 3. What is seen within [`ON_TIME`] was not missed, nor what became due while the process was busy with another
//!    run. Where several are, those before the last would overlap with
//!    it: all of them run where runs may overlap, else the last. What is older was missed, and the schedule says
//!    what becomes of it; unless told otherwise it is left out.
//! 4. However long the outage and however dense the schedule, the decision looks at a bounded number of
//!    instants, and starts at most [`CATCH_UP_MAX`] runs.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::domain::schedule::Schedule;
use crate::domain::time::{Millis, Timestamp};

/// A run that is seen to be due within this span was not missed: loops wake late, daemons are restarted.
pub const ON_TIME: Millis = Millis::from_secs(60);

/// A process that was busy for longer than this has missed what became due before.
pub const BUSY_MAX: Millis = Millis::from_secs(15 * 60);

/// Most runs that one decision starts, whatever `missed_max` says.
pub const CATCH_UP_MAX: u32 = 1000;

/// Past so many instants they are no longer counted, only said to be more.
const COUNTED_MAX: usize = 2000;

/// What becomes of runs that were missed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// They are left out.
    #[default]
    Skip,
    /// The last of them runs.
    Latest,
    /// All of them run, up to `missed_max`, the latest ones.
    All,
}

/// What becomes of a run that is due while the one before has not ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// It runs beside it.
    Allow,
}

/// What a schedule says about runs that do not come one by one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SchedulePolicy {
    /// About those that were missed.
    pub missed: Missed,
    /// Most runs that are started at once where `missed` is `all`; at least 1.
    pub missed_max: u32,
    /// About those that meet an unfinished one. Missed runs that are started together do not count as overlapping.
    pub overlap: Overlap,
}

/// How far a schedule has been handled: what has to outlive the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handled {
    /// Every fire up to and with this instant was started or left out.
    pub up_to: Timestamp,
    /// By which expression and zone ([`Schedule::source`]).
    pub by: String,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Fires to start, the oldest first.
    pub start: Vec<Timestamp>,
    /// What does not run, and why.
    pub left_out: Vec<LeftOut>,
    /// To be kept once the runs were started. After a crash in between, the same runs are derived from the same instants.
    pub handled: Handled,
}

/// Fires of which no run comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub reason: Reason,
    /// How many.
    pub count: usize,
    /// There are more, which were not counted.
    pub or_more: bool,
    /// The latest of them.
    pub last: Timestamp,
}

/// Why a run is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was missed, and the schedule does not catch up with it.
    Missed,
    /// It was missed, and more were than the schedule catches up with.
    TooMany,
    /// The run before has not ended.
    Overlap,
    /// A later one is due with it and runs.
    Together,
}

impl Reason {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Missed => "missed",
            Reason::TooMany => "missed, and more than missed_max",
            Reason::Overlap => "the run before has not ended",
            Reason::Together => "a later one is due with it, and they may not overlap",
        }
    }
}

/// Decides what of a schedule is due at `now`. `is_active` says whether a run of it has not ended; `awake_for` is how long
/// ago this process decided the last time, by a clock that stands still while the machine sleeps.
///
/// The caller starts the runs and then keeps `handled`; if it dies between the two, it is asked the same
/// again, and names the same runs.
pub fn decide(
    schedule: &Schedule,
    policy: SchedulePolicy,
    handled: Option<&Handled>,
    now: Timestamp,
    awake_for: Millis,
    is_active: bool,
) -> Due {
    let by = schedule.source();
    let known = handled.filter(|handled| handled.by == by);
    let Some(known) = known else {
        // Never earlier than what was handled under another expression.
        let up_to = handled.map_or(now, |handled| handled.up_to.max(now));
        return Due { start: Vec::new(), left_out: Vec::new(), handled: Handled { up_to, by } };
    };
    // What lies after it is on time.
    let on_time = ON_TIME.max(awake_for.min(BUSY_MAX));
    let line = Timestamp(now.0.saturating_sub_unsigned(on_time.0).saturating_sub(1)).max(known.up_to);
    let mut on_time: Vec<Timestamp> = schedule.fires_after(line).take_while(|fire| *fire <= now).collect();
    let room = match policy.missed {
        // The last run is on time.
        Missed::Latest | Missed::Skip => usize::from(on_time.is_empty()),
        Missed::All => {
            let most = policy.missed_max.clamp(1, CATCH_UP_MAX);
            usize::try_from(most).unwrap_or(1).saturating_sub(on_time.len())
        }
    };
    let mut old =
        if line > known.up_to { Tail::of(schedule, known.up_to, line, room.max(1)) } else { Tail::default() };
    let Some(&last) = on_time.last().or(old.fires.back()) else {
        return Due { start: Vec::new(), left_out: Vec::new(), handled: known.clone() };
    };
    if room == 0 || policy.missed == Missed::Skip {
        old.leave_out_all();
    }
    let mut left_out = Vec::new();
    if let Some(older) = old.last_older {
        let reason = if policy.missed == Missed::All { Reason::TooMany } else { Reason::Missed };
        left_out.push(LeftOut { reason, count: old.older, or_more: old.or_more, last: older });
    }
    let may_overlap = policy.overlap == Overlap::Allow;
    if !may_overlap && !is_active && policy.missed != Missed::All && on_time.len() > 1 {
        let together = on_time.split_off(on_time.len() - 1);
        let before = std::mem::replace(&mut on_time, together);
        if let Some(&last) = before.last() {
            left_out.push(LeftOut { reason: Reason::Together, count: before.len(), or_more: false, last });
        }
    }
    let mut start: Vec<Timestamp> = old.fires.into_iter().chain(on_time).collect();
    if is_active && !may_overlap && !start.is_empty() {
        left_out.push(LeftOut { reason: Reason::Overlap, count: start.len(), or_more: false, last });
        start.clear();
    }
    Due { start, left_out, handled: Handled { up_to: last, by } }
}

/// The last fires of a span, and how many are before them.
#[derive(Debug, Default)]
struct Tail {
    fires: VecDeque<Timestamp>,
    older: usize,
    last_older: Option<Timestamp>,
    or_more: bool,
}

impl Tail {
    /// None of them is kept.
    fn leave_out_all(&mut self) {
        self.older += self.fires.len();
        self.last_older = self.fires.back().copied().or(self.last_older);
        self.fires.clear();
    }

    /// The last `most` fires after `after`, up to and with `until`. `most` is less than [`COUNTED_MAX`].
    fn of(schedule: &Schedule, after: Timestamp, until: Timestamp, most: usize) -> Tail {
        let whole = Tail::counted(schedule, after, until, most);
        if !whole.or_more {
            return whole;
        }
        // Too many to go through: look for a later beginning with enough and not too many after it. Fires
        // lie at least a second apart, so there is one.
        let (mut early, mut late) = (after.0, until.0);
        loop {
            let middle = early + (late - early) / 2;
            let tail = Tail::counted(schedule, Timestamp(middle), until, most);
            match tail.fires.len() >= most {
                _ if middle == early => return Tail { or_more: true, ..tail },
                true if !tail.or_more => return Tail { or_more: true, ..tail },
                true => early = middle,
                false => late = middle,
            }
        }
    }

    /// As long as there are not too many; the later ones are missing then.
    fn counted(schedule: &Schedule, after: Timestamp, until: Timestamp, most: usize) -> Tail {
        let mut tail = Tail::default();
        let fires = schedule.fires_after(after).take_while(|fire| *fire <= until);
        for (index, fire) in fires.enumerate() {
            if index == COUNTED_MAX {
                tail.or_more = true;
                break;
            }
            tail.fires.push_back(fire);
            if tail.fires.len() > most {
                tail.last_older = tail.fires.pop_front();
                tail.older += 1;
            }
        }
        tail
    }
}
