//! The overview: what moves, what does not and why, and what it costs.

use maud::{Markup, html};

use crate::domain::time::{Millis, Timestamp};
use crate::pages::document::grouped;
use crate::pages::document::in_address;
use crate::pages::live_budget_bar::{BudgetView, budget_bar};
use crate::pages::live_document::{DayCredits, Fragments, bar, day_plot, moment, span, state_mark};
use crate::pages::live_review::review_address;

/// Everything that the overview shows.
#[derive(Debug, Default)]
pub struct OverviewView {
    pub now: Now,
    pub parked: Vec<ParkedView>,
    pub budgets: Vec<BudgetView>,
    /// Budgets of groups that are not shown.
    pub more_budgets: usize,
    /// The oldest first.
    pub days: Vec<DayCredits>,
    pub day_limit: Option<u64>,
    /// The newest first.
    pub batches: Vec<BatchView>,
    /// Finished batches that are not shown.
    pub not_listed: u64,
    pub schedules: Vec<ScheduleView>,
}

/// The whole in a few numbers.
#[derive(Debug, Default)]
pub struct Now {
    pub in_flight: u64,
    pub in_flight_limit: u32,
    pub waiting: u64,
    /// How long the oldest queue has waited; zero when none waits.
    pub oldest: Millis,
    pub held: u64,
    pub spent_today: u64,
    pub balance: Option<u64>,
    pub min_balance: Option<u64>,
}

/// Why a batch does not move.
#[derive(Debug, Default)]
pub struct ParkedView {
    pub batch: String,
    pub why: String,
    /// What is missing, in numbers.
    pub needs: Option<String>,
    /// What lifts it from here, as address and words.
    pub lifts: Vec<(String, String)>,
}

/// A batch in numbers.
#[derive(Debug, Default)]
pub struct BatchView {
    pub name: String,
    /// `active`, `parked`, `paused`, `review`, `done`
    pub state: &'static str,
    pub jobs: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub in_doubt: u32,
    /// Canceled, expired and replaced.
    pub dropped: u32,
    pub in_flight: u32,
    pub waiting: u32,
    pub budget: BatchCredits,
    /// Every state with jobs in it, in the order of a job's life.
    pub states: Vec<(String, u32)>,
    pub refused_rows: u32,
    /// Jobs whose outputs wait for a person's decision.
    pub unreviewed: u32,
}

/// The credits of a batch.
#[derive(Debug, Default)]
pub struct BatchCredits {
    pub planned: u64,
    pub limit: u64,
    pub held: u64,
    pub spent: u64,
    /// What its jobs may have been charged that nothing tells.
    pub perhaps: u64,
    pub waived: u64,
    pub refunded: u64,
}

/// A schedule and when it fires next.
#[derive(Debug)]
pub struct ScheduleView {
    pub name: String,
    pub cron: String,
    pub timezone: String,
    /// The instant, and what a clock of its zone shows then; nothing when it never fires again.
    pub next: Option<(Timestamp, String)>,
}

/// The parts of the overview.
pub fn overview_fragments(view: &OverviewView) -> Fragments {
    vec![
        ("now", now(&view.now)),
        ("parked", parked_list(&view.parked)),
        ("batches", batches(view)),
        ("budgets", budgets(view)),
        ("days", days(view)),
        ("schedules", schedules(&view.schedules)),
    ]
}

fn now(now: &Now) -> Markup {
    let oldest = if now.waiting == 0 {
        "none waits".to_owned()
    } else {
        format!("the oldest for {}", span(now.oldest))
    };
    let kept = now.min_balance.map(|least| format!("{} must stay", grouped(least)));
    html! {
        ul class="tiles" {
            (tile("In flight", &grouped(now.in_flight), &format!("of {} at most", now.in_flight_limit)))
            (tile("Waiting", &grouped(now.waiting), &oldest))
            (tile("Held", &grouped(now.held), "credits set aside"))
            (tile("Spent today", &grouped(now.spent_today), "credits, since 00:00 UTC"))
            @if let Some(balance) = now.balance {
                (tile("Balance", &grouped(balance), kept.as_deref().unwrap_or("as last told")))
            }
        }
    }
}

fn tile(name: &str, number: &str, note: &str) -> Markup {
    html! { li { span class="dim" { (name) } b { (number) } span class="dim" { (note) } } }
}

/// What keeps batches, each with what lifts it.
pub fn parked_list(parked: &[ParkedView]) -> Markup {
    html! {
        @if !parked.is_empty() {
            section class="card parked" {
                h2 { "Parked" }
                ul { @for one in parked {
                    li {
                        a class="name" href={ "/batches/" (in_address(&one.batch)) } { (one.batch) }
                        p { (one.why) @if let Some(needs) = &one.needs { br; b { (needs) } } }
                        @if !one.lifts.is_empty() { p class="acts" {
                            @for (href, words) in &one.lifts { a class="act" href=(href) { (words) } }
                        } }
                    }
                } }
            }
        }
    }
}

