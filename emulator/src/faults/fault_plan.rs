//! Faults on demand: a plan of rules, each saying when it strikes and what goes wrong.
//!
//! The format is described where a user finds it, at [`FaultPlan`].

use serde::{Deserialize, Serialize};

use crate::tasks::{ErrorCode, Kind};

/// The names of the plans that ship with the emulator.
pub const READY_PLANS: [&str; 3] = ["calm", "flaky-network", "storm"];

/// The longest `Retry-After`, in seconds.
const RETRY_AFTER_MAX_S: u64 = 366 * 86_400;

/// A fault plan, validated.
///
#[doc = include_str!("fault_plan_format.md")]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    #[serde(default)]
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) rules: Vec<Rule>,
}

impl FaultPlan {
    /// A plan that ships with the emulator (see [`READY_PLANS`]).
    pub fn named(name: &str) -> Option<Self> {
        let text = match name {
            "calm" => include_str!("calm.toml"),
            "flaky-network" => include_str!("flaky-network.toml"),
            "storm" => include_str!("storm.toml"),
            _ => return None,
        };
        Self::parse(text).ok()
    }

    /// Read a plan from TOML or JSON text. The error says what is wrong and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plan: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())?
        } else {
            toml::from_str(text).map_err(|error| error.to_string())?
        };
        plan.check()?;
        Ok(plan)
    }

    /// A ready plan by its name, or else the plan in a file. The error says what is wrong and where.
    pub fn load(name_or_path: &str) -> Result<Self, String> {
        if let Some(plan) = Self::named(name_or_path) {
            return Ok(plan);
        }
        let text = std::fs::read_to_string(name_or_path)
            .map_err(|error| format!("{name_or_path}: {error} (ready plans: {})", READY_PLANS.join(", ")))?;
        Self::parse(&text).map_err(|error| format!("{name_or_path}: {error}"))
    }

    /// Check what the types cannot say. Plans made by [`FaultPlan::parse`] have passed it.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (n, rule) in self.rules.iter().enumerate() {
            let wrong = |what: &str| Err(format!("rule {}: {what}", n + 1));
            if !(0.0..=1.0).contains(&rule.probability) {
                return wrong("probability is from 0 to 1");
            }
            if rule.every == 0 {
                return wrong("every is at least 1");
            }
            match rule.effect {
                Effect::Answer { status, .. } if !(200..=599).contains(&status) => {
                    return wrong("status is from 200 to 599");
                }
                Effect::Urls { count, .. } if count > 1000 => return wrong("count is at most 1000"),
                Effect::Urls { signature, .. } if signature > 2000 => {
                    return wrong("signature is at most 2000");
                }
                Effect::Answer { retry_after_s: Some(s), .. } if s > RETRY_AFTER_MAX_S => {
                    return wrong("retry_after_s is at most a year");
                }
                Effect::SlowDownload { bytes_per_second: 0 } => {
                    return wrong("bytes_per_second is at least 1");
                }
                Effect::TruncatedDownload { keep_percent } | Effect::ShortDownload { keep_percent }
                    if keep_percent > 100 =>
                {
                    return wrong("keep_percent is at most 100");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The calls a rule may strike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    Create,
    Poll,
    Download,
    Credits,
    Catalog,
    #[default]
    Any,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Per {
    #[default]
    Call,
    Task,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(default)]
    pub(super) on: Target,
    #[serde(default)]
    pub(super) kind: Option<Kind>,
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) contains: Option<String>,
    #[serde(default)]
    pub(super) per: Per,
    #[serde(default)]
    pub(super) skip: u64,
    #[serde(default = "one")]
    pub(super) every: u64,
    #[serde(default)]
    pub(super) times: Option<u64>,
    #[serde(default = "always")]
    pub(super) probability: f64,
    pub(super) effect: Effect,
}

fn one() -> u64 {
    1
}

fn always() -> f64 {
    1.0
}

