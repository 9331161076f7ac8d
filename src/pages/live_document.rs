//! What every page of the live pages has in common: head, title line, bars and the plot. Nothing has a `style`
//! attribute: what varies is drawn in SVG, so that the content policy needs no exception.

use maud::{DOCTYPE, Markup, html};

use crate::domain::credits::Credits;
use crate::domain::time::{Millis, Timestamp};
use crate::domain::utc_day::UtcDay;
use crate::pages::STYLE;
use crate::pages::document::{grouped, theme_switch};

/// The style sheet of the live pages, beside that of every page, and their script.
pub const LIVE_ASSETS: [(&str, &str, &str); 3] = [
    ("style.css", "text/css; charset=utf-8", STYLE),
    ("live.css", "text/css; charset=utf-8", include_str!("live.css")),
    (
        "live.js",
        "text/javascript; charset=utf-8",
        concat!(include_str!("theme_switch.js"), include_str!("live.js"), include_str!("live_review.js")),
    ),
];

/// What a live page may load and where its forms may go: this server. Sent as a header.
pub const LIVE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the viewer of a page may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Viewer {
    /// Only read: the address has no token.
    Reader,
    /// Everything; forms carry this token of the page.
    Operator {
        form_token: String,
        /// It came by a login, and can be ended.
        is_logged_in: bool,
        /// This process takes manifests in.
        takes_manifests: bool,
    },
    /// Not known yet: the login page.
    Stranger,
}

impl Viewer {
    fn name(&self) -> &'static str {
        match self {
            Viewer::Reader => "reader",
            Viewer::Operator { .. } => "operator",
            Viewer::Stranger => "stranger",
        }
    }

    /// Whether another take can be bought here. What it costs is shown before.
    pub fn buys_takes(&self) -> bool {
        matches!(self, Viewer::Operator { takes_manifests: true, .. })
    }

    /// The hidden field of every form.
    pub fn form_token(&self) -> Markup {
        html! {
            @if let Viewer::Operator { form_token, .. } = self {
                input type="hidden" name="form_token" value=(form_token);
            }
        }
    }
}

/// The frame of a page.
#[derive(Debug)]
pub struct Frame<'a> {
    pub title: &'a str,
    /// Where the page belongs, as address and name; nothing for the overview.
    pub up: Option<(String, String)>,
    /// The address of the events that keep it current.
    pub events: Option<String>,
    pub viewer: &'a Viewer,
    /// What was just done, as the last form was answered.
    pub notice: Option<String>,
}

