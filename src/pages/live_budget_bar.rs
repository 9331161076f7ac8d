//! The bar of a budget on the live pages: what of it is spent, held and left.

use maud::{Markup, html};

use crate::pages::document::grouped;
use crate::pages::live_document::bar;

/// A budget, and what is held and spent of it.
#[derive(Debug)]
pub struct BudgetView {
    pub name: String,
    pub held: u64,
    pub spent: u64,
    /// What jobs may have been charged that nothing tells: it counts against the limit.
    pub perhaps: u64,
    /// Nothing where it has none.
    pub limit: Option<u64>,
}

/// A budget as a bar, with its numbers.
pub fn budget_bar(budget: &BudgetView) -> Markup {
    let BudgetView { name, held, spent, perhaps, limit } = budget;
    let used = held.saturating_add(*spent).saturating_add(*perhaps);
    let what = if *perhaps > 0 { "spent, held or perhaps charged" } else { "spent or held" };
    html! {
        div class="line" {
            span class="name" { (name) }
            span class="push dim" {
                @match limit {
                    Some(limit) => { b { (grouped(limit.saturating_sub(used))) } " left of " (grouped(*limit)) },
                    None => "no limit",
                }
            }
        }
        @if let Some(limit) = limit {
            (bar(&[("spent", *spent), ("held", *held), ("doubt", *perhaps)], (*limit).max(used), &format!("{name}: {used} of {limit} credits are {what}")))
        }
        div class="line dim" {
            span { (grouped(*spent)) " spent" }
            @if *perhaps > 0 { span { (grouped(*perhaps)) " perhaps charged" } }
            span { (grouped(*held)) " held" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_what_is_held_spent_and_left() {
        let budget =
            BudgetView { name: "b".to_owned(), held: 10, spent: 1_000, perhaps: 0, limit: Some(1_200) };
        let text = budget_bar(&budget).into_string();
        assert!(text.contains("<b>190</b> left of 1,200") && text.contains("1,000 spent"), "{text}");
        assert!(!text.contains("perhaps"), "{text}");
        let budget = BudgetView { perhaps: 30, ..budget };
        let text = budget_bar(&budget).into_string();
        assert!(text.contains("<b>160</b> left of 1,200") && text.contains("30 perhaps charged"), "{text}");
        let over = BudgetView { limit: Some(5), ..budget };
        assert!(budget_bar(&over).into_string().contains("<b>0</b> left of 5"));
    }
}
