//! What can be done from a batch's page or a job's: each is asked for first, with what it may cost.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::domain::budget::BudgetSetting;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchName;
use crate::domain::job::Job;
use crate::domain::job_state::JobState;
use crate::domain::plural::counted;
use crate::domain::remedy::keys_of_retry;
use crate::engine::job_iter::JobIter;
use crate::engine::scheduler::is_retried;
use crate::engine::{blocking, to_the_end};
use crate::pages::document::in_address;
use crate::pages::live_document::{Viewer, credits};
use crate::pages::live_forms::{ConfirmView, Field, FieldKind, confirm_page};
use crate::server::api_error::{ApiError, Path, Query};
use crate::server::app_state::{AppState, Shared};
use crate::server::explain_answer;
use crate::server::handlers::{self, HandlerError};
use crate::server::live_page::LivePage;
use crate::server::page_forms::{Form, lead_to, operator, reading_only};
use crate::server::page_forms::{Who, batch_name, refused, status_of, viewer};
use crate::server::protocol::{BatchOutcomes, ResolveRequest, RetryRequest};
use crate::store::StoreError;

/// The field with the most that its form may spend, as it was shown, in credits.
const MOST: &str = "most";
/// The field that tells how often it had been retried, or what had happened to it, when its form was shown: the form again is
/// known by it.
const SEEN: &str = "seen";
/// The field with the number of the attempt whose charge its form asks for, where no other one is chosen.
const SHOWN_ATTEMPT: &str = "shown_attempt";

/// What a form does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Pause,
    Resume,
    Continue,
    Cancel,
    Retry,
    Download,
    Budget,
    Resolve,
}

impl Action {
    fn parse(text: &str) -> Result<Action, ApiError> {
        Ok(match text {
            "pause" => Action::Pause,
            "resume" => Action::Resume,
            "continue" => Action::Continue,
            "cancel" => Action::Cancel,
            "retry" => Action::Retry,
            "download" => Action::Download,
            "budget" => Action::Budget,
            "resolve" => Action::Resolve,
            _ => return Err(ApiError::usage("no such action")),
        })
    }
}

/// What it is done to.
#[derive(Debug)]
enum Object {
    Batch(BatchName),
    /// By its identity.
    Job(String),
}

impl Object {
    fn page(&self) -> String {
        match self {
            Object::Batch(name) => format!("/batches/{}", in_address(name.as_str())),
            Object::Job(id) => format!("/jobs/{}", in_address(id)),
        }
    }

    /// As commands name it.
    fn name(&self) -> &str {
        match self {
            Object::Batch(name) => name.as_str(),
            Object::Job(id) => id,
        }
    }
}

/// What a question was answered with so far.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ActionQuery {
    budget: Option<u64>,
}

pub(super) async fn ask_for_batch(
    State(app): Shared,
    who: Who,
    Path((name, action)): Path<(String, String)>,
    Query(query): Query<ActionQuery>,
) -> Response {
    let viewer = viewer(&app, who);
    let object = batch_name(&name).map(Object::Batch);
    answer(
        &viewer,
        ask(&app, &viewer, object, &action, &query).await.map(|page| LivePage(page).into_response()),
    )
}

pub(super) async fn ask_for_job(
    State(app): Shared,
    who: Who,
    Path((id, action)): Path<(String, String)>,
    Query(query): Query<ActionQuery>,
) -> Response {
    let viewer = viewer(&app, who);
    let object = Ok(Object::Job(id));
    answer(
        &viewer,
        ask(&app, &viewer, object, &action, &query).await.map(|page| LivePage(page).into_response()),
    )
}

pub(super) async fn do_to_batch(
    State(app): Shared,
    who: Who,
    Path((name, action)): Path<(String, String)>,
    form: Form,
) -> Response {
    let viewer = viewer(&app, who.clone());
    let object = batch_name(&name).map(Object::Batch);
    answer(&viewer, carry_out(&app, who, object, &action, &form).await)
}

pub(super) async fn do_to_job(
    State(app): Shared,
    who: Who,
    Path((id, action)): Path<(String, String)>,
    form: Form,
) -> Response {
    let viewer = viewer(&app, who.clone());
    answer(&viewer, carry_out(&app, who, Ok(Object::Job(id)), &action, &form).await)
}

fn answer(viewer: &Viewer, answer: Result<Response, ApiError>) -> Response {
    answer.unwrap_or_else(|error| refused(viewer, error))
}

