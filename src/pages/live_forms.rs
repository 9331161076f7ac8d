//! The forms of the live pages: log in, confirm what changes something, plan and submit a manifest.

use maud::{Markup, html};

use crate::pages::document::grouped;
use crate::pages::live_document::{Frame, Viewer, live_page};

/// Problems of a manifest that a plan lists.
const PROBLEMS_MAX: usize = 100;

fn framed(title: &str, up: Option<(String, String)>, viewer: &Viewer, body: &Markup) -> String {
    live_page(&Frame { title, up, events: None, viewer, notice: None }, &html! {}, body)
}

/// Asks for the control token. `next` is the page that was asked for.
pub fn login_page(next: &str, is_wrong: bool) -> String {
    let body = html! {
        section class="card narrow" {
            form method="post" action="/login" {
                input type="hidden" name="next" value=(next);
                @if is_wrong { p class="bad" role="alert" { "That is not the token." } }
                label {
                    span { "The token in the file " code { "control.token_file" } }
                    input type="password" name="token" autocomplete="current-password" required autofocus;
                }
                button class="main" { "Log in" }
            }
        }
    };
    framed("Log in", None, &Viewer::Stranger, &body)
}

/// A field of a form.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub label: String,
    pub value: String,
    pub is_required: bool,
    pub kind: FieldKind,
}

impl Field {
    /// One that is sent with the form and not shown.
    pub fn hidden(name: &'static str, value: &impl ToString) -> Field {
        let (label, value) = (String::new(), value.to_string());
        Field { name, label, value, is_required: true, kind: FieldKind::Hidden }
    }
}

/// What a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Number,
    Check,
    /// Not shown.
    Hidden,
}

/// What is asked before something changes.
#[derive(Debug)]
pub struct ConfirmView {
    pub title: String,
    /// What happens.
    pub text: Vec<String>,
    /// What it may cost.
    pub price: Option<String>,
    pub fields: Vec<Field>,
    pub button: String,
    /// It cannot be taken back.
    pub is_grave: bool,
    /// Only asks further: nothing changes yet.
    pub is_question: bool,
    /// Where the form goes.
    pub action: String,
    /// The page that it belongs to, as address and name.
    pub back: (String, String),
}

/// Asks whether something is to be done.
pub fn confirm_page(view: &ConfirmView, viewer: &Viewer) -> String {
    let class = if view.is_grave { "grave" } else { "main" };
    let body = html! {
        section class="card narrow" {
            @for text in &view.text { p { (text) } }
            @if let Some(price) = &view.price { p class="price" { (price) } }
            form method=(if view.is_question { "get" } else { "post" }) action=(view.action) {
                @if !view.is_question { (viewer.form_token()) }
                @for field in &view.fields { (field_of(field)) }
                p class="acts" {
                    button class=(class) { (view.button) }
                    a class="page" href=(view.back.0) { "Back" }
                }
            }
        }
    };
    framed(&view.title, Some(view.back.clone()), viewer, &body)
}

fn field_of(field: &Field) -> Markup {
    let Field { name, label, value, is_required, kind } = field;
    match kind {
        FieldKind::Hidden => html! { input type="hidden" name=(name) value=(value); },
        FieldKind::Number => html! {
            label {
                span { (label) }
                input type="number" name=(name) value=(value) min="0" step="1" inputmode="numeric" required[*is_required];
            }
        },
        FieldKind::Check => html! {
            label { input type="checkbox" name=(name) value=(value); " " (label) }
        },
    }
}

/// What a manifest form is filled with.
#[derive(Debug, Default, Clone)]
pub struct ManifestForm {
    pub file: String,
    pub batch: String,
    pub budget: String,
    pub manifest: String,
    pub strict: bool,
}

