//! Which terms a batch has after another manifest of it was handed in.
//!
//! What a person set stays until a person sets something else: leaving a flag or a key out sets nothing. So a
//! manifest that is handed in again changes a term only where it says something else than the last time.

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::manifest::row::Policy;

/// What is said about the terms of a batch when a manifest is handed in.
#[derive(Debug, Clone, Copy)]
pub struct TermSources<'a> {
    /// By the command: the last word.
    pub flags: &'a Policy,
    /// The command asks for the default budget: what was set before is forgotten, except for the upper limit of the inbox or
    /// schedule.
    pub is_default_budget: bool,
    pub manifest: &'a Policy,
    /// By its inbox or schedule, for what the manifest does not say.
    pub defaults: &'a Policy,
    /// By the configuration, for a batch that nobody sets a budget of its own for.
    pub default_budget: Option<Credits>,
    /// The most that a manifest may allow: the budget of its inbox or schedule.
    pub ceiling: Option<Credits>,
}

/// The terms of a batch as they stand.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct BatchTerms {
    /// The terms in force.
    pub policy: Policy,
    /// The budget in force is that of the configuration, and nobody has set another.
    pub has_default_budget: bool,
    /// What manifests and their inboxes or schedules said the last time, whatever the commands said; nothing where that is
    /// not known.
    pub said: Option<Policy>,
    /// What the inbox or schedule says of that, also where the manifest says something else; nothing where there is none,
    /// or that is not known.
    pub said_by_defaults: Option<Policy>,
}

/// Which terms hold from now on.
///
/// For each: the command's word; else the manifest's, or that of its inbox or schedule, where it is another than the last
/// time; else what holds already. The budget of the configuration holds where nobody has set one. `strict` and
/// `allow_unknown_options` are about one manifest alone and are never kept.
pub fn resolve(said: TermSources<'_>, standing: Option<&BatchTerms>) -> BatchTerms {
    let first = BatchTerms { said: Some(Policy::default()), ..BatchTerms::default() };
    let standing = standing.unwrap_or(&first);
    let BatchTerms { policy: stored, .. } = standing;
    let own_budget = stored.budget.filter(|_| !standing.has_default_budget);
    let least = |budgets: [Option<Credits>; 2]| budgets.into_iter().flatten().min();
    let by_manifest = Policy {
        budget: said.manifest.budget.and_then(|budget| least([Some(budget), said.ceiling])),
        ..said.manifest.clone()
    };
    let by_defaults = Policy {
        budget: match said.ceiling {
            Some(ceiling) => least([said.defaults.budget.or(said.default_budget), Some(ceiling)]),
            None => said.defaults.budget,
        },
        ..said.defaults.clone()
    };
    let last_by_defaults = standing.said_by_defaults.clone().unwrap_or_default();
    // A key that was removed from a manifest does not make its inbox's word a new one.
    let heard = by_manifest.over(&changed(&by_defaults, &last_by_defaults));
    let last = standing.said.clone().unwrap_or_default();
    let mut news = changed(&heard, &last);
    if standing.said.is_none() || by_manifest.budget.is_none() && last_by_defaults.budget.is_none() {
        // Whether its word is old or new is not known. The lower budget is never the wrong one.
        news.budget = news.budget.and_then(|budget| least([Some(budget), own_budget]));
    }
    let mut policy = said.flags.over(&news).over(stored);
    let of_manifest = said.flags.over(&by_manifest).over(&by_defaults);
    policy.strict = of_manifest.strict;
    policy.allow_unknown_options = of_manifest.allow_unknown_options;
    let said_by_defaults =
        Some(by_defaults.over(&last_by_defaults)).filter(|said| *said != Policy::default());
    let (set, before) = match said.is_default_budget {
        true => (upper_limit(said_by_defaults.as_ref()), None),
        false => (said.flags.budget.or(news.budget).or(own_budget), stored.budget),
    };
    policy.budget = set.or(said.default_budget).or(before);
    let has_default_budget = set.is_none() && policy.budget.is_some();
    BatchTerms { policy, has_default_budget, said: Some(heard.over(&last)), said_by_defaults }
}

