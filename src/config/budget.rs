//! `[budget]`: limits of what is held and spent, in credits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::config::Config;
use crate::config::read::Positions;
use crate::domain::budget_group::{GroupKey, GroupLimits, KeyLimits, ValueLimits};
use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;

/// `[budget]`, in credits
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Total budget of the state.
    pub total: Option<Credits>,
    /// Budget of a UTC day.
    pub per_day: Option<Credits>,
    /// Least balance that is kept on the account.
    pub min_balance: Option<Credits>,
    /// Budget of a batch that sets none.
    pub per_batch: Option<Credits>,
    /// Budgets of groups of rows.
    by: BTreeMap<GroupKey, GroupBudget>,
}

/// `[budget.by."meta.NAME"]` and `[budget.by.inbox]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GroupBudget {
    /// Total budget of each value that has none of its own.
    default: Option<Credits>,
    /// Total budget of the rows without a value; not limited unless given.
    missing: Option<Credits>,
    /// Total budgets of single values.
    values: BTreeMap<String, Credits>,
    /// The same of a UTC day.
    per_day: DayBudget,
}

/// `per_day` of a group's budget: a number, which is that of each value, or a table as the budget's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DayBudget(ValueLimits);

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DayTable {
    default: Option<Credits>,
    missing: Option<Credits>,
    values: BTreeMap<String, Credits>,
}

