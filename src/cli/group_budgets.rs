//! Groups of rows whose budget what is planned would pass: what a plan, `run` and `submit` say of them.

use crate::cli::printable;
use crate::domain::budget::BudgetShortage;
use crate::domain::credits::Credits;

/// Groups that are listed; the rest are counted.
const LISTED_MAX: usize = 40;

/// A line for each; `is_known` where it is known what they have spent so far.
pub(super) fn lines(short: &[BudgetShortage], is_known: bool) -> Vec<String> {
    let line = |shortage: &BudgetShortage| {
        let BudgetShortage {
            setting, group, limit_credits: Credits(limit), left_credits: Credits(left), ..
        } = shortage;
        let group = printable(group.as_deref().unwrap_or_default());
        let when = if setting.contains(".per_day.") { "a day" } else { "in total" };
        let known = if is_known { "are left" } else { "at most are left" };
        let (missing, setting) = (shortage.missing().0, printable(setting));
        format!(
            "budget: {group} may spend {limit} {when}, {left} {known}: {missing} short, so jobs will wait for a larger \
             limit ({setting})"
        )
    };
    let more = match short.len().saturating_sub(LISTED_MAX) {
        0 => None,
        more => Some(format!("budget: and {more} more groups are short")),
    };
    short.iter().take(LISTED_MAX).map(line).chain(more).collect()
}
