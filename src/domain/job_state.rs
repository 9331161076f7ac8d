//! The states of a job without what belongs to each: what is counted, listed and asked for.

use std::fmt;
use std::str::FromStr;

use enum_map::{Enum, EnumMap};
use serde::{Deserialize, Serialize};

/// A job's state, in the order of a job's life. [`State`](crate::domain::job::State) has what belongs to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for admission.
    Queued,
    /// Its creating POST is on its way.
    Submitting,
    /// Its task runs.
    Running,
    /// Its outputs are downloaded.
    Fetching,
    /// Its outputs are on disk.
    Succeeded,
    /// It ended without outputs.
    Failed,
    /// Its owner, or somebody at the service, dropped it.
    Canceled,
    /// Its time ran out before it was sent.
    Expired,
    /// A person has to find out what it was charged.
    InDoubt,
}

/// How many jobs are in each state.
pub type JobStateCounts = EnumMap<JobState, u32>;

impl JobState {
    pub const ALL: [JobState; 9] = [
        JobState::Queued,
        JobState::Submitting,
        JobState::Running,
        JobState::Fetching,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Canceled,
        JobState::Expired,
        JobState::InDoubt,
    ];

    /// The name in everything shown and stored.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Submitting => "submitting",
            JobState::Running => "running",
            JobState::Fetching => "fetching",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Canceled => "canceled",
            JobState::Expired => "expired",
            JobState::InDoubt => "in_doubt",
        }
    }

    /// Whether its request is on its way, its task runs, or its outputs are downloaded.
    pub fn is_moving(self) -> bool {
        matches!(self, JobState::Submitting | JobState::Running | JobState::Fetching)
    }
}

/// How alike two words must be for the one to be a slip for the other (Jaro-Winkler, 0 to 1).
const LIKENESS: f64 = 0.8;

/// The state that a word was probably meant to be; nothing for one that is a state.
pub fn nearest(found: &str) -> Option<JobState> {
    let found = found.to_lowercase().replace(['-', ' '], "_");
    let likeness = |state: &JobState| strsim::jaro_winkler(&found, state.name());
    let best = JobState::ALL.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= LIKENESS).then_some(best)
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No state has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "found {found:?}, expected one of {}{}",
    JobState::ALL.map(JobState::name).join(", "),
    nearest(found).map_or_else(String::new, |near| format!("; did you mean {near}?"))
)]
pub struct UnknownJobState {
    found: String,
}

impl FromStr for JobState {
    type Err = UnknownJobState;

    fn from_str(text: &str) -> Result<JobState, UnknownJobState> {
        let state = JobState::ALL.into_iter().find(|state| state.name() == text);
        state.ok_or_else(|| UnknownJobState { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_stored() {
        let counts = JobStateCounts::default();
        assert!(counts.into_iter().map(|(state, _)| state).eq(JobState::ALL), "the order of a job's life");
        for state in JobState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
            assert_eq!(state.name().parse(), Ok(state));
        }
        let meant = ["faild", "Failed", "in-doubt", "cancelled", "succeded", "sta"].map(nearest);
        let some =
            [JobState::Failed, JobState::Failed, JobState::InDoubt, JobState::Canceled, JobState::Succeeded];
        assert_eq!(meant[..5], some.map(Some));
        assert_eq!((meant[5], nearest("state/emulator"), nearest("/srv/state")), (None, None, None));
        let text = "done".parse::<JobState>().unwrap_err().to_string();
        assert!(text.starts_with("found \"done\", expected one of queued, submitting"), "{text}");
    }
}