impl<'de> Deserialize<'de> for DayBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DayBudget, D::Error> {
        struct NumberOrTable;
        impl<'de> Visitor<'de> for NumberOrTable {
            type Value = DayBudget;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, 0 or more, or a table of default, missing and values")
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<DayBudget, E> {
                let unexpected = serde::de::Unexpected::Signed(number);
                let number = u64::try_from(number).map_err(|_| E::invalid_value(unexpected, &self))?;
                self.visit_u64(number)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<DayBudget, E> {
                Ok(DayBudget(ValueLimits { default: Some(Credits(number)), ..ValueLimits::default() }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DayBudget, A::Error> {
                let DayTable { default, missing, values } =
                    DayTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(DayBudget(ValueLimits { default, missing, values }))
            }
        }
        deserializer.deserialize_any(NumberOrTable)
    }
}

impl Budget {
    /// The budgets of groups.
    pub fn groups(&self) -> GroupLimits {
        let limits = |budget: &GroupBudget| {
            let GroupBudget { default, missing, values, per_day: DayBudget(per_day) } = budget.clone();
            KeyLimits { total: ValueLimits { default, missing, values }, per_day }
        };
        self.by.iter().map(|(key, budget)| (key.clone(), limits(budget))).collect()
    }

    /// The limits of this configuration that `new` does not have, by their keys.
    pub fn lifted_by(&self, new: &Budget) -> Vec<String> {
        let (before, after) = (self.limits(), new.limits());
        before.into_iter().filter(|key| !after.contains(key)).collect()
    }

    /// The keys of all limits that are set.
    fn limits(&self) -> BTreeSet<String> {
        let all = [
            ("total", self.total),
            ("per_day", self.per_day),
            ("min_balance", self.min_balance),
            ("per_batch", self.per_batch),
        ];
        let single = all.into_iter().filter(|(_, limit)| limit.is_some());
        let mut keys: BTreeSet<String> = single.map(|(key, _)| format!("budget.{key}")).collect();
        for (group, limits) in self.groups() {
            for (values, part) in [(limits.total, ""), (limits.per_day, ".per_day")] {
                let at = format!("budget.by.\"{group}\"{part}");
                let of_all = [("default", values.default), ("missing", values.missing)];
                let of_all = of_all.into_iter().filter(|(_, limit)| limit.is_some());
                keys.extend(of_all.map(|(key, _)| format!("{at}.{key}")));
                keys.extend(values.values.keys().map(|value| format!("{at}.values.{value}")));
            }
        }
        keys
    }
}

impl Config {
    /// Budgets of groups that limit nothing.
    pub(super) fn budget_problems(&self, places: &Positions<'_>, problems: &mut Vec<Diagnostic>) {
        for (key, limits) in self.budget.groups() {
            let name = key.to_string();
            let mut wrong = |keys: &[&str], message: String| {
                let all: Vec<&str> = ["budget", "by", &name].iter().chain(keys).copied().collect();
                let quoted =
                    |key: &&str| if key.contains('.') { format!("{key:?}") } else { (*key).to_owned() };
                let field = all.iter().map(quoted).collect::<Vec<_>>().join(".");
                problems.push(Diagnostic::at(places.of_keys(&all, 0), message).in_field(field));
            };
            if limits == KeyLimits::default() {
                let message = "limits nothing; give default, missing, values or per_day";
                wrong(&[], message.to_owned());
            }
            if key != GroupKey::Inbox {
                continue;
            }
            let inboxes: Vec<String> = self.inbox.iter().filter_map(|inbox| inbox.name()).collect();
            let lists =
                [(vec!["values"], limits.total.values), (vec!["per_day", "values"], limits.per_day.values)];
            for (keys, values) in lists {
                for value in values.keys().filter(|value| !inboxes.contains(value)) {
                    let known = inboxes.join(", ");
                    let known = if known.is_empty() { "none; add [[inbox]]".to_owned() } else { known };
                    wrong(
                        &[&keys[..], &[value]].concat(),
                        format!("no inbox is called {value:?}; there are {known}"),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn groups(text: &str) -> GroupLimits {
        Config::parse(text, Path::new("callsheet.toml")).unwrap().budget.groups()
    }

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn groups_have_limits_in_total_and_of_a_day() {
        let found = groups(
            r#"
            [budget.by."meta.client"]
            default = 500
            missing = 50
            values = { acme = 2000, "per_day" = 7 }
            per_day = { default = 100, values = { acme = 400 } }
            [budget.by.inbox]
            per_day = 30
            "#,
        );
        let client = &found[&GroupKey::Meta("client".to_owned())];
        let credits = |credits: u64| Some(Credits(credits));
        assert_eq!((client.total.default, client.total.missing), (credits(500), credits(50)));
        assert_eq!(client.total.values["acme"], Credits(2000));
        assert_eq!(client.total.values["per_day"], Credits(7), "a client may be called like a key");
        assert_eq!((client.per_day.default, client.per_day.missing), (credits(100), None));
        assert_eq!(client.per_day.values["acme"], Credits(400));
        let inbox = &found[&GroupKey::Inbox];
        assert_eq!((inbox.total.clone(), inbox.per_day.default), (ValueLimits::default(), credits(30)));
    }

    #[test]
    fn limits_that_a_new_configuration_does_not_have_are_lifted() {
        let read = |text: &str| Config::parse(text, Path::new("callsheet.toml")).unwrap().budget;
        let meta = "[budget.by.\"meta.client\"]\n";
        let before = read(&format!(
            "[budget]\ntotal = 5\nper_day = 3\n{meta}default = 1\nvalues = {{ acme = 9, zen = 4 }}\nper_day = 1\n"
        ));
        assert_eq!(before.lifted_by(&before), [""; 0]);
        let after = read(&format!("[budget]\ntotal = 50\nper_batch = 1\n{meta}values = {{ acme = 90 }}\n"));
        assert_eq!(
            before.lifted_by(&after),
            [
                "budget.by.\"meta.client\".default",
                "budget.by.\"meta.client\".per_day.default",
                "budget.by.\"meta.client\".values.zen",
                "budget.per_day"
            ]
        );
    }

    #[test]
    fn what_is_wrong_with_the_budget_of_a_group_is_said_with_its_line() {
        let meta = "[budget.by.\"meta.client\"]\n";
        for (text, expected) in [
            (
                "[budget.by.metaclient]\ndefault = 5\n".to_owned(),
                "callsheet.toml:1: `metaclient` is no group: did you mean [budget.by.\"meta.client\"]?",
            ),
            (
                "[budget.by.meta.client]\ndefault = 5\n".to_owned(),
                "callsheet.toml:1: `meta` is no group: write the column in quotes, as [budget.by.\"meta.client\"]",
            ),
            (
                "[budget.by.client]\ndefault = 5\n".to_owned(),
                "callsheet.toml:1: `client` is no group: expected inbox or a column; did you mean \
                 [budget.by.\"meta.client\"]?",
            ),
            (
                format!("{meta}defualt = 5\n"),
                "callsheet.toml:2: unknown key `defualt`: did you mean `default`?",
            ),
            (
                format!("{meta}per_day = {{ mising = 5 }}\n"),
                "callsheet.toml:2: unknown key `mising`: did you mean `missing`?",
            ),
            (
                format!("{meta}per_day = -5\n"),
                "callsheet.toml:2: budget.by.meta.client.per_day: found -5, expected a whole number, 0 or more, or a \
                 table of default, missing and values",
            ),
            (
                meta.to_owned(),
                "callsheet.toml:1: budget.by.\"meta.client\": limits nothing; give default, missing, values or per_day",
            ),
            (
                "[[inbox]]\npath = \"acme\"\n[budget.by.inbox]\nvalues = { amce = 5 }\n".to_owned(),
                "callsheet.toml:4: budget.by.inbox.values.amce: no inbox is called \"amce\"; there are acme",
            ),
        ] {
            assert_eq!(error(&text), expected);
        }
    }
}
