//! The pages of a batch, of its jobs and of one job.

use maud::{Markup, html};

use crate::domain::credits::Credits;
use crate::domain::time::Timestamp;
use crate::pages::document::grouped;
use crate::pages::document::in_address;
use crate::pages::live_budget_bar::{BudgetView, budget_bar};
use crate::pages::live_document::{Fragments, Viewer, credits, moment, state_mark};
use crate::pages::live_overview::{BatchView, ParkedView, parked_list, progress};
use crate::pages::live_review::review_address;

/// Characters of a prompt that a list shows.
const PROMPT_CHARS: usize = 140;

/// The parts of a batch's page that change as it goes on.
pub fn batch_fragments(batch: &BatchView, parked: Option<ParkedView>) -> Fragments {
    let parked: Vec<ParkedView> = parked.into_iter().collect();
    vec![
        ("parked", parked_list(&parked)),
        ("progress", progress_card(batch)),
        ("budget", budget_card(batch)),
        ("acts", acts(batch)),
    ]
}

fn progress_card(batch: &BatchView) -> Markup {
    html! {
        section class="card" {
            h2 { "Progress " (state_mark(batch.state)) }
            div class="line" {
                span { b { (grouped(u64::from(batch.succeeded))) } " of " (grouped(u64::from(batch.jobs))) " jobs succeeded" }
            }
            (progress(batch))
            ul class="states" { @for (state, n) in &batch.states {
                li { a href={ "?state=" (in_address(state)) "#jobs" } { b { (grouped(u64::from(*n))) } " " (state.replace('_', " ")) } }
            } }
            @if batch.unreviewed > 0 {
                p { a class="name" href=(review_address(&batch.name, None, false)) { (grouped(u64::from(batch.unreviewed))) " waiting for review" } }
            }
            @if batch.refused_rows > 0 {
                p class="late" {
                    (grouped(u64::from(batch.refused_rows)))
                    @if batch.refused_rows == 1 { " row of its manifest was refused" } @else { " rows of its manifest were refused" }
                    ": the receipt says why"
                }
            }
        }
    }
}

fn budget_card(batch: &BatchView) -> Markup {
    let sums = &batch.budget;
    let budget = BudgetView {
        name: "Budget of the batch".to_owned(),
        held: sums.held,
        spent: sums.spent,
        perhaps: sums.perhaps,
        limit: Some(sums.limit),
    };
    html! {
        section class="card" {
            h2 { "Credits" }
            (budget_bar(&budget))
            p class="dim" {
                (grouped(sums.planned)) " planned"
                @if sums.waived > 0 { ", " (grouped(sums.waived)) " covered by an allowance" }
                @if sums.refunded > 0 { ", " (grouped(sums.refunded)) " refunded" }
            }
        }
    }
}

fn acts(batch: &BatchView) -> Markup {
    let to = |action: &str| format!("/batches/{}/{action}", in_address(&batch.name));
    html! {
        p class="acts" {
            @match batch.state {
                "paused" => a class="act" href=(to("resume")) { "Resume…" },
                "done" | "review" => {},
                _ => a class="act" href=(to("pause")) { "Pause…" },
            }
            @if batch.failed + batch.dropped > 0 { a class="act" href=(to("retry")) { "Retry…" } }
            @if batch.succeeded > 0 || batch.failed > 0 { a class="act" href=(to("download")) { "Download again…" } }
            a class="act" href=(to("budget")) { "Set the budget…" }
            @if batch.waiting > 0 { a class="act" href=(to("cancel")) { "Cancel…" } }
        }
    }
}

/// Some jobs of a batch.
#[derive(Debug)]
pub struct JobList {
    pub batch: String,
    /// Only jobs in this state.
    pub state: Option<String>,
    pub jobs: Vec<JobRow>,
    /// The list begins after the first job.
    pub is_later: bool,
    /// From where the next page begins.
    pub next: Option<u64>,
}

/// A job of a list.
#[derive(Debug)]
pub struct JobRow {
    /// Its identity.
    pub id: String,
    pub label: String,
    pub line: u64,
    pub state: String,
    pub what: String,
    pub prompt: String,
    pub credits: u64,
    pub error: Option<String>,
    pub superseded: bool,
}

