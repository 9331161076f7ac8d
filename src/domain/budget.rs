//! What fits into a budget; and a batch's budget as people set it: a number of credits, or `none` for the default.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::credits::Credits;
use crate::domain::ledger::Totals;

/// Whether `wanted` credits may be held against a budget of which `totals` are held and spent: held + spent <= limit
/// must hold afterwards. Everything fits where there is no limit.
pub fn fits(totals: Totals, limit: Option<Credits>, wanted: Credits) -> bool {
    limit.is_none_or(|limit| totals.committed() + wanted <= limit)
}

/// The credits that a budget has left of which `totals` are held and spent; nothing where there is no limit.
pub fn room(totals: Totals, limit: Option<Credits>) -> Option<Credits> {
    limit.map(|limit| limit.saturating_sub(totals.committed()))
}

/// What a whole state has held and spent: ever, and on one UTC day.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateTotals {
    /// Ever.
    pub total: Totals,
    /// On the present UTC day.
    pub day: Totals,
    /// What jobs may have been charged that a state which is gone may have sent: it counts against both.
    #[serde(default)]
    pub may_be_charged: Credits,
}

/// What is missing of a budget for the next job that it keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetShortage {
    /// The key of the configuration that sets it.
    pub setting: String,
    /// The group of rows that it limits, as people name it; nothing where it is no group's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The limit.
    pub limit_credits: Credits,
    /// What is left of it.
    pub left_credits: Credits,
    /// What the job needs.
    pub needed_credits: Credits,
    /// What it would have to be at least.
    pub enough_credits: Credits,
}

impl BudgetShortage {
    /// Of a limit of which `totals` are held and spent.
    pub fn of(
        setting: String,
        group: Option<String>,
        totals: Totals,
        limit: Credits,
        needed: Credits,
    ) -> BudgetShortage {
        BudgetShortage {
            setting,
            group,
            limit_credits: limit,
            left_credits: limit.saturating_sub(totals.committed()),
            needed_credits: needed,
            enough_credits: totals.committed() + needed,
        }
    }

    /// The same for `needed` credits together, by the setting of the whole state; nothing where they fit.
    pub fn for_all(setting: &str, totals: Totals, limit: Credits, needed: Credits) -> Option<BudgetShortage> {
        let is_short = !fits(totals, Some(limit), needed);
        is_short.then(|| BudgetShortage::of(setting.to_owned(), None, totals, limit, needed))
    }

    /// What is missing, in credits.
    pub fn missing(&self) -> Credits {
        self.enough_credits.saturating_sub(self.limit_credits)
    }
}

/// `the next job of meta.client acme needs 8, 4 of 16 credits are left: 4 are missing; set ... to at least 20`
impl fmt::Display for BudgetShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BudgetShortage { setting, group, limit_credits, left_credits, .. } = self;
        let group = group.as_ref().map(|group| format!(" of {group}")).unwrap_or_default();
        let (needed, missing) = (self.needed_credits.0, self.missing().0);
        let (are, enough) = (if missing == 1 { "is" } else { "are" }, self.enough_credits.0);
        write!(
            f,
            "the next job{group} needs {needed}, {} of {limit_credits} are left: {missing} {are} missing; set {setting} \
             to at least {enough}",
            left_credits.0
        )
    }
}

/// What a batch's budget is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetSetting {
    /// This many credits.
    Limit(Credits),
    /// `none`: the default, which is the upper limit of its inbox or schedule, `budget.per_batch` of the configuration, or what
    /// its plans come to. Never unlimited.
    Default,
}

impl BudgetSetting {
    /// The limit, where one is set.
    pub fn limit(self) -> Option<Credits> {
        match self {
            BudgetSetting::Limit(credits) => Some(credits),
            BudgetSetting::Default => None,
        }
    }
}

/// The text sets no budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found {0:?}, expected a whole number of credits, or none for the default (the planned cost)")]
pub struct BadBudget(String);

impl FromStr for BudgetSetting {
    type Err = BadBudget;
    fn from_str(text: &str) -> Result<BudgetSetting, BadBudget> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(BudgetSetting::Default);
        }
        let credits = text.parse().map_err(|_| BadBudget(text.to_owned()))?;
        Ok(BudgetSetting::Limit(Credits(credits)))
    }
}

impl fmt::Display for BudgetSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BudgetSetting::Limit(credits) => write!(f, "{}", credits.0),
            BudgetSetting::Default => f.write_str("none"),
        }
    }
}

impl Serialize for BudgetSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            BudgetSetting::Limit(credits) => serializer.serialize_u64(credits.0),
            BudgetSetting::Default => serializer.serialize_str("none"),
        }
    }
}

/// A number, or a text as [`BudgetSetting::from_str`] takes it.
impl<'de> Deserialize<'de> for BudgetSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BudgetSetting, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a whole number of credits, or \"none\"")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(credits) => Ok(BudgetSetting::Limit(Credits(credits))),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_like_what_is_spent() {
        let totals =
            Totals { held: Credits(3), spent: Credits(4), refunded: Credits(9), ..Totals::default() };
        assert!(fits(totals, Some(Credits(10)), Credits(3)) && !fits(totals, Some(Credits(10)), Credits(4)));
        assert!(fits(totals, None, Credits(u64::MAX >> 1)));
        assert_eq!(room(totals, Some(Credits(10))), Some(Credits(3)));
        assert_eq!((room(totals, Some(Credits(5))), room(totals, None)), (Some(Credits(0)), None));
    }

    #[test]
    fn what_is_missing_is_said_with_the_setting_that_gives_it() {
        let totals = Totals { held: Credits(3), spent: Credits(9), ..Totals::default() };
        let short = BudgetShortage::of("budget.total".to_owned(), None, totals, Credits(16), Credits(8));
        assert_eq!(
            short.to_string(),
            "the next job needs 8, 4 of 16 credits are left: 4 are missing; set budget.total to at least 20"
        );
        let below =
            BudgetShortage::of("x".to_owned(), Some("inbox a".to_owned()), totals, Credits(5), Credits(1));
        assert_eq!((below.left_credits, below.missing()), (Credits(0), Credits(8)));
    }

    #[test]
    fn a_number_or_none_is_read_and_written() {
        for (text, json, setting) in [
            ("12", "12", BudgetSetting::Limit(Credits(12))),
            ("0", "0", BudgetSetting::Limit(Credits::ZERO)),
            ("none", "\"none\"", BudgetSetting::Default),
        ] {
            assert_eq!(text.parse(), Ok(setting));
            assert_eq!(setting.to_string(), text);
            assert_eq!(serde_json::to_string(&setting).unwrap(), json);
            assert_eq!(serde_json::from_str::<BudgetSetting>(json).unwrap(), setting);
            let quoted = format!("{text:?}");
            assert_eq!(serde_json::from_str::<BudgetSetting>(&quoted).unwrap(), setting, "as a query has it");
        }
        for wrong in ["", "-1", "1.5", "unlimited", "5 credits"] {
            let said = wrong.parse::<BudgetSetting>().unwrap_err().to_string();
            assert!(said.contains("expected a whole number of credits, or none"), "{said}");
        }
        assert!(serde_json::from_str::<BudgetSetting>("-1").is_err());
    }
}