/// The page that asks whether it is to be done.
async fn ask(
    app: &AppState,
    viewer: &Viewer,
    object: Result<Object, ApiError>,
    action: &str,
    query: &ActionQuery,
) -> Result<String, ApiError> {
    if !matches!(viewer, Viewer::Operator { .. }) {
        return Err(reading_only());
    }
    let (object, action) = (object?, Action::parse(action)?);
    let view = match &object {
        Object::Batch(name) => question_of_batch(app, name, action, query).await?,
        Object::Job(id) => question_of_job(app, id, action).await?,
    };
    Ok(confirm_page(&view, viewer))
}

fn number(name: &'static str, label: &str, value: Option<u64>, is_required: bool) -> Field {
    let value = value.map(|value| value.to_string()).unwrap_or_default();
    Field { name, label: label.to_owned(), value, is_required, kind: FieldKind::Number }
}

fn max_credits(limit: Option<Credits>) -> Field {
    let label = "Price limit of each job, if it differs from the limit of its row";
    number("max_credits", label, limit.map(|limit| limit.0), false)
}

async fn question_of_batch(
    app: &AppState,
    name: &BatchName,
    action: Action,
    query: &ActionQuery,
) -> Result<ConfirmView, ApiError> {
    let status = status_of(app, name).await?;
    // What may have been charged before may be found not to have been, and bought.
    let spent = status.held_credits + status.charged_credits;
    let left = Credits(status.budget_credits.saturating_sub(spent));
    let page = Object::Batch(name.clone()).page();
    let view =
        |title: &str, verb: &str, text: Vec<String>, price: Option<String>, fields: Vec<Field>| ConfirmView {
            title: format!("{title} {name}"),
            text,
            price,
            fields,
            button: title.to_owned(),
            is_grave: action == Action::Cancel,
            is_question: false,
            action: format!("{page}/{verb}"),
            back: (page.clone(), name.to_string()),
        };
    Ok(match action {
        Action::Pause => {
            let text = "No more of its jobs are submitted, until it is resumed. Jobs in flight finish.";
            view("Pause", "pause", vec![text.to_owned()], None, Vec::new())
        }
        Action::Resume => {
            let price = format!("May spend {} at most: what is left of its budget.", credits(left));
            let text = vec!["Its jobs are submitted again.".to_owned()];
            view("Resume", "resume", text, Some(price), vec![Field::hidden(MOST, &left.0)])
        }
        Action::Continue => {
            let pilot = status.pilot.unwrap_or_default();
            let text = format!("The {} jobs that wait after its pilot are submitted.", pilot.rest_jobs);
            let price = format!(
                "They were accepted at {}. The prices in force when they are sent count: may spend the {} that its budget \
                 has left.",
                credits(pilot.rest_credits),
                credits(left)
            );
            view("Continue", "continue", vec![text], Some(price), vec![Field::hidden(MOST, &left.0)])
        }
        Action::Cancel => {
            let waiting = status.in_state(JobState::Queued);
            let text = format!(
                "{waiting} jobs that are not submitted yet are dropped. Those in flight finish, and are paid for."
            );
            view("Cancel", "cancel", vec![text], None, Vec::new())
        }
        Action::Retry => {
            let RetryCost { jobs, credits: cost, back, reopened } = retry_cost(app, name).await?;
            let text = format!("{jobs} failed, canceled and expired jobs are queued again.");
            // A budget that is the planned cost grows by what was canceled before it was sent.
            let left = left + back;
            let price = format!(
                "They were accepted at {}. The prices in force when they are sent count: may spend the {} that its budget \
                 has left{}.",
                credits(cost),
                credits(left),
                if back.is_zero() { "" } else { " once they are planned again" }
            );
            let dropped = [JobState::Canceled, JobState::Expired]
                .map(|state| status.in_state(state))
                .iter()
                .sum::<u32>();
            let only_failed = Field {
                name: "failed",
                label: "Only the failed ones".to_owned(),
                value: "true".to_owned(),
                is_required: false,
                kind: FieldKind::Check,
            };
            // With one group alone there is nothing to choose.
            let is_choice = dropped > 0 && status.in_state(JobState::Failed) > 0;
            let fields = [
                Some(max_credits(None)),
                is_choice.then_some(only_failed),
                Some(Field::hidden(MOST, &left.0)),
                Some(Field::hidden(SEEN, &reopened)),
            ];
            view("Retry", "retry", vec![text], Some(price), fields.into_iter().flatten().collect())
        }
        Action::Download => {
            let text = "Outputs that are paid for and not on disk are downloaded again, free of charge. Files that were edited stay.";
            view("Download", "download", vec![text.to_owned()], None, Vec::new())
        }
        Action::Budget => {
            let now = format!(
                "The budget is {} credits: {} are spent, {} held. All of its jobs were planned at {}.",
                status.budget_credits, status.charged_credits, status.held_credits, status.planned_credits
            );
            match query.budget {
                None => {
                    let larger = status.larger_budgets();
                    let all = larger.map_or(status.planned_credits, |(_, all)| all);
                    let mut text = vec![now];
                    text.extend(larger.map(|(next, all)| {
                        format!("The next job needs a budget of {next}, all of them one of {all}.")
                    }));
                    let field = number("budget", "New budget, in credits", Some(all), true);
                    let view = view("Set the budget of", "budget", text, None, vec![field]);
                    ConfirmView { is_question: true, button: "Go on".to_owned(), ..view }
                }
                Some(budget) => {
                    let more = Credits(budget.saturating_sub(spent));
                    let price = format!("May then spend {} more at most.", credits(more));
                    let field = Field::hidden("budget", &budget);
                    let text = vec![now, format!("It is set to {budget}.")];
                    let view = view("Set the budget of", "budget", text, Some(price), vec![field]);
                    ConfirmView { button: format!("Set it to {budget}"), ..view }
                }
            }
        }
        Action::Resolve => return Err(ApiError::usage("only a job can be in doubt: choose a job")),
    })
}