/// The list.
pub fn job_list(list: &JobList) -> Markup {
    let base = format!("/batches/{}", in_address(&list.batch));
    let of_state = list.state.as_deref().map(|state| format!("state={}", in_address(state)));
    let at = |from: Option<u64>| {
        let parts: Vec<String> =
            of_state.iter().cloned().chain(from.map(|from| format!("from={from}"))).collect();
        if parts.is_empty() { format!("{base}#jobs") } else { format!("{base}?{}#jobs", parts.join("&")) }
    };
    html! {
        section #jobs class="card" {
            h2 { "Jobs"
                @if let Some(state) = &list.state { " in state " (state.replace('_', " ")) }
            }
            @if list.state.is_some() { p { a href={ (base) "#jobs" } { "Show every job" } } }
            @if list.jobs.is_empty() { p class="dim" { "None here." } }
            ul class="jobs" { @for job in &list.jobs {
                li {
                    div class="line" {
                        a class="name" href={ "/jobs/" (in_address(&job.id)) } translate="no" { (job.label) }
                        (state_mark(&job.state))
                        @if job.superseded { span class="mark" { "superseded" } }
                        span class="push dim" { (job.what) " · line " (job.line) " · " (credits(Credits(job.credits))) }
                    }
                    p class="dim prompt" translate="no" { (shortened(&job.prompt)) }
                    @if let Some(error) = &job.error { p class="bad prompt" { (shortened(error)) } }
                }
            } }
            p class="acts" {
                @if list.is_later { a class="page" href=(at(None)) { "First page" } }
                @if let Some(next) = list.next { a class="page" href=(at(Some(next))) { "Next page" } }
            }
        }
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(PROMPT_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The whole story of a job.
#[derive(Debug)]
pub struct JobView {
    pub id: String,
    pub batch: String,
    pub label: String,
    pub state: String,
    pub prompt: String,
    /// Names and values, in order.
    pub facts: Vec<(&'static str, String)>,
    pub history: Vec<HistoryRow>,
    /// What comes next.
    pub next: String,
    /// What can be done, as the last part of an address and words.
    pub acts: Vec<(&'static str, &'static str)>,
}

/// A line of a job's history.
#[derive(Debug)]
pub struct HistoryRow {
    pub at: Timestamp,
    pub attempt: u32,
    pub what: String,
    pub moved: Option<String>,
}

/// Facts of a job in the words of others: of its manifest, of who decided, of the service. No command in them is ours.
pub const QUOTED_FACTS: [&str; 3] = ["column", "decision", "error"];
/// Last part of the address of another take of a job.
pub const ANOTHER_TAKE: &str = "take";

/// The page of a job.
pub fn job_body(job: &JobView, viewer: &Viewer) -> Markup {
    let acts = job.acts.iter().filter(|(action, _)| *action != ANOTHER_TAKE || viewer.buys_takes());
    html! {
        section class="card" {
            h2 { "Next" }
            p { (job.next) }
            p class="acts" { @for (action, words) in acts {
                a class="act" href={ "/jobs/" (in_address(&job.id)) "/" (action) } { (words) }
            } }
        }
        section class="card" {
            h2 { "Job " (state_mark(&job.state)) }
            p class="text" translate="no" { (job.prompt) }
            dl { @for (name, value) in &job.facts {
                dt { (name) } dd translate=[QUOTED_FACTS.contains(name).then_some("no")] { (value) }
            } }
        }
        section class="card wide" {
            h2 { "History" }
            @if job.history.is_empty() { p class="dim" { "Nothing has happened yet." } }
            ol class="history" { @for line in &job.history {
                li {
                    span class="dim" { (moment(line.at)) " #" (line.attempt) }
                    span { (line.what) @if let Some(moved) = &line.moved { b { " " (moved) } } }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_take_is_offered_where_it_can_be_bought() {
        let job = JobView {
            id: "7d".to_owned(),
            batch: "spring".to_owned(),
            label: "poster".to_owned(),
            state: "succeeded".to_owned(),
            prompt: "A harbour".to_owned(),
            facts: Vec::new(),
            history: Vec::new(),
            next: "nothing".to_owned(),
            acts: vec![("download", "Download again…"), (ANOTHER_TAKE, "Another take…")],
        };
        let operator = |takes_manifests| Viewer::Operator {
            form_token: "tok".to_owned(),
            is_logged_in: true,
            takes_manifests,
        };
        for (viewer, is_offered) in
            [(operator(true), true), (operator(false), false), (Viewer::Reader, false)]
        {
            let body = job_body(&job, &viewer).into_string();
            assert!(body.contains("/jobs/7d/download"), "{body}");
            assert_eq!(body.contains("/jobs/7d/take"), is_offered, "{viewer:?}");
        }
    }
}