/// Parts of a page that are replaced as they change: the id of each, and what is in it.
pub type Fragments = Vec<(&'static str, Markup)>;

/// A page.
pub fn live_page(frame: &Frame<'_>, summary: &Markup, body: &Markup) -> String {
    let Frame { title, up, events, viewer, notice } = frame;
    let page = html! {
        (DOCTYPE)
        html lang="en" data-page="live" data-viewer=(viewer.name()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title translate="no" { (title) " · callsheet" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/assets/style.css";
                link rel="stylesheet" href="/assets/live.css";
                script src="/assets/live.js" defer {}
            }
            body data-events=[events.as_ref()] {
                header class="top" {
                    div class="title" {
                        @if let Some((href, name)) = up { a class="up" href=(href) translate="no" { (name) } }
                        h1 translate="no" { (title) }
                    }
                    p class="summary" { (summary) }
                    nav class="menu" {
                        p #live-state class="live-state" role="status" {}
                        @if let Viewer::Operator { form_token, is_logged_in, takes_manifests } = viewer {
                            @if *takes_manifests { a href="/submit" { "Submit a manifest" } }
                            @if *is_logged_in {
                                form method="post" action="/logout" {
                                    input type="hidden" name="form_token" value=(form_token);
                                    button class="quiet" { "Log out" }
                                }
                            }
                        }
                        (theme_switch())
                    }
                }
                @if let Some(notice) = notice { p class="notice done" role="status" { (notice) } }
                main class="live" { (body) }
                @if **viewer == Viewer::Reader {
                    footer class="foot" {
                        "Reading only: this address has no token. To act from here set " code { "control.token_file" }
                        "; in a terminal every action is a command of " code { "callsheet" } "."
                    }
                }
            }
        }
    };
    page.into_string()
}

/// A page that says why there is no other.
pub fn refusal_page(title: &str, message: &str, hint: Option<&str>, viewer: &Viewer) -> String {
    let frame = Frame {
        title,
        up: Some(("/".to_owned(), "Overview".to_owned())),
        events: None,
        viewer,
        notice: None,
    };
    let body = html! {
        section class="card" {
            p { (message) }
            @if let Some(hint) = hint { p class="dim" { (hint) } }
        }
    };
    live_page(&frame, &html! {}, &body)
}

/// Sections with fragments in them.
pub fn sections(fragments: Fragments) -> Markup {
    html! { @for (id, content) in fragments { div id=(id) class="fragment" data-live { (content) } } }
}

/// The state of a batch or job, or a decision, as a mark.
pub fn state_mark(state: &str) -> Markup {
    html! { span class={ "mark " (state) } { (state.replace('_', " ")) } }
}

/// `12 credits`
pub fn credits(amount: Credits) -> String {
    if amount.0 == 1 { "1 credit".to_owned() } else { format!("{} credits", grouped(amount.0)) }
}

/// `n` of `whole`, where the whole is drawn `length` long.
fn scaled(n: u64, length: u64, whole: u64) -> u64 {
    let scaled = u128::from(n) * u128::from(length) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A bar of parts, each a class and a share of `whole`; what is left of the whole stays empty.
pub fn bar(parts: &[(&str, u64)], whole: u64, label: &str) -> Markup {
    const WIDTH: u64 = 1_000;
    let scale = |n: u64| scaled(n, WIDTH, whole);
    let (mut drawn, mut at) = (Vec::new(), 0);
    let mut sum = 0_u64;
    for (class, n) in parts.iter().filter(|(_, n)| *n > 0) {
        sum = sum.saturating_add(*n);
        // What is there at all is seen.
        let end = scale(sum).clamp((at + 4).min(WIDTH), WIDTH);
        drawn.push((*class, at, end - at));
        at = end;
    }
    html! {
        svg class="bar" viewBox="0 0 1000 8" preserveAspectRatio="none" role="img" aria-label=(label) {
            rect class="rest" x="0" y="0" width="1000" height="8" {}
            @for (class, x, width) in drawn { rect class=(class) x=(x) y="0" width=(width) height="8" {} }
        }
    }
}

/// What was held and spent on a UTC day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayCredits {
    pub day: UtcDay,
    pub held: u64,
    pub spent: u64,
}

/// Credits by UTC day, the oldest first, with a limit of a day where one is set.
pub fn day_plot(days: &[DayCredits], limit: Option<u64>) -> Markup {
    const HEIGHT: u64 = 100;
    let most = days.iter().map(|day| day.held + day.spent).max().unwrap_or_default();
    // A limit that is far away says less than the days do.
    let shown_limit = limit.filter(|limit| *limit > 0 && *limit <= most.saturating_mul(3));
    let top = most.max(shown_limit.unwrap_or_default()).max(1);
    let scale = |n: u64| scaled(n, HEIGHT, top);
    let width = days.len().max(1) * 10;
    let label = format!("Credits by UTC day, {} at most", grouped(most));
    html! {
        figure class="plot" {
            div class="scale" aria-hidden="true" { span { (grouped(top)) } span { "0" } }
            svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
                @for (at, day) in days.iter().enumerate() {
                    @let spent = scale(day.spent);
                    @let all = scale(day.spent + day.held).max(u64::from(day.spent + day.held > 0));
                    g {
                        title { (day.day.to_string()) ": " (grouped(day.spent)) " spent, " (grouped(day.held)) " held" }
                        rect class="hit" x=(at * 10) y="0" width="10" height=(HEIGHT) {}
                        rect class="held" x=(at * 10 + 1) y=(HEIGHT - all) width="8" height=(all - spent.min(all)) {}
                        rect class="spent" x=(at * 10 + 1) y=(HEIGHT - spent) width="8" height=(spent) {}
                    }
                }
                @if let Some(limit) = shown_limit {
                    @let y = HEIGHT - scale(limit);
                    line class="limit" x1="0" x2=(width) y1=(y) y2=(y) {}
                }
            }
            figcaption {
                @if let (Some(first), Some(last)) = (days.first(), days.last()) {
                    span { (first.day.to_string()) }
                    @if let Some(limit) = shown_limit { span { "limit " (grouped(limit)) } }
                    span { (last.day.to_string()) " (UTC)" }
                }
            }
        }
    }
}

/// `2026-05-04 09:30:12 UTC`
pub fn moment(at: Timestamp) -> Markup {
    let text = at.to_string();
    let shown: String = text.replace('T', " ").chars().take(19).collect();
    html! { time datetime=(text) { (shown) " UTC" } }
}

/// `3 days`, `2 h 5 min`, `12 min`, `less than a minute`
pub fn span(span: Millis) -> String {
    let minutes = span.0 / 60_000;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => "less than a minute".to_owned(),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (1, hours, _) => format!("1 day {hours} h"),
        (days, ..) => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_plots_stay_inside_whatever_is_in_them() {
        let drawn = bar(&[("spent", u64::MAX), ("held", u64::MAX)], 10, "a <b>").into_string();
        assert!(drawn.contains("aria-label=\"a &lt;b&gt;\""), "{drawn}");
        assert!(drawn.contains("width=\"1000\"") && !drawn.contains("style="), "{drawn}");
        let small = bar(&[("spent", 1)], 1_000_000, "x").into_string();
        assert!(small.contains("class=\"spent\" x=\"0\" y=\"0\" width=\"4\""), "{small}");
        let day = |day, spent| DayCredits { day: UtcDay(day), held: 5, spent };
        let plot = day_plot(&[day(20_000, 0), day(20_001, 95)], Some(10_000)).into_string();
        assert!(plot.contains("2024-10-04: 0 spent, 5 held") && !plot.contains("class=\"limit\""), "{plot}");
        assert!(day_plot(&[day(1, 95)], Some(200)).into_string().contains("class=\"limit\""));
    }

    #[test]
    fn spans_are_said_in_what_people_count() {
        let said = [5_000, 60_000, 7_500_000, 90_000_000, 400_000_000].map(|ms| span(Millis(ms)));
        assert_eq!(said, ["less than a minute", "1 min", "2 h 5 min", "1 day 1 h", "4 days"]);
    }
}