async fn question_of_job(app: &AppState, id: &str, action: Action) -> Result<ConfirmView, ApiError> {
    let explanation = explain_answer::explain(&app.engine, id).await?;
    let (spec, job) = (&explanation.spec, &explanation.job);
    let label = format!("{}/{}", explanation.batch, spec.label);
    let object = Object::Job(spec.id.to_string());
    let view = |title: &str, verb: &str, text: &str, price: Option<String>, fields: Vec<Field>| ConfirmView {
        title: format!("{title} {label}"),
        text: vec![text.to_owned()],
        price,
        fields,
        button: title.to_owned(),
        is_grave: action == Action::Cancel,
        is_question: false,
        action: format!("{}/{verb}", object.page()),
        back: (object.page(), label.clone()),
    };
    let hold = job.hold(&spec.order);
    Ok(match action {
        Action::Cancel => view(
            "Cancel",
            "cancel",
            "It is canceled, unless it has been submitted by then.",
            None,
            Vec::new(),
        ),
        Action::Retry => {
            let cost = hold
                .map_or("Its price is not known: set the most that it may cost.".to_owned(), |hold| {
                    format!("May spend {} at most, unless the field says more.", credits(hold))
                });
            let most = hold.map(|hold| Field::hidden(MOST, &hold.0));
            let seen = Field::hidden(SEEN, &last_seen(job));
            let fields = [Some(max_credits(hold)), most, Some(seen)].into_iter().flatten().collect();
            view("Retry", "retry", "It is queued again.", Some(cost), fields)
        }
        Action::Download => view(
            "Download",
            "download",
            "Its outputs are downloaded again, free of charge.",
            None,
            Vec::new(),
        ),
        Action::Resolve => {
            let text = "Look up in the account what it was charged, and record that; 0 if it was not charged. Nothing is sent by it.";
            let held = hold.map(|hold| format!("{} are held for it.", credits(hold)));
            let above = Field {
                name: "above_hold",
                label: "It was charged more than was held".to_owned(),
                value: "true".to_owned(),
                is_required: false,
                kind: FieldKind::Check,
            };
            let shown = job.attempt_to_resolve(None, Credits::ZERO).ok();
            let shown = shown.map(|attempt| Field::hidden(SHOWN_ATTEMPT, &attempt.no().0));
            let fields = [
                Some(number("charged", "Charged, in credits", None, true)),
                Some(number("attempt", "Attempt, where several are in doubt or watched", None, false)),
                Some(above),
                shown,
            ];
            let fields = fields.into_iter().flatten().collect();
            view("Record the charge of", "resolve", text, held, fields)
        }
        Action::Pause | Action::Resume | Action::Continue | Action::Budget => {
            return Err(ApiError::usage("this action is for batches, not for jobs"));
        }
    })
}

