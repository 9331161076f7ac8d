//! Faults on demand: a plan of rules, each saying when it strikes and what goes wrong.
//!
//! The format is described where a user finds it, at [`Faults`].

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::tasks::{ErrorCode, Kind};

/// The names of the plans that ship with the emulator.
pub const READY_PLANS: [&str; 3] = ["calm", "flaky-network", "storm"];
/// Identities remembered per rule; beyond it the oldest knowledge is dropped.
const MOST_IDENTITIES: usize = 100_000;

/// A fault plan, validated.
///
#[doc = include_str!("plans.md")]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    rules: Vec<Rule>,
}

impl Faults {
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

    /// Check what the types cannot say. Plans made by [`Faults::parse`] have passed it.
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
                Effect::Urls { count } if count > 1000 => return wrong("count is at most 1000"),
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
enum Per {
    #[default]
    Call,
    Task,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    on: Target,
    #[serde(default)]
    kind: Option<Kind>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    contains: Option<String>,
    #[serde(default)]
    per: Per,
    #[serde(default)]
    skip: u64,
    #[serde(default = "one")]
    every: u64,
    #[serde(default)]
    times: Option<u64>,
    #[serde(default = "always")]
    probability: f64,
    effect: Effect,
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
    Empty,
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
    TaskNever {},
    TaskLate {
        ms: u64,
    },
    OtherModel {
        model: String,
    },
    Urls {
        count: u16,
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
    fn is_about_the_task(&self) -> bool {
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

/// What is known of a call when rules are asked about it.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) target: Target,
    pub(crate) kind: Option<Kind>,
    pub(crate) model: &'a str,
    pub(crate) prompt: &'a str,
    /// What a `per = "task"` rule counts by: the idempotency key, else the task id, else nothing.
    pub(crate) identity: &'a str,
}

/// A plan at work: the plan and its counters.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    plan: Faults,
    counters: Vec<Counter>,
}

#[derive(Debug, Default)]
struct Counter {
    all: Tally,
    each: HashMap<Box<str>, Tally>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    seen: u64,
    struck: u64,
}

impl Weather {
    pub(crate) fn new(plan: Faults) -> Self {
        let counters = plan.rules.iter().map(|_| Counter::default()).collect();
        Self { plan, counters }
    }

    /// The plan, as it would be written.
    pub(crate) fn plan(&self) -> &Faults {
        &self.plan
    }

    /// The effects on the carrying of a call.
    pub(crate) fn on_the_wire(&mut self, call: &Call<'_>) -> Vec<Effect> {
        self.strike(call, |effect| !effect.is_about_the_task())
    }

    /// The effects on a task that is about to be created.
    pub(crate) fn on_a_new_task(&mut self, call: &Call<'_>) -> Vec<Effect> {
        self.strike(call, Effect::is_about_the_task)
    }

    fn strike(&mut self, call: &Call<'_>, wanted: impl Fn(&Effect) -> bool) -> Vec<Effect> {
        let seed = self.plan.seed;
        let rules = self.plan.rules.iter().zip(&mut self.counters).enumerate();
        let matching = rules.filter(|(_, (rule, _))| wanted(&rule.effect) && rule.matches(call));
        matching.filter_map(|(n, (rule, counter))| rule.struck(seed, n, counter, call)).collect()
    }
}

impl Rule {
    fn matches(&self, call: &Call<'_>) -> bool {
        // A rule about making tasks needs no `on`.
        let target = if self.effect.is_about_the_task() { Target::Create } else { self.on };
        (target == Target::Any || target == call.target)
            && self.kind.is_none_or(|kind| call.kind == Some(kind))
            && self.model.as_deref().is_none_or(|model| model == call.model)
            && self.contains.as_deref().is_none_or(|text| call.prompt.contains(text))
    }

    fn struck(&self, seed: u64, n: usize, counter: &mut Counter, call: &Call<'_>) -> Option<Effect> {
        if counter.each.len() >= MOST_IDENTITIES {
            counter.each.clear();
        }
        let identity = if self.per == Per::Task { call.identity } else { "" };
        let tally = match self.per {
            Per::Call => &mut counter.all,
            Per::Task => counter.each.entry(identity.into()).or_default(),
        };
        tally.seen += 1;
        let due = tally.seen > self.skip && (tally.seen - self.skip - 1).is_multiple_of(self.every);
        let left = self.times.is_none_or(|times| tally.struck < times);
        if !due
            || !left
            || !(self.probability >= 1.0 || chance(seed, n, identity, tally.seen) < self.probability)
        {
            return None;
        }
        tally.struck += 1;
        Some(self.effect.clone())
    }
}

/// A number in 0..1 that depends on the seed, the rule, the identity and the count, and on nothing else.
fn chance(seed: u64, rule: usize, identity: &str, seen: u64) -> f64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(identity.as_bytes());
    let rule = u64::try_from(rule).unwrap_or(0);
    let mixed = seed ^ (rule << 48) ^ (u64::from(hasher.finalize()) << 16) ^ seen.rotate_left(40);
    fastrand::Rng::with_seed(mixed).f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(target: Target, identity: &str) -> Call<'_> {
        Call { target, kind: Some(Kind::Video), model: "house-c1", prompt: "a boat", identity }
    }

    fn strikes(text: &str, calls: &[(Target, &str)]) -> Vec<usize> {
        let mut weather = Weather::new(Faults::parse(text).unwrap());
        calls.iter().map(|(target, identity)| weather.on_the_wire(&call(*target, identity)).len()).collect()
    }

    #[test]
    fn ready_plans_can_be_read_and_round_trip() {
        for name in READY_PLANS {
            let plan = Faults::named(name).unwrap_or_else(|| panic!("{name}"));
            Faults::parse(&serde_json::to_string(&plan).unwrap()).unwrap();
        }
        assert!(Faults::named("hurricane").is_none());
    }

    #[test]
    fn a_rule_skips_repeats_and_ends() {
        let text = "[[rules]]\non = 'create'\nskip = 1\nevery = 2\ntimes = 2\neffect = { do = 'drop', when = 'after' }";
        let calls = [(Target::Create, "k"); 8];
        assert_eq!(strikes(text, &calls), [0, 1, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_rule_per_task_counts_each_key_apart() {
        let text = "[[rules]]\nper = 'task'\ntimes = 1\neffect = { do = 'delay', ms = 5 }";
        let calls = [(Target::Create, "a"), (Target::Create, "a"), (Target::Poll, "b")];
        assert_eq!(strikes(text, &calls), [1, 0, 1]);
    }

    #[test]
    fn probability_is_reproducible_by_seed() {
        let text = "seed = 9\n[[rules]]\nprobability = 0.5\neffect = { do = 'delay', ms = 5 }";
        let calls = [(Target::Poll, "a"); 64];
        let first = strikes(text, &calls);
        assert_eq!(first, strikes(text, &calls));
        let hits: usize = first.iter().sum();
        assert!((10..54).contains(&hits), "{hits}");
    }

    #[test]
    fn mistakes_in_a_plan_are_named() {
        for (text, said) in [
            ("[[rules]]\neffect = { do = 'explode' }", "explode"),
            ("[[rules]]\nwhen = 1\neffect = { do = 'task-never' }", "when"),
            ("[[rules]]\nprobability = 2.0\neffect = { do = 'task-never' }", "rule 1: probability"),
            ("[[rules]]\neffect = { do = 'task-late', ms = 1, minutes = 2 }", "minutes"),
        ] {
            let error = Faults::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
