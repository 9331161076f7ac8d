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
    /// Nothing where it has none.
    pub limit: Option<u64>,
}

/// A budget as a bar, with its numbers.
pub fn budget_bar(budget: &BudgetView) -> Markup {
    let BudgetView { name, held, spent, limit } = budget;
    let used = held.saturating_add(*spent);
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
            (bar(&[("spent", *spent), ("held", *held)], (*limit).max(used), &format!("{name}: {used} of {limit} credits are spent or held")))
        }
        div class="line dim" { span { (grouped(*spent)) " spent" } span { (grouped(*held)) " held" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_what_is_held_spent_and_left() {
        let budget = BudgetView { name: "b".to_owned(), held: 10, spent: 1_000, limit: Some(1_200) };
        let text = budget_bar(&budget).into_string();
        assert!(text.contains("<b>190</b> left of 1,200") && text.contains("1,000 spent"), "{text}");
        let over = BudgetView { limit: Some(5), ..budget };
        assert!(budget_bar(&over).into_string().contains("<b>0</b> left of 5"));
    }
}