fn batches(view: &OverviewView) -> Markup {
    html! {
        section class="card" {
            h2 { "Batches" }
            @if view.batches.is_empty() {
                p class="dim" { "No batches yet. " code { "callsheet submit MANIFEST" } " hands one in." }
            }
            ul class="batches" { @for batch in &view.batches { (batch_row(batch)) } }
            @if view.not_listed > 0 {
                p class="dim" {
                    @if view.not_listed == 1 { "1 finished batch is not shown; it" } @else { (grouped(view.not_listed)) " finished batches are not shown; each" }
                    " opens at " code { "/batches/NAME" }
                }
            }
        }
    }
}

fn batch_row(batch: &BatchView) -> Markup {
    html! {
        li {
            div class="line" {
                a class="name" href={ "/batches/" (in_address(&batch.name)) } { (batch.name) }
                (state_mark(batch.state))
                @if batch.unreviewed > 0 {
                    a class="review" href=(review_address(&batch.name, None, false)) { (grouped(u64::from(batch.unreviewed))) " waiting for review" }
                }
                span class="push" { (grouped(u64::from(batch.succeeded))) " of " (grouped(u64::from(batch.jobs))) }
            }
            (progress(batch))
            div class="line dim" {
                span { (counts(batch)) }
                span class="push" { (spending(&batch.budget)) }
            }
        }
    }
}

/// A batch as a bar of what became of its jobs.
pub fn progress(batch: &BatchView) -> Markup {
    let share = |n: u32| u64::from(n);
    let parts = [
        ("succeeded", share(batch.succeeded)),
        ("failed", share(batch.failed)),
        ("doubt", share(batch.in_doubt)),
        ("dropped", share(batch.dropped)),
        ("moving", share(batch.in_flight)),
    ];
    let ended = batch.succeeded + batch.failed + batch.in_doubt + batch.dropped;
    bar(&parts, u64::from(batch.jobs), &format!("{ended} of {} jobs have ended", batch.jobs))
}

/// `3 in flight, 12 waiting, 1 failed`
fn counts(batch: &BatchView) -> Markup {
    let known = [
        (batch.in_flight, "in flight", ""),
        (batch.waiting, "waiting", ""),
        (batch.failed, "failed", "bad"),
        (batch.in_doubt, "in doubt", "doubt"),
        (batch.dropped, "dropped", ""),
        (batch.refused_rows, if batch.refused_rows == 1 { "row refused" } else { "rows refused" }, "late"),
    ];
    let shown: Vec<_> = known.into_iter().filter(|(n, ..)| *n > 0).collect();
    html! { @for (at, (n, name, class)) in shown.iter().enumerate() {
        @if at > 0 { ", " }
        span class=(class) { (grouped(u64::from(*n))) " " (name) }
    } }
}

/// `12 spent, 4 held, 8 perhaps charged of 48 credits`
pub fn spending(credits: &BatchCredits) -> Markup {
    html! {
        (grouped(credits.spent)) " spent"
        @if credits.held > 0 { ", " (grouped(credits.held)) " held" }
        @if credits.perhaps > 0 { ", " (grouped(credits.perhaps)) " perhaps charged" }
        " of " (grouped(credits.limit)) " credits"
    }
}

fn budgets(view: &OverviewView) -> Markup {
    html! {
        section class="card" {
            h2 { "Budgets" }
            ul class="budgets" { @for budget in &view.budgets { li { (budget_bar(budget)) } } }
            @if view.more_budgets > 0 { p class="dim" { "and " (view.more_budgets) @if view.more_budgets == 1 { " more group with a limit" } @else { " more groups with a limit" } } }
        }
    }
}

fn days(view: &OverviewView) -> Markup {
    html! {
        section class="card" {
            h2 { "Credits by day" }
            (day_plot(&view.days, view.day_limit))
            p class="legend dim" { span class="key spent" {} "spent" span class="key held" {} "held" }
        }
    }
}

fn schedules(schedules: &[ScheduleView]) -> Markup {
    html! {
        @if !schedules.is_empty() {
            section class="card" {
                h2 { "Schedules" }
                ul class="schedules" { @for schedule in schedules {
                    li {
                        div class="line" {
                            span class="name" { (schedule.name) }
                            code class="push dim" { (schedule.cron) }
                            a class="act" href={ "/schedules/" (in_address(&schedule.name)) "/run" } { "Run now…" }
                        }
                        div class="dim" {
                            @match &schedule.next {
                                Some((at, local)) => {
                                    "next " (moment(*at))
                                    @if schedule.timezone != "UTC" { ", " (local.replace('T', " ").chars().take(16).collect::<String>()) " in " (schedule.timezone) }
                                },
                                None => "never fires again",
                            }
                        }
                    }
                } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_parked_has_its_reason_and_what_lifts_it() {
        let parked = ParkedView {
            batch: "<春>".to_owned(),
            why: "it is paused".to_owned(),
            needs: Some("8 are missing".to_owned()),
            lifts: vec![("/batches/x/resume".to_owned(), "Resume".to_owned())],
        };
        let view = OverviewView { parked: vec![parked], ..OverviewView::default() };
        let page: String =
            overview_fragments(&view).into_iter().map(|(_, part)| part.into_string()).collect();
        assert!(page.contains("href=\"/batches/%3C%E6%98%A5%3E\">&lt;春&gt;</a>"), "{page}");
        assert!(page.contains("8 are missing") && page.contains(">Resume</a>"), "{page}");
    }
}
