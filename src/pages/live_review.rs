//! The page on which a person decides about outputs: each row with its takes side by side.

use maud::{Markup, html};

use crate::pages::document::{grouped, in_address};
use crate::pages::live_document::{Viewer, state_mark};

/// Rows of a batch that wait for a decision.
#[derive(Debug, Default)]
pub struct ReviewView {
    pub batch: String,
    /// Outputs of the batch that wait.
    pub waiting: u32,
    /// Decided outputs are shown, too.
    pub is_all: bool,
    /// The `seq` behind which this page begins.
    pub after: Option<u32>,
    /// The same of the next page.
    pub next: Option<u32>,
    pub rows: Vec<ReviewRow>,
}

/// A row with its takes.
#[derive(Debug)]
pub struct ReviewRow {
    pub prompt: String,
    /// Kind and model.
    pub what: String,
    pub takes: Vec<ReviewTake>,
}

/// The outputs of one job.
#[derive(Debug)]
pub struct ReviewTake {
    /// The identity of its job.
    pub job: String,
    pub label: String,
    pub seq: u32,
    /// Which take of its row, from 1.
    pub take: u32,
    /// What it was charged, in credits.
    pub credits: u64,
    /// `waiting`, `approved`, `rejected`, `picked`, `not_picked`, `undecided`
    pub decision: String,
    /// Who decided, and why.
    pub said: Option<String>,
    pub outputs: Vec<ReviewOutput>,
}

/// A file to look at.
#[derive(Debug)]
pub struct ReviewOutput {
    /// Relative to the batch's folder.
    pub path: String,
    pub content_type: String,
    pub sha256: String,
}

impl ReviewTake {
    fn is_decided(&self) -> bool {
        !matches!(self.decision.as_str(), "waiting" | "undecided")
    }
}

impl ReviewView {
    /// The address of the page that begins behind `after`, as it is or with the decided ones.
    fn address(&self, after: Option<u32>, is_all: bool) -> String {
        review_address(&self.batch, after, is_all)
    }
}

/// The address of a page of a batch's review.
pub fn review_address(batch: &str, after: Option<u32>, is_all: bool) -> String {
    let base = format!("/batches/{}/review", in_address(batch));
    let after = after.map(|after| format!("after={after}"));
    let all = is_all.then(|| "all=true".to_owned());
    let query: Vec<String> = after.into_iter().chain(all).collect();
    if query.is_empty() { base } else { format!("{base}?{}", query.join("&")) }
}

/// What is in the page's title line.
pub fn review_summary(view: &ReviewView) -> Markup {
    html! {
        b #waiting { (grouped(u64::from(view.waiting))) } " waiting for review · "
        @if view.is_all {
            a href=(view.address(None, false)) { "Only those that wait" }
        } @else {
            a href=(view.address(None, true)) { "Decided ones, too" }
        }
    }
}

/// The rows, and how to decide about them.
pub fn review_body(view: &ReviewView, viewer: &Viewer) -> Markup {
    let is_operator = matches!(viewer, Viewer::Operator { .. });
    let buys = viewer.buys_takes();
    html! {
        div #review class="wide" data-all[view.is_all] {
            p #keys class="dim keys" hidden {
                @if is_operator { kbd { "a" } " approve " kbd { "r" } " reject " kbd { "p" } " pick " }
                @if buys { kbd { "t" } " another take… " }
                kbd { "←" } kbd { "→" } " takes " kbd { "↑" } kbd { "↓" } " rows"
            }
            p #said class="dim" role="status" {}
            @if view.rows.is_empty() { (nothing(view)) }
            @for row in &view.rows { (row_card(view, row, viewer)) }
            p class="acts" {
                @if view.after.is_some() { a class="page" href=(view.address(None, view.is_all)) { "First page" } }
                @if view.next.is_some() { a class="page" href=(view.address(view.next, view.is_all)) { "Next page" } }
            }
        }
    }
}

fn nothing(view: &ReviewView) -> Markup {
    html! {
        section class="card" {
            @if view.after.is_some() && view.waiting > 0 {
                p { "Nothing more on this page: the others wait on the first one." }
            } @else if view.is_all {
                p { "No output of this batch asks for a decision, and none has one." }
            } @else {
                p { "Nothing waits for a decision." }
            }
        }
    }
}

fn row_card(view: &ReviewView, row: &ReviewRow, viewer: &Viewer) -> Markup {
    html! {
        section class="card row" {
            p class="text prompt" translate="no" { (row.prompt) }
            p class="dim" { (row.what) @if row.takes.len() > 1 { " · " (row.takes.len()) " takes" } }
            div class="takes" { @for take in &row.takes { (take_card(view, row, take, viewer)) } }
            @if let Some(take) = row.takes.first().filter(|_| viewer.buys_takes()) {
                p class="acts" {
                    a class="act another" href={ "/jobs/" (in_address(&take.job)) "/take?review=true" } aria-keyshortcuts="t" { "Another take…" }
                }
            }
        }
    }
}