/// Takes a manifest. Nothing is bought by it: its plan comes first.
pub fn manifest_page(form: &ManifestForm, refused: Option<&str>, viewer: &Viewer) -> String {
    let body = html! {
        section class="card narrow" {
            p { "The next page shows what each row would cost and what is wrong with it. Nothing is sent before that." }
            @if let Some(refused) = refused { p class="bad" role="alert" { (refused) } }
            form method="post" action="/submit/plan" {
                (viewer.form_token())
                label { span { "A file from this device" } input #file type="file" accept=".csv,.tsv,.txt,.json,.jsonl,.ndjson"; }
                label {
                    span { "Manifest (.csv, .json, .jsonl)" }
                    textarea #manifest name="manifest" required spellcheck="false" { (form.manifest) }
                }
                label { span { "Name of the file: it gives the format and the batch's name" } input #name type="text" name="file" value=(form.file) placeholder="spring.csv" required; }
                label { span { "Name of the batch, if it is not the name of the file" } input type="text" name="batch" value=(form.batch); }
                label { span { "Budget of the batch in credits; empty for what is planned" } input type="number" name="budget" value=(form.budget) min="0" step="1"; }
                label { input type="checkbox" name="strict" value="true" checked[form.strict]; " Reject the whole manifest if a row is invalid" }
                p class="acts" { button class="main" { "Show the plan" } }
            }
        }
    };
    framed("Submit a manifest", Some(("/".to_owned(), "Overview".to_owned())), viewer, &body)
}

/// What a manifest would do and cost.
#[derive(Debug, Default)]
pub struct PlanView {
    pub file: String,
    pub batch: Option<String>,
    pub rows: u64,
    pub new: u32,
    pub changed: u32,
    pub have: u32,
    pub invalid: u64,
    /// What new and changed jobs may cost.
    pub price: u64,
    /// What is still to be spent, with those that wait.
    pub total: u64,
    pub budget: Option<u64>,
    /// What is wrong, as place and text.
    pub problems: Vec<(String, String)>,
    pub problems_total: u64,
    pub notes: Vec<String>,
    /// Budgets that it would pass.
    pub short: Vec<String>,
    /// The number under which exactly this manifest is kept; nothing where there is nothing to submit.
    pub key: Option<String>,
    /// Why the plan is shown again.
    pub again: Option<String>,
}

/// The plan of a manifest, and the button that submits it.
pub fn plan_page(plan: &PlanView, viewer: &Viewer) -> String {
    let more = plan.problems_total.saturating_sub(plan.problems.len().min(PROBLEMS_MAX) as u64);
    let body = html! {
        section class="card narrow" {
            @if let Some(again) = &plan.again { p class="bad" role="alert" { (again) } }
            p class="price" {
                "It may cost " b { (grouped(plan.price)) " credits" }
                @if plan.total > plan.price { "; with the jobs that wait already " b { (grouped(plan.total)) } }
                @if let Some(budget) = plan.budget { "; the budget is " b { (grouped(budget)) } }
            }
            dl {
                dt { "File" } dd { (plan.file) }
                @if let Some(batch) = &plan.batch { dt { "Batch" } dd { (batch) } }
                dt { "Rows" } dd { (grouped(plan.rows)) }
                dt { "Jobs" } dd {
                    (grouped(u64::from(plan.new))) " new"
                    @if plan.changed > 0 { ", " (grouped(u64::from(plan.changed))) " changed" }
                    @if plan.have > 0 { ", " (grouped(u64::from(plan.have))) " already there" }
                }
                @if plan.invalid > 0 { dt { "Invalid" } dd class="bad" { (grouped(plan.invalid)) @if plan.invalid == 1 { " row" } @else { " rows" } } }
            }
            @for short in &plan.short { p class="late" { (short) } }
            @if !plan.problems.is_empty() {
                h3 { "Problems" }
                ul class="problems" { @for (place, text) in plan.problems.iter().take(PROBLEMS_MAX) {
                    li { span class="dim" { (place) " " } (text) }
                } }
                @if more > 0 { p class="dim" { "and " (grouped(more)) " more" } }
            }
            @if !plan.notes.is_empty() {
                h3 { "Notes" }
                ul class="problems" { @for note in plan.notes.iter().take(PROBLEMS_MAX) { li { (note) } } }
            }
            @match &plan.key {
                Some(key) => {
                    form method="post" action="/submit" {
                        (viewer.form_token())
                        input type="hidden" name="plan" value=(key);
                        p class="acts" {
                            button class="main" { "Submit: " (grouped(plan.total)) " credits at most" }
                            a class="page" href="/submit" { "Back" }
                        }
                    }
                },
                None => {
                    p { "There is nothing to submit." }
                    p class="acts" { a class="page" href="/submit" { "Back" } }
                },
            }
        }
    };
    let up = Some(("/submit".to_owned(), "Submit a manifest".to_owned()));
    framed("Plan", up, viewer, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_says_so_before_its_button() {
        let viewer =
            Viewer::Operator { form_token: "tok".to_owned(), is_logged_in: true, takes_manifests: true };
        let hostile = "<script>alert(1)</script>".to_owned();
        let plan = PlanView {
            price: 1_234,
            total: 2_000,
            problems: vec![("line 2".to_owned(), hostile)],
            problems_total: 1,
            key: Some("k".to_owned()),
            ..PlanView::default()
        };
        let page = plan_page(&plan, &viewer);
        assert!(
            page.find("1,234 credits").unwrap() < page.find("Submit: 2,000 credits at most").unwrap(),
            "{page}"
        );
        assert!(
            page.contains("name=\"form_token\" value=\"tok\"") && !page.contains("<script>alert"),
            "{page}"
        );
        let nothing = plan_page(&PlanView { key: None, ..plan }, &viewer);
        assert!(!nothing.contains("action=\"/submit\""), "{nothing}");
        assert!(!login_page("/\"><script>", true).contains("\"><script>"));
    }
}
