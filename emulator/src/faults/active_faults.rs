//! A fault plan at work: which rules strike a call.

use std::collections::HashMap;

use super::fault_plan::{Effect, FaultPlan, Per, Rule, Target};
use crate::tasks::Kind;

/// Identities remembered per rule; beyond it all counts of the rule begin again.
const MOST_IDENTITIES: usize = 100_000;

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
pub(crate) struct ActiveFaults {
    plan: FaultPlan,
    counters: Vec<Counter>,
}

#[derive(Debug, Default)]
struct Counter {
    all: RuleCount,
    each: HashMap<Box<str>, RuleCount>,
}

#[derive(Debug, Default, Clone, Copy)]
struct RuleCount {
    seen: u64,
    struck: u64,
}

impl ActiveFaults {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        let counters = plan.rules.iter().map(|_| Counter::default()).collect();
        Self { plan, counters }
    }

    /// The plan, as it would be written.
    pub(crate) fn plan(&self) -> &FaultPlan {
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
        let mut fault_profile = ActiveFaults::new(FaultPlan::parse(text).unwrap());
        calls
            .iter()
            .map(|(target, identity)| fault_profile.on_the_wire(&call(*target, identity)).len())
            .collect()
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
}