/// The budget that its inbox or schedule gave a batch as an upper limit, by what these said the last time: the default of its
/// budget, in credits.
pub fn upper_limit(said_by_defaults: Option<&Policy>) -> Option<Credits> {
    said_by_defaults.and_then(|policy| policy.budget)
}

/// The terms of `heard` that differ from `last`.
fn changed(heard: &Policy, last: &Policy) -> Policy {
    fn news<T: Clone + PartialEq>(heard: &Option<T>, last: &Option<T>) -> Option<T> {
        heard.clone().filter(|_| heard != last)
    }
    Policy {
        budget: news(&heard.budget, &last.budget),
        priority: news(&heard.priority, &last.priority),
        deadline: news(&heard.deadline, &last.deadline),
        on_deadline: news(&heard.on_deadline, &last.on_deadline),
        expires: news(&heard.expires, &last.expires),
        attempts: news(&heard.attempts, &last.attempts),
        strict: None,
        allow_unknown_options: None,
        on_drift: news(&heard.on_drift, &last.on_drift),
        review: news(&heard.review, &last.review),
        layout: news(&heard.layout, &last.layout),
    }
}

/// One term that differs from what it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TermChange {
    /// Its name in a policy.
    pub term: String,
    /// What held before; `null` for the default.
    pub before: serde_json::Value,
    /// What holds now; `null` for the default.
    pub now: serde_json::Value,
}

/// Terms that are about one manifest alone.
const OF_ONE_MANIFEST: [&str; 2] = ["strict", "allow_unknown_options"];