/// Before or after the call is processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Moment {
    #[default]
    Before,
    After,
}

/// Where a connection dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Break {
    Before,
    After,
    MidBody,
}

/// The body of a foreign answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AnswerBody {
    #[default]
    Error,
    Html,
    BrokenJson,
    /// As a gateway on the way says it: `code` is the HTTP status.
    GatewayJson,
    Empty,
}

/// How `Retry-After` is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RetryAfterForm {
    #[default]
    Seconds,
    /// `Sun, 06 Nov 1994 08:49:37 GMT`.
    ImfFixdate,
    /// `Sunday, 06-Nov-94 08:49:37 GMT`.
    Rfc850,
    /// `Sun Nov  6 08:49:37 1994`.
    Asctime,
}

/// How a task of unknown outcome goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Afterwards {
    #[default]
    Success,
    Failed,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Effect {
    Drop {
        when: Break,
    },
    Delay {
        ms: u64,
        #[serde(default)]
        when: Moment,
    },
    Answer {
        status: u16,
        #[serde(default)]
        body: AnswerBody,
        #[serde(default)]
        retry_after_s: Option<u64>,
        #[serde(default)]
        retry_after_as: RetryAfterForm,
        #[serde(default)]
        without_date: bool,
        #[serde(default)]
        location: Option<String>,
        #[serde(default)]
        when: Moment,
    },
    RejectAtSubmission {
        #[serde(default)]
        reason: String,
    },
    FailAtSubmission {},
    UnknownOutcome {
        #[serde(default)]
        ending: Afterwards,
    },
    ContentRejected {
        #[serde(default)]
        with_task: bool,
    },
    SafetyUnavailable {},
    TaskFails {
        code: ErrorCode,
        #[serde(default)]
        reason: String,
    },
    TaskCanceled {},
    RendersInCall {},
    RequestIdAlone {},
    ChargePercent {
        percent: u32,
    },
    TaskNever {},
    TaskLate {
        ms: u64,
    },
    OtherModel {
        model: String,
    },
    Urls {
        count: u16,
        #[serde(default)]
        signature: u16,
    },
    UrlsExpire {
        ms: u32,
    },
    SlowDownload {
        bytes_per_second: u64,
    },
    TruncatedDownload {
        keep_percent: u8,
    },
    ShortDownload {
        keep_percent: u8,
    },
    EmptyDownload {},
    HtmlDownload {},
    RedirectedDownload {
        #[serde(default)]
        location: Option<String>,
    },
}

impl Effect {
    /// Whether it concerns the making of a task, rather than the carrying of bytes.
    pub(super) fn is_about_the_task(&self) -> bool {
        !matches!(
            self,
            Self::Drop { .. }
                | Self::Delay { .. }
                | Self::Answer { .. }
                | Self::SlowDownload { .. }
                | Self::TruncatedDownload { .. }
                | Self::ShortDownload { .. }
                | Self::EmptyDownload {}
                | Self::HtmlDownload {}
                | Self::RedirectedDownload { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_plans_can_be_read_and_round_trip() {
        for name in READY_PLANS {
            let plan = FaultPlan::named(name).unwrap_or_else(|| panic!("{name}"));
            FaultPlan::parse(&serde_json::to_string(&plan).unwrap()).unwrap();
        }
        assert!(FaultPlan::named("hurricane").is_none());
    }

    #[test]
    fn mistakes_in_a_plan_are_named() {
        for (text, said) in [
            ("[[rules]]\neffect = { do = 'explode' }", "explode"),
            ("[[rules]]\nwhen = 1\neffect = { do = 'task-never' }", "when"),
            ("[[rules]]\nprobability = 2.0\neffect = { do = 'task-never' }", "rule 1: probability"),
            ("[[rules]]\neffect = { do = 'task-late', ms = 1, minutes = 2 }", "minutes"),
        ] {
            let error = FaultPlan::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
