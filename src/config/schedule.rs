//! `[[schedule]]`: manifests that are run at certain times.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;

use super::policy::policy;
use super::read::Positions;
use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::manifest::row::Policy;
use crate::domain::schedule::catch_up::{CATCH_UP_MAX, Missed, Overlap};
use crate::domain::schedule::{Schedule, ScheduleError, name};

/// Most runs that `missed = "all"` may catch up with unless `missed_max` says otherwise.
const MISSED_MAX: u32 = 10;

/// `[[schedule]]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Its name; its batches are called after it and their fire time.
    pub name: String,
    /// When it fires: a crontab expression, five fields, six with seconds, seven with years, or `@daily`
    /// and the like.
    pub cron: String,
    /// IANA name of the time zone; UTC unless given.
    #[serde(default)]
    pub timezone: Option<String>,
    /// The manifest, which is read at each fire.
    pub manifest: PathBuf,
    /// Budget of a run, in credits.
    #[serde(default)]
    pub budget: Option<Credits>,
    /// Further terms of every run.
    #[serde(default, deserialize_with = "policy")]
    pub policy: Policy,
    /// Whether runs that were missed while the daemon was down are started.
    #[serde(default)]
    pub missed: Missed,
    /// Most missed runs that are started at once.
    #[serde(default = "missed_max")]
    pub missed_max: u32,
    /// Whether a run starts while the one before has not ended.
    #[serde(default)]
    pub overlap: Overlap,
}

fn missed_max() -> u32 {
    MISSED_MAX
}

impl ScheduleConfig {
    /// When it fires.
    ///
    /// # Errors
    /// [`ScheduleError`], which names the key.
    pub fn schedule(&self) -> Result<Schedule, ScheduleError> {
        Schedule::parse(&self.cron, self.timezone.as_deref())
    }

    /// All that is wrong with it by itself.
    fn mistakes(&self) -> Vec<ScheduleError> {
        let mut mistakes: Vec<ScheduleError> = name::check(&self.name).err().into_iter().collect();
        if !(1..=CATCH_UP_MAX).contains(&self.missed_max) {
            let message = format!(
                "found {}, expected 1 to {CATCH_UP_MAX}; missed = \"skip\" leaves all of them out",
                self.missed_max
            );
            mistakes.push(ScheduleError { key: "missed_max", message });
        }
        let of_times = self.schedule().err();
        // The expression may be wrong beside the zone.
        let is_of_zone = of_times.as_ref().is_some_and(|mistake| mistake.key == "timezone");
        mistakes.extend(of_times);
        if is_of_zone {
            mistakes.extend(Schedule::parse(&self.cron, None).err());
        }
        mistakes
    }
}

/// What is wrong with schedules, each by itself and beside the others.
pub(super) fn problems(schedules: &[ScheduleConfig], positions: &Positions<'_>) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, which: usize, message: String| {
        problems.push(positions.problem(key, which, message));
    };
    let mut names = BTreeSet::new();
    for (which, schedule) in schedules.iter().enumerate() {
        if !names.insert(schedule.name.as_str()) {
            wrong("schedule.name", which, format!("{:?} is given twice", schedule.name));
        }
        for error in schedule.mistakes() {
            let key = match error.key {
                "name" => "schedule.name",
                "timezone" => "schedule.timezone",
                "missed_max" => "schedule.missed_max",
                _ => "schedule.cron",
            };
            wrong(key, which, format!("{}: {}", schedule.name, error.message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn schedules_that_would_not_fire_as_meant_are_refused() {
        let check = |rest: &str, expected: &str| {
            let said = error(&format!("[[schedule]]\nmanifest = \"a.csv\"\n{rest}"));
            assert!(said.contains(expected), "{said}");
        };
        check("name = \"n\"\ncron = \"0 0 30 2 *\"", "schedule.cron: n: \"0 0 30 2 *\" never fires");
        check(
            "name = \"n\"\ncron = \"@daily\"\ntimezone = \"Europe/Berln\"",
            "schedule.timezone: n: \"Europe/Berln\" is not a time zone; did you mean \"Europe/Berlin\"?",
        );
        check("name = \"n/n\"\ncron = \"@daily\"", "schedule.name: n/n: \"n/n\" cannot name a schedule");
        check("name = \"n\"\ncron = \"@daily\"\nmissed_max = 0", "schedule.missed_max: n: found 0");
    }
}