/// The terms in which two policies differ; those that are about one manifest alone are none of them.
pub fn differences(before: &Policy, now: &Policy) -> Vec<TermChange> {
    let object = |policy: &Policy| match serde_json::to_value(policy) {
        Ok(serde_json::Value::Object(terms)) => terms,
        _ => serde_json::Map::new(),
    };
    let (before, now) = (object(before), object(now));
    let names: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let value = |terms: &serde_json::Map<String, serde_json::Value>, name: &String| {
        terms.get(name).cloned().unwrap_or_default()
    };
    let change = |name: &String| TermChange {
        term: name.clone(),
        before: value(&before, name),
        now: value(&now, name),
    };
    let changes = names.into_iter().filter(|name| !OF_ONE_MANIFEST.contains(&name.as_str())).map(change);
    changes.filter(|change| change.before != change.now).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::manifest::row::{Deadline, OnDrift};
    use crate::domain::time::Timestamp;

    fn budget(credits: impl Into<Option<u64>>) -> Policy {
        Policy { budget: credits.into().map(Credits), ..Policy::default() }
    }

    const NOTHING: Policy = Policy {
        budget: None,
        priority: None,
        deadline: None,
        on_deadline: None,
        expires: None,
        attempts: None,
        strict: None,
        allow_unknown_options: None,
        on_drift: None,
        review: None,
        layout: None,
    };

    fn said<'a>(flags: &'a Policy, manifest: &'a Policy, defaults: &'a Policy) -> TermSources<'a> {
        TermSources {
            flags,
            is_default_budget: false,
            manifest,
            defaults,
            default_budget: None,
            ceiling: None,
        }
    }

    fn in_force(standing: &BatchTerms) -> Option<u64> {
        standing.policy.budget.map(|budget| budget.0)
    }

    #[test]
    fn a_budget_stays_until_another_is_given() {
        let (five, eight) = (budget(5), budget(8));
        let first = resolve(said(&five, &NOTHING, &NOTHING), None);
        assert_eq!(in_force(&first), Some(5));
        let again = resolve(said(&NOTHING, &NOTHING, &NOTHING), Some(&first));
        assert_eq!(in_force(&again), Some(5), "the flag was left out");
        let more = resolve(said(&eight, &NOTHING, &NOTHING), Some(&again));
        assert_eq!(in_force(&more), Some(8));
        let none = TermSources { is_default_budget: true, ..said(&NOTHING, &NOTHING, &NOTHING) };
        assert_eq!(in_force(&resolve(none, Some(&more))), None);
        let ten = budget(10);
        let first = resolve(said(&NOTHING, &ten, &NOTHING), None);
        let none = BatchTerms { policy: NOTHING, ..first };
        let again = resolve(said(&NOTHING, &ten, &NOTHING), Some(&none));
        assert_eq!(in_force(&again), None, "a command asked for the default since the manifest said 10");
    }

    #[test]
    fn a_manifest_that_repeats_itself_overrules_nothing() {
        let (five, ten, twenty) = (budget(5), budget(10), budget(20));
        let first = resolve(said(&five, &ten, &NOTHING), None);
        let again = resolve(said(&NOTHING, &ten, &NOTHING), Some(&first));
        assert_eq!(in_force(&again), Some(5), "10 was said before the flag, too");
        let without = resolve(said(&NOTHING, &NOTHING, &NOTHING), Some(&again));
        assert_eq!(in_force(&without), Some(5), "a key that was removed says nothing");
        let back = resolve(said(&NOTHING, &ten, &NOTHING), Some(&without));
        assert_eq!(in_force(&back), Some(5));
        let edited = resolve(said(&NOTHING, &twenty, &NOTHING), Some(&back));
        assert_eq!(in_force(&edited), Some(20), "another value was given");
    }

    #[test]
    fn the_default_is_the_upper_limit_of_the_inbox_where_there_is_one() {
        let (five, twelve) = (budget(5), budget(12));
        let dropped = TermSources { ceiling: twelve.budget, ..said(&NOTHING, &five, &twelve) };
        let first = resolve(dropped, None);
        assert_eq!(in_force(&first), Some(5));
        let hundred = budget(100);
        let none = TermSources {
            is_default_budget: true,
            default_budget: hundred.budget,
            ..said(&NOTHING, &NOTHING, &NOTHING)
        };
        let default = resolve(none, Some(&first));
        assert_eq!((in_force(&default), default.has_default_budget), (Some(12), false));
        let again = resolve(dropped, Some(&default));
        assert_eq!(in_force(&again), Some(12), "the manifest repeats itself");
    }

    #[test]
    fn no_budget_of_its_own_leaves_a_limit_of_the_configuration() {
        let (five, hundred) = (budget(5), budget(100));
        let by_configuration =
            |flags| TermSources { default_budget: hundred.budget, ..said(flags, &NOTHING, &NOTHING) };
        let first = resolve(by_configuration(&five), None);
        assert_eq!(in_force(&first), Some(5));
        let none = TermSources { is_default_budget: true, ..by_configuration(&NOTHING) };
        assert_eq!(in_force(&resolve(none, Some(&first))), Some(100));
    }

    #[test]
    fn a_ceiling_is_passed_by_no_manifest() {
        let (nine, fifty, own) = (budget(9), budget(50), budget(12));
        let from_inbox =
            |manifest| TermSources { ceiling: Some(Credits(12)), ..said(&NOTHING, manifest, &own) };
        assert_eq!(in_force(&resolve(from_inbox(&fifty), None)), Some(12));
        assert_eq!(in_force(&resolve(from_inbox(&NOTHING), None)), Some(12));
        let low = resolve(from_inbox(&nine), None);
        assert_eq!(in_force(&low), Some(9));
        assert_eq!(in_force(&resolve(from_inbox(&fifty), Some(&low))), Some(12));
    }

    #[test]
    fn the_budget_of_the_configuration_takes_the_place_of_no_other() {
        let (five, hundred) = (budget(5), budget(100));
        let hear = |flags, manifest, per_batch: u64, standing: Option<&BatchTerms>| {
            let default_budget = Some(Credits(per_batch));
            resolve(TermSources { default_budget, ..said(flags, manifest, &NOTHING) }, standing)
        };
        for first in [hear(&five, &NOTHING, 40, None), hear(&NOTHING, &five, 40, None)] {
            assert_eq!(in_force(&hear(&NOTHING, &NOTHING, 40, Some(&first))), Some(5), "it was left out");
            assert_eq!(in_force(&hear(&NOTHING, &NOTHING, 41, Some(&first))), Some(5));
        }
        let first = resolve(said(&hundred, &NOTHING, &NOTHING), None);
        assert_eq!(
            in_force(&hear(&NOTHING, &NOTHING, 40, Some(&first))),
            Some(100),
            "none was configured then"
        );
        // Where nobody has set one, it is the one that is configured now.
        let mut standing = hear(&NOTHING, &NOTHING, 40, None);
        for (per_batch, expected) in [(41, 41), (30, 30)] {
            standing = hear(&NOTHING, &NOTHING, per_batch, Some(&standing));
            assert_eq!(in_force(&standing), Some(expected));
        }
        let without = resolve(said(&NOTHING, &NOTHING, &NOTHING), Some(&standing));
        assert_eq!(in_force(&without), Some(30), "a key that was removed sets nothing");
        let planned = resolve(said(&NOTHING, &NOTHING, &NOTHING), None);
        assert_eq!(in_force(&hear(&NOTHING, &NOTHING, 40, Some(&planned))), Some(40));
    }

    #[test]
    fn the_budget_of_an_inbox_is_news_where_the_inbox_says_another() {
        let (five, twelve, twenty) = (budget(5), budget(12), budget(20));
        let drop_in = |manifest, inbox: &Policy, standing: Option<&BatchTerms>| {
            resolve(TermSources { ceiling: inbox.budget, ..said(&NOTHING, manifest, inbox) }, standing)
        };
        let first = drop_in(&five, &twelve, None);
        let without = drop_in(&NOTHING, &twelve, Some(&first));
        assert_eq!(in_force(&without), Some(5), "a key that was removed says nothing");
        assert_eq!(in_force(&drop_in(&twelve, &twelve, Some(&without))), Some(12));
        assert_eq!(in_force(&drop_in(&NOTHING, &twenty, Some(&without))), Some(20));
        let submitted = resolve(said(&five, &NOTHING, &NOTHING), None);
        assert_eq!(in_force(&drop_in(&NOTHING, &twelve, Some(&submitted))), Some(5));
        let dropped = drop_in(&NOTHING, &twelve, None);
        let submitted = resolve(said(&NOTHING, &NOTHING, &NOTHING), Some(&dropped));
        assert_eq!(in_force(&drop_in(&NOTHING, &twelve, Some(&submitted))), Some(12));
        assert_eq!(in_force(&drop_in(&NOTHING, &five, Some(&submitted))), Some(5));
    }

    #[test]
    fn a_batch_of_an_earlier_version_keeps_the_lower_budget() {
        let old = |credits| BatchTerms { policy: budget(credits), ..BatchTerms::default() };
        let (ten, twenty) = (budget(10), budget(20));
        assert_eq!(in_force(&resolve(said(&NOTHING, &twenty, &NOTHING), Some(&old(Some(10))))), Some(10));
        assert_eq!(in_force(&resolve(said(&NOTHING, &ten, &NOTHING), Some(&old(Some(20))))), Some(10));
        assert_eq!(in_force(&resolve(said(&NOTHING, &NOTHING, &NOTHING), Some(&old(Some(20))))), Some(20));
        assert_eq!(in_force(&resolve(said(&NOTHING, &ten, &NOTHING), Some(&old(None)))), Some(10));
    }

    #[test]
    fn the_other_terms_stay_as_well_and_strict_does_not() {
        let given = Policy {
            on_drift: Some(OnDrift::Pause),
            expires: Some(Deadline::At(Timestamp(5))),
            attempts: Some(1),
            review: Some(true),
            priority: Some(3),
            layout: Some("l".into()),
            strict: Some(true),
            ..Policy::default()
        };
        let first = resolve(said(&NOTHING, &given, &NOTHING), None);
        let again = resolve(said(&NOTHING, &NOTHING, &NOTHING), Some(&first));
        assert_eq!(again.policy, Policy { strict: None, ..given });
    }

    #[test]
    fn what_differs_is_told_term_by_term() {
        let before = Policy { strict: Some(true), attempts: Some(2), ..budget(5) };
        let changes = differences(&before, &Policy { attempts: Some(2), ..budget(8) });
        let told = serde_json::to_string(&changes).unwrap();
        assert_eq!(told, r#"[{"term":"budget","before":5,"now":8}]"#);
        assert_eq!(differences(&before, &before), []);
    }
}
