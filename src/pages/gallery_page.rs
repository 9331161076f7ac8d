//! The page of a batch. It is the same whatever becomes of the batch: its script reads what there is to show.

use maud::html;

use crate::domain::ids::BatchName;
use crate::pages::document::{page, theme_switch};
use crate::pages::{GALLERY_FOLDER, INDEX};

/// The page of a batch.
pub fn gallery_page(batch: &BatchName) -> String {
    let body = html! {
        header class="top" {
            div class="title" {
                a class="up" href={ "../" (INDEX) } { "All batches" }
                h1 { (batch) }
            }
            p #summary class="summary" role="status" { "Loading…" }
            (theme_switch())
        }
        div #progress class="progress" hidden { span {} }
        p #parked class="notice" hidden {}
        form #filter class="filter" role="search" autocomplete="off" {
            label class="search" {
                span class="unseen" { "Search prompts, names and columns" }
                input #text type="search" placeholder="Search" spellcheck="false";
            }
            label { span class="unseen" { "Kind" } select #kind { option value="" { "Every kind" } } }
            label { span class="unseen" { "State" } select #state { option value="" { "Every state" } } }
            label #decision-label hidden {
                span class="unseen" { "Decision" } select #decision { option value="" { "Every decision" } }
            }
            label #meta-label hidden {
                span class="unseen" { "Column" } select #meta { option value="" { "Every column" } }
            }
            label #value-label hidden {
                span class="unseen" { "Value" } select #value { option value="" { "Every value" } }
            }
            label {
                span class="unseen" { "Order" }
                select #order {
                    option value="manifest" { "In manifest order" }
                    option value="newest" { "Newest first" }
                    option value="credits" { "Most credits first" }
                    option value="time" { "Longest first" }
                }
            }
            button #clear type="reset" class="quiet" hidden { "Clear" }
            output #found class="found" {}
        }
        main {
            div #grid role="listbox" aria-label="Jobs" aria-describedby="keys" tabindex="0" { }
            p #empty class="empty" hidden {}
            p #more class="more" hidden { button #load type="button" { "Load more" } span {} }
            p #keys class="unseen" { "Arrow keys move, Enter opens, Space plays, Escape closes." }
        }
        dialog #viewer aria-labelledby="viewer-name" {
            div #stage class="stage" { }
            aside #details class="details" tabindex="0" aria-label="Details" { }
            nav class="steps" aria-label="Jobs" {
                button #previous type="button" class="quiet" aria-label="Previous job" { "‹" }
                button #next type="button" class="quiet" aria-label="Next job" { "›" }
                button #close type="button" class="quiet" aria-label="Close" { "×" }
            }
        }
        noscript { p class="notice" { "The gallery needs JavaScript; results.csv in this directory lists the same jobs." } }
    };
    page(&format!("{batch} · callsheet"), GALLERY_FOLDER, "gallery", &body)
}