fn take_card(view: &ReviewView, row: &ReviewRow, take: &ReviewTake, viewer: &Viewer) -> Markup {
    let is_one_of_several = row.takes.len() > 1;
    html! {
        article class="take" id={ "take-" (take.seq) } tabindex="0" aria-label=(take.label) data-decision=(take.decision) {
            @for (at, output) in take.outputs.iter().enumerate() {
                (media(&format!("/batches/{}/outputs/{}/{}", in_address(&view.batch), in_address(&take.job), at + 1), output, &take.label))
            }
            div class="line" {
                a class="name" href={ "/jobs/" (in_address(&take.job)) } translate="no" { (take.label) }
                (state_mark(&take.decision))
                span class="push dim" {
                    @if is_one_of_several { "take " (take.take) " · " }
                    (grouped(take.credits)) @if take.credits == 1 { " credit" } @else { " credits" }
                }
            }
            @if let Some(said) = &take.said { p class="dim said" translate="no" { (said) } }
            @if matches!(viewer, Viewer::Operator { .. }) { (form(view, take, is_one_of_several, viewer)) }
        }
    }
}

fn media(address: &str, output: &ReviewOutput, label: &str) -> Markup {
    let family = output.content_type.split('/').next().unwrap_or_default();
    html! {
        figure {
            @match family {
                "image" => a href=(address) { img src=(address) alt={ "Output of " (label) } loading="lazy" decoding="async"; },
                "video" => video src=(address) controls preload="metadata" aria-label={ "Output of " (label) } {},
                "audio" => audio src=(address) controls preload="none" aria-label={ "Output of " (label) } {},
                _ => {},
            }
            figcaption class="dim" { a href=(address) translate="no" { (output.path) } }
        }
    }
}

fn form(view: &ReviewView, take: &ReviewTake, is_one_of_several: bool, viewer: &Viewer) -> Markup {
    let sums: Vec<&str> = take.outputs.iter().map(|output| output.sha256.as_str()).collect();
    let button = |action: &str, words: &str, key: &str| {
        html! { button name="decision" value=(action) aria-keyshortcuts=[Some(key).filter(|key| !key.is_empty())] { (words) } }
    };
    html! {
        form method="post" action=(view.address(view.after, view.is_all)) {
            (viewer.form_token())
            input type="hidden" name="job" value=(take.job);
            // What is looked at: other bytes are not decided about.
            input type="hidden" name="sha256" value=(sums.join(" "));
            label {
                span class="unseen" { "Reason" }
                input type="text" name="note" placeholder="Reason (optional)" autocomplete="off";
            }
            p class="acts" {
                @if take.decision != "approved" { (button("approve", "Approve", "a")) }
                @if take.decision != "rejected" { (button("reject", "Reject", "r")) }
                @if is_one_of_several && take.decision != "picked" { (button("pick", "Pick", "p")) }
                @if take.is_decided() { (button("withdraw", "Withdraw", "")) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(takes: usize, decision: &str) -> ReviewView {
        let hostile = "\"><script>alert(1)</script>";
        let take = |at: usize| ReviewTake {
            job: "ab".repeat(16),
            label: format!("poster{hostile}"),
            seq: u32::try_from(at).unwrap(),
            take: 1,
            credits: 1_000,
            decision: decision.to_owned(),
            said: Some(hostile.to_owned()),
            outputs: vec![ReviewOutput {
                path: hostile.to_owned(),
                content_type: "image/png".to_owned(),
                sha256: "00".repeat(32),
            }],
        };
        let row = ReviewRow {
            prompt: hostile.to_owned(),
            what: "image gi-2".to_owned(),
            takes: (0..takes).map(take).collect(),
        };
        ReviewView { batch: "春".to_owned(), waiting: 1, rows: vec![row], ..ReviewView::default() }
    }

    fn operator() -> Viewer {
        Viewer::Operator { form_token: "tok".to_owned(), is_logged_in: true, takes_manifests: true }
    }

    #[test]
    fn a_take_is_picked_only_among_several_and_nobody_decides_without_a_token() {
        let buttons = |takes, decision: &str, viewer: &Viewer| {
            let page = review_body(&view(takes, decision), viewer).into_string();
            assert!(!page.contains("<script>"), "{page}");
            assert!(page.contains("src=\"/batches/%E6%98%A5/outputs/abab"), "{page}");
            ["approve", "reject", "pick", "withdraw"]
                .map(|action| page.contains(&format!("value=\"{action}\"")))
        };
        assert_eq!(buttons(1, "waiting", &operator()), [true, true, false, false]);
        assert_eq!(buttons(2, "waiting", &operator()), [true, true, true, false]);
        assert_eq!(buttons(2, "picked", &operator()), [true, true, false, true]);
        assert_eq!(buttons(2, "waiting", &Viewer::Reader), [false; 4]);
        let another = |viewer: &Viewer| {
            let page = review_body(&view(2, "rejected"), viewer).into_string();
            page.matches(&format!("href=\"/jobs/{}/take?review=true\"", "ab".repeat(16))).count()
        };
        let of_run =
            Viewer::Operator { form_token: "tok".to_owned(), is_logged_in: true, takes_manifests: false };
        assert_eq!([operator(), of_run, Viewer::Reader].map(|viewer| another(&viewer)), [1, 0, 0]);
    }

    #[test]
    fn pages_follow_each_other() {
        let next = ReviewView { next: Some(7), is_all: true, ..view(1, "approved") };
        let page = review_body(&next, &operator()).into_string();
        assert!(page.contains("href=\"/batches/%E6%98%A5/review?after=7&amp;all=true\""), "{page}");
        let last = ReviewView { after: Some(7), rows: Vec::new(), ..view(1, "waiting") };
        let page = review_body(&last, &operator()).into_string();
        assert!(page.contains("wait on the first one") && page.contains(">First page<"), "{page}");
    }
}
