//! The list of batches.

use maud::{Markup, html};

use crate::domain::ids::BatchName;
use crate::domain::time::Timestamp;
use crate::pages::document::{grouped, in_address, page, theme_switch};
use crate::pages::{INDEX, LIST_FOLDER};

/// Batches that are listed, the newest first.
pub const LISTED_MAX: usize = 500;

/// A batch of the list.
#[derive(Debug)]
pub struct ListedBatch {
    pub name: BatchName,
    /// When it was done; nothing while it is not.
    pub finished: Option<Timestamp>,
    pub jobs: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub in_doubt: u32,
    pub ended: u32,
    pub charged: u64,
    /// Whether its folder has a page.
    pub has_page: bool,
}

/// The list, newest first; `not_listed` finished ones are left out.
pub fn batch_list(batches: &[ListedBatch], not_listed: u64) -> String {
    let body = html! {
        header class="top" {
            div class="title" { h1 { "Batches" } }
            p class="summary" { (grouped(batches.len() as u64)) @if batches.len() == 1 { " batch" } @else { " batches" } }
            (theme_switch())
        }
        main class="list" {
            @if batches.is_empty() { p class="empty" { "No batches yet." } }
            ul { @for batch in batches { (row(batch)) } }
            @if not_listed > 0 {
                p class="more" { (grouped(not_listed)) " earlier batches are not listed. To open one: " code { "callsheet open BATCH" } }
            }
        }
    };
    page("Batches · callsheet", LIST_FOLDER, "list", &body)
}

fn row(batch: &ListedBatch) -> Markup {
    let name = batch.name.as_str();
    let share = if batch.jobs == 0 { 0 } else { u64::from(batch.ended) * 100 / u64::from(batch.jobs) };
    html! {
        li {
            div class="name" {
                @if batch.has_page { a href={ "./" (in_address(name)) "/" (INDEX) } { (name) } }
                @else { (name) " " code { "callsheet open " (name) } }
                span class="when" {
                    @match batch.finished {
                        Some(at) => { time datetime=(at.to_string()) { (day_and_time(at)) " UTC" } },
                        None => { "in progress, " (share) " %" },
                    }
                }
            }
            div class="numbers" {
                span { b { (grouped(u64::from(batch.succeeded))) } " of " (grouped(u64::from(batch.jobs))) }
                @if batch.failed > 0 { span class="bad" { (grouped(u64::from(batch.failed))) " failed" } }
                @if batch.in_doubt > 0 { span class="doubt" { (grouped(u64::from(batch.in_doubt))) " in doubt" } }
                span { (grouped(batch.charged)) " credits" }
            }
        }
    }
}

/// `2026-05-04 09:30`
fn day_and_time(at: Timestamp) -> String {
    at.to_string().replace('T', " ").chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_linked_where_it_has_a_page() {
        let batch = |name: &str, has_page: bool| ListedBatch {
            name: name.parse().unwrap(),
            finished: has_page.then_some(Timestamp(1_777_887_000_000)),
            jobs: 1200,
            succeeded: 1199,
            failed: 1,
            in_doubt: 0,
            ended: 1200,
            charged: 12_345,
            has_page,
        };
        let page = batch_list(&[batch("春", true), batch("old", false)], 3);
        assert!(page.contains("href=\"./%E6%98%A5/index.html\""), "{page}");
        assert!(page.contains("12,345 credits") && page.contains("1 failed"), "{page}");
        assert!(page.contains("2026-05-04 09:30 UTC") && page.contains("callsheet open old"), "{page}");
        assert!(page.contains("3 earlier batches are not listed"), "{page}");
    }
}