/// The last that happened to a job: a retry that keeps its key changes no attempt.
fn last_seen(job: &Job) -> String {
    let history = job.history();
    format!("{}-{}", history.len(), history.last().map_or(0, |line| line.at.0))
}

/// What a retry of a batch takes up.
struct RetryCost {
    jobs: u32,
    /// What they may cost together, as they were accepted.
    credits: Credits,
    /// By how much the budget of the batch grows with them.
    back: Credits,
    /// How many jobs of the batch were taken up again before.
    reopened: u32,
}

async fn retry_cost(app: &AppState, name: &BatchName) -> Result<RetryCost, ApiError> {
    let record = handlers::find_batch(&app.engine, name).await?;
    let (store, now) = (app.engine.store().clone(), app.pages.clock().now());
    let add_up = move || -> Result<_, StoreError> {
        let (mut jobs, mut credits, mut back) = (0, Credits::ZERO, Credits::ZERO);
        let mut all = JobIter::open(&store, &record)?;
        while let Some((spec, found)) = all.next_job()? {
            if is_retried(&record, &spec, &found, now) && !all.versions().is_superseded(spec.seq) {
                jobs += 1;
                credits = credits + found.job.hold(&spec.order).unwrap_or_default();
                back = back + record.unspent_of(&found.job, &spec.order);
            }
        }
        if record.policy.budget.is_some() {
            back = Credits::ZERO;
        }
        Ok(RetryCost { jobs, credits, back, reopened: record.reopened })
    };
    Ok(blocking(add_up).await.map_err(HandlerError::from)?)
}

/// The question again, where it is another one than the form answers: more may be spent than was shown, or what it asked
/// about was taken up again since, as by the same form, or is another attempt.
async fn asked_anew(
    app: &AppState,
    viewer: &Viewer,
    object: &Object,
    action: Action,
    form: &Form,
) -> Result<Option<Response>, ApiError> {
    let mut view = match object {
        Object::Batch(name) if matches!(action, Action::Resume | Action::Continue | Action::Retry) => {
            question_of_batch(app, name, action, &ActionQuery::default()).await?
        }
        Object::Job(id) if action == Action::Retry => question_of_job(app, id, action).await?,
        // Who chose an attempt means that one.
        Object::Job(id) if action == Action::Resolve && form.get("attempt").is_none() => {
            question_of_job(app, id, action).await?
        }
        _ => return Ok(None),
    };
    let now = |name: &str| Some(view.fields.iter().find(|field| field.name == name)?.value.as_str());
    let (most, most_now) = (form.number(MOST)?, now(MOST).and_then(|most| most.parse::<u64>().ok()));
    let why = match () {
        () if now(SEEN).is_some() && now(SEEN) != form.get(SEEN) => {
            "It was retried since this page was shown."
        }
        () if now(SHOWN_ATTEMPT) != form.get(SHOWN_ATTEMPT) => {
            "It is not the attempt any more whose charge this page asked for."
        }
        () if most_now.is_some_and(|now| most.is_none_or(|most| now > most)) => {
            "It may spend more now than this page showed."
        }
        () => return Ok(None),
    };
    view.text.insert(0, format!("Nothing was done. {why} This is how it is now:"));
    Ok(Some((StatusCode::CONFLICT, LivePage(confirm_page(&view, viewer))).into_response()))
}

/// Does it, and leads back to the page that says what came of it.
async fn carry_out(
    app: &std::sync::Arc<AppState>,
    who: Who,
    object: Result<Object, ApiError>,
    action: &str,
    form: &Form,
) -> Result<Response, ApiError> {
    let viewer = operator(app, who, form)?;
    let (object, action) = (object?, Action::parse(action)?);
    // What the question is compared with stays as it is until it is done.
    let alone = if action == Action::Retry { Some(app.engine.reopening().await) } else { None };
    if let Some(question) = asked_anew(app, &viewer, &object, action, form).await? {
        return Ok(question);
    }
    let page = object.page();
    let (engine, name) = (app.engine.clone(), object.name().to_owned());
    // Without a limit of its own a job may cost what its page showed.
    let shown = if matches!(object, Object::Job(_)) { form.number(MOST)? } else { None };
    let max_credits = form.number("max_credits")?.or(shown);
    // It runs to its end, even if the browser goes away.
    let done = match (action, object) {
        (Action::Pause, Object::Batch(batch)) => {
            to_the_end(async move { handlers::pause(&engine, Some(&batch)).await })
                .await
                .map(|done| said(action, &done))
        }
        (Action::Resume, Object::Batch(batch)) => {
            to_the_end(async move { handlers::resume(&engine, Some(&batch)).await })
                .await
                .map(|done| said(action, &done))
        }
        (Action::Continue, Object::Batch(batch)) => {
            let ingest = app.ingest.clone();
            to_the_end(async move { handlers::continue_batch(&engine, &ingest, &batch).await })
                .await
                .map(|done| said(action, &done))
        }
        (Action::Budget, Object::Batch(batch)) => {
            let budget = form
                .number("budget")?
                .ok_or_else(|| ApiError::usage("budget: expected a number of credits"))?;
            let budget = BudgetSetting::Limit(Credits(budget));
            let ingest = app.ingest.clone();
            to_the_end(async move { handlers::set_budget(&engine, &ingest, &batch, budget).await }).await.map(
                |set| {
                    format!(
                        "The budget was {} and is {} credits now.",
                        set.before_credits, set.budget_credits
                    )
                },
            )
        }
        (Action::Cancel, _) => {
            let output_dir = app.output_dir();
            to_the_end(async move { handlers::cancel(&engine, &output_dir, &name).await })
                .await
                .map(|done| said(action, &done))
        }
        (Action::Retry, _) => {
            let failed = form.get("failed") == Some("true");
            let request = RetryRequest { name, max_credits, failed };
            let Some(alone) = alone else { return Err(ApiError::usage("that cannot be done here")) };
            to_the_end(async move { handlers::retry(&engine, &alone, &request).await })
                .await
                .map(|done| said(action, &done))
        }
        (Action::Download, _) => {
            let app = app.clone();
            to_the_end(async move { handlers::download(&app.engine, &name, app.output_places()).await })
                .await
                .map(|done| said(action, &done))
        }
        (Action::Resolve, Object::Job(_)) => {
            let charged = form
                .number("charged")?
                .ok_or_else(|| ApiError::usage("charged: expected a number of credits"))?;
            let attempt = form.number("attempt")?.or(form.number(SHOWN_ATTEMPT)?);
            let attempt = attempt.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            let above_hold = form.get("above_hold") == Some("true");
            let request = ResolveRequest { name, charged, attempt, above_hold };
            let output_dir = app.output_dir();
            to_the_end(async move { handlers::resolve(&engine, &output_dir, &request).await })
                .await
                .map(|done| said(action, &done))
        }
        _ => return Err(ApiError::usage("that cannot be done here")),
    };
    Ok(lead_to(app, &page, done?))
}

/// `Queued again: 3 jobs. 1 would be rejected again unchanged.`
fn said(action: Action, done: &BatchOutcomes) -> String {
    let verb = match action {
        Action::Pause => "Paused",
        Action::Resume => "Resumed",
        Action::Continue => "Continued",
        Action::Budget => "Set",
        Action::Cancel => "Canceled",
        Action::Retry => "Queued again",
        Action::Download => "Downloading",
        Action::Resolve => "Recorded",
    };
    let mut text = Vec::new();
    for outcome in done.batches.iter().map(|batch| &batch.result) {
        if let Some(refused) = &outcome.refused {
            text.push(format!("Nothing was done: {refused}."));
            continue;
        }
        let jobs = counted(outcome.jobs, "job");
        let keys = match (action, outcome.jobs) {
            (Action::Retry, 1..) => {
                format!(", {}", keys_of_retry(outcome.jobs, outcome.same_key, outcome.without_key))
            }
            _ => String::new(),
        };
        text.push(format!("{verb}: {jobs}{keys}."));
        let more = [
            (outcome.in_flight as usize, "in flight finish"),
            (outcome.may_have_been_sent as usize, "may have been sent before and stay"),
            (outcome.made_before.len(), "were made and paid for before: see the file that their error names"),
            (outcome.hopeless.len(), "would be rejected again unchanged: change their rows"),
            (outcome.paid.len(), "are paid for but not downloaded: download them"),
            (outcome.expired.len(), "would expire again at once"),
            (
                outcome.missed_deadline.len(),
                "have passed the deadline of their row: add their rows with other ids",
            ),
            (outcome.watched.len(), "have ended, but the task of an earlier attempt has not: it is watched"),
            (outcome.superseded.len(), "are older versions of edited rows"),
            (outcome.edited.len(), "edited outputs are kept; downloads get other names beside them"),
        ];
        text.extend(more.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}.")));
    }
    if text.is_empty() { format!("{verb}.") } else { text.join(" ") }
}
